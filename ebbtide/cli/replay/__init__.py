"""``ebbtide replay``: the morning after a shutdown."""

from __future__ import annotations

import click

from ebbtide.cli.app import Entry, LazyGroup
from ebbtide.cli.common.shared_options import need_command

#: The verbs by question.
SECTIONS: dict[str, dict[str, Entry]] = {
    "What happened": {
        "timeline": Entry("replay.replay_timeline:timeline", "Show a shutdown, one line per transition."),
        "state": Entry("replay.replay_state:state", "Every actor's state after any event."),
    },
    "Where the time went": {
        "blame": Entry(
            "replay.replay_blame:blame_command", "List pods and hooks by the time that they took."
        ),
        "critical-chain": Entry(
            "replay.replay_critical_chain:critical_chain_command", "Show what the total time is made of."
        ),
        "diff": Entry(
            "replay.replay_diff:diff_command", "Compare two shutdowns, pod by pod and wave by wave."
        ),
    },
    "What would have been": {
        "what-if": Entry(
            "replay.replay_what_if:what_if_command", "Decide a shutdown again under other settings."
        ),
        "advise": Entry(
            "replay.replay_advise:advise_command", "Advise the smallest periods that save every pod."
        ),
    },
    "For others": {
        "report": Entry("replay.replay_report:report_command", "Make a self-contained page of a shutdown."),
    },
    "Is it true": {
        "verify": Entry(
            "replay.replay_verify:verify_command", "Execute the facts again, compare every decision."
        ),
    },
}

EPILOG = """\b
Examples:
  ebbtide replay verify
  ebbtide replay timeline -2 --pod shop/web-0
  ebbtide replay verify last --journal /mnt/old/journal

EPISODE is last (the default), -1, -2, …, or an id from 'ebbtide journal ls'. No journal is changed.
"""


@click.group(cls=LazyGroup, sections=SECTIONS, invoke_without_command=True, epilog=EPILOG)
@click.pass_context
def replay(ctx: click.Context) -> None:
    """Execute a journal again, and explain a shutdown."""
    need_command(ctx)

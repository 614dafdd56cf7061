"""``ebbtide outage``: nodes that went down without a graceful shutdown."""

from __future__ import annotations

import click

from ebbtide.cli.app import Entry, LazyGroup
from ebbtide.cli.common.shared_options import need_command

SECTIONS: dict[str, dict[str, Entry]] = {
    "Run it": {
        "run": Entry(
            "outage.outage_run:run", "The controller: watch, prove, taint, follow, take the taint back."
        ),
    },
    "See what it does": {
        "ls": Entry("outage.outage_ls:ls", "The open outages of all nodes."),
        "status": Entry(
            "outage.outage_status:status", "One node's outage: proof, taint, and what everything waits for."
        ),
        "explain": Entry("outage.outage_explain:explain", "Why a pod is still Terminating."),
        "doctor": Entry("outage.outage_doctor:doctor", "Would an outage of each node be recovered?"),
    },
    "Say what only a person knows": {
        "declare": Entry("outage.outage_declare:declare", "That a machine is off: one kind of proof."),
    },
}

EPILOG = """\b
Examples:
  ebbtide outage run --config outage.yaml --kubeconfig ~/.kube/config --dry-run
  ebbtide outage declare worker-2 --off
  ebbtide outage explain shop/db-0
  ebbtide outage doctor --config outage.yaml
"""


@click.group(cls=LazyGroup, sections=SECTIONS, invoke_without_command=True, epilog=EPILOG)
@click.pass_context
def outage(ctx: click.Context) -> None:
    """Recover failed nodes: proof that they are off, taint, detach, all on record."""
    need_command(ctx)

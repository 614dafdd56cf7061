"""``ebbtide replay verify``: is the whole journal a function of its facts?"""

from __future__ import annotations

import gc
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ebbtide.actors.system import LOGIC_FLAGS
from ebbtide.cli.common.guard import DIVERGED, DONE, code_of, unreadable, worst
from ebbtide.cli.common.options import output_option
from ebbtide.cli.common.output import remark, show, show_json
from ebbtide.cli.common.reading import conclude, journals_option, open_journal
from ebbtide.replay.verify import HIDES, Verification, verify

if TYPE_CHECKING:
    from ebbtide.events.reader import History
    from ebbtide.replay.divergence import Explanation


EPILOG = """\b
Examples:
  ebbtide replay verify
  ebbtide replay verify last --journal /mnt/old/journal
  ebbtide replay verify -o json | jq .identical
"""


@click.command("verify", epilog=EPILOG, context_settings={"ignore_unknown_options": True})
@click.argument("episode", required=False)
@journals_option
@output_option("table", "json")
def verify_command(episode: str | None, journals: tuple[Path, ...], output: str) -> int:
    """Feed the facts again and compare every decision, byte by byte.

    EPISODE (last, -1, -2, …, or an id) limits what is reported; all of the journal before it is executed in
    any case. Without it everything is. Exit code 3: it diverged; the first difference is explained.
    """
    return verify_journal(journals, episode, output)


VERIFICATION_VERSION = 1

#: What differs stands out; column titles stand back.
PAINT_STYLES: dict[str, dict[str, Any]] = {"differs": {"fg": "red", "bold": True}, "dim": {"dim": True}}


def verify_journal(journals: tuple[Path, ...], episode: str | None, output: str) -> int:
    """Exit code by interface.md: 6 before 5 before 3 before 4."""
    only = _first_record(journals, episode) if episode is not None else 0
    history = open_journal(journals, logic_flags=LOGIC_FLAGS)
    result, seconds = _timed_verify(history, only)
    explained = _explained(journals, result)
    if output == "json":
        show_json(verification_document(result, explained, seconds))
    else:
        count = f"{result.events} events, {result.episodes} episode{'' if result.episodes == 1 else 's'}"
        if explained is not None:
            import click

            from ebbtide.cli.replay.divergence import divergence_lines

            coloured = sys.stdout.isatty()
            show(
                "\n".join(
                    (
                        f"diverged: {count} up to the first difference",
                        *(
                            list(
                                divergence_lines(
                                    explained,
                                    lambda name, text: (
                                        click.style(text, **PAINT_STYLES[name]) if coloured else text.rstrip()
                                    ),
                                )
                            )
                        ),
                    )
                )
            )
        elif _why_silent(result):
            show(f"not verified: {count} before what cannot be read, and no difference among them")
        else:
            speed = f"{seconds:.3f} s, {result.events / max(seconds, 1e-9):,.0f} events a second"
            show(f"identical: {count}, every decision as recorded ({speed})")
    if result.failure is not None:
        remark(f"ebbtide: {_stopped_text(result)}")
    code = DONE if result.failure is None else code_of(result.failure)
    return worst((conclude(result.verdict), DIVERGED if result.divergence else DONE, code))


def _timed_verify(history: History, only: int) -> tuple[Verification, float]:
    """Nothing here makes cycles, and looking for them takes a twentieth of the time."""
    gc.disable()
    try:
        began = time.perf_counter()
        return verify(history, only), time.perf_counter() - began
    finally:
        gc.enable()


def _first_record(journals: tuple[Path, ...], episode: str) -> int:
    from ebbtide.cli.common.episodes import choose_episode

    return choose_episode(journals, episode).first_seq


def _explained(journals: tuple[Path, ...], result: Verification) -> Explanation | None:
    """A second reading; most runs need none."""
    if result.divergence is None:
        return None
    from ebbtide import __version__
    from ebbtide.replay.divergence import explain

    return explain(open_journal(journals, logic_flags=LOGIC_FLAGS), result.divergence, __version__)


def _stopped_text(result: Verification) -> str:
    assert result.failure is not None
    return f"record {result.stopped_seq} cannot be executed: {unreadable(result.failure)}"


def _why_silent(result: Verification) -> str:
    """Why nothing is claimed of the whole; a torn tail was never part of it."""
    if result.failure is not None:
        return _stopped_text(result)
    return result.verdict.banner if result.verdict.state in HIDES else ""


def verification_document(
    result: Verification, explained: Explanation | None, seconds: float
) -> dict[str, Any]:
    """The promised shape; with a ``reason`` where part of the journal could not be verified."""
    silent = _why_silent(result)
    reason = {"reason": silent} if silent else {}
    return {
        "kind": "Verification",
        "version": VERIFICATION_VERSION,
        "episodes": result.episodes,
        "events": result.events,
        "identical": result.identical,
        "seconds": round(seconds, 6),
        "divergence": _explanation_document(explained),
        **reason,
    }


def _explanation_document(explained: Explanation | None) -> dict[str, Any] | None:
    if explained is None:
        return None
    from ebbtide.cli.replay.divergence import divergence_document

    return divergence_document(explained)

"""``ebbtide replay verify``: is the whole journal a function of its facts?"""

from __future__ import annotations

import gc
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actors.logic.flags import LOGIC_FLAGS
from ebbtide.cli.guard import DIVERGED, DONE, code_of, unreadable, worst
from ebbtide.cli.output import remark, show, show_json
from ebbtide.cli.reading import conclude, open_journal
from replay.verification import HIDES, Verification, verify

if TYPE_CHECKING:
    from events.history import History
    from replay.divergence import Explanation

VERIFICATION_VERSION = 1

#: What differs stands out; column titles stand back.
STYLES: dict[str, dict[str, Any]] = {"differs": {"fg": "red", "bold": True}, "dim": {"dim": True}}


def verify_journal(journals: tuple[Path, ...], episode: str | None, output: str) -> int:
    """Exit code by interface.md: 6 before 5 before 3 before 4."""
    only = _first_record(journals, episode) if episode is not None else 0
    history = open_journal(journals, logic_flags=LOGIC_FLAGS)
    result, seconds = _timed(history, only)
    explained = _explained(journals, result)
    if output == "json":
        show_json(verification(result, explained, seconds))
    else:
        _tell(result, explained, seconds)
    if result.failure is not None:
        remark(f"ebbtide: {_stopped(result)}")
    code = DONE if result.failure is None else code_of(result.failure)
    return worst((conclude(result.verdict), DIVERGED if result.divergence else DONE, code))


def _timed(history: History, only: int) -> tuple[Verification, float]:
    """Nothing here makes cycles, and looking for them takes a twentieth of the time."""
    gc.disable()
    try:
        began = time.perf_counter()
        return verify(history, only), time.perf_counter() - began
    finally:
        gc.enable()


def _first_record(journals: tuple[Path, ...], episode: str) -> int:
    from ebbtide.cli.episodes import choose

    return choose(journals, episode).first_seq


def _explained(journals: tuple[Path, ...], result: Verification) -> Explanation | None:
    """A second reading; most runs need none."""
    if result.divergence is None:
        return None
    from ebbtide import __version__
    from replay.divergence import explain

    return explain(open_journal(journals, logic_flags=LOGIC_FLAGS), result.divergence, __version__)


def _stopped(result: Verification) -> str:
    assert result.failure is not None
    return f"record {result.stopped_seq} cannot be executed: {unreadable(result.failure)}"


def _silent_about(result: Verification) -> str:
    """Why nothing is claimed of the whole; a torn tail was never part of it."""
    if result.failure is not None:
        return _stopped(result)
    return result.verdict.banner if result.verdict.state in HIDES else ""


def verification(result: Verification, explained: Explanation | None, seconds: float) -> dict[str, Any]:
    """The promised shape; with a ``reason`` where part of the journal could not be verified."""
    silent = _silent_about(result)
    reason = {"reason": silent} if silent else {}
    return {
        "kind": "Verification",
        "version": VERIFICATION_VERSION,
        "episodes": result.episodes,
        "events": result.events,
        "identical": result.identical,
        "seconds": round(seconds, 6),
        "divergence": _document(explained),
        **reason,
    }


def _document(explained: Explanation | None) -> dict[str, Any] | None:
    if explained is None:
        return None
    from ebbtide.cli.divergence import document

    return document(explained)


def _tell(result: Verification, explained: Explanation | None, seconds: float) -> None:
    count = f"{result.events} events, {result.episodes} episode{'' if result.episodes == 1 else 's'}"
    if explained is not None:
        show("\n".join((f"diverged: {count} up to the first difference", *_lines(explained))))
    elif _silent_about(result):
        show(f"not verified: {count} before what cannot be read, and no difference among them")
    else:
        speed = f"{seconds:.3f} s, {result.events / max(seconds, 1e-9):,.0f} events a second"
        show(f"identical: {count}, every decision as recorded ({speed})")


def _lines(explained: Explanation) -> list[str]:
    import click

    from ebbtide.cli.divergence import lines

    coloured = sys.stdout.isatty()
    return list(
        lines(explained, lambda name, text: click.style(text, **STYLES[name]) if coloured else text.rstrip())
    )

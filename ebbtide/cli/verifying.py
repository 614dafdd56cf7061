"""``ebbtide replay verify``: is the whole journal a function of its facts?"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

from actors.logic.flags import LOGIC_FLAGS
from ebbtide.cli.divergence import Explained, explain
from ebbtide.cli.episodes import choose
from ebbtide.cli.guard import DIVERGED, DONE, code_of, unreadable, worst
from ebbtide.cli.output import remark, show, show_json
from ebbtide.cli.reading import conclude, open_journal
from ebbtide.text import visible
from events.codec import BadPayload, UnknownType
from events.frames import RawRecord
from events.history import History
from events.recovery import Verdict
from replay.engine import Divergence, Replayer

VERIFICATION_VERSION = 1

#: A journal in such a state has records that nobody could read: that they agree cannot be said.
HIDES = ("corrupt", "incompatible")


class Result(NamedTuple):
    """``unreadable`` says why re-execution stopped at a record that cannot be decoded, ``code`` its code."""

    episodes: int
    events: int
    seconds: float
    divergence: Divergence | None
    unreadable: str
    code: int
    verdict: Verdict

    @property
    def silent_about(self) -> str:
        """Why nothing is claimed of the whole; a torn tail was never part of it."""
        return self.unreadable or (self.verdict.banner if self.verdict.state in HIDES else "")


def verify_journal(journals: tuple[Path, ...], episode: str | None, output: str) -> int:
    """Exit code by interface.md: 6 before 5 before 3 before 4."""
    only = choose(journals, episode).first_seq if episode is not None else None
    result = _Run(only).go(open_journal(journals, logic_flags=LOGIC_FLAGS))
    explained = explain(open_journal(journals), result.divergence) if result.divergence else None
    if output == "json":
        show_json(verification(result, explained))
    else:
        _tell(result, explained)
    if result.unreadable:
        remark(f"ebbtide: {result.unreadable}")
    return worst((conclude(result.verdict), DIVERGED if result.divergence else DONE, result.code))


class _Run:
    """One pass. ``only``: the number of the first record of the one episode that is asked about."""

    def __init__(self, only: int | None) -> None:
        self.replayer = Replayer()
        self.unreadable, self._code = "", DONE
        self._only = only
        self._episodes: set[int] = set()
        self._events = 0
        self._relevant = only is None

    def go(self, history: History) -> Result:
        """Execute as far as it agrees; read on to the end for the verdict's sake."""
        batches = history.batches()
        began = time.perf_counter()
        try:
            for batch in batches:
                self._count(batch.records)
                if self.replayer.feed(batch.records) is not None:
                    self._relevant |= self._touches(batch.records)
                    break
            else:
                self.replayer.finish()
        except (UnknownType, BadPayload) as error:
            at = self.replayer.system.next_seq
            self._code = code_of(error)
            self.unreadable = f"record {at} cannot be executed: {unreadable(error)}"
        seconds = time.perf_counter() - began
        for batch in batches:
            self._count(batch.records)
            self._relevant |= self._touches(batch.records)
        return self._result(seconds, history.verdict)

    def _count(self, records: list[RawRecord]) -> None:
        self._episodes |= {raw.episode for raw in records}
        if self._only is not None:
            self._events += sum(raw.episode == self._only for raw in records)

    def _touches(self, records: list[RawRecord]) -> bool:
        """What diverged only after the episode in question says nothing against it."""
        divergence = self.replayer.divergence
        return divergence is not None and any(
            raw.episode == self._only and raw.seq >= divergence.seq for raw in records
        )

    def _result(self, seconds: float, verdict: Verdict) -> Result:
        whole = self._only is None
        return Result(
            len(self._episodes - {0}) if whole else 1,
            self.replayer.events if whole else self._events,
            seconds,
            self.replayer.divergence if self._relevant else None,
            self.unreadable,
            self._code,
            verdict,
        )


def verification(result: Result, explained: Explained | None) -> dict[str, Any]:
    """The promised shape; with a ``reason`` where part of the journal could not be verified."""
    reason = {"reason": result.silent_about} if result.silent_about else {}
    return {
        "kind": "Verification",
        "version": VERIFICATION_VERSION,
        "episodes": result.episodes,
        "events": result.events,
        "identical": result.divergence is None and not reason,
        "seconds": round(result.seconds, 6),
        "divergence": explained.document() if explained is not None else None,
        **reason,
    }


def _tell(result: Result, explained: Explained | None) -> None:
    count = f"{result.events} events, {result.episodes} episode{'' if result.episodes == 1 else 's'}"
    speed = f"{result.seconds:.3f} s, {result.events / max(result.seconds, 1e-9):,.0f} events a second"
    if explained is not None:
        lines = (f"diverged: {count} up to the first difference", *explained.lines())
        show("\n".join(map(visible, lines)))
    elif result.silent_about:
        show(f"not verified: {count} before what cannot be read, and no difference among them")
    else:
        show(f"identical: {count}, every decision as recorded ({speed})")

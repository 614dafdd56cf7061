"""From a journal back to a running system: the last checkpoint, and every fact after it.

The state is rebuilt by the replayer, so a start is also a proof: where the recorded decisions are not what
this version decides, it says so and goes on from what it decided itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from actors.logic.system import System
from ebbtide.standing import Standing
from events.codec import BadPayload, UnknownType
from events.facts import DaemonStarted, OrderEnded, SettingsLoaded
from events.frames import RawRecord, decode
from events.history import History
from events.record import trace_id
from events.recovery import Verdict, refuse_foreign
from events.storage import Source
from replay.engine import Divergence, Replayer

#: Facts that every start admits by itself: a start after which nothing else came has come to nothing.
OF_A_START = (DaemonStarted.__name__, SettingsLoaded.__name__)


class Recovered(NamedTuple):
    """What a start finds. ``failed_starts``: starts at the journal's end after which nothing came."""

    system: System
    standing: Standing
    verdict: Verdict
    trace_id: str
    failed_starts: int
    divergence: Divergence | None


class Unreadable(Exception):
    """The journal needs another version; use that, or name another directory with --journal."""


def recover(sources: Sequence[Source], machine_id: str, fresh_id: bytes) -> Recovered:
    """Read what stands in ``sources``. Raises Unreadable, events.recovery.ForeignJournal, OSError."""
    history = History(sources, from_checkpoint=True, logic_flags=())
    replayer, standing, starts = Replayer(), Standing(), _Starts()
    hashes: dict[int, bytes] = {}
    try:
        replayer.feed(_watched(history.raw(), standing, starts, hashes))
    except (UnknownType, BadPayload) as error:
        raise Unreadable(f"the journal cannot be read by this version: {error}") from error
    verdict = history.verdict if replayer.divergence is None else history.read()
    refuse_foreign(verdict.header, machine_id)
    if verdict.state == "incompatible":
        raise Unreadable(verdict.banner)
    system = replayer.system
    system.next_seq = verdict.start(fresh_id).after.seq + 1
    return Recovered(
        system=system,
        standing=standing,
        verdict=verdict,
        trace_id=_trace(sources, system.episode, hashes),
        failed_starts=starts.failed,
        divergence=replayer.divergence,
    )


class _Starts:
    """Counts the starts at the end of a journal that led to nothing."""

    def __init__(self) -> None:
        self.failed = 0

    def see(self, raw: RawRecord) -> None:
        if raw.tag == DaemonStarted.__name__:
            self.failed += 1
        elif raw.cause == 0 and raw.actor == "edge" and raw.tag not in OF_A_START:
            lost = raw.tag == OrderEnded.__name__ and b"unknown" in raw.payload
            self.failed = self.failed if lost else 0


def _watched(
    raws: Iterable[RawRecord], standing: Standing, starts: _Starts, hashes: dict[int, bytes]
) -> Iterator[RawRecord]:
    for raw in raws:
        starts.see(raw)
        standing.fold((decode(raw),))
        if raw.episode == raw.seq:
            hashes[raw.seq] = raw.hash
        yield raw


def _trace(sources: Sequence[Source], episode: int, hashes: dict[int, bytes]) -> str:
    """The open episode's trace id; its first record may stand before the last checkpoint."""
    if not episode:
        return trace_id(hashes[max(hashes)]) if hashes else ""
    if episode not in hashes:
        found = (raw.hash for raw in History(sources).raw() if raw.seq == episode)
        hashes[episode] = next(found, b"")
    return trace_id(hashes[episode])

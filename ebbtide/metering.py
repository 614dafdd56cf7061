"""The node's metrics while the daemon runs: folded as records come, and kept beside the journal.

The sums go on over restarts and outlive the segments that they were folded from: a start takes up what the
last one kept, and folds what was written since. Where that cannot be had (the file is lost), all of the
journal that is left is folded once, after the node is protected.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from actors.policy.plan import planned_waves
from events.base import NS_PER_SECOND
from events.model import Pod
from events.record import Record
from events.workload import workload
from otel.metrics.catalog import Around
from otel.metrics.fold import fold
from otel.metrics.state import Meters, Need
from otel.metrics.text import exposition

#: The side file's name in the journal's directory; it can be made again from the journal.
FILE_NAME = "metrics"

#: Some hundred bytes for each workload; a file that is larger is none of ours.
FILE_BYTES_MAX = 1024 * 1024

Keep = Callable[[bytes], Awaitable[None]]
Rebuild = Callable[[int], Awaitable[Meters]]


class Journal(Protocol):
    """What is asked of the writer."""

    @property
    def away(self) -> bool: ...
    @property
    def lost(self) -> bool: ...
    @property
    def last_seq(self) -> int: ...
    @property
    def synced_seq(self) -> int: ...


def decode(data: bytes, journal_id: bytes) -> Meters:
    """What was kept of this journal; empty meters where nothing usable was."""
    try:
        meters = msgspec.msgpack.decode(data, type=Meters)
    except msgspec.DecodeError:
        return Meters(journal_id=journal_id)
    return meters if meters.journal_id == journal_id else Meters(journal_id=journal_id)


class Metering:
    """``whole`` False: ``meters`` lack older records, and `complete` has to be awaited once."""

    def __init__(
        self, meters: Meters, *, whole: bool, keep: Keep, rebuild: Rebuild, prefix: str = ""
    ) -> None:
        self.meters = meters
        self.prefix = prefix
        self.pods: Callable[[], Sequence[Pod]] | None = None
        self._keep, self._rebuild = keep, rebuild
        self._waiting: list[Record] | None = None if whole else []

    def fold(self, records: Sequence[Record]) -> None:
        """An observer of steps."""
        if self._waiting is not None:
            self._waiting += records
        fold(self.meters, records)

    async def complete(self) -> None:
        """Fold what the kept sums lack."""
        if self._waiting is None:
            return
        begins = self._waiting[0].seq if self._waiting else self.meters.seq + 1
        meters = await self._rebuild(begins)
        waiting, self._waiting = self._waiting, None
        fold(meters, waiting)
        self.meters = meters

    async def save(self) -> None:
        """Only whole sums are kept: a gap would never be noticed again."""
        if self._waiting is None:
            await self._keep(msgspec.msgpack.encode(self.meters))

    def text(self, journal: Journal, now_wall_ns: int) -> str:
        around = Around(
            now_wall_ns=now_wall_ns,
            at_risk=at_risk(self.meters, self.pods()) if self.pods is not None else None,
            journal_unsynced=max(0, journal.last_seq - journal.synced_seq),
            journal_lost=journal.lost,
            journal_away=journal.away,
        )
        return exposition(self.meters, around, self.prefix)


def at_risk(meters: Meters, pods: Sequence[Pod]) -> int:
    """How many of these pods would be killed now: their workload has been seen to need more than they get."""
    waves = planned_waves(meters.periods, meters.grant_ns or None, pods)
    workloads = {pod.uid: f"{pod.namespace}/{workload(pod.name)}" for pod in pods}
    return sum(
        _too_short(meters.needs.get(workloads[planned.uid]), planned.grace_seconds)
        for wave in waves
        for planned in wave.pods
    )


def _too_short(need: Need | None, grace_seconds: int) -> bool:
    if need is None:
        return False
    grace_ns = grace_seconds * NS_PER_SECOND
    return need.longest_ns >= grace_ns if need.needs_more else need.longest_ns > grace_ns


__all__ = ["FILE_BYTES_MAX", "FILE_NAME", "Metering", "at_risk", "decode"]

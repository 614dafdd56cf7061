"""Which shutdowns a journal tells of: one summary an episode, made in one pass.

A summary keeps counts and names of pods, never their events, so that a long journal costs no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, get_args

from events.codec import decode_event
from events.decisions import (
    EpisodeClosed,
    EpisodeOutcome,
    PodEnded,
    PodOutcome,
    PodPlanned,
    PodRejected,
    ReleaseLock,
    ShutdownBegan,
    ShutdownWithdrawn,
)
from events.facts import InventoryTaken
from events.frames import FLAG_LAST, RawRecord
from events.history import Batch, History
from events.model import ShutdownKind
from events.record import episode_id, trace_id


class Episode(NamedTuple):
    """One shutdown. Times are wall-clock nanoseconds: the first record's, plus monotonic difference.

    ``ended_wall_ns`` is when the lock was ordered released, or when a cancelled shutdown was closed; None
    when it was cut short or still runs. ``pods`` has a count for every outcome, together the inventory.
    """

    id: str
    trace_id: str
    first_seq: int
    last_seq: int
    kind: ShutdownKind
    boot_id: str
    started_wall_ns: int
    ended_wall_ns: int | None
    outcome: EpisodeOutcome
    pods: dict[PodOutcome, int]


def episodes(history: History, *, boot_id: str | None = None) -> Iterator[Episode]:
    """The shutdowns of a history, oldest first, each once it is over; what is still open comes last.

    One that is not closed counts as ``running``, unless ``boot_id`` (of this machine, now) says that its
    boot is over, or the record ends in damage: then nobody can know more than that it is cut short. Raises
    events.codec.BadPayload.
    """
    tale: _Tale | None = None
    fact: RawRecord | None = None
    for batch in history.batches():
        for raw in parted(batch.records):
            if raw.cause == 0:
                fact = raw
            if raw.episode and (tale is None or raw.episode != tale.number):
                if tale is not None:
                    yield tale.summary(history.journal_id, boot_id)
                tale = _Tale(raw.episode, _first_record(raw, fact), batch)
            if raw.episode and tale is not None:
                tale.add(raw, batch)
    if tale is not None:
        yield tale.summary(history.journal_id, boot_id, damaged=history.verdict.state != "intact")


def parted(records: Sequence[RawRecord]) -> Sequence[RawRecord]:
    """Whole steps, each shutdown's records together.

    A signal that comes while a cancelled shutdown's pods still go down closes it, and opens the next one, in
    one step: its first record is the next one's already, and the last words of the other stand behind it.
    """
    opening = [index for index, raw in enumerate(records) if raw.episode == raw.seq and raw.cause == 0]
    if not opening:
        return records
    made = list(records)
    for index in opening:
        ends = (at + 1 for at in range(index, len(made)) if made[at].flags & FLAG_LAST)
        end = next(ends, len(made))
        mine = made[index].episode
        step = made[index:end]
        made[index:end] = [
            *(raw for raw in step if raw.episode not in (0, mine)),
            *(raw for raw in step if raw.episode in (0, mine)),
        ]
    return made


def _first_record(raw: RawRecord, fact: RawRecord | None) -> RawRecord:
    """The fact that opened the episode, even where it still belonged to the one that it closed."""
    return fact if fact is not None and fact.seq == raw.episode else raw


class _Tale:
    """An episode while it is being read."""

    def __init__(self, number: int, first: RawRecord, batch: Batch) -> None:
        self.number = number
        self.first = first
        self._boot_id = batch.header.identity.boot_id
        self._last = first
        self._kind: ShutdownKind = "unknown"
        self._pods: dict[str, PodOutcome] = {}
        self._planned = False
        self._released_ns: int | None = None
        self._closed: EpisodeOutcome | None = None
        self._closed_ns: int | None = None

    def add(self, raw: RawRecord, batch: Batch) -> None:
        self._last = raw
        see = _SEEN.get(raw.tag)
        if see is not None:
            see(self, decode_event(raw.tag, raw.payload), self._wall_ns(raw, batch))

    def _wall_ns(self, raw: RawRecord, batch: Batch) -> int:
        """The monotonic clock starts anew with each boot; then only the record's own wall time is left."""
        if batch.header.identity.boot_id != self._boot_id:
            return raw.wall_ns
        return self.first.wall_ns + raw.mono_ns - self.first.mono_ns

    def began(self, event: ShutdownBegan, wall_ns: int) -> None:
        self._kind = event.kind

    def inventory(self, event: InventoryTaken, wall_ns: int) -> None:
        """Counts until the plan is made; later differences come as late pods."""
        if not self._planned:
            self._pods |= {pod.uid: "unknown" for pod in event.pods}

    def planned(self, event: PodPlanned, wall_ns: int) -> None:
        self._planned = True
        self._pods.setdefault(event.pod.uid, "unknown")

    def pod_ended(self, event: PodEnded, wall_ns: int) -> None:
        self._pods[event.uid] = event.outcome

    def rejected(self, event: PodRejected, wall_ns: int) -> None:
        self._pods.setdefault(event.uid, "rejected")

    def released(self, event: ReleaseLock, wall_ns: int) -> None:
        self._released_ns = wall_ns

    def withdrawn(self, event: ShutdownWithdrawn, wall_ns: int) -> None:
        self._released_ns = None

    def closed(self, event: EpisodeClosed, wall_ns: int) -> None:
        self._closed, self._closed_ns = event.outcome, wall_ns

    def summary(self, journal_id: bytes, boot_id: str | None, *, damaged: bool = False) -> Episode:
        outcome = self._outcome(boot_id, damaged)
        ended = {"complete": self._released_ns, "cancelled": self._closed_ns}.get(outcome)
        outcomes = list(self._pods.values())
        return Episode(
            id=episode_id(journal_id, self.number),
            trace_id=trace_id(self.first.hash),
            first_seq=self.number,
            last_seq=self._last.seq,
            kind=self._kind,
            boot_id=self._boot_id,
            started_wall_ns=self.first.wall_ns,
            ended_wall_ns=ended,
            outcome=outcome,
            pods={name: outcomes.count(name) for name in get_args(PodOutcome)},
        )

    def _outcome(self, boot_id: str | None, damaged: bool) -> EpisodeOutcome:
        """Complete if and only if the release stands in the journal, and the machine did go down."""
        if self._released_ns is not None:
            return "complete"
        if self._closed is not None:
            return "truncated" if self._closed == "complete" else self._closed
        return "running" if boot_id in (None, self._boot_id) and not damaged else "truncated"


_SEEN: dict[str, Callable[[_Tale, Any, int], None]] = {
    ShutdownBegan.__name__: _Tale.began,
    InventoryTaken.__name__: _Tale.inventory,
    PodPlanned.__name__: _Tale.planned,
    PodEnded.__name__: _Tale.pod_ended,
    PodRejected.__name__: _Tale.rejected,
    ReleaseLock.__name__: _Tale.released,
    ShutdownWithdrawn.__name__: _Tale.withdrawn,
    EpisodeClosed.__name__: _Tale.closed,
}

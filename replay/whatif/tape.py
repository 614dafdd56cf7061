"""The record of one shutdown, read to be performed again.

Re-executed on the way: a record that this version would have decided otherwise says nothing about what other
settings would have changed. What a tape keeps is the state just before the shutdown's first record, every
fact with its place, and how late each tick came, because a machine is not as punctual as a virtual clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol, TypeVar, cast

from actors.logic.config import NAME as CONFIG
from actors.logic.config import ConfigState
from actors.logic.course import NAME as EPISODE
from actors.logic.course import EpisodeState
from actors.logic.snapshot import as_checkpoint, restore
from actors.logic.system import System
from events.base import Event, Mark
from events.codec import decode_event
from events.decisions import DeadlineMoved, EpisodeClosed, ReleaseLock, ShutdownBegan, ShutdownWithdrawn
from events.facts import DaemonStarted, StopRequested, Tick
from events.frames import FLAG_LAST, RawRecord
from events.history import History
from events.marks import Checkpoint
from events.model import Settings
from replay.engine import STATEMENTS, Divergence, Replayer


class Diverged(Exception):
    """This version decides otherwise than the record says: 'ebbtide replay verify' tells where and why."""

    def __init__(self, divergence: Divergence) -> None:
        field = divergence.field
        super().__init__(f"record {divergence.seq}: {field}{'' if field in STATEMENTS else ' differs'}")
        self.divergence = divergence


class NotThere(Exception):
    """No shutdown begins at that record, or what stands before it is no longer in the journal."""


class Played(NamedTuple):
    """One event of the record, marks left out. ``cause`` 0: a fact."""

    seq: int
    mono_ns: int
    cause: int
    episode: int
    event: Event


class Placed(Protocol):
    """What every kind of record has."""

    @property
    def cause(self) -> int: ...
    @property
    def episode(self) -> int: ...


Each = TypeVar("Each", bound=Placed)


def own(events: Iterable[Each], first_seq: int) -> Iterator[Each]:
    """Those that tell of this shutdown: of a step that ends one and opens the next, both have the fact."""
    return (each for each in events if not each.cause or each.episode in (0, first_seq))


def up_to_next(events: Iterable[Each], first_seq: int) -> Iterator[Each]:
    """Without what the last step decides for the shutdown that it opens."""
    return (each for each in events if not each.cause or each.episode <= first_seq)


class Tape(NamedTuple):
    """One shutdown. Times are monotonic nanoseconds of its boot.

    ``late`` maps a deadline to when its tick was admitted, and its place among what was admitted at that
    instant: 2 × the sequence number, or one more for "after that fact".
    """

    first_seq: int
    last_seq: int
    start: Checkpoint
    signal_ns: int
    last_ns: int
    wall_offset_ns: int
    events: tuple[Played, ...]
    late: dict[int, tuple[int, int]]

    @property
    def facts(self) -> Iterator[Played]:
        """What came from outside, ticks left out."""
        return (each for each in self.events if not each.cause and not isinstance(each.event, Tick))

    @property
    def own(self) -> Iterator[Played]:
        """Without the last words of a shutdown that the first step ended."""
        return own(self.events, self.first_seq)

    @property
    def settings(self) -> Settings:
        """Those in force at the signal."""
        return config_of(self.system()).settings or Settings()

    @property
    def last_fact_seq(self) -> int:
        """The first record of the last step."""
        return next(each.seq for each in reversed(self.events) if not each.cause)

    @property
    def grant_ns(self) -> int:
        """What logind granted at the signal."""
        return next((each.event.grant_ns for each in self.own if isinstance(each.event, ShutdownBegan)), 0)

    @property
    def is_cut(self) -> bool:
        """The record ends while the shutdown runs: cut short, or read while it was written."""
        ends = (ReleaseLock, EpisodeClosed)
        return not any(isinstance(each.event, ends) for each in self.own)

    @property
    def is_moved(self) -> bool:
        """logind's delay did not run out as it began: it was withdrawn, begun anew, or bypassed."""
        bypassed = isinstance(self.events[0].event, StopRequested)
        return bypassed or any(isinstance(each.event, DeadlineMoved | ShutdownWithdrawn) for each in self.own)

    def system(self) -> System:
        """A fresh one, in the state just before the first record."""
        return restore(self.start, self.first_seq)


def config_of(system: System) -> ConfigState:
    return cast(ConfigState, system.slots[(CONFIG, "")].state)


def read_tape(history: History, first_seq: int) -> Tape:
    """Raises Diverged, NotThere, events.codec.UnknownType and BadPayload."""
    return _Reader(first_seq).read(steps(history.raw()))


def steps(raws: Iterable[RawRecord]) -> Iterator[list[RawRecord]]:
    """Whole steps; a mark that stands alone counts as one."""
    step: list[RawRecord] = []
    for raw in raws:
        step.append(raw)
        if raw.flags & FLAG_LAST:
            yield step
            step = []


class _Reader:
    def __init__(self, first_seq: int) -> None:
        self._first_seq = first_seq
        self._replayer = Replayer()
        self._events: list[Played] = []
        self._late: dict[int, tuple[int, int]] = {}
        self._home = ("", "")

    def read(self, found: Iterator[list[RawRecord]]) -> Tape:
        first = self._seek(found)
        start = as_checkpoint(self._replayer.system)
        state = cast(EpisodeState, self._replayer.system.slots[(EPISODE, "")].state)
        self._home = (state.boot_id, state.userspace_id)
        step: list[RawRecord] | None = first
        while step is not None and not self._is_over(step):
            self._keep(step)
            step = next(found, None) if step[0].episode == self._first_seq else None
        last = self._events[-1]
        return Tape(
            first_seq=self._first_seq,
            last_seq=last.seq,
            start=start,
            signal_ns=first[0].mono_ns,
            last_ns=last.mono_ns,
            wall_offset_ns=first[0].wall_ns - first[0].mono_ns,
            events=tuple(self._events),
            late=self._late,
        )

    def _seek(self, found: Iterator[list[RawRecord]]) -> list[RawRecord]:
        """Execute up to the shutdown, from the last checkpoint before it."""
        before: list[RawRecord] = []
        for step in found:
            if step[0].seq == self._first_seq:
                self._feed(before)
                return step
            if step[0].tag == Checkpoint.__name__:
                before = []
            before += step
        raise NotThere(f"no shutdown begins at record {self._first_seq}")

    def _feed(self, raws: list[RawRecord]) -> None:
        divergence = self._replayer.feed(raws)
        if divergence is not None:
            raise Diverged(divergence)

    def _is_over(self, step: list[RawRecord]) -> bool:
        """Another boot, or userspace, comes to this shutdown only to close it.

        A step that opens the next one may have this one's last words.
        """
        raw = step[0]
        if raw.seq == self._first_seq:
            return False
        if all(each.episode != self._first_seq for each in step):
            return True
        if raw.tag != DaemonStarted.__name__:
            return False
        start = cast(DaemonStarted, decode_event(raw.tag, raw.payload))
        return (start.boot_id, start.userspace_id) != self._home

    def _keep(self, step: list[RawRecord]) -> None:
        fact = step[0]
        due_ns = self._replayer.system.next_deadline_ns()
        self._feed(step)
        for raw in up_to_next(step, self._first_seq):
            event = decode_event(raw.tag, raw.payload)
            if not isinstance(event, Mark):
                self._events.append(Played(raw.seq, raw.mono_ns, raw.cause, raw.episode, event))
        if due_ns is not None and due_ns <= fact.mono_ns:
            ticked = fact.tag == Tick.__name__
            self._late[due_ns] = (fact.mono_ns, 2 * fact.seq + (not ticked))

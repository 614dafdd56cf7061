"""Walking through a shutdown event by event, forwards and back, with what each event changed.

Forwards the steps are executed as they are reached. Some thousand events behind the place are kept, with the
changes they made, and going back undoes those; further back the journal is executed again from its nearest
checkpoint. So memory does not grow with the shutdown.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import NamedTuple

from events.episodes import Episode
from events.history import Batch, History
from events.marks import Checkpoint
from events.words.base import Names
from replay.engine import Divergence
from replay.states_execution import Execution, Point, Standings, put, steps
from replay.timeline import Line, Timeline

#: Events kept behind the place; a step is kept whole.
KEPT_MAX = 4096


class Seen(NamedTuple):
    """One event: where it stands and whom it changed, and how it is told."""

    point: Point
    line: Line


Test = Callable[[Seen], bool]


class Stepper:
    """A place in a shutdown: ``here`` is the event, ``known`` what every actor knew after it.

    ``history`` is read anew whenever going back needs it. Raises, at any move, events.codec.UnknownType and
    BadPayload where a fact cannot be executed, and OSError.
    """

    def __init__(self, history: History, episode: Episode, kept_max: int = KEPT_MAX) -> None:
        self.first_seq, self.last_seq = episode.first_seq, episode.last_seq
        self._history, self._kept_max = history, kept_max
        self._told = Timeline(episode.first_seq)
        self._checkpoints = self._survey()
        self.known: Standings = {}
        self._start(self.first_seq)

    @property
    def here(self) -> Seen:
        return self._kept[self._at]

    @property
    def names(self) -> Names:
        return self._told.names

    @property
    def divergence(self) -> Divergence | None:
        """Where this version decides otherwise, as far as has been walked."""
        return self._execution.divergence

    # --- moving -------------------------------------------------------------------------------

    def next(self) -> bool:
        """To the event behind; False at the end."""
        if self._at + 1 == len(self._kept) and not self._read_step():
            return False
        self._at += 1
        for change in self.here.point.changes:
            put(self.known, change.actor, change.after)
        return True

    def back(self) -> bool:
        """To the event before; False at the begin."""
        if self._at == 0:
            if self.here.line.seq == self.first_seq:
                return False
            self._start(self.here.line.seq - 1)
            return True
        for change in reversed(self.here.point.changes):
            put(self.known, change.actor, change.before)
        self._at -= 1
        return True

    def seek(self, seq: int) -> bool:
        """To a record by its number; False, and no move, where it is not of this shutdown."""
        if not self.first_seq <= seq <= self.last_seq:
            return False
        if seq < self._kept[0].line.seq:
            self._start(seq)
        while self.here.line.seq < seq and self.next():
            pass
        while self.here.line.seq > seq and self.back():
            pass
        return self.here.line.seq == seq

    def find(self, test: Test, *, backwards: bool = False) -> bool:
        """To the nearest other event that passes; False, and no move, where there is none."""
        origin = self.here.line.seq
        while self.back() if backwards else self.next():
            if test(self.here):
                return True
        self.seek(origin)
        return False

    def causes(self) -> list[Seen]:
        """What led to this event: from its cause to the fact of its step."""
        chain, seen = [], self.here
        while seen.line.cause:
            at = bisect_left(self._kept, seen.line.cause, key=lambda kept: kept.line.seq)
            # What led to the begin of a shutdown may belong to the one that it closed, and is told there.
            if self._kept[at].line.seq != seen.line.cause:
                break
            seen = self._kept[at]
            chain.append(seen)
        return chain

    def step_bounds(self) -> tuple[int, int]:
        """The numbers of the first and the last record of this event's step."""
        first = (self.causes() or [self.here])[-1].line.seq
        behind = (seen.line.seq for seen in self._kept[self._at + 1 :] if not seen.line.cause)
        return first, next(behind, self._kept[-1].line.seq + 1) - 1

    # --- reading ------------------------------------------------------------------------------

    def _survey(self) -> list[int]:
        """The checkpoints up to the end of the shutdown; names are learned on the way."""
        found = []
        for batch in self._history.batches():
            for raw in batch.records:
                if raw.tag == Checkpoint.__name__ and raw.seq <= self.last_seq:
                    found.append(raw.seq)
            if batch.records[0].seq < self.first_seq:
                before = [raw for raw in batch.records if raw.seq < self.first_seq]
                for _ in self._told.lines(Batch(batch.header, before)):
                    pass
        return found

    def _start(self, seq: int) -> None:
        """At this record, with half of what may be kept before it."""
        kept_from = max(self.first_seq, seq - self._kept_max // 2)
        checkpoint = max((each for each in self._checkpoints if each <= kept_from), default=0)
        self._execution = Execution()
        self._kept: list[Seen] = []
        self._at = -1
        self._source = self._from(checkpoint, kept_from)
        if not self.next():
            raise LookupError(f"record {seq} cannot be read any more")
        while self.here.line.seq < seq and self.next():
            pass

    def _from(self, checkpoint: int, kept_from: int) -> Iterator[Batch]:
        """The steps from there on; those before are executed and not looked at."""
        looking = False
        for batch in steps(self._history.batches()):
            last = batch.records[-1].seq
            if last < checkpoint:
                continue
            if last < kept_from:
                self._execution.run(batch.header, batch.records)
                continue
            if not looking:
                self.known, looking = dict(self._execution.known), True
            yield batch

    def _read_step(self) -> bool:
        batch = next(self._source, None)
        if batch is None or batch.records[0].seq > self.last_seq:
            return False
        lines = {line.seq: line for line in self._told.lines(batch)}
        points = self._execution.step(batch.header, batch.records)
        self._forget()
        self._kept += [Seen(point, lines[point.raw.seq]) for point in points if point.raw.seq in lines]
        return True

    def _forget(self) -> None:
        """What is too far behind, in whole steps."""
        spare = max(0, len(self._kept) - self._kept_max)
        while 0 < spare < len(self._kept) and self._kept[spare].line.cause:
            spare += 1
        del self._kept[:spare]
        self._at -= spare

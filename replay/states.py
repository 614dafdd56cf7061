"""What every actor knew at any place of a journal: after any event, or at any instant."""

from __future__ import annotations

from typing import NamedTuple

from events.codec import BadPayload, UnknownType, decode_event
from events.frames import RawRecord
from events.history import History
from events.marks import Checkpoint
from events.segment import Header
from events.words.base import INTRODUCING, Names
from replay.clocks import Signal, SignalClock, When
from replay.engine import Divergence
from replay.states_execution import Execution, Point, Standings, advance, steps
from replay.timeline_wanted import Moment


class States(NamedTuple):
    """What every actor knew after the record of ``at``; ``step`` are all points of its step.

    ``names`` are of the pods that were known by then, ``signal`` is that of the shutdown that ran.
    """

    at: Point
    step: list[Point]
    known: Standings
    when: When
    signal: Signal | None
    names: Names
    divergence: Divergence | None


class Survey:
    """What must be known of the records before a place in order to execute from there, and to tell of it."""

    def __init__(self) -> None:
        self.names = Names()
        self.clock = SignalClock()
        #: The number of the last checkpoint so far; 0: none.
        self.checkpoint = 0

    def pass_by(self, header: Header, raw: RawRecord) -> When:
        if raw.tag == Checkpoint.__name__:
            self.checkpoint = raw.seq
        elif raw.tag in INTRODUCING:
            self._learn(raw)
        return self.clock.when(header, raw)

    def _learn(self, raw: RawRecord) -> None:
        try:
            self.names.learn(decode_event(raw.tag, raw.payload))
        except (UnknownType, BadPayload):
            return


def states_at(history: History, seq: int) -> States | None:
    """What every actor knew right after record ``seq``, also within a step; None if there is no such record.

    Reads twice: first all, then from the nearest checkpoint, executing. Raises events.codec.UnknownType and
    BadPayload.
    """
    survey = Survey()
    when = None
    for header, records in history.batches():
        for raw in records:
            if raw.seq <= seq:
                when = survey.pass_by(header, raw)
    found = _execute(history, survey.checkpoint, seq)
    if found is None or when is None:
        return None
    known, step, divergence = found
    at = step[seq - step[0].raw.seq]
    return States(at, step, known, when, survey.clock.signal, survey.names, divergence)


def _execute(
    history: History, begin: int, seq: int
) -> tuple[Standings, list[Point], Divergence | None] | None:
    execution = Execution()
    for header, records in steps(history.batches()):
        first, last = records[0].seq, records[-1].seq
        if begin <= last < seq:
            execution.run(header, records)
        elif first <= seq <= last:
            before = dict(execution.known)
            step = execution.step(header, records)
            return advance(before, step[: seq - first + 1]), step, execution.divergence
        elif first > seq:
            return None
    return None


def locate(history: History, moment: Moment, first_seq: int) -> int | None:
    """The number of the last record not behind a moment; None where all are behind it, or none is there.

    Time since a signal is that of the shutdown which begins with record ``first_seq``.
    """
    if moment.scale == "seq":
        return moment.value
    clock, found = SignalClock(), None
    signal: Signal | None = None
    for header, records in history.batches():
        for raw in records:
            when = clock.when(header, raw)
            signal = clock.signal if raw.seq == first_seq else signal
            since_ns = signal.since_ns(header, raw) if signal is not None else None
            place = when.wall_ns if moment.scale == "wall_ns" else since_ns
            if place is not None and place > moment.value:
                return found
            found = raw.seq if place is not None else found
    return found

"""Where a new run is performed: the agenda of facts to come, and when each may be heard.

Three rules make that a run with nothing changed is the record again. A fact that comes at its recorded time
comes in its recorded place; a tick is as late as the recorded tick of the same deadline was; while no daemon
ran nothing is heard. What comes at another time comes in the order of `replay.virtual.loop`'s lanes.
"""

from __future__ import annotations

from actors.logic.system import System
from events.base import Fact
from events.facts import DaemonStarted
from events.record import Record
from replay.virtual.loop import LANES, REST, TICKS, Agenda, Entry, Loop, World
from replay.whatif.changes import Told
from replay.whatif.seen import Seen
from replay.whatif.tape import Tape

#: Lanes above every place in a record.
LANE = 1 << 60

#: After everything else at that instant.
LAST = 9 * LANE


class Stage:
    """One run's agenda. ``over``: what comes now is no longer part of the shutdown."""

    def __init__(self, tape: Tape, seen: Seen) -> None:
        self.agenda = Agenda(tape.signal_ns)
        self.over = False
        self._tape = tape
        self._downtimes = seen.downtimes
        self._late = _lateness(tape, seen)

    @property
    def now_ns(self) -> int:
        return self.agenda.now_ns

    def tell(self, at_ns: int, fact: Fact, told: Told | None = None) -> Entry:
        """``told``: the recorded fact that this is, whose place it takes if the time is the same."""
        at_ns = self._heard_ns(max(at_ns, self.now_ns))
        if told is not None and at_ns == told.mono_ns:
            return self.agenda.put(at_ns, fact, 2 * told.seq)
        lane = (1 + LANES.get(type(fact), REST)) * LANE
        return self.agenda.put(at_ns, fact, lane + (2 * told.seq if told is not None else LANE // 2))

    def end(self, at_ns: int) -> None:
        """Nothing is heard after this; of what comes at the instant of the record's end, all that it has."""
        lane = 2 * self._tape.last_fact_seq + 1 if at_ns == self._tape.last_ns else LAST
        self.agenda.put(at_ns, self._close, lane)

    def _close(self) -> None:
        self.over = True

    def tick_due(self, deadline_ns: int) -> tuple[int, int]:
        late = self._late.get(deadline_ns)
        return late or (self._heard_ns(deadline_ns), (1 + TICKS) * LANE)

    def _heard_ns(self, at_ns: int) -> int:
        """Nobody hears anything between the last record of a process and the start of the next one."""
        ends = (down.end_ns for down in self._downtimes if down.begin_ns < at_ns < down.end_ns)
        return next(ends, at_ns)


class Performance(Loop):
    """The loop of one run."""

    def __init__(self, system: System, stage: Stage, world: World, wall_offset_ns: int) -> None:
        super().__init__(system, stage.agenda, world, wall_offset_ns)
        self._stage = stage

    def perform(self) -> list[Record]:
        """Everything up to its end, or to the next shutdown. Raises replay.virtual.loop.RanAway."""
        records: list[Record] = []
        for step in self.steps():
            records += step
            if self.system.episode != records[0].seq:
                break
        return records

    def tick_due(self, deadline_ns: int) -> tuple[int, int]:
        return self._stage.tick_due(deadline_ns)

    def _next(self, until_ns: int | None) -> Fact | None:
        fact = super()._next(until_ns)
        return None if self._stage.over else fact


def _lateness(tape: Tape, seen: Seen) -> dict[int, tuple[int, int]]:
    """As recorded, but for ticks that were late only because of a restart that is left out."""
    kept = [down.seq for down in seen.downtimes] + [answer.told.seq for answer in seen.after_release]
    gone = [
        each.mono_ns for each in tape.facts if isinstance(each.event, DaemonStarted) and each.seq not in kept
    ]
    return {
        deadline_ns: place
        for deadline_ns, place in tape.late.items()
        if not any(deadline_ns <= at_ns <= place[0] for at_ns in gone)
    }

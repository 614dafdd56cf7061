"""What an actor is: a state with a named phase, a table of transitions, and the deadline that follows.

Theory of operation. An actor hears events and answers each with its next state and with decisions. What it
does with an event depends on where it is, so every actor says in which *phases* it can be, and has one table
of which each row reads

    in these phases | on this event | this handler | leads to | decides

A phase is a name that is derived from the state (`Transitions.phase_of`): a field of it, or a property over
its booleans. It is not stored beside the state, so that the two cannot disagree, and so that checkpoints and
digests are what they were before there was a table.

Two rules hold for every table, and `Transitions` builds none that breaks either:

1. A pair of phase and event has one row. "Nothing happens" is a row too, marked `IGNORED`. Nobody has to read
   a handler's first lines to learn when it does anything.
2. No pair is without a row. One that is forgotten would be found by the first shutdown that comes into it;
   refused here, it is found by whoever starts the program after writing the table.

What a row says of its handler (where it leads, what it may decide) is for readers and for the diagrams drawn
from it (`docs/tools/draw_actors.py`), and is held to the truth by `Transitions.check`: `System.checked`
switches it on in every test, script, golden journal and simulated world. A daemon does without: there a wrong
row must not cost a shutdown that the handler carries out.

Where an actor does two things side by side, holding a lock while a shutdown runs, its phases have two
*regions* (a statechart's orthogonal regions): it is in one phase of each, together ``armed+preparing``. A row
names phases of that region which its event concerns, and so stands for all pairs with them; what it leads to
may be in either. Each region is drawn, and read, by itself.

A handler never asks again what its row says. Where one event means two things in two phases, it has two
handlers; where it depends on the event, or on what else the state holds, one handler decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, NamedTuple, TypeVar

import msgspec

from ebbtide.events.base import Event

#: A deadline that never comes: larger than any monotonic clock.
NEVER_NS = (1 << 62) - 1

#: What a handler returns: the next state, and decisions in the order in which they are recorded.
Result = tuple[Any, tuple[Event, ...] | list[Event]]
Handler = Callable[[Any, Any, int], Result]
#: The last argument is the fact with which a process begins (`ActorSet.start`), None at any other fact.
Afresh = Callable[[Any, int, bool, Any], "State | None"]


class State(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Base of actor states. Frozen: a handler that raises leaves the old state as it was."""


StateT = TypeVar("StateT", bound=State)


def fresh_but(state: StateT, kept: Sequence[str], **more: Any) -> StateT:
    """A new state of this kind with the fields ``kept`` as they are, and ``more``: what a shutdown begins,
    or leaves behind. All else is forgotten, so that a field which is added is of one shutdown by default.
    """
    return type(state)(**{name: getattr(state, name) for name in kept}, **more)


class UndeclaredTransition(Exception):
    """A handler did what its row does not say: correct whichever of the two is wrong."""


def _ignore(state: Any, event: Any, now: int) -> Result:
    return state, ()


#: The handler of a pair in which nothing happens. A function like any other, because a `Tick` that is ignored
#: while it is due has to be found out like that of any handler that makes no progress.
IGNORED: Handler = _ignore

#: In `Row.phases`: all of them. In `Row.to`: the phase stays what it is.
EVERY, SAME = "*", "="

#: Between the phases of an actor's regions.
AND = "+"


class Row(NamedTuple):
    """``phases`` and ``to`` are names with spaces between; ``decides`` are event types, orders among them."""

    phases: str
    event: type[Event]
    handler: Handler
    to: str = SAME
    decides: tuple[type[Event], ...] = ()


def ignored(phases: str, *events: type[Event]) -> tuple[Row, ...]:
    """Rows for what changes nothing in these phases."""
    return tuple(Row(phases, event, IGNORED) for event in events)


class Transitions:
    """One actor's table. Raises ValueError on an unknown phase, and on a pair that has no row, or two.

    ``phases`` are names, or, of several regions, the names of each; ``phase_of`` gives one of each, `AND`
    between them. ``handlers`` is what `System` dispatches from, phase -> event -> handler; ``rows`` has the
    same pairs, ``table`` each row of them once, and ``events`` all that the actor hears, in the order of the
    rows.
    """

    def __init__(
        self,
        phases: Sequence[str] | Sequence[Sequence[str]],
        phase_of: Callable[[Any], str],
        *rows: Row | tuple[Row, ...],
    ) -> None:
        names = [(each,) if isinstance(each, str) else tuple(each) for each in phases]
        #: The phases of each region: one region, unless ``phases`` has several.
        self.regions = (sum(names, ()),) if isinstance(phases[0], str) else tuple(names)
        self.phases = tuple(map(AND.join, product(*self.regions)))
        self.phase_of = phase_of
        self.table: tuple[Row, ...] = tuple(
            each for row in rows for each in ((row,) if isinstance(row, Row) else row)
        )
        self.events = tuple(dict.fromkeys(row.event for row in self.table))
        self.rows: dict[tuple[str, type[Event]], Row] = {}
        #: What `targets` said of a pair: `check` asks again for every event of every simulated node.
        self._known_targets: dict[tuple[str, type[Event]], tuple[str, ...]] = {}
        for row in self.table:
            self._check_names(row.phases, EVERY)
            self._check_names(row.to, EVERY, SAME)
            named = row.phases.split()
            for phase in self.phases:
                if EVERY not in named and not any(part in named for part in phase.split(AND)):
                    continue
                # One row may name phases of both regions and then meets itself: that states the pair once, so
                # it is identity that counts and not whether there is a row.
                if self.rows.setdefault((phase, row.event), row) is not row:
                    raise ValueError(f"{row.event.__name__} in phase {phase!r} has two rows")
        absent = [pair for pair in product(self.phases, self.events) if pair not in self.rows]
        if absent:
            raise ValueError(f"without a row: {_pairs(absent)}; write one, or mark the pair as ignored")
        self.handlers: dict[str, dict[type[Event], Handler]] = {phase: {} for phase in self.phases}
        for (phase, event), row in self.rows.items():
            self.handlers[phase][event] = row.handler

    def _check_names(self, names: str, *wildcards: str) -> None:
        known: tuple[str, ...] = sum(self.regions, ())
        if not names.split() or any(name not in (*known, *wildcards) for name in names.split()):
            raise ValueError(f"{names!r} are not phases: known are {', '.join(known)}")

    def targets(self, phase: str, event: type[Event]) -> tuple[str, ...]:
        """The phases in which this event may leave an actor that is in ``phase``.

        A region of which the row names no phase stays as it is.
        """
        to = self.rows[phase, event].to.split()
        if EVERY in to:
            return self.phases
        # Each region by itself: a name of another region says nothing of this one.
        options = []
        for part, region in zip(phase.split(AND), self.regions, strict=True):
            named = [name for name in to if name in region and name != part]
            options.append([part, *named] if SAME in to or part in to or not named else named)
        return tuple(map(AND.join, product(*options)))

    def check(self, event: type[Event], before: Any, after: Any, decisions: Sequence[Event]) -> None:
        """Has the handler done what its row says? Raises UndeclaredTransition if not."""
        # By the phases and the types of the decisions only: a row says what is possible, a test's records say
        # what is right.
        old, new = self.phase_of(before), self.phase_of(after)
        at, pair = f"{event.__name__} in phase {old!r}", (old, event)
        targets = self._known_targets.get(pair) or self._known_targets.setdefault(pair, self.targets(*pair))
        if new not in targets:
            raise UndeclaredTransition(f"{at} has led to {new!r}: its row says {', '.join(targets)}")
        declared = self.rows[pair].decides
        for made in map(type, decisions):
            if made not in declared:
                raise UndeclaredTransition(f"{at} has decided {made.__name__}: its row does not say so")


def _pairs(pairs: Sequence[tuple[str, type[Event]]]) -> str:
    return ", ".join(f"{event.__name__} in phase {phase!r}" for phase, event in pairs)


class ActorType(NamedTuple):
    """``deadline`` is when the actor wants a `Tick`; ``done``: it may be dropped at an episode's end.

    ``afresh`` is the state with which it goes on after a failure: what
    it was told, without what it was doing; given the time, whether a shutdown is open, and the start of the
    process if that is the fact at hand. None: not yet.
    """

    name: str
    state: type[State]
    transitions: Transitions
    deadline: Callable[[Any], int]
    done: Callable[[Any], bool] = lambda state: True
    afresh: Afresh = lambda state, now, in_episode, start: state

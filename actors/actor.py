"""What an actor is: a state with a named phase, a table of transitions, and the deadline that follows.

An actor answers each event with its next state and with decisions, by a table whose rows read: in these
phases | on this event | this handler | leads to | decides. The phase follows from the state
(`Transitions.phase_of`), so the two cannot disagree.

`Transitions` accepts only a complete table: each pair of phase and event has one row ("no effect" is
`IGNORED`). A forgotten pair fails when the program starts, not in a shutdown. Tests and simulated worlds
compare each handler with its row (`Transitions.check`).

An actor with two tasks side by side, such as a lock and a shutdown, has two *regions*, and is in one phase of
each: ``armed+preparing``. A row stands for all pairs with its phases, and may lead to phases of both.

A handler does not test its row's phases again: an event with two meanings has two handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from ebbtide.events.base import Event

#: Larger than any monotonic clock.
NEVER_NS = (1 << 62) - 1

#: The next state, and the decisions in order.
Result = tuple[Any, tuple[Event, ...] | list[Event]]
Handler = Callable[[Any, Any, int], Result]
#: The last argument is the process's start (`ActorSet.start`), None at any other fact.
Afresh = Callable[[Any, int, bool, Any], "State | None"]


class State(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Frozen: a handler that raises leaves the old state intact."""


StateT = TypeVar("StateT", bound=State)


def fresh_but(state: StateT, kept: Sequence[str], **more: Any) -> StateT:
    """A new field is dropped by default, so that it belongs to one shutdown."""
    return type(state)(**{name: getattr(state, name) for name in kept}, **more)


class UndeclaredTransition(Exception):
    """Correct the handler or its row. If a text that a handler made equals its field's default, use the
    default itself.
    """


def _ignore(state: Any, event: Any, now: int) -> Result:
    return state, ()


def takes(*fields: str, **values: Any) -> Handler:
    return lambda state, event, now: (replace(state, **{n: getattr(event, n) for n in fields}, **values), ())


#: A function, because an ignored `Tick` that is due makes no progress (`system.NoProgress`).
IGNORED: Handler = _ignore

#: In `Row.phases`: all phases. In `Row.to`: the same phase.
EVERY, SAME = "*", "="

#: Between the phases of an actor's regions.
AND = "+"


class Row(NamedTuple):
    """``phases`` and ``to`` are names with spaces between; ``decides`` has orders too."""

    phases: str
    event: type[Event]
    handler: Handler
    to: str = SAME
    decides: tuple[type[Event], ...] = ()


def ignored(phases: str, *events: type[Event]) -> tuple[Row, ...]:
    return tuple(Row(phases, event, IGNORED) for event in events)


class Transitions:
    """Raises ValueError on an unknown phase, and on a pair with no row, or two.

    ``phases`` are names, or the names of each region; ``phase_of`` gives one of each, joined by `AND`.
    """

    def __init__(
        self,
        phases: Sequence[str] | Sequence[Sequence[str]],
        phase_of: Callable[[Any], str],
        *rows: Row | tuple[Row, ...],
    ) -> None:
        names = [(each,) if isinstance(each, str) else tuple(each) for each in phases]
        self.regions = (sum(names, ()),) if isinstance(phases[0], str) else tuple(names)
        self.phases = tuple(map(AND.join, product(*self.regions)))
        self.phase_of = phase_of
        self.table: tuple[Row, ...] = tuple(
            each for row in rows for each in ((row,) if isinstance(row, Row) else row)
        )
        self.events = tuple(dict.fromkeys(row.event for row in self.table))
        self.rows: dict[tuple[str, type[Event]], Row] = {}
        self._known_targets: dict[tuple[str, type[Event]], tuple[str, ...]] = {}
        for row in self.table:
            self._check_names(row.phases, EVERY)
            self._check_names(row.to, SAME)
            named = row.phases.split()
            for phase in self.phases:
                if EVERY not in named and not any(part in named for part in phase.split(AND)):
                    continue
                # A row with phases of both regions meets itself.
                if self.rows.setdefault((phase, row.event), row) is not row:
                    raise ValueError(f"{row.event.__name__} in phase {phase!r} has two rows")
        absent = [pair for pair in product(self.phases, self.events) if pair not in self.rows]
        if absent:
            pairs = ", ".join(f"{event.__name__} in phase {phase!r}" for phase, event in absent)
            raise ValueError(f"without a row: {pairs}; write one, or mark the pair as ignored")
        self.handlers: dict[str, dict[type[Event], Handler]] = {phase: {} for phase in self.phases}
        for (phase, event), row in self.rows.items():
            self.handlers[phase][event] = row.handler

    def _check_names(self, names: str, wildcard: str) -> None:
        known: tuple[str, ...] = sum(self.regions, ())
        if not names.split() or any(name not in (*known, wildcard) for name in names.split()):
            raise ValueError(f"{names!r} are not phases: known are {', '.join(known)}")

    def targets(self, phase: str, event: type[Event]) -> tuple[str, ...]:
        """A region without a name in ``to`` stays."""
        to = self.rows[phase, event].to.split()
        options = []
        for part, region in zip(phase.split(AND), self.regions, strict=True):
            named = [name for name in to if name in region and name != part]
            options.append([part, *named] if SAME in to or part in to or not named else named)
        return tuple(map(AND.join, product(*options)))

    def handler_by_event(self, state: Any) -> Callable[[type[Event]], Handler]:
        return self.handlers[self.phase_of(state)].__getitem__

    def declared(self, event: type[Event], before: Any) -> tuple[type[Event], ...]:
        return self.rows[self.phase_of(before), event].decides

    def check_phase(self, event: type[Event], before: Any, after: Any) -> None:
        old, new = self.phase_of(before), self.phase_of(after)
        pair = (old, event)
        targets = self._known_targets.get(pair) or self._known_targets.setdefault(pair, self.targets(*pair))
        if new not in targets:
            at = f"{event.__name__} in phase {old!r}"
            raise UndeclaredTransition(f"{at} has led to {new!r}: its row says {', '.join(targets)}")

    def check(self, event: type[Event], before: Any, after: Any, decisions: Sequence[Event]) -> None:
        """Raises UndeclaredTransition if the handler and its row disagree."""
        self.check_phase(event, before, after)
        declared, at = self.declared(event, before), f"{event.__name__} in phase {self.phase_of(before)!r}"
        for made in map(type, decisions):
            if made not in declared:
                raise UndeclaredTransition(f"{at} has decided {made.__name__}: its row does not say so")
        # msgspec leaves out a default by identity. A decoder makes one text of each literal, so after a
        # restart an equal text is left out, and a replay finds other bytes.
        values: tuple[msgspec.Struct, ...] = (after, *decisions)
        for each in values:
            for name, default in _text_defaults(type(each)):
                value = getattr(each, name)
                if value is not default and value == default:
                    raise UndeclaredTransition(f"{at} has made {name}={value!r}, which equals its default")


@cache
def _text_defaults(kind: type[msgspec.Struct]) -> list[tuple[str, str]]:
    fields = msgspec.structs.fields(kind)
    return [(field.name, field.default) for field in fields if isinstance(field.default, str)]


class Machines(Transitions):
    """Each machine has its own table over its part of the actor's state. An event goes to them in order."""

    def __init__(self, *machines: Transitions) -> None:
        self.machines = machines
        self.regions = tuple(region for each in machines for region in each.regions)
        self.phases = tuple(map(AND.join, product(*(each.phases for each in machines))))
        self.phase_of = lambda state: AND.join([each.phase_of(state) for each in machines])
        self.table = tuple(row for each in machines for row in each.table)
        self.events = tuple(dict.fromkeys(row.event for row in self.table))
        self._concerned = {
            event: [at for at, each in enumerate(machines) if event in each.events] for event in self.events
        }

    def handler_by_event(self, state: Any) -> Callable[[type[Event]], Handler]:
        columns = [each.handlers[each.phase_of(state)] for each in self.machines]
        return lambda event: _in_turn(*[columns[at][event] for at in self._concerned[event]])

    def declared(self, event: type[Event], before: Any) -> tuple[type[Event], ...]:
        concerned = (self.machines[at] for at in self._concerned[event])
        return tuple(kind for each in concerned for kind in each.declared(event, before))

    def check_phase(self, event: type[Event], before: Any, after: Any) -> None:
        for each in self.machines:
            if event in each.events:
                each.check_phase(event, before, after)
            elif each.phase_of(before) != each.phase_of(after):
                raise UndeclaredTransition(
                    f"{event.__name__}: another machine has changed {each.phases[0]!r}"
                )


@cache
def _in_turn(*handlers: Handler) -> Handler:
    heard = [handler for handler in handlers if handler is not IGNORED]
    if len(heard) < 2:
        return heard[0] if heard else IGNORED

    def handle(state: Any, event: Any, now: int) -> Result:
        decisions: list[Event] = []
        for handler in heard:
            state, made = handler(state, event, now)
            decisions += made
        return state, decisions

    return handle


class ActorType(NamedTuple):
    """``deadline``: when the actor wants a `Tick`. ``done``: it may be dropped at an episode's end.

    ``afresh``: the state after a failure, from the last state, the time, whether an episode is open, and the
    process's start, if that is the fact; None: not yet.
    """

    name: str
    state: type[State]
    transitions: Transitions
    deadline: Callable[[Any], int]
    done: Callable[[Any], bool] = lambda state: True
    afresh: Afresh = lambda state, now, in_episode, start: state

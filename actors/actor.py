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

What an actor decided yesterday must be decided again from yesterday's journal. A changed rule is therefore a
further row, with the name of its *logic flag*: where that is in force it stands in place of the row of before
for its pairs (`Transitions.under`), and elsewhere it does not exist.

Where an actor does two things side by side, holding a lock while a shutdown runs, its phases have two
*regions* (a statechart's orthogonal regions): it is in one phase of each, together ``armed+preparing``. A row
names phases of that region which its event concerns, and so stands for all pairs with them; what it leads to
may be in either. Each region is drawn, and read, by itself.

A handler never asks again what its row says. Where one event means two things in two phases, it has two
handlers; where it depends on the event, or on what else the state holds, one handler decides.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import product
from typing import Any, NamedTuple, TypeVar

import msgspec

from ebbtide.events.base import Event
from ebbtide.events.model import Handover
from ebbtide.events.outage import LOGIC_FLAG

# Logic flags: the names of what has changed in the logic since the first release.
#
# The same facts must lead an old journal to its old decisions. So every change of behaviour has a name here;
# a journal says which ones were in force (in each segment's header, and in the checkpoint that it begins
# with), a replay executes it under those, and an open shutdown is carried out to its end under those that it
# began with. A reader that re-executes refuses a name that it does not know.

#: The states of all actors are digested into the journal at the end of each wave (`system.state_digest`).
STATES_DIGEST = "states-digest"

#: A pod that joins when the node is certified safe to detach takes that back (node_status).
CERTIFICATE_REVOKED = "certificate-revoked"
#: What an earlier boot has left on the Node is also taken back after a cancelled shutdown in which we only
#: looked on (node_status).
RESTORED_AFTER_OBSERVED = "restored-after-observed"
#: A stop signal of which its edge cannot tell whether it was heard is not sent again, and what is not known
#: of a stop, a hook or a SIGKILL is told as such (hook, container).
STOP_OUTCOMES = "stop-outcomes"
#: A runtime that has stopped answering is no means of the kubelet's either: what the API was to end is handed
#: over, and a shutdown that begins then is over the containers' processes (kubelet). One that was away for a
#: moment may have lost what the kubelet asked of it: the pods that it concerns are told by us too (hook).
RUNTIME_LOST = "runtime-lost"

#: A pod's final status is written when it ends, not when its wave does (node_status).
STATUS_AT_POD_END = "status-at-pod-end"
#: What a cancelled shutdown has not said of the pods that it ended is said by the next one; who ended before
#: its delete was taken is neither deleted nor seen to end until it is (node_status), and a refusal that comes
#: then is heard (hook).
STATUS_AFTER_CANCEL = "status-after-cancel"
#: A delete gives whole seconds: as many as the pod has, or one more (hook).
DELETE_ROUNDED_UP = "delete-rounded-up"
#: A kubelet that is there and ends no pod is known by what it does not do: mode api hands over (kubelet).
KUBELET_SILENCE = "kubelet-silence"
#: An API server that is known to be silent is waited for no longer than a call takes (node_status).
API_SILENCE = "api-silence"
#: That nobody has said yet whether the API server answers is another reason than that it does not (kubelet).
API_UNHEARD = "api-unheard"

#: What is kept free at a shutdown's end follows what `ebbtide drill` measured on this node (episode).
MEASURED_MARGINS = "measured-margins"
#: A lost bus is looked for at once also where the lock was given back because a kubelet has one (logind).
BUS_REFOUND = "bus-refound"
#: What a kubelet has started again in mid-shutdown is stopped again; the pods are listed anew after a restart
#: of the daemon, and when the kubelet has stopped after some of them (episode, hook, node_status). And what a
#: daemon that stood still had ordered last gets its time all the same (hook, container).
STARTED_AGAIN = "started-again"
#: A listing waits for the pods' priorities only as long as they have the floor of a stop left (episode).
LISTED_IN_TIME = "listed-in-time"
#: How the last boot ended, and why so, is concluded from what the machine has of it (episode), and shown on
#: the Node (node_status).
LAST_BOOT = "last-boot"

#: In force in whatever begins anew, in the order in which they came; each is also what this version can
#: re-execute.
LOGIC_FLAGS: tuple[str, ...] = (
    STATES_DIGEST,
    CERTIFICATE_REVOKED,
    RESTORED_AFTER_OBSERVED,
    STOP_OUTCOMES,
    STATUS_AT_POD_END,
    STATUS_AFTER_CANCEL,
    DELETE_ROUNDED_UP,
    KUBELET_SILENCE,
    RUNTIME_LOST,
    API_SILENCE,
    API_UNHEARD,
    MEASURED_MARGINS,
    BUS_REFOUND,
    STARTED_AGAIN,
    LISTED_IN_TIME,
    LAST_BOOT,
)

#: Which actors there are is not a change of logic but another journal (`actors.sets`): with this flag those
#: of the controller in the cluster, which recovers nodes that died, without it those of the daemon on a node.
OUTAGE = LOGIC_FLAG
#: In force in an outage's journal that begins anew.
OUTAGE_FLAGS: tuple[str, ...] = (OUTAGE, STATES_DIGEST)
#: What this version can re-execute.
KNOWN_FLAGS: tuple[str, ...] = (*LOGIC_FLAGS, OUTAGE)

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
    """``phases`` and ``to`` are names with spaces between; ``decides`` are event types, orders among them.

    ``flag``: the logic flag under which this row replaces those of its pairs.
    """

    phases: str
    event: type[Event]
    handler: Handler
    to: str = SAME
    decides: tuple[type[Event], ...] = ()
    flag: str = ""


def ignored(phases: str, *events: type[Event]) -> tuple[Row, ...]:
    """Rows for what changes nothing in these phases."""
    return tuple(Row(phases, event, IGNORED) for event in events)


class Transitions:
    """One actor's table. Raises ValueError on an unknown phase, and on a pair that has no row, or two.

    ``phases`` are names, or, of several regions, the names of each; ``phase_of`` gives one of each, `AND`
    between them. ``handlers`` is what `System` dispatches from, phase -> event -> handler; ``rows`` has the
    same pairs, ``table`` each row of them once, and ``events`` all that the actor hears, in the order of the
    rows. A table is written with all its rows, and as such is the first release's, without any logic flag;
    the one to dispatch from is `under` those that are in force.
    """

    def __init__(
        self,
        phases: Sequence[str] | Sequence[Sequence[str]],
        phase_of: Callable[[Any], str],
        *rows: Row | tuple[Row, ...],
        flags: tuple[str, ...] = (),
    ) -> None:
        names = [(each,) if isinstance(each, str) else tuple(each) for each in phases]
        #: The phases of each region: one region, unless ``phases`` has several.
        self.regions = (sum(names, ()),) if isinstance(phases[0], str) else tuple(names)
        self.phases = tuple(map(AND.join, product(*self.regions)))
        self.phase_of = phase_of
        self._written: tuple[Row, ...] = tuple(
            each for row in rows for each in ((row,) if isinstance(row, Row) else row)
        )
        self.events = tuple(dict.fromkeys(row.event for row in self._written if not row.flag))
        self.rows: dict[tuple[str, type[Event]], Row] = {}
        #: What `targets` said of a pair: `check` asks again for every event of every simulated node.
        self._known_targets: dict[tuple[str, type[Event]], tuple[str, ...]] = {}
        self._variants: dict[tuple[str, ...], Transitions] = {flags: self}
        for row in self._written:
            self._check_names(row.phases, EVERY)
            self._check_names(row.to, EVERY, SAME)
        # The later flag is the newer rule: of two that concern a pair its row counts.
        for flag in ("", *flags):
            found: dict[tuple[str, type[Event]], Row] = {}
            for row in (each for each in self._written if each.flag == flag):
                named = row.phases.split()
                for phase in self.phases:
                    if EVERY not in named and not any(part in named for part in phase.split(AND)):
                        continue
                    # One row may name phases of both regions and then meets itself: that states the pair
                    # once, so it is identity that counts and not whether there is a row.
                    if found.setdefault((phase, row.event), row) is not row:
                        raise ValueError(f"{row.event.__name__} in phase {phase!r} has two rows")
            # An event that is new with a flag gets its rows of before too, as ignored: who hears of what does
            # not depend on flags.
            new = [pair for pair in found if flag and pair not in self.rows]
            if new:
                raise ValueError(f"under {flag} only: {_pairs(new)}; mark the pair as ignored without it")
            self.rows.update(found)
        absent = [pair for pair in product(self.phases, self.events) if pair not in self.rows]
        if absent:
            raise ValueError(f"without a row: {_pairs(absent)}; write one, or mark the pair as ignored")
        in_use = dict.fromkeys(self.rows.values())
        self.table = tuple(row for row in self._written if row in in_use)
        self.handlers: dict[str, dict[type[Event], Handler]] = {phase: {} for phase in self.phases}
        for (phase, event), row in self.rows.items():
            self.handlers[phase][event] = row.handler

    def under(self, flags: Collection[str]) -> Transitions:
        """The table in which the rows of these logic flags have replaced those that they concern."""
        asked = tuple(flags)
        # Each pod's actor asks, and nearly always for the same flags.
        found = self._variants.get(asked)
        if found is None:
            named = dict.fromkeys(row.flag for row in self._written)
            mine = tuple(flag for flag in asked if flag in named)
            if mine not in self._variants:
                phases = self.regions[0] if len(self.regions) == 1 else self.regions
                self._variants[mine] = Transitions(phases, self.phase_of, *self._written, flags=mine)
            found = self._variants[asked] = self._variants[mine]
        return found

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

    ``handover`` is the pod that a failed actor leaves to the fallback, None if it has none (any more), with
    what the event says that it failed at. ``afresh`` is the state with which it goes on after a failure: what
    it was told, without what it was doing; given the time, whether a shutdown is open, and the start of the
    process if that is the fact at hand. None: not yet.
    """

    name: str
    state: type[State]
    transitions: Transitions
    deadline: Callable[[Any], int]
    done: Callable[[Any], bool] = lambda state: True
    handover: Callable[[Any, Event, int], Handover | None] = lambda state, event, now: None
    afresh: Afresh = lambda state, now, in_episode, start: state

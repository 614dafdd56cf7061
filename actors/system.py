"""The system: all actors together, and the one function that moves them, `System.step`.

Theory of operation. A step is one fact and the closure of the decisions it leads to, breadth-first. An
event goes to its recipients in the order of registration; what they decide is appended and delivered in
turn, until nothing is left. Nothing here waits, reads a clock, or knows what day it is: ``run``,
``replay``, ``what-if`` and ``simulate`` all call this same function, and get the same records.

Two rules hold it together:

1. A state is replaced only when ``handle`` returns. When it raises, that is a decision too: `ActorFailed`.
2. A deadline is part of a state. The outside admits a `Tick` when `next_deadline` has come; who is due
   follows from the states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from heapq import heapify, heappop, heappush
from operator import attrgetter
from struct import iter_unpack, pack
from typing import Any, NamedTuple, cast
from zlib import crc32

import msgspec

from ebbtide.actors.actor import (
    NEVER_NS,
    ActorType,
    State,
    UndeclaredTransition,
)
from ebbtide.actors.sets import ACTOR_TYPE_BY_NAME as ACTOR_TYPE_BY_NAME
from ebbtide.actors.sets import SETS
from ebbtide.events.base import Event, Fact, Order, Record, Stamp, StatesDigest
from ebbtide.events.decisions import ActorFailed
from ebbtide.events.facts import (
    BusLost,
    ContainerExited,
    DropInsRead,
    EffectPanicked,
    HurryRequested,
    LogindRead,
    MountsRead,
    OrderEnded,
    PodJoined,
    PrepareForShutdown,
    PreparingRead,
    ReleaseRequested,
    ScheduleRead,
    SignalRejected,
    StatusesSeen,
    StopRequested,
    Tick,
    VolumesUnmounted,
)
from ebbtide.events.outage_events import (
    EvidenceRead,
    HeartbeatMissed,
    HeartbeatSeen,
    LastBootStated,
    NodeDeleted,
    NodeRead,
    NodesCounted,
    WorkListed,
)
from ebbtide.events.segment import SHUTDOWN_LOGIC

# What is admitted first when several facts wait: logind and people, then outcomes, then the rest. The
# runner's inbox and the loop in virtual time both keep to this table, so that a simulated node admits its
# facts in the order in which a real one does.

#: Lanes in the order in which they are emptied. Ticks stand between the first and the second.
URGENT, OUTCOMES, REST = range(3)

FACT_PRIORITIES: dict[type[Fact], int] = {
    PrepareForShutdown: URGENT,
    LogindRead: URGENT,
    PreparingRead: URGENT,
    BusLost: URGENT,
    ScheduleRead: URGENT,
    DropInsRead: URGENT,
    SignalRejected: URGENT,
    StopRequested: URGENT,
    HurryRequested: URGENT,
    ReleaseRequested: URGENT,
    OrderEnded: OUTCOMES,
    EffectPanicked: OUTCOMES,
    ContainerExited: OUTCOMES,
    # Its containers may end as soon: the end of what runs now may not overtake it.
    PodJoined: OUTCOMES,
    # What an order found comes before its outcome, which may not overtake it.
    MountsRead: OUTCOMES,
    StatusesSeen: OUTCOMES,
    VolumesUnmounted: OUTCOMES,
    # Whatever speaks against a taint comes before the answer that would lead to one.
    HeartbeatSeen: URGENT,
    # In the order in which both were seen.
    HeartbeatMissed: URGENT,
    NodeRead: URGENT,
    NodeDeleted: URGENT,
    LastBootStated: URGENT,
    EvidenceRead: URGENT,
    NodesCounted: OUTCOMES,
    WorkListed: OUTCOMES,
}


#: ``(cause, actor, event, episode)``.
BareRecord = tuple[int, str, Event, int]

#: The actor of a fact, and of what the system decides for actors that it does not trust any more.
EDGE, SYSTEM = "edge", "system"

#: How long after a start in mid-shutdown what fell due meanwhile waits for what the edges find. A pod that
#: ended by itself while no daemon ran would else be killed, as far as the record says. The first look of an
#: edge takes some 40 ms, a busy runtime's list of a hundred pods 300 ms; who hangs on has had its grace.
LOOK_NS = 500_000_000

#: Starts in a row that came to nothing, at the same place, before a start goes straight to the fallback.
FAILED_STARTS_MAX = 2
LAST_STARTS_FAILED = "the last starts failed"


class System:
    """All actors' states. ``slots`` are in the order of registration.

    ``checked``: after each handler its table's row is held against what it did (`Transitions.check`). For
    tests and simulated worlds, where it is set for the class; a daemon carries out what was decided.
    """

    checked = False

    #: Hears of an actor's failure with its cause, of which the record has only the kind: what else an error
    #: says may differ from one Python to the next, and a replay compares records.
    on_failure: Callable[[str, Exception], object] | None = None

    def __init__(self, next_seq: int = 1, logic: str = SHUTDOWN_LOGIC) -> None:
        self.next_seq = next_seq
        self.logic = logic
        #: Which actors there are.
        self.actors = SETS[logic]
        rescue = self.actors.rescue
        self.episode = 0
        self.open_orders: dict[str, OpenedOrder] = {}
        self.slots: dict[tuple[str, str], Slot] = {}
        self._by_kind: dict[str, list[Slot]] = {}
        self._registered = 0
        self._deadlines = Deadlines()
        #: Before this nothing is due: the edges are looking. It is no state, because it decides nothing: a
        #: `Tick` is a fact, and says by itself when it was admitted.
        self._look_until_ns = 0
        self._closing, self._planned, self._digest_at = False, False, 0
        for kind in self.actors.singletons:
            self.register(kind, "")
        #: While it has failed, the fallback leads, and no event makes an actor.
        self._leader = None if rescue is None else self.slots[(rescue.leader.name, "")]
        self._fallback = None if rescue is None else self.slots[(rescue.fallback.name, "")]
        #: Who hears of an event and never goes.
        self._always = {
            kind: [self.slots[at] for at in places] for kind, places in self.actors.to_singletons.items()
        }

    # --- the one function ---------------------------------------------------------------------

    def step(self, fact: Event, stamp: Stamp) -> list[Record]:
        """One fact and everything decided because of it, as records; the last one is marked."""
        first = self.next_seq
        mono_ns, wall_ns = stamp
        entries = self.trace(fact, mono_ns)
        final = first + len(entries) - 1
        return [
            Record(
                seq=seq,
                mono_ns=mono_ns,
                wall_ns=wall_ns,
                episode=episode,
                cause=cause,
                actor=actor,
                last=seq == final,
                event=event,
            )
            for seq, (cause, actor, event, episode) in enumerate(entries, first)
        ]

    def trace(self, fact: Event, mono_ns: int) -> list[BareRecord]:
        """The same without envelopes: ``(cause, actor, event, episode)`` in sequence order."""
        first, actors = self.next_seq, self.actors
        starts = type(fact) is actors.start
        if type(fact) is OrderEnded:
            self.open_orders.pop(fact.key, None)
        elif starts:
            # Before it is delivered: a start is what a failed actor goes on with, so it has to hear of it.
            self._revive(fact, mono_ns)
        entries: list[BareRecord] = [(0, EDGE, fact, self.episode)]
        for at, (_, _, event, _) in enumerate(entries):  # the list grows while it is walked
            kind = type(event)
            if kind is actors.closes:
                self._revive(fact, mono_ns)
            for slot in self._recipients(event, kind, mono_ns):
                if slot.failed:
                    continue
                for decision in self._handle(slot, event, kind, mono_ns):
                    decided = type(decision)
                    if isinstance(decision, Order):
                        self.open_orders[decision.key] = OpenedOrder(first + len(entries), decision)
                    elif decided is actors.opens:
                        if slot is not self._fallback:
                            # An actor that has failed in this step, before the episode, takes part in it.
                            self._revive(fact, mono_ns)
                        self.episode = first  # an episode is named by the fact that opens it
                    elif decided in actors.digested:
                        self._digest_at = len(entries)
                    elif decided is actors.plans:
                        self._planned = True
                    entries.append((first + at, slot.label, decision, self.episode))
                    if decided is actors.closes:
                        # Its own record still belongs to the episode; what follows, in this step too, does
                        # not.
                        self._closing, self.episode = True, 0
            if at == 0 and starts:
                self._give_up_on(fact, entries)
        if self._digest_at or self._planned:
            self._digest(first, entries)
        # Begun in this step: what was decided before the beginning, by this very fact, belongs to it as well.
        if self.episode == first:
            entries = [(cause, actor, event, episode or first) for cause, actor, event, episode in entries]
            entries[0] = (0, EDGE, fact, first)
        if starts:
            # Of an episode that goes on: in another boot nothing is due that could wait, and the clock has
            # begun anew.
            limit_ns = actors.look_until_ns(lambda kind: self.slots[(kind.name, "")].state)
            self._look_until_ns = min(mono_ns + LOOK_NS, limit_ns) if self.episode else 0
        self.next_seq = first + len(entries)
        # Not in mid-step: an event that was appended already may be for a pod that is over by now.
        if self._closing:
            self._drop_done()
        if not self.episode:
            self._revive(fact, mono_ns)
        return entries

    def _digest(self, first: int, entries: list[BareRecord]) -> None:
        """At a wave's end: what the actors' states are. A plan says by itself what it made of them."""
        at, self._digest_at = self._digest_at, 0
        if at:
            _, _, end, episode = entries[at]
            made = changed_digests(self.slots.values(), at_last=type(end) is self.actors.digested_last)
            entries.append((first + at, SYSTEM, StatesDigest(actors=made), episode))
        if self._planned:
            mark_recorded(self.slots.values())
            self._planned = False

    def _handle(self, slot: Slot, event: Event, kind: type[Event], now_ns: int) -> Any:
        try:
            before, transitions = slot.state, slot.transitions
            handler = transitions.handlers[transitions.phase_of(before)][kind]
            state, decisions = handler(before, event, now_ns)
            if self.checked:
                transitions.check(kind, before, state, decisions)
            # A deadline follows from the state; only a `Tick` has taken it away while the state stayed.
            if state is before and kind is not Tick:
                return decisions
            deadline_ns = slot.kind.deadline(state)
            if kind is Tick and now_ns >= deadline_ns == slot.kind.deadline(before):
                raise NoProgress
        except UndeclaredTransition:  # the table is wrong, not the actor: whoever checks it must hear of it
            raise
        except Exception as error:
            # Whatever it is, the others' pods still have to be stopped: a failure is a decision like any
            # other, on record, and the fallback's to answer. The daemon itself would only start and fail here
            # again.
            with suppress(Exception):
                if self.on_failure is not None:
                    self.on_failure(slot.label, error)
            return (self._fail(slot, type(error).__name__),)
        slot.state = state
        if deadline_ns != slot.deadline_ns:
            self._deadlines.watch(slot, deadline_ns)
        return decisions

    def _fail(self, slot: Slot, error: str) -> ActorFailed:
        """In an episode an actor that ends pods takes the leader and all subjects along (`sets.Rescue`)."""
        failed, rescue = [slot], self.actors.rescue
        if rescue is not None and self._leader is not None and self._fallback is not None:
            ends_pods = slot.subject or slot is self._leader or slot.kind in rescue.go_on
            if self.episode and ends_pods and not self._fallback.failed:
                failed += [self._leader, *(each for each in self.slots.values() if each.subject)]
        for each in failed:
            each.failed = not self.episode or rescue is None or each.kind not in rescue.go_on
            each.deadline_ns = NEVER_NS
        return ActorFailed(actor=slot.kind.name, subject=slot.subject, error=error)

    def _give_up_on(self, fact: Event, made: list[BareRecord]) -> None:
        """Two starts that failed at the same place: whatever it is, it is not tried a third time.

        Not for an episode that this start has found closed or cancelled: there is nothing left to carry out.
        """
        rescue, start, leader = self.actors.rescue, cast(Any, fact), self._leader
        if rescue is None or leader is None or leader.failed or not self.episode or rescue.over(start):
            return
        if (
            start.failed_starts >= FAILED_STARTS_MAX
            and self._fallback is not None
            and not self._fallback.failed
        ):
            # Its cause is the start, the first record of this step.
            made.append((self.next_seq, SYSTEM, self._fail(leader, LAST_STARTS_FAILED), self.episode))

    def watch(self, slot: Slot) -> None:
        """Take the deadline from a state that was restored."""
        self._deadlines.watch(slot, NEVER_NS if slot.failed else slot.kind.deadline(slot.state))

    # --- who hears of it ----------------------------------------------------------------------

    def _recipients(self, event: Event, kind: type[Event], now_ns: int) -> list[Slot]:
        if kind is OrderEnded:
            places = self.actors.outcome_recipients(event.key)  # type: ignore[attr-defined]  # narrowed by the line above
            # Of a pod or wave whose actor has gone nobody is left to hear it, and nothing waits.
            owners = [self.slots.get(place) or self.slots.get((place[0], "")) for place in places]
            return [slot for slot in owners if slot is not None]
        if kind is Tick:
            return self._deadlines.take(now_ns)
        found = list(self._always.get(kind, ()))
        for name, subject_of, creates in self.actors.to_subjects.get(kind, ()):
            if subject_of is None:
                found += self._by_kind.get(name, ())
                continue
            subject = subject_of(event)
            slot = self.slots.get((name, subject))
            if slot is None and creates is not None and not (self._leader and self._leader.failed):
                # By the event that begins it and by no other: one that comes late, for a pod whose actor has
                # gone, must not make an actor that knows nothing of its pod.
                slot = self.register(creates, subject)
            if slot is not None:
                found.append(slot)
        return found

    def next_deadline_ns(self) -> int | None:
        """When the next `Tick` is due, in monotonic nanoseconds; None if nobody waits."""
        due_ns = self._deadlines.next_ns()
        return None if due_ns is None else max(due_ns, self._look_until_ns)

    # --- who there is -------------------------------------------------------------------------

    def register(self, kind: ActorType, subject: str) -> Slot:
        slot = Slot(kind, subject, self._registered)
        self._registered += 1
        self.slots[(kind.name, subject)] = slot
        self._by_kind.setdefault(kind.name, []).append(slot)
        return slot

    def _drop_done(self) -> None:
        """At an episode's end its waves and pods go, but not a pod that is still on its way down."""
        # A pod whose stop has begun outlives a cancelled shutdown, and may be met again in the next one.
        kept = [slot for slot in self.slots.values() if not slot.subject or not slot.is_done]
        self.slots = {(slot.kind.name, slot.subject): slot for slot in kept}
        self._by_kind = {}
        for slot in kept:
            self._by_kind.setdefault(slot.kind.name, []).append(slot)
        self._deadlines.keep(kept)
        self._closing = False

    def _revive(self, fact: Event, now_ns: int) -> None:
        """A failed singleton goes on with the next episode or process, and outside of a shutdown at once."""
        start = cast(Any, fact) if type(fact) is self.actors.start else None
        # Waves and pods are not revived: their subject is over by then, or the fallback's to the end.
        for slot in (self.slots[(kind.name, "")] for kind in self.actors.singletons):
            state = slot.kind.afresh(slot.state, now_ns, self.episode > 0, start) if slot.failed else None
            if state is not None:
                slot.failed = False
                slot.state = state
                self.watch(slot)


class OpenedOrder(NamedTuple):
    """An order without an outcome, and the number of its record."""

    seq: int
    order: Order


class NoProgress(Exception):
    """An actor whose deadline its own `Tick` leaves as it was: it would be due again at once, for ever."""


class Slot:
    """One actor in the system: where its state is kept, and its place in the order of registration."""

    __slots__ = (
        "deadline_ns",
        "failed",
        "index",
        "kind",
        "label",
        "noted",
        "state",
        "subject",
        "transitions",
    )

    def __init__(self, kind: ActorType, subject: str, index: int) -> None:
        self.kind = kind
        self.transitions = kind.transitions
        self.subject = subject
        self.index = index
        self.label = f"{kind.name}:{subject}" if subject else kind.name
        self.state: State = kind.state()
        #: The state that is on record, in a checkpoint or a digest; a fresh one needs no record.
        self.noted = self.state
        self.deadline_ns = NEVER_NS
        self.failed = False

    @property
    def is_done(self) -> bool:
        """May it be dropped at an episode's end?"""
        return self.failed or self.kind.done(self.state)


class Deadlines:
    """Who is due when, in monotonic nanoseconds: the earliest first, ties by registration.

    A heap that forgets lazily: an entry counts only while it is its slot's deadline, so that moving one costs
    no search.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Slot]] = []

    def watch(self, slot: Slot, deadline_ns: int) -> None:
        """This slot's deadline from here on; `NEVER_NS`: none."""
        slot.deadline_ns = deadline_ns
        if deadline_ns < NEVER_NS:
            heappush(self._heap, (deadline_ns, slot.index, slot))

    def take(self, now_ns: int) -> list[Slot]:
        """Whose deadline has come. Each is taken once."""
        due: list[Slot] = []
        while self._heap and self._heap[0][0] <= now_ns:
            deadline_ns, _, slot = heappop(self._heap)
            # An older entry of a slot whose deadline has moved since is only dropped.
            if slot.deadline_ns == deadline_ns:
                slot.deadline_ns = NEVER_NS
                due.append(slot)
        return due

    def next_ns(self) -> int | None:
        """The earliest; None if nobody waits."""
        while self._heap and self._heap[0][2].deadline_ns != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def keep(self, slots: Iterable[Slot]) -> None:
        """Nobody else is waited for any more."""
        alive = dict.fromkeys(slot.index for slot in slots)
        self._heap = [entry for entry in self._heap if entry[2].index in alive]
        heapify(self._heap)


# A few bytes that vouch for every actor's state, so that a replay finds a difference where it began.
#
# A state that went wrong may show in a decision much later, and then names the wrong record. At the end of
# each wave the journal therefore keeps a digest of what has changed: four bytes for each field of each actor,
# some bits to tell the field and the rest of its value's CRC-32. So small a thing holds no secret, and still
# a difference is found, its actor and its field named. (That nobody altered the journal is the chain's
# business, not this one's.)

#: Of the 32 bits of a field's digest: which field it is, and a part of its value's checksum.
TAG_BITS, VALUE_BITS = 12, 20
_VALUE_MASK = (1 << VALUE_BITS) - 1

_encode_value = msgspec.msgpack.Encoder().encode


def changed_digests(slots: Iterable[Slot], *, at_last: bool) -> dict[str, bytes]:
    """The digest of each actor that changed since it was last noted, by label, in order of registration.

    A pod that is on its way down changes with every event, which tells of it by itself: its turn is when it
    is over, or, ``at_last``, when nothing is waited for any more.
    """
    found: dict[str, bytes] = {}
    for slot in slots:
        state = slot.state
        if state is not slot.noted and (at_last or slot.failed or slot.kind.done(state)):
            found[slot.label] = state_digest(state, slot.noted)
            slot.noted = state
    return found


def mark_recorded(slots: Iterable[Slot]) -> None:
    """As they are now they are on record already: only what changes from here on is digested."""
    for slot in slots:
        slot.noted = slot.state


def state_digest(state: State, noted: State) -> bytes:
    """Four bytes, big-endian, for each field that is not as it was ``noted``, in the order of the fields."""
    values, tags = _field_layout(type(state))
    # Identity is asked first: of a thousand pods' fields most are the very objects that they were.
    parts = [
        tag | crc32(_encode_value(value)) & _VALUE_MASK
        for value, before, tag in zip(values(state), values(noted), tags, strict=True)
        if value is not before and value != before
    ]
    return pack(f">{len(parts)}I", *parts)


def differing_field(kind: type[State], recorded: bytes, produced: bytes) -> str:
    """The first field, in the order of the state, whose digests differ; empty if it cannot be told."""
    kept, made = _values_by_tag(recorded), _values_by_tag(produced)
    names = (field.name for field in msgspec.structs.fields(kind))
    return next((name for name in names if kept.get(field_tag(name)) != made.get(field_tag(name))), "")


def field_tag(field: str) -> int:
    """The number that tells a field in a digest; no two fields of one state may share it (a test)."""
    return crc32(field.encode()) >> VALUE_BITS


def _values_by_tag(digests: bytes) -> dict[int, int]:
    whole = len(digests) - len(digests) % 4
    return {part >> VALUE_BITS: part & _VALUE_MASK for (part,) in iter_unpack(">I", digests[:whole])}


class _FieldLayout(NamedTuple):
    """How the fields of a state are read, and the tag of each, in its place among the 32 bits."""

    values: Callable[[State], tuple[Any, ...]]
    tags: tuple[int, ...]


@cache
def _field_layout(kind: type[State]) -> _FieldLayout:
    names = [field.name for field in msgspec.structs.fields(kind)]
    return _FieldLayout(attrgetter(*names), tuple(field_tag(name) << VALUE_BITS for name in names))

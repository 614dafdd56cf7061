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
from typing import Any, NamedTuple
from zlib import crc32

import msgspec

from ebbtide.actors.actor import (
    LOGIC_FLAGS,
    NEVER_NS,
    STATES_DIGEST,
    ActorType,
    State,
    UndeclaredTransition,
)
from ebbtide.actors.config import CONFIG
from ebbtide.actors.episode import EPISODE, give_up_ns
from ebbtide.actors.fallback import FALLBACK
from ebbtide.actors.hook import HOOK
from ebbtide.actors.kubelet import KUBELET
from ebbtide.actors.logind import LOGIND
from ebbtide.actors.node_status import NODE_STATUS
from ebbtide.actors.wave import WAVE
from ebbtide.events.base import Event, Fact, Order, Record, Stamp, StatesDigest
from ebbtide.events.decisions import (
    ActorFailed,
    EpisodeClosed,
    PlanMade,
    PodPlanned,
    PodsEnded,
    ShutdownBegan,
    WaveEnded,
    WaveStarted,
)
from ebbtide.events.facts import (
    BusLost,
    ContainerExited,
    DaemonStarted,
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
from ebbtide.events.model import Handover

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
}

# Who hears of what: one static table from event type to recipients, in the order in which they hear it, which
# is the order of registration. An order's outcome goes to the actor that its key names, a `Tick` to who is
# due.

#: One per node, always there, in this order. Who ends the pods is said, and the node's view told, before pods
#: are touched.
SINGLETONS: tuple[ActorType, ...] = (CONFIG, LOGIND, KUBELET, NODE_STATUS, EPISODE, FALLBACK)

#: One per wave and one per pod; created by the event beside it.
SUBJECTS: tuple[tuple[ActorType, type[Event]], ...] = ((WAVE, WaveStarted), (HOOK, PodPlanned))

ACTOR_TYPES: tuple[ActorType, ...] = (*SINGLETONS, *(kind for kind, _ in SUBJECTS))
ACTOR_TYPE_BY_NAME: dict[str, ActorType] = {kind.name: kind for kind in ACTOR_TYPES}


def _wave_of_event(event: Any) -> str:
    return str(event.wave)


_uid_of_event: Callable[[Any], str] = attrgetter("uid")
_pod_uid_of_event: Callable[[Any], str] = attrgetter("pod.uid")

#: How an event names its subject, by actor and event type; an event that is not here goes to every instance.
_SUBJECT_OF: dict[tuple[str, str], Callable[[Any], str]] = {
    (WAVE.name, "WaveStarted"): _wave_of_event,
    (WAVE.name, "PodPlanned"): _wave_of_event,
    (WAVE.name, "PodEnded"): _wave_of_event,
    (HOOK.name, "PodPlanned"): _pod_uid_of_event,
    (HOOK.name, "PodStopBegan"): _uid_of_event,
    (HOOK.name, "PodEnded"): _uid_of_event,
    (HOOK.name, "ContainerExited"): _uid_of_event,
    (HOOK.name, "AutopsyTaken"): _uid_of_event,
    (HOOK.name, "PodJoined"): _pod_uid_of_event,
}

#: Delivered by key or by deadline, not by this table.
_ADDRESSED_DIRECTLY = ("OrderEnded", "Tick")


class Route(NamedTuple):
    """``subject`` None: every instance. ``creates``: a subject's first event makes its actor."""

    name: str
    subject: Callable[[Any], str] | None
    creates: ActorType | None


def _build_routes() -> dict[type[Event], tuple[Route, ...]]:
    table: dict[type[Event], list[Route]] = {}
    creators = {kind.name: creator for kind, creator in SUBJECTS}
    for kind in ACTOR_TYPES:
        for event_type in kind.transitions.events:
            if event_type.__name__ in _ADDRESSED_DIRECTLY:
                continue
            subject = _SUBJECT_OF.get((kind.name, event_type.__name__))
            creates = kind if creators.get(kind.name) is event_type else None
            table.setdefault(event_type, []).append(Route(kind.name, subject, creates))
    return {event_type: tuple(routes) for event_type, routes in table.items()}


def outcome_recipients(key: str) -> list[tuple[str, str]]:
    """Actor and subject whom an order's outcome concerns, by the order's key.

    That of a release is also the LogindActor's business when the fallback ordered it: it has the lock. That
    of a pod's delete tells the NodeStatusActor what becomes of its object.
    """
    # Not taken apart further, as by `parse_order_key`: every outcome comes by here, a third of all facts.
    actor, what, subject, _ = parts if len(parts := key.split("/")) == 4 else ("", "", "", "")
    heard = [(actor, subject)]
    if what == "delete":
        heard.append((NODE_STATUS.name, ""))
    return [*heard, (LOGIND.name, "")] if what == "release" and actor != LOGIND.name else heard


ROUTES: dict[type[Event], tuple[Route, ...]] = _build_routes()

_ALWAYS_THERE = tuple(kind.name for kind in SINGLETONS)

#: The same in two: the places of those who are always there, and the others' rows. The former come first.
#: Most events concern singletons only, and a step of a thousand pods asks thousands of times.
TO_SINGLETONS: dict[type[Event], tuple[tuple[str, str], ...]] = {
    kind: tuple((route.name, "") for route in routes if route.name in _ALWAYS_THERE)
    for kind, routes in ROUTES.items()
}
TO_SUBJECTS: dict[type[Event], tuple[Route, ...]] = {
    kind: tuple(route for route in routes if route.name not in _ALWAYS_THERE)
    for kind, routes in ROUTES.items()
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

    def __init__(self, next_seq: int = 1, flags: tuple[str, ...] = LOGIC_FLAGS) -> None:
        self.next_seq = next_seq
        self._flags = flags
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
        for kind in SINGLETONS:
            self.register(kind, "")
        #: Who hears of an event and never goes.
        self._always = {kind: [self.slots[at] for at in places] for kind, places in TO_SINGLETONS.items()}

    @property
    def flags(self) -> tuple[str, ...]:
        """The logic flags in force."""
        return self._flags

    @flags.setter
    def flags(self, flags: tuple[str, ...]) -> None:
        self._flags = flags
        for slot in self.slots.values():
            slot.transitions = slot.kind.transitions.under(flags)

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
        first = self.next_seq
        if type(fact) is OrderEnded:
            self.open_orders.pop(fact.key, None)
        elif type(fact) is DaemonStarted:
            # Before it is delivered: a start is what a failed actor goes on with, so it has to hear of it.
            self._revive(fact, mono_ns)
        entries: list[BareRecord] = [(0, EDGE, fact, self.episode)]
        for at, (_, _, event, _) in enumerate(entries):  # the list grows while it is walked
            kind = type(event)
            if kind is EpisodeClosed:
                self._revive(fact, mono_ns)
            for slot in self._recipients(event, kind, mono_ns):
                for decision in self._handle(slot, event, kind, mono_ns):
                    decided = type(decision)
                    if isinstance(decision, Order):
                        self.open_orders[decision.key] = OpenedOrder(first + len(entries), decision)
                    elif decided is ShutdownBegan:
                        self.episode = first  # an episode is named by the fact that opens it
                    elif decided is WaveEnded or decided is PodsEnded:
                        self._digest_at = len(entries)
                    elif decided is PlanMade:
                        self._planned = True
                    entries.append((first + at, slot.label, decision, self.episode))
                    if decided is EpisodeClosed:
                        # Its own record still belongs to the episode; what follows, in this step too, does
                        # not.
                        self._closing, self.episode = True, 0
            if at == 0 and type(fact) is DaemonStarted:
                self._give_up_on(fact, mono_ns, entries)
        if self._digest_at or self._planned:
            self._digest(first, entries)
        # Begun in this step: what was decided before the beginning, by this very fact, belongs to it as well.
        if self.episode == first:
            entries = [(cause, actor, event, episode or first) for cause, actor, event, episode in entries]
            entries[0] = (0, EDGE, fact, first)
        if type(fact) is DaemonStarted:
            # Of a shutdown that goes on: in another boot nothing is due that could wait, and the clock has
            # begun anew. And nothing that has to be done before the end waits for a look.
            state: Any = self.slots[(EPISODE.name, "")].state
            until_ns = min(mono_ns + LOOK_NS, give_up_ns(state) if state.release_by_ns else NEVER_NS)
            self._look_until_ns = until_ns if self.episode else 0
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
        if at and STATES_DIGEST in self.flags:
            _, _, end, episode = entries[at]
            made = changed_digests(self.slots.values(), at_last=type(end) is PodsEnded)
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
            return (self._fail(slot, event, now_ns, type(error).__name__),)
        slot.state = state
        if deadline_ns != slot.deadline_ns:
            self._deadlines.watch(slot, deadline_ns)
        return decisions

    def _fail(self, slot: Slot, event: Event, now_ns: int, error: str) -> ActorFailed:
        """Its own pod passes to the fallback; from an actor that begins and ends many, every pod does."""
        slot.failed = True
        slot.deadline_ns = NEVER_NS
        # A wave or an episode that is gone begins no pod any more: whichever has not begun must not be
        # forgotten.
        givers = self._by_kind.get(HOOK.name, []) if slot.kind in (WAVE, EPISODE) else [slot]
        handed = [_handover_of(giver, event, now_ns) for giver in givers if giver is slot or not giver.failed]
        return ActorFailed(
            actor=slot.kind.name,
            subject=slot.subject,
            error=error,
            handover=tuple(each for each in handed if each is not None),
        )

    def _give_up_on(self, fact: DaemonStarted, now_ns: int, made: list[BareRecord]) -> None:
        """Two starts that failed at the same place: whatever it is, it is not tried a third time.

        Not for a shutdown that this start has found closed or cancelled: there is nothing left to carry out.
        """
        over = not self.episode or fact.preparing is False or self.slots[(FALLBACK.name, "")].failed
        if fact.failed_starts < FAILED_STARTS_MAX or over:
            return
        pods = self._by_kind.get(HOOK.name, ())
        left = (slot for slot in pods if HOOK.handover(slot.state, fact, now_ns) is not None)
        for slot in (self.slots[(EPISODE.name, "")], *left):
            if not slot.failed:
                # Its cause is the start, the first record of this step.
                failed = self._fail(slot, fact, now_ns, LAST_STARTS_FAILED)
                made.append((self.next_seq, SYSTEM, failed, self.episode))

    def watch(self, slot: Slot) -> None:
        """Take the deadline from a state that was restored."""
        self._deadlines.watch(slot, NEVER_NS if slot.failed else slot.kind.deadline(slot.state))

    # --- who hears of it ----------------------------------------------------------------------

    def _recipients(self, event: Event, kind: type[Event], now_ns: int) -> list[Slot]:
        if kind is OrderEnded:
            places = outcome_recipients(event.key)  # type: ignore[attr-defined]  # narrowed by the line above
            # Of a pod or wave whose actor has gone, or failed, nobody is left to hear it, and nothing waits.
            owners = [self.slots.get(place) or self.slots.get((place[0], "")) for place in places]
            return [slot for slot in owners if slot is not None and not slot.failed]
        if kind is Tick:
            return self._deadlines.take(now_ns)
        found = [slot for slot in self._always.get(kind, ()) if not slot.failed]
        for name, subject_of, creates in TO_SUBJECTS.get(kind, ()):
            if subject_of is None:
                found += [slot for slot in self._by_kind.get(name, ()) if not slot.failed]
                continue
            subject = subject_of(event)
            slot = self.slots.get((name, subject))
            if slot is None and creates is not None:
                # By the event that begins it and by no other: one that comes late, for a pod whose actor has
                # gone, must not make an actor that knows nothing of its pod.
                slot = self.register(creates, subject)
            if slot is not None and not slot.failed:
                found.append(slot)
        return found

    def next_deadline_ns(self) -> int | None:
        """When the next `Tick` is due, in monotonic nanoseconds; None if nobody waits."""
        due_ns = self._deadlines.next_ns()
        return None if due_ns is None else max(due_ns, self._look_until_ns)

    # --- who there is -------------------------------------------------------------------------

    def register(self, kind: ActorType, subject: str) -> Slot:
        slot = Slot(kind, subject, self._registered, self._flags)
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
        start = fact if type(fact) is DaemonStarted else None
        # Waves and pods are not revived: their subject is over by then, or the fallback's to the end.
        for slot in (self.slots[(kind.name, "")] for kind in SINGLETONS):
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

    def __init__(self, kind: ActorType, subject: str, index: int, flags: tuple[str, ...]) -> None:
        self.kind = kind
        #: Its table under the logic flags in force.
        self.transitions = kind.transitions.under(flags)
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


def _handover_of(giver: Slot, event: Event, now_ns: int) -> Handover | None:
    """What a failed actor leaves to the fallback. If the bug is there: nothing, and no harm."""
    try:
        return giver.kind.handover(giver.state, event, now_ns)
    except Exception:  # it must not take the step, and with it the daemon, along
        return None


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
            if slot.deadline_ns == deadline_ns and not slot.failed:
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

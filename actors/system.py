"""All actors together: the sets of them, and the one function that moves them, `System.step`.

A step is one fact and all decisions that follow from it, breadth-first. An event goes to its recipients in
the order of registration, and their decisions are delivered in turn. ``run``, ``replay``, ``what-if`` and
``simulate`` get the same records. Two rules:

1. A state is replaced only when its handler returns. A handler that raises makes a decision: `ActorFailed`.
2. Deadlines are part of the states. The caller admits a `Tick` when `next_deadline_ns` has come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache
from heapq import heapify, heappop, heappush
from operator import attrgetter
from struct import iter_unpack, pack
from typing import Any, NamedTuple, cast
from zlib import crc32

import msgspec
from msgspec.structs import astuple, replace

from ebbtide.actors.actor import (
    IGNORED,
    NEVER_NS,
    ActorType,
    Handler,
    State,
    UndeclaredTransition,
)
from ebbtide.actors.config_reconciler import CONFIG
from ebbtide.actors.episode import EPISODE, EpisodeState, give_up_ns
from ebbtide.actors.fallback import FALLBACK, KILL_AGAIN_NS, FallbackPod, FallbackState
from ebbtide.actors.hook import HOOK, PodState, died_of_our_kill
from ebbtide.actors.kubelet import KUBELET
from ebbtide.actors.logind import LOGIND
from ebbtide.actors.node_events import NODE_EVENTS
from ebbtide.actors.node_status import NODE_STATUS
from ebbtide.actors.outage import OUTAGE as OUTAGE_ACTOR
from ebbtide.actors.outage import OUTAGE_FALLBACK
from ebbtide.actors.outage_proof import POWER_OFF, PROOF
from ebbtide.actors.outage_work import DETACH, STUCK_POD
from ebbtide.actors.wave import WAVE
from ebbtide.events import decisions, facts, outage_events
from ebbtide.events.base import (
    NS_PER_SECOND,
    ActorState,
    Checkpoint,
    Event,
    OpenOrder,
    Order,
    Record,
    Stamp,
    StatesDigest,
)
from ebbtide.events.codec import BadPayload, decode_event, encode_event
from ebbtide.events.decisions import ActorFailed
from ebbtide.events.facts import DaemonStarted
from ebbtide.events.segment import LOGICS, SHUTDOWN_LOGIC

# --- a set of actors
#
# A set's tables decide which events go to which actors, which events open and close an episode, and how an
# episode goes on after a failure. The logic in a journal's header names its set.
#
# A rule that changes after a release becomes a new logic, so another set in `SETS`. The old set stays until
# the release after that.

#: How to read an event's subject, by actor and event type. Other events go to every instance.
SubjectOf = Mapping[tuple[str, str], Callable[[Any], str]]

#: Delivered by key and by deadline.
_ADDRESSED_DIRECTLY = (facts.OrderEnded, facts.Tick)


class Route(NamedTuple):
    """``subject`` None: every instance. ``creates``: this event makes the subject's actor."""

    name: str
    subject: Callable[[Any], str] | None
    creates: ActorType | None


class Rescue(NamedTuple):
    """After a failure ``leader`` and all subjects fail together, and ``fallback`` leads.

    ``inherit`` makes the fallback's state from its own, the leader's, the subjects', the failed one's, the
    event of the failure, and the time. A failure of an actor in ``go_on`` has the same effect, but that actor
    continues. Starts that failed count as a failure of the leader, unless the start leaves no work
    (``over``).
    """

    leader: ActorType
    fallback: ActorType
    inherit: Callable[[Any, Any, Iterable[State], State, Event, int], State]
    go_on: tuple[ActorType, ...]
    over: Callable[[Any], bool]


class ActorSet:
    """``singletons`` always exist, in the order of delivery; an event makes each of ``subjects``.

    ``start`` is a process's first fact. ``opens`` and ``closes`` are an episode's decisions. After a decision
    of ``digested`` a step ends with a digest of the actors that have come to rest, after ``digested_last`` of
    all. ``also_hear``: receives the outcomes of all actors' orders with this word. ``look_until_ns``: the
    latest end of the wait for the edges' first findings (`LOOK_NS`).
    """

    def __init__(
        self,
        *,
        singletons: tuple[ActorType, ...],
        subjects: tuple[tuple[ActorType, type[Event]], ...],
        subject_of: SubjectOf,
        start: type[Event],
        opens: type[Event],
        closes: type[Event],
        digested: tuple[type[Event], ...],
        digested_last: type[Event],
        plans: type[Event] | None = None,
        also_hear: Mapping[str, ActorType] | None = None,
        rescue: Rescue | None = None,
        look_until_ns: Callable[[Callable[[ActorType], State]], int] = lambda state_of: NEVER_NS,
    ) -> None:
        self.singletons, self.subjects = singletons, subjects
        self.start, self.opens, self.closes = start, opens, closes
        self.digested, self.digested_last, self.plans = digested, digested_last, plans
        self.turns = (opens, closes, plans, *digested)
        self.also_hear = {word: kind.name for word, kind in (also_hear or {}).items()}
        self.rescue = rescue
        self.look_until_ns = look_until_ns
        self.types: tuple[ActorType, ...] = (*singletons, *(kind for kind, _ in subjects))
        self.by_name = {kind.name: kind for kind in self.types}
        #: From event type to recipients, in the order of registration.
        self.routes = self._build_routes(subject_of)
        always = tuple(kind.name for kind in singletons)
        #: Most events concern only singletons, which come first.
        self.to_singletons = {
            kind: tuple((route.name, "") for route in routes if route.name in always)
            for kind, routes in self.routes.items()
        }
        to_subjects = {
            kind: tuple(route for route in routes if route.name not in always)
            for kind, routes in self.routes.items()
        }
        self.to_subjects = {kind: routes for kind, routes in to_subjects.items() if routes}
        self.to_subjects |= dict.fromkeys(_ADDRESSED_DIRECTLY, ())

    def _build_routes(self, subject_of: SubjectOf) -> dict[type[Event], tuple[Route, ...]]:
        table: dict[type[Event], list[Route]] = {}
        creators = {kind.name: creator for kind, creator in self.subjects}
        for kind in self.types:
            for event_type in kind.transitions.events:
                if event_type in _ADDRESSED_DIRECTLY:
                    continue
                subject = subject_of.get((kind.name, event_type.__name__))
                creates = kind if creators.get(kind.name) is event_type else None
                table.setdefault(event_type, []).append(Route(kind.name, subject, creates))
        return {event_type: tuple(routes) for event_type, routes in table.items()}

    def outcome_recipients(self, key: str) -> list[tuple[str, str]]:
        # Cheaper than `parse_order_key`: a third of all facts are outcomes.
        actor, what, subject, _ = parts if len(parts := key.split("/")) == 4 else ("", "", "", "")
        also = self.also_hear.get(what, actor)
        return [(actor, subject)] if also == actor else [(actor, subject), (also, "")]


# --- the daemon on a node


def _wave_of_event(event: Any) -> str:
    return str(event.wave)


_uid_of_event: Callable[[Any], str] = attrgetter("uid")
_pod_uid_of_event: Callable[[Any], str] = attrgetter("pod.uid")


def _give_up_ns(state_of: Callable[[ActorType], State]) -> int:
    """The last work of a shutdown does not wait for a first look."""
    state = state_of(EPISODE)
    assert isinstance(state, EpisodeState)
    return give_up_ns(state) if state.release_by_ns else NEVER_NS


def _inherit_pods(
    state: FallbackState,
    episode: EpisodeState,
    subjects: Iterable[State],
    failed: State,
    event: Event,
    now_ns: int,
) -> FallbackState:
    """The pods that have not ended. A pod whose actor was not made in time comes from the plan. The orders
    for the failed actor's pod are repeated: it may have missed an end, and the edge repeats that.
    """
    pods = {
        each.uid: FallbackPod(
            pod=episode.pods[each.uid],
            wave=index,
            grace_ns=each.grace_seconds * NS_PER_SECOND,
            left=tuple(
                container.name for container in episode.pods[each.uid].containers if container.running
            ),
        )
        for index, wave in enumerate(episode.waves)
        for each in wave.pods
        if episode.roll.is_open(each.uid)
    }
    for each in subjects:
        if not isinstance(each, PodState) or each.pod is None:
            continue
        begun_ns, grace_ns = each.begun_ns, each.grace_ns
        if each is failed and isinstance(event, decisions.PodStopBegan) and not each.begun:
            begun_ns, grace_ns = max(now_ns, 1), event.grace_ns
        left = [down for down in each.downs if down.phase != "exited"]
        reached = [down for down in left if each is not failed and not down.delegated and not down.error]
        killed = bool(left) and all(down.phase == "killed" for down in left)
        pods[each.pod.uid] = FallbackPod(
            pod=each.pod,
            wave=each.wave,
            grace_ns=0 if each.hurried else grace_ns,
            left=tuple(down.spec.name for down in left),
            signalled=tuple(
                down.spec.name for down in reached if down.signalled or down.phase in ("stopping", "killed")
            ),
            begun_ns=begun_ns,
            kill_at_ns=(NEVER_NS if reached == left else KILL_AGAIN_NS) if killed else 0,
            kills_open=tuple(down.spec.name for down in left if down.kill_open),
            outcome="killed" if any(map(died_of_our_kill, each.downs)) else "graceful",
            succeeds=all(
                down.exit_code == 0 for down in each.downs if down.phase == "exited" and not down.spec.sidecar
            ),
            exit_codes=tuple(
                (down.spec.name, down.exit_code) for down in each.downs if down.exit_code is not None
            ),
            # The KubeletActor hands a deleted pod over to the fallback.
            means="cri" if each.means == "api" else each.means,
            deleted=each.deleted,
        )
        if each.over:
            del pods[each.pod.uid]
    planned = episode.phase not in ("idle", "listing")
    return replace(state, pods=pods, wave=episode.wave, planned=planned)


SHUTDOWN = ActorSet(
    # The mode and the node's marks are decided before the pods are touched.
    singletons=(CONFIG, LOGIND, KUBELET, NODE_STATUS, EPISODE, FALLBACK),
    subjects=((WAVE, decisions.WaveStarted), (HOOK, decisions.PodPlanned)),
    subject_of={
        (WAVE.name, "WaveStarted"): _wave_of_event,
        (WAVE.name, "PodPlanned"): _wave_of_event,
        (WAVE.name, "PodEnded"): _wave_of_event,
        (HOOK.name, "PodPlanned"): _pod_uid_of_event,
        (HOOK.name, "PodStopBegan"): _uid_of_event,
        (HOOK.name, "PodEnded"): _uid_of_event,
        (HOOK.name, "ContainerExited"): _uid_of_event,
        (HOOK.name, "AutopsyTaken"): _uid_of_event,
        (HOOK.name, "PodJoined"): _pod_uid_of_event,
    },
    start=DaemonStarted,
    opens=decisions.ShutdownBegan,
    closes=decisions.EpisodeClosed,
    digested=(decisions.WaveEnded, decisions.PodsEnded),
    digested_last=decisions.PodsEnded,
    plans=decisions.PlanMade,
    # The LogindActor has the lock that the fallback released. The NodeStatusActor needs deletes' outcomes.
    also_hear={"release": LOGIND, "delete": NODE_STATUS},
    # Only the KubeletActor can start its kubelet again.
    rescue=Rescue(
        EPISODE, FALLBACK, _inherit_pods, go_on=(KUBELET,), over=lambda start: start.preparing is False
    ),
    look_until_ns=_give_up_ns,
)


# --- the controller in the cluster

_name_of_event: Callable[[Any], str] = attrgetter("name")
_attachment_of_event: Callable[[Any], str] = attrgetter("attachment.name")

OUTAGES = ActorSet(
    # The ProofActor decides whether a proof counts before other actors use it.
    singletons=(PROOF, OUTAGE_ACTOR, OUTAGE_FALLBACK, NODE_EVENTS),
    subjects=((STUCK_POD, outage_events.PodLost), (DETACH, outage_events.AttachmentLeft)),
    subject_of={
        (STUCK_POD.name, "PodLost"): _pod_uid_of_event,
        (STUCK_POD.name, "LostPodRead"): _pod_uid_of_event,
        (STUCK_POD.name, "LostPodGone"): _uid_of_event,
        (DETACH.name, "AttachmentLeft"): _attachment_of_event,
        (DETACH.name, "AttachmentRead"): _attachment_of_event,
        (DETACH.name, "AttachmentGone"): _name_of_event,
    },
    start=outage_events.LeaderStarted,
    opens=outage_events.OutageBegan,
    closes=outage_events.OutageClosed,
    digested=(outage_events.OutOfService, outage_events.WorkRecovered, outage_events.OutageClosed),
    digested_last=outage_events.OutageClosed,
    # Sources are read before a machine is switched off, and afterwards.
    also_hear={POWER_OFF: PROOF, "sources": OUTAGE_ACTOR},
)


SETS: dict[str, ActorSet] = dict(zip(LOGICS, (SHUTDOWN, OUTAGES), strict=True))

#: The actors of all sets: a name is the same actor in each.
ACTOR_TYPE_BY_NAME: dict[str, ActorType] = {kind.name: kind for each in SETS.values() for kind in each.types}


# --- the system

#: Cause, actor, event, episode.
BareRecord = tuple[int, str, Event, int]

#: The actor in the record of a fact, and of a decision of the system itself.
EDGE, SYSTEM = "edge", "system"

#: After a start in mid-shutdown overdue ticks wait this long for the edges' first findings. Else a pod that
#: ended while no daemon ran would count as killed. An edge needs some 40 ms, a busy runtime 300 ms.
LOOK_NS = 500_000_000

#: After so many failed starts in a row at the same place, the fallback leads.
FAILED_STARTS_MAX = 2
LAST_STARTS_FAILED = "the last starts failed"


class System:
    """``slots`` are in the order of registration."""

    #: Compare each handler with its row (`Transitions.check`): on in tests and simulated worlds. In a daemon
    #: a wrong row must not cost a shutdown.
    checked = False

    #: Receives a failure's exception. The record has only its kind: its text may differ between Pythons.
    on_failure: Callable[[str, Exception], object] = staticmethod(lambda label, error: None)

    def __init__(self, next_seq: int = 1, logic: str = SHUTDOWN_LOGIC) -> None:
        self.next_seq = next_seq
        self.logic = logic
        self.actors = SETS[logic]
        rescue = self.actors.rescue
        self.episode = 0
        self.open_orders: dict[str, OpenedOrder] = {}
        self.slots: dict[tuple[str, str], Slot] = {}
        self._by_kind: dict[str, list[Slot]] = {}
        self._registered = 0
        self._deadlines = Deadlines()
        #: No tick before this (`LOOK_NS`). It is no state: a replay takes its ticks from the record.
        self._look_until_ns = 0
        self._closing, self._planned, self._digest_at = False, False, 0
        for kind in self.actors.singletons:
            self.register(kind, "")
        #: While it has failed, the fallback leads, and no event makes an actor.
        self._leader = None if rescue is None else self.slots[(rescue.leader.name, "")]
        self._fallback = None if rescue is None else self.slots[(rescue.fallback.name, "")]
        self._always = {
            kind: [self.slots[at] for at in places] for kind, places in self.actors.to_singletons.items()
        }

    # --- the one function

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
        """As `step`, without envelopes."""
        first, actors = self.next_seq, self.actors
        starts = type(fact) is actors.start
        if type(fact) is facts.OrderEnded:
            self.open_orders.pop(fact.key, None)
        elif starts:
            # Before the delivery: a failed actor goes on with this start.
            self._revive(fact, mono_ns)
        entries: list[BareRecord] = [(0, EDGE, fact, self.episode)]
        for at, (_, _, event, _) in enumerate(entries):  # grows meanwhile
            kind = type(event)
            if kind is actors.closes:
                self._revive(fact, mono_ns)
            for slot in self._recipients(event, kind, mono_ns):
                if slot.failed:
                    continue
                for decision in self._handle(slot, event, kind, mono_ns):
                    decided, episode = type(decision), self.episode
                    if isinstance(decision, Order):
                        self.open_orders[decision.key] = OpenedOrder(first + len(entries), decision)
                    elif decided in actors.turns:
                        if decided is actors.opens:
                            if slot is not self._fallback:
                                # An actor that failed earlier in this step takes part in the episode.
                                self._revive(fact, mono_ns)
                            episode = self.episode = first  # an episode is named by the fact that opens it
                        elif decided is actors.closes:
                            # The closing record belongs to the episode, later records do not.
                            self._closing, self.episode = True, 0
                        if decided in actors.digested:
                            self._digest_at = len(entries)
                        self._planned = self._planned or decided is actors.plans
                    entries.append((first + at, slot.label, decision, episode))
            if at == 0 and starts:
                self._give_up_on(fact, entries, mono_ns)
        if self._digest_at or self._planned:
            self._digest(first, entries)
        # The first step of an episode belongs to it as a whole.
        if self.episode == first:
            entries = [(cause, actor, event, episode or first) for cause, actor, event, episode in entries]
            entries[0] = (0, EDGE, fact, first)
        if starts:
            # Only in an episode that goes on: another boot has another clock.
            limit_ns = actors.look_until_ns(lambda kind: self.slots[(kind.name, "")].state)
            self._look_until_ns = min(mono_ns + LOOK_NS, limit_ns) if self.episode else 0
        self.next_seq = first + len(entries)
        # Not sooner: an earlier entry may be for an actor that is done by now.
        if self._closing:
            self._drop_done()
        if not self.episode:
            self._revive(fact, mono_ns)
        return entries

    def _digest(self, first: int, entries: list[BareRecord]) -> None:
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
            before = slot.state
            if before is not slot.looked_up:
                slot.handler_by_event, slot.looked_up = slot.transitions.handler_by_event(before), before
            handler = slot.handler_by_event(kind)
            if handler is IGNORED and kind is not facts.Tick:  # a third of all deliveries
                return ()
            state, decisions = handler(before, event, now_ns)
            if self.checked:
                slot.transitions.check(kind, before, state, decisions)
            # `Deadlines.take` has removed the deadline for a `Tick`.
            if state is before and kind is not facts.Tick:
                return decisions
            deadline_ns = slot.kind.deadline(state)
            if kind is facts.Tick and now_ns >= deadline_ns == slot.kind.deadline(before):
                raise NoProgress
        except UndeclaredTransition:  # for the test that checks the tables
            raise
        except Exception as error:
            # The fallback stops the pods. A daemon that ended here would only start and fail again.
            with suppress(Exception):
                self.on_failure(slot.label, error)
            return (self._fail(slot, type(error).__name__, now_ns, event),)
        slot.state = state
        if deadline_ns != slot.deadline_ns:
            self._deadlines.watch(slot, deadline_ns)
        return decisions

    def _fail(self, slot: Slot, error: str, now_ns: int, event: Event) -> ActorFailed:
        failed, rescue = [slot], self.actors.rescue
        if rescue is not None and self._leader is not None and self._fallback is not None:
            ends_pods = slot.subject or slot is self._leader or slot.kind in rescue.go_on
            if self.episode and ends_pods and not self._fallback.failed:
                subjects = [each for each in self.slots.values() if each.subject]
                if not self._leader.failed:
                    states = self._fallback.state, self._leader.state, [each.state for each in subjects]
                    # Without the last states the fallback has no plan, and lists the pods itself.
                    with suppress(Exception):
                        self._fallback.state = rescue.inherit(*states, slot.state, event, now_ns)
                failed += [self._leader, *subjects]
        for each in failed:
            each.failed = True
            each.deadline_ns = NEVER_NS
        if self.episode and rescue is not None and slot.kind in rescue.go_on:
            self._go_on(slot, now_ns, event)
        return ActorFailed(actor=slot.kind.name, subject=slot.subject, error=error)

    def _give_up_on(self, fact: Event, made: list[BareRecord], now_ns: int) -> None:
        rescue, start, leader = self.actors.rescue, cast(Any, fact), self._leader
        if rescue is None or leader is None or leader.failed or not self.episode or rescue.over(start):
            return
        if (
            start.failed_starts >= FAILED_STARTS_MAX
            and self._fallback is not None
            and not self._fallback.failed
        ):
            made.append(
                (self.next_seq, SYSTEM, self._fail(leader, LAST_STARTS_FAILED, now_ns, fact), self.episode)
            )

    def watch(self, slot: Slot) -> None:
        self._deadlines.watch(slot, NEVER_NS if slot.failed else slot.kind.deadline(slot.state))

    # --- recipients

    def _recipients(self, event: Event, kind: type[Event], now_ns: int) -> list[Slot]:
        """Called once for each event, before its delivery: replay's `Stopped` counts the calls."""
        if kind is facts.OrderEnded:
            owners: list[Slot] = []
            for place in self.actors.outcome_recipients(event.key):  # type: ignore[attr-defined]  # narrowed above
                slot = self.slots.get(place) or self.slots.get((place[0], ""))
                # The fallback repeats orders of failed actors that were lost with a daemon.
                if slot is not None and slot.failed and slot.subject:
                    slot = self._fallback or slot
                if slot is not None:
                    owners.append(slot)
            return owners
        if kind is facts.Tick:
            return self._deadlines.take(now_ns)
        if kind not in self.actors.to_subjects:
            return self._always.get(kind, [])
        found = [*self._always.get(kind, ())]
        for name, subject_of, creates in self.actors.to_subjects[kind]:
            if subject_of is None:
                found += self._by_kind.get(name, ())
                continue
            subject = subject_of(event)
            slot = self.slots.get((name, subject))
            if slot is None and creates is not None and not (self._leader and self._leader.failed):
                # Only a subject's first event makes its actor: a later one knows too little of the pod.
                slot = self.register(creates, subject)
            if slot is not None:
                found.append(slot)
        return found

    def next_deadline_ns(self) -> int | None:
        """When the next `Tick` is due, in monotonic nanoseconds."""
        due_ns = self._deadlines.next_ns()
        return None if due_ns is None else max(due_ns, self._look_until_ns)

    # --- actors

    def register(self, kind: ActorType, subject: str) -> Slot:
        slot = Slot(kind, subject, self._registered)
        self._registered += 1
        self.slots[(kind.name, subject)] = slot
        self._by_kind.setdefault(kind.name, []).append(slot)
        return slot

    def _drop_done(self) -> None:
        """A pod that still goes down after a cancel stays."""
        kept = [slot for slot in self.slots.values() if not slot.subject or not slot.is_done]
        self.slots = {(slot.kind.name, slot.subject): slot for slot in kept}
        self._by_kind = {}
        for slot in kept:
            self._by_kind.setdefault(slot.kind.name, []).append(slot)
        self._deadlines.keep(kept)
        self._closing = False

    def _revive(self, fact: Event, now_ns: int) -> None:
        """A failed singleton goes on with the next episode or process, or at once outside of an episode."""
        for slot in (self.slots[(kind.name, "")] for kind in self.actors.singletons):
            if slot.failed:
                self._go_on(slot, now_ns, fact)

    def _go_on(self, slot: Slot, now_ns: int, event: Event) -> None:
        start = event if type(event) is self.actors.start else None
        state = slot.kind.afresh(slot.state, now_ns, self.episode > 0, start)
        if state is not None:
            slot.failed = False
            slot.state = state
            self.watch(slot)


class OpenedOrder(NamedTuple):
    """``seq`` is the number of its record."""

    seq: int
    order: Order


class NoProgress(Exception):
    """A `Tick` left its deadline unchanged: it would be due for ever."""


class Slot:
    __slots__ = (
        "deadline_ns",
        "failed",
        "handler_by_event",
        "index",
        "kind",
        "label",
        "looked_up",
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
        #: The last state that a checkpoint or a digest recorded.
        self.noted = self.state
        #: In the phase of the state ``looked_up``.
        self.handler_by_event: Callable[[type[Event]], Handler]
        self.looked_up: State | None = None
        self.deadline_ns = NEVER_NS
        self.failed = False

    @property
    def is_done(self) -> bool:
        return self.failed or self.kind.done(self.state)


class Deadlines:
    """In monotonic nanoseconds, ties by registration. An entry of the heap counts only while it equals its
    slot's deadline.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Slot]] = []

    def watch(self, slot: Slot, deadline_ns: int) -> None:
        """`NEVER_NS`: none."""
        slot.deadline_ns = deadline_ns
        if deadline_ns < NEVER_NS:
            heappush(self._heap, (deadline_ns, slot.index, slot))

    def take(self, now_ns: int) -> list[Slot]:
        due: list[Slot] = []
        while self._heap and self._heap[0][0] <= now_ns:
            deadline_ns, _, slot = heappop(self._heap)
            if slot.deadline_ns == deadline_ns:
                slot.deadline_ns = NEVER_NS
                due.append(slot)
        return due

    def next_ns(self) -> int | None:
        while self._heap and self._heap[0][2].deadline_ns != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def keep(self, slots: Iterable[Slot]) -> None:
        alive = dict.fromkeys(slot.index for slot in slots)
        self._heap = [entry for entry in self._heap if entry[2].index in alive]
        heapify(self._heap)


# A wrong state may show in a decision only much later. With a digest of each changed state at the end of a
# wave, a replay finds the actor and the field where a difference began. A digest is too small to hold a
# secret.

#: A field's digest has 32 bits: its name's tag, and so many of its value's CRC-32.
VALUE_BITS = 20
_VALUE_MASK = (1 << VALUE_BITS) - 1

_encode_value = msgspec.msgpack.Encoder().encode


def changed_digests(slots: Iterable[Slot], *, at_last: bool) -> dict[str, bytes]:
    """By label, in the order of registration. A pod on its way down changes with every event, so it has no
    digest before its end, or ``at_last``.
    """
    found: dict[str, bytes] = {}
    for slot in slots:
        if slot.state is not slot.noted and (at_last or slot.is_done):
            found[slot.label] = state_digest(slot.state, slot.noted)
            slot.noted = slot.state
    return found


def mark_recorded(slots: Iterable[Slot]) -> None:
    for slot in slots:
        slot.noted = slot.state


def state_digest(state: State, noted: State) -> bytes:
    """Four bytes, big-endian, for each field that differs from ``noted``, in the order of the fields."""
    # Most fields are the same objects, and `is` is cheaper than `==`.
    parts = [
        tag | crc32(_encode_value(value)) & _VALUE_MASK
        for value, before, tag in zip(astuple(state), astuple(noted), _field_tags(type(state)), strict=True)
        if value is not before and value != before
    ]
    return pack(f">{len(parts)}I", *parts)


def differing_field(kind: type[State], recorded: bytes, produced: bytes) -> str:
    """The first one, in the order of the state; empty without one."""
    kept, made = _values_by_tag(recorded), _values_by_tag(produced)
    names = (field.name for field in msgspec.structs.fields(kind))
    return next((name for name in names if kept.get(field_tag(name)) != made.get(field_tag(name))), "")


def field_tag(field: str) -> int:
    """No two fields of a state may share it (a test)."""
    return crc32(field.encode()) >> VALUE_BITS


def _values_by_tag(digests: bytes) -> dict[int, int]:
    whole = len(digests) - len(digests) % 4
    return {part >> VALUE_BITS: part & _VALUE_MASK for (part,) in iter_unpack(">I", digests[:whole])}


@cache
def _field_tags(kind: type[State]) -> tuple[int, ...]:
    """Shifted to their place in a digest."""
    return tuple(field_tag(name) << VALUE_BITS for name in kind.__struct_fields__)


# --- checkpoints


def take_checkpoint(system: System) -> Checkpoint:
    """The next digest covers what changes after it."""
    mark_recorded(system.slots.values())
    return as_checkpoint(system)


def as_checkpoint(system: System) -> Checkpoint:
    """Has no effect on the next digest."""
    return Checkpoint(
        episode=system.episode,
        actors=tuple(
            ActorState(
                actor=slot.kind.name,
                subject=slot.subject,
                state=msgspec.Raw(msgspec.msgpack.encode(slot.state)),
                failed=slot.failed,
            )
            for slot in system.slots.values()
        ),
        open_orders=tuple(
            OpenOrder(seq=seq, type=type(order).__name__, order=msgspec.Raw(encode_event(order)))
            for seq, order in system.open_orders.values()
        ),
        logic=system.logic,
    )


def restore(checkpoint: Checkpoint, next_seq: int) -> System:
    """Raises BadPayload on a state that this version cannot read."""
    if checkpoint.logic not in SETS:
        raise BadPayload(
            f"the checkpoint is of the logic {checkpoint.logic!r}, which this version does not know"
        )
    system = System(next_seq, checkpoint.logic)
    system.episode = checkpoint.episode
    for kept in checkpoint.open_orders:
        order = decode_event(kept.type, bytes(kept.order))
        if not isinstance(order, Order):
            raise BadPayload(f"the checkpoint has an open order {kept.type!r}, which is none")
        system.open_orders[order.key] = OpenedOrder(kept.seq, order)
    for actor in checkpoint.actors:
        # Without one of its actors a shutdown would forget pods.
        kind = system.actors.by_name.get(actor.actor)
        if kind is None:
            raise BadPayload(f"the checkpoint has an actor {actor.actor!r} that this version does not know")
        if actor.subject and kind in system.actors.singletons:
            raise BadPayload(f"the checkpoint has a second {actor.actor}, for {actor.subject!r}")
        # In the checkpoint's order: it decides ties between actors.
        slot = system.slots.get((actor.actor, actor.subject)) or system.register(kind, actor.subject)
        try:
            slot.state = msgspec.msgpack.decode(actor.state, type=kind.state)
        except (ValueError, msgspec.DecodeError, RecursionError) as error:  # ValueError: bad UTF-8
            raise BadPayload(f"checkpoint of {actor.actor}: {error}") from error
        slot.failed = actor.failed
        system.watch(slot)
    mark_recorded(system.slots.values())
    return system

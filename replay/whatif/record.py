"""The record of one shutdown, prepared for another run under changes.

It is re-executed while it is read: a record that this version would decide otherwise shows no effect of other
settings. Then the possible changes, the recorded behaviour that a new run needs, and the cause of each
recorded fact: an order, a container's stop, the release, or only time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, TypeVar, cast

import msgspec
from msgspec.structs import replace

from ebbtide.actors.checkpoint import as_checkpoint, restore
from ebbtide.actors.config_reconciler import NAME as CONFIG
from ebbtide.actors.config_reconciler import ConfigState
from ebbtide.actors.episode import NAME as EPISODE
from ebbtide.actors.episode import EpisodeState
from ebbtide.actors.system import System
from ebbtide.events import decisions
from ebbtide.events.base import NS_PER_SECOND, Checkpoint, Event, Fact, Mark, Order
from ebbtide.events.codec import RawRecord, decode_event
from ebbtide.events.facts import (
    AutopsyTaken,
    ContainerExited,
    DaemonStarted,
    DropInsRead,
    DurabilityLate,
    EffectPanicked,
    InventoryTaken,
    LogindRead,
    OrderEnded,
    PrepareForShutdown,
    SettingsLoaded,
    StopRequested,
    Tick,
)
from ebbtide.events.reader import History
from ebbtide.events.segment import is_outage_logic
from ebbtide.events.units import span
from ebbtide.events.values import Container, Pod, Settings
from ebbtide.replay.replayer import STATEMENTS, Divergence, Replayer, whole_steps

# Kept: the state before the first record, every fact with its place, and how late each tick came.


class Diverged(Exception):
    """This version decides otherwise than the record: 'ebbtide replay verify' shows where and why."""

    def __init__(self, divergence: Divergence) -> None:
        field = divergence.field
        super().__init__(f"record {divergence.seq}: {field}{'' if field in STATEMENTS else ' differs'}")
        self.divergence = divergence


class NoShutdownAtRecord(Exception):
    """No shutdown begins at that record, or the records before it are gone."""


class RecordedEvent(NamedTuple):
    """``cause`` 0: a fact. Marks are left out."""

    seq: int
    mono_ns: int
    cause: int
    episode: int
    event: Event


class InEpisode(Protocol):
    """Any kind of record."""

    @property
    def cause(self) -> int: ...
    @property
    def episode(self) -> int: ...


EachRecord = TypeVar("EachRecord", bound=InEpisode)


def own_events(events: Iterable[EachRecord], first_seq: int) -> Iterator[EachRecord]:
    """Records of this shutdown. The fact of a step that ends one and opens the next belongs to both."""
    return (each for each in events if not each.cause or each.episode in (0, first_seq))


def up_to_next(events: Iterable[EachRecord], first_seq: int) -> Iterator[EachRecord]:
    """Without the last step's decisions for the shutdown that it opens."""
    return (each for each in events if not each.cause or each.episode <= first_seq)


class RecordedShutdown(NamedTuple):
    """Times are monotonic nanoseconds of its boot.

    ``late``: by deadline, when its tick was admitted, and its place at that instant: 2 × the sequence number,
    or one more for "after that fact".
    """

    first_seq: int
    last_seq: int
    start: Checkpoint
    signal_ns: int
    last_ns: int
    wall_offset_ns: int
    events: tuple[RecordedEvent, ...]
    late: dict[int, tuple[int, int]]

    @property
    def facts(self) -> Iterator[RecordedEvent]:
        """Without ticks."""
        return (each for each in self.events if not each.cause and not isinstance(each.event, Tick))

    @property
    def own(self) -> Iterator[RecordedEvent]:
        """Without the end of a shutdown that the first step ended."""
        return own_events(self.events, self.first_seq)

    @property
    def settings(self) -> Settings:
        """In force at the signal."""
        return config_of(self.system()).settings or Settings()

    @property
    def last_fact_seq(self) -> int:
        """Of the last step."""
        return next(each.seq for each in reversed(self.events) if not each.cause)

    @property
    def grant_ns(self) -> int:
        """logind's grant at the signal."""
        return next(
            (each.event.grant_ns for each in self.own if isinstance(each.event, decisions.ShutdownBegan)), 0
        )

    @property
    def is_cut(self) -> bool:
        """The record ends within the shutdown."""
        ends = (decisions.ReleaseLock, decisions.EpisodeClosed)
        return not any(isinstance(each.event, ends) for each in self.own)

    @property
    def is_moved(self) -> bool:
        """logind's delay was withdrawn, begun anew, or bypassed."""
        bypassed = isinstance(self.events[0].event, StopRequested)
        return bypassed or any(
            isinstance(each.event, decisions.DeadlineMoved | decisions.ShutdownWithdrawn) for each in self.own
        )

    def system(self) -> System:
        """A new one in the state before the first record."""
        return restore(self.start, self.first_seq)


def config_of(system: System) -> ConfigState:
    return cast(ConfigState, system.slots[(CONFIG, "")].state)


def read_recorded_shutdown(history: History, first_seq: int) -> RecordedShutdown:
    """Raises Diverged, NoShutdownAtRecord, WrongChange for an outage, events.codec.UnknownType and
    BadPayload.
    """
    return _ShutdownReader(first_seq).read(step for _, step in whole_steps(history.batches()))


class _ShutdownReader:
    def __init__(self, first_seq: int) -> None:
        self._first_seq = first_seq
        self._replayer = Replayer()
        self._events: list[RecordedEvent] = []
        self._late: dict[int, tuple[int, int]] = {}
        self._home = ("", "")

    def read(self, found: Iterator[list[RawRecord]]) -> RecordedShutdown:
        first = self._seek(found)
        start = as_checkpoint(self._replayer.system)
        if is_outage_logic(start.logic):
            raise WrongChange("this is an outage; what would have been can be asked of shutdowns only")
        state = cast(EpisodeState, self._replayer.system.slots[(EPISODE, "")].state)
        self._home = (state.boot_id, state.userspace_id)
        step: list[RawRecord] | None = first
        while step is not None and not self._is_over(step):
            fact = step[0]
            due_ns = self._replayer.system.next_deadline_ns()
            self._feed(step)
            for raw in up_to_next(step, self._first_seq):
                event = decode_event(raw.tag, raw.payload)
                if not isinstance(event, Mark):
                    self._events.append(RecordedEvent(raw.seq, raw.mono_ns, raw.cause, raw.episode, event))
            if due_ns is not None and due_ns <= fact.mono_ns:
                ticked = fact.tag == Tick.__name__
                self._late[due_ns] = (fact.mono_ns, 2 * fact.seq + (not ticked))
            step = next(found, None) if step[0].episode == self._first_seq else None
        last = self._events[-1]
        return RecordedShutdown(
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
            if step[0].episode == self._first_seq:
                raise WrongChange("the begin of this shutdown is not on record: it cannot be decided again")
            if step[0].tag == Checkpoint.__name__:
                before = []
            before += step
        raise NoShutdownAtRecord(f"no shutdown begins at record {self._first_seq}")

    def _feed(self, raws: list[RawRecord]) -> None:
        divergence = self._replayer.feed(raws)
        if divergence is not None:
            raise Diverged(divergence)

    def _is_over(self, step: list[RawRecord]) -> bool:
        """Whether the step belongs to another shutdown, or only closes this one in another boot or userspace.
        A step that opens the next shutdown may also belong to this one.
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


# The changes: settings, pods, logind's grant, and single facts.


class WrongChange(ValueError):
    """This record does not allow the change. One line, with the alternative."""


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """None or empty: as recorded. ``delay``: (sequence number, nanoseconds).

    A pod with a recorded ``namespace/name`` replaces that pod and keeps its behaviour; another one is added,
    with unknown behaviour. Raises ValueError for a negative time.
    """

    settings: Settings | None = None
    pods: tuple[Pod, ...] = ()
    grant_ns: int | None = None
    drop: tuple[int, ...] = ()
    delay: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        if self.grant_ns is not None and self.grant_ns < 0:
            raise ValueError(f"a grant of {span(self.grant_ns)} is negative")
        for seq, delay_ns in self.delay:
            if delay_ns < 0:
                raise ValueError(f"the delay of record {seq}, {span(delay_ns)}, is negative")


class ChangedFact(NamedTuple):
    """A fact of the new run: recorded at ``mono_ns``, heard ``delay_ns`` later."""

    seq: int
    mono_ns: int
    event: Fact
    delay_ns: int = 0

    @property
    def at_ns(self) -> int:
        return self.mono_ns + self.delay_ns


def facts_under(
    shutdown: RecordedShutdown, changes: Changes, grant_ns: int | None
) -> tuple[ChangedFact, ...]:
    """The recorded facts as changed; ``grant_ns`` None: as recorded. Raises WrongChange."""
    delays = dict(changes.delay)
    _check_named_facts(shutdown, changes)
    edit = _FactEditor(shutdown, changes, grant_ns)
    return tuple(
        ChangedFact(each.seq, each.mono_ns, edit.fact(each), delays.get(each.seq, 0) + edit.moved_ns(each))
        for each in shutdown.facts
        if each.seq not in changes.drop
    )


def _check_named_facts(shutdown: RecordedShutdown, changes: Changes) -> None:
    by_seq = {each.seq: each for each in shutdown.events}
    for seq in (*changes.drop, *dict(changes.delay)):
        if seq not in by_seq:
            where = f"it has the records {shutdown.first_seq} to {shutdown.last_seq}"
            raise WrongChange(f"record {seq} is no event of this shutdown: {where}")
        found = root = by_seq[seq]
        name = type(found.event).__name__
        if found.cause:
            # The same fact would lead to the decision again.
            while root.cause:
                root = by_seq[root.cause]
            led_to = f"name the fact that led to it, {root.seq}"
            raise WrongChange(f"record {seq} is the decision {name}: {led_to}")
        if isinstance(found.event, Tick):
            raise WrongChange(
                f"record {seq} is a tick: it follows from deadlines; change the settings instead"
            )
        if seq == shutdown.first_seq:
            raise WrongChange(
                f"record {seq} is the {name} that begins the shutdown: without it there is none"
            )
    seen: dict[int, None] = {}
    for seq, _ in changes.delay:
        if seq in changes.drop:
            raise WrongChange(f"record {seq} is to be dropped and delayed: ask for one of the two")
        if seq in seen:
            raise WrongChange(f"record {seq} has two delays: ask for one of them, or for their sum")
        seen[seq] = None


class _FactEditor:
    """Replaces recorded pods by label. New pods join the last part of each listing."""

    def __init__(self, shutdown: RecordedShutdown, changes: Changes, grant_ns: int | None) -> None:
        recorded = {pod.label: pod for pod in recorded_pods(shutdown)}
        self._given: dict[str, Pod] = {}
        for pod in changes.pods:
            self._given[pod.label] = pod
            then = recorded.get(pod.label)
            if then is not None:
                # A manifest does not know which containers had ended at the signal.
                running = {each.name: each.running for each in then.containers}
                containers = [replace(each, running=running.get(each.name, True)) for each in pod.containers]
                self._given[pod.label] = replace(pod, uid=then.uid, containers=tuple(containers))
        self._new = tuple(pod for label, pod in self._given.items() if label not in recorded)
        self._then, self._now = shutdown.settings, changes.settings
        self._shutdown, self._grant_ns = shutdown, grant_ns

    def fact(self, played: RecordedEvent) -> Fact:
        event = cast(Fact, played.event)
        if isinstance(event, InventoryTaken):
            if not self._given:
                return event
            pods = tuple(self._given.get(pod.label, pod) for pod in event.pods)
            return replace(event, pods=pods + (self._new if event.part == event.parts else ()))
        if isinstance(event, SettingsLoaded) and self._now is not None:
            return replace(event, settings=self._now) if event.settings == self._then else event
        # A fact with the recorded grant gets the new one. Another value, read later, stays.
        if self._grant_ns is not None and isinstance(event, PrepareForShutdown | LogindRead | DaemonStarted):
            same = event.grant_ns == self._shutdown.grant_ns
            return replace(event, grant_ns=self._grant_ns) if same else event
        return event

    def moved_ns(self, played: RecordedEvent) -> int:
        """logind's own timer ends the delay when the grant is over."""
        event, granted_ns = played.event, self._shutdown.grant_ns
        by_timer = isinstance(event, StopRequested) and event.system_stopping and self._grant_ns is not None
        if not by_timer or self._grant_ns is None or played.mono_ns - self._shutdown.signal_ns < granted_ns:
            return 0
        return self._grant_ns - granted_ns


def recorded_pods(shutdown: RecordedShutdown) -> Iterator[Pod]:
    """As listed, with repetitions."""
    listings: Iterable[InventoryTaken] = (
        each.event for each in shutdown.facts if isinstance(each.event, InventoryTaken)
    )
    return (pod for listing in listings for pod in listing.pods)


# The recorded behaviour: containers, hooks, answers, and facts from outside.


#: UID of the pod, and name.
ContainerKey = tuple[str, str]


class RecordPoint(NamedTuple):
    """An event's place in the record."""

    seq: int
    mono_ns: int


class Answer(NamedTuple):
    """A fact, and its delay after its order, or after the process start ``restart``."""

    delay_ns: int
    changed: ChangedFact
    restart: int = 0


class Downtime(NamedTuple):
    """Between two processes of one boot. ``seq``: of the second start."""

    begin_ns: int
    end_ns: int
    seq: int


@dataclass
class RecordedHook:
    """``cut``: when an order cancelled it."""

    began: RecordPoint
    key: str
    timeout_ns: int
    cut: RecordPoint | None = None
    cut_timed_out: bool = False
    ended: ChangedFact | None = None
    #: It ran until then at least: a restart lost its outcome.
    alive_ns: int | None = None

    @property
    def ran_out(self) -> bool:
        """It ended by itself, so its time is known."""
        return self.cut is None and self._result in ("done", "failed")

    @property
    def lost(self) -> bool:
        """A restart lost its outcome."""
        return self._result == "unknown"

    @property
    def bounded(self) -> bool:
        """Its edge ended it at its timeout."""
        return self.cut is None and self._result == "timed-out"

    @property
    def _result(self) -> str:
        return self.ended.event.result if self.ended and isinstance(self.ended.event, OrderEnded) else ""


#: By SIGKILL, after its stop signal, in its hook, before any order about it, or not in this record.
ContainerEnd = Literal["killed", "stopped", "in-hook", "by-itself", "stays"]


@dataclass
class RecordedContainer:
    """None: it did not happen."""

    spec: Container | None = None
    planned: RecordPoint | None = None
    hook: RecordedHook | None = None
    signalled: RecordPoint | None = None
    killed: RecordPoint | None = None
    #: SIGKILL was carried out before its end was known.
    met: bool = False
    exited: ChangedFact | None = None
    #: Reported again by a restarted daemon.
    exited_again: list[ChangedFact] = field(default_factory=list)
    #: The runtime refused its stop signal.
    refused: bool = False
    #: Found gone by a restarted daemon: how long after its stop signal it still ran.
    gone_after_ns: int | None = None

    @property
    def how(self) -> ContainerEnd:
        if self.exited is None:
            return "stays"
        event, seq = self.exited.event, self.exited.seq
        assert isinstance(event, ContainerExited)
        # As in `actors.hook`: a runtime may report SIGKILL as 137, or not at all.
        if (
            self.killed is not None
            and self.killed.seq < seq
            and (self.met or not event.gone)
            and (event.signal == "SIGKILL" or (not event.signal and event.exit_code in (None, 137)))
        ):
            return "killed"
        if self.signalled is not None and self.signalled.seq < seq:
            return "stopped"
        return "in-hook" if self.hook is not None and self.hook.began.seq < seq else "by-itself"


@dataclass
class RecordedBehaviour:
    """The recorded behaviour that a new run needs."""

    #: At their own time, in order.
    outside: list[ChangedFact] = field(default_factory=list)
    after_release: list[Answer] = field(default_factory=list)
    #: By order key; empty: an order without an outcome.
    answers: dict[str, list[Answer]] = field(default_factory=dict)
    #: By order key.
    asked_ns: dict[str, int] = field(default_factory=dict)
    #: Orders whose outcome was dropped by request.
    silenced: dict[str, None] = field(default_factory=dict)
    containers: dict[ContainerKey, RecordedContainer] = field(default_factory=dict)
    #: Keys of each hook's order, and of the orders that cancel it.
    hook_keys: dict[str, ContainerKey] = field(default_factory=dict)
    downtimes: list[Downtime] = field(default_factory=list)
    listing: list[Answer] = field(default_factory=list)
    released: RecordPoint | None = None
    #: The slowest outcome by the order's type, for orders that are not in the record.
    slowest_ns: dict[str, int] = field(default_factory=dict)

    def container(self, uid: str, name: str) -> RecordedContainer:
        return self.containers.setdefault((uid, name), RecordedContainer())


# What each recorded fact belonged to: an order, a container's way down, the release, or nothing but time.
#
# A new run cannot repeat facts at their old times: an outcome follows its order, an exit its stop signal. So
# each fact gets its cause and the delay after it. Only facts from outside (the signal, people, the bus,
# arriving pods) keep their time.


#: A report about logind belongs to the open order of these.
LOGIND_ORDERS: tuple[type[Order], ...] = (decisions.Arm, decisions.WriteDropIn, decisions.RemoveDropIn)

#: A daemon may have found so what it reports within this time of its start.
FIRST_LOOK_NS = NS_PER_SECOND


def attribute_facts(shutdown: RecordedShutdown, facts: Sequence[ChangedFact]) -> RecordedBehaviour:
    """``facts``: as changed (`facts_under`). Orders are the record's."""
    attribution = _FactAttribution({changed.seq: changed for changed in facts})
    for played in shutdown.events:
        attribution.add(played)
    return attribution.seen


class _FactAttribution:
    def __init__(self, facts: dict[int, ChangedFact]) -> None:
        self.seen = RecordedBehaviour()
        self._facts = facts
        self._orders: dict[str, tuple[RecordPoint, Order]] = {}
        #: Orders without an outcome, in order.
        self._open: dict[str, Order] = {}
        #: The last order for an autopsy of each container.
        self._autopsies: dict[ContainerKey, str] = {}
        self._last_ns = 0

    def add(self, played: RecordedEvent) -> None:
        event = played.event
        if played.cause:
            if isinstance(event, Order):
                at = RecordPoint(played.seq, played.mono_ns)
                self._orders[event.key] = (at, event)
                self._open[event.key] = event
                self.seen.answers.setdefault(event.key, [])
                self.seen.asked_ns.setdefault(event.key, at.mono_ns)
                self._ordered(event, at)
            elif isinstance(event, decisions.PodPlanned):
                # The first plan counts: a restart may plan a pod again.
                at = RecordPoint(played.seq, played.mono_ns)
                for each in event.pod.containers:
                    seen = self.seen.container(event.pod.uid, each.name)
                    seen.spec, seen.planned = seen.spec or each, seen.planned or at
        elif played.seq in self._facts:
            changed = self._facts[played.seq]
            belongs = _FACT_HANDLERS.get(type(changed.event))
            if belongs is None or not belongs(self, changed):
                if self.seen.released is not None:
                    # The release caused what comes after it: the machine went down, or stayed up.
                    delay_ns = changed.at_ns - self.seen.released.mono_ns
                    self.seen.after_release.append(Answer(delay_ns, changed))
                else:
                    if isinstance(changed.event, DaemonStarted):
                        self.seen.downtimes.append(Downtime(self._last_ns, changed.at_ns, changed.seq))
                    self.seen.outside.append(changed)
        elif isinstance(event, OrderEnded):
            self.seen.silenced[event.key] = None
        self._last_ns = played.mono_ns

    def _ordered(self, order: Order, at: RecordPoint) -> None:
        seen = self.seen
        match order:
            case decisions.TakeAutopsy():
                self._autopsies[order.uid, order.container] = order.key
            case decisions.ReleaseLock():
                seen.released = seen.released or at
            case decisions.RunHook():
                container = seen.container(order.uid, order.container)
                if container.hook is None:
                    container.hook = RecordedHook(at, order.key, order.timeout_ns)
                    seen.hook_keys[order.key] = (order.uid, order.container)
            case decisions.SendSignal():
                container = seen.container(order.uid, order.container)
                container.signalled = container.signalled or at
            case decisions.KillContainer():
                container = seen.container(order.uid, order.container)
                container.killed = container.killed or at
            case decisions.CancelOrder() if (whose := seen.hook_keys.get(order.target)) is not None:
                hook = seen.container(*whose).hook
                if hook is not None and hook.ended is None and hook.cut is None:
                    hook.cut, hook.cut_timed_out = at, order.timed_out

    def _answer(self, key: str, changed: ChangedFact) -> bool:
        """False: its order is older than the shutdown."""
        if key not in self._orders:
            return False
        at, order = self._orders[key]
        lost = isinstance(changed.event, OrderEnded) and changed.event.result == "unknown"
        down = self.seen.downtimes[-1] if lost and self.seen.downtimes else None
        if down is not None and at.mono_ns <= down.begin_ns:
            answer = Answer(changed.at_ns - down.end_ns, changed, down.seq)
        else:
            answer = Answer(changed.at_ns - at.mono_ns, changed)
            slowest = self.seen.slowest_ns
            name = type(order).__name__
            slowest[name] = max(slowest.get(name, 0), answer.delay_ns)
        self.seen.answers[key].append(answer)
        return True

    def ended(self, changed: ChangedFact) -> bool:
        assert isinstance(changed.event, OrderEnded)
        key = changed.event.key
        self._open.pop(key, None)
        _, order = self._orders.get(key, (None, None))
        if isinstance(order, decisions.SendSignal) and changed.event.result == "failed":
            self.seen.container(order.uid, order.container).refused = True
        if isinstance(order, decisions.KillContainer) and changed.event.result == "done":
            killed = self.seen.container(order.uid, order.container)
            killed.met = killed.met or killed.exited is None
        whose = self.seen.hook_keys.get(key)
        if whose is not None:
            hook = self.seen.container(*whose).hook
            assert hook is not None
            hook.ended = changed
            if hook.lost and self.seen.downtimes:
                hook.alive_ns = self.seen.downtimes[-1].begin_ns
        return self._answer(key, changed)

    def keyed(self, changed: ChangedFact) -> bool:
        assert isinstance(changed.event, DurabilityLate | EffectPanicked)
        return self._answer(changed.event.key, changed)

    def listed(self, changed: ChangedFact) -> bool:
        assert isinstance(changed.event, InventoryTaken)
        if not self._answer(changed.event.key, changed):
            return False
        if changed.event.part == 1:
            self.seen.listing = []
        self.seen.listing.append(self.seen.answers[changed.event.key][-1])
        return True

    def logind_read(self, changed: ChangedFact) -> bool:
        """Reported before the outcome of the open order."""
        key = next((key for key, order in self._open.items() if isinstance(order, LOGIND_ORDERS)), "")
        return self._answer(key, changed)

    def autopsied(self, changed: ChangedFact) -> bool:
        """Its order may have ended at the same instant."""
        event = changed.event
        assert isinstance(event, AutopsyTaken)
        return self._answer(self._autopsies.get((event.uid, event.container), ""), changed)

    def exited(self, changed: ChangedFact) -> bool:
        event = changed.event
        assert isinstance(event, ContainerExited)
        seen = self.seen.container(event.uid, event.container)
        if seen.exited is not None:
            seen.exited_again.append(changed)
            return True
        seen.exited = changed
        down = self.seen.downtimes[-1] if self.seen.downtimes else None
        if down is not None and changed.mono_ns - down.end_ns <= FIRST_LOOK_NS and seen.signalled is not None:
            gone_after_ns = down.begin_ns - seen.signalled.mono_ns
            seen.gone_after_ns = gone_after_ns if gone_after_ns >= 0 else None
        return True


#: False: the fact has no cause in this shutdown and keeps its time.
_FACT_HANDLERS: dict[type[Event], Callable[[_FactAttribution, ChangedFact], bool]] = {
    OrderEnded: _FactAttribution.ended,
    DurabilityLate: _FactAttribution.keyed,
    EffectPanicked: _FactAttribution.keyed,
    InventoryTaken: _FactAttribution.listed,
    LogindRead: _FactAttribution.logind_read,
    DropInsRead: _FactAttribution.logind_read,
    AutopsyTaken: _FactAttribution.autopsied,
    ContainerExited: _FactAttribution.exited,
}

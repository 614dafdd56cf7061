"""One shutdown's record, prepared for another run under changes.

It is re-executed first: if this version decides otherwise, other settings prove nothing. Each recorded fact
gets its cause: an order, a container's stop, the release, or only time. In a new run an outcome follows its
order, and an exit its stop signal; only facts from outside keep their time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, cast

import msgspec
from msgspec.structs import replace

from ebbtide.actors.config_reconciler import NAME as CONFIG
from ebbtide.actors.config_reconciler import ConfigState
from ebbtide.actors.episode import NAME as EPISODE
from ebbtide.actors.episode import EpisodeState
from ebbtide.actors.policy.grace_periods import FLOOR_NS
from ebbtide.actors.system import System, as_checkpoint, restore
from ebbtide.events import decisions
from ebbtide.events.base import NS_PER_SECOND, Checkpoint, Event, Fact, Mark, Order, Record
from ebbtide.events.codec import RawRecord, decode_event, decode_record
from ebbtide.events.facts import (
    AutopsyTaken,
    ContainerExited,
    DaemonStarted,
    DropInsRead,
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


class Diverged(Exception):
    """This version decides otherwise than the record ('ebbtide replay verify')."""

    def __init__(self, divergence: Divergence) -> None:
        field = divergence.field
        super().__init__(f"record {divergence.seq}: {field}{'' if field in STATEMENTS else ' differs'}")
        self.divergence = divergence


class NoShutdownAtRecord(Exception):
    """Or the records before it are gone."""


class WrongChange(ValueError):
    """The record does not allow the change."""


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """None or empty: as recorded. Raises ValueError for a negative time.

    A pod with a recorded ``namespace/name`` replaces that pod and keeps its behaviour. Any other pod is
    added, with unknown behaviour.
    """

    settings: Settings | None = None
    pods: tuple[Pod, ...] = ()
    grant_ns: int | None = None

    def __post_init__(self) -> None:
        if self.grant_ns is not None and self.grant_ns < 0:
            raise ValueError(f"a grant of {span(self.grant_ns)} is negative")


# --- the record as it is


def own_events(events: Iterable[Record], first_seq: int) -> Iterator[Record]:
    """A fact that ends one shutdown and opens the next belongs to both."""
    return (each for each in events if not each.cause or each.episode in (0, first_seq))


def up_to_next(events: Iterable[Record], first_seq: int) -> Iterator[Record]:
    """Without the last step's decisions for the next shutdown."""
    return (each for each in events if not each.cause or each.episode <= first_seq)


class RecordedShutdown(NamedTuple):
    """Times are monotonic. ``events``: without marks; a fact has no cause.

    ``late``: by deadline, when its tick was admitted, and its place at that instant: 2 × the sequence number,
    or one more for "after that fact".
    """

    first_seq: int
    last_seq: int
    start: Checkpoint
    signal_ns: int
    last_ns: int
    wall_offset_ns: int
    events: tuple[Record, ...]
    late: dict[int, tuple[int, int]]

    @property
    def facts(self) -> Iterator[Record]:
        """Without ticks."""
        return (each for each in self.events if not each.cause and not isinstance(each.event, Tick))

    @property
    def own(self) -> Iterator[Record]:
        """Without the end of a shutdown that the first step ended."""
        return own_events(self.events, self.first_seq)

    @property
    def settings(self) -> Settings:
        """In force at the signal."""
        return config_of(self.system()).settings or Settings()

    @property
    def last_fact_seq(self) -> int:
        return next(each.seq for each in reversed(self.events) if not each.cause)

    @property
    def grant_ns(self) -> int:
        """At the signal."""
        began = (each.event for each in self.own if isinstance(each.event, decisions.ShutdownBegan))
        return next((event.grant_ns for event in began), 0)

    @property
    def is_cut(self) -> bool:
        """The record ends within the shutdown."""
        ends = (decisions.ReleaseLock, decisions.EpisodeClosed)
        return not any(isinstance(each.event, ends) for each in self.own)

    @property
    def is_moved(self) -> bool:
        """logind's delay was withdrawn, begun anew, or bypassed."""
        moves = (decisions.DeadlineMoved, decisions.ShutdownWithdrawn)
        bypassed = isinstance(self.events[0].event, StopRequested)
        return bypassed or any(isinstance(each.event, moves) for each in self.own)

    def system(self) -> System:
        """Before the first record."""
        return restore(self.start, self.first_seq)


def config_of(system: System) -> ConfigState:
    return cast(ConfigState, system.slots[(CONFIG, "")].state)


def read_recorded_shutdown(history: History, first_seq: int) -> RecordedShutdown:
    """Raises Diverged, NoShutdownAtRecord, WrongChange for an outage, UnknownType and BadPayload."""
    replayer = Replayer()

    def feed(raws: list[RawRecord]) -> None:
        divergence = replayer.feed(raws)
        if divergence is not None:
            raise Diverged(divergence)

    found = (step for _, step in whole_steps(history.batches()))
    before, first = _seek(found, first_seq)
    feed(before)
    start = as_checkpoint(replayer.system)
    if is_outage_logic(start.logic):
        raise WrongChange("this is an outage; what would have been can be asked of shutdowns only")
    state = cast(EpisodeState, replayer.system.slots[(EPISODE, "")].state)
    home = (state.boot_id, state.userspace_id)
    events: list[Record] = []
    late: dict[int, tuple[int, int]] = {}
    step: list[RawRecord] | None = first
    while step is not None and (step is first or not _is_after(step, first_seq, home)):
        fact, due_ns = step[0], replayer.system.next_deadline_ns()
        feed(step)
        mine = up_to_next(map(decode_record, step), first_seq)
        events += [each for each in mine if not isinstance(each.event, Mark)]
        if due_ns is not None and due_ns <= fact.mono_ns:
            late[due_ns] = (fact.mono_ns, 2 * fact.seq + (fact.tag != Tick.__name__))
        step = next(found, None) if fact.episode == first_seq else None
    return RecordedShutdown(
        first_seq=first_seq,
        last_seq=events[-1].seq,
        start=start,
        signal_ns=first[0].mono_ns,
        last_ns=events[-1].mono_ns,
        wall_offset_ns=first[0].wall_ns - first[0].mono_ns,
        events=tuple(events),
        late=late,
    )


def _seek(found: Iterator[list[RawRecord]], first_seq: int) -> tuple[list[RawRecord], list[RawRecord]]:
    """The records from the last checkpoint before the shutdown, and its first step."""
    before: list[RawRecord] = []
    for step in found:
        if step[0].seq == first_seq:
            return before, step
        if step[0].episode == first_seq:
            raise WrongChange("the begin of this shutdown is not on record: it cannot be decided again")
        if step[0].tag == Checkpoint.__name__:
            before = []
        before += step
    raise NoShutdownAtRecord(f"no shutdown begins at record {first_seq}")


def _is_after(step: list[RawRecord], first_seq: int, home: tuple[str, str]) -> bool:
    """It belongs only to another shutdown, or closes this one in another boot or userspace."""
    if all(each.episode != first_seq for each in step):
        return True
    start = decode_event(step[0].tag, step[0].payload) if step[0].tag == DaemonStarted.__name__ else None
    return isinstance(start, DaemonStarted) and (start.boot_id, start.userspace_id) != home


# --- what a new run needs of it


class RecordPoint(NamedTuple):
    seq: int
    mono_ns: int


class ChangedFact(NamedTuple):
    """Recorded at ``mono_ns``. ``at_ns``: its time in a new run that is the same so far."""

    seq: int
    mono_ns: int
    event: Fact
    at_ns: int


class Answer(NamedTuple):
    """A fact, and its delay after its order, or after the process start ``restart``."""

    delay_ns: int
    changed: ChangedFact
    restart: int = 0


class Downtime(NamedTuple):
    """Between two processes of one boot. ``seq``: the second start."""

    begin_ns: int
    end_ns: int
    seq: int


@dataclass
class RecordedHook:
    """``cut``: an order cancelled it."""

    began: RecordPoint
    key: str
    timeout_ns: int
    cut: RecordPoint | None = None
    cut_timed_out: bool = False
    ended: ChangedFact | None = None
    #: A restart lost its outcome: it ran at least until then.
    alive_ns: int | None = None

    @property
    def result(self) -> str:
        return self.ended.event.result if self.ended and isinstance(self.ended.event, OrderEnded) else ""

    @property
    def ran_out(self) -> bool:
        return self.cut is None and self.result in ("done", "failed")

    def at_least_ns(self, last_ns: int) -> int:
        """How long it ran."""
        cut_ns = self.cut.mono_ns if self.cut is not None else None
        ends = (self.alive_ns, cut_ns, self.ended.at_ns if self.ended is not None else None)
        return max(0, next((each for each in ends if each is not None), last_ns) - self.began.mono_ns)


#: by-itself: before any order for it; stays: the record does not show its end.
ContainerEnd = Literal["killed", "stopped", "in-hook", "by-itself", "stays"]


@dataclass
class RecordedContainer:
    spec: Container | None = None
    planned: RecordPoint | None = None
    hook: RecordedHook | None = None
    signalled: RecordPoint | None = None
    killed: RecordPoint | None = None
    #: Of its pod's delete. If ``by_kubelet``, ``signalled`` and ``killed`` are the kubelet's.
    grace_ns: int | None = None
    by_kubelet: bool = False
    #: SIGKILL was carried out before its end was known.
    met: bool = False
    exited: ChangedFact | None = None
    #: Reported again by a restarted daemon.
    exited_again: list[ChangedFact] = field(default_factory=list)
    #: The runtime refused its stop signal.
    refused: bool = False
    #: A restarted daemon found it gone: it still ran so long after its stop signal.
    gone_after_ns: int | None = None

    @property
    def how(self) -> ContainerEnd:
        if self.exited is None:
            return "stays"
        event, seq = self.exited.event, self.exited.seq
        assert isinstance(event, ContainerExited)
        killed = self.killed is not None and self.killed.seq < seq
        if killed and (self.met or not event.gone) and _is_sigkill(event):
            return "killed"
        # Compare times too: a kubelet's stop signal comes after the sleep.
        signalled = self.signalled
        if signalled is not None and signalled.seq < seq and signalled.mono_ns <= self.exited.mono_ns:
            return "stopped"
        return "in-hook" if self.hook is not None and self.hook.began.seq < seq else "by-itself"

    def had_ns(self, last_ns: int) -> int | None:
        """From its stop signal to SIGKILL, or to the record's end."""
        if self.signalled is None:
            return None
        end_ns = self.killed.mono_ns if self.killed is not None else last_ns
        return max(0, end_ns - self.signalled.mono_ns)


ContainerKey = tuple[str, str]

#: A report about logind belongs to one of these that is open.
LOGIND_ORDERS: tuple[type[Order], ...] = (decisions.Arm, decisions.WriteDropIn, decisions.RemoveDropIn)

#: A daemon may report so late what it found at its start.
FIRST_LOOK_NS = NS_PER_SECOND


class RecordedBehaviour:
    def __init__(self, shutdown: RecordedShutdown, changes: Changes, grant_ns: int | None) -> None:
        #: At their own time, in order.
        self.outside: list[ChangedFact] = []
        self.after_release: list[Answer] = []
        #: By order key; empty: an order without an outcome.
        self.answers: dict[str, list[Answer]] = {}
        self.orders: dict[str, tuple[RecordPoint, Order]] = {}
        self.containers: dict[ContainerKey, RecordedContainer] = {}
        self.downtimes: list[Downtime] = []
        #: The parts of the last inventory.
        self.listing: list[Answer] = []
        self.released: RecordPoint | None = None
        #: The slowest outcome by the order's type.
        self.slowest_ns: dict[str, int] = {}
        #: Orders without an outcome, in order, and each container's last autopsy.
        self._open: dict[str, Order] = {}
        self._autopsies: dict[ContainerKey, str] = {}
        self.hooks: dict[str, RecordedHook] = {}
        edit = fact_editor(shutdown, changes, grant_ns)
        last_ns = 0
        for played in shutdown.events:
            at = RecordPoint(played.seq, played.mono_ns)
            if played.cause:
                self._decided(played.event, at)
            elif not isinstance(played.event, Tick) and not self._attribute(changed := edit(played)):
                if self.released is not None:
                    # The release caused later facts.
                    self.after_release.append(Answer(changed.at_ns - self.released.mono_ns, changed))
                else:
                    if isinstance(changed.event, DaemonStarted):
                        self.downtimes.append(Downtime(last_ns, changed.at_ns, changed.seq))
                    self.outside.append(changed)
            last_ns = played.mono_ns

    def container(self, uid: str, name: str) -> RecordedContainer:
        return self.containers.setdefault((uid, name), RecordedContainer())

    def _decided(self, event: Event, at: RecordPoint) -> None:
        if isinstance(event, Order):
            self._open[event.key] = event
            self.orders[event.key] = (at, event)
            self.answers.setdefault(event.key, [])
        match event:
            case decisions.PodPlanned():
                # A restart may plan a pod again: the first plan counts.
                for each in event.pod.containers:
                    seen = self.container(event.pod.uid, each.name)
                    seen.spec, seen.planned = seen.spec or each, seen.planned or at
            case decisions.TakeAutopsy():
                self._autopsies[event.uid, event.container] = event.key
            case decisions.ReleaseLock():
                self.released = self.released or at
            case decisions.RunHook():
                container = self.container(event.uid, event.container)
                hook = self.hooks[event.key] = RecordedHook(at, event.key, event.timeout_ns)
                # After a restart the hook runs again: the first run counts.
                if container.exited is None:
                    container.hook = container.hook or hook
            case decisions.DeletePod():
                for (uid, _), down in self.containers.items():
                    if uid == event.uid and down.signalled is None and down.exited is None:
                        down.grace_ns, down.by_kubelet = event.grace_seconds * NS_PER_SECOND, True
                        slept_ns = kubelet_sleeps_ns(down.spec, down.grace_ns)
                        down.signalled = RecordPoint(at.seq, at.mono_ns + slept_ns)
            case decisions.SendSignal():
                container = self.container(event.uid, event.container)
                if container.signalled is None or container.by_kubelet:
                    # Ebbtide stops it, also after a failed kubelet.
                    container.signalled, container.by_kubelet = at, False
            case decisions.KillContainer():
                container = self.container(event.uid, event.container)
                container.killed = container.killed or at
            case decisions.CancelOrder() if (cut := self.hooks.get(event.target)) is not None:
                if cut.ended is None and cut.cut is None:
                    cut.cut, cut.cut_timed_out = at, event.timed_out

    def _attribute(self, changed: ChangedFact) -> bool:
        """False: the fact has no cause in this shutdown."""
        event = changed.event
        match event:
            case OrderEnded():
                self._open.pop(event.key, None)
                self._note_outcome(event, changed)
                return self._answer(event.key, changed)
            case InventoryTaken():
                if not self._answer(event.key, changed):
                    return False
                parts = [] if event.part == 1 else self.listing
                self.listing = [*parts, self.answers[event.key][-1]]
                return True
            case LogindRead() | DropInsRead():
                key = next((key for key, order in self._open.items() if isinstance(order, LOGIND_ORDERS)), "")
                return self._answer(key, changed)
            case AutopsyTaken():
                # Its order may have ended at the same instant.
                return self._answer(self._autopsies.get((event.uid, event.container), ""), changed)
            case ContainerExited():
                self._exited(self.container(event.uid, event.container), changed)
                return True
        return self._answer(getattr(event, "key", ""), changed)

    def _answer(self, key: str, changed: ChangedFact) -> bool:
        """False: its order is older than the shutdown."""
        if key not in self.orders:
            return False
        at, order = self.orders[key]
        lost = isinstance(changed.event, OrderEnded) and changed.event.result == "unknown"
        down = self.downtimes[-1] if lost and self.downtimes else None
        if down is not None and at.mono_ns <= down.begin_ns:
            self.answers[key].append(Answer(changed.at_ns - down.end_ns, changed, down.seq))
        else:
            delay_ns, name = changed.at_ns - at.mono_ns, type(order).__name__
            self.slowest_ns[name] = max(self.slowest_ns.get(name, 0), delay_ns)
            self.answers[key].append(Answer(delay_ns, changed))
        return True

    def _note_outcome(self, event: OrderEnded, changed: ChangedFact) -> None:
        _, order = self.orders.get(event.key, (None, None))
        if isinstance(order, decisions.SendSignal) and event.result == "failed":
            self.container(order.uid, order.container).refused = True
        if isinstance(order, decisions.KillContainer) and event.result == "done":
            killed = self.container(order.uid, order.container)
            killed.met = killed.met or killed.exited is None
        if isinstance(order, decisions.DeletePod) and event.result == "done":
            # The kubelet's grace begins when the API server takes the delete.
            at, _ = self.orders[event.key]
            for (uid, _), down in self.containers.items():
                if uid == order.uid and down.signalled and down.signalled.seq == at.seq and not down.exited:
                    taken_ns = down.signalled.mono_ns + changed.at_ns - at.mono_ns
                    down.signalled = RecordPoint(at.seq, taken_ns)
        hook = self.hooks.get(event.key)
        if hook is not None:
            hook.ended = changed
            down_ns = self.downtimes[-1].begin_ns if self.downtimes else 0
            if event.result == "unknown" and hook.began.mono_ns <= down_ns:
                hook.alive_ns = down_ns

    def _exited(self, seen: RecordedContainer, changed: ChangedFact) -> None:
        if seen.exited is not None:
            seen.exited_again.append(changed)
            return
        seen.exited = changed
        if seen.by_kubelet and seen.grace_ns is not None and seen.signalled and seen.killed is None:
            kill_ns = seen.signalled.mono_ns + kubelet_kills_ns(seen.spec, seen.grace_ns)
            if changed.mono_ns >= kill_ns and _is_sigkill(changed.event):
                seen.killed = RecordPoint(seen.signalled.seq, kill_ns)
        down = self.downtimes[-1] if self.downtimes else None
        if down is not None and changed.mono_ns - down.end_ns <= FIRST_LOOK_NS and seen.signalled is not None:
            gone_after_ns = down.begin_ns - seen.signalled.mono_ns
            seen.gone_after_ns = gone_after_ns if gone_after_ns >= 0 else None


def _is_sigkill(exited: Fact) -> bool:
    """As in `actors.hook`: a runtime may report SIGKILL as 137, or not at all."""
    assert isinstance(exited, ContainerExited)
    return exited.signal == "SIGKILL" or (not exited.signal and exited.exit_code in (None, 137))


def kubelet_sleeps_ns(spec: Container | None, grace_ns: int) -> int:
    """From a delete to the stop signal. The record shows only how long a ``sleep`` hook takes."""
    hook = spec.hook if spec is not None else None
    return min(hook.sleep_seconds * NS_PER_SECOND, grace_ns) if hook and hook.kind == "sleep" else 0


def kubelet_kills_ns(spec: Container | None, grace_ns: int) -> int:
    """From the stop signal to SIGKILL."""
    return max(grace_ns - kubelet_sleeps_ns(spec, grace_ns), FLOOR_NS)


def fact_editor(
    shutdown: RecordedShutdown, changes: Changes, grant_ns: int | None
) -> Callable[[Record], ChangedFact]:
    """New pods join the last part of each listing."""
    listings = (each.event for each in shutdown.facts if isinstance(each.event, InventoryTaken))
    recorded = {pod.label: pod for listing in listings for pod in listing.pods}
    given: dict[str, Pod] = {}
    for pod in changes.pods:
        given[pod.label] = replace(pod, deletion=None)
        then = recorded.get(pod.label)
        if then is not None:
            # A manifest does not say which containers had ended at the signal.
            running = {each.name: each.running for each in then.containers}
            containers = [replace(each, running=running.get(each.name, True)) for each in pod.containers]
            given[pod.label] = replace(
                pod, uid=then.uid, containers=tuple(containers), deletion=then.deletion
            )
    added = tuple(pod for label, pod in given.items() if label not in recorded)
    settings, granted_ns = shutdown.settings, shutdown.grant_ns

    def edit(played: Record) -> ChangedFact:
        event, moved_ns = cast(Fact, played.event), 0
        if isinstance(event, InventoryTaken) and given:
            pods = tuple(given.get(pod.label, pod) for pod in event.pods)
            event = replace(event, pods=pods + (added if event.part == event.parts else ()))
        elif (
            isinstance(event, SettingsLoaded) and changes.settings is not None and event.settings == settings
        ):
            event = replace(event, settings=changes.settings)
        elif grant_ns is not None:
            # Another value, read later, stays.
            if isinstance(event, PrepareForShutdown | LogindRead | DaemonStarted):
                event = replace(event, grant_ns=grant_ns) if event.grant_ns == granted_ns else event
            elif isinstance(event, StopRequested) and event.system_stopping:
                # logind's own timer ends the delay when the grant is over.
                by_timer = played.mono_ns - shutdown.signal_ns >= granted_ns
                moved_ns = grant_ns - granted_ns if by_timer else 0
        return ChangedFact(played.seq, played.mono_ns, event, played.mono_ns + moved_ns)

    return edit

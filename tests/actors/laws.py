"""The laws of a shutdown and of a Kubernetes node's, checked on each record outside the core."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ebbtide.actors.episode import TOO_LATE
from ebbtide.actors.policy.grace_periods import FLOOR_NS, deletable
from ebbtide.actors.policy.termination_mode import pods_come_back
from ebbtide.events import decisions as d
from ebbtide.events.base import NS_PER_SECOND, Event, Order, Record
from ebbtide.events.facts import ContainerExited, DaemonStarted, MountsRead, OrderEnded, PodJoined
from ebbtide.events.values import TerminationMode


@dataclass
class Stop:
    """One pod's stop, over all shutdowns of a boot."""

    begun_ns: int
    grace_ns: int
    kill_by_ns: int
    hurried_ns: int | None = None
    signalled: dict[str, int] = field(default_factory=dict)


@dataclass
class Laws:
    """``observe`` asserts each law."""

    seen: int = 0
    open_orders: dict[str, int] = field(default_factory=dict)
    keys: dict[tuple[int, str], int] = field(default_factory=dict)
    hooks: dict[tuple[str, str], int] = field(default_factory=dict)
    stops: dict[str, Stop] = field(default_factory=dict)
    planned: dict[str, int] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    #: Containers with a reported end since their pod's plan.
    exited: dict[tuple[str, str], int] = field(default_factory=dict)
    waves: list[d.WaveStarted] = field(default_factory=list)
    #: Still stopping after a cancelled shutdown; the next one adopts them, or they end before.
    carried: tuple[str, ...] = ()
    deadline_ns: int = 0
    release_by_ns: int = 0
    released: bool = False
    engaged: bool = False
    closed: bool = False
    #: Planned, and hurried before their wave.
    hurried_before: set[str] = field(default_factory=set)
    start_ns: int = 0

    # --- what the play does

    def started(self, now_ns: int) -> None:
        self.start_ns = now_ns

    def hurried(self, uid: str, now_ns: int) -> None:
        if uid not in self.stops:
            self.hurried_before |= {uid} & (self.planned.keys() - self.ended.keys())
        elif self.stops[uid].hurried_ns is None:
            self.stops[uid].hurried_ns = now_ns

    def started_again(self, uid: str, container: str) -> None:
        """A new container of that name: no hook and no stop yet."""
        self.hooks.pop((uid, container), None)
        if uid in self.stops:
            self.stops[uid].signalled.pop(container, None)

    def _exited(self, event: ContainerExited, record: Record) -> None:
        self.exited[(event.uid, event.container)] = record.seq

    def _joined(self, event: PodJoined, record: Record) -> None:
        for each in event.pod.containers:
            if each.running and self.exited.pop((event.pod.uid, each.name), None) is not None:
                self.started_again(event.pod.uid, each.name)

    def rebooted(self) -> None:
        """No process of the last boot runs; its pods may start anew."""
        self.hooks.clear()
        self.stops.clear()

    # --- record by record

    def observe(self, record: Record) -> None:
        self.seen += 1
        if isinstance(record.event, Order):
            self._ordered(record)
        check = CHECKS.get(type(record.event))
        if check is not None:  # by its name: a law may be another one elsewhere
            getattr(self, check.__name__)(record.event, record)

    def _ordered(self, record: Record) -> None:
        """An order's key is unique in an episode (rule 4)."""
        key = record.event.key  # type: ignore[attr-defined]  # an order
        assert key not in self.open_orders, f"{key} is ordered again while it is open"
        if record.episode:
            assert (record.episode, key) not in self.keys, f"{key} is ordered twice"
            self.keys[(record.episode, key)] = record.seq
        self.open_orders[key] = record.seq

    def _order_ended(self, event: OrderEnded, record: Record) -> None:
        """Exactly one outcome (rule 4)."""
        assert event.key in self.open_orders, f"{event.key} ended twice"
        del self.open_orders[event.key]

    def _began(self, event: d.ShutdownBegan, record: Record) -> None:
        left = [uid for uid in self.planned if uid not in self.ended]
        self.carried = tuple(dict.fromkeys((*self.carried, *left)))
        self.planned, self.ended, self.waves = {}, {}, []
        self.released = self.engaged = self.closed = False
        self.deadline_ns, self.release_by_ns = event.deadline_ns, event.release_by_ns

    def _engaged(self, event: d.FallbackEngaged, record: Record) -> None:
        self.engaged = True

    def _moved(self, event: d.DeadlineMoved, record: Record) -> None:
        self.deadline_ns, self.release_by_ns = event.deadline_ns, event.release_by_ns
        for stop in self.stops.values():
            stop.kill_by_ns = min(stop.kill_by_ns, event.kill_by_ns)

    def _planned(self, event: d.PodPlanned, record: Record) -> None:
        """A pod has one place in a shutdown, unless it restarted after its end."""
        if event.again:
            assert event.pod.uid in self.ended, f"{event.pod.uid} is started again without an end"
            del self.ended[event.pod.uid], self.planned[event.pod.uid]
        assert event.pod.uid not in self.planned, f"{event.pod.uid} is planned twice"
        self.planned[event.pod.uid] = event.wave
        if event.pod.uid not in self.stops:
            for each in event.pod.containers:
                self.exited.pop((event.pod.uid, each.name), None)

    def _wave_started(self, event: d.WaveStarted, record: Record) -> None:
        """Waves run in ascending order, none twice (KEP-2712)."""
        if self.waves:
            assert event.wave > self.waves[-1].wave
            assert event.priority >= self.waves[-1].priority
        assert event.pods, "an empty wave costs nothing, not even a record"
        assert event.deadline_ns >= record.mono_ns
        self.waves.append(event)

    def _stop_began(self, event: d.PodStopBegan, record: Record) -> None:
        """No pod stops before its wave, unless the fallback leads."""
        uid = event.uid
        assert uid not in self.ended, f"{uid} begins after its end"
        if not self.engaged:
            assert self.planned[uid] == event.wave == self.waves[-1].wave
        stop = self.stops.get(uid)
        if stop is None:
            grace_ns = 0 if uid in self.hurried_before else event.grace_ns
            self.stops[uid] = Stop(record.mono_ns, grace_ns, event.kill_by_ns)
        else:
            stop.kill_by_ns = min(stop.kill_by_ns, event.kill_by_ns)

    def _hook(self, event: d.RunHook, record: Record) -> None:
        """At most once (rule 4), and within the grace."""
        place = (event.uid, event.container)
        assert place not in self.hooks, f"the hook of {place} is run twice"
        self.hooks[place] = record.seq
        stop = self.stops[event.uid]
        assert record.mono_ns + event.timeout_ns <= stop.begun_ns + stop.grace_ns

    def _signal(self, event: d.SendSignal, record: Record) -> None:
        self.stops[event.uid].signalled.setdefault(event.container, record.mono_ns)

    def _kill(self, event: d.KillContainer, record: Record) -> None:
        """Not before grace and floor, except the last possible SIGKILL, or a hurry."""
        stop, now = self.stops[event.uid], record.mono_ns
        signalled_ns = stop.signalled[event.container]
        grace_ns = stop.begun_ns + stop.grace_ns
        if stop.hurried_ns is not None:
            grace_ns = min(grace_ns, stop.hurried_ns)
        assert now >= min(max(grace_ns, signalled_ns + FLOOR_NS), stop.kill_by_ns)

    def _pod_ended(self, event: d.PodEnded, record: Record) -> None:
        """One outcome per pod; only a stopped pod ends gracefully, by SIGKILL, or not at all."""
        carried = event.uid in self.carried
        self.carried = tuple(uid for uid in self.carried if uid != event.uid)
        if carried and event.uid not in self.planned:
            self._forget(event.uid)
            return
        too_late = event.outcome == "unknown" and (event.reason == TOO_LATE or event.again)
        if event.again:
            assert self.ended.pop(event.uid, ""), f"{event.uid} is started again without an end"
        assert event.uid in self.planned or too_late, f"{event.uid} ended without a place in this shutdown"
        assert event.uid not in self.ended, (
            f"{event.uid} has two fates: {self.ended[event.uid]}, {event.outcome}"
        )
        if event.outcome in ("killed", "failed"):
            assert event.uid in self.stops, f"{event.uid} {event.outcome} without a stop"
        # All containers are gone with an unknown exit code: it has ended.
        self.ended[event.uid] = "gone" if event.gone else event.outcome
        self._forget(event.uid)

    def _forget(self, uid: str) -> None:
        """A later shutdown starts anew with a finished pod."""
        self.stops.pop(uid, None)
        self.hurried_before.discard(uid)
        for place in [place for place in self.hooks if place[0] == uid]:
            del self.hooks[place]

    def _pods_ended(self, event: d.PodsEnded, record: Record) -> None:
        for uid in event.unfinished:
            assert uid in self.planned or uid in self.carried
            assert uid not in self.ended

    def _released(self, event: d.ReleaseLock, record: Record) -> None:
        """Before logind's timer, unless no daemon ran then."""
        assert record.mono_ns <= max(self.release_by_ns, self.start_ns)
        self.released = True

    def _closed(self, event: d.EpisodeClosed, record: Record) -> None:
        assert not self.closed, "two last words on one shutdown"
        self.closed = True

    # --- at the end

    def settled(self, episode: int) -> None:
        """Finally the outcomes match the inventory, and the lock is released."""
        assert self.released or self.closed or not episode, "nobody released the lock"
        if self.released or self.closed:
            missing = [uid for uid in self.planned if uid not in self.ended]
            assert not missing, f"no fate is on record for {missing}"


CHECKS: dict[type[Event], Callable[[Laws, Any, Record], None]] = {
    OrderEnded: Laws._order_ended,
    ContainerExited: Laws._exited,
    PodJoined: Laws._joined,
    d.ShutdownBegan: Laws._began,
    d.FallbackEngaged: Laws._engaged,
    d.DeadlineMoved: Laws._moved,
    d.PodPlanned: Laws._planned,
    d.WaveStarted: Laws._wave_started,
    d.PodStopBegan: Laws._stop_began,
    d.RunHook: Laws._hook,
    d.SendSignal: Laws._signal,
    d.KillContainer: Laws._kill,
    d.PodEnded: Laws._pod_ended,
    d.PodsEnded: Laws._pods_ended,
    d.ReleaseLock: Laws._released,
    d.EpisodeClosed: Laws._closed,
}


# --- a Kubernetes node

TOUCHES = (d.SendSignal, d.KillContainer, d.RunHook, d.DeletePod, d.StopKubelet, d.AnnounceNode)


@dataclass
class NodeLaws(Laws):
    """``means`` of the open shutdown; ``deleted``: the end of a deleted pod's grace."""

    means: TerminationMode = ""
    kind: str = ""
    handed_over: bool = False
    taints: bool = True
    kubelet_stopped: bool = False
    deleted: dict[str, int] = field(default_factory=dict)
    accepted: dict[str, int] = field(default_factory=dict)
    #: Deleted, perhaps by an earlier cancelled shutdown.
    going: dict[str, int] = field(default_factory=dict)
    undeletable: set[str] = field(default_factory=set)
    stop_due: bool = False
    mounted: bool = True
    listed: bool = False
    home: str = ""
    cancelled: bool = False
    #: The open order that stops the kubelet.
    stopping: str = ""

    def observe(self, record: Record) -> None:
        if self.means == "observe" and isinstance(record.event, TOUCHES) and record.episode:
            # Stops of an earlier shutdown finish.
            uid = getattr(record.event, "uid", "")
            earlier = uid in self.carried or (isinstance(record.event, d.AnnounceNode) and record.event.ready)
            assert earlier, f"{record.event} while the kubelet ends its pods by itself"
        check = NODE_CHECKS.get(type(record.event))
        if check is not None:
            check(self, record.event, record)
        super().observe(record)

    def started_again(self, uid: str, container: str) -> None:
        """No kubelet order ended it."""
        super().started_again(uid, container)
        self.accepted.pop(uid, None)
        self.deleted.pop(uid, None)

    def _home(self, event: DaemonStarted, record: Record) -> None:
        """In another boot the kubelet runs again."""
        home = f"{event.boot_id}/{event.userspace_id}"
        self.kubelet_stopped &= home == self.home
        self.home = home

    def _node_began(self, event: d.ShutdownBegan, record: Record) -> None:
        self.means, self.kind, self.handed_over, self.mounted = "", event.kind, False, True
        self.cancelled = self.listed = False
        self.deleted, self.accepted, self.undeletable = {}, {}, set()

    def _means(self, event: d.MeansChosen, record: Record) -> None:
        self.means, self.taints = event.means, event.taints

    def _over(self, event: d.HandedOver, record: Record) -> None:
        """One hand-over, once; other observers repeat the failure at most after it."""
        assert not self.handed_over or record.actor == "FallbackActor"
        self.handed_over = True

    def _stopped(self, event: d.StopKubelet, record: Record) -> None:
        self.kubelet_stopped, self.stopping = True, event.key

    def _kubelet_starts(self, event: d.StartKubelet, record: Record) -> None:
        """Never mid-shutdown, and only after our stop."""
        assert self.kubelet_stopped, "the kubelet is started that nobody has stopped"
        assert not record.episode or self.closed or self.cancelled, "the kubelet is started in mid-shutdown"
        assert not self.stopping, "the kubelet is started while it is being stopped"

    def _pod_planned(self, event: d.PodPlanned, record: Record) -> None:
        if not deletable(event.pod, taints=self.taints):
            self.undeletable.add(event.pod.uid)

    def _delete(self, event: d.DeletePod, record: Record) -> None:
        """Only for deletable pods, at least a second, and decreasing."""
        assert event.uid not in self.undeletable
        assert event.grace_seconds >= 1
        until_ns = record.mono_ns + event.grace_seconds * NS_PER_SECOND
        # A whole second is the minimum, and the pod keeps a begun second.
        before_ns = self.deleted.get(event.uid, until_ns) + NS_PER_SECOND - 1
        assert until_ns <= max(before_ns, record.mono_ns + NS_PER_SECOND)
        self.deleted[event.uid] = until_ns
        self.stops[event.uid].signalled.setdefault("", record.mono_ns)

    def _delete_ended(self, event: OrderEnded, record: Record) -> None:
        _, what, uid, _ = event.key.split("/")
        if event.key == self.stopping:
            self.stopping = ""
        if what == "delete" and event.result in ("done", "unknown", "timed-out"):
            self.accepted[uid] = self.going[uid] = record.seq

    def _no_hook_twice(self, event: d.RunHook, record: Record) -> None:
        """The kubelet may have run it already."""
        assert event.uid not in self.accepted, f"the hook of {event.uid} may have run"

    def _delivered(self, event: d.DeliverStatuses, record: Record) -> None:
        """No terminal phase for a returning pod."""
        if record.episode and self.means == "cri" and record.cause and not event.unchanged_only:
            uids = [uid for uid, *_ in event.statuses if uid in self.planned and uid not in self.going]
            assert not (uids and pods_come_back(self.kind)), f"{uids} come back"  # type: ignore[arg-type]

        if record.episode and not event.unchanged_only:
            assert not self.cancelled, "a status of a pod that comes back"
        if event.remove and record.episode:
            still = [uid for uid, *_ in event.statuses if self.ended.get(uid) in ("failed", "unknown")]
            assert not still, f"{still} may still run"

    def _read(self, event: MountsRead, record: Record) -> None:
        self.mounted = bool(event.mounted)

    def _certified(self, event: d.DetachCertified, record: Record) -> None:
        """Only volumes and pods that were read and ended are certified safe."""
        assert not self.cancelled, "certified on a machine that stays up"
        if event.safe:
            assert self.listed, "certified without knowing the pods"
            assert not self.mounted
            unseen = [uid for uid in self.planned if self.ended.get(uid, "") in ("", "failed", "unknown")]
            assert not unseen, f"certified while {unseen} may run"

    def _kill(self, event: d.KillContainer, record: Record) -> None:
        """The kubelet has signalled a deleted pod."""
        stop = self.stops[event.uid]
        if "" in stop.signalled:
            stop.signalled.setdefault(event.container, stop.signalled[""])
        if event.uid in self.deleted and stop.hurried_ns is not None:
            return
        super()._kill(event, record)

    def _wave_started(self, event: d.WaveStarted, record: Record) -> None:
        """The hand-over's waves start again with the lowest priority."""
        if self.waves and event.handover and not self.waves[-1].handover:
            self.waves.clear()
        super()._wave_started(event, record)

    def _stays_up(self, event: d.ShutdownCancelled, record: Record) -> None:
        self.cancelled = True

    def _listed(self, event: d.PlanMade, record: Record) -> None:
        self.listed = event.listed

    def _announced(self, event: d.AnnounceNode, record: Record) -> None:
        """Drained requires a complete inventory whose pods have all ended."""
        if "Drained" in event.conditions:
            assert self.listed
            assert all(self.ended.get(uid, "") not in ("", "failed", "unknown") for uid in self.planned)

    def _node_closed(self, event: d.EpisodeClosed, record: Record) -> None:
        self.means = ""


NODE_CHECKS: dict[type[Event], Callable[[NodeLaws, Any, Record], None]] = {
    DaemonStarted: NodeLaws._home,
    d.ShutdownBegan: NodeLaws._node_began,
    d.MeansChosen: NodeLaws._means,
    d.HandedOver: NodeLaws._over,
    d.StopKubelet: NodeLaws._stopped,
    d.StartKubelet: NodeLaws._kubelet_starts,
    d.PodPlanned: NodeLaws._pod_planned,
    d.DeletePod: NodeLaws._delete,
    OrderEnded: NodeLaws._delete_ended,
    d.RunHook: NodeLaws._no_hook_twice,
    d.DeliverStatuses: NodeLaws._delivered,
    d.AnnounceNode: NodeLaws._announced,
    d.ShutdownCancelled: NodeLaws._stays_up,
    d.PlanMade: NodeLaws._listed,
    MountsRead: NodeLaws._read,
    d.DetachCertified: NodeLaws._certified,
    d.EpisodeClosed: NodeLaws._node_closed,
}

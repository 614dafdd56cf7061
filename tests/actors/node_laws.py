"""The laws of a shutdown of a Kubernetes node, beside those of every shutdown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ebbtide.actors.policy.termination_mode import deletable, pods_come_back
from ebbtide.events.base import NS_PER_SECOND, Event, Record
from ebbtide.events.decisions import (
    AnnounceNode,
    DeletePod,
    DeliverStatuses,
    DetachCertified,
    EpisodeClosed,
    HandedOver,
    KillContainer,
    MeansChosen,
    PlanMade,
    PodPlanned,
    RunHook,
    SendSignal,
    ShutdownBegan,
    ShutdownCancelled,
    StartKubelet,
    StopKubelet,
    WaveStarted,
)
from ebbtide.events.facts import DaemonStarted, MountsRead, OrderEnded
from ebbtide.events.model import TerminationMode
from tests.actors.laws import Laws

TOUCHES = (SendSignal, KillContainer, RunHook, DeletePod, StopKubelet, AnnounceNode)


@dataclass
class NodeLaws(Laws):
    """``means`` of the open shutdown; ``deleted`` maps a pod to the end of the grace that its delete gave."""

    means: TerminationMode = ""
    kind: str = ""
    handed_over: bool = False
    taints: bool = True
    kubelet_stopped: bool = False
    deleted: dict[str, int] = field(default_factory=dict)
    accepted: dict[str, int] = field(default_factory=dict)
    #: Deleted, perhaps by an earlier shutdown that was cancelled.
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
            # What an earlier shutdown has begun is finished.
            uid = getattr(record.event, "uid", "")
            earlier = uid in self.carried or (isinstance(record.event, AnnounceNode) and record.event.ready)
            assert earlier, f"{record.event} while the kubelet ends its pods by itself"
        check = NODE_CHECKS.get(type(record.event))
        if check is not None:
            check(self, record.event, record)
        super().observe(record)

    def _home(self, event: DaemonStarted, record: Record) -> None:
        """In another boot the kubelet runs again."""
        home = f"{event.boot_id}/{event.userspace_id}"
        self.kubelet_stopped &= home == self.home
        self.home = home

    def _node_began(self, event: ShutdownBegan, record: Record) -> None:
        self.means, self.kind, self.handed_over, self.mounted = "", event.kind, False, True
        self.cancelled = self.listed = False
        self.deleted, self.accepted, self.undeletable = {}, {}, set()

    def _means(self, event: MeansChosen, record: Record) -> None:
        self.means, self.taints = event.means, event.taints

    def _over(self, event: HandedOver, record: Record) -> None:
        """One way, once; whoever else might see a failure says it again at most after that."""
        assert not self.handed_over or record.actor == "FallbackActor"
        self.handed_over = True

    def _stopped(self, event: StopKubelet, record: Record) -> None:
        self.kubelet_stopped, self.stopping = True, event.key

    def _kubelet_starts(self, event: StartKubelet, record: Record) -> None:
        """Never in mid-shutdown, and only one that we have stopped."""
        assert self.kubelet_stopped, "the kubelet is started that nobody has stopped"
        assert not record.episode or self.closed or self.cancelled, "the kubelet is started in mid-shutdown"
        assert not self.stopping, "the kubelet is started while it is being stopped"

    def _pod_planned(self, event: PodPlanned, record: Record) -> None:
        if not deletable(event.pod, taints=self.taints):
            self.undeletable.add(event.pod.uid)

    def _delete(self, event: DeletePod, record: Record) -> None:
        """Only of what a delete ends, at least a second, and ever less."""
        assert event.uid not in self.undeletable
        assert event.grace_seconds >= 1
        until_ns = record.mono_ns + event.grace_seconds * NS_PER_SECOND
        # A whole second is the least that can be asked for.
        assert until_ns <= max(self.deleted.get(event.uid, until_ns), record.mono_ns + NS_PER_SECOND)
        self.deleted[event.uid] = until_ns
        self.stops[event.uid].signalled.setdefault("", record.mono_ns)

    def _delete_ended(self, event: OrderEnded, record: Record) -> None:
        _, what, uid, _ = event.key.split("/")
        if event.key == self.stopping:
            self.stopping = ""
        if what == "delete" and event.result in ("done", "unknown", "timed-out"):
            self.accepted[uid] = self.going[uid] = record.seq

    def _no_hook_twice(self, event: RunHook, record: Record) -> None:
        """The kubelet may have run it already."""
        assert event.uid not in self.accepted, f"the hook of {event.uid} may have run"

    def _delivered(self, event: DeliverStatuses, record: Record) -> None:
        """Never a terminal phase for a pod that comes back (design, rule 11)."""
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

    def _certified(self, event: DetachCertified, record: Record) -> None:
        """Safe is said only of what was read and ended."""
        assert not self.cancelled, "certified on a machine that stays up"
        if event.safe:
            assert self.listed, "certified without knowing the pods"
            assert not self.mounted
            unseen = [uid for uid in self.planned if self.ended.get(uid, "") in ("", "failed", "unknown")]
            assert not unseen, f"certified while {unseen} may run"

    def _kill(self, event: KillContainer, record: Record) -> None:
        """A deleted pod was told by the kubelet."""
        stop = self.stops[event.uid]
        if "" in stop.signalled:
            stop.signalled.setdefault(event.container, stop.signalled[""])
        if event.uid in self.deleted and stop.hurried_ns is not None:
            return
        super()._kill(event, record)

    def _wave_started(self, event: WaveStarted, record: Record) -> None:
        """Those of the hand-over begin again with the lowest priority."""
        if self.waves and event.handover and not self.waves[-1].handover:
            self.waves.clear()
        super()._wave_started(event, record)

    def _stays_up(self, event: ShutdownCancelled, record: Record) -> None:
        self.cancelled = True

    def _listed(self, event: PlanMade, record: Record) -> None:
        self.listed = event.listed

    def _announced(self, event: AnnounceNode, record: Record) -> None:
        """Drained is said only of a node whose pods are known, and have ended."""
        if "Drained" in event.conditions:
            assert self.listed
            assert all(self.ended.get(uid, "") not in ("", "failed", "unknown") for uid in self.planned)

    def _node_closed(self, event: EpisodeClosed, record: Record) -> None:
        self.means = ""


NODE_CHECKS: dict[type[Event], Callable[[NodeLaws, Any, Record], None]] = {
    DaemonStarted: NodeLaws._home,
    ShutdownBegan: NodeLaws._node_began,
    MeansChosen: NodeLaws._means,
    HandedOver: NodeLaws._over,
    StopKubelet: NodeLaws._stopped,
    StartKubelet: NodeLaws._kubelet_starts,
    PodPlanned: NodeLaws._pod_planned,
    DeletePod: NodeLaws._delete,
    OrderEnded: NodeLaws._delete_ended,
    RunHook: NodeLaws._no_hook_twice,
    DeliverStatuses: NodeLaws._delivered,
    AnnounceNode: NodeLaws._announced,
    ShutdownCancelled: NodeLaws._stays_up,
    PlanMade: NodeLaws._listed,
    MountsRead: NodeLaws._read,
    DetachCertified: NodeLaws._certified,
    EpisodeClosed: NodeLaws._node_closed,
}

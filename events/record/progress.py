"""How far a shutdown is: its waves, its pods and their containers, its deadline, and a node's part in it.

`ProgressBuilder` can be fed with a journal's records or with the events of a shutdown that goes on: the
record's builder, the daemon's status and what-if's runs are made from it, so that all of them say the same.
Why something happened, what hooks did and what an operator should know of is `events.record.fold`'s.

What a record says of a pod or a wave that nobody introduced makes one: what is said of a journal whose begin
is lost is short, and never a traceback.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from ebbtide.events.base import NS_PER_SECOND, Event, Stamp, parse_order_key
from ebbtide.events.decisions import (
    DeadlineMoved,
    DeletePod,
    DetachCertified,
    HandedOver,
    KillContainer,
    LeftUndone,
    MeansChosen,
    PlanMade,
    PodEnded,
    PodPlanned,
    PodRejected,
    PodsEnded,
    PodStopBegan,
    SendSignal,
    ShutdownBegan,
    ShutdownCancelled,
    WaveEnded,
    WaveStarted,
)
from ebbtide.events.facts import InventoryTaken, OrderEnded, PodJoined
from ebbtide.events.model import Pod
from ebbtide.events.record.causes import reason_text
from ebbtide.events.record.episodes import EPISODE_HANDLERS, EpisodeBuilder
from ebbtide.events.record.model import CertificateRecord, ContainerRecord, NodeRecord, PodRecord, WaveRecord

#: Fates of pods whose end was seen.
SEEN_OUTCOMES = ("graceful", "killed")


class ProgressBuilder(EpisodeBuilder):
    """``fields`` are those of a `ShutdownRecord` that are set by a single event."""

    def __init__(self, number: int, started: Stamp, boot_id: str = "", first_hash: bytes = b"") -> None:
        super().__init__(number, started, boot_id, first_hash)
        self.fields: dict[str, Any] = {}
        self.pods: dict[str, PodRecord] = {}
        self.specs: dict[str, Pod] = {}
        self.waves: list[WaveRecord] = []
        #: When each pod's fate was decided, also where nobody saw an end.
        self.decided_ns: dict[str, int] = {}
        #: Pods that have no part in the plan: left on their way down by an earlier shutdown, or listed late.
        self.listed: dict[str, Pod] = {}

    def since(self, mono_ns: int) -> int:
        """A moment of this boot, as time since the signal."""
        return mono_ns - self.started.mono_ns

    def introductions(self) -> dict[str, Pod]:
        """What is known of its pods that have not ended."""
        return {uid: spec for uid, spec in self.specs.items() if self.outcomes[uid] is None}

    def introduce(self, spec: Pod) -> PodRecord:
        """A pod by what its manifest says; what is known of its way down stays."""
        self.specs[spec.uid] = spec
        self.outcomes.setdefault(spec.uid, None)
        pod = self.pods.get(spec.uid)
        if pod is None:
            pod = self.pods[spec.uid] = PodRecord(
                uid=spec.uid,
                namespace=spec.namespace,
                name=spec.name,
                priority=spec.priority,
                wanted_grace_seconds=spec.grace_seconds,
                owner=spec.owner,
                volumes=spec.volumes,
                containers=tuple(
                    ContainerRecord(
                        name=each.name,
                        sidecar=each.sidecar,
                        stop_signal=each.stop_signal,
                        running=each.running,
                    )
                    for each in spec.containers
                ),
            )
        return pod

    def pod(self, uid: str) -> PodRecord:
        """Also one that nobody introduced: then only its UID is known."""
        pod = self.pods.get(uid)
        if pod is not None:
            return pod
        return self.introduce(self.listed.get(uid) or Pod(uid=uid, namespace="", name=uid))

    def change_pod(self, uid: str, **changes: Any) -> None:
        self.pods[uid] = replace(self.pod(uid), **changes)

    def change_container(self, uid: str, name: str, **changes: Any) -> None:
        containers = self.pod(uid).containers
        if all(each.name != name for each in containers):
            containers = (*containers, ContainerRecord(name=name))
        changed = tuple(replace(each, **changes) if each.name == name else each for each in containers)
        self.change_pod(uid, containers=changed)

    def container(self, uid: str, name: str) -> ContainerRecord:
        found = (each for each in self.pod(uid).containers if each.name == name)
        return next(found, ContainerRecord(name=name))

    def change_node(self, **changes: Any) -> None:
        self.fields["by"] = replace(self.fields.get("by", NodeRecord()), **changes)

    def has_begun(self, wave: int) -> bool:
        """The end of a wave that has not begun here is an earlier shutdown's."""
        return wave < len(self.waves) and self.waves[wave].began_ns is not None

    def change_wave(self, index: int, **changes: Any) -> WaveRecord:
        """Waves that no plan has named (the fallback makes none) come into being here."""
        while len(self.waves) <= max(index, 0):
            self.waves.append(WaveRecord(index=len(self.waves), priority=0, planned_ns=0))
        self.waves[index] = replace(self.waves[index], **changes)
        return self.waves[index]


def advance(shutdown: ProgressBuilder, event: Event) -> None:
    """One event, decoded, at the point to which the builder was turned."""
    for handle in PROGRESS_HANDLERS.get(type(event).__name__, ()):
        handle(shutdown, event)


# --- the shutdown and its waves ----------------------------------------------------------------


def _shutdown_began(shutdown: ProgressBuilder, event: ShutdownBegan) -> None:
    shutdown.fields |= {
        "grant_ns": event.grant_ns,
        "budget_ns": event.budget_ns,
        "deadline_ns": shutdown.since(event.deadline_ns),
        "release_by_ns": shutdown.since(event.release_by_ns),
        "lock_held": event.lock_held,
    }


def _deadline_moved(shutdown: ProgressBuilder, event: DeadlineMoved) -> None:
    deadline_ns, kill_by_ns = shutdown.since(event.deadline_ns), shutdown.since(event.kill_by_ns)
    shutdown.fields |= {"deadline_ns": deadline_ns, "release_by_ns": shutdown.since(event.release_by_ns)}
    for pod in list(shutdown.pods.values()):
        if pod.began_ns is not None and shutdown.outcomes[pod.uid] is None:
            shutdown.change_pod(pod.uid, kill_by_ns=kill_by_ns)
    for wave in list(shutdown.waves):
        if wave.outcome == "open" and wave.deadline_ns is not None:
            shutdown.change_wave(wave.index, deadline_ns=min(wave.deadline_ns, deadline_ns))


def _plan_made(shutdown: ProgressBuilder, event: PlanMade) -> None:
    shutdown.waves = [
        WaveRecord(
            index=index,
            priority=wave.priority,
            planned_ns=wave.period_seconds * NS_PER_SECOND,
            pods=tuple(pod.uid for pod in wave.pods),
            handover=wave.handover,
        )
        for index, wave in enumerate(event.waves)
    ]


def _wave_began(shutdown: ProgressBuilder, event: WaveStarted) -> None:
    shutdown.change_wave(
        event.wave,
        priority=event.priority,
        period_ns=event.period_ns,
        began_ns=shutdown.point.at_ns,
        deadline_ns=shutdown.since(event.deadline_ns),
        outcome="open",
    )
    shutdown.fields["last_wave"] = event.wave


def _wave_ended(shutdown: ProgressBuilder, event: WaveEnded) -> None:
    if shutdown.has_begun(event.wave):
        shutdown.change_wave(
            event.wave,
            ended_ns=shutdown.point.at_ns,
            outcome=event.outcome,
            unused_ns=event.unused_ns,
            stragglers=event.stragglers,
            mounted=event.mounted,
        )


def _pods_ended(shutdown: ProgressBuilder, event: PodsEnded) -> None:
    shutdown.fields.setdefault("pods_ended_ns", shutdown.point.at_ns)


def _shutdown_cancelled(shutdown: ProgressBuilder, event: ShutdownCancelled) -> None:
    shutdown.fields.setdefault("cancelled_ns", shutdown.point.at_ns)
    shutdown.fields["cancel_reason"] = event.reason


# --- pods and containers -----------------------------------------------------------------------
#
# A pod that the kubelet ends has no signal of ours: its stop begins with its delete, or, where we only look
# on, with its wave. So its containers have a time at which they were asked to end, and the rest is as
# everywhere.


def _inventory_taken(shutdown: ProgressBuilder, event: InventoryTaken) -> None:
    """Counts until the plan is made; later differences come as late pods, or too late."""
    if shutdown.planned:
        shutdown.listed |= {spec.uid: spec for spec in event.pods}
        return
    for spec in event.pods:
        shutdown.introduce(spec)


def _pod_joined(shutdown: ProgressBuilder, event: PodJoined) -> None:
    """It has a part in the plan only where it is planned. What has ended of one that is known, and runs
    again, is another container.
    """
    uid = event.pod.uid
    shutdown.listed |= {uid: event.pod}
    for each in event.pod.containers if uid in shutdown.pods else ():
        if each.running and shutdown.container(uid, each.name).exited_ns is not None:
            anew = ContainerRecord(name=each.name, sidecar=each.sidecar, stop_signal=each.stop_signal)
            fields = {
                name: getattr(anew, name) for name in ContainerRecord.__struct_fields__ if name != "name"
            }
            shutdown.change_container(uid, each.name, **fields)


def _pod_planned(shutdown: ProgressBuilder, event: PodPlanned) -> None:
    uid = event.pod.uid
    if event.again:  # what the record has of its first way down is over
        shutdown.pods.pop(uid, None)
    shutdown.introduce(event.pod)
    given = event.grace_seconds
    shutdown.change_pod(uid, wave=event.wave, grace_seconds=given, late=event.late, means=event.means)
    wave = shutdown.change_wave(event.wave)
    if uid not in wave.pods:
        shutdown.change_wave(event.wave, pods=(*wave.pods, uid))


def _pod_rejected(shutdown: ProgressBuilder, event: PodRejected) -> None:
    if event.uid in shutdown.pods:
        return
    namespace, _, name = event.label.rpartition("/")
    shutdown.introduce(Pod(uid=event.uid, namespace=namespace, name=name))
    shutdown.change_pod(event.uid, reason=event.message or event.reason)


def _pod_stop_began(shutdown: ProgressBuilder, event: PodStopBegan) -> None:
    """Said again by the fallback, it changes nothing: the grace runs since the first time."""
    if shutdown.pod(event.uid).began_ns is None:
        at_ns = shutdown.point.at_ns
        kill_by_ns = shutdown.since(event.kill_by_ns)
        shutdown.change_pod(event.uid, began_ns=at_ns, grace_ns=event.grace_ns, kill_by_ns=kill_by_ns)
        if shutdown.pod(event.uid).means == "observe":
            _asked_to_end(shutdown, event.uid)


def _pod_deleted(shutdown: ProgressBuilder, event: DeletePod) -> None:
    """The first one: given again it only shortens the grace."""
    _asked_to_end(shutdown, event.uid)


def _asked_to_end(shutdown: ProgressBuilder, uid: str) -> None:
    """The kubelet was asked to, or begins by itself: whatever runs of the pod is on its way from now on."""
    for each in shutdown.pod(uid).containers:
        if each.running and each.asked_ns is None and each.exited_ns is None:
            shutdown.change_container(uid, each.name, asked_ns=shutdown.point.at_ns)


def _signal_sent(shutdown: ProgressBuilder, event: SendSignal) -> None:
    """The first one: it is repeated only where nobody knows whether it was sent."""
    if shutdown.container(event.uid, event.container).signalled_ns is None:
        changes = {"signalled_ns": shutdown.point.at_ns, "stop_signal": event.signal}
        shutdown.change_container(event.uid, event.container, **changes)


def _kill_ordered(shutdown: ProgressBuilder, event: KillContainer) -> None:
    if shutdown.container(event.uid, event.container).killed_ns is None:
        shutdown.change_container(event.uid, event.container, killed_ns=shutdown.point.at_ns)


def _order_ended(shutdown: ProgressBuilder, event: OrderEnded) -> None:
    """A pod whose stop signal was not sent has not been asked to end, until a later one is."""
    if event.result not in ("done", "failed"):
        return
    key = parse_order_key(event.key)
    if key.subject not in shutdown.pods:
        return
    why = event.reason if event.result == "failed" else ""
    if key.what == "stop":
        refused = event.result == "failed"
        if refused or shutdown.container(key.subject, key.part).stop_refused:
            shutdown.change_container(key.subject, key.part, stop_refused=refused, stop_refusal=why)
    elif key.what == "kill" and (why or shutdown.container(key.subject, key.part).kill_refusal):
        shutdown.change_container(key.subject, key.part, kill_refusal=why)


def _pod_ended(shutdown: ProgressBuilder, event: PodEnded) -> None:
    """A fate is an outcome; an end is something that somebody saw."""
    at_ns = shutdown.point.at_ns
    shutdown.decided_ns[event.uid] = at_ns
    ended_ns = at_ns if event.outcome in SEEN_OUTCOMES else None
    shutdown.change_pod(
        event.uid,
        ended_ns=ended_ns,
        reason=event.reason,
        succeeded=event.succeeded,
        gone=event.gone and event.outcome == "unknown",
    )
    pod = replace(shutdown.pod(event.uid), outcome=event.outcome)
    shutdown.change_pod(event.uid, reason=reason_text(pod))


# --- a Kubernetes node -------------------------------------------------------------------------


def _termination_mode_chosen(shutdown: ProgressBuilder, event: MeansChosen) -> None:
    shutdown.change_node(means=event.means, reason=event.reason)


def _handed_over(shutdown: ProgressBuilder, event: HandedOver) -> None:
    shutdown.change_node(handed_over_ns=shutdown.point.at_ns, handed_over_reason=event.reason)


def _detach_certified(shutdown: ProgressBuilder, event: DetachCertified) -> None:
    shutdown.change_node(
        certificate=CertificateRecord(
            at_ns=shutdown.point.at_ns,
            safe=event.safe,
            ended=event.ended,
            running=event.running,
            mounted=event.mounted,
            restarts=event.restarts,
        )
    )


def _left_undone(shutdown: ProgressBuilder, event: LeftUndone) -> None:
    shutdown.change_node(left_running=event.running, left_without_status=event.without_status)


_MEANINGS: dict[type[Event], Callable[[ProgressBuilder, Any], None]] = {
    ShutdownBegan: _shutdown_began,
    DeadlineMoved: _deadline_moved,
    PlanMade: _plan_made,
    WaveStarted: _wave_began,
    WaveEnded: _wave_ended,
    PodsEnded: _pods_ended,
    ShutdownCancelled: _shutdown_cancelled,
    InventoryTaken: _inventory_taken,
    PodJoined: _pod_joined,
    PodPlanned: _pod_planned,
    PodRejected: _pod_rejected,
    PodStopBegan: _pod_stop_began,
    DeletePod: _pod_deleted,
    SendSignal: _signal_sent,
    KillContainer: _kill_ordered,
    OrderEnded: _order_ended,
    PodEnded: _pod_ended,
    MeansChosen: _termination_mode_chosen,
    HandedOver: _handed_over,
    DetachCertified: _detach_certified,
    LeftUndone: _left_undone,
}

#: By type tag, what an event means for how far a shutdown is: first its row of `EPISODE_HANDLERS`, then the
#: one above. Put together here, once, since a reader looks each record up.
PROGRESS_HANDLERS: dict[str, tuple[Callable[[ProgressBuilder, Any], None], ...]] = {
    tag: (handler,) for tag, handler in EPISODE_HANDLERS.items()
}
for _kind, _handler in _MEANINGS.items():
    PROGRESS_HANDLERS[_kind.__name__] = (*PROGRESS_HANDLERS.get(_kind.__name__, ()), _handler)

"""What is said of a Kubernetes node: by which means its pods are ended, who answers, what is left behind.

Some of it is about many pods at once. A line of a log has room for a few names; the journal has them all.
"""

from __future__ import annotations

from collections.abc import Sequence

from events import decisions as d
from events import facts as f
from events.base import Event
from events.record import Stamp
from events.words.base import DEBUG, INFO, NOTICE, WARNING, Names, Said, Teller, count, seconds

#: So many pods or volumes are named in one sentence, the rest is counted.
NAMES_MAX = 8

#: What each means is, in words; the empty one is mode process, which chooses nothing.
MEANS = {
    "": "our own processes",
    "api": "api, the pods are deleted and the kubelet ends them",
    "cri": "cri, over the container runtime, without the kubelet",
    "observe": "observe, the kubelet ends the pods itself",
}


def some(texts: Sequence[str]) -> str:
    """A few of them, and how many more there are."""
    more = len(texts) - NAMES_MAX
    return ", ".join(texts[:NAMES_MAX]) + (f" and {more} more" if more > 0 else "")


def mounts(names: Names, mounted: Sequence[tuple[str, str]]) -> str:
    """``shop/web-0 data``: pod and volume; the path alone of what belongs to a driver and no pod."""
    return some([f"{names.of(uid)} {volume}" if uid else volume for uid, volume in mounted])


def _pods(names: Names, uids: Sequence[str]) -> str:
    return some([names.of(uid) for uid in uids])


# --- who answers -------------------------------------------------------------------------------


def _kubelet(names: Names, event: f.KubeletRead, at: Stamp) -> Said:
    unit = event.unit or "the kubelet"
    if event.active is None:
        return Said(WARNING, f"{unit}: nobody can tell whether it runs")
    return Said(NOTICE, f"{unit} {'runs' if event.active else 'does not run'}")


def _runtime(names: Names, event: f.RuntimeRead, at: Stamp) -> Said:
    return _answers("the container runtime", event.reachable, event.error)


def _api(names: Names, event: f.ApiRead, at: Stamp) -> Said:
    said = _answers("the API server", event.reachable, event.error)
    if event.reachable and not event.taint:
        return Said(said.level, f"{said.text}, but this identity may not taint the node")
    return said


def _answers(who: str, reachable: bool, error: str) -> Said:
    if reachable:
        return Said(NOTICE, f"{who} answers")
    return Said(WARNING, f"{who} does not answer{f': {error}' if error else ''}")


# --- who ends the pods -------------------------------------------------------------------------


def _means(names: Names, event: d.MeansChosen, at: Stamp) -> Said:
    return Said(NOTICE, f"means: {MEANS.get(event.means, event.means)} ({event.reason})")


def _handed_over(names: Names, event: d.HandedOver, at: Stamp) -> Said:
    return Said(NOTICE, f"handed over to the container runtime: {event.reason}")


def _stop_kubelet(names: Names, event: d.StopKubelet, at: Stamp) -> Said:
    return Said(INFO, "stopping the kubelet")


def _kubelet_stopped(names: Names, event: d.KubeletStopped, at: Stamp) -> Said:
    if event.result == "done":
        return Said(NOTICE, "the kubelet is stopped")
    return Said(WARNING, f"the kubelet may still run, its stop ended {event.result}; nothing waits for it")


def _start_kubelet(names: Names, event: d.StartKubelet, at: Stamp) -> Said:
    return Said(NOTICE, "starting the kubelet again, which we have stopped")


# --- pods --------------------------------------------------------------------------------------


def _delete(names: Names, event: d.DeletePod, at: Stamp) -> Said:
    after = ", once the node is tainted" if event.after_taint else ""
    return Said(INFO, f"delete: {event.grace_seconds} s of grace{after}")


def _refused(names: Names, event: d.DeleteRefused, at: Stamp) -> Said:
    return Said(WARNING, f"the API server did not take its delete: {event.reason}")


def _joined(names: Names, event: f.PodJoined, at: Stamp) -> Said:
    return Said(NOTICE, "runs here, and was in no inventory of this shutdown")


def _unmounted(names: Names, event: f.VolumesUnmounted, at: Stamp) -> Said:
    return Said(INFO, "its volumes are unmounted")


def _await_unmounts(names: Names, event: d.AwaitUnmounts, at: Stamp) -> Said:
    pods = count(len(event.uids), "pod")
    return Said(DEBUG, f"waiting for the volumes of {pods}, for {seconds(event.timeout_ns)} s at most")


def _withdraw(names: Names, event: d.WithdrawPods, at: Stamp) -> Said:
    return Said(
        INFO, f"taking {count(len(event.uids), 'pod')} out of the Services: {_pods(names, event.uids)}"
    )


# --- what others see ---------------------------------------------------------------------------


def _event(names: Names, event: d.PostEvent, at: Stamp) -> Said:
    where = f"{event.namespace}/{event.name}" if event.namespace else event.name
    return Said(DEBUG, f"Event {event.reason} on {event.kind} {where}: {event.message}")


def _deliver(names: Names, event: d.DeliverStatuses, at: Stamp) -> Said:
    return Said(DEBUG, f"delivering the status of {count(len(event.statuses), 'pod')}")


def _settled(names: Names, event: d.StatusesSettled, at: Stamp) -> Said:
    if event.undelivered:
        return Said(WARNING, f"{event.undelivered} pod statuses could not be delivered in time")
    return Said(INFO, "all pod statuses delivered")


def _await_statuses(names: Names, event: d.AwaitStatuses, at: Stamp) -> Said:
    pods = count(len(event.uids), "pod")
    return Said(INFO, f"waiting for the final status of {pods}, for {seconds(event.timeout_ns)} s at most")


def _statuses_seen(names: Names, event: f.StatusesSeen, at: Stamp) -> Said:
    if not event.missing:
        return Said(INFO, "the API server has every final status")
    return Said(WARNING, f"the API server has no final status of: {_pods(names, event.missing)}")


def _left_undone(names: Names, event: d.LeftUndone, at: Stamp) -> Said:
    running = f"still running: {_pods(names, event.running)}" if event.running else ""
    without = f"without a final status: {_pods(names, event.without_status)}" if event.without_status else ""
    left = "; ".join(each for each in (running, without) if each)
    return (
        Said(WARNING, f"the kubelet left undone: {left}") if left else Said(INFO, "the kubelet left nothing")
    )


# --- the certificate ---------------------------------------------------------------------------


def _check_mounts(names: Names, event: d.CheckMounts, at: Stamp) -> Said:
    return Said(DEBUG, "looking at what is still mounted")


def _mounts_read(names: Names, event: f.MountsRead, at: Stamp) -> Said:
    if not event.mounted:
        return Said(INFO, "no volume is mounted")
    return Said(INFO, f"{count(len(event.mounted), 'volume')} mounted: {mounts(names, event.mounted)}")


def _certified(names: Names, event: d.DetachCertified, at: Stamp) -> Said:
    if event.safe:
        ended = count(event.ended, "pod")
        return Said(NOTICE, f"safe to detach: {ended} ended, no volume is mounted")
    running = f"not seen to end: {_pods(names, event.running)}" if event.running else ""
    mounted = f"mounted: {mounts(names, event.mounted)}" if event.mounted else ""
    why = "; ".join(each for each in (running, mounted) if each) or "what is mounted is not known"
    return Said(WARNING, f"not safe to detach: {why}")


def _publish(names: Names, event: d.PublishCertificate, at: Stamp) -> Said:
    return Said(DEBUG, f"publishing that it is {'' if event.safe else 'not '}safe to detach")


TELL: dict[type[Event], Teller] = {
    f.KubeletRead: _kubelet,
    f.RuntimeRead: _runtime,
    f.ApiRead: _api,
    f.PodJoined: _joined,
    f.VolumesUnmounted: _unmounted,
    f.MountsRead: _mounts_read,
    f.StatusesSeen: _statuses_seen,
    d.MeansChosen: _means,
    d.HandedOver: _handed_over,
    d.StopKubelet: _stop_kubelet,
    d.KubeletStopped: _kubelet_stopped,
    d.StartKubelet: _start_kubelet,
    d.DeletePod: _delete,
    d.DeleteRefused: _refused,
    d.AwaitUnmounts: _await_unmounts,
    d.WithdrawPods: _withdraw,
    d.PostEvent: _event,
    d.DeliverStatuses: _deliver,
    d.StatusesSettled: _settled,
    d.AwaitStatuses: _await_statuses,
    d.LeftUndone: _left_undone,
    d.CheckMounts: _check_mounts,
    d.DetachCertified: _certified,
    d.PublishCertificate: _publish,
}

"""A Kubernetes node: by which means its pods are ended, the kubelet's stop, deletes, mounts, statuses.

In mode process none of this is on record, so that its traces are what they were.
"""

from __future__ import annotations

from events.decisions import (
    AwaitStatuses,
    AwaitUnmounts,
    CheckMounts,
    DeletePod,
    DeleteRefused,
    DetachCertified,
    HandedOver,
    LeftUndone,
    MeansChosen,
    PublishCertificate,
    StopKubelet,
    WithdrawPods,
)
from events.facts import ApiRead, KubeletRead, MountsRead, RuntimeRead, StatusesSeen
from events.words.base import parse_key
from otel import attributes as at
from otel.ids import ORDER_ROLES
from otel.span import Attributes
from otel.traces.containers import begin_below_pod
from otel.traces.orders import begin_for_node
from otel.traces.trace import Trace

MS_PER_SECOND = 1000


# --- who ends the pods -------------------------------------------------------------------------


def means_chosen(trace: Trace, event: MeansChosen) -> None:
    trace.root.attributes[at.MEANS] = event.means
    trace.note("means.chosen", ((at.MEANS, event.means), (at.REASON, event.reason)))


def handed_over(trace: Trace, event: HandedOver) -> None:
    trace.root.attributes[at.HANDED_OVER] = True
    trace.note("handed.over", ((at.REASON, event.reason),))


def kubelet_stop_ordered(trace: Trace, event: StopKubelet) -> None:
    begin_for_node(trace, "StopKubelet", event.key, ())


def kubelet_read(trace: Trace, event: KubeletRead) -> None:
    if event.active is not None:
        _health(trace, "kubelet", answers=event.active, error="")


def runtime_read(trace: Trace, event: RuntimeRead) -> None:
    _health(trace, "runtime", answers=event.reachable, error=event.error)


def api_read(trace: Trace, event: ApiRead) -> None:
    _health(trace, "api", answers=event.reachable, error=event.error)


def _health(trace: Trace, part: str, *, answers: bool, error: str) -> None:
    why: Attributes = ((at.REASON, error),) if error else ()
    trace.note("health", ((at.PART, part), (at.ANSWERS, answers), *why))


# --- pods --------------------------------------------------------------------------------------


def delete_ordered(trace: Trace, event: DeletePod) -> None:
    """The call alone: what the kubelet then does is the pod's own span."""
    role = ORDER_ROLES["DeletePod"]
    grace_ms = event.grace_seconds * MS_PER_SECOND
    given: Attributes = ((at.GRACE, grace_ms), (at.AFTER_TAINT, event.after_taint), (at.ORDER, event.key))
    span = begin_below_pod(trace, role, event.uid, "", event.key)
    if span is not None:
        span.attributes.update(given)
        trace.orders[event.key] = span


def delete_refused(trace: Trace, event: DeleteRefused) -> None:
    pod = trace.open_pods.get(event.uid)
    if pod is not None:
        pod.note("delete.refused", trace.now_ns, ((at.REASON, event.reason),))


def unmounts_awaited(trace: Trace, event: AwaitUnmounts) -> None:
    """Below the wave that waits for it."""
    wave = parse_key(event.key).uid
    parent = trace.wave_id(int(wave)) if wave.isdecimal() else trace.root.span_id
    begin_for_node(trace, "AwaitUnmounts", event.key, ((at.ABOUT_PODS, len(event.uids)),), parent)


def withdrawn(trace: Trace, event: WithdrawPods) -> None:
    begin_for_node(trace, "WithdrawPods", event.key, ((at.ABOUT_PODS, len(event.uids)),))


# --- the end -----------------------------------------------------------------------------------


def statuses_awaited(trace: Trace, event: AwaitStatuses) -> None:
    begin_for_node(trace, "AwaitStatuses", event.key, ((at.ABOUT_PODS, len(event.uids)),))


def statuses_seen(trace: Trace, event: StatusesSeen) -> None:
    span = trace.orders.get(event.key)
    if span is not None:
        span.attributes[at.MISSING] = len(event.missing)


def mounts_checked(trace: Trace, event: CheckMounts) -> None:
    begin_for_node(trace, "CheckMounts", event.key, ())


def mounts_read(trace: Trace, event: MountsRead) -> None:
    span = trace.orders.get(event.key)
    if span is not None:
        span.attributes[at.MOUNTED] = len(event.mounted)


def certified(trace: Trace, event: DetachCertified) -> None:
    trace.root.attributes[at.SAFE_TO_DETACH] = event.safe
    found: Attributes = ((at.STILL_RUNNING, len(event.running)), (at.MOUNTED, len(event.mounted)))
    trace.note("detach.certified", ((at.SAFE_TO_DETACH, event.safe), *found))


def certificate_published(trace: Trace, event: PublishCertificate) -> None:
    begin_for_node(trace, "PublishCertificate", event.key, ((at.SAFE_TO_DETACH, event.safe),))


def left_undone(trace: Trace, event: LeftUndone) -> None:
    counts: Attributes = ((at.STILL_RUNNING, len(event.running)), (at.MISSING, len(event.without_status)))
    trace.note("left.undone", counts)

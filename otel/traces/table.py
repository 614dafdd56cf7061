"""Which records a trace is told of, and by whom: one row an event type. All others cost nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from events.decisions import ReleaseLock
from otel.traces import containers, node, orders, pods, shutdown
from otel.traces.trace import Trace

Tell = Callable[[Trace, Any], None]


def _released(trace: Trace, event: ReleaseLock) -> None:
    shutdown.released(trace)
    orders.release_ordered(trace, event)


TOLD: dict[str, Tell] = {
    "DaemonStarted": shutdown.started,
    "Resumed": shutdown.resumed,
    "ShutdownBegan": shutdown.began,
    "DeadlineMoved": shutdown.deadline_moved,
    "ShutdownCancelled": shutdown.cancelled,
    "EpisodeClosed": shutdown.closed,
    "ActorFailed": shutdown.actor_failed,
    "FallbackEngaged": shutdown.fallback_engaged,
    "HurryRequested": shutdown.hurried,
    "ReleaseRequested": shutdown.release_asked,
    "DurabilityLate": shutdown.durability_late,
    "StorageFailed": shutdown.storage_failed,
    "StorageMoved": shutdown.storage_moved,
    "ClockStepped": shutdown.clock_stepped,
    "TakeInventory": orders.listing_ordered,
    "InventoryTaken": orders.listed,
    "PlanMade": orders.planned,
    "AnnounceNode": orders.announced,
    "DeliverStatuses": orders.delivered,
    "FlushTraces": orders.export_ordered,
    "PodsEnded": orders.pods_ended,
    "StatusesSettled": orders.settled,
    "ReleaseLock": _released,
    "OrderEnded": orders.order_ended,
    "WaveStarted": pods.wave_started,
    "WaveEnded": pods.wave_ended,
    "PodPlanned": pods.pod_planned,
    "PodStopBegan": pods.stop_began,
    "PodEnded": pods.pod_ended,
    "PodRejected": pods.rejected,
    "HookStarted": containers.hook_started,
    "RunHook": containers.hook_ordered,
    "HookEnded": containers.hook_ended,
    "SendSignal": containers.stop_ordered,
    "KillContainer": containers.kill_ordered,
    "AutopsyTaken": containers.autopsy_taken,
    "ContainerExited": containers.exited,
    "MeansChosen": node.means_chosen,
    "HandedOver": node.handed_over,
    "StopKubelet": node.kubelet_stop_ordered,
    "KubeletRead": node.kubelet_read,
    "RuntimeRead": node.runtime_read,
    "ApiRead": node.api_read,
    "DeletePod": node.delete_ordered,
    "DeleteRefused": node.delete_refused,
    "AwaitUnmounts": node.unmounts_awaited,
    "WithdrawPods": node.withdrawn,
    "AwaitStatuses": node.statuses_awaited,
    "StatusesSeen": node.statuses_seen,
    "CheckMounts": node.mounts_checked,
    "MountsRead": node.mounts_read,
    "DetachCertified": node.certified,
    "PublishCertificate": node.certificate_published,
    "LeftUndone": node.left_undone,
}

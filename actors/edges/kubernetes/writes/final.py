"""What a kubelet writes as a pod's final status, from what the API has of it.

The phase, the reason and ``DisruptionTarget`` are those of its graceful node shutdown. Containers that the
API still has as running or waiting become terminated as its status manager does it where nobody can say how
one ended (``TerminatePod``): exit code 137, reason ``ContainerStatusUnknown``; in a pod that succeeded each
has exited with 0. ``containerStatuses`` is one value in a patch, so its other fields are passed on.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from actors.edges.kubernetes.writes.shapes import Object, PodObject, condition, disruption, now

UNKNOWN_REASON = "ContainerStatusUnknown"
UNKNOWN_MESSAGE = "The container could not be located when the pod was terminated"
UNKNOWN_EXIT_CODE = 137
#: What a kubelet gives as the reason of Ready=False in a final phase.
UNREADY_REASONS = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}
UNREADY = ("Ready", "ContainersReady")
STAT = Path("/proc/stat")


def final_status(pod: PodObject, phase: str, reason: str, message: str) -> Object:
    """The body of a strategic merge patch of ``pods/status``, only for that object in that version."""
    before = pod.status.conditions
    # As the kubelet does where it tracks generations at all (PodObservedGenerationTracking).
    tracked = {"observedGeneration": pod.metadata.generation} if pod.status.observed_generation else {}
    unready = UNREADY_REASONS.get(phase, reason)
    status: Object = {
        "phase": phase,
        "reason": reason,
        "message": message,
        "conditions": [
            *(condition(before, kind, "False", unready, "", **tracked) for kind in UNREADY),
            disruption(before, **tracked),
        ],
    }
    for name, statuses in (
        ("initContainerStatuses", pod.status.init_container_statuses),
        ("containerStatuses", pod.status.container_statuses),
    ):
        if statuses:
            status[name] = [_ended(each, phase, first=name.startswith("init")) for each in statuses]
    meta = {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version}
    return {"metadata": meta, "status": status}


def _ended(container: Object, phase: str, *, first: bool) -> Object:
    state = container.get("state") or {}
    running = state.get("running")
    # An init container that never ran has not failed: it was never its turn.
    if "terminated" in state or (first and not running):
        return container
    ended: Object = {"exitCode": UNKNOWN_EXIT_CODE, "reason": UNKNOWN_REASON, "message": UNKNOWN_MESSAGE}
    if phase == "Succeeded":
        ended = {"exitCode": 0, "reason": "Completed"}
    if running:
        ended |= {"startedAt": running.get("startedAt"), "finishedAt": now()}
    if identity := container.get("containerID"):
        ended["containerID"] = identity
    return {**container, "state": {"terminated": ended}, "ready": False, "started": False}


def newest_start(pod: PodObject) -> str:
    """Of any of its containers, ended ones too, RFC 3339; empty if none has run."""
    states = [
        each.get("state") or {}
        for each in (*pod.status.init_container_statuses, *pod.status.container_statuses)
    ]
    spans = [state.get("running") or state.get("terminated") or {} for state in states]
    return max((str(span.get("startedAt") or "") for span in spans), default="")


def started_this_boot(started_at: str) -> bool:
    """Did that happen since the machine came up? What cannot be told counts as yes: a status that is not
    delivered does less harm than one of a pod that runs.
    """
    if not started_at:
        return False
    try:
        return datetime.fromisoformat(started_at).timestamp() >= _boot_seconds()
    except (OSError, ValueError):
        return True


def _boot_seconds() -> float:
    """When the machine came up, by its wall clock of now (proc(5), btime)."""
    found = [line.split()[1] for line in STAT.read_text().splitlines() if line.startswith("btime ")]
    return datetime.fromtimestamp(int(found[0]), UTC).timestamp()

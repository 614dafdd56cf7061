"""What is read of the API server's objects and what is written into them, in the reference's words.

Only the fields that a writer looks at are decoded; what it passes on unchanged stays a plain dictionary.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import msgspec

Object = dict[str, Any]

#: facts-kubelet 1.1: pkg/kubelet/nodeshutdown.
DISRUPTION = "DisruptionTarget"
DISRUPTION_REASON = "TerminationByKubelet"
DISRUPTION_MESSAGE = "Pod was terminated in response to imminent node shutdown."
FINAL_PHASES = ("Succeeded", "Failed")
MIRROR = "kubernetes.io/config.mirror"


class _Annotations(msgspec.Struct):
    mirror: str = msgspec.field(default="", name=MIRROR)


class PodMeta(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    annotations: _Annotations = msgspec.field(default_factory=_Annotations)


class PodState(msgspec.Struct, rename="camel"):
    phase: str = ""
    observed_generation: int = 0
    conditions: list[Object] = []
    init_container_statuses: list[Object] = []
    container_statuses: list[Object] = []


class PodObject(msgspec.Struct):
    metadata: PodMeta
    status: PodState = msgspec.field(default_factory=PodState)


class NodeMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] = {}


class NodeSpec(msgspec.Struct):
    taints: list[Object] = []
    unschedulable: bool = False


class NodeState(msgspec.Struct):
    conditions: list[Object] = []


class NodeObject(msgspec.Struct):
    metadata: NodeMeta
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeState = msgspec.field(default_factory=NodeState)


def pod_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"


def node_path(node: str) -> str:
    return f"/api/v1/nodes/{quote(node, safe='')}"


def now() -> str:
    """RFC 3339 in whole seconds, as Kubernetes writes its times."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(
    conditions: list[Object], kind: str, status: str, reason: str, message: str, **more: Any
) -> Object:
    """A condition as it shall be; the time of its last transition moves only with its status."""
    before = of_kind(conditions, kind)
    moved = before is None or before.get("status") != status or not before.get("lastTransitionTime")
    since = now() if before is None or moved else before["lastTransitionTime"]
    said = {"type": kind, "status": status, "reason": reason, "message": message}
    return {**said, "lastTransitionTime": since, **more}


def of_kind(conditions: list[Object], kind: str) -> Object | None:
    return next((each for each in conditions if each.get("type") == kind), None)


def disruption(conditions: list[Object], **more: Any) -> Object:
    """The reference's ``DisruptionTarget``."""
    return condition(conditions, DISRUPTION, "True", DISRUPTION_REASON, DISRUPTION_MESSAGE, **more)

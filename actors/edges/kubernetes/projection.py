"""What is kept of a pod object: decoded straight from the answer's bytes, everything else is passed over.

A pod object can be 1.5 MiB, most of it annotations, and there may be 250 of them; what a shutdown needs is a
few hundred bytes. Nothing that is not named here is ever built, let alone kept: no environment, no image, no
annotation but the one that says who a static pod is.
"""

from __future__ import annotations

import msgspec

from actors.edges.kubernetes.calling import Known

#: The priorities of the classes that every cluster has: where no admission has written the number.
CLASSES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
#: Volumes that are made for the pod on this node, or lie there: nobody else waits for their unmount.
LOCAL_VOLUMES = frozenset(
    {"configMap", "downwardAPI", "emptyDir", "gitRepo", "hostPath", "image", "projected", "secret"}
)
#: What a NoSchedule taint's toleration may name as its effect, beside nothing, for all effects.
TOLERATED = ("", "NoSchedule")

# A pod object's own names and nesting (core/v1), as far as they are read. The API server leaves out what is
# empty; other writers of manifests say null.


class _Annotations(msgspec.Struct, gc=False):
    mirror: str = msgspec.field(default="", name="kubernetes.io/config.mirror")


class _Labels(msgspec.Struct, gc=False):
    template: str = msgspec.field(default="", name="pod-template-hash")


class _Owner(msgspec.Struct, gc=False):
    kind: str = ""
    name: str = ""
    controller: bool | None = None


class _Metadata(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    annotations: _Annotations | None = None
    labels: _Labels | None = None
    owner_references: list[_Owner] | None = None


class _Toleration(msgspec.Struct, gc=False):
    key: str | None = None
    operator: str | None = None
    effect: str | None = None


class _Container(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    restart_policy: str | None = None


class _Spec(msgspec.Struct, rename="camel", gc=False):
    priority: int | None = None
    priority_class_name: str | None = None
    termination_grace_period_seconds: int | None = None
    host_network: bool | None = None
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    tolerations: list[_Toleration] | None = None
    volumes: list[dict[str, object]] | None = None


class _Phase(msgspec.Struct, rename="camel", gc=False):
    exit_code: int = 0
    started_at: str | None = None


class _State(msgspec.Struct, gc=False):
    running: _Phase | None = None
    terminated: _Phase | None = None


class _ContainerStatus(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    identity: str = msgspec.field(default="", name="containerID")
    state: _State | None = None
    last_state: _State | None = None


class _Status(msgspec.Struct, rename="camel", gc=False):
    phase: str | None = None
    container_statuses: list[_ContainerStatus] | None = None
    init_container_statuses: list[_ContainerStatus] | None = None


class PodObject(msgspec.Struct, gc=False):
    """A pod as the API server or a manifest has it, in the fields that count."""

    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


def known(pod: PodObject) -> Known:
    """The projection of one object."""
    metadata, spec, status = pod.metadata, pod.spec, pod.status
    mirror = metadata.annotations.mirror if metadata.annotations else ""
    owner = _controller(metadata)
    return Known(
        uid=mirror or metadata.uid,
        api_uid=metadata.uid,
        namespace=metadata.namespace,
        name=metadata.name,
        resource_version=metadata.resource_version,
        phase=status.phase or "",
        priority=priority(spec),
        grace_seconds=spec.termination_grace_period_seconds,
        static=bool(mirror),
        daemon=owner.kind == "DaemonSet",
        tolerates_all=any(map(_tolerates_all, spec.tolerations or ())),
        volumes=any(map(_concerns_others, spec.volumes or ())),
        host_network=bool(spec.host_network),
        owner=_workload(owner, metadata),
        sidecars=tuple(each.name for each in spec.init_containers or () if _restarts(each)),
        containers=tuple(each.name for each in spec.containers or ()),
        ended=_ended(status),
        running=_running(status),
        started_at=_newest_start(status),
        deleting=metadata.deletion_timestamp is not None,
    )


def priority(spec: _Spec) -> int | None:
    """The number; that of a class that every cluster has; None where only the cluster could tell."""
    return spec.priority if spec.priority is not None else CLASSES.get(spec.priority_class_name or "")


def _controller(metadata: _Metadata) -> _Owner:
    return next((each for each in metadata.owner_references or () if each.controller), _Owner())


def _workload(owner: _Owner, metadata: _Metadata) -> str:
    """``Kind/name`` of who is to hear of it: a ReplicaSet of a Deployment is the Deployment's own affair."""
    template = metadata.labels.template if metadata.labels else ""
    if not owner.name or owner.kind == "Node":
        return ""
    if owner.kind == "ReplicaSet" and template and owner.name.endswith(f"-{template}"):
        return f"Deployment/{owner.name.removesuffix(f'-{template}')}"
    return f"{owner.kind}/{owner.name}"


def _tolerates_all(toleration: _Toleration) -> bool:
    return toleration.operator == "Exists" and not toleration.key and (toleration.effect or "") in TOLERATED


def _concerns_others(volume: dict[str, object]) -> bool:
    return any(kind != "name" and kind not in LOCAL_VOLUMES for kind in volume)


def _restarts(container: _Container) -> bool:
    return container.restart_policy == "Always"


def _ended(status: _Status) -> dict[str, int]:
    return {
        each.name: each.state.terminated.exit_code
        for each in status.container_statuses or ()
        if each.state and each.state.terminated
    }


def _running(status: _Status) -> dict[str, str]:
    """A status names its runtime before the id: ``containerd://…``."""
    statuses = (*(status.init_container_statuses or ()), *(status.container_statuses or ()))
    return {
        each.name: each.identity.rpartition("//")[2]
        for each in statuses
        if each.identity and each.state and each.state.running
    }


def _newest_start(status: _Status) -> str:
    """The API's times are all UTC and of one length, so text compares as time does."""
    statuses = [*(status.container_statuses or ()), *(status.init_container_statuses or ())]
    states = [state for each in statuses for state in (each.state, each.last_state) if state]
    phases = [phase for state in states for phase in (state.running, state.terminated) if phase]
    return max((phase.started_at or "" for phase in phases), default="")

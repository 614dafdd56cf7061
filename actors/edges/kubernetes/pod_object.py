"""The fields of a pod object that daemon and controller read, and what the daemon stores of them.

A pod object can be 1.5 MiB, most of it annotations. Decoding skips every field that is not named here: no
environment, no image, no annotation but a mirror's.

Manifests serve a node whose API server has never shown the mirrors of its static pods, such as a control
plane without its own API server.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import trio

from ebbtide.actors.edges.documents import object_of_file
from ebbtide.actors.edges.kubernetes.known_pods import (
    KnownPod,
    Metadata,
    Owner,
    controller_of,
    mirrored_uid,
)
from ebbtide.actors.edges.linux.inotify import FolderWatch
from ebbtide.actors.edges.linux.proc import CONTAINER_ID
from ebbtide.actors.edges.pod_spec import SYSTEM_PRIORITIES, Int64

#: No other node waits for their unmount.
LOCAL_VOLUMES = frozenset(
    {"configMap", "downwardAPI", "emptyDir", "gitRepo", "hostPath", "image", "projected", "secret"}
)
TOLERATED_EFFECTS = ("", "NoSchedule")

# Names and nesting of core/v1. Manifests may say null.


class Toleration(msgspec.Struct, rename="camel", gc=False):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: Int64 | None = None


class _Container(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    restart_policy: str | None = None


class PodSpec(msgspec.Struct, rename="camel", gc=False):
    node_name: str | None = None
    priority: Int64 | None = None
    priority_class_name: str | None = None
    termination_grace_period_seconds: Int64 | None = None
    host_network: bool | None = None
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    tolerations: list[Toleration] | None = None
    #: By the volume's kind, beside its name.
    volumes: list[dict[str, Any]] | None = None


class _Condition(msgspec.Struct, gc=False):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None


class _Phase(msgspec.Struct, rename="camel", gc=False):
    exit_code: Int64 = 0
    reason: str | None = None


class _State(msgspec.Struct, gc=False):
    waiting: _Phase | None = None
    running: _Phase | None = None
    terminated: _Phase | None = None


class _ContainerStatus(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    identity: str = msgspec.field(default="", name="containerID")
    state: _State | None = None


class _Status(msgspec.Struct, rename="camel", gc=False):
    phase: str | None = None
    reason: str | None = None
    conditions: list[_Condition] | None = None
    container_statuses: list[_ContainerStatus] | None = None
    init_container_statuses: list[_ContainerStatus] | None = None

    @property
    def containers(self) -> tuple[_ContainerStatus, ...]:
        """Init containers first."""
        return (*(self.init_container_statuses or ()), *(self.container_statuses or ()))


class PodObject(msgspec.Struct, gc=False):
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: _Status = msgspec.field(default_factory=_Status)


def project_pod(pod: PodObject) -> KnownPod:
    metadata, spec, status = pod.metadata, pod.spec, pod.status
    annotations, owner = metadata.annotations, controller_of(metadata.owner_references)
    statuses = status.containers
    return KnownPod(
        uid=mirrored_uid(metadata.name, annotations, metadata.owner_references) or metadata.uid,
        api_uid=metadata.uid,
        namespace=metadata.namespace,
        name=metadata.name,
        resource_version=metadata.resource_version,
        phase=status.phase or "",
        priority=priority_of(spec),
        grace_seconds=spec.termination_grace_period_seconds,
        static=annotations is not None and annotations.mirror is not None,
        daemon=owner.kind == "DaemonSet",
        tolerates_all=any(
            each.operator == "Exists" and not each.key and (each.effect or "") in TOLERATED_EFFECTS
            for each in spec.tolerations or ()
        ),
        volumes=any(
            kind != "name" and kind not in LOCAL_VOLUMES for volume in spec.volumes or () for kind in volume
        ),
        host_network=bool(spec.host_network),
        owner=_workload(owner, metadata),
        sidecars=tuple(each.name for each in spec.init_containers or () if each.restart_policy == "Always"),
        containers=tuple(each.name for each in spec.containers or ()),
        ended={
            each.name: each.state.terminated.exit_code
            for each in status.container_statuses or ()
            if each.state and each.state.terminated
        },
        # A status names its runtime before the id: ``containerd://…``. The id names processes of this
        # machine, so any other text is left out.
        running={
            each.name: key
            for each in statuses
            if CONTAINER_ID.fullmatch(key := each.identity.rpartition("//")[2])
            and each.state
            and each.state.running
        },
        deleting=metadata.deletion_timestamp is not None,
    )


def priority_of(spec: PodSpec) -> int | None:
    """The number, or the number of a class that every cluster has; None: only the cluster knows."""
    if spec.priority is not None:
        return spec.priority
    return SYSTEM_PRIORITIES.get(spec.priority_class_name or "")


def _workload(owner: Owner, metadata: Metadata) -> str:
    """``Kind/name`` of the workload: the Deployment where the owner is its ReplicaSet."""
    template = metadata.labels.template if metadata.labels else ""
    if not owner.name or owner.kind == "Node":
        return ""
    if owner.kind == "ReplicaSet" and template and owner.name.endswith(f"-{template}"):
        return f"Deployment/{owner.name.removesuffix(f'-{template}')}"
    return f"{owner.kind}/{owner.name}"


#: A manifest is a few KiB; a folder holds a handful.
MANIFEST_BYTES_MAX = 1024 * 1024
MANIFESTS_MAX = 250


def read_manifests(path: Path, node: str) -> list[KnownPod]:
    """The static pods of a manifest or a folder, named as the kubelet names their mirrors. For a thread.

    Skips files that cannot be read: the kubelet does not run them either.
    """
    try:
        files = sorted(path.iterdir()) if path.is_dir() else [path]
    except OSError:
        return []
    found: list[KnownPod] = []
    for file in [file for file in files if not file.name.startswith(".")][:MANIFESTS_MAX]:
        try:
            pod = project_pod(msgspec.convert(object_of_file(file, MANIFEST_BYTES_MAX), PodObject))
        except (OSError, ValueError):  # what msgspec raises is a ValueError, and so is a DocumentError
            continue
        if pod.name:
            # The UID is a hash of the kubelet's, so the pod is found by name. Static pods tolerate
            # everything.
            mirror = msgspec.structs.replace(
                pod,
                namespace=pod.namespace or "default",
                name=f"{pod.name}-{node.lower()}",
                static=True,
                tolerates_all=True,
                uid="",
                api_uid="",
            )
            found.append(mirror)
    return found


async def follow(path: Path, node: str, take: Callable[[list[KnownPod]], None]) -> None:
    """Read now and whenever the folder changes, until cancelled. Raises OSError."""
    folder = path if path.is_dir() else path.parent
    with closing(FolderWatch([folder])) as watch:
        while True:
            take(await trio.to_thread.run_sync(read_manifests, path, node, abandon_on_cancel=True))
            await watch.changed()

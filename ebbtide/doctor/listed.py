"""A node's pods as the API server lists them: what a shutdown needs of each, and what tells agents apart.

The first is the daemon's own projection; images and host paths are of no use to it, so they are read here.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import msgspec

from actors.edges.kubernetes.calling import Known
from actors.edges.kubernetes.projection import PodObject, known
from ebbtide.doctor.seen import NodePod

#: Labels whose values say what a pod is.
TELLING = ("app", "k8s-app", "name", "component", "app.kubernetes.io/name", "app.kubernetes.io/component")
TERMINAL = ("Succeeded", "Failed")

T = TypeVar("T")


class Listed(NamedTuple):
    """The same pods twice, those that have ended left out."""

    known: tuple[Known, ...] = ()
    pods: tuple[NodePod, ...] = ()


class _Meta(msgspec.Struct):
    labels: dict[str, str] | None = None


class _HostPath(msgspec.Struct):
    path: str = ""


class _Volume(msgspec.Struct, rename="camel"):
    host_path: _HostPath | None = None


class _Container(msgspec.Struct):
    image: str = ""


class _Spec(msgspec.Struct):
    containers: list[_Container] | None = None
    volumes: list[_Volume] | None = None


class _Pod(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)


class _Pods(msgspec.Struct):
    items: list[_Pod] = []


class _Objects(msgspec.Struct):
    items: list[PodObject] = []


def pods_in(body: bytes) -> Listed:
    """From a PodList as JSON. Raises ValueError."""
    pairs = zip(_decoded(body, _Objects).items, _decoded(body, _Pods).items, strict=True)
    going = [(known(each), pod) for each, pod in pairs if (each.status.phase or "") not in TERMINAL]
    return Listed(tuple(each for each, _ in going), tuple(_node_pod(each, pod) for each, pod in going))


def _decoded(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise ValueError(f"its list of pods cannot be read: {error}") from None


def _node_pod(each: Known, pod: _Pod) -> NodePod:
    labels = pod.metadata.labels or {}
    said = [each.name, *(container.image for container in pod.spec.containers or ())]
    said += [labels[name] for name in TELLING if name in labels]
    volumes = pod.spec.volumes or ()
    return NodePod(
        uid=each.uid,
        label=f"{each.namespace}/{each.name}",
        host_network=each.host_network,
        daemon=each.daemon,
        volumes=each.volumes,
        paths=tuple(volume.host_path.path for volume in volumes if volume.host_path is not None),
        words=tuple(text.lower() for text in said),
    )

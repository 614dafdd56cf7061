"""What the httpGet hooks of running pods would ask, by address: for the drill, which only connects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from actors.edges.process.http import BadHook, request_of
from actors.edges.process.record import PodRecord
from actors.edges.process.spec import ContainerSpec, HttpGetAction

if TYPE_CHECKING:
    from actors.edges.cri.table import PodEntry

#: Where local processes are.
LOOPBACK = "127.0.0.1"


class Target(NamedTuple):
    """``name`` is the pod's and the container's; ``error``: why the hook is no request at all."""

    name: str
    host: str = ""
    port: int = 0
    error: str = ""


def of_processes(pod: PodRecord, pod_ip: str = LOOPBACK) -> Iterator[Target]:
    return _of(pod.pod.label, (*pod.spec.init, *pod.spec.containers), pod_ip)


def of_containers(pod: PodEntry) -> Iterator[Target]:
    """A pod in the node's network has no address of its own; its hooks ask the node's."""
    from actors.edges.cri.hooks import node_address  # with gRPC: only where pods are containers

    specs = [entry.spec for entry in pod.containers.values()]
    return _of(f"{pod.namespace}/{pod.name}", specs, pod.pod_ip or node_address())


def _of(label: str, containers: Iterable[ContainerSpec], pod_ip: str) -> Iterator[Target]:
    for container in containers:
        action = container.pre_stop
        if isinstance(action, HttpGetAction):
            name = f"{label} {container.name}"
            try:
                request = request_of(action, container, pod_ip)
            except BadHook as error:
                yield Target(name, error=str(error))
            else:
                yield Target(name, request.host, request.port)

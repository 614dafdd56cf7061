"""The pods that a shutdown would end, whatever they are here: local processes, or a Kubernetes node's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from actors.edges.process.forecast import Forecast
from ebbtide.config.node import NodeSection
from ebbtide.doctor.running import forecasts, running_pods
from ebbtide.doctor.seen import NodeSeen
from ebbtide.doctor.targets import Target, of_containers, of_processes
from ebbtide.manifests import Manifest
from ebbtide.options import PROCESS, RunOptions
from ebbtide.places import KUBECONFIGS, SOCKETS, Places, first_there

if TYPE_CHECKING:
    from actors.edges.kubernetes.calling import Known

AUTO = "auto"


class Pods(NamedTuple):
    """``targets`` are what httpGet hooks would ask. ``seen``, ``known`` (what the API server lists) and
    ``places`` are a Kubernetes node's.
    """

    mode: str
    manifests: tuple[Manifest, ...] = ()
    forecasts: tuple[Forecast, ...] = ()
    targets: tuple[Target, ...] = ()
    seen: NodeSeen | None = None
    known: tuple[Known, ...] = ()
    places: Places | None = None


def look_at_pods(options: RunOptions, section: NodeSection, running: str) -> Pods:
    """``running``: the daemon's mode, for when ``options`` names none. Raises PermissionError."""
    mode = options.mode or (AUTO if _names_a_node(options) and running in ("", PROCESS) else running)
    mode = mode or mode_here(section, options.runtime)
    return _processes(options.runtime) if mode == PROCESS else _node(options._replace(mode=mode), section)


def _names_a_node(options: RunOptions) -> bool:
    """Somebody who says where its parts are says that it is one."""
    return any((options.cri, options.kubeconfig, options.node_name))


def mode_here(section: NodeSection, runtime: Path) -> str:
    """What this machine looks like. A runtime's socket alone is none of a node's marks: every machine with
    Docker has one.
    """
    if running_pods(runtime):
        return PROCESS
    named = section.cri_socket or section.kubeconfig or section.node_name
    root = Path(section.kubelet_root)
    kubelet = first_there([root]) and first_there(SOCKETS, Path.is_socket)
    return AUTO if named or kubelet or first_there(KUBECONFIGS) else PROCESS


def _processes(runtime: Path) -> Pods:
    found = running_pods(runtime)
    return Pods(
        PROCESS,
        tuple(Manifest(pod=each.pod, spec=each.spec, source=str(runtime)) for each in found),
        tuple(forecast for each in found for forecast in forecasts(each)),
        tuple(target for each in found for target in of_processes(each)),
    )


def _node(options: RunOptions, section: NodeSection) -> Pods:
    """Imported late: the bus, YAML, and where they are installed gRPC and the API's client."""
    from ebbtide.doctor.node import look_at_node

    found = look_at_node(options, section)
    targets = tuple(target for entry in found.entries for target in of_containers(entry))
    return Pods(
        options.mode, found.manifests, found.forecasts, targets, found.seen, found.known, found.places
    )

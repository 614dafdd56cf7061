"""A mode's needs on this machine, and its edges.

No part is opened: a node is armed even if its runtime or kubeconfig appears later. gRPC and the API's client
are imported once the node is armed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ebbtide.actors.edges.local_status import LocalStatusEdge
from ebbtide.actors.interfaces import Edge, Tell
from ebbtide.config import Loaded
from ebbtide.config.fields import is_node_name
from ebbtide.config.schema import IN_CLUSTER, KUBELET_UNIT, NodeSection
from ebbtide.extras import require
from ebbtide.options import RunOptions

if TYPE_CHECKING:
    from ebbtide.actors.edges.cri.cri_edge import CriEdge
    from ebbtide.actors.edges.kubernetes.api_edge import KubernetesEdge
    from ebbtide.actors.edges.process.process_edge import ProcessEdge

#: The runtimes' sockets, in the order of the kubelet's own tools.
SOCKETS = (
    Path("/run/containerd/containerd.sock"),
    Path("/run/crio/crio.sock"),
    Path("/run/k3s/containerd/containerd.sock"),
)
#: Our own identity first (it may taint its node), then the kubelet's.
KUBECONFIGS = (
    Path("/etc/ebbtide/kubeconfig"),
    Path("/etc/kubernetes/kubelet.conf"),
    Path("/var/lib/kubelet/kubeconfig"),
    Path("/var/lib/rancher/k3s/agent/kubelet.kubeconfig"),
    Path("/var/lib/rancher/rke2/agent/kubelet.kubeconfig"),
)
#: Created on joining a cluster.
JOINING = KUBECONFIGS[1]
STATIC_PODS = (
    Path("/etc/kubernetes/manifests"),
    Path("/var/lib/rancher/rke2/agent/pod-manifests"),
    Path("/var/lib/rancher/k3s/agent/pod-manifests"),
)
#: The daemon does not stop k3s and rke2, which are kubelet and runtime in one unit; doctor reports it.
KUBELET_UNITS = ("kubelet", "k3s", "k3s-agent", "rke2-server", "rke2-agent")
#: Highest priority first.
UNIT_FOLDERS = tuple(Path(root, "systemd/system") for root in ("/etc", "/usr/local/lib", "/usr/lib", "/lib"))
SERVICE_ACCOUNT_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
#: From the downward API.
NODE_NAME_VARIABLE = "EBBTIDE_NODE_NAME"

_NEED_API = ("api", "observe")
_NEED_RUNTIME = ("cri",)


class ModeUnavailable(Exception):
    """The text has the cure."""


class NodeParts(NamedTuple):
    """``kubeconfig`` None: the service account of our own pod. ``has_api`` False: there is no identity."""

    node: str
    cri_socket: Path
    kubeconfig: Path | None
    has_api: bool
    static_pods: Path
    kubelet_unit: str
    kubelet_root: Path


def find_node_parts(options: RunOptions, section: NodeSection) -> NodeParts:
    """Raises ModeUnavailable, PackagesMissing."""
    require("node", f"mode {options.mode}")
    kubeconfig, has_api = _find_kubeconfig(options, section)
    given = options.node_name or os.environ.get(NODE_NAME_VARIABLE) or section.node_name
    # The kubelet's own rule: the host name in lower case.
    name = given or os.uname().nodename.strip().lower()
    if not is_node_name(name):
        raise ModeUnavailable(
            f"{name!r} is no Node's name: give the one that 'kubectl get nodes' has with --node-name"
        )
    return NodeParts(
        node=name,
        cri_socket=_runtime_socket(options, section),
        kubeconfig=kubeconfig,
        has_api=has_api,
        static_pods=Path(section.static_pod_path or first_existing(STATIC_PODS) or STATIC_PODS[0]),
        kubelet_unit=kubelet_unit(section),
        kubelet_root=Path(section.kubelet_root),
    )


def first_existing(paths: Sequence[Path], is_there: Callable[[Path], bool] = Path.exists) -> Path | None:
    """An inaccessible file counts as absent."""
    for path in paths:
        try:
            if is_there(path):
                return path
        except PermissionError:
            continue
    return None


def kubelet_unit(section: NodeSection) -> str:
    """The usual name in a container, which has no unit files."""
    files = [folder / f"{unit}.service" for unit in KUBELET_UNITS for folder in UNIT_FOLDERS]
    found = first_existing(files)
    return section.kubelet_unit or (found.name if found is not None else KUBELET_UNIT)


def in_a_pod(environ: Mapping[str, str] = os.environ, account: Path = SERVICE_ACCOUNT_TOKEN) -> bool:
    """Whether the cluster gave us a service account."""
    return bool(environ.get("KUBERNETES_SERVICE_HOST")) and account.exists()


def _runtime_socket(options: RunOptions, section: NodeSection) -> Path:
    """A configured socket may appear later: the node is armed all the same."""
    given = options.cri or (Path(section.cri_socket) if section.cri_socket else None)
    if given is not None and given.exists() and not given.is_socket():
        raise ModeUnavailable(f"{given} is not a socket: name the container runtime's with --cri PATH")
    found = given or first_existing(SOCKETS, Path.is_socket)
    if found is None and options.mode in _NEED_RUNTIME:
        looked = ", ".join(map(str, SOCKETS))
        raise ModeUnavailable(f"no container runtime listens at {looked}: name its socket with --cri PATH")
    return (found or SOCKETS[0]).absolute()


def _find_kubeconfig(options: RunOptions, section: NodeSection) -> tuple[Path | None, bool]:
    """The fields ``kubeconfig`` and ``has_api`` of `NodeParts`."""
    given = options.kubeconfig or section.kubeconfig
    if given == IN_CLUSTER or (given is None and in_a_pod()):
        if not os.environ.get("KUBERNETES_SERVICE_HOST"):
            raise ModeUnavailable(
                f"this is no pod of a cluster, so there is no service account for {IN_CLUSTER}: name a"
                " kubeconfig with --kubeconfig PATH"
            )
        return None, True
    needed = options.mode in _NEED_API
    if given is not None:
        path = Path(given)
        if path.is_dir():
            raise ModeUnavailable(f"{path} is a folder: name the kubeconfig in it with --kubeconfig PATH")
        # It may appear when the node joins its cluster.
        if path.exists() and (needed or options.kubeconfig):
            require_readable(path)
        return path.absolute(), True
    found = first_existing(KUBECONFIGS)
    if found is not None and needed:
        require_readable(found)
    if found is not None:
        return found, True
    if needed:
        looked = ", ".join(map(str, KUBECONFIGS))
        raise ModeUnavailable(
            f"mode {options.mode} needs a kubeconfig, and none of {looked} is there: name one with"
            " --kubeconfig PATH"
        )
    # Mode cri needs no API server, which only shows the shutdown.
    return (None, False) if options.mode in _NEED_RUNTIME else (JOINING, True)


def require_readable(path: Path) -> None:
    """Raises ModeUnavailable."""
    from ebbtide.actors.edges.kubernetes.credentials import (
        MalformedKubeconfig,
        UnusableCredentials,
        read_kubeconfig,
    )

    if not path.is_file():
        raise ModeUnavailable(f"{path} is not a file: name a kubeconfig with --kubeconfig PATH")
    try:
        read_kubeconfig(path)
    except MalformedKubeconfig as error:
        raise ModeUnavailable(f"{error}: name another with --kubeconfig PATH") from None
    except UnusableCredentials:
        return  # the certificates and tokens that it names may still come: a kubelet's first one does


#: From the downward API. The daemon's own pod is in no wave.
OWN_UID = "EBBTIDE_POD_UID"
#: Beside the journal: files that outlive a boot.
LASTING_NAME = "node"
#: Also from a container that shares the node's processes.
NODES_MOUNTS = Path("/proc/1/mountinfo")


class ModeEdges(NamedTuple):
    """``edges``: beside logind. The later of two edges executes an order that both accept."""

    runtime: ProcessEdge | CriEdge
    edges: tuple[Edge, ...]
    local: ProcessEdge | None = None
    cluster: KubernetesEdge | None = None


def edges_of_mode(options: RunOptions, loaded: Loaded, parts: NodeParts | None, tell: Tell) -> ModeEdges:
    """``parts``: for the modes of a node. Raises OSError."""
    if parts is None:
        from ebbtide.actors.edges.process.process_edge import ProcessEdge
        from ebbtide.manifests import load_local_pods

        read = partial(
            load_local_pods, allow_zero_sleep=loaded.settings.gate("PodLifecycleSleepActionAllowZero")
        )
        folder = state_folder(options)
        edge = ProcessEdge(
            folder,
            manifests=options.pods,
            load=read,
            capture_lines=options.capture_lines,
        )
        return ModeEdges(edge, (edge, LocalStatusEdge(folder)), local=edge)
    # Without an identity, statuses go to a file, and orders for the API server fail.
    from ebbtide.actors.edges.cri.cri_edge import CriEdge
    from ebbtide.actors.edges.kubelet_unit import KubeletEdge
    from ebbtide.actors.edges.kubernetes.api_edge import KubernetesEdge

    cluster = KubernetesEdge(
        parts.kubeconfig, parts.node, lasting_folder(options), manifests=parts.static_pods, tell=tell
    )
    kubelet = KubeletEdge(
        parts.kubelet_unit,
        parts.kubelet_root,
        tell=tell,
        mount_table=NODES_MOUNTS,
    )
    runtime = CriEdge(
        f"unix://{parts.cri_socket}",
        state_folder(options),
        own_uid=os.environ.get(OWN_UID, ""),
        lookup=cluster.pods,
        starts=lambda: kubelet.starts_pods,
        tell=tell,
    )
    edges: tuple[Edge, ...] = (runtime, cluster, kubelet)
    if not parts.has_api:
        edges = (*edges, LocalStatusEdge(state_folder(options)))
    return ModeEdges(runtime, edges, cluster=cluster)


def state_folder(options: RunOptions) -> Path:
    """The edges' files for this boot; the modes of a node share it."""
    return options.runtime / ("cri" if options.of_node else "process")


def lasting_folder(options: RunOptions) -> Path:
    """The edges' files for the next boot, too."""
    return options.journal.parent / LASTING_NAME

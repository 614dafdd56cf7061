"""Where the parts of this node are: the configuration's word, the command line's, or where they always are.

Nothing is opened or waited for here. A node that is slow to come up (a runtime that listens later, a
kubeconfig that joining the cluster brings) is armed all the same. Refused is only what a mode can never do
without and nobody has named, and what is there and cannot be what somebody says that it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from ebbtide.config.node import IN_CLUSTER, KUBELET_UNIT, NodeSection, is_node_name
from ebbtide.options import RunOptions

#: Where runtimes listen, in the order in which the kubelet's own tools look.
SOCKETS = (
    Path("/run/containerd/containerd.sock"),
    Path("/run/crio/crio.sock"),
    Path("/run/k3s/containerd/containerd.sock"),
)
#: An identity of our own first (it may taint its node, the kubelet's may not), then the kubelet's: kubeadm's,
#: the one of nodes that are given theirs, k3s's, rke2's.
KUBECONFIGS = (
    Path("/etc/ebbtide/kubeconfig"),
    Path("/etc/kubernetes/kubelet.conf"),
    Path("/var/lib/kubelet/kubeconfig"),
    Path("/var/lib/rancher/k3s/agent/kubelet.kubeconfig"),
    Path("/var/lib/rancher/rke2/agent/kubelet.kubeconfig"),
)
#: Joining a cluster brings this one.
JOINING = KUBECONFIGS[1]
STATIC_PODS = (
    Path("/etc/kubernetes/manifests"),
    Path("/var/lib/rancher/rke2/agent/pod-manifests"),
    Path("/var/lib/rancher/k3s/agent/pod-manifests"),
)
#: k3s and rke2 are the kubelet and the runtime in one unit, which is not stopped: doctor has a finding.
UNITS = ("kubelet", "k3s", "k3s-agent", "rke2-server", "rke2-agent")
#: Where systemd finds units, from the highest priority to the lowest.
UNIT_FOLDERS = tuple(
    map(
        Path,
        (
            "/etc/systemd/system",
            "/usr/local/lib/systemd/system",
            "/usr/lib/systemd/system",
            "/lib/systemd/system",
        ),
    )
)
#: The service account of the pod that the daemon runs in.
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
#: What the extra ``node`` brings, by the names of modules at the top: to look below one is to import it.
PACKAGES = ("grpc", "google", "trio_asyncio", "kubernetes", "aiohttp")

#: This Node's name from whoever starts us: in a pod the downward API. Every verb in that pod then knows it,
#: and one that is not about a node does not mind.
NODE_NAME = "EBBTIDE_NODE_NAME"

#: Modes that are nothing without the API server, and without a container runtime.
_NEED_API = ("api", "observe")
_NEED_RUNTIME = ("cri",)


class Unfit(Exception):
    """The mode cannot be had here; the text says what to do."""


class Lacking(Unfit):
    """What the modes of a node need is not installed."""


class Places(NamedTuple):
    """``kubeconfig`` None: the service account of our own pod. ``has_api`` False: there is no identity at
    all, and none is waited for. ``missing`` are lines for the operator.
    """

    node: str
    cri_socket: Path
    kubeconfig: Path | None
    has_api: bool
    static_pods: Path
    kubelet_unit: str
    kubelet_root: Path
    missing: tuple[str, ...] = ()


def find(options: RunOptions, section: NodeSection) -> Places:
    """The places for one of the node's modes. Raises Unfit."""
    _packages(options.mode)
    said: list[str] = []
    socket = _socket(options, section, said)
    kubeconfig, has_api = _kubeconfig(options, section, said)
    return Places(
        node=_node(options, section),
        cri_socket=socket,
        kubeconfig=kubeconfig,
        has_api=has_api,
        static_pods=Path(section.static_pod_path or first_there(STATIC_PODS) or STATIC_PODS[0]),
        kubelet_unit=kubelet_unit(section),
        kubelet_root=Path(section.kubelet_root),
        missing=tuple(said),
    )


def first_there(paths: Sequence[Path], is_there: Callable[[Path], bool] = Path.exists) -> Path | None:
    """One that may not be looked at is not there for us."""
    for path in paths:
        try:
            if is_there(path):
                return path
        except PermissionError:
            continue
    return None


def kubelet_unit(section: NodeSection) -> str:
    """In a container no unit file is seen, and the usual name is taken."""
    files = [folder / f"{unit}.service" for unit in UNITS for folder in UNIT_FOLDERS]
    found = first_there(files)
    return section.kubelet_unit or (found.name if found is not None else KUBELET_UNIT)


def in_a_pod(environ: Mapping[str, str] = os.environ, account: Path = ACCOUNT) -> bool:
    """Whether the cluster has given us an identity: a DaemonSet with a service account."""
    return bool(environ.get("KUBERNETES_SERVICE_HOST")) and account.exists()


def _packages(mode: str) -> None:
    """Looked for and not imported: that is for later."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise Lacking(f"mode {mode} needs {', '.join(missing)}: pip install 'ebbtide[node]'")


def _node(options: RunOptions, section: NodeSection) -> str:
    """The kubelet's own rule: the host name in lower case."""
    given = options.node_name or os.environ.get(NODE_NAME) or section.node_name
    name = given or os.uname().nodename.strip().lower()
    if not is_node_name(name):
        raise Unfit(f"{name!r} is no Node's name: give the one that 'kubectl get nodes' has with --node-name")
    return name


def _socket(options: RunOptions, section: NodeSection, said: list[str]) -> Path:
    """A given one may come later: a node whose runtime is slow to start is armed all the same."""
    given = options.cri or (Path(section.cri_socket) if section.cri_socket else None)
    if given is not None and given.exists() and not given.is_socket():
        raise Unfit(f"{given} is not a socket: name the container runtime's with --cri PATH")
    found = given or first_there(SOCKETS, Path.is_socket)
    if found is None:
        looked = ", ".join(map(str, SOCKETS))
        if options.mode in _NEED_RUNTIME:
            raise Unfit(f"no container runtime listens at {looked}: name its socket with --cri PATH")
        said.append(f"no container runtime listens at {looked}: waiting for {SOCKETS[0]}; or use --cri PATH")
    elif not found.exists():
        said.append(f"nothing listens at {found} yet: its pods are known when the container runtime comes")
    return (found or SOCKETS[0]).absolute()


def _kubeconfig(options: RunOptions, section: NodeSection, said: list[str]) -> tuple[Path | None, bool]:
    given = options.kubeconfig or section.kubeconfig
    if given == IN_CLUSTER or (given is None and in_a_pod()):
        _need_account()
        return None, True
    if given is not None:
        # One on the command line is somebody's who waits for an answer.
        return _given(Path(given), said, options.mode in _NEED_API or bool(options.kubeconfig)), True
    found = first_there(KUBECONFIGS)
    if found is not None:
        if options.mode in _NEED_API:
            _readable(found)
        return found, True
    looked = ", ".join(map(str, KUBECONFIGS))
    if options.mode in _NEED_API:
        raise Unfit(f"mode {options.mode} needs a kubeconfig, and none of {looked} is there: name one with"
                    " --kubeconfig PATH")  # fmt: skip
    if options.mode in _NEED_RUNTIME:
        said.append("no kubeconfig is there: pods are ended without the API server, and nobody there is told")
        return None, False
    said.append(
        f"none of {looked} is there: waiting for {JOINING}; until then pods are ended without the API"
    )
    return JOINING, True


def _need_account() -> None:
    if not os.environ.get("KUBERNETES_SERVICE_HOST"):
        raise Unfit(f"this is no pod of a cluster, so there is no service account for {IN_CLUSTER}: name a"
                    " kubeconfig with --kubeconfig PATH")  # fmt: skip


def _given(path: Path, said: list[str], must_be_one: bool) -> Path:
    if path.is_dir():
        raise Unfit(f"{path} is a folder: name the kubeconfig in it with --kubeconfig PATH")
    if not path.exists():
        said.append(f"the kubeconfig {path} is not there yet: it is read when it comes")
    elif must_be_one:
        _readable(path)
    return path.absolute()


def _readable(path: Path) -> None:
    """Certificates and tokens that it names may still come: a kubelet's first one does. Raises Unfit."""
    from actors.edges.kubernetes.kubeconfig import Malformed, Unusable, read

    if not path.is_file():
        raise Unfit(f"{path} is not a file: name a kubeconfig with --kubeconfig PATH")
    try:
        read(path)
    except Malformed as error:
        raise Unfit(f"{error}: name another with --kubeconfig PATH") from None
    except Unusable:
        return

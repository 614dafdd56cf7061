"""The section ``node``: how the pods of a Kubernetes node are ended, and where its parts are.

Every value can be left out: what a kubeadm, k3s or rke2 node has where it always is, is found there
(`ebbtide.places`).
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from ebbtide.config import readers
from ebbtide.config.documents import Node
from ebbtide.config.scalars import DocumentError, quote
from ebbtide.config.sections import Inner, read_section, show_section
from events.model import LeftPods, Unready

KUBELET_UNIT = "kubelet.service"
KUBELET_ROOT = "/var/lib/kubelet"
#: In place of a kubeconfig's path: the service account of the pod that the daemon runs in.
IN_CLUSTER = "in-cluster"

_KINDS = ("poweroff", "halt", "reboot", "kexec", "soft-reboot", "unknown")
_MEANS = ("api", "cri")
_UNREADY = ("poweroff", "always", "never")
_LEFT_PODS = ("keep", "delete")

#: systemd.unit(5): what a unit's name may hold; templates' instances have an @.
_UNIT = re.compile(r"[A-Za-z0-9:_.\\@-]{1,247}\.service")
#: The API's rule for a Node's name: a DNS subdomain (RFC 1123).
_NODE_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
NODE_NAME_LENGTH_MAX = 253
#: As the kubelet's and crictl's own settings write a socket.
_UNIX = "unix://"


class NodeSection(msgspec.Struct, frozen=True, kw_only=True):
    """None: found on the machine."""

    means: dict[str, str] = {}
    unready: Unready = "poweroff"
    left_pods: LeftPods = "keep"
    kubelet_root: str = KUBELET_ROOT
    kubelet_unit: str | None = None
    kubeconfig: str | None = None
    node_name: str | None = None
    cri_socket: str | None = None
    static_pod_path: str | None = None


def _means(node: Node, path: str) -> dict[str, str]:
    entries, read = readers.mapping(node, path), readers.one_of(_MEANS)
    for kind, value in entries.items():
        if kind not in _KINDS:
            raise readers.unknown(path, kind, _KINDS, value.line)
    return {kind: read(value, f"{path}.{kind}") for kind, value in entries.items()}


def _unit(node: Node, path: str) -> str:
    name = readers.text(node, path)
    if not _UNIT.fullmatch(name):
        raise DocumentError(
            f"{path} is {quote(name)}: it must be a service unit such as {KUBELET_UNIT}", node.line
        )
    return name


def _kubeconfig(node: Node, path: str) -> str:
    if node.value == IN_CLUSTER:
        return IN_CLUSTER
    name = readers.text(node, path)
    if not name.startswith("/"):
        raise DocumentError(
            f"{path} is {quote(name)}: it must be an absolute path, or {IN_CLUSTER}", node.line
        )
    return readers.path(node, path)


def is_node_name(name: str) -> bool:
    """Whether a Node of the API can have this name."""
    return len(name) <= NODE_NAME_LENGTH_MAX and _NODE_NAME.fullmatch(name) is not None


def _node_name(node: Node, path: str) -> str:
    name = readers.text(node, path)
    if not is_node_name(name):
        wanted = "the Node's name in the API, of lower-case letters, digits, '-' and '.'"
        raise DocumentError(f"{path} is {quote(name)}: it must be {wanted}", node.line)
    return name


def _socket(node: Node, path: str) -> str:
    name = readers.text(node, path).removeprefix(_UNIX)
    return readers.path(Node(name, node.line), path)


def _folder(node: Node, path: str) -> str | None:
    """The kubelet writes a folder that it does not have as an empty text."""
    return readers.path(node, path) if node.value else None


NODE_FIELDS = {
    "means": Inner("means", _means),
    "unready": Inner("unready", readers.one_of(_UNREADY)),
    "leftPods": Inner("left_pods", readers.one_of(_LEFT_PODS)),
    "kubeletUnit": Inner("kubelet_unit", _unit),
    "kubeletRoot": Inner("kubelet_root", readers.path),
    "kubeconfig": Inner("kubeconfig", _kubeconfig),
    "nodeName": Inner("node_name", _node_name),
    "criSocket": Inner("cri_socket", _socket),
    "staticPodPath": Inner("static_pod_path", _folder),
}


#: Also read from a KubeletConfiguration, where they stand without a section.
KUBELETS = ("staticPodPath",)


def read_node(node: Node, path: str) -> dict[str, Any]:
    """What this section says, by attribute of `NodeSection`. Raises DocumentError."""
    return read_section(node, path, NODE_FIELDS)


def show_node(section: NodeSection) -> dict[str, Any]:
    """Defaults included; what is found on the machine is not known here."""
    return show_section(msgspec.structs.asdict(section), NODE_FIELDS)


#: For the reference: every field of the section.
NODE_TEXT = (
    "A Kubernetes node (modes auto, api, cri and observe; see docs/node.md). means: for mode auto, a mapping "
    f"of {', '.join(_KINDS)} to api or cri; power-off and halt are api where nothing else stands here, the "
    "others cri. unready: when the Node's Ready condition is set to False: poweroff (also halt), always, or "
    "never. leftPods: whether the objects of ended pods that do not come back are kept or deleted. "
    "kubeletUnit: what is stopped for cri; left out, the first that is installed of kubelet.service, k3s's "
    "and rke2's (which are the runtime too, and are not stopped). kubeletRoot: the kubelet's --root-dir, "
    f"{KUBELET_ROOT}. kubeconfig: who we are for the API server, a file or {IN_CLUSTER}; left out, the "
    "service account of the pod that we run in, else the first that is there of /etc/ebbtide/kubeconfig, the "
    "kubelet's, k3s's and rke2's. nodeName: the Node's name "
    "(the kubelet's --hostname-override); left out, the host name in lower case. criSocket: the container "
    "runtime's socket; left out, the first that is there of containerd's, CRI-O's and k3s's. staticPodPath: "
    "the folder of static pods, whose priorities are known from there without the API; left out, what a "
    "named KubeletConfiguration says, else the first that is there of /etc/kubernetes/manifests and rke2's. "
    "Only what is decided (means, unready, leftPods) follows a reload; the rest is read at the start. Later "
    "files win field by field."
)

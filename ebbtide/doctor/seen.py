"""What the doctor has seen of a Kubernetes node, as plain values: kubelet, runtime, API server, pods.

Apart from `ebbtide.doctor.sight` because a machine whose pods are local processes has none of it.
"""

from __future__ import annotations

from typing import NamedTuple

#: Units that run the kubelet and the container runtime as one program: stopping it takes the socket along.
ONE_UNIT = ("k3s.service", "k3s-agent.service", "rke2-server.service", "rke2-agent.service")

#: What a node's own identity is called (Node authorizer, NodeRestriction).
NODE_USER = "system:node:"
MASTERS = "system:masters"


class Right(NamedTuple):
    """One thing that an identity may do or not, in the words of a SelfSubjectAccessReview."""

    verb: str
    resource: str
    subresource: str = ""
    group: str = ""

    @property
    def text(self) -> str:
        """As a role has it: ``patch nodes/status``."""
        return f"{self.verb} {self.resource}{'/' if self.subresource else ''}{self.subresource}"


class Kubelet(NamedTuple):
    """``loaded`` and ``active`` are the unit's, None where no service manager tells. ``pid`` 0: no such
    process is seen. ``grace_ns``: what its configuration asks for in all, None where that is not known.
    ``beside``: which of `ONE_UNIT` are active.
    """

    unit: str = "kubelet.service"
    loaded: bool | None = None
    active: bool | None = None
    pid: int = 0
    config: str = ""
    grace_ns: int | None = None
    beside: tuple[str, ...] = ()


class Runtime(NamedTuple):
    """``problem``: why pods cannot be ended through this socket; empty: they can."""

    socket: str = ""
    name: str = ""
    version: str = ""
    problem: str = ""


class Validity(NamedTuple):
    """Of a client certificate, in seconds of Unix time."""

    path: str
    begins_s: int
    ends_s: int


class Api(NamedTuple):
    """``source`` is the kubeconfig; empty: none is named or found. ``problem``: why the API server cannot be
    asked. ``known``: there is a Node of our name. ``taint``: we may taint it; both None where not asked.
    """

    source: str = ""
    problem: str = ""
    user: str = ""
    groups: tuple[str, ...] = ()
    denied: tuple[Right, ...] = ()
    known: bool | None = None
    taint: bool | None = None
    certificate: Validity | None = None

    @property
    def answers(self) -> bool:
        return bool(self.source) and not self.problem


class NodePod(NamedTuple):
    """What tells an agent from its users: ``paths`` are its hostPath volumes, ``words`` its name, images and
    telling labels, in lower case.
    """

    uid: str
    label: str
    host_network: bool = False
    daemon: bool = False
    volumes: bool = False
    paths: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


class StaticPod(NamedTuple):
    """A manifest that gives no number. ``class_name``: the priority class that it names; empty: none."""

    label: str
    path: str
    class_name: str = ""


class NodeSeen(NamedTuple):
    """``now_s``: Unix time of the look. ``boot_ns``: how long the last boot took, None where nobody tells."""

    mode: str
    name: str
    now_s: int = 0
    missing: tuple[str, ...] = ()
    kubelet: Kubelet = Kubelet()
    runtime: Runtime = Runtime()
    api: Api = Api()
    pods: tuple[NodePod, ...] = ()
    statics: tuple[StaticPod, ...] = ()
    #: Why this mode, or these places, cannot be had; it names its cure.
    unfit: str = ""
    boot_ns: int | None = None

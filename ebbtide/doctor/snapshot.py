"""What the doctor has seen of this machine, as plain values: the input of every rule.

`Snapshot` is the whole; `NodeSnapshot` is its part about a Kubernetes node (kubelet, runtime, API server,
pods), which a machine whose pods are local processes has not. Beside them stands what an identity at the
API server has to be allowed, and what its lack costs, mode by mode: the roles of ``deploy/`` give these,
and a node's own identity has them from the Node authorizer, but for the taint.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from ebbtide.actors.edges.linux.proc import SignalForecast
from ebbtide.actors.policy.planning import Plan
from ebbtide.events.facts import DropInsRead
from ebbtide.events.recovery import Verdict
from ebbtide.events.values import Pod

#: Units that run the kubelet and the container runtime as one program: stopping it takes the socket along.
SINGLE_UNIT_DISTRIBUTIONS = ("k3s.service", "k3s-agent.service", "rke2-server.service", "rke2-agent.service")

#: What a node's own identity is called (Node authorizer, NodeRestriction).
NODE_USER = "system:node:"
MASTERS_GROUP = "system:masters"


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


class KubeletState(NamedTuple):
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


class RuntimeState(NamedTuple):
    """``problem``: why pods cannot be ended through this socket; empty: they can."""

    socket: str = ""
    name: str = ""
    version: str = ""
    problem: str = ""


class CertificateValidity(NamedTuple):
    """Of a client certificate, in seconds of Unix time."""

    path: str
    begins_s: int
    ends_s: int


class ApiServerState(NamedTuple):
    """``source`` is the kubeconfig; empty: none is named or found. ``problem``: why the API server cannot be
    asked. ``known``: there is a Node of our name. ``taint``: we may taint it. ``confined``: a policy refuses
    what we never change. All three None where not asked.
    """

    source: str = ""
    problem: str = ""
    user: str = ""
    groups: tuple[str, ...] = ()
    denied: tuple[Right, ...] = ()
    known: bool | None = None
    taint: bool | None = None
    confined: bool | None = None
    certificate: CertificateValidity | None = None

    @property
    def answers(self) -> bool:
        return bool(self.source) and not self.problem


class NodePod(NamedTuple):
    """What tells an agent from its users: ``paths`` are its hostPath volumes, ``terms`` its name, images and
    telling labels, in lower case.
    """

    uid: str
    label: str
    host_network: bool = False
    daemon: bool = False
    volumes: bool = False
    paths: tuple[str, ...] = ()
    terms: tuple[str, ...] = ()


class StaticPod(NamedTuple):
    """A manifest that gives no number. ``class_name``: the priority class that it names; empty: none."""

    label: str
    path: str
    class_name: str = ""


class NodeSnapshot(NamedTuple):
    """``now_s``: Unix time of the look. ``boot_ns``: how long the last boot took, None where nobody tells."""

    mode: str
    name: str
    now_s: int = 0
    missing: tuple[str, ...] = ()
    kubelet: KubeletState = KubeletState()
    runtime: RuntimeState = RuntimeState()
    api: ApiServerState = ApiServerState()
    pods: tuple[NodePod, ...] = ()
    statics: tuple[StaticPod, ...] = ()
    #: Why this mode, or these places, cannot be had; it names its cure.
    unfit: str = ""
    boot_ns: int | None = None


#: ``critical`` stops a graceful shutdown; ``warning`` makes it less graceful; ``note`` is worth knowing.
Level = Literal["critical", "warning", "note"]


class Finding(NamedTuple):
    """``code`` stays; ``message`` says what is wrong and ``cure`` what to do, both for people. ``pod``:
    ``namespace/name`` of the one that it is about; empty: it is not about one pod.
    """

    level: Level
    code: str
    message: str
    cure: str
    pod: str = ""

    @property
    def document(self) -> dict[str, Any]:
        """As JSON; ``pod`` is null where it is not about one."""
        return self._asdict() | {"pod": self.pod or None}


class LogindState(NamedTuple):
    """What logind and systemd said. ``our_lock``: a delay lock of ours stands in ``ListInhibitors``."""

    grant_ns: int
    preparing: bool
    our_lock: bool
    kubelet_lock: bool
    power_key: str
    systemd: str


class JournalState(NamedTuple):
    """The journal's place. ``error``: why it cannot be looked at; ``free_bytes`` None: not known.

    ``failed_starts``: (pod, reason) of each that its last daemon could not start; ``mode``: that daemon's.
    """

    path: str
    exists: bool = False
    writable: bool = True
    free_bytes: int | None = None
    verdict: Verdict | None = None
    failed_starts: tuple[tuple[str, str], ...] = ()
    error: str = ""
    mode: str = ""


class StoreState(NamedTuple):
    """The object store of the shipping. ``problem``: why nothing can be put there. ``skew_s``: how far its
    clock is ahead of ours, None where nobody told. ``conditional``: it keeps what is there, None: not tried.
    """

    url: str
    problem: str = ""
    cure: str = ""
    skew_s: int | None = None
    conditional: bool | None = None
    #: On record here: segments whose name was taken, those that are never sent, and those that retention
    #: removed before they were known to be there.
    present: int = 0
    unfit: int = 0
    lost: int = 0


#: What some measurements are called: the budget and the rules look for them.
SYNC, LOGIND_CALL = "journal sync", "logind call"
DRY_PATCH, DRY_DELETE = "API dry-run patch", "API dry-run delete"


class Measured(NamedTuple):
    """Samples of one call, sorted; none, with ``error``, where it failed. A median over ``limit_ns`` makes a
    shutdown slow.
    """

    what: str
    target: str
    limit_ns: int
    samples_ns: tuple[int, ...] = ()
    error: str = ""

    @property
    def median_ns(self) -> int:
        return self.samples_ns[len(self.samples_ns) // 2] if self.samples_ns else 0

    @property
    def worst_ns(self) -> int:
        return self.samples_ns[-1] if self.samples_ns else 0

    @property
    def verdict(self) -> str:
        return "failed" if self.error else "ok" if self.median_ns <= self.limit_ns else "slow"


class Snapshot(NamedTuple):
    """``status`` is the daemon's answer, None with ``status_error`` when it gave none; likewise ``bus``.

    ``plan`` is made under the grant that will be had; None when the configuration cannot be read.
    ``labels`` has names by UID for ``forecasts``; ``pods`` are those of the plan.
    ``power_key_file``: the file that has logind ignore the power key. ``node`` None: the pods are local
    processes here.
    """

    config_error: str
    raise_grant: bool
    plan: Plan | None
    status: dict[str, Any] | None
    status_error: str
    bus: LogindState | None
    bus_error: str
    files: DropInsRead
    store: JournalState
    forecasts: tuple[SignalForecast, ...]
    labels: dict[str, str]
    pods: tuple[Pod, ...] = ()
    acpid: bool = False
    power_key_file: str = ""
    node: NodeSnapshot | None = None
    #: None: nothing is shipped.
    shipping: StoreState | None = None
    #: Empty: nothing was measured.
    measured: tuple[Measured, ...] = ()


class NeededRight(NamedTuple):
    """``levels``: how grave its lack is in a mode; a mode that is not there does without."""

    right: Right
    lack: str
    levels: dict[str, Level]


_READ_LEVELS: dict[str, Level] = {
    "api": "critical",
    "auto": "warning",
    "observe": "warning",
    "cri": "warning",
}
_DELETE_LEVELS: dict[str, Level] = {"api": "critical", "auto": "warning"}
_WRITE_LEVELS: dict[str, Level] = {"api": "warning", "auto": "warning", "cri": "warning"}
_EVENT_LEVELS: dict[str, Level] = {"api": "note", "auto": "note", "cri": "note", "observe": "note"}

NEEDED_RIGHTS = (
    NeededRight(Right("list", "pods"), "this node's pods and their priorities are not known", _READ_LEVELS),
    NeededRight(
        Right("get", "pods"),
        "what is delivered late cannot be checked against the pod as it is",
        _WRITE_LEVELS,
    ),
    NeededRight(Right("watch", "pods"), "changes of this node's pods are not known in time", _READ_LEVELS),
    NeededRight(Right("delete", "pods"), "no pod can be ended through the API server", _DELETE_LEVELS),
    NeededRight(
        Right("patch", "pods", "status"),
        "endpoints are not withdrawn at the wave's start, and no final status is written",
        _WRITE_LEVELS,
    ),
    NeededRight(
        Right("get", "nodes"), "what Ebbtide changed on the Node cannot be taken back exactly", _WRITE_LEVELS
    ),
    NeededRight(
        Right("patch", "nodes"),
        "the Node is neither tainted nor marked unschedulable: new pods are sent here until the end",
        _WRITE_LEVELS,
    ),
    NeededRight(
        Right("patch", "nodes", "status"), "the Node's conditions do not show the shutdown", _WRITE_LEVELS
    ),
    NeededRight(
        Right("create", "events"), "the Node and the owners of killed pods get no Events", _EVENT_LEVELS
    ),
)
RIGHTS = tuple(need.right for need in NEEDED_RIGHTS)
#: A node's identity may get each of its own pods, which a review that names none is refused.
RIGHT_NOT_OF_NODES = Right("get", "pods")

"""The input of the doctor's rules, as plain values.

`NodeSnapshot` is the part of `Snapshot` about a Kubernetes node; a machine with local processes has none.
`NEEDED_RIGHTS` has the rights at the API server and the loss without each, by mode. The roles of ``deploy/``
grant them; a node's own identity has them from the Node authorizer, but for the taint.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from ebbtide.actors.edges.linux.proc import SignalForecast
from ebbtide.actors.policy.planning import Plan
from ebbtide.events.facts import DropInsRead
from ebbtide.events.recovery import Verdict

#: Units that run the kubelet and the container runtime as one program.
SINGLE_UNIT_DISTRIBUTIONS = ("k3s.service", "k3s-agent.service", "rke2-server.service", "rke2-agent.service")

#: The prefix of a node's own identity (Node authorizer, NodeRestriction).
NODE_USER = "system:node:"


class Right(NamedTuple):
    """In the words of a SelfSubjectAccessReview."""

    verb: str
    resource: str
    subresource: str = ""
    group: str = ""

    @property
    def text(self) -> str:
        """As a role has it: ``patch nodes/status``."""
        return f"{self.verb} {self.resource}{'/' if self.subresource else ''}{self.subresource}"


class KubeletState(NamedTuple):
    """``loaded`` and ``active``: the unit's state, None if unknown. ``pid`` 0: no such process.
    ``grace_ns``: the whole graceful shutdown of its configuration, None if unknown. ``beside``: the active
    units of `SINGLE_UNIT_DISTRIBUTIONS`.
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


class ApiServerState(NamedTuple):
    """``source``: the kubeconfig; empty: none. ``problem``: why the API server cannot be asked. ``known``:
    there is a Node of our name. ``taint``: we may taint it. ``confined``: a policy keeps us to our node. The
    last three are None where not asked.
    """

    source: str = ""
    problem: str = ""
    user: str = ""
    denied: tuple[Right, ...] = ()
    known: bool | None = None
    taint: bool | None = None
    confined: bool | None = None

    @property
    def answers(self) -> bool:
        return bool(self.source) and not self.problem


class NodeSnapshot(NamedTuple):
    mode: str
    name: str
    missing: tuple[str, ...] = ()
    kubelet: KubeletState = KubeletState()
    runtime: RuntimeState = RuntimeState()
    api: ApiServerState = ApiServerState()
    #: Why this mode, or these places, cannot be used; it names its cure.
    unfit: str = ""


#: ``critical`` stops a graceful shutdown; ``warning`` makes it less graceful; ``note`` is worth knowing.
Level = Literal["critical", "warning", "note"]


class Finding(NamedTuple):
    """``code`` is stable; ``message`` and ``cure`` are for people. ``pod``: its ``namespace/name``, empty for
    a finding about no single pod.
    """

    level: Level
    code: str
    message: str
    cure: str
    pod: str = ""

    @property
    def document(self) -> dict[str, Any]:
        """As JSON; ``pod`` is null for none."""
        return self._asdict() | {"pod": self.pod or None}


class LogindState(NamedTuple):
    """``our_lock``: ``ListInhibitors`` has a delay lock of ours."""

    grant_ns: int
    preparing: bool
    our_lock: bool
    kubelet_lock: bool
    power_key: str
    systemd: str


class JournalState(NamedTuple):
    """``error``: why it cannot be read; ``free_bytes`` None: unknown. ``mode``: the last daemon's."""

    path: str
    exists: bool = False
    writable: bool = True
    free_bytes: int | None = None
    verdict: Verdict | None = None
    error: str = ""
    mode: str = ""


#: Names of measurements that the rules look for.
SYNC, LOGIND_CALL = "journal sync", "logind call"
DRY_PATCH, DRY_DELETE = "API dry-run patch", "API dry-run delete"


class Measured(NamedTuple):
    """Samples of one call, sorted; none where it failed, with the ``error``. A median over ``limit_ns`` makes
    a shutdown slow.
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
    """``status``: the daemon's answer, or None and ``status_error``; likewise ``bus``. ``plan``: under the
    expected grant; None for a configuration with an error. ``labels``: names by UID for ``forecasts``.
    ``node`` None: the pods are local processes.
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
    node: NodeSnapshot | None = None
    measured: tuple[Measured, ...] = ()


class NeededRight(NamedTuple):
    """``levels``: the level of its lack by mode; a mode that is missing does without it."""

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

NEEDED_RIGHTS = tuple(
    NeededRight(Right(verb, resource, subresource), lack, levels)
    for verb, resource, subresource, lack, levels in (
        ("list", "pods", "", "this node's pods and their priorities are not known", _READ_LEVELS),
        ("get", "pods", "", "a late write cannot be checked against the present pod", _WRITE_LEVELS),
        ("watch", "pods", "", "changes of this node's pods are not known in time", _READ_LEVELS),
        ("delete", "pods", "", "no pod can be ended through the API server", _DELETE_LEVELS),
        ("patch", "pods", "status", "endpoints and final statuses are not written in time", _WRITE_LEVELS),
        ("get", "nodes", "", "changes on the Node cannot be taken back exactly", _WRITE_LEVELS),
        ("patch", "nodes", "", "the Node stays schedulable: new pods come until the end", _WRITE_LEVELS),
        ("patch", "nodes", "status", "the Node's conditions do not show the shutdown", _WRITE_LEVELS),
        ("create", "events", "", "the Node and the owners of killed pods get no Events", _EVENT_LEVELS),
    )
)
RIGHTS = tuple(need.right for need in NEEDED_RIGHTS)
#: A review of it names no pod, so it is refused to a node's identity, which may get its own pods.
RIGHT_NOT_OF_NODES = Right("get", "pods")

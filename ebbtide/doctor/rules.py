"""The doctor's rules: from a `Snapshot`, as plain values, to findings, each with its cure."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, repeat
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from ebbtide.actors.edges.linux.proc import SignalForecast
from ebbtide.actors.edges.logind_reading import DROP_IN_FOLDERS, DROP_IN_NAME, LOGIND_DEFAULT_NS
from ebbtide.actors.policy.planning import Plan
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.facts import DropInsRead, holder_text
from ebbtide.events.record.format import visible
from ebbtide.events.recovery import Verdict
from ebbtide.events.units import size_text, span
from ebbtide.events.values import LockHolder
from ebbtide.extras import install_command
from ebbtide.machine_lock import Holder

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
    """``loaded``, ``active`` (the unit) and ``grace_ns`` (the configured graceful shutdown) are None if
    unknown. ``beside``: active units of `SINGLE_UNIT_DISTRIBUTIONS`.
    """

    unit: str = "kubelet.service"
    loaded: bool | None = None
    active: bool | None = None
    pid: int = 0
    config: str = ""
    grace_ns: int | None = None
    beside: tuple[str, ...] = ()


class RuntimeState(NamedTuple):
    """``problem``: why no pod can be ended through this socket."""

    socket: str = ""
    name: str = ""
    version: str = ""
    problem: str = ""


class ApiServerState(NamedTuple):
    """``source``: the kubeconfig, or empty. ``problem``: why it cannot be asked. None if not asked: ``known``
    (there is a Node of our name), ``taint`` (we may taint it), ``confined`` (a policy keeps us to our node).
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
    #: Why the mode cannot be used, and the cure.
    unfit: str = ""


#: ``critical`` stops a graceful shutdown; ``warning`` makes it less graceful; ``note`` is worth knowing.
Level = Literal["critical", "warning", "note"]


class Finding(msgspec.Struct, frozen=True):
    """``code`` is stable; ``message`` and ``cure`` are for people. ``pod``: ``namespace/name``."""

    level: Level
    code: str
    message: str
    cure: str
    pod: str | None = None


class LogindState(NamedTuple):
    """``our_lock``: ``ListInhibitors`` has it. ``holders``: others, without the kubelet."""

    grant_ns: int
    preparing: bool
    our_lock: bool
    kubelet_lock: bool
    power_key: str
    systemd: str
    holders: tuple[LockHolder, ...] = ()


class JournalState(NamedTuple):
    """``error``: why it cannot be read. ``mode``: the last daemon's."""

    path: str
    exists: bool = False
    writable: bool = True
    free_bytes: int | None = None
    verdict: Verdict | None = None
    error: str = ""
    mode: str = ""


SYNC, LOGIND_CALL = "journal sync", "logind call"
DRY_PATCH, DRY_DELETE = "API dry-run patch", "API dry-run delete"


class Measured(NamedTuple):
    """``samples_ns``: sorted. A median over ``limit_ns`` makes a shutdown slow."""

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
    """``status`` (the daemon's answer), ``bus``, ``plan`` (under the expected grant): None with an error.
    ``labels``: by UID. ``node`` None: the pods are local processes.
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
    #: The named journal is another machine's: the daemon here is not shown.
    foreign: bool = False
    #: Another folder's daemon that protects this machine.
    protector: Holder | None = None


class NeededRight(NamedTuple):
    """``levels`` of a lack, by mode; other modes do without the right."""

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
#: Its review names no pod, so a node's identity is refused, though it may get its own pods.
RIGHT_NOT_OF_NODES = Right("get", "pods")


Findings = Iterator[Finding]
critical, warning, note = (partial(Finding, level) for level in ("critical", "warning", "note"))

#: Since then ``shutdown -h now`` goes through logind (systemd#22058, kubernetes#124039).
SYSTEMD_MIN = 251


def configuration(snapshot: Snapshot) -> Findings:
    if snapshot.config_error:
        yield critical("config-invalid", snapshot.config_error, "see 'ebbtide config check'")
    elif snapshot.plan is not None and not snapshot.plan.enabled:
        message = "graceful shutdown is off by configuration: no lock is taken, pods die with the machine"
        cure = (
            "set shutdownGracePeriod or shutdownGracePeriodByPodPriority; leave gate GracefulNodeShutdown on"
        )
        yield critical("switched-off", message, cure)


def daemon_and_lock(snapshot: Snapshot) -> Findings:
    status, bus = snapshot.status, snapshot.bus
    if snapshot.protector is not None:
        message = (
            f"another Ebbtide protects this machine ({visible(snapshot.protector.text)}): the daemon of "
            "these folders does nothing until that one has ended"
        )
        yield critical(
            "another-daemon", message, "end one of the two; name the other's --runtime to examine it"
        )
    elif snapshot.foreign:
        cure = "leave --journal out: the doctor examines this machine"
        yield warning("journal-of-another", snapshot.status_error, cure)
    elif status is None:
        yield critical("daemon-silent", snapshot.status_error, "systemctl start ebbtide, or 'ebbtide run'")
    for other in status.get("waiting", ()) if status is not None else ():
        message = f"another Ebbtide waits for the end of this one ({visible(other)})"
        yield warning("another-waits", message, "end one of the two: a DaemonSet's pod, or the host's unit")
    if bus is None:
        cure = "systemctl status dbus systemd-logind; DBUS_SYSTEM_BUS_ADDRESS names another bus"
        yield critical("no-logind", f"logind does not answer: {snapshot.bus_error}", cure)
    if status is None:
        return
    if not status["armed"] and status["phase"] == "idle" and status["enabled"]:
        why = status["whyNot"] or "it gives no reason"
        yield critical(
            "not-armed",
            f"the daemon is not armed: {why}",
            "see the daemon's log (it tries again): journalctl -u ebbtide",
        )
    if status["armed"] and bus is not None and not bus.our_lock:
        message = "the daemon believes it is armed, but logind lists no delay lock of ours"
        cure = "systemctl restart ebbtide, and compare with 'systemd-inhibit --list'"
        yield critical("lock-missing", message, cure)


def grant_too_small(snapshot: Snapshot) -> Findings:
    bus, plan, overrider = snapshot.bus, snapshot.plan, snapshot.files.overridden_by
    if bus is None or plan is None or not plan.enabled:
        return
    needed_ns = (plan.requested_seconds + plan.reserve_seconds) * NS_PER_SECOND
    if bus.grant_ns >= needed_ns:
        return
    message = f"logind grants {span(bus.grant_ns)}, the waves and the reserve need {span(needed_ns)}"
    if _will_be_raised(snapshot):
        yield note("grant-will-be-raised", message, "none needed: the daemon raises it when it arms")
        return
    if overrider:
        cure = overridden_cure(overrider)
    elif not snapshot.raise_grant:
        seconds = -(-needed_ns // NS_PER_SECOND)
        cure = f"set raiseGrant: true, or InhibitDelayMaxSec={seconds} in a drop-in of logind.conf.d"
    else:
        cure = "see the daemon's log for why logind did not take its drop-in"
    # Below the periods whole waves are cut short; without the reserve only the last one.
    cut_short = bus.grant_ns < plan.requested_seconds * NS_PER_SECOND
    yield Finding("critical" if cut_short else "warning", "grant-too-small", message, cure)


def overridden_cure(path: str) -> str:
    """Takes one line out of the drop-in ``path``, which wins against ours. Its other settings stay."""
    folder, name = path.rsplit("/", 1)
    copy = f"{DROP_IN_FOLDERS[0]}/{name}"
    line = "'/^[[:space:]]*InhibitDelayMaxSec[[:space:]]*=/d'"
    if name == DROP_IN_NAME:
        # Without the line it would still hide ours.
        edit = f"rm {path}"
    elif folder == DROP_IN_FOLDERS[0]:
        edit = f"sed -i {line} {shlex.quote(path)}"
    else:
        # A package would bring its own file back; the copy in /etc hides it.
        edit = f"mkdir -p {DROP_IN_FOLDERS[0]} && sed {line} {shlex.quote(path)} > {shlex.quote(copy)}"
    return (
        f"{path} is read after our {DROP_IN_NAME}: remove its InhibitDelayMaxSec with `{edit}`, and then "
        "`systemctl kill -s HUP systemd-logind`"
    )


def _will_be_raised(snapshot: Snapshot) -> bool:
    """A running daemon has tried already."""
    return snapshot.raise_grant and snapshot.status is None and not snapshot.files.overridden_by


def other_locks(snapshot: Snapshot) -> Findings:
    """logind has one limit for all delay locks: ours lets the others hold the machine longer, too."""
    bus = snapshot.bus
    if bus is None:
        return
    for holder in bus.holders:
        message = (
            f"{visible(holder_text(holder))} holds a delay lock, too: a shutdown waits for it up to"
            f" {span(bus.grant_ns)}, logind's limit for every lock (its default is {span(LOGIND_DEFAULT_NS)})"
        )
        yield note(
            "other-lock",
            message,
            "none needed if it releases the lock in time; else see that program's configuration",
        )
    if bus.preparing and not bus.our_lock:
        message = "the machine is going down already"
        yield note("going-down", message, "wait: logind gives no lock until it is over")


def ways_around_logind(snapshot: Snapshot) -> Findings:
    bus = snapshot.bus
    digits = bus.systemd.split(".")[0].split("~")[0].split(" ")[0] if bus is not None else ""
    if digits.isascii() and digits.isdecimal() and 0 < int(digits) < SYSTEMD_MIN:
        message = f"systemd {digits}: root's 'shutdown -h now' and 'reboot' bypass logind (systemd#22058)"
        yield warning("systemd-old", message, f"use 'systemctl poweroff', or systemd {SYSTEMD_MIN} or newer")
    if bus is not None and bus.power_key == "ignore":
        message = "logind ignores the power key: users hold it down, which cuts the power without a signal"
        cure = "set HandlePowerKey=poweroff in logind.conf; 'systemctl kill -s HUP systemd-logind'"
        yield warning("power-key-ignored", message, cure)


#: A shutdown of a thousand pods writes 8 MB; the daemon reserves as much.
FREE_BYTES_MIN = 32 * 1024 * 1024

JOURNAL_CURES: dict[str, tuple[Level, str]] = {
    "torn": ("note", "none needed: the daemon continues after the last whole step"),
    "corrupt": ("warning", "keep a copy; the daemon begins a new journal beside it"),
    "incompatible": ("critical", "run the version that wrote it, or move the directory away"),
}


def journal(snapshot: Snapshot) -> Findings:
    store = snapshot.store
    if store.verdict is not None and store.verdict.state != "intact":
        level, cure = JOURNAL_CURES[store.verdict.state]
        yield Finding(level, f"journal-{store.verdict.state}", store.verdict.banner, cure)
    elsewhere = "the daemon writes to a fallback, which a power loss may delete"
    if store.error:
        yield warning("journal-unreadable", store.error, "use sudo, or name the directory with --journal")
    elif store.exists and not store.writable:
        message = f"the journal's directory {store.path} cannot be written: {elsewhere}"
        yield warning("journal-read-only", message, "make it writable for root, or mount it read-write")
    if store.free_bytes is not None and store.free_bytes < FREE_BYTES_MIN:
        message = f"only {size_text(store.free_bytes)} are free at {store.path}: {elsewhere}"
        yield warning("journal-space", message, f"free {size_text(FREE_BYTES_MIN)} or more")


#: Synced records of a shutdown: announcement, each wave's statuses, release.
SYNCS_PER_WAVE = 2
SYNCS_BESIDE = 2
#: For the release and its proof.
LOGIND_CALLS = 3
#: Before a wave's first signal or delete: the calls for its pods run side by side.
MEASURED_ONCE_A_WAVE = ("exec", "CRI container status", DRY_PATCH, DRY_DELETE)
MEASURED_ONCE = ("CRI list of sandboxes", "kubelet unit")

_REFUSED = "see which webhook or policy refuses it: kubectl --dry-run=server"
MEASURE_CURES = {
    "httpGet target": "have the container serve that port, or correct its preStop hook",
    SYNC: "make the journal's folder writable, or name another with --journal",
    DRY_PATCH: _REFUSED,
    DRY_DELETE: _REFUSED,
}


class Budget(NamedTuple):
    """``overhead_ns``: the calls beside the waves, by their worst samples. ``slack_ns``: the grant beside the
    waves; None where graceful shutdown is off.
    """

    overhead_ns: int
    slack_ns: int | None

    @property
    def holds(self) -> bool:
        return self.slack_ns is not None and self.overhead_ns <= self.slack_ns


def judge_budget(snapshot: Snapshot) -> Budget:
    """A failed call counts 0: `measurements` reports it."""
    plan, bus = snapshot.plan or Plan(enabled=False), snapshot.bus
    waves, worst = len(plan.waves), {each.what: each.worst_ns for each in snapshot.measured}
    overhead_ns = (
        (SYNCS_BESIDE + SYNCS_PER_WAVE * waves) * worst.get(SYNC, 0)
        + LOGIND_CALLS * worst.get(LOGIND_CALL, 0)
        + sum(waves * worst.get(each, 0) for each in MEASURED_ONCE_A_WAVE)
        + sum(worst.get(each, 0) for each in MEASURED_ONCE)
    )
    if not plan.enabled:
        return Budget(overhead_ns, None)
    slack_ns = plan.reserve_seconds * NS_PER_SECOND
    if bus is not None and not _will_be_raised(snapshot):
        slack_ns = min(slack_ns, bus.grant_ns - plan.requested_seconds * NS_PER_SECOND)
    return Budget(overhead_ns, max(0, slack_ns))


def measurements(snapshot: Snapshot) -> Findings:
    overhead_ns, slack_ns = budget = judge_budget(snapshot)
    if overhead_ns and slack_ns is not None and not budget.holds:
        message = (
            f"a shutdown's calls take {span(overhead_ns)}, the grant leaves {span(slack_ns)} beside the waves"
        )
        cure = "raise reserve, have logind grant it, and see which calls are slow"
        yield critical("budget-exceeded", message, cure)
    mode = snapshot.node.mode if snapshot.node is not None else ""
    for each in snapshot.measured:
        if each.error:
            # Mode api ends pods only by deletes.
            level: Level = "critical" if each.what == DRY_DELETE and mode == "api" else "warning"
            cure = MEASURE_CURES.get(each.what, "see that component's log, and measure again")
            yield Finding(level, "call-failed", f"{each.what} {each.target}: {each.error}", cure)


API_MODES = ("api", "auto")
ENDING_MODES = ("api", "auto", "cri")
#: The unit of a socket below this folder is one of `SINGLE_UNIT_DISTRIBUTIONS`.
K3S_FOLDER = "/run/k3s/"

_KUBELET_OFF = "set shutdownGracePeriod: 0s in the kubelet's configuration and restart it"


def packages_and_mode(snapshot: Snapshot) -> Findings:
    node = snapshot.node
    if node is not None and node.missing:
        message = f"mode {node.mode} needs packages that are not installed: {', '.join(node.missing)}"
        level: Level = "warning" if node.mode == "auto" else "critical"
        yield Finding(level, "packages-missing", message, install_command("node"))
    if node is not None and node.unfit:
        message, _, cure = node.unfit.partition(": ")
        yield critical("mode-unfit", message, cure or "see 'ebbtide run --help'")


#: A kubelet that holds a delay lock too, by mode.
_KUBELET_TOO: dict[str, tuple[Level, str, str]] = {
    "api": ("critical", "mode api does not arm beside it", f"{_KUBELET_OFF}, or use mode observe"),
    "cri": ("critical", "mode cri does not arm beside it", f"{_KUBELET_OFF}, or use mode observe"),
    "auto": ("note", "mode auto only observes", f"{_KUBELET_OFF}, if Ebbtide is to end the pods"),
    "process": ("warning", "both would end the same pods", _KUBELET_OFF),
}


def kubelet_graceful_shutdown(snapshot: Snapshot) -> Findings:
    node, bus = snapshot.node, snapshot.bus
    mode = node.mode if node is not None else "process"
    if bus is None:
        return
    if bus.kubelet_lock:
        if mode in _KUBELET_TOO:
            level, effect, cure = _KUBELET_TOO[mode]
            yield Finding(level, "kubelet-too", f"a kubelet holds a delay lock as well: {effect}", cure)
        return
    if node is None:
        return
    asks = node.kubelet.grace_ns
    if mode == "observe":
        why = "it may have started during a shutdown, and never tries again"
        if asks == 0:
            why = "its graceful shutdown is off"
        elif asks is not None and bus.grant_ns < asks:
            why = f"logind grants {span(bus.grant_ns)} of the {span(asks)} that it asks for"
        message = f"mode observe leaves the pods to the kubelet, and no kubelet holds a delay lock: {why}"
        cure = "set shutdownGracePeriod in the kubelet's configuration and restart it, or use mode auto"
        yield critical("kubelet-not-armed", message, cure)
    elif asks:
        message = (
            f"the kubelet's configuration {node.kubelet.config} asks for {span(asks)} of graceful shutdown: "
            "it holds no lock now, but takes one when it starts"
        )
        yield warning("kubelet-configured", message, _KUBELET_OFF)


def kubelet_unit(snapshot: Snapshot) -> Findings:
    node = snapshot.node
    if node is None or node.mode not in ENDING_MODES:
        return
    kubelet, unit = node.kubelet, node.kubelet.unit
    if kubelet.loaded is False:
        other = f" ({kubelet.beside[0]} is active)" if kubelet.beside else ""
        message = f"there is no unit {unit}{other}: the kubelet cannot be stopped and restarts ended pods"
        level: Level = "critical" if node.mode == "cri" and kubelet.pid else "warning"
        yield Finding(level, "kubelet-unit-missing", message, "name its unit in node.kubeletUnit")
    elif kubelet.active is False and node.mode in API_MODES:
        message = f"{unit} is not active: it carries out no delete, so every shutdown uses the runtime"
        yield warning("kubelet-down", message, f"systemctl start {unit}")
    # k3s and rke2: the kubelet cannot be stopped without its container runtime.
    single = unit if unit in SINGLE_UNIT_DISTRIBUTIONS else next(iter(kubelet.beside), "")
    if not single and node.runtime.socket.startswith(K3S_FOLDER):
        single = f"the owner of {node.runtime.socket}"
    if single:
        message = (
            f"{single} is kubelet and container runtime in one: waves over the runtime cannot stop it, "
            "and it restarts what they end"
        )
        cure = "use mode api (in auto: node.means with api for every kind of shutdown)"
        yield Finding("critical" if node.mode == "cri" else "warning", "one-unit", message, cure)


def runtime_away(snapshot: Snapshot) -> Findings:
    node = snapshot.node
    if node is None or node.missing or not node.runtime.problem:
        return
    level, effect = "warning", "static pods and late pods would die with the machine"
    if node.mode == "observe":
        effect = "the pods' ends will not be on record"
    elif node.mode == "cri" or not node.api.answers:
        level, effect = "critical", "no pod can be ended"
    socket = node.runtime.socket or "any known socket"
    message = f"the container runtime at {socket} cannot be used: {node.runtime.problem}; {effect}"
    cure = "systemctl status containerd crio; node.criSocket or --cri names another socket"
    yield (critical if level == "critical" else warning)("runtime-away", message, cure)


#: What a mode loses without an API server.
_WITHOUT_API = {
    "api": "every shutdown uses the runtime",
    "auto": "every shutdown uses the runtime",
    "cri": "the cluster shows the node and its pods as running until the lease expires",
    "observe": "the machine does not wait for the pods' final statuses",
}


def api_server_away(snapshot: Snapshot) -> Findings:
    """Without a runtime too, `runtime_away` is critical."""
    node = snapshot.node
    if node is None or node.missing:
        return
    api, loss = node.api, _WITHOUT_API[node.mode]
    if api.known is False:
        message = f"the API server has no Node called {node.name}: none of its pods would be found"
        cure = (
            "name it with node.nodeName or --node-name (kubectl get nodes; the kubelet's --hostname-override)"
        )
        yield critical("node-unknown", message, cure)
    if api.answers:
        return
    if not api.source:
        level: Level = "note" if node.mode == "cri" else "warning"
        cure = "name one with node.kubeconfig or --kubeconfig"
        yield Finding(level, "kubeconfig-missing", f"no kubeconfig is named or found: {loss}", cure)
        return
    cure = f"see what 'kubectl --kubeconfig {api.source} get node {node.name}' says"
    if api.source in api.problem:  # The file itself cannot be read.
        cure = "use sudo, or name another with node.kubeconfig or --kubeconfig"
    yield warning("api-away", f"no answer from the API server with {api.source}: {api.problem}; {loss}", cure)


# NodeRestriction keeps the node's own identity to this node and away from taints. A service account may
# taint, and only a policy keeps it to this node.

ACCOUNT_USER = "system:serviceaccount:"


def rights(snapshot: Snapshot) -> Findings:
    node = snapshot.node
    if node is None:
        return
    user, restricted = visible(node.api.user), node.api.user.startswith(NODE_USER)
    owner = node.api.user.removeprefix(NODE_USER)
    if restricted and owner != node.name:
        message = f"the identity belongs to node {visible(owner)}, and this node is called {node.name}"
        yield critical("foreign-identity", message, f"set node.nodeName: {visible(owner)}")
    for need in NEEDED_RIGHTS:
        level = need.levels.get(node.mode)
        if need.right in node.api.denied and level is not None:
            code = f"rbac-{need.right.text.replace(' ', '-').replace('/', '-')}"
            cure = "apply deploy/kubernetes/rbac, or name another kubeconfig"
            yield Finding(level, code, f"{user} may not {need.right.text}: {need.lack}", cure)
    if node.api.taint is False and node.mode in API_MODES:
        message = (
            f"{user} may not taint the Node{' (NodeRestriction)' if restricted else ''}: a DaemonSet makes a "
            "deleted pod again here, so Ebbtide ends its pods through the runtime, after the others"
        )
        cure = "allow patch nodes; a ValidatingAdmissionPolicy may want a token of a pod on this node"
        if restricted:
            cure = "use a service account with the ClusterRole of deploy/kubernetes/rbac"
        yield warning("no-taint", message, cure)
    if node.api.user.startswith(ACCOUNT_USER) and node.api.confined is False:
        message = f"no policy keeps {user}, a service account, to this node: its token may delete any pod"
        cure = "apply deploy/kubernetes/rbac (Kubernetes 1.30), or use the node's own identity"
        yield warning("identity-unconfined", message, cure)


_WRITE_PRIORITY = "write spec.priority as a number into the manifest (kubectl get pod -o yaml shows it)"

CURES = {
    "grace-cut": "give its wave a longer period, or the pod a shorter terminationGracePeriodSeconds",
    "grace-unset": "set terminationGracePeriodSeconds to what the program needs",
    "grace-left": "wait for its end before you shut the node down",
    "grace-below-floor": "give its wave a period of at least 2 s",
    "wave-zero": "give the wave a period, or its pods another priority",
    "reserve-too-small": "set reserve: 3s",
    "priority-duplicate": "keep one entry of shutdownGracePeriodByPodPriority for each priority",
    "priority-unset": _WRITE_PRIORITY,
    "priority-class-only": _WRITE_PRIORITY,
    "priority-below": "add an entry for that priority to shutdownGracePeriodByPodPriority",
    "hook-invalid": "replace the tcpSocket hook by exec or httpGet",
    "sleep-cut": "shorten the sleep, or give the pod and its wave more time",
    "sleep-fills-grace": "shorten the sleep, or lengthen terminationGracePeriodSeconds beyond it",
}
#: The runtime knows no priorities: the manifest may be right.
NODE_CURES = CURES | {
    "priority-unset": "name a kubeconfig, or annotate the pods with ebbtide/priority: a number"
}
GRANT_WARNINGS = frozenset({"grant-too-small", "reserve-not-granted", "wave-cut", "disabled"})


def plan_warnings(snapshot: Snapshot) -> Findings:
    plan = snapshot.plan or Plan(enabled=False)
    cures = CURES if snapshot.node is None else NODE_CURES
    for (code, message), label in zip(plan.warnings, chain(plan.warned_pods, repeat("")), strict=False):
        if code not in GRANT_WARNINGS:
            yield warning(code, message, cures.get(code, "see 'ebbtide plan'"), label or None)


def deaf_processes(snapshot: Snapshot) -> Findings:
    for each in snapshot.forecasts:
        if each.verdict in ("ignores", "unclear"):
            label = snapshot.labels.get(each.uid, each.uid)
            message = f"{label}, container {each.container}, process {each.pid}: {each.signal}: {each.why}"
            cure = "handle the signal, start it under an init such as tini, or set stopSignal and os.name"
            level: Level = "warning" if each.verdict == "ignores" else "note"
            yield Finding(level, f"signal-{each.verdict}", message, cure, label)


RULES: tuple[Callable[[Snapshot], Findings], ...] = (
    configuration,
    daemon_and_lock,
    grant_too_small,
    kubelet_graceful_shutdown,
    other_locks,
    journal,
    ways_around_logind,
    measurements,
    packages_and_mode,
    kubelet_unit,
    runtime_away,
    api_server_away,
    rights,
    plan_warnings,
    deaf_processes,
)


def examine(snapshot: Snapshot) -> list[Finding]:
    return gravest_first(finding for rule in RULES for finding in rule(snapshot))


def gravest_first(findings: Iterable[Finding]) -> list[Finding]:
    levels = get_args(Level)
    return sorted(findings, key=lambda finding: levels.index(finding.level))

"""Values inside events: pods, hooks, periods and settings; and a pod's workload, from its name.

No field can hold a secret: no environment, no header values, no command output.
"""

from __future__ import annotations

import re
from typing import Literal

from msgspec.structs import replace

from ebbtide.events import kinds
from ebbtide.events.base import NS_PER_SECOND, BoundedDict, BoundedTuple, FrozenStruct

HookKind = Literal["exec", "httpGet", "sleep", "tcpSocket"]
ShutdownKind = Literal["poweroff", "reboot", "halt", "kexec", "soft-reboot", "unknown"]
Budget = Literal["strict", "elastic"]
#: Who ends a pod: "": Ebbtide (mode process); ``cri``: Ebbtide, through the container runtime; ``api``: the
#: kubelet, after a delete; ``observe``: the kubelet by itself.
TerminationMode = Literal["", "cri", "api", "observe"]
#: When the Ready condition becomes False. 300 s later the node's pods are evicted; a reboot may take longer.
Unready = Literal["poweroff", "always", "never"]
#: For the objects of ended pods that do not come back.
LeftPods = Literal["keep", "delete"]

#: The worst record in the kernel's crash store about the boot before. ``emergency``: a restart by SysRq.
CrashRecord = Literal["none", "panic", "oops", "emergency", "shutdown", "unread"]
#: ``absent``: without that boot. ``no-shutdown``: no sign of an orderly end.
WtmpEnd = Literal["absent", "shutdown", "no-shutdown", "unread"]
#: ``stopped``: the system journal ends with its own stop, because the service manager ended all processes
#: without stopping the units (``systemctl reboot --force``).
JournalEnd = Literal["absent", "shutdown", "stopped", "no-shutdown", "unread"]
#: ``never-begun``: no wave ran, though software ended the boot. ``abrupt``: no software recorded the end.
#: ``unknown``: no record could exist.
BootEnding = Literal["graceful", "cut-short", "never-begun", "abrupt", "unknown"]
#: Why it was not graceful, or an event after a graceful release. ``bypassed``: past our lock. ``time-over``:
#: in order, but too late. ``unrecorded``: a power cut, a reset, or a forced restart.
BootEndReason = Literal[
    "",
    "bypassed",
    "not-configured",
    "not-armed",
    "not-running",
    "time-over",
    "panic",
    "watchdog",
    "unrecorded",
]


class Value(FrozenStruct):
    """Base of the values."""


class Hook(Value):
    """``detail``, for people: a program's name, or a port and path."""

    kind: HookKind
    sleep_seconds: int = 0
    detail: kinds.HookDetail = ""


class Container(Value):
    """Only a running container gets a hook and a stop, as from the kubelet."""

    name: kinds.Container
    hook: Hook | None = None
    stop_signal: kinds.Signal = "SIGTERM"
    #: Stopped last, in reverse order.
    sidecar: bool = False
    running: bool = True
    #: Of an ended container, if known.
    exit_code: int | None = None
    #: The pod is being deleted, and the hook that its kubelet began has ended.
    hook_over: bool = False


class Deletion(Value):
    """``since_ns``: when the Pod was deleted, on this boot's monotonic clock.

    The API's ``deletionTimestamp`` is later by the grace.
    """

    since_ns: int
    grace_seconds: int

    @property
    def until_ns(self) -> int:
        return self.since_ns + self.grace_seconds * NS_PER_SECOND


class Pod(Value):
    """``containers`` are in the manifest's order, sidecars first."""

    uid: str
    namespace: str
    name: kinds.PodName
    priority: int | None = None
    grace_seconds: int | None = None
    containers: BoundedTuple[Container] = ()
    #: From a file: its object in the API is a mirror, and deleting that does not end the pod.
    static: bool = False
    #: Its file has no number: ``priority`` is from its class, and the kubelet counts 0.
    priority_assigned: bool = False
    #: If it is deleted before the node is tainted, its DaemonSet makes it again here.
    daemon: bool = False
    #: It tolerates the taint, so its DaemonSet makes it again even then.
    tolerates_all: bool = False
    #: The kubelet must unmount its volumes before another node may use them.
    volumes: bool = False
    #: ``Kind/name`` of its workload, which gets an Event if the pod is killed.
    owner: kinds.Owner = ""
    deletion: Deletion | None = None

    @property
    def label(self) -> str:
        return f"{self.namespace}/{self.name}"

    def on_clock(self, now_ns: int) -> Pod:
        if self.deletion is None:
            return self
        return replace(self, deletion=replace(self.deletion, since_ns=self.deletion.since_ns + now_ns))


class Period(Value):
    """An entry of ``shutdownGracePeriodByPodPriority`` (KEP-2712)."""

    priority: int
    seconds: int


class Settings(Value):
    """It has both the two-value form and the list: an actor migrates, not the parser."""

    shutdown_grace_period_ns: int = 0
    shutdown_grace_period_critical_pods_ns: int = 0
    by_pod_priority: BoundedTuple[Period] = ()
    #: Feature gates by the kubelet's names; absent means on.
    gates: BoundedDict[kinds.Word, bool] = {}
    budget: Budget = "strict"
    reserve_seconds: int = 5
    #: A drop-in may raise logind's limit.
    raise_grant: bool = True
    #: The longest wait at a shutdown's end for the delivery of pod statuses.
    status_flush_seconds: int = 2
    #: The same for the delivery of the trace.
    trace_flush_ns: int = 0
    #: Mode auto: ``api`` or ``cri`` by kind of shutdown; a missing kind has its default.
    means: BoundedDict[kinds.Word, kinds.Word] = {}
    unready: Unready = "poweroff"
    left_pods: LeftPods = "keep"
    #: `events.decisions.PROJECTION_VERSION` of this program.
    projection_version: int = 1
    #: OTEL_RESOURCE_ATTRIBUTES.
    resource: BoundedDict[str, str] = {}

    def gate(self, name: str) -> bool:
        return self.gates.get(name, True)


class PlannedPod(Value):
    """``volumes``: its wave also waits for their unmount."""

    uid: str
    grace_seconds: int
    volumes: bool = False


class PlannedWave(Value):
    """``pods`` in inventory order, ``period_seconds`` under the grant."""

    priority: int
    period_seconds: int
    pods: BoundedTuple[PlannedPod] = ()
    #: After the API's last wave: through the runtime, pods that a delete does not end.
    handover: bool = False


class LockHolder(Value):
    """Another program's delay lock on shutdown, from logind's ``ListInhibitors``."""

    who: kinds.Command
    why: str
    pid: int
    uid: kinds.Person


class ProcessReport(Value):
    """One process of an autopsy, from ``/proc``."""

    pid: int
    parent_pid: int
    command: kinds.Command
    state: kinds.Word
    wait_channel: kinds.KernelSymbol = ""
    signals_caught: BoundedTuple[kinds.Signal] = ()
    signals_ignored: BoundedTuple[kinds.Signal] = ()
    connections: int = 0


# Controllers name pods with random letters from a small alphabet (``rand.SafeEncodeString``): five for a pod
# (DaemonSet, Job, ReplicaSet), before them up to ten for a Deployment's ReplicaSet. A StatefulSet counts. A
# static pod's name ends with its node's.

_RANDOM_CHARACTER = "[bcdfghjklmnpqrstvwxz2456789]"
_RANDOM_SUFFIXES = (
    re.compile(rf"(.+)-{_RANDOM_CHARACTER}{{6,10}}-{_RANDOM_CHARACTER}{{5}}"),
    re.compile(rf"(.+)-{_RANDOM_CHARACTER}{{5}}"),
)
_ORDINAL_SUFFIX = re.compile(r"(.+)-[0-9]{1,5}")


def pod_name_stem(name: str, node: str = "") -> str:
    """The name without its random part: ``web-7d4b9c6f5-x2x9k`` is ``web``, ``db-0`` stays."""
    if node and name.endswith(f"-{node}") and name != f"-{node}":
        return name.removesuffix(f"-{node}")
    found = next((match for pattern in _RANDOM_SUFFIXES if (match := pattern.fullmatch(name))), None)
    return found[1] if found else name


def workload_name(name: str, node: str = "") -> str:
    """Without a replica's number: ``db-0`` is ``db``."""
    stem = pod_name_stem(name, node)
    counted = _ORDINAL_SUFFIX.fullmatch(stem) if stem == name else None
    return counted[1] if counted else stem

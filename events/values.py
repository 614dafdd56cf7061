"""Values inside events: pods, hooks, periods and settings, as whitelisted projections; and a pod's workload,
as far as its name shows.

No field can hold a secret: no environment, no header values, no command output. Numbers are integers; names
say seconds or nanoseconds.
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
#: Who ends a pod: "": Ebbtide, its processes (mode process); ``cri``: Ebbtide, its containers through the
#: runtime; ``api``: the kubelet, after a delete; ``observe``: the kubelet by itself.
TerminationMode = Literal["", "cri", "api", "observe"]
#: When the node's Ready condition becomes False. 300 s later its pods are evicted, and a reboot may take
#: longer.
Unready = Literal["poweroff", "always", "never"]
#: The fate of the objects of ended pods that do not come back.
LeftPods = Literal["keep", "delete"]

#: The kernel's crash store, about the boot before: empty; a panic, an oops; an emergency restart (SysRq), an
#: orderly end; or unreadable. The worst one counts.
CrashRecord = Literal["none", "panic", "oops", "emergency", "shutdown", "unread"]
#: A system log about a boot's end: without that boot; an orderly end; no sign of one; or unreadable.
WtmpEnd = Literal["absent", "shutdown", "no-shutdown", "unread"]
#: ``stopped``: the system journal ends with its own stop: the service manager ended all processes without
#: stopping the units (``systemctl reboot --force``).
JournalEnd = Literal["absent", "shutdown", "stopped", "no-shutdown", "unread"]
#: How a boot ended for its pods. ``never-begun``: by software, and no wave ran. ``abrupt``: no software
#: recorded it. ``unknown``: no record could exist.
BootEnding = Literal["graceful", "cut-short", "never-begun", "abrupt", "unknown"]
#: Why it was not graceful, or a graceful boot's event after the release. ``bypassed``: past our lock.
#: ``time-over``: in order, but too late. ``unrecorded``: a power cut, a reset, or a forced restart.
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
    """Base of the value structs."""


class Hook(Value):
    """A preStop handler. ``detail`` is for people only: a program's name, or a port and path."""

    kind: HookKind
    sleep_seconds: int = 0
    detail: kinds.HookDetail = ""


class Container(Value):
    """One container. Only a running one gets a hook and a stop, as from the kubelet."""

    name: kinds.Container
    hook: Hook | None = None
    stop_signal: kinds.Signal = "SIGTERM"
    #: An init container with ``restartPolicy: Always``: stopped last, in reverse order.
    sidecar: bool = False
    running: bool = True
    #: Of a container that does not run, if known.
    exit_code: int | None = None
    #: Of a pod that is being deleted: the hook that its kubelet began has ended.
    hook_over: bool = False


class Deletion(Value):
    """A Pod's ``deletionTimestamp`` and ``deletionGracePeriodSeconds``.

    ``since_ns``: when it was deleted, on this boot's monotonic clock.
    """

    since_ns: int
    grace_seconds: int

    @property
    def until_ns(self) -> int:
        return self.since_ns + self.grace_seconds * NS_PER_SECOND


class Pod(Value):
    """What a shutdown needs to know of a pod. ``containers`` are in the manifest's order, sidecars first."""

    uid: str
    namespace: str
    name: kinds.PodName
    priority: int | None = None
    grace_seconds: int | None = None
    containers: BoundedTuple[Container] = ()
    #: Made by the kubelet from a file: its object in the API is a mirror, which no delete ends.
    static: bool = False
    #: Its file has no number: ``priority`` is of the class, and the kubelet counts 0.
    priority_assigned: bool = False
    #: Of a DaemonSet: deleted before the node is tainted, it is made again here.
    daemon: bool = False
    #: Tolerates the Node's taint, by name or with all others, so a DaemonSet makes it again here even then.
    tolerates_all: bool = False
    #: Has volumes that the kubelet must unmount before another node may use them.
    volumes: bool = False
    #: Its workload as ``Kind/name``, which gets an Event if the pod is killed.
    owner: kinds.Owner = ""
    #: It is being deleted already.
    deletion: Deletion | None = None

    @property
    def label(self) -> str:
        return f"{self.namespace}/{self.name}"

    def on_clock(self, now_ns: int) -> Pod:
        if self.deletion is None:
            return self
        return replace(self, deletion=replace(self.deletion, since_ns=self.deletion.since_ns + now_ns))


class Period(Value):
    """One entry of ``shutdownGracePeriodByPodPriority`` (KEP-2712)."""

    priority: int
    seconds: int


class Settings(Value):
    """The loaded configuration, canonical and validated.

    Keeps both the two-value form and the list: migration is a decision, not parsing.
    """

    shutdown_grace_period_ns: int = 0
    shutdown_grace_period_critical_pods_ns: int = 0
    by_pod_priority: BoundedTuple[Period] = ()
    #: Feature gates by name (GracefulNodeShutdown, GracefulNodeShutdownBasedOnPodPriority,
    #: PodLifecycleSleepAction, PodLifecycleSleepActionAllowZero); absent means on.
    gates: BoundedDict[kinds.Word, bool] = {}
    budget: Budget = "strict"
    reserve_seconds: int = 5
    #: Whether a drop-in may raise logind's limit.
    raise_grant: bool = True
    #: How long the end of a shutdown may wait for the delivery of pod statuses.
    status_flush_seconds: int = 2
    #: How long it may wait for the delivery of the trace; 0: not at all.
    trace_flush_ns: int = 0
    #: Mode auto: ``api`` or ``cri`` by kind of shutdown; a missing kind has its default.
    means: BoundedDict[kinds.Word, kinds.Word] = {}
    unready: Unready = "poweroff"
    left_pods: LeftPods = "keep"
    #: How this program makes spans (`events.decisions.PROJECTION_VERSION`).
    projection_version: int = 1
    #: Telemetry's attributes of this node beside its names, such as its cluster (OTEL_RESOURCE_ATTRIBUTES).
    resource: BoundedDict[str, str] = {}

    def gate(self, name: str) -> bool:
        return self.gates.get(name, True)


class PlannedPod(Value):
    """``volumes``: within its time, its wave also waits for their unmount."""

    uid: str
    grace_seconds: int
    volumes: bool = False


class PlannedWave(Value):
    """A wave of the plan: ``pods`` in inventory order, ``period_seconds`` under the grant."""

    priority: int
    period_seconds: int
    pods: BoundedTuple[PlannedPod] = ()
    #: After the API's last wave: pods that no delete ends, through the runtime.
    handover: bool = False


class LockHolder(Value):
    """Another program with a delay lock on shutdown, in the words of logind's ``ListInhibitors``."""

    who: kinds.Command
    why: str
    pid: int
    uid: kinds.Person


class ProcessReport(Value):
    """One process of an autopsy, from ``/proc`` just before SIGKILL."""

    pid: int
    parent_pid: int
    command: kinds.Command
    state: kinds.Word
    wait_channel: kinds.KernelSymbol = ""
    signals_caught: BoundedTuple[kinds.Signal] = ()
    signals_ignored: BoundedTuple[kinds.Signal] = ()
    connections: int = 0


# Controllers name pods by fixed patterns, from an alphabet without vowels and look-alikes
# (``rand.SafeEncodeString``): five letters for a pod (DaemonSet, Job, ReplicaSet), before them up to ten for
# a Deployment's ReplicaSet; a StatefulSet counts; a static pod's name ends with its node's.

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
    """The same, without a replica's number: ``db-0`` is ``db``."""
    stem = pod_name_stem(name, node)
    counted = _ORDINAL_SUFFIX.fullmatch(stem) if stem == name else None
    return counted[1] if counted else stem

"""Values inside events: pods, hooks, periods and settings, as whitelisted projections.

Nothing secret can stand here, because there is no field for it: no environment, no header values, no
command output. Numbers are integers; seconds and nanoseconds are in the names. At the end: which workload a
pod belongs to, as far as its name tells.
"""

from __future__ import annotations

import re
from typing import Literal

from ebbtide.events.base import FrozenStruct

HookKind = Literal["exec", "httpGet", "sleep", "tcpSocket"]
ShutdownKind = Literal["poweroff", "reboot", "halt", "kexec", "soft-reboot", "unknown"]
Budget = Literal["strict", "elastic"]
#: Who ends a pod, and how: its own processes directly ("": mode process), its containers through the runtime,
#: the kubelet because the API server deletes it, or the kubelet of its own accord, and we look on.
TerminationMode = Literal["", "cri", "api", "observe"]
#: When the node's Ready condition is set to False. After 300 s of it pods are evicted, and a node that only
#: reboots may take longer.
Unready = Literal["poweroff", "always", "never"]
#: What becomes of the objects of ended pods that do not come back.
LeftPods = Literal["keep", "delete"]

#: What a kernel's crash store has of the boot before: nothing; a panic, an oops; that the kernel was told to
#: restart in an emergency (SysRq), or to go down in order; or it could not be read. The worst of all counts.
CrashRecord = Literal["none", "panic", "oops", "emergency", "shutdown", "unread"]
#: What a log of the system has of a boot's end: it has nothing of that boot; the machine went down in order;
#: it does not say that it did; or it could not be read.
WtmpEnd = Literal["absent", "shutdown", "no-shutdown", "unread"]
#: ``stopped``: the system journal's last word is that it was told to stop, and no more: the service manager
#: ended all processes without stopping the units first (``systemctl reboot --force``).
JournalEnd = Literal["absent", "shutdown", "stopped", "no-shutdown", "unread"]
#: How a boot ended for its pods. ``never-begun``: by software, and no wave ran. ``abrupt``: not by software,
#: as far as anybody has written it down. ``unknown``: there is nobody who would have.
BootEnding = Literal["graceful", "cut-short", "never-begun", "abrupt", "unknown"]
#: What kept it from being graceful, or, of a graceful one, happened after the release. ``bypassed``: the
#: machine went down past our lock. ``time-over``: in order, but its time was over. ``unrecorded``: what
#: nobody can write down: a power cut, a reset, a restart that was forced past everybody.
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

    redaction = {"detail": "hook"}

    kind: HookKind
    sleep_seconds: int = 0
    detail: str = ""


class Container(Value):
    """One container. Only a running one gets a hook and a stop, as from the kubelet."""

    redaction = {"name": "container", "stop_signal": "signal"}

    name: str
    hook: Hook | None = None
    stop_signal: str = "SIGTERM"
    #: An init container with ``restartPolicy: Always``: stopped last, in reverse order.
    sidecar: bool = False
    running: bool = True


class Pod(Value):
    """What a shutdown needs to know of a pod. ``containers`` are in the manifest's order, sidecars first."""

    redaction = {"namespace": "namespace", "name": "pod", "owner": "owner"}

    uid: str
    namespace: str
    name: str
    priority: int | None = None
    grace_seconds: int | None = None
    containers: tuple[Container, ...] = ()
    #: Made by the kubelet from a file: no delete reaches it, its object in the API is only a mirror.
    static: bool = False
    #: Of a DaemonSet: deleted before the node is tainted, it is made again here.
    daemon: bool = False
    #: Tolerates whatever taint, so that a DaemonSet makes it again here all the same.
    tolerates_all: bool = False
    #: Has volumes that the kubelet must unmount before another node may have them.
    volumes: bool = False
    #: The workload that it belongs to, as ``Kind/name``: who is told when it had to be killed.
    owner: str = ""

    @property
    def label(self) -> str:
        return f"{self.namespace}/{self.name}"


class Period(Value):
    """One entry of ``shutdownGracePeriodByPodPriority`` (KEP-2712)."""

    priority: int
    seconds: int


class Settings(Value):
    """The loaded configuration, canonical and validated, before the core interprets it.

    The two-value form and the list are both kept as given: migration is a decision, not parsing.
    """

    redaction = {"gates": "word", "means": "word", "resource": "message"}

    shutdown_grace_period_ns: int = 0
    shutdown_grace_period_critical_pods_ns: int = 0
    by_pod_priority: tuple[Period, ...] = ()
    #: Feature gates by name (GracefulNodeShutdown, GracefulNodeShutdownBasedOnPodPriority,
    #: PodLifecycleSleepAction, PodLifecycleSleepActionAllowZero); absent means on.
    gates: dict[str, bool] = {}
    budget: Budget = "strict"
    reserve_seconds: int = 5
    #: Whether logind's limit may be raised with a drop-in.
    raise_grant: bool = True
    #: How long the end of a shutdown may wait for pod statuses to be delivered.
    status_flush_seconds: int = 2
    #: How long it may wait for the trace's spans to arrive; 0: nothing is exported, or nobody waits.
    trace_flush_ns: int = 0
    #: Mode auto: ``api`` or ``cri`` by kind of shutdown; a kind that is not here has its default.
    means: dict[str, str] = {}
    unready: Unready = "poweroff"
    left_pods: LeftPods = "keep"
    #: How this program makes spans of a shutdown's records (`events.decisions.PROJECTION_VERSION`).
    projection_version: int = 1
    #: What telemetry says of this node beside its names, such as its cluster (OTEL_RESOURCE_ATTRIBUTES).
    resource: dict[str, str] = {}

    def gate(self, name: str) -> bool:
        return self.gates.get(name, True)


class PlannedPod(Value):
    """``volumes``: its wave also waits, while it has time, until these are unmounted."""

    uid: str
    grace_seconds: int
    volumes: bool = False


class PlannedWave(Value):
    """A wave of the plan: ``pods`` in inventory order, ``period_seconds`` under the grant."""

    priority: int
    period_seconds: int
    pods: tuple[PlannedPod, ...] = ()
    #: After the API's last wave: pods that no delete ends, through the runtime.
    handover: bool = False


class Handover(Value):
    """A pod as a failed actor leaves it: ``begun_ns`` 0 if its stop has not begun, ``exited`` containers."""

    pod: Pod
    wave: int
    grace_ns: int
    begun_ns: int = 0
    exited: tuple[str, ...] = ()


class ProcessReport(Value):
    """One process of an autopsy, as ``/proc`` showed it just before SIGKILL."""

    redaction = {
        "command": "command",
        "state": "word",
        "wait_channel": "kernel symbol",
        "signals_caught": "signal",
        "signals_ignored": "signal",
    }

    pid: int
    parent_pid: int
    command: str
    state: str
    wait_channel: str = ""
    signals_caught: tuple[str, ...] = ()
    signals_ignored: tuple[str, ...] = ()
    connections: int = 0


# --- workloads ------------------------------------------------------------------------------------
#
# A journal knows pods by name, not by their owners. Controllers name pods by fixed patterns, from an alphabet
# without vowels and look-alikes (Kubernetes, "Object names and IDs"; ``rand.SafeEncodeString``): five letters
# for a pod (DaemonSet, Job, ReplicaSet), before them up to ten for a Deployment's ReplicaSet; a StatefulSet
# counts; a static pod ends with its node's name. What is left is stable from one shutdown to the next.

_RANDOM_CHARACTER = "[bcdfghjklmnpqrstvwxz2456789]"
_RANDOM_SUFFIXES = (
    re.compile(rf"(.+)-{_RANDOM_CHARACTER}{{6,10}}-{_RANDOM_CHARACTER}{{5}}"),
    re.compile(rf"(.+)-{_RANDOM_CHARACTER}{{5}}"),
)
_ORDINAL_SUFFIX = re.compile(r"(.+)-[0-9]{1,5}")


def pod_name_stem(name: str, node: str = "") -> str:
    """Without what is drawn anew for each pod: ``web-7d4b9c6f5-x2x9k`` is ``web``, ``db-0`` stays."""
    if node and name.endswith(f"-{node}") and name != f"-{node}":
        return name.removesuffix(f"-{node}")
    found = next((match for pattern in _RANDOM_SUFFIXES if (match := pattern.fullmatch(name))), None)
    return found[1] if found else name


def workload_name(name: str, node: str = "") -> str:
    """The same, and replicas that are counted are one: ``db-0`` is ``db``."""
    stem = pod_name_stem(name, node)
    counted = _ORDINAL_SUFFIX.fullmatch(stem) if stem == name else None
    return counted[1] if counted else stem

"""Values inside events: pods, hooks, periods and settings, as whitelisted projections.

Nothing secret can stand here, because there is no field for it: no environment, no header values, no
command output. Numbers are integers; seconds and nanoseconds are in the names.
"""

from __future__ import annotations

from typing import Literal

import msgspec

HookKind = Literal["exec", "httpGet", "sleep", "tcpSocket"]
ShutdownKind = Literal["poweroff", "reboot", "halt", "kexec", "soft-reboot", "unknown"]
Budget = Literal["strict", "elastic"]


class Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Base of the value structs."""


class Hook(Value, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A preStop handler. ``detail`` is for people only: a program's name, or a port and path."""

    kind: HookKind
    sleep_seconds: int = 0
    detail: str = ""


class Container(Value, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One container. Only running ones get a hook and a stop (facts-kubelet 4.1)."""

    name: str
    hook: Hook | None = None
    stop_signal: str = "SIGTERM"
    #: An init container with ``restartPolicy: Always``: stopped last, in reverse order.
    sidecar: bool = False
    running: bool = True


class Pod(Value, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a shutdown needs to know of a pod. ``containers`` are in the manifest's order, sidecars first."""

    uid: str
    namespace: str
    name: str
    priority: int | None = None
    grace_seconds: int | None = None
    containers: tuple[Container, ...] = ()

    @property
    def label(self) -> str:
        return f"{self.namespace}/{self.name}"


class Period(Value, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One entry of ``shutdownGracePeriodByPodPriority`` (KEP-2712)."""

    priority: int
    seconds: int


class Settings(Value, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The loaded configuration, canonical and validated, before the core interprets it.

    The two-value form and the list are both kept as given: migration is a decision, not parsing.
    """

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

    def gate(self, name: str) -> bool:
        return self.gates.get(name, True)


class PlannedPod(Value, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    uid: str
    grace_seconds: int


class PlannedWave(Value, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A wave of the plan: ``pods`` in inventory order, ``period_seconds`` under the grant."""

    priority: int
    period_seconds: int
    pods: tuple[PlannedPod, ...] = ()


class Handover(Value, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A pod as a failed actor leaves it: ``begun_ns`` 0 if its stop has not begun, ``exited`` containers."""

    pod: Pod
    wave: int
    grace_ns: int
    begun_ns: int = 0
    exited: tuple[str, ...] = ()


class ProcessReport(Value, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One process of an autopsy, as ``/proc`` showed it just before SIGKILL."""

    pid: int
    parent_pid: int
    command: str
    state: str
    wait_channel: str = ""
    signals_caught: tuple[str, ...] = ()
    signals_ignored: tuple[str, ...] = ()
    connections: int = 0

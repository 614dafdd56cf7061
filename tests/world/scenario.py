"""A world's events: plain data, drawn from a seed (`drawing`) or written below.

Scenario and seed determine the world to the last step. Times are nanoseconds after the boot unless named
otherwise.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from ebbtide.events.base import NS_PER_MS as MS
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.values import Container, Hook, Period, Pod, Settings, ShutdownKind
from ebbtide.replay.sim.scenario import ContainerPlan, Faults, HookPlan, PodPlan
from tests.world.node import Features

What = Literal[
    "shutdown",
    "cancel",
    "logind-restart",
    "bus-loss",
    "wall-step",
    "hurry",
    "release",
    "reload",
    "crash",
    "power-cut",
    "unit-stop",
    "force",
    "disk-fault",
    "runtime-hang",
    "api-hang",
]


class Act(NamedTuple):
    """A node event at ``at_ns``. ``value`` depends on its kind."""

    at_ns: int
    what: What
    kind: ShutdownKind = "poweroff"
    value: int = 0
    text: str = ""


class BootPlan(NamedTuple):
    """One boot. ``lasts_ns``: the latest power cut."""

    acts: tuple[Act, ...] = ()
    uptime_ns: int = 10 * NS_PER_SECOND
    lasts_ns: int = 120 * NS_PER_SECOND
    #: The final unit fails the first time.
    final_fails_ns: int | None = None
    #: How the API server behaves.
    api: Faults = Faults()


class Scenario(NamedTuple):
    """A whole world.

    ``crash_at``: points of a daemon's death, over all lives. ``cut_at``: the power cut's point; 0 for never.
    """

    settings: Settings
    other_settings: Settings
    features: Features
    pods: tuple[PodPlan, ...]
    boots: tuple[BootPlan, ...]
    crash_at: tuple[int, ...] = ()
    cut_at: int = 0
    restart_ns: int = 100 * MS


# --- by hand


def two_waves() -> Scenario:
    """The smallest complete shutdown: two waves, three pods, one hook, one SIGKILL."""

    def planned(name: str, behaviour: ContainerPlan, grace: int, priority: int = 0) -> PodPlan:
        app = Container(name="app", hook=Hook(kind="exec") if name == "web" else None)
        made = Pod(
            uid=name,
            namespace="default",
            name=name,
            priority=priority,
            grace_seconds=grace,
            containers=(app,),
        )
        return PodPlan(made, {"app": behaviour})

    pods = (
        planned("web", ContainerPlan(stop_ns=300 * MS, hook=HookPlan(takes_ns=500 * MS)), 3),
        planned("stuck", ContainerPlan(stop_ns=None), 3),
        planned("last", ContainerPlan(stop_ns=100 * MS), 2, priority=1000),
    )
    settings = Settings(
        by_pod_priority=(Period(priority=0, seconds=4), Period(priority=1000, seconds=2)),
        reserve_seconds=3,
        status_flush_seconds=1,
    )
    plans = (BootPlan(acts=(Act(NS_PER_SECOND, "shutdown"),), lasts_ns=30 * NS_PER_SECOND), QUIET_BOOT)
    return Scenario(settings, settings, Features(others_ns=30 * NS_PER_SECOND), pods, plans)


#: A boot in which the daemon only looks back.
QUIET_BOOT = BootPlan(uptime_ns=5 * NS_PER_SECOND, lasts_ns=3 * NS_PER_SECOND)

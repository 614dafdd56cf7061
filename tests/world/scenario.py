"""What happens in one world: plain data, drawn from a seed (`drawing`) or written by hand (below).

The same scenario with the same seed is the same world, to the last step. Times are nanoseconds after the boot
unless their name says otherwise.
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
    """Something that happens to the node at ``at_ns``. ``value``: what it needs, by its kind."""

    at_ns: int
    what: What
    kind: ShutdownKind = "poweroff"
    value: int = 0
    text: str = ""


class BootPlan(NamedTuple):
    """One boot. ``lasts_ns``: the power is cut then, if nothing else has ended it."""

    acts: tuple[Act, ...] = ()
    uptime_ns: int = 10 * NS_PER_SECOND
    lasts_ns: int = 120 * NS_PER_SECOND
    #: The final unit fails the first time.
    final_fails_ns: int | None = None
    #: How the API server behaves.
    api: Faults = Faults()


class Scenario(NamedTuple):
    """A whole world.

    ``crash_at``: points at which a daemon dies, counted over all its lives. ``cut_at``: the point at which
    the power goes; 0 for never.
    """

    settings: Settings
    other_settings: Settings
    features: Features
    pods: tuple[PodPlan, ...]
    boots: tuple[BootPlan, ...]
    crash_at: tuple[int, ...] = ()
    cut_at: int = 0
    restart_ns: int = 100 * MS


# --- by hand -----------------------------------------------------------------------------------


def two_waves(*, boots: int = 2) -> Scenario:
    """The smallest shutdown with everything in it: two waves, three pods, one hook, one SIGKILL."""
    web = Pod(
        uid="web",
        namespace="default",
        name="web",
        priority=0,
        grace_seconds=3,
        containers=(Container(name="app", hook=Hook(kind="exec")),),
    )
    stuck = Pod(
        uid="stuck",
        namespace="default",
        name="stuck",
        priority=0,
        grace_seconds=3,
        containers=(Container(name="app"),),
    )
    last = Pod(
        uid="last",
        namespace="default",
        name="last",
        priority=1000,
        grace_seconds=2,
        containers=(Container(name="app"),),
    )
    behaviours = (
        ContainerPlan(stop_ns=300 * MS, hook=HookPlan(takes_ns=500 * MS)),
        ContainerPlan(stop_ns=None),
        ContainerPlan(stop_ns=100 * MS),
    )
    pods = tuple(
        PodPlan(pod, {"app": behaviour})
        for pod, behaviour in zip((web, stuck, last), behaviours, strict=True)
    )
    settings = Settings(
        by_pod_priority=(Period(priority=0, seconds=4), Period(priority=1000, seconds=2)),
        reserve_seconds=3,
        status_flush_seconds=1,
    )
    plans = (BootPlan(acts=(Act(NS_PER_SECOND, "shutdown"),), lasts_ns=30 * NS_PER_SECOND), QUIET_BOOT)
    return Scenario(settings, settings, Features(others_ns=30 * NS_PER_SECOND), pods, plans[:boots])


#: A boot in which nothing happens but that the daemon looks back.
QUIET_BOOT = BootPlan(uptime_ns=5 * NS_PER_SECOND, lasts_ns=3 * NS_PER_SECOND)

"""What can happen to a node, act by act: one short function each, and the table of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.values import Settings
from tests.world.daemon import Life
from tests.world.disks import Disks
from tests.world.node import Node
from tests.world.scenario import Act, Scenario, What


class Machine(Protocol):
    """The world as an act sees it. ``life``: the daemon that runs now, or ran last."""

    scenario: Scenario
    settings: Settings
    disks: Disks
    life: Life | None


async def shutdown(world: Machine, node: Node, act: Act) -> None:
    node.logind.shutdown(act.kind)


async def cancel(world: Machine, node: Node, act: Act) -> None:
    node.logind.cancel()


async def logind_restart(world: Machine, node: Node, act: Act) -> None:
    node.logind.restart(act.value, bool(act.text))


async def bus_loss(world: Machine, node: Node, act: Act) -> None:
    node.logind.disconnect()


async def wall_step(world: Machine, node: Node, act: Act) -> None:
    node.clock.wall_step_ns += act.value
    node.log.note("wall-step", detail=f"{act.value / NS_PER_SECOND:g}")


async def hurry(world: Machine, node: Node, act: Act) -> None:
    if world.life is not None and world.scenario.pods:
        pod = world.scenario.pods[act.value % len(world.scenario.pods)].pod
        node.log.note("hurry", pod.uid)
        await world.life.hurry(pod.uid)


async def release(world: Machine, node: Node, act: Act) -> None:
    if world.life is not None:
        await world.life.release()


async def reload(world: Machine, node: Node, act: Act) -> None:
    world.settings = world.scenario.other_settings
    node.log.note("reload")
    if world.life is not None:
        world.life.signal("HUP")


async def crash(world: Machine, node: Node, act: Act) -> None:
    if world.life is not None:
        world.life.crash("by the scenario")


async def power_cut(world: Machine, node: Node, act: Act) -> None:
    node.cut_power()


async def unit_stop(world: Machine, node: Node, act: Act) -> None:
    """``systemctl restart``: the unit alone is stopped, and started again a little later."""
    if world.life is not None and not node.stopping:
        node.log.note("unit-stop")
        world.life.signal("TERM")


async def force(world: Machine, node: Node, act: Act) -> None:
    node.stop("reboot")


async def disk_fault(world: Machine, node: Node, act: Act) -> None:
    node.log.note("disk-fault", detail=world.disks.fault(act.value))


async def runtime_hang(world: Machine, node: Node, act: Act) -> None:
    """For so long; 0: for good."""
    node.runtime.hang()
    if act.value:
        node.timer.later(act.value, node.runtime.wake)


async def api_hang(world: Machine, node: Node, act: Act) -> None:
    """As `runtime_hang`, the API server."""
    node.api.hang()
    if act.value:
        node.timer.later(act.value, node.api.wake)


ACTS: dict[What, Callable[[Machine, Node, Act], Awaitable[None]]] = {
    "shutdown": shutdown,
    "cancel": cancel,
    "logind-restart": logind_restart,
    "bus-loss": bus_loss,
    "wall-step": wall_step,
    "hurry": hurry,
    "release": release,
    "reload": reload,
    "crash": crash,
    "power-cut": power_cut,
    "unit-stop": unit_stop,
    "force": force,
    "disk-fault": disk_fault,
    "runtime-hang": runtime_hang,
    "api-hang": api_hang,
}

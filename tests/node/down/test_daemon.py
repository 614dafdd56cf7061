"""Faults of the daemon during a shutdown: killed, packages removed, clock changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from ebbtide.events.decisions import ReleaseLock
from ebbtide.events.facts import ClockStepped, DaemonStarted, InventoryTaken
from tests.beds.skipping import or_skip
from tests.node.going import Going
from tests.node.stand_ins import Clock, Installation
from tests.node.witness import NS
from tests.waiting import until

pytestmark = [pytest.mark.node]
#: Too long for a slow machine: each wave ends with its pods.
WAVES = ((1000, 600), (3000, 600))
HOUR_NS = 3600 * NS


async def two(node: Going, **low: Any) -> None:
    """One pod with a hook in each of two waves; ``low``: the first pod's end."""
    how = {"hook": True, "terminationGracePeriodSeconds": 600}
    await node.run(
        node.witness.pod("low", priorityClassName="low", **how, **(low or {"ends_after": 3})),
        node.witness.pod("high", ends_after=0.3, priorityClassName="high", **how),
    )


def as_ever(node: Going) -> None:
    node.in_order("low", "high")
    assert [len(node.witness.times(name, "hook")) for name in ("low", "high")] == [1, 1]
    assert node.outcomes() == {"low": "graceful", "high": "graceful"}


@pytest.mark.gate
async def test_killed(node: Going) -> None:
    """Killed in the first wave, it continues under the kept lock: no repeated hook, no skipped wave, no
    new pod.
    """
    node.daemon.keep_lock = True
    await two(node, waits=True)
    await node.arm(*WAVES)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_kill_in_the_first_wave, node)
        await node.down()
    assert len(node.daemon.events(DaemonStarted)) == 2
    assert len(node.daemon.events(ReleaseLock)) == 1
    as_ever(node)
    assert [len(node.witness.times(name, "began")) for name in ("low", "high")] == [1, 1]


async def _kill_in_the_first_wave(node: Going) -> None:
    await node.signalled("low")
    await node.bed.run("kill", "-9", str(node.daemon.events(DaemonStarted)[-1].pid))
    # Wait for the next daemon. The kubelet removes an ended container within a second: an end before the
    # daemon's first look is really unknown.
    await until(lambda: _has_looked(node), "no daemon starts again")
    node.witness.lets_end("low")


def _has_looked(node: Going) -> bool:
    kinds = [type(record.event) for record in node.daemon.records()]
    starts = [at for at, kind in enumerate(kinds) if kind is DaemonStarted]
    return len(starts) == 2 and InventoryTaken in kinds[starts[-1] :]


async def test_packages_removed(node: Going, tmp_path: Path) -> None:
    """A shutdown imports no module, so missing packages do not matter."""
    installed = Installation(tmp_path / "installed")
    node.daemon.program = installed.command
    await two(node)
    await node.arm(*WAVES)
    installed.remove()
    await node.down()
    as_ever(node)
    await node.final("low", "high")


@pytest.mark.parametrize("by_ns", [HOUR_NS, -HOUR_NS], ids=["forward", "back"])
async def test_clock_stepped(node: Going, tmp_path: Path, by_ns: int) -> None:
    """A changed wall clock is recorded and moves no deadline."""
    with or_skip():
        clock = await trio.to_thread.run_sync(Clock, tmp_path)
    node.daemon.program = clock.command
    await two(node)
    await node.arm(*WAVES)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_set_in_the_first_wave, node, clock, by_ns)
        asked_ns, over_ns = await node.down()
    (stepped,) = node.daemon.events(ClockStepped)
    assert abs(stepped.delta_ns - by_ns) < NS
    as_ever(node)
    assert over_ns - asked_ns < 15 * NS


async def _set_in_the_first_wave(node: Going, clock: Clock, by_ns: int) -> None:
    await node.signalled("low")
    clock.step(by_ns)

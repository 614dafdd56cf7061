"""The whole of it on a whole machine: the built wheel, the shipped unit, systemd as it is delivered."""

from __future__ import annotations

import pytest

from events.decisions import EpisodeClosed, PodsEnded, ReleaseLock, ShutdownBegan
from tests.beds.machine import Machine
from tests.machine.node import Node

pytestmark = [pytest.mark.root, pytest.mark.machine]

LEFT_SECONDS_MAX = 40


@pytest.fixture
async def node(machine: Machine) -> Node:
    """Installed, with two pods in two waves; not booted."""
    made = Node(machine)
    made.install()
    made.configure({0: 6, 1000: 6})
    made.pod("web", "after=1", hook=1)
    made.pod("db", "after=1", priority=1000)
    return made


def waited_for_us(node: Node) -> None:
    """Every pod was ended in its order, and the release is on the machine's disk."""
    assert [mark.what for mark in node.trace("web")] == ["up", "hook", "hooked", "TERM", "gone"]
    assert [mark.what for mark in node.trace("db")] == ["up", "TERM", "gone"]
    assert node.trace("web")[-1].at_ns < node.trace("db")[1].at_ns
    assert len(node.events(ReleaseLock)) == 1
    assert node.events(PodsEnded)[-1].unfinished == ()
    assert node.replays() > 0


async def test_poweroff_waits_and_the_next_boot_says_complete(node: Node) -> None:
    """`systemctl poweroff` waits for both waves; the next boot finds the journal and says how it ended."""
    await node.machine.boot()
    await node.armed("web", "db")
    await node.machine.run("systemctl", "poweroff")
    assert await node.machine.wait_left(LEFT_SECONDS_MAX) == 0
    waited_for_us(node)
    assert [began.kind for began in node.events(ShutdownBegan)] == ["poweroff"]
    await node.machine.boot()
    await node.armed("web", "db")
    assert [closed.outcome for closed in node.events(EpisodeClosed)] == ["complete"]
    assert "last shutdown: complete" in await node.log()
    await node.machine.pull_the_plug()

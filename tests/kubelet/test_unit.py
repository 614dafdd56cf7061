"""What the kubelet's edge refuses or cannot do, without a service manager."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.edges.kubelet import KubeletEdge
from actors.edges.kubelet.unit import WHOLE
from actors.interfaces import Ending
from events.decisions import StartKubelet, StopKubelet
from events.facts import KubeletRead
from tests.process.process_bed import Outbox

NOWHERE = "unix:path=/nowhere/bus"


@pytest.mark.parametrize("name", WHOLE)
async def test_a_unit_that_is_the_runtime_too_is_not_stopped(name: str) -> None:
    """k3s and its like: the socket that ends containers would go with it."""
    edge, outbox = KubeletEdge(f"{name}.service", address=NOWHERE), Outbox()
    ending = await edge.adopt(StopKubelet(key="s"), outbox)
    assert outbox.facts == [KubeletRead(unit=f"{name}.service", stoppable=False)]
    assert ending == Ending(
        "failed",
        f"{name}.service is the kubelet and the container runtime in one: "
        "without it no container could be stopped",
    )


async def test_no_bus() -> None:
    """Nothing can be told and nothing done, in one line each."""
    edge, outbox = KubeletEdge("kubelet.service", Path("/nowhere"), address=NOWHERE), Outbox()
    for order in (StopKubelet(key="s"), StartKubelet(key="t")):
        ending = await edge.adopt(order, outbox)
        assert ending is not None
        assert ending.result == "failed"
        assert "is dbus running?" in ending.reason
    assert outbox.facts == [KubeletRead(unit="kubelet.service", active=None)]


async def test_who_starts_pods() -> None:
    """A kubelet that lives, or of which nothing is known, until we have begun to stop it."""
    edge, outbox = KubeletEdge("kubelet.service", Path("/nowhere"), address=NOWHERE), Outbox()
    assert edge.starts_pods
    await edge.adopt(StopKubelet(key="s"), outbox)
    assert not edge.starts_pods
    await edge.adopt(StartKubelet(key="t"), outbox)
    assert edge.starts_pods

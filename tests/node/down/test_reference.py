"""The reference's end-to-end scenarios of graceful node shutdown, run against Ebbtide.

Mixed grace periods with critical pods, priorities in order, a cancel. `tests.node.matrix` has the restarts of
bus and kubelet.
"""

from __future__ import annotations

import pytest

from ebbtide.events.decisions import Armed, ShutdownCancelled, StartKubelet
from tests.node.going import PRIORITIES, Going, tainted
from tests.node.witness import NS, TICK_NS

pytestmark = [pytest.mark.node]
CRITICAL = "system-node-critical"
#: The longest delay of a shell's note after its signal on a busy machine.
LATE_NOTE_NS = NS // 2


async def test_mixed_grace_periods(node: Going) -> None:
    """Pods get the smaller of their own grace and their wave's; critical pods end last."""
    witness = node.witness
    await node.run(
        witness.pod("long", ends_after=2, terminationGracePeriodSeconds=20),
        witness.pod("short", slow=True, terminationGracePeriodSeconds=3),
        witness.pod("critical", ends_after=1, priorityClassName=CRITICAL),
    )
    await node.arm(shutdownGracePeriod="16s", shutdownGracePeriodCriticalPods="8s")
    asked_ns, over_ns = await node.down()
    assert node.outcomes() == {"long": "graceful", "short": "killed", "critical": "graceful"}
    first = witness.times("short", "signal")[0]
    assert witness.times("critical", "signal")[0] - first >= 3 * NS - LATE_NOTE_NS
    assert witness.times("long", "ended")[0] <= witness.times("critical", "signal")[0] + TICK_NS
    assert (over_ns - asked_ns) / NS < 12
    await node.final("long", "short", "critical")


async def test_priorities_one_after_another(node: Going) -> None:
    """Each of five priorities starts when the previous one has ended, not at its deadline."""
    await node.run(
        *(node.witness.pod(name, ends_after=0.3, priorityClassName=name) for name in reversed(PRIORITIES))
    )
    await node.arm(*((each, 5) for each in PRIORITIES.values()))
    asked_ns, over_ns = await node.down()
    node.in_order(*PRIORITIES)
    assert node.outcomes() == dict.fromkeys(PRIORITIES, "graceful")
    assert (over_ns - asked_ns) / NS < 15
    await node.final(*PRIORITIES)


@pytest.mark.gate
async def test_cancelled(node: Going) -> None:
    """Later waves are spared; the node accepts pods and is protected again."""
    await node.run(
        node.witness.pod("low", waits=True, priorityClassName="low", terminationGracePeriodSeconds=600),
        node.witness.pod("high", ends_after=0.2, priorityClassName="high"),
    )
    await node.arm((1000, 600), (3000, 600))
    armed = len(node.daemon.events(Armed))
    await node.bed.logind.power_off()
    await node.signalled("low")
    await node.bed.logind.reset()
    await node.daemon.until(lambda: node.daemon.events(ShutdownCancelled), "it did not hear of the cancel")
    node.witness.lets_end("low")
    await node.daemon.until(lambda: len(node.daemon.events(Armed)) > armed, "it is not armed again")
    if node.mode == "cri":
        # The kubelet may still be stopping on a busy machine.
        await node.daemon.until(lambda: node.daemon.events(StartKubelet), "it does not start the kubelet")
    await node.kubelet_runs()
    path = f"/api/v1/nodes/{node.member.name}"
    await node.bed.api.until(path, lambda each: not tainted(each) and not each["spec"].get("unschedulable"))
    await node.daemon.until(lambda: "low" in node.outcomes(), "its end is not on record")
    assert node.outcomes()["low"] == "graceful"
    assert not node.witness.times("high", "signal")
    found = await node.object("high")
    assert found is not None
    assert found["status"]["phase"] == "Running"


async def test_cancelled_and_down_after_all(node: Going) -> None:
    """The API has the final statuses of both shutdowns; no dead pod stays Running."""
    low = [f"low-{at}" for at in range(6)]
    await node.run(
        *(node.witness.pod(name, ends_after=0.3, priorityClassName="low") for name in low),
        node.witness.pod("slow", waits=True, priorityClassName="low"),
        node.witness.pod("high", ends_after=0.2, priorityClassName="high"),
    )
    await node.arm((1000, 25), (3000, 8))
    armed = len(node.daemon.events(Armed))
    await node.bed.logind.power_off()
    await node.signalled(*low)
    await node.bed.logind.reset()
    await node.daemon.until(lambda: node.daemon.events(ShutdownCancelled), "it did not hear of the cancel")
    await node.daemon.until(lambda: len(node.daemon.events(Armed)) > armed, "it is not armed again")
    # The kubelet starts only after the last end: only the daemon writes the statuses before.
    await node.daemon.until(lambda: node.outcomes().keys() >= set(low), "they have not ended")
    node.witness.lets_end("slow")
    await node.down()
    await node.final(*low, "slow", "high")

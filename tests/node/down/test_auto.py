"""Modes auto and observe on a real node: the choice of means, and a kubelet with its own graceful
shutdown.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from ebbtide.events import decisions as d
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.facts import OrderEnded
from tests.node.bed import Bed
from tests.node.client import condition
from tests.node.contenders import OFF
from tests.node.going import Going, going, tainted
from tests.node.pods import PODS
from tests.node.witness import NOTE
from tests.proc import each_process
from tests.waiting import until

pytestmark = [pytest.mark.node]

#: The kubelet's graceful shutdown, as long as ours; it ends with the pods.
ON = {"shutdownGracePeriod": "600s", "shutdownGracePeriodCriticalPods": "300s"}
OURS = (d.SendSignal, d.KillContainer, d.DeletePod, d.StopKubelet)


@pytest.fixture
async def by_auto(bed: Bed, tmp_path: Path) -> AsyncIterator[Going]:
    async with going(bed, "auto", tmp_path) as made:
        yield made


@pytest.fixture(params=["auto", "observe"])
async def beside(bed: Bed, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Going]:
    """A kubelet with its own graceful shutdown and lock."""
    try:
        async with going(bed, request.param, tmp_path) as made:
            await bed.start_over(**ON)
            await bed.locks(1)
            yield made
    finally:
        await bed.start_over(**OFF)


@pytest.mark.gate
async def test_the_kubelet_is_left_to_it(beside: Going) -> None:
    """Ebbtide gives no order, records each outcome, and holds the lock until the API server has all."""
    witness = beside.witness
    await beside.run(
        witness.pod("web", ends_after=1, terminationGracePeriodSeconds=600),
        witness.pod("deaf", slow=True, terminationGracePeriodSeconds=3),
        witness.pod(
            "critical",
            ends_after=0.5,
            priorityClassName="system-node-critical",
            terminationGracePeriodSeconds=600,
        ),
    )
    await beside.arm(**ON)
    await beside.down()
    assert beside.means() == "observe"
    assert not [each for kind in OURS for each in beside.daemon.events(kind)]
    assert beside.outcomes() == {"web": "graceful", "deaf": "killed", "critical": "graceful"}
    await beside.final("web", "deaf", "critical")
    order = beside.daemon.events(d.AwaitStatuses)[0]
    ended = [each for each in beside.daemon.events(OrderEnded) if each.key == order.key]
    assert [each.result for each in ended] == ["done"]
    assert not beside.daemon.events(d.LeftUndone)
    assert not tainted(await beside.node())


@pytest.mark.gate
async def test_a_reboot_keeps_the_pods(by_auto: Going) -> None:
    """Stops through the runtime without the kubelet: a returning pod gets no terminal phase.

    The pod ends after it left its Services: an earlier end may leave it Ready.
    """
    await by_auto.run(by_auto.witness.pod("web", waits=True, terminationGracePeriodSeconds=600))
    await by_auto.arm((0, 600))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(by_auto.down, "reboot")
        await by_auto.bed.api.until(f"{PODS}/web", lambda pod: condition(pod, "Ready") == "False")
        by_auto.witness.lets_end("web")
    assert by_auto.means() == "cri"
    assert by_auto.daemon.events(d.StopKubelet)
    assert not by_auto.daemon.events(d.StartKubelet)
    found = await by_auto.object("web")
    assert found is not None
    assert found["status"]["phase"] == "Running"
    assert condition(found, "Ready") == "False"


@pytest.mark.parametrize(("kind", "means"), [("reboot", "cri"), ("poweroff", "api")])
async def test_a_shutdown_after_a_drain(by_auto: Going, kind: str, means: str) -> None:
    """2 s after a drain the kubelet has begun every stop: no hook and no stop signal comes a second time.
    A hook that still runs is not begun again; its container gets its first signal. A deletion's own grace
    counts.
    """
    witness, grace = by_auto.witness, {"terminationGracePeriodSeconds": 600}
    waits = "until [ -e /notes/hooking.may-end ]; do sleep 0.05; done"
    long = f"{NOTE.format(name='hooking', what='hook')}; {waits}"
    long_hook = {"preStop": {"exec": {"command": ["/bin/sh", "-c", long]}}}
    hooking = witness.container("hooking", ends_after=0.2, lifecycle=long_hook)
    await by_auto.run(
        witness.pod("hooked", waits=True, hook=True, **grace),
        witness.pod("plain", waits=True, **grace),
        witness.holding("hooking", [hooking], **grace),
        witness.pod("short", slow=True, **grace),
        witness.pod("kept", ends_after=0.2, hook=True, **grace),
    )
    await by_auto.arm((0, 600))
    for name in ("hooked", "plain", "hooking"):
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        await by_auto.bed.api.post(f"{PODS}/{name}/eviction", eviction)
    await by_auto.bed.api.ask("DELETE", f"{PODS}/short", {"gracePeriodSeconds": 8})
    deleted_ns = time.monotonic_ns()
    await by_auto.signalled("hooked", "plain", "short")
    await until(lambda: witness.times("hooking", "hook"), "its hook does not run")
    await until(lambda: time.monotonic_ns() > deleted_ns + 2 * NS_PER_SECOND, "the clock stands still")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(by_auto.down, kind)
        if means == "api":  # the kubelet waits for the hook
            witness.lets_end("hooking")
        await by_auto.signalled("kept", "hooking")
        witness.lets_end("hooked")
        witness.lets_end("plain")
    assert by_auto.means() == means
    names = ("hooked", "plain", "hooking", "short", "kept")
    assert {name: len(witness.times(name, "signal")) for name in names} == dict.fromkeys(names, 1)
    hooks = {name: len(witness.times(name, "hook")) for name in names}
    assert hooks == {"hooked": 1, "plain": 0, "hooking": 1, "short": 0, "kept": 1}
    assert by_auto.outcomes() == dict.fromkeys(names, "graceful") | {"short": "killed"}
    uids = {each.pod.name: each.pod.uid for each in by_auto.daemon.events(d.PodPlanned)}
    (wave,) = by_auto.daemon.events(d.WaveStarted)
    assert 1 <= next(each.grace_seconds for each in wave.pods if each.uid == uids["short"]) <= 6


async def test_a_shim_that_crashes(by_auto: Going) -> None:
    """The runtime ends its container and reports a code of its own: the pod did not end gracefully."""
    await by_auto.run(by_auto.witness.pod("web", waits=True, terminationGracePeriodSeconds=600))
    await by_auto.arm((0, 600))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(by_auto.down, "reboot")
        await by_auto.signalled("web")
        first = min(pid for pid, words in each_process("cmdline").items() if b"/notes/web.began" in words)
        shim = int(Path(f"/proc/{first}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(shim, signal.SIGKILL)
    assert by_auto.outcomes()["web"] in ("killed", "unknown")

"""Ebbtide on the node: beside a kubelet that has its own graceful shutdown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio

from ebbtide.events.catalog import DirectorySource
from ebbtide.events.decisions import PodEnded, ShutdownBegan
from ebbtide.events.facts import ApiRead
from ebbtide.events.reader import History
from tests.node.bed import Bed
from tests.node.ebbtide import NAME, Daemon
from tests.node.pods import OBEDIENT, PODS, is_ready, pod, running
from tests.node.shutdowns import power_off

pytestmark = [pytest.mark.node]
LOCAL_SECONDS_MAX = 10
WAVES = [{"priority": 0, "shutdownGracePeriodSeconds": 3}]


async def test_two_locks(bed: Bed, tmp_path: Path) -> None:
    """Processes of Ebbtide's and pods of the kubelet's end in one shutdown, which waits for both locks."""
    daemon = Daemon(bed, tmp_path / "journal", "process")
    daemon.configure(shutdownGracePeriodByPodPriority=WAVES, reserve="1s")
    is_up = daemon.folder / "local-is-up"
    local = pod("local", script=f"touch {is_up}; {OBEDIENT}")
    (daemon.pods / "local.yaml").write_text(json.dumps(local))
    await daemon.start()
    try:
        await running(bed, pod("web", "node-1"))
        with trio.fail_after(LOCAL_SECONDS_MAX):
            while not is_up.exists():
                await trio.sleep(0.02)
        assert len(await bed.logind.ours()) == 1
        await bed.locks(2)
        asked_ns, over_ns = await power_off(bed)
        assert asked_ns < over_ns
        await bed.api.until(PODS, lambda pods: not any(map(is_ready, pods["items"])))
    finally:
        await daemon.stop()
        await bed.start_over()
    events = [record.event for record in History([DirectorySource(daemon.journal)]).records()]
    assert [event.kind for event in events if isinstance(event, ShutdownBegan)] == ["poweroff"]
    ended = [(event.outcome, event.succeeded) for event in events if isinstance(event, PodEnded)]
    assert ended == [("graceful", True)]


@pytest.mark.parametrize("mode", ["auto", "cri"])
async def test_a_configured_kubeconfig_that_is_none(bed: Bed, tmp_path: Path, mode: str) -> None:
    """It keeps no node unarmed: it is said in one line, and taken as soon as somebody has put it right."""
    daemon = Daemon(bed, tmp_path / "journal", mode)
    await bed.start_over(shutdownGracePeriod="0s", shutdownGracePeriodCriticalPods="0s")
    daemon.configure(shutdownGracePeriod="5s")
    path = Path(daemon.node()["kubeconfig"])
    good = path.read_bytes()
    path.write_bytes(b"clusters: 3\n")
    await daemon.start()
    try:
        await daemon.until(lambda: "no kubeconfig" in bed.log(NAME), "it does not say so")
        assert not any(read.reachable for read in daemon.events(ApiRead))
        path.write_bytes(good)
        await daemon.until(
            lambda: any(read.reachable for read in daemon.events(ApiRead)), "it does not take the new one"
        )
        assert bed.log(NAME).count("no kubeconfig") == 1
    finally:
        await daemon.stop()
        await bed.start_over()

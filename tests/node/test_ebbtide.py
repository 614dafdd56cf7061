"""Ebbtide on the node: beside a kubelet that has its own graceful shutdown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio

from events.decisions import PodEnded, ShutdownBegan
from events.history import History
from events.storage import DirectorySource
from tests.node.bed import Bed
from tests.node.ebbtide import Daemon
from tests.node.pods import OBEDIENT, PODS, is_ready, pod, running
from tests.node.shutdowns import power_off

pytestmark = [pytest.mark.node, pytest.mark.slow]
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
        asked_ns, over_ns = await power_off(bed, seconds=20)
        assert asked_ns < over_ns
        await bed.api.until(PODS, lambda pods: not any(map(is_ready, pods["items"])))
    finally:
        await daemon.stop()
        await bed.start_over()
    events = [record.event for record in History([DirectorySource(daemon.journal)]).records()]
    assert [event.kind for event in events if isinstance(event, ShutdownBegan)] == ["poweroff"]
    ended = [(event.outcome, event.succeeded) for event in events if isinstance(event, PodEnded)]
    assert ended == [("graceful", True)]

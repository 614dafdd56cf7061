"""The real daemon's journal: one writer, one machine, a failing disk."""

from __future__ import annotations

import json
import os
import select
import shutil

import pytest
import trio

from ebbtide.events.decisions import PodEnded, ReleaseLock, ShutdownBegan
from ebbtide.events.facts import StorageFailed, StorageMoved
from tests.daemon.rig import Rig

pytestmark = pytest.mark.root

#: Fills free space until killed with its namespace.
FILL = 'n=0; while :; do n=$((n+1)); head -c 4096 /dev/zero >> "$0/fill" 2>/dev/null || sleep 0.01; done'


@pytest.mark.parametrize("how", ["deleted", "moved"])
async def test_a_folder_that_goes_while_armed(rig: Rig, how: str) -> None:
    """The journal continues at the fallback, and a reader finds a checkpoint there."""
    rig.pod("web", "after=0.1")
    await rig.start()
    await rig.up("web")
    if how == "deleted":
        shutil.rmtree(rig.journal)
    else:
        rig.journal.rename(rig.folder / "elsewhere")
    moved = await rig.recorded(StorageMoved)
    assert moved.event.location == str(rig.fallback)
    assert json.loads(await rig.ebbtide("status", "-o", "json"))["journal"]["location"] == str(rig.fallback)
    assert "failed: [Errno 2] its folder was moved or deleted" in rig.log()
    await rig.bed.power_off()
    await rig.recorded(ReleaseLock)
    assert [event.outcome for event in rig.events(PodEnded)] == ["graceful"]


async def test_a_disk_that_fills_in_a_shutdown(rig: Rig) -> None:
    """The journal continues at the next location, the loss is recorded, and no pod waits."""
    rig.configure({0: 60, 1000: 60})
    rig.pod("web", "after=1", hook=0.5)
    rig.pod("db", "after=0.5", priority=1000)
    rig.journal.mkdir()
    await rig.inside("mount", "-t", "tmpfs", "-o", "size=512k,mode=700", "tiny", str(rig.journal))
    await rig.start()
    await rig.granted()
    await rig.up("web", "db")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.inside, "bash", "-c", FILL, str(rig.journal))
        await rig.bed.power_off()
        await rig.bed.started()
        nursery.cancel_scope.cancel()
    assert [mark.what for mark in rig.trace("web")] == ["up", "hook", "hooked", "TERM", "gone"]
    assert [event.outcome for event in rig.events(PodEnded)] == ["graceful", "graceful"]
    assert "No space left" in rig.events(StorageFailed)[0].error
    assert rig.events(StorageMoved)[0].location == str(rig.fallback)
    assert len(rig.events(ReleaseLock)) == 1


@pytest.mark.parametrize("reader", ["gone", "stuck"])
async def test_a_log_that_nobody_reads(rig: Rig, reader: str) -> None:
    """A blocked system log loses lines, but no pod."""
    theirs, ours = os.pipe()
    if reader == "gone":
        os.close(theirs)
    else:
        os.set_blocking(ours, False)
        while os.write(ours, b"x" * 4096) == 4096 and not _full(ours):
            pass
        os.set_blocking(ours, True)
    rig.pod("web", hook=0.2)
    rig.launch(log=ours)
    os.close(ours)
    await rig.status("armed")
    await rig.up("web")
    await rig.bed.power_off()
    await rig.bed.started()
    assert [mark.what for mark in rig.trace("web")] == ["up", "hook", "hooked", "TERM", "gone"]
    await rig.recorded(ReleaseLock)
    assert len(rig.events(ShutdownBegan)) == 1


def _full(pipe: int) -> bool:
    return not select.select([], [pipe], [], 0)[1]

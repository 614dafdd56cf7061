"""Closed segments leave the node beside a real daemon under the real logind."""

from __future__ import annotations

import hashlib

import pytest
import trio

from ebbtide.events.decisions import Resumed
from tests.daemon.rig import Rig

pytestmark = pytest.mark.root

SECONDS_MAX = 30.0


async def test_what_the_daemon_before_wrote_is_shipped(rig: Rig) -> None:
    """Its segment is closed by the next start; the one that is written to stays."""
    folder = rig.folder / "bucket"
    folder.mkdir()
    rig.configure({0: 3}, shipping={"url": f"file://{folder}", "cluster": "prod"})
    await rig.start()
    await rig.kill()
    await rig.start()
    with trio.fail_after(SECONDS_MAX):
        while not (found := list(folder.rglob("*.ebj"))):
            await trio.sleep(0.05)
    first, *_ = sorted(rig.journal.glob("*.ebj"))
    data = first.read_bytes()
    (one,) = found
    assert one.name == f"{first.stem}-{hashlib.sha256(data).hexdigest()}.ebj"
    assert one.read_bytes() == data
    await rig.stop()


async def test_a_daemon_that_starts_in_a_shutdown_ships_nothing_in_it(rig: Rig) -> None:
    """Its start closes a segment, and no record says that the shutdown began: the pods go first."""
    folder = rig.folder / "bucket"
    folder.mkdir()
    rig.configure({0: 10}, shipping={"url": f"file://{folder}", "cluster": "prod"})
    rig.pod("web", "after=6")
    await rig.start()
    await rig.granted()
    await rig.up("web")
    await rig.bed.power_off()
    await rig.traced("web", "TERM")
    await rig.kill()
    rig.launch()
    await rig.bed.started(12)
    assert rig.events(Resumed)
    assert rig.trace("web")[-1].what == "gone"
    assert len(list(rig.journal.glob("*.ebj"))) > 1
    assert list(folder.rglob("*")) == []

"""Closed segments leave the node beside a real daemon under the real logind."""

from __future__ import annotations

import hashlib

import pytest
import trio

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

"""A shutdown from the signal to the release, on the real logind (the design's rules 1, 2 and 5)."""

from __future__ import annotations

import pytest

from events.decisions import EpisodeClosed, ReleaseLock, ShutdownBegan
from tests.daemon.rig import LOCK_NAME, Rig

pytestmark = pytest.mark.root


@pytest.mark.parametrize("kind", ["poweroff", "reboot", "halt"])
async def test_waves_end_before_the_machine_goes(rig: Rig, kind: str) -> None:
    """Each kind is known by name, waves run in order, and logind goes on right after the last pod."""
    rig.configure({0: 3, 1000: 3})
    rig.pod("web", "after=0.3", hook=0.2)
    rig.pod("db", priority=1000)
    await rig.start()
    await rig.up("web", "db")
    await rig.bed.power_off(kind)
    unit, let_go_ns = await rig.bed.started(8)
    assert unit == f"{kind}.target"
    web, db = rig.trace("web"), rig.trace("db")
    assert [mark.what for mark in web] == ["up", "hook", "hooked", "TERM", "gone"]
    assert [mark.what for mark in db] == ["up", "TERM", "gone"]
    assert web[-1].at_ns < db[1].at_ns < db[2].at_ns < let_go_ns
    began = rig.events(ShutdownBegan)
    assert [(event.kind, event.lock_held) for event in began] == [(kind, True)]
    assert len(rig.events(ReleaseLock)) == 1
    assert await rig.bed.ours() == []
    assert LOCK_NAME not in rig.store.store

"""The daemon killed with SIGKILL in a shutdown, on the real logind: the next one goes on.

`tests.world` kills it at every point; this is the same with real processes, descriptors and pods.
"""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable

import pytest

from ebbtide.events.decisions import PodEnded, ReleaseLock, Resumed, ShutdownBegan
from ebbtide.events.facts import DaemonStarted
from tests.daemon.rig import LOCK_NAME, Rig

pytestmark = pytest.mark.root

PHASES: dict[str, Callable[[Rig], Awaitable[object]]] = {
    "in-a-hook": lambda rig: rig.traced("web", "hook"),
    "after-the-stop-signal": lambda rig: rig.traced("web", "TERM"),
    "in-the-last-wave": lambda rig: rig.traced("db", "TERM"),
}


@pytest.mark.parametrize("phase", PHASES)
async def test_it_goes_on_where_it_was_killed(rig: Rig, phase: str) -> None:
    """No hook twice, waves in order, the lock kept meanwhile, one release, nothing left behind."""
    rig.configure({0: 60, 1000: 60})
    rig.pod("web", "after=0.6", hook=0.6)
    rig.pod("db", "after=0.6", priority=1000)
    await rig.start()
    await rig.granted()
    await rig.up("web", "db")
    await rig.bed.power_off()
    await PHASES[phase](rig)
    await rig.kill()
    assert await rig.bed.starts() == []
    rig.launch()
    _, let_go_ns = await rig.bed.started()
    web, db = rig.trace("web"), rig.trace("db")
    assert len(rig.trace("web", "hook")) == 1
    # The record of a signal may be lost with the daemon; a pod is then told again.
    assert len(rig.trace("web", "TERM")) == 1 or phase == "after-the-stop-signal"
    assert len(rig.trace("db", "TERM")) == 1 or phase == "in-the-last-wave"
    assert web[-1].what == db[-1].what == "gone"
    assert web[-1].at_ns < rig.trace("db", "TERM")[0].at_ns
    assert db[-1].at_ns < let_go_ns
    await rig.nothing_runs()
    assert len(rig.events(ShutdownBegan)) == 1
    assert [event.outcome for event in rig.events(PodEnded)] == ["graceful", "graceful"]
    assert rig.events(DaemonStarted)[-1].lock_inherited


async def test_a_release_that_was_ordered_is_done_again(rig: Rig) -> None:
    """Killed after the release order while the store still had the lock: the next one lets it go."""
    rig.pod("web")
    await rig.start()
    await rig.up("web")
    rig.store.stuck = True
    await rig.bed.power_off()
    await rig.recorded(ReleaseLock)
    await rig.kill()
    assert await rig.bed.starts() == []
    rig.store.stuck = False
    rig.launch()
    await rig.bed.started()
    assert [event.action for event in rig.events(Resumed)][1:] == ["release-again"]
    assert LOCK_NAME not in rig.store.store
    assert [mark.what for mark in rig.trace("web")] == ["up", "TERM", "gone"]


async def test_children_whose_record_was_lost_are_found(rig: Rig) -> None:
    """EBBTIDE_ORDER in their environment says whose they are: no second copy, and the shutdown ends them."""
    rig.pod("web")
    await rig.start()
    await rig.up("web")
    await rig.kill()
    shutil.rmtree(rig.runtime / "process")
    await rig.start()
    assert rig.events(DaemonStarted)[-1].lock_inherited
    await rig.bed.power_off()
    await rig.bed.started()
    assert [mark.what for mark in rig.trace("web")] == ["up", "TERM", "gone"]
    await rig.nothing_runs()

"""The daemon killed with SIGKILL in every phase of a shutdown: the next one goes on (issue 3, point 8)."""

from __future__ import annotations

import json
import re
import shutil
import signal
from collections.abc import Awaitable, Callable

import pytest
import trio

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.decisions import HookEnded, PodEnded, ReleaseLock, Resumed, ShutdownBegan
from ebbtide.events.facts import DaemonStarted
from ebbtide.status import LOCK_TEXTS
from tests.daemon.rig import LOCK_NAME, Rig

pytestmark = pytest.mark.root

AWAY_SECONDS = 0.3
#: Scheduling on a small machine, and a tick late.
SLACK_NS = NS_PER_SECOND


async def before_the_listing(rig: Rig) -> None:
    """The signal came, and it could not even look at it."""
    with trio.fail_after(5):
        while not await rig.bed.get("PreparingForShutdown"):
            await trio.sleep(0.005)


PHASES: dict[str, Callable[[Rig], Awaitable[object]]] = {
    "before-the-listing": before_the_listing,
    "at-the-beginning": lambda rig: rig.recorded(ShutdownBegan),
    "in-a-hook": lambda rig: rig.traced("web", "hook"),
    "after-the-hook": lambda rig: rig.traced("web", "hooked"),
    "after-the-stop-signal": lambda rig: rig.traced("web", "TERM"),
    "between-the-waves": lambda rig: rig.traced("web", "gone"),
    "in-the-last-wave": lambda rig: rig.traced("db", "TERM"),
    "after-the-last-pod": lambda rig: rig.traced("db", "gone"),
}


async def two_waves(rig: Rig) -> None:
    """Armed and granted, with a pod in each of two waves."""
    rig.configure({0: 4, 1000: 4})
    rig.pod("web", "after=0.6", hook=0.6)
    rig.pod("db", "after=0.6", priority=1000)
    await rig.start()
    await rig.granted()
    await rig.up("web", "db")


@pytest.mark.parametrize("phase", PHASES)
async def test_it_goes_on_where_it_was_killed(rig: Rig, phase: str) -> None:
    """No hook twice, waves in order, the lock kept meanwhile, one release, nothing left behind."""
    await two_waves(rig)
    if phase == "before-the-listing":
        rig.signal(signal.SIGSTOP)
    await rig.bed.power_off()
    await PHASES[phase](rig)
    await rig.kill()
    await trio.sleep(AWAY_SECONDS)
    assert await rig.bed.starts() == [] or rig.trace("db", "gone")
    rig.launch()
    _, let_go_ns = await rig.bed.started(12)
    web, db = rig.trace("web"), rig.trace("db")
    # On record as begun, and killed before it was: its outcome is unknown, and it is not run again.
    lost = phase == "at-the-beginning" and any(event.result == "unknown" for event in rig.events(HookEnded))
    assert len(rig.trace("web", "hook")) in ((0, 1) if lost else (1,))
    assert len(rig.trace("web", "TERM")) == 1 or phase in ("after-the-hook", "after-the-stop-signal")
    assert len(rig.trace("db", "TERM")) == 1 or phase == "in-the-last-wave"
    assert web[-1].what == db[-1].what == "gone"
    assert web[-1].at_ns < rig.trace("db", "TERM")[0].at_ns
    assert db[-1].at_ns < let_go_ns
    await rig.nothing_runs()
    assert len(rig.events(ShutdownBegan)) == 1
    assert sorted(event.outcome for event in rig.events(PodEnded)) == ["graceful", "graceful"]
    assert rig.events(DaemonStarted)[-1].lock_inherited


async def test_the_time_away_counts(rig: Rig) -> None:
    """A pod that ignores its signal is killed when its grace is over, wherever the daemon was meanwhile."""
    rig.configure({0: 4})
    rig.pod("web", "ignore", grace=3)
    await rig.start()
    await rig.granted()
    await rig.up("web")
    await rig.bed.power_off()
    signalled = await rig.traced("web", "TERM")
    await rig.kill()
    await trio.sleep(1)
    rig.launch()
    ended = await rig.recorded(PodEnded, outcome="killed")
    # A grace that began anew would end three seconds after the start; a slow start may come after its end.
    over_ns = signalled.at_ns + 3 * NS_PER_SECOND
    started = rig.records(DaemonStarted)[-1]
    assert over_ns - NS_PER_SECOND < ended.mono_ns < max(over_ns, started.mono_ns) + SLACK_NS
    await rig.bed.started()
    assert "+0.000 s all pods" not in rig.log()
    await rig.nothing_runs()


async def test_killed_again_and_again(rig: Rig) -> None:
    """Three deaths in one shutdown: it still ends every pod, runs no hook twice and releases."""
    await two_waves(rig)
    await rig.bed.power_off()
    for what in ("hook", "TERM", "gone"):
        await rig.traced("web", what)
        await rig.kill()
        rig.launch()
        await trio.sleep(AWAY_SECONDS)
    await rig.bed.started(12)
    assert len(rig.trace("web", "hook")) == 1
    assert [rig.trace(pod)[-1].what for pod in ("web", "db")] == ["gone", "gone"]
    await rig.nothing_runs()


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


async def test_a_release_that_was_done_is_not_done_again(rig: Rig) -> None:
    """Killed after the store was emptied: the machine goes, and the next daemon only watches it go."""
    rig.pod("web")
    await rig.start()
    await rig.up("web")
    rig.store.answers_barriers = False
    await rig.bed.power_off()
    await rig.until_forgotten()
    await rig.kill()
    await rig.bed.started()
    rig.launch()
    await rig.recorded(Resumed, action="wait")
    assert len(rig.events(ReleaseLock)) == 1


async def test_a_restart_outside_a_shutdown_leaves_pods_alone(rig: Rig) -> None:
    """SIGKILL, start: the same processes, adopted; the next shutdown ends them."""
    rig.pod("web", "after=0.2", hook=0.1)
    await rig.start()
    await rig.up("web")
    await rig.kill()
    assert len(await rig.bed.ours()) == 1
    await rig.start()
    await rig.recorded(DaemonStarted, lock_inherited=True)
    assert [mark.what for mark in rig.trace("web")] == ["up"]
    await rig.bed.power_off()
    await rig.bed.started()
    assert [mark.what for mark in rig.trace("web")] == ["up", "hook", "hooked", "TERM", "gone"]
    await rig.nothing_runs()


async def test_children_whose_record_was_lost_are_found(rig: Rig) -> None:
    """EBBTIDE_ORDER in their environment says whose they are: no second copy, and the shutdown ends them."""
    rig.pod("web")
    await rig.start()
    await rig.up("web")
    await rig.kill()
    shutil.rmtree(rig.runtime / "process")
    await rig.start()
    await rig.bed.power_off()
    await rig.bed.started()
    assert [mark.what for mark in rig.trace("web")] == ["up", "TERM", "gone"]
    await rig.nothing_runs()


async def test_people_are_heard_after_two_deaths(rig: Rig) -> None:
    """The third process of a shutdown shows it by name and lets itself be hurried and told to release."""
    rig.configure({0: 10, 1000: 10})
    rig.pod("web", "ignore")
    rig.pod("db", "ignore", priority=1000)
    await rig.start()
    await rig.granted()
    await rig.up("web", "db")
    await rig.bed.power_off()
    await rig.traced("web", "TERM")
    for _ in range(2):
        await rig.kill()
        since = len(rig.store.said)
        rig.launch()
        await rig.ready(since)
    shown = json.loads(await rig.ebbtide("status", "-o", "json"))
    assert (shown["phase"], shown["shutdown"]["kind"]) == ("running", "poweroff")
    assert [pod["pod"] for pod in shown["shutdown"]["pods"]] == ["default/web", "default/db"]
    assert shown["neededSeconds"] == 21
    await rig.ebbtide("hurry", "web")
    await rig.ended("web")
    await rig.traced("db", "TERM")
    await rig.ebbtide("release")
    await rig.bed.started()
    assert len(rig.events(ShutdownBegan)) == 1


async def test_a_restart_that_does_not_get_the_lock_back_says_so(rig: Rig) -> None:
    """In capitals, with what it means: on the service manager's line and to whoever asks. The waves go on."""
    rig.configure({0: 20})
    rig.pod("web", "ignore")
    await rig.start()
    await rig.up("web")
    await rig.bed.power_off()
    await rig.traced("web", "TERM")
    await rig.kill()
    rig.store.close()
    rig.launch()
    await rig.status("shutdown running: poweroff, LOCK LOST")
    first, *rest = (await rig.ebbtide("status", "--journal", str(rig.journal))).splitlines()
    assert first == f"lock           {LOCK_TEXTS['lost']}"
    assert any(
        re.search(r"^phase +running: 0 of 1 pods ended, wave 0 \(1 of 1\), \d+ s left$", line)
        for line in rest
    )

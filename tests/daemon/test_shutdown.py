"""A shutdown from the signal to the release, on the real logind (the design's rules 1, 2 and 5)."""

from __future__ import annotations

import resource
import signal
from contextlib import AsyncExitStack

import pytest
import trio

from ebbtide.events import decisions as d
from ebbtide.events.facts import DaemonStarted, ScheduleRead
from tests.daemon.rig import LOCK_NAME, Rig

pytestmark = pytest.mark.root


@pytest.mark.parametrize("kind", ["poweroff", "reboot", "halt"])
async def test_waves_end_before_the_machine_goes(rig: Rig, kind: str) -> None:
    """Rule 1: each kind is known by name, waves run in order, logind goes on right after the last pod."""
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
    began = rig.events(d.ShutdownBegan)
    assert [(event.kind, event.lock_held) for event in began] == [(kind, True)]
    assert len(rig.events(d.ReleaseLock)) == 1


async def test_the_store_is_emptied_before_the_lock_goes(rig: Rig) -> None:
    """Rule 5: one duplicate in the store would hold the machine; it goes, confirmed, before ours."""
    rig.pod("web")
    await rig.start()
    await rig.up("web")
    assert [row.who for row in await rig.bed.ours()] == ["ebbtide"]
    assert len(rig.store.store[LOCK_NAME]) == 1
    await rig.bed.power_off()
    await rig.bed.started()
    assert await rig.bed.none_of_ours()
    assert LOCK_NAME not in rig.store.store
    said = [next(iter(message)) for message in rig.store.said]
    assert said.index("FDSTOREREMOVE") < said.index("BARRIER")


async def test_a_cancel_in_the_middle_is_honoured(rig: Rig) -> None:
    """Design 7: what has begun is finished within its grace, the rest is spared, the lock is taken anew."""
    rig.configure({0: 4, 1000: 4})
    rig.pod("web", "after=1")
    rig.pod("db", priority=1000)
    await rig.start()
    await rig.up("web", "db")
    await rig.bed.power_off()
    await rig.traced("web", "TERM")
    await rig.bed.restart_logind(clean=True)
    await rig.recorded(d.EpisodeClosed, outcome="cancelled")
    assert [mark.what for mark in rig.trace("web")] == ["up", "TERM", "gone"]
    assert [mark.what for mark in rig.trace("db")] == ["up"]
    assert {event.outcome for event in rig.events(d.PodEnded)} == {"graceful", "spared"}
    await rig.status("armed")
    assert len(await rig.bed.ours()) == 1
    await rig.counted(d.Armed, 2)
    await rig.logged("shutdown closed: cancelled")
    # What has ended stays down: said once, and as long as it is so.
    down = "default/web has ended and is not started again: write the manifest anew (touch) to start it"
    await rig.logged(down)
    assert down in await rig.ebbtide("status", "--journal", str(rig.journal))
    await rig.kill()
    rig.launch()
    await rig.logged(down, times=2)
    await trio.run_process(["touch", str(rig.pods / "web.yaml")])
    await rig.traced("web", "up", times=2)
    assert "has ended" not in await rig.ebbtide("status", "--journal", str(rig.journal))
    assert rig.log().count(down) == 2


async def test_a_second_signal_is_the_same_episode(rig: Rig) -> None:
    """Rule 2: logind restarted and asked again: one episode, a new deadline, no pod signalled twice."""
    rig.configure({0: 6})
    rig.pod("web", "after=2")
    await rig.start()
    await rig.granted()
    await rig.up("web")
    await rig.bed.power_off()
    await rig.traced("web", "TERM")
    rig.signal(signal.SIGSTOP)
    await rig.bed.restart_logind(clean=True)
    async with rig.bed.inhibitor("somebody"):
        await rig.bed.power_off()
        rig.signal(signal.SIGCONT)
        await rig.recorded(d.DeadlineMoved)
        await rig.recorded(d.ReleaseLock)
    await rig.bed.started()
    assert len(rig.events(d.ShutdownBegan)) == 1
    assert [mark.what for mark in rig.trace("web")] == ["up", "TERM", "gone"]


async def test_a_second_episode_takes_over_what_the_first_began(rig: Rig) -> None:
    """Design, HookActor: a pod that outlives a cancel is not begun again, and its grace goes on."""
    rig.configure({0: 6})
    rig.pod("web", "after=4", hook=0.2)
    await rig.start()
    await rig.granted()
    await rig.up("web")
    await rig.bed.power_off()
    await rig.traced("web", "TERM")
    await rig.bed.restart_logind(clean=True)
    await rig.recorded(d.ShutdownCancelled)
    await rig.until_ours()
    await rig.bed.power_off("reboot")
    await rig.bed.started()
    assert [event.kind for event in rig.events(d.ShutdownBegan)] == ["poweroff", "reboot"]
    assert [mark.what for mark in rig.trace("web")] == ["up", "hook", "hooked", "TERM", "gone"]


async def test_a_release_that_did_not_go_down(rig: Rig) -> None:
    """Rule 2: the final unit fails after our release: the episode says so, and the node is armed again."""
    rig.pod("web")
    await rig.start()
    await rig.up("web")
    await rig.bed.start_unit("failed")
    await rig.bed.power_off()
    await rig.recorded(d.ShutdownCancelled, reason="did-not-go-down")
    await rig.recorded(d.EpisodeClosed, outcome="cancelled")
    await rig.status("armed")
    assert len(await rig.bed.ours()) == 1


async def test_a_shutdown_that_runs_at_the_start_is_begun_without_a_lock(rig: Rig) -> None:
    """Rule 1: OperationInProgress means that a shutdown runs; the pods are ended all the same."""
    rig.pod("web")
    await rig.start()
    await rig.up("web")
    assert await rig.stop() == 0
    async with rig.bed.inhibitor("somebody"):
        await rig.bed.power_off()
        rig.launch()
        await rig.recorded(d.ShutdownBegan)
        await rig.ended("web")
        (began,) = rig.events(d.ShutdownBegan)
        assert (began.kind, began.lock_held) == ("poweroff", False)
        await rig.recorded(d.ReleaseLock)
        assert [mark.what for mark in rig.trace("web")] == ["up", "TERM", "gone"]


async def test_who_asked_is_on_record(rig: Rig) -> None:
    """Rule 6: a scheduled shutdown is in the journal and the log with uid and wall message, as is its end."""
    await rig.start()
    await rig.bed.set_wall_message("new kernel")
    await rig.bed.schedule("reboot", 60)
    await rig.recorded(ScheduleRead, kind="reboot", uid=0, wall_message="new kernel")
    await rig.logged('s by uid 0: "new kernel"')
    await rig.bed.cancel()
    await rig.recorded(ScheduleRead, at_wall_ns=0)
    await rig.logged("no shutdown is scheduled any more")


async def test_sigterm_while_the_system_stops_is_overtime(rig: Rig) -> None:
    """Rule 7: logind bypassed, SIGTERM is the only notice: the waves run, with time asked of the manager."""
    rig.configure({0: 3, 1000: 3})
    rig.pod("web", "after=0.3", hook=0.2)
    rig.pod("db", priority=1000)
    await rig.start()
    await rig.granted()
    await rig.up("web", "db")
    await rig.bed.do("property", name="SystemState", signature="s", value="stopping")
    assert await rig.stop() == 0
    assert [mark.what for mark in rig.trace("web")] == ["up", "hook", "hooked", "TERM", "gone"]
    assert [mark.what for mark in rig.trace("db")] == ["up", "TERM", "gone"]
    extended = [int(said["EXTEND_TIMEOUT_USEC"]) for said in rig.store.said if "EXTEND_TIMEOUT_USEC" in said]
    assert extended == [9_000_000]
    assert len(rig.events(d.ReleaseLock)) == 1


async def test_a_plain_stop_leaves_the_pods(rig: Rig) -> None:
    """Rule 7: `systemctl stop` of the unit ends nothing but the daemon; the lock goes with the store."""
    rig.pod("web", hook=1)
    await rig.start()
    await rig.up("web")
    assert await rig.stop() == 0
    assert await rig.bed.none_of_ours()
    assert rig.lives("web")
    assert rig.events(d.ShutdownBegan) == []


async def test_a_late_pod_is_rejected(rig: Rig) -> None:
    """A manifest that appears while the node goes down is not started, and the reason is the reference's."""
    rig.configure({0: 3})
    rig.pod("web", "after=1")
    await rig.start()
    await rig.up("web")
    await rig.bed.power_off()
    await rig.traced("web", "TERM")
    rig.pod("late")
    await rig.logged("pod default/late rejected: Pod was rejected as the node is shutting down.")
    await rig.bed.started()
    assert rig.trace("late") == []


async def test_people_hurry_and_release(rig: Rig) -> None:
    """`ebbtide hurry` ends the wait for a pod, `ebbtide release` the machine's; both are on record."""
    rig.configure({0: 20, 1000: 20})
    rig.pod("web", "ignore", hook=30)
    rig.pod("db", "ignore", priority=1000)
    await rig.start()
    await rig.granted()
    await rig.up("web", "db")
    await rig.bed.power_off()
    await rig.traced("web", "hook")
    await rig.ebbtide("hurry", "web")
    await rig.traced("db", "TERM")
    await rig.ebbtide("release")
    await rig.bed.started()
    with trio.fail_after(5):
        await rig.recorded(d.ReleaseLock)
    assert "uid 0 asked to hurry web" in rig.log()
    assert "uid 0 asked to release" in rig.log()


@pytest.mark.parametrize("when", ["before", "during"])
async def test_a_daemon_without_descriptors_lives(rig: Rig, when: str) -> None:
    """Whoever connects while none is left waits; the shutdown is as any other once there are some again."""
    rig.configure({0: 5}, metricsListen=f"unix:{rig.folder / 'metrics.sock'}")
    rig.pod("web", "after=2")
    await rig.start()
    await rig.up("web")
    if when == "during":
        await rig.bed.power_off()
        await rig.traced("web", "TERM")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = resource.prlimit(rig.pid, resource.RLIMIT_NOFILE, (3, hard))
    async with AsyncExitStack() as clients:
        for path in (rig.runtime / "ebbtide.sock", rig.folder / "metrics.sock"):
            for _ in range(3):
                await clients.enter_async_context(await trio.open_unix_socket(str(path)))
        await trio.sleep(0.5)  # as long as it lasts: five attempts of each server
        resource.prlimit(rig.pid, resource.RLIMIT_NOFILE, before)
    if when == "before":
        await rig.bed.power_off()
    await rig.bed.started(8)
    assert len(rig.events(DaemonStarted)) == 1
    assert [mark.what for mark in rig.trace("web")] == ["up", "TERM", "gone"]

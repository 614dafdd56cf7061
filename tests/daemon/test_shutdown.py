"""Shutdowns from signal to release on the real logind (rules 1, 5 and 7)."""

from __future__ import annotations

import os
import select

import pytest
import trio

from ebbtide.events import decisions as d
from ebbtide.events import facts as f
from tests.daemon.rig import LOCK_NAME, Rig

pytestmark = pytest.mark.root


async def two_waves(rig: Rig) -> None:
    rig.configure({0: 60, 1000: 60})
    rig.pod("web", "after=0.3", hook=0.2)
    rig.pod("db", priority=1000)
    await rig.start()
    await rig.granted()
    await rig.up("web", "db")


def ended(rig: Rig) -> bool:
    """Each pod once, in its order."""
    web, db = ([mark.what for mark in rig.trace(pod)] for pod in ("web", "db"))
    return (web, db) == (["up", "hook", "hooked", "TERM", "gone"], ["up", "TERM", "gone"])


async def test_waves_end_before_the_machine_goes(rig: Rig) -> None:
    """Rules 1 and 5: waves in order; the duplicate's removal is confirmed before our lock is released."""
    await two_waves(rig)
    assert [row.who for row in await rig.bed.ours()] == ["ebbtide"]
    assert len(rig.store.store[LOCK_NAME]) == 1
    await rig.bed.power_off("reboot")
    unit, let_go_ns = await rig.bed.started()
    assert unit == "reboot.target"
    assert ended(rig)
    web, db = rig.trace("web"), rig.trace("db")
    assert web[-1].at_ns < db[1].at_ns < db[2].at_ns < let_go_ns
    assert [(event.kind, event.lock_held) for event in rig.events(d.ShutdownBegan)] == [("reboot", True)]
    assert len(rig.events(d.ReleaseLock)) == 1
    assert await rig.bed.none_of_ours()
    assert LOCK_NAME not in rig.store.store
    said = [next(iter(message)) for message in rig.store.said]
    assert said.index("FDSTOREREMOVE") < said.index("BARRIER")


async def test_a_power_cut_has_a_bound(rig: Rig) -> None:
    """While a wave waits, a second without another record gets one; before and after there is none."""
    rig.configure({0: 60})
    rig.pod("web", "after=2.5")
    await rig.start()
    await rig.up("web")
    await rig.bed.power_off()
    await rig.recorded(d.ReleaseLock)
    written = [type(record.event) for record in rig.records()]
    first, last = written.index(d.ShutdownBegan), written.index(d.ReleaseLock)
    assert f.Heartbeat in written[first:last]
    assert f.Heartbeat not in written[:first] + written[last:]


async def test_a_cancel_in_the_middle_is_honoured(rig: Rig) -> None:
    """Design 7: begun stops finish within their grace, other pods are spared, a new lock is taken."""
    rig.configure({0: 60, 1000: 60})
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
    # Ended pods stay down.
    down = "ended and not started again: default/web; touch a manifest to start its pod"
    assert down in await rig.ebbtide("status", "--journal", str(rig.journal))
    await trio.run_process(["touch", str(rig.pods / "web.yaml")])
    await rig.traced("web", "up", times=2)
    assert "not started again" not in await rig.ebbtide("status", "--journal", str(rig.journal))


async def test_sigterm_while_the_system_stops_is_overtime(rig: Rig) -> None:
    """Rule 7: SIGTERM is the only notice. The waves run with time from the service manager."""
    await two_waves(rig)
    await rig.bed.do("property", name="SystemState", signature="s", value="stopping")
    assert await rig.stop() == 0
    assert ended(rig)
    assert len([said for said in rig.store.said if "EXTEND_TIMEOUT_USEC" in said]) == 1
    assert len(rig.events(d.ReleaseLock)) == 1


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
    await rig.recorded(d.ReleaseLock)
    assert len(rig.events(d.ShutdownBegan)) == 1


def _full(pipe: int) -> bool:
    return not select.select([], [pipe], [], 0)[1]

"""Arming late, switching off and on, reloading (the design's rules 1 and 7)."""

from __future__ import annotations

import signal

import pytest
import trio

from ebbtide.events.decisions import Armed, Disarmed, ShutdownBegan
from ebbtide.events.facts import SettingsRejected
from tests.daemon.rig import Rig

pytestmark = pytest.mark.root

OFF = {
    "by-configuration": {"periods": {}, "fields": {"shutdownGracePeriod": "0s"}},
    "by-gate": {"periods": {0: 3}, "fields": {"featureGates": {"GracefulNodeShutdown": False}}},
}


async def test_a_failed_first_arming_is_tried_again(rig: Rig) -> None:
    """Rule 1: no bus at the start, and the node is armed once there is one (a kubelet never tries again)."""
    await rig.bed.do("stop_logind")
    await rig.bed.do("stop_bus")
    rig.pod("web")
    before = len(rig.store.said)
    rig.launch()
    await rig.ready(before)
    await rig.recorded(Disarmed)
    await rig.status("not armed")
    await rig.up("web")
    await rig.bed.do("start_bus")
    await rig.bed.start_logind()
    await rig.status("armed")
    armed = (await rig.recorded(Armed)).event
    assert isinstance(armed, Armed)
    assert armed.attempt >= 2
    assert len(await rig.bed.ours()) == 1


async def test_a_lost_bus_is_armed_again(rig: Rig) -> None:
    """The bus restarts: the loss is on record, and the node is armed anew on the new one."""
    await rig.start()
    before = len(rig.store.said)
    await rig.bed.restart_bus()
    await rig.recorded(Disarmed)
    await rig.status("armed", before)
    assert len(await rig.bed.ours()) == 1


@pytest.mark.parametrize("how", OFF)
async def test_switched_off_harms_nobody_and_on_again_arms(rig: Rig, how: str) -> None:
    """Rule 7: off means READY, without a lock, a drop-in or a harmed pod; SIGHUP switches it on."""
    rig.configure(OFF[how]["periods"], **OFF[how]["fields"])
    rig.pod("web", "after=0.2")
    await rig.start("not armed: switched off by configuration")
    await rig.up("web")
    assert await rig.bed.ours() == []
    assert not (rig.bed.drop_ins / "zz-ebbtide.conf").exists()
    await rig.bed.power_off()
    await rig.bed.started()
    with trio.fail_after(5):
        while not await rig.bed.get("PreparingForShutdown"):
            await trio.sleep(0.01)
    assert [mark.what for mark in rig.trace("web")] == ["up"]
    assert rig.events(ShutdownBegan) == []
    await rig.bed.reset()
    rig.configure({0: 6})
    rig.signal(signal.SIGHUP)
    await rig.status("armed")
    await rig.bed.until("InhibitDelayMaxUSec", 7_000_000)
    assert len(await rig.bed.ours()) == 1


async def test_switching_off_gives_the_lock_and_the_drop_in_back(rig: Rig) -> None:
    """Off by a reload: the lock goes at once, and so does the drop-in."""
    rig.configure({0: 6})
    await rig.start()
    await rig.bed.until("InhibitDelayMaxUSec", 7_000_000)
    rig.configure({}, shutdownGracePeriod="0s")
    rig.signal(signal.SIGHUP)
    await rig.status("not armed: switched off by configuration")
    await rig.bed.until("InhibitDelayMaxUSec", 5_000_000)
    assert await rig.bed.none_of_ours()
    assert not (rig.bed.drop_ins / "zz-ebbtide.conf").exists()


async def test_a_bad_reload_keeps_the_old_one(rig: Rig) -> None:
    """A configuration that cannot be used is refused with its line; the old one goes on."""
    rig.configure({0: 6})
    await rig.start()
    rig.config.write_text("apiVersion: ebbtide/v1alpha1\nkind: EbbtideConfiguration\nreserv: 3s\n")
    rig.signal(signal.SIGHUP)
    await rig.recorded(SettingsRejected)
    await rig.logged("configuration not reloaded, the old one stays")
    assert "reserve" in rig.events(SettingsRejected)[0].error
    await rig.bed.until("InhibitDelayMaxUSec", 7_000_000)
    assert len(await rig.bed.ours()) == 1


async def test_a_reload_in_a_shutdown_waits_for_its_end(rig: Rig) -> None:
    """The plan of a running shutdown is not changed under it."""
    rig.configure({0: 4})
    rig.pod("web", "after=1")
    await rig.start()
    await rig.up("web")
    await rig.bed.power_off()
    await rig.traced("web", "TERM")
    rig.configure({}, shutdownGracePeriod="0s")
    rig.signal(signal.SIGHUP)
    await rig.logged("it waits for the end of this shutdown")
    await rig.bed.started()
    assert [mark.what for mark in rig.trace("web")] == ["up", "TERM", "gone"]

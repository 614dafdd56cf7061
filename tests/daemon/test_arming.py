"""Arming late, switching off, and what logind grants, on the real logind (the design's rules 1, 4 and 7)."""

from __future__ import annotations

import signal

import pytest

from ebbtide.events.decisions import Armed, Disarmed, GrantAssessed, WriteDropIn
from tests.daemon.rig import Rig

pytestmark = pytest.mark.root

OURS = "zz-ebbtide.conf"


async def test_a_failed_first_arming_is_tried_again_and_a_lost_bus_is_armed_again(rig: Rig) -> None:
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
    before = len(rig.store.said)
    await rig.bed.restart_bus()
    await rig.counted(Disarmed, 2)
    await rig.status("armed", before)
    assert len(await rig.bed.ours()) == 1


async def test_a_reload_gives_the_lock_and_the_drop_in_back_and_takes_them_again(rig: Rig) -> None:
    """Rule 7: off means no lock and no drop-in; SIGHUP switches it on again."""
    rig.configure({0: 6})
    await rig.start()
    await rig.bed.until("InhibitDelayMaxUSec", 7_000_000)
    rig.configure({}, shutdownGracePeriod="0s")
    rig.signal(signal.SIGHUP)
    await rig.status("not armed: switched off by configuration")
    await rig.bed.until("InhibitDelayMaxUSec", 5_000_000)
    assert await rig.bed.none_of_ours()
    assert not (rig.bed.drop_ins / OURS).exists()
    rig.configure({0: 6})
    rig.signal(signal.SIGHUP)
    await rig.status("armed")
    await rig.bed.until("InhibitDelayMaxUSec", 7_000_000)
    assert len(await rig.bed.ours()) == 1


async def test_the_grant_is_raised_and_guarded(rig: Rig) -> None:
    """Rule 4: the drop-in is the largest value of all, comes back, and never lowers another's."""
    rig.configure({0: 20})
    await rig.bed.drop_in("99-kubelet.conf", "7")
    await rig.start()
    await rig.bed.until("InhibitDelayMaxUSec", 21_000_000)
    (rig.bed.drop_ins / OURS).unlink()
    await rig.until_file(rig.bed.drop_ins / OURS)
    await rig.bed.drop_in("50-other.conf", "60")
    await rig.bed.until("InhibitDelayMaxUSec", 60_000_000)
    assert "InhibitDelayMaxSec=60" in (rig.bed.drop_ins / OURS).read_text()
    assert [order.seconds for order in rig.events(WriteDropIn)] == [21, 21, 60]


async def test_a_file_that_overrides_ours_is_named(rig: Rig) -> None:
    """Rule 4: a file that sorts after ours wins; the grant is the value in it."""
    rig.configure({0: 20})
    await rig.bed.drop_in("zzz-late.conf", "6")
    await rig.bed.hang_up()
    await rig.start()
    path = "/run/systemd/logind.conf.d/zzz-late.conf"
    await rig.recorded(GrantAssessed, sufficient=False, overridden_by=path)
    await rig.logged(f"{path} overrides ours")

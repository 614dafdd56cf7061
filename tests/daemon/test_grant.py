"""What logind grants, and the drop-in that raises it (the design's rules 3 and 4)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.decisions import GrantAssessed, PlanMade, ReleaseLock, ShutdownBegan, WriteDropIn
from tests.daemon.rig import Rig

pytestmark = pytest.mark.root

GRANTS = yaml.safe_load((Path(__file__).parents[1] / "cases/grants.yaml").read_text())["cases"]
OURS = "zz-ebbtide.conf"


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


async def test_who_overrides_ours_is_named(rig: Rig) -> None:
    """Rule 4: a file that sorts after ours wins; it is named, and the grant is what it says."""
    rig.configure({0: 20})
    await rig.bed.drop_in("zzz-late.conf", "6")
    await rig.bed.hang_up()
    await rig.start()
    path = "/run/systemd/logind.conf.d/zzz-late.conf"
    await rig.recorded(GrantAssessed, sufficient=False, overridden_by=path)
    await rig.logged(f"{path} overrides ours")


async def test_no_drop_in_is_touched_in_a_shutdown(rig: Rig) -> None:
    """Rule 3: raising the limit in the delay moves the property, not the timer, so nothing is written."""
    rig.configure({0: 3})
    rig.pod("web", "after=1.5")
    await rig.start()
    await rig.up("web")
    await rig.bed.power_off()
    await rig.traced("web", "TERM")
    (rig.bed.drop_ins / OURS).unlink(missing_ok=True)
    await rig.bed.drop_in("50-other.conf", "9")
    await rig.bed.started()
    at_signal = rig.records(ShutdownBegan)[0].seq
    assert [record for record in rig.records(WriteDropIn) if record.seq > at_signal] == []


@pytest.mark.parametrize("case", GRANTS, ids=[case["name"].replace(" ", "-") for case in GRANTS])
async def test_a_grant_that_is_too_small_is_shared_out(rig: Rig, case: dict[str, Any]) -> None:
    """KEP-2000: what logind grants goes to the highest priority first (``cases/grants.yaml``)."""
    fields: dict[str, Any] = {"raiseGrant": False}
    if "by_priority_s" in case:
        rig.configure(case["by_priority_s"], **fields)
    else:
        rig.configure(
            {},
            shutdownGracePeriod=f"{case['total_s']}s",
            shutdownGracePeriodCriticalPods=f"{case['critical_s']}s",
            **fields,
        )
    await rig.bed.config("/etc/systemd/logind.conf", str(case["grant_s"]))
    await rig.bed.hang_up()
    await rig.bed.until("InhibitDelayMaxUSec", case["grant_s"] * 1_000_000)
    await rig.start()
    await rig.bed.power_off()
    await rig.recorded(ReleaseLock)
    (began,) = rig.events(ShutdownBegan)
    assert began.grant_ns == case["grant_s"] * NS_PER_SECOND
    if case["grant_s"]:
        (plan,) = rig.events(PlanMade)
        assert {wave.priority: wave.period_seconds for wave in plan.waves} == case["periods_s"]
    assert not (rig.bed.drop_ins / OURS).exists()


async def test_a_folder_that_cannot_be_written_degrades(rig: Rig) -> None:
    """A drop-in that cannot be placed is a warning and a smaller plan, not a node without protection."""
    rig.configure({0: 20})
    rig.bed.drop_ins.parent.mkdir(parents=True, exist_ok=True)
    rig.bed.drop_ins.write_text("no folder")
    rig.pod("web")
    await rig.start()
    await rig.up("web")
    await rig.recorded(GrantAssessed, sufficient=False)
    await rig.bed.power_off()
    await rig.bed.started()
    (began,) = rig.events(ShutdownBegan)
    assert (began.grant_ns, began.lock_held) == (5 * NS_PER_SECOND, True)
    assert [mark.what for mark in rig.trace("web")] == ["up", "TERM", "gone"]

"""Rule 4: the drop-in is placed, sorted last, verified, named when it loses, watched, and removed."""

from __future__ import annotations

import os
import stat

import pytest

from actors.edges.logind import LogindEdge
from actors.edges.logind.dropins import DropIns
from events.base import NS_PER_SECOND
from events.decisions import Arm, RemoveDropIn, WriteDropIn
from events.facts import DropInsRead, LogindRead
from tests.beds.logind import LogindBed
from tests.logind.conftest import Rig, running

pytestmark = pytest.mark.root

WRITE = WriteDropIn(key="w", seconds=35)
OURS = "zz-ebbtide.conf"


async def test_a_drop_in_raises_the_limit(bed: LogindBed, rig: Rig) -> None:
    """Rule 4: the file stands below /run with 0644, logind has read it, and both are reported."""
    await rig.do(Arm(key="a"))
    assert (await rig.do(WRITE)).result == "done"
    assert await bed.get("InhibitDelayMaxUSec") == 35_000_000
    assert os.listdir(bed.drop_ins) == [OURS]
    assert stat.S_IMODE((bed.drop_ins / OURS).stat().st_mode) == 0o644
    assert stat.S_IMODE(bed.drop_ins.stat().st_mode) == 0o755
    assert rig.facts.of(LogindRead)[-1].grant_ns == 35 * NS_PER_SECOND
    assert rig.facts.of(DropInsRead)[-1].ours_ns == 35 * NS_PER_SECOND


async def test_the_folder_may_be_etc(bed: LogindBed) -> None:
    """Where /run is not wanted, the file goes to the other folder that is asked for."""
    folder = "/etc/systemd/logind.conf.d"
    async with running(LogindEdge(bed.address, root=bed.root, drop_in_folder=folder)) as rig:
        await rig.do(Arm(key="a"))
        assert (await rig.do(WRITE)).result == "done"
    assert (bed.root / folder.lstrip("/") / OURS).exists()


async def test_it_wins_against_vendors_and_the_kubelet(bed: LogindBed, rig: Rig) -> None:
    """Rule 4: the names that beat `99-kubelet.conf` (kubernetes#102818) do not beat ours."""
    await bed.drop_in("99-kubelet.conf", "20s", "/etc")
    await bed.drop_in("unattended-upgrades-logind-maxdelay.conf", "30", "/usr/lib")
    await bed.restart_logind()
    await rig.do(Arm(key="a"))
    read = rig.facts.of(DropInsRead)[0]
    name = "/usr/lib/systemd/logind.conf.d/unattended-upgrades-logind-maxdelay.conf"
    assert (read.others_ns, read.others_path) == (30 * NS_PER_SECOND, name)
    assert (await rig.do(WRITE)).result == "done"
    assert await bed.get("InhibitDelayMaxUSec") == 35_000_000


async def test_a_file_that_wins_is_named(bed: LogindBed, rig: Rig) -> None:
    """Rule 4: a file that sorts after ours keeps the limit low; the outcome says which, and what to do."""
    await bed.drop_in("zzz-last.conf", "7s", "/usr/lib")
    await rig.do(Arm(key="a"))
    ending = await rig.do(WRITE)
    overrider = "/usr/lib/systemd/logind.conf.d/zzz-last.conf"
    assert ending.result == "failed"
    assert ending.reason == (
        f"logind's limit is 7 s: {overrider} is read after "
        f"/run/systemd/logind.conf.d/{OURS}; rename or mask it"
    )
    assert rig.facts.of(DropInsRead)[-1].overridden_by == overrider
    assert rig.facts.of(LogindRead)[-1].grant_ns == 7 * NS_PER_SECOND


async def test_a_file_that_wins_with_enough_is_no_failure(bed: LogindBed, rig: Rig) -> None:
    """What counts is the limit, not who set it."""
    await bed.drop_in("zzz-last.conf", "2min", "/etc")
    await rig.do(Arm(key="a"))
    assert (await rig.do(WRITE)).result == "done"


async def test_a_logind_that_does_not_listen_is_a_failure(bed: LogindBed, rig: Rig) -> None:
    """The property is looked at, not assumed: an unread drop-in fails with where to look."""
    await bed.do("set", reload_works=False)
    await rig.do(Arm(key="a"))
    ending = await rig.do(WRITE)
    assert ending.result == "failed"
    assert ending.reason.startswith("logind's limit is 5 s: it did not take up /run/systemd/logind.conf.d/")


async def test_a_folder_that_cannot_be_written_is_a_failure(bed: LogindBed, rig: Rig) -> None:
    """One line with the file and the reason; nothing is half done."""
    bed.drop_ins.write_text("a file where the folder should be")
    await rig.do(Arm(key="a"))
    ending = await rig.do(WRITE)
    assert ending.result == "failed"
    assert ending.reason.startswith(f"cannot change /run/systemd/logind.conf.d/{OURS}: ")


async def test_removing_gives_the_others_their_value_back(bed: LogindBed, rig: Rig) -> None:
    """Rule 4: without ours, the next file's value is in force again."""
    await bed.drop_in("50-site.conf", "11s", "/etc")
    await rig.do(Arm(key="a"))
    await rig.do(WRITE)
    assert (await rig.do(RemoveDropIn(key="r"))).result == "done"
    assert await bed.get("InhibitDelayMaxUSec") == 11_000_000
    assert os.listdir(bed.drop_ins) == []
    assert rig.facts.of(DropInsRead)[-1].ours_ns is None
    assert (await rig.do(RemoveDropIn(key="r"))).result == "done"


@pytest.mark.parametrize("place", ["/run", "/etc", "/usr/lib", "/usr/local/lib"])
async def test_the_folders_are_watched(bed: LogindBed, rig: Rig, place: str) -> None:
    """Rule 4: a file that appears in any folder, also one that did not exist, is reported; and its end."""
    await rig.do(Arm(key="a"))
    await bed.drop_in("zzz-new.conf", "90s", place)
    read = await rig.facts.wait(DropInsRead, where=lambda read: read.overridden_by)
    assert read.overridden_by == f"{place}/systemd/logind.conf.d/zzz-new.conf"
    (bed.root / read.overridden_by.lstrip("/")).unlink()
    await rig.facts.wait(DropInsRead, 2, where=lambda read: not read.overridden_by)


async def test_somebody_raises_the_limit(bed: LogindBed, rig: Rig) -> None:
    """A change by others is seen when logind is told of it a moment after the file was written."""
    await rig.do(Arm(key="a"))
    await bed.drop_in("70-site.conf", "44s", "/etc")
    await rig.facts.wait(DropInsRead, where=lambda read: read.others_ns == 44 * NS_PER_SECOND)
    await bed.hang_up()
    await rig.facts.wait(LogindRead, where=lambda read: read.grant_ns == 44 * NS_PER_SECOND)


LAYOUTS = {
    "nothing": {},
    "one": {"/etc/systemd/logind.conf.d/10-a.conf": "9s"},
    "name beats folder": {
        "/etc/systemd/logind.conf.d/10-a.conf": "9s",
        "/usr/lib/systemd/logind.conf.d/20-b.conf": "8",
    },
    "higher folder masks": {
        "/etc/systemd/logind.conf.d/50-a.conf": "1min 30s",
        "/run/systemd/logind.conf.d/50-a.conf": "2min",
        "/usr/lib/systemd/logind.conf.d/50-a.conf": "3min",
    },
    "main file is first": {
        "/etc/systemd/logind.conf": "77s",
        "/usr/lib/systemd/logind.conf.d/00-a.conf": "6s",
    },
    "main file alone": {"/etc/systemd/logind.conf": "1.5min"},
    "masked by a link": {
        "/etc/systemd/logind.conf.d/50-a.conf": None,
        "/usr/lib/systemd/logind.conf.d/50-a.conf": "3min",
    },
    "not understood": {
        "/etc/systemd/logind.conf.d/10-a.conf": "33s",
        "/etc/systemd/logind.conf.d/20-b.conf": "soon",
        "/etc/systemd/logind.conf.d/30-c.conf": "",
    },
    "other endings do not count": {"/etc/systemd/logind.conf.d/90-a.conf.bak": "50s"},
    "hidden files": {"/etc/systemd/logind.conf.d/.90-a.conf": "50s"},
    "upper case sorts first": {
        "/etc/systemd/logind.conf.d/ZZ-A.conf": "50s",
        "/etc/systemd/logind.conf.d/aa.conf": "40s",
    },
    "units": {"/etc/systemd/logind.conf.d/a.conf": "1h 2m 3s 4ms 5us"},
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
async def test_we_read_the_files_as_logind_does(bed: LogindBed, layout: dict[str, str | None]) -> None:
    """Rule 4: for each layout of files our reading of the limit is the real logind's."""
    for path, value in layout.items():
        await bed.config(path, value)
    await bed.restart_logind()
    assert DropIns(bed.root).effective_ns() == await bed.get("InhibitDelayMaxUSec") * 1000

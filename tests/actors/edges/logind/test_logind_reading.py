"""What logind says: its schedule, time spans and configuration files (rule 6)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.actors.edges import logind_reading
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.codec import decode_event, encode_event
from ebbtide.events.decisions import Arm
from ebbtide.events.facts import PrepareForShutdown, ScheduleRead
from tests.actors.edges.logind.conftest import Rig
from tests.beds.logind import LogindBed

NOW_NS = 1_000_000_000_000_000_000
LATER_US = NOW_NS // 1000 + 60_000_000


@pytest.mark.root
async def test_who_asked_and_that_it_was_cancelled(bed: LogindBed, rig: Rig) -> None:
    """Rule 6: schedule, move and end are each reported once; a due one before its signal."""
    await rig.do(Arm(key="a"))
    await bed.set_wall_message("disk swap: rack 7 \u2013 back at 9")
    at_ns = await bed.schedule("reboot", 600)
    read = await rig.facts.wait(ScheduleRead)
    assert (read.at_wall_ns, read.kind, read.uid) == (at_ns, "reboot", 0)
    assert read.wall_message == "disk swap: rack 7 \u2013 back at 9"
    moved_ns = await bed.schedule("poweroff", 1200)
    assert (await rig.facts.wait(ScheduleRead, 2)).at_wall_ns == moved_ns
    await bed.cancel()
    assert await rig.facts.wait(ScheduleRead, 3) == logind_reading.NO_SCHEDULE
    await bed.schedule("kexec", 0.3)
    assert (await rig.facts.wait(PrepareForShutdown)).kind == "kexec"
    kinds = [type(fact) for fact in rig.facts.facts]
    assert kinds[: kinds.index(PrepareForShutdown)].count(ScheduleRead) == 4


def test_a_kubelet_is_root() -> None:
    """Any local user may name its lock so; it must not make us step back."""
    assert logind_reading.is_kubelet_lock(("shutdown:sleep", "kubelet", "", "delay", 0, 77))
    assert not logind_reading.is_kubelet_lock(("shutdown", "kubelet", "", "delay", 1000, 77))
    assert not logind_reading.is_kubelet_lock(("shutdown", "kubelet", "", "block", 0, 77))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "MODE=reboot\n",
        "USEC=0\nMODE=reboot\n",
        f"USEC={NOW_NS // 1000}\nMODE=reboot\n",
        "USEC=-5\nMODE=reboot\n",
        "USEC=soon\nMODE=reboot\n",
        f"USEC={LATER_US}\nMODE=dry-reboot\n",
        "USEC\nMODE\n",
    ],
)
def test_what_is_no_schedule(text: str) -> None:
    """Rule 6: a zero, past or unreadable time is no schedule; neither is a dry run."""
    assert logind_reading.parse_schedule(text, NOW_NS) == logind_reading.NO_SCHEDULE


@given(
    st.text()
    | st.lists(st.sampled_from(["USEC=9", "9" * 40, "UID=", "-1", "\\", "\\x", "=", "\n"])).map("".join)
)
def test_no_content_is_an_error(text: str) -> None:
    """Any content can be read and survives the codec."""
    read = logind_reading.parse_schedule(text, 0)
    assert decode_event("ScheduleRead", encode_event(read)) == read


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5s", 5),
        ("5", 5),
        ("2min", 120),
        ("1min 30s", 90),
        ("1h1m1s", 3661),
        (" 7 sec ", 7),
        ("0", 0),
        ("1.5min", 90),
    ],
)
def test_spans(text: str, seconds: int) -> None:
    assert logind_reading.parse_timespan_ns(text) == seconds * NS_PER_SECOND


@given(st.text())
def test_any_file_can_be_read(text: str) -> None:
    value_ns = logind_reading.setting_in("[Login]\nInhibitDelayMaxSec=" + text)
    assert value_ns is None or 0 <= value_ns <= logind_reading.GRANT_NS_MAX


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("[Login]\nInhibitDelayMaxSec=3\nInhibitDelayMaxSec=4\n", 4),
        ("InhibitDelayMaxSec=3\n", None),
        ("[Journal]\nInhibitDelayMaxSec=3\n", None),
        ("[Login]\n#InhibitDelayMaxSec=3\n;InhibitDelayMaxSec=3\n", None),
        ("[Login]\n  InhibitDelayMaxSec = 3 s \n", 3),
        ("[Login]\nInhibitDelayMaxSec=\\\n 3\n", 3),
        ("[Login]\nInhibitDelayMaxSec=3\nInhibitDelayMaxSec=never\n", 3),
    ],
)
def test_one_file(text: str, seconds: int | None) -> None:
    """Only the right section and its last usable line count; comments and continuations follow systemd."""
    assert logind_reading.setting_in(text) == (None if seconds is None else seconds * NS_PER_SECOND)


def test_a_file_of_our_name_that_masks_ours(root: Path) -> None:
    """The outcome names an administrator's file of our name in a higher folder."""
    files = logind_reading.DropIns(root)
    files.write(30)
    place = root / "etc/systemd/logind.conf.d" / logind_reading.DROP_IN_NAME
    place.parent.mkdir(parents=True)
    place.write_text("[Login]\nInhibitDelayMaxSec=9\n")
    read = files.read()
    assert (read.ours_ns, read.overridden_by) == (
        None,
        f"/etc/systemd/logind.conf.d/{logind_reading.DROP_IN_NAME}",
    )

"""Rule 6: record a scheduled shutdown with its time, kind and requester."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.actors.edges.logind.manager import (
    NO_SCHEDULE,
    is_kubelet_lock,
    parse_schedule,
)
from ebbtide.events.codec import decode_event, encode_event
from ebbtide.events.decisions import Arm
from ebbtide.events.facts import ScheduleRead
from tests.actors.edges.logind.conftest import Rig
from tests.beds.logind import LogindBed

NOW_NS = 1_000_000_000_000_000_000
LATER_US = NOW_NS // 1000 + 60_000_000


@pytest.mark.root
async def test_who_asked_and_that_it_was_cancelled(bed: LogindBed, rig: Rig) -> None:
    """Rule 6: schedule, move and end are each reported once."""
    await rig.do(Arm(key="a"))
    await bed.set_wall_message("disk swap: rack 7 \u2013 back at 9")
    at_ns = await bed.schedule("reboot", 600)
    read = await rig.facts.wait(ScheduleRead)
    assert (read.at_wall_ns, read.kind, read.uid) == (at_ns, "reboot", 0)
    assert read.wall_message == "disk swap: rack 7 \u2013 back at 9"
    moved_ns = await bed.schedule("poweroff", 1200)
    assert (await rig.facts.wait(ScheduleRead, 2)).at_wall_ns == moved_ns
    await bed.cancel()
    assert await rig.facts.wait(ScheduleRead, 3) == NO_SCHEDULE


def test_a_kubelet_is_root() -> None:
    """Any local user may name its lock so; it must not make us step back."""
    assert is_kubelet_lock(("shutdown:sleep", "kubelet", "", "delay", 0, 77))
    assert not is_kubelet_lock(("shutdown", "kubelet", "", "delay", 1000, 77))
    assert not is_kubelet_lock(("shutdown", "kubelet", "", "block", 0, 77))


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
    assert parse_schedule(text, NOW_NS) == NO_SCHEDULE


@given(
    st.text()
    | st.lists(st.sampled_from(["USEC=9", "9" * 40, "UID=", "-1", "\\", "\\x", "=", "\n"])).map("".join)
)
def test_no_content_is_an_error(text: str) -> None:
    """Any content can be read and survives the codec."""
    read = parse_schedule(text, 0)
    assert decode_event("ScheduleRead", encode_event(read)) == read

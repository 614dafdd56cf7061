"""systemd's time spans and configuration files, without systemd."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.actors.edges.logind.drop_ins import (
    DROP_IN_NAME,
    GRANT_NS_MAX,
    DropIns,
    parse_timespan_ns,
    setting_in,
)
from ebbtide.events.base import NS_PER_SECOND


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
    assert parse_timespan_ns(text) == seconds * NS_PER_SECOND


@given(st.text())
def test_any_file_can_be_read(text: str) -> None:
    value_ns = setting_in("[Login]\nInhibitDelayMaxSec=" + text)
    assert value_ns is None or 0 <= value_ns <= GRANT_NS_MAX


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
    assert setting_in(text) == (None if seconds is None else seconds * NS_PER_SECOND)


def test_a_file_of_our_name_that_masks_ours(root: Path) -> None:
    """The outcome names an administrator's file of our name in a higher folder."""
    files = DropIns(root)
    files.write(30)
    place = root / "etc/systemd/logind.conf.d" / DROP_IN_NAME
    place.parent.mkdir(parents=True)
    place.write_text("[Login]\nInhibitDelayMaxSec=9\n")
    read = files.read()
    assert (read.ours_ns, read.overridden_by) == (None, f"/etc/systemd/logind.conf.d/{DROP_IN_NAME}")

"""systemd's time spans and configuration files, without systemd."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.actors.edges.logind.drop_ins import (
    DROP_IN_NAME,
    GRANT_NS_MAX,
    UNITS_NS,
    DropIns,
    grant_ns_of_usec,
    parse_timespan_ns,
    setting_in,
)
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.facts import DropInsRead


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
    """The forms that systemd.time(7) shows."""
    assert parse_timespan_ns(text) == seconds * NS_PER_SECOND


@pytest.mark.parametrize("text", ["", "soon", "5 parsecs", "-5s", "5s,", "1e3", "s", "½s", "9" * 300])
def test_no_spans(text: str) -> None:
    """What systemd ignores with a warning is no value for us either."""
    assert parse_timespan_ns(text) is None


def test_infinity_is_a_number() -> None:
    """Infinity, in a file or as all bits of the property, stays inside every integer format."""
    assert parse_timespan_ns("infinity") == grant_ns_of_usec(2**64 - 1) == GRANT_NS_MAX < 2**63
    assert parse_timespan_ns("99999y") == GRANT_NS_MAX


@given(st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from(sorted(UNITS_NS))), min_size=1, max_size=5))
def test_parts_add_up(parts: list[tuple[int, str]]) -> None:
    """A span is the sum of its parts, in any order, however they are spaced."""
    expected = min(sum(count * UNITS_NS[unit] for count, unit in parts), GRANT_NS_MAX)
    assert parse_timespan_ns(" ".join(f"{count}{unit}" for count, unit in parts)) == expected
    assert parse_timespan_ns(" ".join(f"{count} {unit}" for count, unit in reversed(parts))) == expected


@given(st.text())
def test_any_file_can_be_read(text: str) -> None:
    """No content raises."""
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
    """The section counts, the last usable line wins, comments and continuations are systemd's."""
    assert setting_in(text) == (None if seconds is None else seconds * NS_PER_SECOND)


def test_nothing_configured(root: Path) -> None:
    """Without any file, logind's own default is what the others have."""
    assert DropIns(root).read() == DropInsRead(others_ns=5 * NS_PER_SECOND)


def test_a_file_of_our_name_that_masks_ours(root: Path) -> None:
    """An administrator's file of the same name in a higher folder is named as what overrides ours."""
    files = DropIns(root)
    files.write(30)
    place = root / "etc/systemd/logind.conf.d" / DROP_IN_NAME
    place.parent.mkdir(parents=True)
    place.write_text("[Login]\nInhibitDelayMaxSec=9\n")
    read = files.read()
    assert (read.ours_ns, read.overridden_by) == (None, f"/etc/systemd/logind.conf.d/{DROP_IN_NAME}")


def test_writing_again_replaces_and_leaves_nothing_behind(root: Path) -> None:
    """A second value replaces the first in one rename; no temporary file stays."""
    files = DropIns(root)
    files.write(30)
    files.write(40)
    assert files.read().ours_ns == 40 * NS_PER_SECOND
    assert [path.name for path in (root / "run/systemd/logind.conf.d").iterdir()] == [DROP_IN_NAME]
    assert (files.remove(), files.remove()) == (True, False)


def test_a_folder_that_logind_does_not_read(root: Path) -> None:
    """A drop-in there would do nothing: refused, with the folders that would."""
    with pytest.raises(ValueError, match="logind does not read /opt/x; use one of /etc/"):
        DropIns(root, "/opt/x")

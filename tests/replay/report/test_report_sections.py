"""Parts of the page that most shutdowns do not have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from ebbtide.cli.common.saving import save
from ebbtide.events.record.model import Notice
from ebbtide.replay.critical_chain import Chain, critical_chain
from ebbtide.replay.report import page as around
from ebbtide.replay.report import page as sections
from ebbtide.replay.report.markup import moment, span
from ebbtide.replay.report.page import (
    DATA_CHARACTERS_MAX,
    ENTRIES_MAX,
    TEXT_CHARACTERS_MAX,
    chain_section,
    document,
    held_up,
)
from ebbtide.replay.timeline import Line
from tests.replay.report import journals

ACCOUNT, LINES = journals.told(journals.story())


def test_who_asked() -> None:
    """A scheduled shutdown says who scheduled it, from where, and what was said to everybody."""
    told = replace(ACCOUNT, asked_by_uid=1000, asked_tty="tty1", wall_message="kernel <update>")
    header = sections.header_section(told, journals.STARTED, "")
    assert "uid 1000 on tty1: “kernel &lt;update&gt;”" in header
    assert "Asked for by" not in sections.header_section(ACCOUNT, journals.STARTED, "")
    assert "<dd>“soon”</dd>" in sections.header_section(
        replace(ACCOUNT, wall_message="soon"), journals.STARTED, ""
    )


def test_many_warnings_unfold() -> None:
    """The first warnings stand open; the rest is counted and unfolds, on paper by itself."""
    notices = tuple(Notice(seq=at, at_ns=0, code="pod-killed", text=f"pod {at}") for at in range(20))
    made = sections.notices_section(replace(ACCOUNT, notices=notices))
    before, _, after = made.partition("<details data-print>")
    assert before.count("<li>") == sections.NOTICES_MAX
    assert after.count("<li>") == 20 - sections.NOTICES_MAX
    assert "12 more warnings" in after
    assert "20 warnings" in before


def test_nothing_to_warn_of() -> None:
    """No warnings, no such part."""
    assert sections.notices_section(replace(ACCOUNT, notices=())) == ""


def test_nothing_happened() -> None:
    """Without waves, hooks and time the parts say so, in place of empty tables."""
    assert "No plan was made." in sections.waves_section(replace(ACCOUNT, waves=()))
    assert "No preStop hook ran." in sections.hooks_section(replace(ACCOUNT, pods=()))
    nothing = Chain(0, (), ())
    assert "Nothing took any time." in chain_section(ACCOUNT, nothing)
    assert held_up(ACCOUNT, nothing) == ""


def test_nothing_beside_the_waves() -> None:
    """A table is left out where it would be empty; sources are shown only where the journal has them."""
    assert "Beside the waves" not in around.progress_section(replace(ACCOUNT, beside=()))
    told = replace(ACCOUNT, configuration=replace(ACCOUNT.configuration, sources={"reserve": "default"}))
    assert "Where the values came from" in around.settings_section(told)


def test_the_next_boot_is_no_restart() -> None:
    """The daemon that found the shutdown over and closed it came after it, and its row says so in words."""
    first = ACCOUNT.processes[0]
    again = replace(first, seq=50, at_ns=2_000_000_000, quiet_since_ns=1_000_000_000, action="resume")
    after = replace(
        first, seq=99, at_ns=90_000_000_000, boot_id="b2", action="close-complete", previous="complete"
    )
    made = around.progress_section(replace(ACCOUNT, processes=(first, after)))
    assert "Daemons that wrote this shutdown: no restart, and one that came after it" in made
    assert "came after it, and noted: complete" in made
    assert "close-complete" not in made
    assert "<p>complete</p>" not in made
    both = around.progress_section(replace(ACCOUNT, processes=(first, again, after)))
    assert "Daemons that wrote this shutdown: 1 restart, and one that came after it" in both
    assert "went on where it stopped" in both
    lines = document(replace(ACCOUNT, processes=(first, replace(after, boot_id=first.boot_id))), [], ())[
        "lines"
    ]
    assert "restart" not in [name for name, _ in lines]


def test_the_sign_says_what_became_of_the_pods() -> None:
    """A complete shutdown is good news only if nobody was killed in it."""
    killed = sections.header_section(ACCOUNT, journals.STARTED, "")
    assert ACCOUNT.count("killed") == 1
    assert '<span class="seal mixed" aria-hidden="true">!</span>' in killed
    good = [replace(pod, outcome="graceful") for pod in ACCOUNT.pods]
    clean = sections.header_section(replace(ACCOUNT, pods=tuple(good)), journals.STARTED, "")
    assert '<span class="seal complete" aria-hidden="true">✓</span>' in clean


def test_the_grant_stands_beside_all_that_was_asked() -> None:
    """The reserve is part of what logind has to grant."""
    asked = replace(ACCOUNT.configuration, requested_ns=60_000_000_000, reserve_ns=5_000_000_000)
    made = sections.figures_section(replace(ACCOUNT, grant_ns=65_000_000_000, configuration=asked))
    assert '<dd>1min 5s</dd><dd class="note">asked 1min 5s, 5s of it in reserve</dd>' in made
    none = sections.figures_section(replace(ACCOUNT, configuration=replace(asked, reserve_ns=0)))
    assert "asked 1min</dd>" in none


def test_microseconds_are_spelt_for_people() -> None:
    """The page has the sign; the tables of a terminal keep systemd's letters."""
    assert (span(6_000), moment(6_000), sections.span(6_000)) == ("6µs", "+6µs", "6µs")


def test_many_that_are_late_unfold() -> None:
    """A wave's row names some of them; hundreds would push all else out of sight."""
    late = tuple(f"uid-{at}" for at in range(30))
    made = sections.waves_section(replace(ACCOUNT, waves=(replace(ACCOUNT.waves[0], stragglers=late),)))
    before, _, after = made.partition("<summary>and 22 more</summary>")
    assert "uid-7" in before
    assert "uid-8" not in before
    assert "uid-29" in after


def test_length_of_what_is_not_complete() -> None:
    """Only a complete shutdown ends with a release."""
    assert "Signal to release" in sections.figures_section(ACCOUNT)
    assert "Signal to its end" in sections.figures_section(replace(ACCOUNT, outcome="cancelled"))
    assert "On record" in sections.figures_section(replace(ACCOUNT, outcome="truncated", ended_ns=None))


def test_the_chain_adds_up() -> None:
    """The page's stages are those of the critical chain, in their order, with the whole beside them."""
    found = critical_chain(ACCOUNT)
    made = chain_section(ACCOUNT, found)
    places = [made.index(segment.text) for segment in found.segments]
    assert places == sorted(places)
    assert f"add up to {sections.span(found.total_ns)}" in made


def test_the_grace_is_what_the_pod_had() -> None:
    """A late pod had less than planned, under an elastic budget it had more: the plan's stands behind it."""
    pod = ACCOUNT.pods[0]

    def grace_cell(grace_ns: int | None) -> tuple[str, str]:
        told = replace(pod, grace_seconds=10, wanted_grace_seconds=12, grace_ns=grace_ns)
        made = sections.pods_section(replace(ACCOUNT, pods=(told,)))
        cell = re.search(r'<td data-v="([0-9]+)" data-l="grace ">([^<]*)</td>', made)
        assert cell is not None
        assert ("Its spec asks for 12s." in made) == (grace_ns != 12_000_000_000)
        return cell[1], cell[2]

    assert grace_cell(None) == ("10000000", "10s")
    assert grace_cell(10_000_000_000) == ("10000000", "10s")
    assert grace_cell(7_998_000_000) == ("7998000", "7.998s (planned 10s)")
    assert grace_cell(12_000_000_000) == ("12000000", "12s (planned 10s)")


def test_events_that_nobody_can_read() -> None:
    """A payload that is no map stands as it is; a long list stands as its length."""
    strange: Line = replace(LINES[0], data="00ff")
    long: Line = replace(LINES[1], data={"pods": list(range(100)), "raw": b"12345"})
    events = document(ACCOUNT, [strange, long], ())["events"]
    assert events["data"] == ["00ff", "pods=(100 of them) raw=(5 bytes)"]


def test_a_failure_in_the_middle_leaves_the_old_file(tmp_path: Path) -> None:
    """Half a result never takes the place of a whole one."""

    def parts() -> object:
        yield b"half"
        raise ValueError("broken")

    path = tmp_path / "out.jsonl"
    path.write_bytes(b"old")
    with pytest.raises(ValueError, match="broken"):
        save(path, parts(), readable=True, example="out")  # type: ignore[arg-type]
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["out.jsonl"]


def test_the_manual_says_what_is_shortened() -> None:
    """What the page leaves out of an event, and how many lines stand open, stand in its manual."""
    manual = " ".join((Path(__file__).parents[3] / "docs" / "report.md").read_text().split())
    assert (
        f"at most {TEXT_CHARACTERS_MAX} characters of its words and {DATA_CHARACTERS_MAX} of its data"
        in manual
    )
    assert f"more than {ENTRIES_MAX} entries" in manual
    assert f"The first {sections.NOTICES_MAX} warnings and the first {sections.LATE_MAX} late pods" in manual

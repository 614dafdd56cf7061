"""``ebbtide replay state``: what every actor knew, after any event and at any instant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ebbtide.events.catalog import DirectorySource
from ebbtide.events.decisions import Armed
from ebbtide.events.reader import History
from ebbtide.replay.replayer import Replayer
from ebbtide.replay.states import states_at
from tests.cli.replay.conftest import golden
from tests.commands import Run
from tests.journals import SHUTDOWN, records_of
from tests.replay import outages
from tests.replay.journals import edit, write


def history(journal: Path = SHUTDOWN) -> History:
    return History([DirectorySource(journal)])


def document(replay: Run, *arguments: str, journal: Path = SHUTDOWN) -> dict[str, Any]:
    ran = replay("state", *arguments, "-o", "json", journal=journal)
    assert ran.code == 0
    made: dict[str, Any] = json.loads(ran.out)
    return made


@pytest.mark.parametrize(
    "name, arguments",
    [
        ("state-58.txt", ("--at", "58")),
        ("state-pod.json", ("--at", "58", "--pod", "stuck-0", "-o", "json")),
    ],
)
def test_golden(replay: Run, name: str, arguments: tuple[str, ...]) -> None:
    """As it was read before it was committed."""
    ran = replay("state", *arguments)
    assert (ran.code, ran.err) == (0, "")
    golden(name, ran.out)


def test_after_a_step_it_is_what_the_system_has() -> None:
    """At the end of every step the states are those of a plain re-execution."""
    replayer, step = Replayer(), []
    for raw in history().raw():
        step.append(raw)
        if raw.flags & 1:
            replayer.feed(step)
            step = []
            found = states_at(history(), raw.seq)
            assert found is not None
            slots = replayer.system.slots.values()
            assert {label: of.state for label, of in found.known.items()} == {
                slot.label: slot.state for slot in slots
            }


@pytest.mark.parametrize("at, seq", [
    ("58", 58), ("+10.002s", 64), ("+10s", 56), ("+10.0021s", 64), ("2023-11-14T22:14:35.007Z", 64),
    ("2023-11-14T22:14:35.0069Z", 56), ("2030-01-01T00:00:00Z", 99),
])  # fmt: skip
def test_at_an_instant_it_is_the_last_record_until_then(replay: Run, at: str, seq: int) -> None:
    """By number, by the time since the signal, by the clock."""
    assert document(replay, "--at", at)["seq"] == seq


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("--at", "100"), "the last one is 99"),
        (("--at", "0"), "there is no record 0"),
        (("--at", "20", "--pod", "nobody"), "no such actor at record 20"),
        (("--at", "5", "--actor", "wave"), "there are config, logind, kubelet, node, episode, fallback"),
        (("--at", "sometime"), "--at 'sometime' is neither"),
        (("--at", "-1s"), "before the signal"),
        (("--at", "1999-01-01T00:00:00Z"), "the journal begins after that time"),
    ],
)
def test_a_wrong_request_is_one_line(replay: Run, arguments: tuple[str, ...], words: str) -> None:
    """What was wrong, and what there is."""
    ran = replay("state", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert words in ran.err
    assert ran.err.count("\n") == 1


def test_unknown_logic_is_refused(replay: Run, tmp_path: Path) -> None:
    """What this version does not know it does not execute: exit code 6, and no guess."""
    folder = write(tmp_path / "odd", records_of(SHUTDOWN)[:44], logic="shutdown-2")
    ran = replay("state", "--at", "20", journal=folder)
    assert (ran.code, ran.out) == (6, "")
    assert "unknown logic 'shutdown-2'" in ran.err


def test_the_command_says_so_too(replay: Run, spoiled: Path) -> None:
    """Exit code 3, and where verify explains it."""
    written = edit(records_of(SHUTDOWN)[:44], 11, lambda event: Armed(grant_ns=7))
    folder = write(spoiled, written)
    ran = replay("state", "--at", "20", journal=folder)
    assert ran.code == 3
    assert "from record 11 on" in ran.err
    assert ran.out


@pytest.mark.parametrize(("at", "after"), [("+999s", True), ("2030-01-01T00:00:00Z", True), ("+5s", False)])
def test_a_moment_behind_the_record_is_said(run: Run, at: str, after: bool) -> None:
    """Its last states are shown, and not as if they were those of that moment."""
    ran = run("replay", "state", "--at", at, "--journal", SHUTDOWN, "-o", "json")
    assert (ran.code, json.loads(ran.out)["afterEnd"]) == (0, after)
    assert ("nothing is on record so late: these are the states after the last record" in ran.err) == after


def test_an_outages_moments_are_told_from_its_begin(replay: Run) -> None:
    """Which of its times is a moment, the end of the name says; a length has none of these."""
    ran = replay("state", "--at", "40", "--all", journal=outages.GOLDEN)
    rows = [line.rsplit("  ", 1) for line in ran.out.splitlines() if "_ns " in line]
    told = {name.split()[-1]: text for name, text in rows}
    lengths = {name for name, text in told.items() if text[0].isdigit()}
    assert lengths == {"proof_ns", "reminder_ns", "power_off_ns"}
    assert (told["bmc-1].first_ns"], told["down_ns"]) == ("+40 ms", "+25.040 s")

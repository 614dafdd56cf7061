"""``ebbtide replay state``: what every actor knew, after any event and at any instant."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ebbtide.events.catalog import DirectorySource
from ebbtide.events.reader import History
from ebbtide.replay.replayer import Replayer
from ebbtide.replay.states import states_at
from tests.cli.replay.conftest import golden
from tests.commands import Run
from tests.journals import SHUTDOWN


def history(journal: Path = SHUTDOWN) -> History:
    return History([DirectorySource(journal)])


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


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("--at", "97"), "the last one is 96"),
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


@pytest.mark.parametrize(("at", "after"), [("+999s", True), ("2030-01-01T00:00:00Z", True), ("+5s", False)])
def test_a_moment_behind_the_record_is_said(run: Run, at: str, after: bool) -> None:
    """Its last states are shown, and not as if they were those of that moment."""
    ran = run("replay", "state", "--at", at, "--journal", SHUTDOWN, "-o", "json")
    assert (ran.code, json.loads(ran.out)["afterEnd"]) == (0, after)
    assert ("nothing is on record so late: these are the states after the last record" in ran.err) == after

"""``ebbtide replay state``: each actor's state after any event and at any time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ebbtide.actors.hook import HOOK
from ebbtide.actors.system import Slot, System
from ebbtide.events.base import Event
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.decisions import Armed
from ebbtide.events.facts import ContainerExited
from ebbtide.events.reader import History
from ebbtide.events.record.episodes import episodes
from ebbtide.replay import simulate
from ebbtide.replay.replayer import Replayer, whole_steps
from ebbtide.replay.states import KnownState, states_at
from ebbtide.replay.timeline import timeline
from tests.cli.replay.conftest import golden
from tests.commands import Run
from tests.handlers import replace_handler
from tests.journals import SHUTDOWN, Memory, records_of
from tests.replay.journals import edit, write


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
    """The error and the possible values."""
    ran = replay("state", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert words in ran.err
    assert ran.err.count("\n") == 1


def test_unknown_logic_is_refused(replay: Run, tmp_path: Path) -> None:
    """Exit code 6 without a guess."""
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


def test_an_actor_that_fails_is_shown_as_failed(replay: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug of this version: its last state is shown, it takes no further part, and the failure is
    visible.
    """

    def bug(state: Any, event: Any, now: int) -> Any:
        raise KeyError

    replace_handler(monkeypatch, HOOK, ContainerExited, bug)
    ran = replay("state", "--at", "41", "--pod", "web-0")
    assert ran.code == 3
    assert "hook:shop/web-0  failed" in ran.out
    assert "it takes no further part" in ran.out


def states_of(system: System) -> dict[str, KnownState]:
    return {slot.label: KnownState(slot.state, slot.failed) for slot in system.slots.values()}


class Noting(System):
    """A system that continues another one and records its states before each event."""

    def __init__(self, system: System) -> None:
        vars(self).update(vars(system))
        self.noted: list[dict[str, KnownState]] = []

    def _recipients(self, event: Event, *how: Any) -> list[Slot]:
        self.noted.append(states_of(self))
        return super()._recipients(event, *how)


#: With the seeds' crashes, lost buses, cancels and late grants.
@pytest.mark.parametrize("seed", range(300, 306))
def test_the_reading_verbs_agree(seed: int) -> None:
    """At each record of the timeline `state` equals a replay of the whole journal."""
    whole, replayer = History([Memory(simulate(seed, synthetic=5).files())]), Replayer()
    there = dict[int, dict[str, KnownState]]()
    for _, records in whole_steps(whole.batches()):
        noting = replayer.system = Noting(replayer.system)
        assert replayer.feed(records) is None
        after = [*noting.noted[1:], states_of(replayer.system)]
        # No actor receives the digest that ends some steps.
        after += after[-1:] * (len(records) - len(after))
        there.update(zip((raw.seq for raw in records), after, strict=True))
    lines = [line.seq for each in episodes(whole) for line in timeline(whole.batches(), each.first_seq)]
    assert lines
    for seq in lines[::10]:
        found = states_at(whole, seq)
        assert found is not None
        assert (found.at.seq, found.known, found.divergence) == (seq, there[seq], None)


@pytest.mark.parametrize(("at", "after"), [("+999s", True), ("2030-01-01T00:00:00Z", True), ("+5s", False)])
def test_a_moment_behind_the_record_is_said(run: Run, at: str, after: bool) -> None:
    """The last states are shown, marked as earlier than the requested time."""
    ran = run("replay", "state", "--at", at, "--journal", SHUTDOWN, "-o", "json")
    assert (ran.code, json.loads(ran.out)["afterEnd"]) == (0, after)
    assert ("the journal ends earlier: these are the states after the last record" in ran.err) == after

"""``ebbtide replay state``: each actor's state after any event and at any time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ebbtide.actors.hook import HOOK
from ebbtide.actors.system import Slot, System
from ebbtide.events.base import Event
from ebbtide.events.facts import ContainerExited
from ebbtide.events.reader import History
from ebbtide.events.record.episodes import episodes
from ebbtide.replay import simulate
from ebbtide.replay.replayer import Replayer, whole_steps
from ebbtide.replay.states import KnownState, states_at
from ebbtide.replay.timeline import timeline
from tests.commands import Run
from tests.handlers import replace_handler
from tests.journals import SHUTDOWN, Memory, changed, records_of, segment, write_files


def test_the_command_says_so_too(replay: Run, spoiled: Path) -> None:
    """Exit code 3, and where verify explains it."""
    folder = write_files(spoiled, segment(changed(records_of(SHUTDOWN)[:44], 11, grant_ns=7)))
    ran = replay("state", "--at", "20", journal=folder)
    assert ran.code == 3
    assert "from record 11 on" in ran.err
    assert ran.out


def test_an_actor_that_fails_is_shown_as_failed(replay: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug of this version: the last state is shown, and the failure. The actor takes no further part."""

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
def test_a_moment_behind_the_record_is_said(replay: Run, at: str, after: bool) -> None:
    """The last states are shown, marked as earlier than the requested time."""
    ran = replay("state", "--at", at, "-o", "json")
    assert (ran.code, json.loads(ran.out)["afterEnd"]) == (0, after)
    assert ("the journal ends earlier: these are the states after the last record" in ran.err) == after

"""A shutdown without a recorded start is reported so and never counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ebbtide import replay
from ebbtide.cli.common.reading import JournalPool
from ebbtide.cli.common.saving import write_journal
from ebbtide.cli.journal import check_command, ls_command
from ebbtide.events.reader import History
from ebbtide.events.record.episodes import episodes, headless_episode
from ebbtide.replay.sim.simulate import Machine, MemorySource, SimulationRequest, plan_of
from ebbtide.replay.whatif.record import WrongChange


def in_two() -> tuple[dict[str, bytes], dict[str, bytes]]:
    """A journal whose last segment starts inside a good shutdown, and that segment alone."""
    for seed in range(200):
        files = Machine(plan_of(SimulationRequest(synthetic=4), seed)).run().journal.files()
        last = max(files)
        alone = {last: files[last]}
        history = History([MemorySource(alone)])
        if len(files) > 1 and headless_episode(history) is not None:
            whole = [each.outcome for each in episodes(History([MemorySource(files)]), boot_id="now")]
            if whole[-1:] == ["complete"]:
                return files, alone
    raise AssertionError("no seed has one")


@pytest.fixture(scope="module")
def parts() -> tuple[dict[str, bytes], dict[str, bytes]]:
    return in_two()


@pytest.fixture
def alone(parts: tuple[dict[str, bytes], dict[str, bytes]], tmp_path: Path) -> Path:
    write_journal(tmp_path / "node", parts[1])
    return tmp_path / "node"


def test_it_is_intact_and_marked(alone: Path) -> None:
    """Retention may have removed older segments: no damage, not cut short."""
    journal = replay.open(alone, boot_id="now")
    (shutdown,) = journal.shutdowns()
    assert journal.verdict.state == "intact"
    assert (shutdown.account.headless, shutdown.account.outcome) == (True, "complete")
    assert [each.code for each in shutdown.account.notices if each.code == "begin-lost"] == ["begin-lost"]
    (episode,) = episodes(journal.history(), boot_id="now")
    assert (episode.headless, episode.outcome, episode.severity) == (
        True,
        "complete",
        shutdown.account.severity,
    )


def test_nothing_counts_it_as_known(alone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tables and advice skip it, what-if refuses it; each says so."""
    pool = JournalPool([alone])
    assert list(pool.records()) == []
    assert "whose begin is not on record" in capsys.readouterr().err
    shutdown = replay.open(alone).shutdown()
    with pytest.raises(replay.NoEvidence):
        replay.advise([shutdown])
    with pytest.raises(WrongChange, match="begin of this shutdown is not on record"):
        replay.what_if(shutdown, grant_ns=40 * 10**9)


def test_the_verbs_say_it(alone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`journal ls` and `journal check`, as text and JSON; the exit code of an intact journal."""
    (shutdown,) = replay.open(alone).shutdowns()
    for command in (ls_command, check_command):
        said = []
        for output in ("table", "json"):
            assert command.callback is not None
            assert command.callback(journals=(alone,), output=output) == 0
            said.append(capsys.readouterr().out)
        assert "begin is not on record" in said[0] or "begin not on record" in said[0]
        document = json.loads(said[1])
        if command is ls_command:
            assert [each["headless"] for each in document["episodes"]] == [True]
        else:
            assert document["headless"] == shutdown.id

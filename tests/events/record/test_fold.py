"""Accounts: what is told of a shutdown, and that it agrees with the list of shutdowns."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from ebbtide.events.catalog import DirectorySource
from ebbtide.events.reader import History
from ebbtide.events.record.episodes import episodes, shutdown_records
from ebbtide.events.record.shutdown_record import ShutdownRecord
from tests.commands import same_as_golden
from tests.events.record.worlds import PARTS, histories
from tests.journals import SHUTDOWN

MS = 1_000_000


def agree(history: History) -> Iterator[ShutdownRecord]:
    """Every account, once it is compared with the summary of its episode."""
    for boot_id in (None, "another boot"):
        told = list(shutdown_records(history, boot_id=boot_id))
        listed = list(episodes(history, boot_id=boot_id))
        assert len(told) == len(listed)
        for account, episode in zip(told, listed, strict=True):
            ended_ns = None if account.ended_ns is None else account.started_wall_ns + account.ended_ns
            assert (
                account.id,
                account.trace_id,
                account.first_seq,
                account.last_seq,
                account.kind,
                account.boot_id,
                account.started_wall_ns,
                ended_ns,
                account.outcome,
            ) == episode[:9]
            assert {outcome: account.count(outcome) for outcome in episode.pods} == episode.pods
            yield account


@pytest.mark.parametrize("part", range(PARTS))
def test_accounts_agree_with_the_list_of_shutdowns(part: int) -> None:
    """Ids, outcomes, ends and counts are the same, whatever goes wrong in a world."""
    for history in histories(part):
        for account in agree(history):
            assert_orderly(account)


def assert_orderly(account: ShutdownRecord) -> None:
    """What begins before it ends, and is told once."""
    assert len({pod.uid for pod in account.pods}) == len(account.pods)
    for pod in account.pods:
        assert pod.began_ns is None or pod.ended_ns is None or pod.began_ns <= pod.ended_ns
        assert all(hook.began_ns <= (hook.ended_ns or account.last_ns) for hook in pod.hooks)
        assert pod.wave < len(account.waves)
    for wave in account.waves:
        assert (wave.outcome == "waiting") == (wave.began_ns is None)
    assert [notice.seq for notice in account.notices[:-2]] == sorted(n.seq for n in account.notices[:-2])


def test_a_journal_that_begins_with_a_checkpoint_knows_its_configuration(tmp_path: Path) -> None:
    """Where older segments were removed the states of the checkpoint say what was in force."""
    for file in sorted(SHUTDOWN.iterdir())[1:]:
        shutil.copy(file, tmp_path)
    (account,) = list(shutdown_records(History([DirectorySource(tmp_path)])))
    assert [period.seconds for period in account.configuration.periods] == [10, 5, 5]
    assert account.configuration.reserve_ns == 5_000 * MS
    assert {pod.outcome for pod in account.pods} == {"graceful", "killed"}


def test_the_golden_account_as_a_whole() -> None:
    """Its waves, its straggler and why, the restart in the middle, and the next boot's word: every field, as
    it stands in the golden file.
    """
    account = next(agree(History([DirectorySource(SHUTDOWN)])))
    text = msgspec.json.format(msgspec.json.encode(account, order="deterministic"), indent=1).decode()
    same_as_golden(Path(__file__).parent / "golden" / "account.json", f"{text}\n")

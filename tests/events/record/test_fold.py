"""The record of a shutdown."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from ebbtide.events.catalog import DirectorySource
from ebbtide.events.reader import History
from ebbtide.events.record.episodes import shutdown_records
from ebbtide.events.record.shutdown_record import ShutdownRecord
from tests.commands import same_as_golden
from tests.events.record.worlds import PARTS, told
from tests.journals import SHUTDOWN

MS = 1_000_000


@pytest.mark.parametrize("part", range(PARTS))
def test_every_account_is_orderly(part: int) -> None:
    for account in told(part):
        assert_orderly(account)


def assert_orderly(account: ShutdownRecord) -> None:
    """Starts precede ends, and each item appears once."""
    assert len({pod.uid for pod in account.pods}) == len(account.pods)
    for pod in account.pods:
        assert pod.began_ns is None or pod.ended_ns is None or pod.began_ns <= pod.ended_ns
        assert all(hook.began_ns <= (hook.ended_ns or account.last_ns) for hook in pod.hooks)
        assert pod.wave < len(account.waves)
    for wave in account.waves:
        assert (wave.outcome == "waiting") == (wave.began_ns is None)
    assert [notice.seq for notice in account.notices[:-2]] == sorted(n.seq for n in account.notices[:-2])


def test_a_journal_that_begins_with_a_checkpoint_knows_its_configuration(tmp_path: Path) -> None:
    """After retention the checkpoint's states have the configuration."""
    for file in sorted(SHUTDOWN.iterdir())[1:]:
        shutil.copy(file, tmp_path)
    (account,) = list(shutdown_records(History([DirectorySource(tmp_path)])))
    assert [period.seconds for period in account.configuration.periods] == [10, 5, 5]
    assert account.configuration.reserve_ns == 5_000 * MS
    assert {pod.outcome for pod in account.pods} == {"graceful", "killed"}


def test_the_golden_account_as_a_whole() -> None:
    """Waves, straggler with cause, restart, and the next boot's record: each field of the golden file."""
    account = next(shutdown_records(History([DirectorySource(SHUTDOWN)])))
    text = msgspec.json.format(msgspec.json.encode(account, order="deterministic"), indent=1).decode()
    same_as_golden(Path(__file__).parent / "golden" / "account.json", f"{text}\n")

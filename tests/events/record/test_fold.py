"""Accounts: what is told of a shutdown, and that it agrees with the list of shutdowns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from ebbtide.events.catalog import DirectorySource
from ebbtide.events.reader import History
from ebbtide.events.record.episodes import episodes
from ebbtide.events.record.fold import shutdown_records
from ebbtide.events.record.model import ShutdownRecord
from tests.commands import same_as_golden
from tests.events.record.worlds import PARTS, histories

GOLDEN = Path(__file__).parents[2] / "golden"
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


@pytest.mark.slow
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


def golden() -> ShutdownRecord:
    (account,) = agree_once(History([DirectorySource(GOLDEN / "shutdown-v1")]))
    return account


def agree_once(history: History) -> list[ShutdownRecord]:
    found = list(agree(history))
    return found[: len(found) // 2]


def test_the_golden_shutdown_is_told() -> None:
    """Its waves, its straggler and why, the restart in the middle, and the next boot's word."""
    account = golden()
    assert [(wave.outcome, wave.ended_ns) for wave in account.waves] == [
        ("overran", 10_002 * MS),
        ("complete", 10_707 * MS),
        ("complete", 11_609 * MS),
    ]
    stuck = next(pod for pod in account.pods if pod.name == "stuck-0")
    assert (stuck.outcome, stuck.began_ns, stuck.ended_ns) == ("killed", 1 * MS, 10_007 * MS)
    assert stuck.containers[0].killed_ns == 10_002 * MS
    assert stuck.autopsies[0].processes[0].signals_ignored == ("SIGTERM",)
    assert [process.action for process in account.processes] == ["", "resume", "close-complete"]
    assert [notice.code for notice in account.notices] == [
        "hook-failed",
        "restarted",
        "wave-overran",
        "pod-killed",
    ]
    assert (account.ended_ns, account.grant_ns) == (11_611 * MS, 25_000 * MS)
    assert account.configuration.reserve_ns == 5_000 * MS


def test_a_journal_that_begins_with_a_checkpoint_knows_its_configuration(tmp_path: Path) -> None:
    """Where older segments were removed the states of the checkpoint say what was in force."""
    last = sorted((GOLDEN / "shutdown-v1").iterdir())[1:]
    for file in last:
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (account,) = list(shutdown_records(History([DirectorySource(tmp_path)])))
    assert [period.seconds for period in account.configuration.periods] == [10, 5, 5]
    assert account.configuration.reserve_ns == 5_000 * MS
    assert {pod.outcome for pod in account.pods} == {"graceful", "killed"}


def test_the_golden_account_as_a_whole() -> None:
    """Every field, as it stands in the golden file: others build on them."""
    text = msgspec.json.format(msgspec.json.encode(golden(), order="deterministic"), indent=1).decode()
    same_as_golden(Path(__file__).parent / "golden" / "account.json", f"{text}\n")

"""Possible and impossible changes: settings, pods, the grant."""

from __future__ import annotations

from typing import Any

import pytest

from ebbtide.events.reader import Batch, History
from ebbtide.events.values import Hook, Settings
from ebbtide.replay.sim.scenario import HookPlan
from ebbtide.replay.whatif.record import Changes, Diverged
from ebbtide.replay.whatif.whatif_run import Comparison, what_if
from tests.replay.whatif.bed import HIGH, SECOND, Recorded, behaves, pod, record, settings, side


@pytest.fixture(scope="module")
def known() -> Recorded:
    """A quick pod, a pod with a hook, a slow one in the second wave."""
    hooked = behaves(pod("api", hook=Hook(kind="exec")), 1, HookPlan(takes_ns=2 * SECOND))
    return record([behaves(pod("web"), 3), hooked, behaves(pod("db", HIGH), 6)])


def level(found: Comparison, name: str) -> str:
    return side(found, name).support.level


def test_a_smaller_grant_is_shared_out_from_the_highest_priority(known: Recorded) -> None:
    """14 s for waves of 20 s and 10 s: 4 s and 10 s."""
    found = known.ask(grant_ns=14 * SECOND)
    assert [wave.worst.period_ns for wave in found.waves if wave.worst] == [4 * SECOND, 10 * SECOND]
    assert (found.then.grant_ns, found.worst.grant_ns) == (known.shutdown.grant_ns, 14 * SECOND)


@pytest.mark.parametrize(
    ("changes", "assumption"),
    [
        (
            {"settings": Settings()},
            ("off", "graceful shutdown is off under these settings: no lock holds the machine"),
        ),
        (
            {"settings": settings(low=60)},
            ("grant", "logind grants 75 s, as the drop-in for these settings asks"),
        ),
        (
            {"settings": settings(low=60, raise_grant=False)},
            ("grant", "logind grants 35 s as it did, of 75 s that these settings need: raiseGrant is false"),
        ),
    ],
)
def test_what_it_assumes(known: Recorded, changes: dict[str, Any], assumption: tuple[str, str]) -> None:
    assert known.ask(**changes).assumptions == (assumption,)


def test_a_negative_grant_is_refused(known: Recorded) -> None:
    with pytest.raises(ValueError, match="is negative"):
        known.ask(grant_ns=-1)


def test_a_new_pod_is_assumed(known: Recorded) -> None:
    """Its stop is unknown: at once, or not even by SIGKILL. It is neither saved nor lost."""
    new = side(known.ask(pods=(pod("new", grace=7),)), "new")
    assert new.then is None
    assert (new.support.level, new.outcomes, new.change) == ("assumed", ("graceful", "failed"), "same")


def test_a_record_that_does_not_replay_is_refused(known: Recorded) -> None:
    """After an edited fact the decisions are not this version's."""
    history, first = History([known.source]), known.shutdown.first_seq
    forged = [
        Batch(
            batch.header,
            [raw._replace(mono_ns=raw.mono_ns + 1) if raw.seq == first else raw for raw in batch.records],
        )
        for batch in history.batches()
    ]
    history.batches = lambda: iter(forged)  # type: ignore[method-assign]
    with pytest.raises(Diverged, match="differs"):
        what_if(history, first, Changes())

"""Unrecorded behaviour is marked: observed, bound or assumed; totals are intervals."""

from __future__ import annotations

import pytest

from ebbtide.events.decisions import PodOutcome
from ebbtide.events.record.shutdown_record import took_ns
from ebbtide.events.values import Hook
from ebbtide.replay.sim.scenario import HookPlan
from ebbtide.replay.whatif.whatif_run import PodNeed
from tests.replay.whatif.bed import SECOND, Recorded, behaves, is_in, pod, record, settings, side


def test_a_killed_pod_needed_more_than_it_had() -> None:
    """Killed at 20 s, now given 40 s: it may end after 20 s, or be killed at 40 s."""
    known = record([behaves(pod("stuck"), None), behaves(pod("web"), 3)])
    found = known.ask(settings=settings(low=40))
    stuck = side(found, "stuck")
    assert stuck.need == PodNeed(20 * SECOND, at_least=True)
    assert (stuck.outcomes, stuck.change) == (("graceful", "killed"), "perhaps-saved")
    assert stuck.support == ("bound", "main needed more than 20 s after its stop signal")
    low, high = stuck.now(took_ns)
    assert low == 20 * SECOND + 1
    assert high is not None
    assert 40 * SECOND < high < 41 * SECOND


@pytest.mark.parametrize("reap_ns, fate", [(5_000_000, "killed"), (4 * SECOND, "killed"), (None, "failed")])
def test_how_long_sigkill_takes_is_not_known_of_who_was_not_killed(
    reap_ns: int | None, fate: PodOutcome
) -> None:
    """At once or never: the truth is between."""
    slow = behaves(pod("slow"), 15)
    slow = slow._replace(containers={"main": slow.containers["main"]._replace(reap_ns=reap_ns)})
    known = record([slow])
    found = known.ask(settings=settings(5, 3))
    row, truth = side(found, "slow"), known.truth(settings(5, 3))
    assert row.support == ("bound", "the record does not show how long SIGKILL takes for main")
    assert (
        "kill",
        "SIGKILL ends shop/slow at once, or never: the record shows none of it",
    ) in found.assumptions
    assert truth.pods["uid-slow"].outcome == fate
    assert fate in row.outcomes
    assert is_in(found.total, truth.total_ns)


def in_its_hook() -> Recorded:
    """The container ends in mid-hook, 4 s after the signal."""
    hook = HookPlan(takes_ns=15 * SECOND)
    return record([behaves(pod("web", hook=Hook(kind="exec")), 1, hook, lives_ns=14 * SECOND)])


def test_an_exit_in_a_hook_belongs_to_the_hook() -> None:
    """It ends as long after the hook's start; if cut earlier, between the bounds."""
    known = in_its_hook()
    assert side(known.ask(settings=settings(low=15)), "web").support.level == "observed"
    cut = side(known.ask(settings=settings(low=3)), "web")
    assert cut.support.level == "bound"
    low, high = cut.now(took_ns)
    assert low is not None
    assert high is not None
    assert 3 * SECOND <= low < high <= 4 * SECOND + SECOND

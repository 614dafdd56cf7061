"""What the record cannot tell is said and not guessed: observed, bound, or assumed; totals are intervals."""

from __future__ import annotations

import pytest

from ebbtide.events.decisions import PodOutcome, TakeAutopsy
from ebbtide.events.facts import AutopsyTaken, PrepareForShutdown
from ebbtide.events.model import Hook
from ebbtide.replay.sim.scenario import Faults, HookPlan
from ebbtide.replay.whatif.run import Interval, PodNeed
from tests.replay.whatif.bed import HIGH, SECOND, Recorded, behaves, is_in, pod, record, settings, side


def test_a_killed_pod_needed_more_than_it_had() -> None:
    """Killed at 20 s, and given 40 s now: it may end just after 20 s, or be killed at 40 s."""
    known = record([behaves(pod("stuck"), None), behaves(pod("web"), 3)])
    found = known.compare(settings=settings(low=40))
    stuck = side(found, "stuck")
    assert stuck.need == PodNeed(20 * SECOND, at_least=True)
    assert (stuck.outcomes, stuck.change) == (("graceful", "killed"), "perhaps-saved")
    assert stuck.support == ("bound", "main needed more than 20 s after its stop signal")
    low, high = stuck.now(lambda line: line.took_ns)
    assert low == 20 * SECOND + 1
    assert high is not None
    assert 40 * SECOND < high < 41 * SECOND


def test_less_time_loses_for_certain() -> None:
    """A pod that took 12 s does not end by itself in 5 s, in neither run."""
    found = record([behaves(pod("slow"), 12)]).compare(settings=settings(low=5))
    slow = side(found, "slow")
    assert (slow.outcomes, slow.change) == (("killed", "failed"), "lost")
    assert slow.need is not None
    assert not slow.need.at_least


@pytest.mark.parametrize("reap_ns, fate", [(5_000_000, "killed"), (4 * SECOND, "killed"), (None, "failed")])
def test_how_long_sigkill_takes_is_not_known_of_who_was_not_killed(
    reap_ns: int | None, fate: PodOutcome
) -> None:
    """At once, or never: the truth lies between the two, and the pod's row is assumed."""
    slow = behaves(pod("slow"), 15)
    slow = slow._replace(containers={"main": slow.containers["main"]._replace(reap_ns=reap_ns)})
    known = record([slow])
    found = known.compare(settings=settings(5, 3))
    row, truth = side(found, "slow"), known.truth(settings(5, 3))
    assert row.support == ("assumed", "the record does not show how long SIGKILL takes for main")
    assert (
        "kill",
        "SIGKILL ends shop/slow at once, or never: the record shows none of it",
    ) in found.assumptions
    assert truth.pods["uid-slow"].outcome == fate
    assert fate in row.outcomes
    assert is_in(found.total, truth.total_ns)


def test_a_pod_that_was_killed_is_killed_sooner_with_less() -> None:
    """It was still there after 20 s, so it was after 10 s: no bound is touched."""
    stuck = side(record([behaves(pod("stuck"), None)]).compare(settings=settings(low=10)), "stuck")
    assert (stuck.outcomes, stuck.support.level) == (("killed", "killed"), "observed")


def test_a_hook_that_is_cut_now_leaves_the_stop_assumed() -> None:
    """Its container stopped in 1 s after a whole hook; after half of one nobody knows."""
    hooked = behaves(pod("web", hook=Hook(kind="exec")), 1, HookPlan(takes_ns=8 * SECOND))
    web = side(record([hooked]).compare(settings=settings(low=4)), "web")
    assert web.support.level == "assumed"
    assert web.outcomes == ("graceful", "failed")


def test_an_exit_by_itself_keeps_its_time() -> None:
    """A container that ended before anything was asked of it ends then again, in whatever wave."""
    done = behaves(pod("job", HIGH), 5, lives_ns=22 * SECOND)
    found = record([behaves(pod("web"), 18), done]).compare(settings=settings(low=15))
    job = side(found, "job")
    assert (job.outcomes, job.support.level) == (("graceful", "graceful"), "observed")
    assert job.grim is not None
    assert job.grim.reason.startswith("had ended before its stop signal")


def test_what_was_never_stopped_is_assumed() -> None:
    """Spared by a cancel that is left out now: the record does not show how it stops."""
    known = record(
        [behaves(pod("web"), 8), behaves(pod("db", HIGH), 2)], faults=Faults(cancel_after_ns=3 * SECOND)
    )
    cancel = next(
        each.seq
        for each in known.shutdown.facts
        if isinstance(each.event, PrepareForShutdown) and not each.event.active
    )
    found = known.compare(drop=(cancel,))
    db = side(found, "db")
    assert found.then.outcome == "cancelled"
    assert (found.hopeful.outcome, found.grim.outcome) == ("complete", "complete")
    assert (db.support.level, db.outcomes) == ("assumed", ("graceful", "failed"))
    assert side(found, "web").support.level == "observed"


def test_what_no_sigkill_ended_may_still_end_by_itself() -> None:
    """Killed at 10 s, in vain: with 20 s it ends just after those 10 s, or is there for ever."""
    stuck = behaves(pod("stuck"), 15)
    stuck = stuck._replace(containers={"main": stuck.containers["main"]._replace(reap_ns=None)})
    known = record([stuck], settings(10))
    found, truth = known.compare(settings=settings(20)), known.truth(settings(20))
    row = side(found, "stuck")
    assert (row.outcomes, row.support.level) == (("graceful", "failed"), "bound")
    assert truth.pods["uid-stuck"].outcome == "graceful"
    assert is_in(found.total, truth.total_ns)


def test_an_autopsy_comes_after_its_order() -> None:
    """As long as it did, also where the outcome came before what it had found."""
    known = record([behaves(pod("stuck"), None)])
    for run in (known.ask(settings=settings(30)).grim, known.ask(settings=settings(10)).grim):
        ((ordered_ns, taken_ns),) = [
            (order.mono_ns, each.mono_ns)
            for each in run.records
            if isinstance(each.event, AutopsyTaken)
            for order in run.records
            if isinstance(order.event, TakeAutopsy)
        ]
        assert 0 <= taken_ns - ordered_ns < SECOND // 4


def test_a_record_that_was_cut_says_nothing_beyond() -> None:
    """The power went at 6 s: pods that had not ended then have no fate, under any settings."""
    known = record(
        [behaves(pod("web"), 10), behaves(pod("api"), 2)], faults=Faults(power_cut_after_ns=6 * SECOND)
    )
    found = known.compare(settings=settings(low=40))
    assert found.then.outcome == found.grim.outcome == "truncated"
    assert side(found, "api").outcomes == ("graceful", "graceful")
    assert side(found, "web").outcomes == (None, None)
    assert [code for code, _ in found.assumptions][-1] == "cut-short"


def test_a_restart_stays_where_it_was() -> None:
    """No daemon hears anything while none ran; dropping the start shows the run without it."""
    faults = Faults(crash_after_ns=2 * SECOND, restart_takes_ns=6 * SECOND)
    known = record([behaves(pod("web"), 4), behaves(pod("db", HIGH), 1)], faults=faults)
    then = known.ask().then.pods["uid-web"].ended_ns
    start = known.compare(settings=settings(low=30))
    assert start.assumptions[-1][0] == "restart"
    assert side(start, "web").grim is not None
    assert side(start, "web").grim.ended_ns == then  # type: ignore[union-attr]
    restarts = [each.seq for each in known.shutdown.facts if type(each.event).__name__ == "DaemonStarted"]
    without = known.compare(drop=tuple(restarts))
    assert "restart" not in [code for code, _ in without.assumptions]
    assert then is not None
    assert (side(without, "web").grim.ended_ns or then) <= then  # type: ignore[union-attr]


def test_a_span_has_its_lower_bound_first() -> None:
    """None is later than any time."""
    assert Interval(5, 3).bounds == (3, 5)
    assert Interval(None, 3).bounds == (3, None)
    assert Interval(3, None).bounds == (3, None)
    assert Interval(4, 4).is_one


def in_its_hook() -> Recorded:
    """The container ends 4 s after the signal, in the middle of its hook."""
    hook = HookPlan(takes_ns=15 * SECOND)
    return record([behaves(pod("web", hook=Hook(kind="exec")), 1, hook, lives_ns=14 * SECOND)])


def test_an_exit_in_a_hook_belongs_to_the_hook() -> None:
    """It comes as long after the hook's begin; cut before that, it is anybody's guess between the two."""
    known = in_its_hook()
    assert side(known.compare(settings=settings(low=15)), "web").support.level == "observed"
    cut = side(known.compare(settings=settings(low=3)), "web")
    assert cut.support.level == "bound"
    low, high = cut.now(lambda line: line.took_ns)
    assert low is not None
    assert high is not None
    assert 3 * SECOND <= low < high <= 4 * SECOND + SECOND

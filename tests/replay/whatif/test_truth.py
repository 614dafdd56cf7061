"""Against the truth: the simulator knows what a what-if and an advice can only infer.

The same node, with the same manners, is simulated again under the new settings. What the what-if called
observed has come out so; what it called a bound or assumed, and the total, lie between its two runs; and
every pod that an advice said it would save is saved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from msgspec.structs import replace

from ebbtide.events.decisions import PodOutcome
from ebbtide.events.reader import History
from ebbtide.events.record.episodes import shutdown_records
from ebbtide.events.record.shutdown_record import PodRecord, ShutdownRecord
from ebbtide.events.values import Period, Settings
from ebbtide.replay.advise import Advice, advise
from ebbtide.replay.sim import scenario as drawing
from ebbtide.replay.whatif.record import Changes, RecordedBehaviour
from ebbtide.replay.whatif.whatif_run import PodSide, took_ns
from tests.conftest import Sample
from tests.replay.test_advise import BARE
from tests.replay.whatif.bed import SECOND, Recorded, drawn, is_in, recorded

SEEDS, SEEDS_A_TEST = 60, 20
#: Sampled, one seed of so many.
ONE_OF = 3
LONG = 1 << 60

#: From the best to the worst.
FATES: tuple[PodOutcome | None, ...] = ("spared", "graceful", "killed", "failed", None)


@pytest.fixture
def seeds(first: int, sample: Sample) -> Sequence[int]:
    return sample(range(first, first + SEEDS_A_TEST), ONE_OF)


def variations() -> Iterator[Settings]:
    """The default configuration with other times."""
    for times in ((10, 5, 3), (45, 30, 20), (3, 40, 10)):
        periods = tuple(
            Period(priority=each.priority, seconds=seconds)
            for each, seconds in zip(drawing.DEFAULT_SETTINGS.by_pod_priority, times, strict=True)
        )
        yield replace(drawing.DEFAULT_SETTINGS, by_pod_priority=periods)


def wrong(side: PodSide, truth: PodRecord) -> str:
    """What was said of a pod and has not come out."""
    best, worst = sorted(map(FATES.index, side.outcomes))
    if not best <= FATES.index(truth.outcome) <= worst:
        return f"{truth.outcome}, not between {side.outcomes}"
    if side.support.level == "observed" and side.outcomes != (truth.outcome, truth.outcome):
        return f"observed, and not {truth.outcome}"
    took = side.now(took_ns)
    return "" if is_in(took, took_ns(truth)) else f"took {took_ns(truth)}, not {took.bounds}"


def coincides(known: Recorded) -> bool:
    """A container's life was over in its hook, or before its stop: the record shows a quick one of either."""
    seen = RecordedBehaviour(known.shutdown, Changes(), None).containers
    manners = {
        (plan.pod.uid, name): manner
        for plan in known.machine.plan.pods
        for name, manner in plan.containers.items()
    }
    in_hook = any(each.how == "in-hook" for each in seen.values())
    return in_hook or any(
        each.how == "stopped"
        and each.exited.at_ns - each.signalled.mono_ns < (manners[whose].stop_ns or LONG)
        for whose, each in seen.items()
        if each.exited and each.signalled
    )


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_A_TEST))
def test_what_would_have_been_is_what_would_have_been(seeds: Sequence[int]) -> None:
    """The total, and every pod's fate and time, under other settings lie between what was said."""
    said = 0
    for seed in seeds:
        known = recorded(drawn(seed, calm=True))
        if coincides(known):
            continue
        for settings in variations():
            truth, found = known.truth(settings), known.compare(settings=settings)
            assert is_in(found.total, truth.total_ns), f"seed {seed}: {found.total}, {truth.total_ns}"
            for side in found.pods:
                said += 1
                mistake = wrong(side, truth.pods[side.pod.uid])
                assert not mistake, f"seed {seed}, {side.pod.label}: {mistake}, {side.support}"
    assert said > len(seeds) * 20


def told(known: Recorded) -> list[ShutdownRecord]:
    return list(shutdown_records(History([known.source])))


def advised(known: Recorded) -> tuple[Advice, Settings]:
    # Without caution, which would keep the periods of most of these small nodes as they are.
    advice = advise(told(known), BARE)
    return advice, replace(drawing.DEFAULT_SETTINGS, by_pod_priority=advice.periods)


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_A_TEST))
def test_advice_saves_whom_it_said_it_would(seeds: Sequence[int]) -> None:
    """Fed back to what-if, the advised configuration saves every pod that it said; the true node agrees."""
    for seed in seeds:
        known = recorded(drawn(seed, calm=True))
        advice, settings = advised(known)
        found = known.compare(settings=settings, grant_ns=advice.drop_in_seconds * SECOND)
        sides, truth = {side.pod.uid: side for side in found.pods}, known.truth(settings).pods
        for stop in advice.saved:
            assert sides[stop.uid].outcomes == ("graceful", "graceful"), f"seed {seed}: {stop.label}"
            assert truth[stop.uid].outcome == "graceful", f"seed {seed}: {stop.label}"
        for stop in advice.perhaps:
            assert sides[stop.uid].outcomes[0] == "graceful", f"seed {seed}: {stop.label}"


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_A_TEST))
def test_advice_promises_nobody_what_logind_does_not_grant(seeds: Sequence[int]) -> None:
    """Where a limit was not raised it is not raised now: who is saved has enough of what there is."""
    short = 0
    for seed in seeds:
        plan = drawn(seed, calm=True)
        # Below what the default configuration asks for: a limit that was enough is not known to be held.
        held = plan._replace(faults=plan.faults._replace(grant_ns=(5 + seed) * SECOND))
        known = recorded(held)
        advice, settings = advised(known)
        short += len(advice.short)
        found, truth = known.compare(settings=settings), known.truth(settings).pods
        stays = [code for code, text in found.assumptions if code == "grant" and "as it did" in text]
        assert len(stays) == len(advice.short), f"seed {seed}: {found.assumptions}"
        sides = {side.pod.uid: side for side in found.pods}
        for stop in advice.saved:
            assert sides[stop.uid].outcomes == ("graceful", "graceful"), f"seed {seed}: {stop.label}"
            assert truth[stop.uid].outcome == "graceful", f"seed {seed}: {stop.label}"
        for stop in advice.perhaps:
            assert sides[stop.uid].outcomes[0] == "graceful", f"seed {seed}: {stop.label}"
    assert short

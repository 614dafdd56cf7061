"""What-if and advice against the simulator's truth.

The same node runs again under the new settings. Observed values come true; bounds, assumptions and totals
enclose the truth; under the advised periods every pod that ended by itself does so again.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ebbtide.events.decisions import PodOutcome
from ebbtide.events.record.shutdown_record import PodRecord, took_ns
from ebbtide.replay.sim.scenario import NodeMode
from ebbtide.replay.sim.simulate import SimulationRequest, plan_of
from ebbtide.replay.whatif.record import Changes, RecordedBehaviour
from ebbtide.replay.whatif.whatif_run import PodSide
from tests.conftest import Sample
from tests.replay.whatif.bed import Recorded, drawn, is_in, recorded
from tests.replay.whatif.truth import CHANGES

SEEDS, SEEDS_A_TEST = 60, 20
#: Sampled, one seed of so many.
ONE_OF = 3
LONG = 1 << 60

#: From the best to the worst.
FATES: tuple[PodOutcome | None, ...] = ("spared", "graceful", "killed", "failed", None)


@pytest.fixture
def seeds(first: int, sample: Sample) -> Sequence[int]:
    return sample(range(first, first + SEEDS_A_TEST), ONE_OF)


def wrong(side: PodSide, truth: PodRecord) -> str:
    """The predictions that did not come true."""
    best, worst = sorted(map(FATES.index, side.outcomes))
    if not best <= FATES.index(truth.outcome) <= worst:
        return f"{truth.outcome}, not between {side.outcomes}"
    if side.support.level == "observed" and side.outcomes != (truth.outcome, truth.outcome):
        return f"observed, and not {truth.outcome}"
    took = side.now(took_ns)
    return "" if is_in(took, took_ns(truth)) else f"took {took_ns(truth)}, not {took.bounds}"


def coincides(known: Recorded) -> bool:
    """The container ended in its hook or before its stop: the record shows either as quick."""
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
    """Total, outcomes and times under other settings are within the prediction."""
    judged = sum(judge(recorded(drawn(seed, calm=True)), f"seed {seed}") for seed in seeds)
    assert judged > len(seeds) * 20


@pytest.mark.parametrize("mode", ["api", "cri"])
def test_on_a_kubernetes_node(mode: NodeMode) -> None:
    """The same where the kubelet ends deleted pods."""
    plans = (plan_of(SimulationRequest(synthetic=12, calm=True, mode=mode), seed) for seed in range(6, 12))
    assert sum(judge(recorded(plan), f"{mode}, seed {plan.seed}") for plan in plans) > 100


def judge(known: Recorded, where: str) -> int:
    """Compare each pod's prediction with the truth; returns the number."""
    judged = 0
    for change in () if coincides(known) else ("shorter", "longer", "mixed"):
        truth, found = known.truth(CHANGES[change]), known.ask(settings=CHANGES[change])
        if not known.machine.plan.faults.mode:  # whose last statuses and volumes take their own time
            assert is_in(found.total, truth.total_ns), f"{where}: {found.total}, {truth.total_ns}"
        for side in found.pods:
            judged += 1
            mistake = wrong(side, truth.pods[side.pod.uid])
            assert not mistake, f"{where}, {side.pod.label}: {mistake}, {side.support}"
    return judged

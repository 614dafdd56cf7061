"""Against the truth: the simulator knows what a what-if and an advice can only infer.

The same node, with the same manners, is simulated again under the new settings. What the what-if called
observed has come out so; what it called a bound or assumed lies between its two runs; and every pod that an
advice said it would save is saved.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from events.decisions import PodEnded, PodOutcome
from events.history import History
from events.model import Period, Settings
from replay.account.fold import accounts
from replay.account.model import Account
from replay.advise.advising import Advice, NoEvidence, advise
from replay.virtual import drawing
from replay.virtual.machine import Machine
from replay.whatif.compare import PodSide
from tests.whatif.bed import SECOND, Recorded, drawn, recorded

SEEDS, SEEDS_A_TEST = 60, 20


def variations() -> Iterator[Settings]:
    """The default configuration with other times."""
    for times in ((10, 5, 3), (45, 30, 20), (3, 40, 10)):
        periods = tuple(
            Period(priority=each.priority, seconds=seconds)
            for each, seconds in zip(drawing.SETTINGS.by_pod_priority, times, strict=True)
        )
        yield replace(drawing.SETTINGS, by_pod_priority=periods)


def fates(known: Recorded, settings: Settings) -> dict[str, PodOutcome]:
    """What really becomes of each pod under other settings."""
    machine = Machine(known.machine.plan._replace(settings=settings)).run()
    return {
        record.event.uid: record.event.outcome
        for record in machine.boots[0].records
        if isinstance(record.event, PodEnded)
    }


def wrong(side: PodSide, truth: PodOutcome) -> bool:
    """That SIGKILL does not help shows only when it is tried."""
    return ("killed" if truth == "failed" else truth) not in side.outcomes


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_A_TEST))
def test_what_would_have_been_is_what_would_have_been(first: int) -> None:
    """Every pod's true fate under other settings is one of the two that were said."""
    said = 0
    for seed in range(first, first + SEEDS_A_TEST):
        known = recorded(drawn(seed, calm=True))
        for settings in variations():
            truth = fates(known, settings)
            for side in known.compare(settings=settings).pods:
                assert not wrong(side, truth[side.line.pod.uid]), f"seed {seed}: {side}, {truth}"
                said += 1
    assert said > SEEDS_A_TEST * 20


def told(known: Recorded) -> list[Account]:
    return list(accounts(History([known.source])))


def advised(known: Recorded) -> tuple[Advice, Settings]:
    advice = advise(told(known))
    return advice, replace(drawing.SETTINGS, by_pod_priority=advice.periods)


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_A_TEST))
def test_advice_saves_whom_it_said_it_would(first: int) -> None:
    """Fed back to what-if, the advised configuration saves every pod that it said; the true node agrees."""
    for seed in range(first, first + SEEDS_A_TEST):
        known = recorded(drawn(seed, calm=True))
        advice, settings = advised(known)
        found = known.compare(settings=settings, grant_ns=advice.drop_in_seconds * SECOND)
        sides, truth = {side.line.pod.uid: side for side in found.pods}, fates(known, settings)
        for stop in advice.saved:
            assert sides[stop.uid].outcomes == ("graceful", "graceful"), f"seed {seed}: {stop.label}"
            assert truth[stop.uid] == "graceful", f"seed {seed}: {stop.label}"
        for stop in advice.perhaps:
            assert sides[stop.uid].outcomes[0] == "graceful", f"seed {seed}: {stop.label}"


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_A_TEST))
def test_advice_from_a_node_where_much_went_wrong(first: int) -> None:
    """Small grants, cancels, lost buses, power cuts: what ended by itself does so again.

    Not across a restart: how long a daemon is away is no pod's need, and no period is advised for it.
    """
    saved = 0
    for seed in range(first, first + SEEDS_A_TEST):
        known = recorded(drawn(seed))
        try:
            advice, settings = advised(known)
        except NoEvidence:
            continue
        found = known.compare(settings=settings, grant_ns=advice.drop_in_seconds * SECOND)
        sides = {side.line.pod.uid: side for side in found.pods}
        restarted = any(code == "restart" for code, _ in found.assumptions)
        for stop in advice.saved if not restarted else ():
            assert set(sides[stop.uid].outcomes) <= {"graceful", "spared"}, f"seed {seed}: {stop.label}"
            saved += 1
    assert saved

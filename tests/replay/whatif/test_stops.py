"""How long each pod took to stop, and what that says of it under other periods."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ebbtide.events.decisions import HookResult
from ebbtide.events.record.model import ContainerRecord, HookRecord
from ebbtide.replay.advise import ContainerTimes, Observation, advise, observed_stops
from tests.replay.test_advise import DEAF, account, ended, killed
from tests.replay.whatif.bed import SECOND


def hook(result: HookResult, seconds: int = 0) -> HookRecord:
    until_ns = SECOND + seconds * SECOND
    return HookRecord(
        container="main", kind="exec", began_ns=SECOND, until_ns=until_ns, ended_ns=until_ns, result=result
    )


@pytest.mark.parametrize(
    "result, hope", [("done", "saved"), ("not-run", "perhaps"), ("timed-out", "perhaps")]
)
def test_a_hook_that_was_not_whole_may_take_longer_with_more_time(result: HookResult, hope: str) -> None:
    """It ended in 1 s without its hook, or with half of it: how long the whole takes is not known."""
    short = ended("web-1", 1, grace_ns=SECOND, hooks=(hook(result),))
    advice = advise([account(ended("api-0", 9), short)])
    assert [stop.label for stop in getattr(advice, hope)] == (
        ["shop/api-0", "shop/web-1"] if hope == "saved" else ["shop/web-1"]
    )


def test_a_hook_whose_container_ended_was_whole_enough() -> None:
    """It was cut because there was nothing left to stop."""
    gone = ContainerRecord(name="main", exited_ns=2 * SECOND)
    short = ended("web-1", 1, grace_ns=SECOND, hooks=(hook("cancelled", 1),), containers=(gone,))
    advice = advise([account(ended("api-0", 9), short)])
    assert not advice.perhaps


def container(
    name: str, signalled: int | None, exited: int | None, *, sidecar: bool = False
) -> ContainerRecord:
    """Times in seconds after the beginning of its pod's stop."""
    at = [None if each is None else SECOND + each * SECOND for each in (signalled, exited)]
    return ContainerRecord(name=name, sidecar=sidecar, signalled_ns=at[0], exited_ns=at[1])


def test_what_each_container_took_is_its_own() -> None:
    """Its hook, and its stop after that; of a sidecar that nobody asked, what came after the others' end."""
    containers = (
        container("mesh", 9, 11, sidecar=True),
        container("log", None, 10, sidecar=True),
        container("main", 4, 5),
        container("api", 0, 9),
    )
    (stop,) = observed_stops([account(ended("a-0", 11, hooks=(hook("done", 4),), containers=containers))])
    assert stop.parts == (
        ContainerTimes("mesh", True, False, 0, 2 * SECOND),
        ContainerTimes("log", True, False, 0, SECOND),
        ContainerTimes("main", False, False, 4 * SECOND, SECOND),
        ContainerTimes("api", False, False, 0, 9 * SECOND),
    )


def test_what_was_killed_has_a_part_in_what_it_had() -> None:
    """A container that had ended by then keeps its time; one whose hook ran on had that, and no stop."""
    containers = (container("main", None, 21), container("api", 0, 3), container("db", 0, 21))
    pod = killed("a-0", 20, hooks=(hook("timed-out", 30),))
    main, api, db = (
        replace(each, killed_ns=None if each.name == "api" else 21 * SECOND) for each in containers
    )
    (stop,) = observed_stops([account(replace(pod, containers=(main, api, db)))])
    assert [(part.container, part.hook_ns, part.stop_ns) for part in stop.parts] == [
        ("main", 20 * SECOND, 0),
        ("api", 0, 3 * SECOND),
        ("db", 0, 20 * SECOND),
    ]


@pytest.mark.parametrize("hurried", [5, 30])
def test_what_came_first_is_its_bound(hurried: int) -> None:
    """Killed at 20 s, and hurried before or after that: till the first of these it had not ended."""
    (stop,) = observed_stops([account(killed("web-1", 20, hurried_ns=SECOND + hurried * SECOND))])
    assert stop.observed == Observation(min(hurried, 20) * SECOND, ended=False)


def test_a_wave_that_was_too_short_for_some_is_not_made_shorter_by_more_evidence() -> None:
    """Killed at 20 s though it asks for 60, whatever another was killed after: the need is not known."""
    known = [ended("web-1", 2), killed("web-2", 20)]
    for more in ([], [killed("web-3", 30, wanted=30)]):
        wave = advise([account(*known, *more)]).waves[0]
        assert (wave.seconds, wave.kept) == (20, "too-short")


def test_what_no_period_helps_keeps_no_wave_long() -> None:
    """It ignores its stop signal: that it was killed before its own grace was over says nothing."""
    wave = advise([account(ended("web-1", 2), killed("deaf-1", 20, autopsies=(DEAF,)))]).waves[0]
    assert (wave.seconds, wave.kept) == (3, "")


def test_a_kill_that_came_sooner_than_its_replicas_end_keeps_no_wave_long() -> None:
    """Its replicas took up to 12 s, and it was killed after 5 s: 13 s are what is known to be needed."""
    wave = advise([account(ended("web-1", 12), killed("web-2", 5))]).waves[0]
    assert (wave.seconds, wave.kept) == (13, "")

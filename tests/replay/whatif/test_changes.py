"""What may be changed, and what cannot: settings, pods, the grant, single facts."""

from __future__ import annotations

import pytest

from ebbtide.events import facts as f
from ebbtide.events.base import Event
from ebbtide.events.decisions import ShutdownBegan
from ebbtide.events.values import Hook
from ebbtide.replay.sim.scenario import HookPlan
from ebbtide.replay.whatif.record import (
    WrongChange,
)
from ebbtide.replay.whatif.whatif_run import Comparison
from tests.replay.whatif.bed import HIGH, SECOND, Recorded, behaves, pod, record, side


@pytest.fixture(scope="module")
def known() -> Recorded:
    """A quick pod, a pod with a hook, a slow one in the second wave."""
    hooked = behaves(pod("api", hook=Hook(kind="exec")), 1, HookPlan(takes_ns=2 * SECOND))
    return record([behaves(pod("web"), 3), hooked, behaves(pod("db", HIGH), 6)])


def level(found: Comparison, name: str) -> str:
    return side(found, name).support.level


def test_a_smaller_grant_is_shared_out_from_the_highest_priority(known: Recorded) -> None:
    """14 s for waves of 20 s and 10 s: 4 s and 10 s."""
    found = known.compare(grant_ns=14 * SECOND)
    assert [wave.grim.period_ns for wave in found.waves if wave.grim] == [4 * SECOND, 10 * SECOND]
    assert (found.then.grant_ns, found.grim.grant_ns) == (known.shutdown.grant_ns, 14 * SECOND)


def test_a_new_pod_is_assumed(known: Recorded) -> None:
    """Nobody knows how it stops: at once, or not even with SIGKILL. It is neither saved nor lost."""
    new = side(known.compare(pods=(pod("new", grace=7),)), "new")
    assert new.then is None
    assert (new.support.level, new.outcomes, new.change) == ("assumed", ("graceful", "failed"), "same")


@pytest.mark.parametrize(
    "kind, said",
    [
        (ShutdownBegan, "is the decision ShutdownBegan: name the fact that led to it"),
        (f.PrepareForShutdown, "is the PrepareForShutdown that begins the shutdown"),
        (f.Tick, "is a tick: it follows from deadlines"),
    ],
)
def test_only_facts_can_be_dropped(kind: type[Event], said: str) -> None:
    """A decision, a tick, or the signal itself is refused, with the cure."""
    stuck = record([behaves(pod("stuck"), None)])
    with pytest.raises(WrongChange, match=said):
        stuck.ask(drop=(stuck.seq_of(kind),))


# --- facts that come later, or not at all ------------------------------------------------------


@pytest.fixture(scope="module")
def sleeper() -> Recorded:
    """A pod that stops, and one whose life is over in its sleep."""
    sleepy = pod("orders", hook=Hook(kind="sleep", sleep_seconds=3))
    ends = behaves(sleepy, 30, HookPlan(), lives_ns=11 * SECOND)
    return record([behaves(pod("web"), 2), ends])


@pytest.mark.parametrize(
    "asked, said",
    [
        ({"drop": (0,), "delay": ((0, 1),)}, "is to be dropped and delayed: ask for one of the two"),
        ({"delay": ((0, 1), (0, 2))}, "has two delays: ask for one of them, or for their sum"),
    ],
)
def test_one_record_is_changed_in_one_way(
    sleeper: Recorded, asked: dict[str, tuple[object, ...]], said: str
) -> None:
    """What contradicts itself is refused, with the record's number."""
    seq = sleeper.seq_of(f.ContainerExited)
    named = {
        "drop": (seq,) * len(asked.get("drop", ())),
        "delay": tuple((seq, at + 1) for at, _ in enumerate(asked["delay"])),
    }
    with pytest.raises(WrongChange, match=f"record {seq} {said}"):
        sleeper.ask(**named)

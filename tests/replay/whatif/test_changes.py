"""What may be changed, and what cannot: settings, pods, the grant, single facts."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ebbtide.events import facts as f
from ebbtide.events.base import Event
from ebbtide.events.decisions import ShutdownBegan
from ebbtide.events.model import Container, Hook, Settings
from ebbtide.replay.sim.scenario import Faults, HookPlan
from ebbtide.replay.whatif.record import (
    Changes,
    RecordedEvent,
    WrongChange,
    facts_under,
)
from ebbtide.replay.whatif.run import Comparison
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
    found = known.compare(grant_ns=14 * SECOND)
    assert [wave.grim.period_ns for wave in found.waves if wave.grim] == [4 * SECOND, 10 * SECOND]
    assert (found.then.grant_ns, found.grim.grant_ns) == (known.shutdown.grant_ns, 14 * SECOND)


def test_settings_that_need_more_raise_the_grant(known: Recorded) -> None:
    """The drop-in that the daemon would have ordered is assumed to be obeyed; with --grant it is not."""
    found = known.compare(settings=settings(low=70))
    assert found.grim.grant_ns == (70 + 10 + 5) * SECOND
    assert ("grant", "logind grants 85 s, as the drop-in for these settings asks") in found.assumptions
    held = known.compare(settings=settings(low=70), grant_ns=30 * SECOND)
    assert held.grim.grant_ns == 30 * SECOND
    assert not held.assumptions


def test_a_limit_that_does_not_move_is_not_raised() -> None:
    """logind had not obeyed the drop-in of then: it is not expected to obey another."""
    stiff = record([behaves(pod("web"), 3)], faults=Faults(grant_ns=25 * SECOND))
    found = stiff.compare(settings=settings(low=70))
    assert found.grim.grant_ns == found.then.grant_ns == 25 * SECOND
    (assumed,) = found.assumptions
    assert assumed[0] == "grant"
    assert assumed[1].startswith("logind grants 25 s as it did, of 85 s that these settings need: /etc/")


def test_switched_off_nothing_is_held_back(known: Recorded) -> None:
    """Every pod that ended by itself is lost, and the assumption says why."""
    found = known.compare(settings=Settings())
    assert found.grim.outcome == "never-begun"
    assert [code for code, _ in found.assumptions] == ["off"]
    assert {pod.line.pod.name for pod in found.changed("lost")} == {"web", "api", "db"}


def test_a_replaced_pod_keeps_its_behaviour(known: Recorded) -> None:
    """Another grace and another priority for the pod of the same name; it stops as it did."""
    found = known.compare(pods=(pod("web", HIGH, grace=2),))
    web = side(found, "web")
    assert web.grim is not None
    assert (web.grim.wave, web.grim.grace_ns) == (1, 2 * SECOND)
    assert (web.outcomes, web.support.level, web.change) == (("killed", "failed"), "assumed", "lost")


def test_a_new_pod_is_assumed(known: Recorded) -> None:
    """Nobody knows how it stops: at once, or not even with SIGKILL. It is neither saved nor lost."""
    new = side(known.compare(pods=(pod("new", grace=7),)), "new")
    assert new.then is None
    assert (new.support.level, new.outcomes, new.change) == ("assumed", ("graceful", "failed"), "same")


def test_a_hook_that_the_record_does_not_have_is_assumed(known: Recorded) -> None:
    """A new hook takes no time, or all that there is."""
    found = known.compare(pods=(pod("web", hook=Hook(kind="exec", detail="drain")),))
    low, high = side(found, "web").now(lambda line: line.took_ns)
    assert level(found, "web") == "assumed"
    assert low is not None
    assert high is not None
    assert low < 4 * SECOND
    assert high >= 20 * SECOND


def test_what_had_ended_stays_ended(known: Recorded) -> None:
    """A manifest does not know which containers run; the record does."""

    def ended(played: RecordedEvent) -> RecordedEvent:
        if not isinstance(played.event, f.InventoryTaken):
            return played
        stopped = (Container(name="main", running=False),)
        pods = tuple(replace(each, containers=stopped) for each in played.event.pods)
        return played._replace(event=replace(played.event, pods=pods))

    recorded = known.shutdown._replace(events=tuple(map(ended, known.shutdown.events)))
    facts = facts_under(recorded, Changes(pods=(pod("web", grace=9), pod("new"))), None)
    listing = next(each.event for each in facts if isinstance(each.event, f.InventoryTaken))
    running = {each.name: each.containers[0].running for each in listing.pods}
    assert running == {"web": False, "api": False, "db": False, "new": True}


def test_a_reload_of_the_same_settings_is_a_reload_of_the_new_ones() -> None:
    """A process that comes back reads the same file, which is the new one now."""
    faults = Faults(crash_after_ns=2 * SECOND)
    again = record([behaves(pod("web"), 8)], faults=faults)
    loads = [each.event for each in again.shutdown.facts if isinstance(each.event, f.SettingsLoaded)]
    found = again.ask(settings=settings(low=33))
    told = [each.event for each in found.grim.records if isinstance(each.event, f.SettingsLoaded)]
    assert loads
    assert [each.settings for each in told] == [settings(low=33)] * len(loads)


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


def test_a_delayed_exit_comes_later(known: Recorded) -> None:
    """By as much as asked, and nothing before it moves."""
    exited = known.seq_of(f.ContainerExited)
    found = known.compare(delay=((exited, 2 * SECOND),))
    api, web = side(found, "api"), side(found, "web")
    slower = api if api.then != api.grim else web
    assert slower.then is not None
    assert slower.grim is not None
    assert (slower.grim.ended_ns or 0) - (slower.then.ended_ns or 0) == 2 * SECOND


# --- facts that come later, or not at all ------------------------------------------------------


@pytest.fixture(scope="module")
def sleeper() -> Recorded:
    """A pod that stops, and one whose life is over in its sleep."""
    sleepy = pod("orders", hook=Hook(kind="sleep", sleep_seconds=3))
    ends = behaves(sleepy, 30, HookPlan(), lives_ns=11 * SECOND)
    return record([behaves(pod("web"), 2), ends])


def test_who_ended_before_a_late_inventory_is_found_gone(sleeper: Recorded) -> None:
    """Nobody looks at a container before it is listed: its exit is heard of then, and nobody is killed."""
    found = sleeper.compare(delay=((sleeper.seq_of(f.InventoryTaken), 5 * SECOND),))
    orders = side(found, "orders")
    assert (orders.outcomes, orders.change) == (("graceful", "graceful"), "same")
    assert orders.grim is not None
    assert orders.grim.took_ns is not None
    assert orders.grim.took_ns < SECOND
    assert found.then.total_ns is not None
    assert found.total.is_one
    assert found.total.grim == found.then.total_ns + 5 * SECOND


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


@pytest.mark.parametrize("wrong", [{"grant_ns": -5}, {"delay": ((3, -1),)}])
def test_no_time_is_negative(wrong: dict[str, object]) -> None:
    """A library's caller is told at once."""
    with pytest.raises(ValueError, match="is negative"):
        Changes(**wrong)  # type: ignore[arg-type]

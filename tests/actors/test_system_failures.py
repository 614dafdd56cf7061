"""What a failing actor may not do: be due for ever, take the step along, or hand over what is not its own."""

from __future__ import annotations

from typing import Any

import pytest

from ebbtide.actors.actor import EVERY, Row, Transitions
from ebbtide.actors.config_reconciler import CONFIG
from ebbtide.actors.system import LOOK_NS, System
from ebbtide.events import facts as f
from ebbtide.events.base import NS_PER_SECOND, Stamp
from ebbtide.events.decisions import ActorFailed, TakeInventory
from ebbtide.events.values import Container, Period, Pod, Settings
from tests.handlers import replace_handler
from tests.journals import started


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> System:
    """A ConfigReconciler that waits for a time which its own `Tick` does not take away."""

    def ignore(state: Any, event: Any, now: int) -> Any:
        return state, ()

    # In tests its table would find it out; this is about a daemon.
    monkeypatch.setattr(System, "checked", False)
    replace_handler(monkeypatch, CONFIG, f.Tick, ignore)
    system = System()
    slot = system.slots[(CONFIG.name, "")]
    slot.state = CONFIG.state(order_open="ConfigReconciler/drop-in//0")
    system.step(f.OrderEnded(key="ConfigReconciler/drop-in//0", result="failed"), Stamp(1, 1))
    return system


def test_no_progress_is_a_failure(stuck: System) -> None:
    """A deadline that is still due after the actor's own tick is recorded as its failure."""
    due_ns = stuck.next_deadline_ns()
    assert due_ns is not None
    records = stuck.step(f.Tick(), Stamp(due_ns, due_ns))
    (failed,) = (record.event for record in records if isinstance(record.event, ActorFailed))
    assert (failed.actor, failed.error) == ("ConfigReconciler", "NoProgress")
    assert stuck.next_deadline_ns() is None


def test_a_look_in_one_boot_holds_nobody_in_the_next() -> None:
    """The monotonic clock begins anew with the machine."""
    system = System()
    slot = system.slots[(CONFIG.name, "")]

    def due_after(boot: str, episode: int, now_ns: int) -> int | None:
        system.episode = episode
        system.step(started(boot, preparing=bool(episode)), Stamp(now_ns, now_ns))
        slot.state = CONFIG.state(retry_at_ns=1)
        system.watch(slot)
        return system.next_deadline_ns()

    assert due_after("boot-1", 1, 100 * NS_PER_SECOND) == 100 * NS_PER_SECOND + LOOK_NS
    assert due_after("boot-2", 0, 1) == 1


def _raise(*_: Any) -> Any:
    raise RuntimeError


def test_a_handover_that_raises_stays_in_the_step() -> None:
    """A bug in what a failed actor would leave to the fallback ends with that actor."""
    system = System()
    slot = system.slots[(CONFIG.name, "")]
    slot.kind = CONFIG._replace(handover=_raise)
    slot.transitions = Transitions(("any",), lambda state: "any", Row(EVERY, f.SettingsLoaded, _raise))
    records = system.step(f.SettingsLoaded(settings=Settings()), Stamp(1, 1))
    assert [record.event.handover for record in records if isinstance(record.event, ActorFailed)] == [()]


@pytest.mark.parametrize("listener_fails", [False, True])
def test_a_failures_cause_reaches_whoever_listens(
    monkeypatch: pytest.MonkeyPatch, listener_fails: bool
) -> None:
    """The record has the error's kind and no more; a listener that fails itself changes no record."""
    replace_handler(monkeypatch, CONFIG, f.SettingsLoaded, _raise)
    heard = []

    def listen(label: str, error: Exception) -> None:
        heard.append((label, type(error), error.__traceback__ is not None))
        if listener_fails:
            raise OSError

    system = System()
    system.on_failure = listen
    records = system.step(f.SettingsLoaded(settings=Settings()), Stamp(1, 1))
    assert heard == [("ConfigReconciler", RuntimeError, True)]
    assert [each.event.error for each in records if isinstance(each.event, ActorFailed)] == ["RuntimeError"]


def test_an_actor_without_pods_hands_none_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The failure of an actor that owns no pod does not carry those of the shutdown."""
    system = System()
    pod = Pod(uid="a", namespace="n", name="a", containers=(Container(name="c"),))
    on = Settings(by_pod_priority=(Period(priority=0, seconds=10),))
    system.step(f.SettingsLoaded(settings=on), Stamp(1, 1))
    signal = f.PrepareForShutdown(active=True, grant_ns=20 * NS_PER_SECOND, lock_held=True)
    system.step(signal, Stamp(1, 1))
    (order,) = (each.order for each in system.open_orders.values() if isinstance(each.order, TakeInventory))
    system.step(f.InventoryTaken(key=order.key, as_of_ns=1, source="test", pods=(pod,)), Stamp(1, 1))
    replace_handler(monkeypatch, CONFIG, f.PreparingRead, _raise)
    records = system.step(f.PreparingRead(preparing=True), Stamp(2, 2))
    assert [record.event.handover for record in records if isinstance(record.event, ActorFailed)] == [()]

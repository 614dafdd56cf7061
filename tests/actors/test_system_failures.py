"""An actor's failure: no endless deadline, no lost step, and all stopping actors fail together."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from ebbtide.actors.config_reconciler import CONFIG
from ebbtide.actors.hook import HOOK
from ebbtide.actors.system import LOOK_NS, System
from ebbtide.events import facts as f
from ebbtide.events.base import NS_PER_SECOND, Record, Stamp
from ebbtide.events.decisions import ActorFailed, HandedOver, PodPlanned, TakeInventory
from ebbtide.events.values import Container, Period, Pod, Settings
from tests.handlers import replace_handler
from tests.journals import started


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


@pytest.mark.parametrize("listener_fails", [False, True])
def test_a_failures_cause_reaches_whoever_listens(
    monkeypatch: pytest.MonkeyPatch, listener_fails: bool
) -> None:
    """The record has only the error's type; a failing listener changes no record."""
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


def test_in_a_shutdown_all_that_end_pods_fail_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """One record, even if the others would also receive the event; no actor is recreated."""
    system = System()
    pods = tuple(
        Pod(uid=uid, namespace="n", name=uid, containers=(Container(name="c"),)) for uid in ("a", "b")
    )
    on = Settings(by_pod_priority=(Period(priority=0, seconds=10),))
    system.step(f.SettingsLoaded(settings=on), Stamp(1, 1))
    system.step(f.PrepareForShutdown(active=True, grant_ns=20 * NS_PER_SECOND, lock_held=True), Stamp(1, 1))

    def listed(*found: Pod) -> list[Record]:
        key = next(key for key, each in system.open_orders.items() if isinstance(each.order, TakeInventory))
        return system.step(f.InventoryTaken(key=key, as_of_ns=1, source="test", pods=found), Stamp(1, 1))

    listed(*pods)
    replace_handler(monkeypatch, HOOK, HandedOver, _raise)
    monkeypatch.setitem(system.actors.to_singletons, HandedOver, ())
    records = system.step(HandedOver(reason="test"), Stamp(2, 2))
    assert [each.event.subject for each in records if isinstance(each.event, ActorFailed)] == ["a"]
    failed = [slot.label for slot in system.slots.values() if slot.failed]
    assert failed == ["EpisodeActor", "HookActor:a", "HookActor:b", "WaveActor:0"]
    system.step(PodPlanned(wave=1, grace_seconds=1, pod=replace(pods[0], uid="new")), Stamp(3, 3))
    assert ("HookActor", "new") not in system.slots

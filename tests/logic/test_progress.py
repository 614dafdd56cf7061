"""An actor that would be due for ever is a failed actor, not a storm of ticks."""

from __future__ import annotations

from typing import Any

import pytest

from actors.logic.config import CONFIG
from actors.logic.routes import BY_NAME
from actors.logic.system import System
from events.decisions import ActorFailed
from events.facts import OrderEnded, Tick
from events.record import Stamp


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> System:
    """A ConfigReconciler that waits for a time which its own `Tick` does not take away."""

    def ignore(state: Any, event: Any, now: int) -> Any:
        return state, ()

    monkeypatch.setitem(BY_NAME["ConfigReconciler"].handlers, Tick, ignore)
    system = System()
    slot = system.slots[(CONFIG.name, "")]
    slot.state = CONFIG.state(order_open="ConfigReconciler/drop-in//0")
    system.step(OrderEnded(key="ConfigReconciler/drop-in//0", result="failed"), Stamp(1, 1))
    return system


def test_no_progress_is_a_failure(stuck: System) -> None:
    """A deadline that is still due after the actor's own tick is recorded as its failure."""
    due_ns = stuck.next_deadline_ns()
    assert due_ns is not None
    records = stuck.step(Tick(), Stamp(due_ns, due_ns))
    (failed,) = (record.event for record in records if isinstance(record.event, ActorFailed))
    assert (failed.actor, failed.error) == ("ConfigReconciler", "NoProgress")
    assert stuck.next_deadline_ns() is None

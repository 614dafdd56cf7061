"""How the NodeStatusActor's orders ended, and what is said again: after a restart, or by the next boot.

Announcing and delivering are idempotent. What could not be delivered before the machine went down waits in
this state, so in the journal, until an API server answers.
"""

from __future__ import annotations

from msgspec.structs import replace

from actors.logic.actor import Result
from actors.logic.node_end import api_lost, certify, flush
from actors.logic.node_view import NodeStatusState, Status, announce, deliver, removes, send
from events.base import Event
from events.facts import ApiRead, OrderEnded


def order_ended(state: NodeStatusState, event: OrderEnded, now: int) -> Result:
    """What a restart lost the outcome of is said again: announcing and delivering are idempotent."""
    if event.key.split("/")[1] == "announce":
        return _announce_ended(state, event)
    statuses = state.deliveries.get(event.key)
    if statuses is None:
        return state, ()
    deliveries = {key: each for key, each in state.deliveries.items() if key != event.key}
    state = _undelivered(replace(state, deliveries=deliveries), statuses, event)
    decisions: list[Event] = []
    if event.key == state.check_key:
        state, decisions = certify(state, event)
    if state.flushing:
        return flush(state, decisions, now)
    state, delivered = deliver(state, [])
    return state, [*decisions, *delivered]


def _undelivered(state: NodeStatusState, statuses: tuple[Status, ...], event: OrderEnded) -> NodeStatusState:
    """On a node they wait for the next boot; what is stale by then (``cancelled``) is dropped, on record."""
    if event.result == "unknown" and (state.in_episode or not state.node):
        return replace(state, pending=(*statuses, *state.pending))
    if event.result == "done" or not statuses:
        return state
    state = replace(state, undelivered=state.undelivered + len(statuses))
    kept = state.node and event.result != "cancelled"
    return replace(state, late_statuses=(*state.late_statuses, *statuses)) if kept else state


def _announce_ended(state: NodeStatusState, event: OrderEnded) -> Result:
    if event.result == "unknown":
        return announce(state, ready=not state.announced)
    if event.result == "done" or state.announced or not state.node:
        return state, ()
    return replace(state, restore_due=True), ()


def api_read(state: NodeStatusState, event: ApiRead, now: int) -> Result:
    """What could not be said before the machine went down, or came up, is said now."""
    state = api_lost(state, event, now)
    if not event.reachable or state.in_episode:
        return state, ()
    decisions: list[Event] = []
    if state.restore_due:
        state, shown = announce(replace(state, restore_due=False), ready=True)
        decisions += shown
    state, late = deliver_late(state)
    return state, [*decisions, *late]


def deliver_late(state: NodeStatusState) -> Result:
    """From an earlier boot: only where nothing has changed since (design, rule 11)."""
    if not state.late_statuses or state.api is not True:
        return state, ()
    state, order = send(state, state.late_statuses, remove=removes(state), unchanged_only=True)
    return replace(state, late_statuses=()), [order]

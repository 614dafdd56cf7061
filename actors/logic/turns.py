"""Whose turn is it among a pod's containers, and what is said once all of them have exited.

All containers go down at once; sidecars (restartable init containers) run their hooks with the others and
are stopped last, in reverse order (facts-kubelet 4.1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from actors.logic import container as steps
from actors.logic.actor import Result
from actors.logic.container import Down
from actors.logic.outcome import describe
from actors.logic.pod import PodState
from events.base import Event
from events.decisions import PodEnded


def each(state: PodState, now: int, phase: str, step: Callable[[Down], steps.Step]) -> Result:
    """Apply ``step`` to every container in ``phase`` ("" for all), then see whose turn it is.

    After the last word on a pod nothing is done to it any more, whatever is still learned of it.
    """
    if state.over:
        return state, ()
    decisions: list[Event] = []
    downs = list(state.downs)
    for index, down in enumerate(downs):
        if not phase or down.phase == phase:
            downs[index], made = step(down)
            decisions += made
    return _settle(state, downs, now, decisions)


def _settle(state: PodState, downs: list[Down], now: int, decisions: list[Event]) -> Result:
    """Send the stop to every container whose turn has come; say so when all have exited."""
    left = False
    for index, down in enumerate(downs):
        left = left or down.phase != "exited"
        if down.phase == "turn" and (_has_turn(downs, index) or down.stop_by_ns <= now):
            downs[index], made = steps.stop(down, now)
            decisions += made
    state = replace(state, downs=tuple(downs))
    return (state, decisions) if left else end(state, now, decisions)


def _has_turn(downs: Sequence[Down], index: int) -> bool:
    """A sidecar waits for the main containers and for the sidecars that were started after it."""
    if not downs[index].spec.sidecar:
        return True
    others = (other for at, other in enumerate(downs) if not other.spec.sidecar or at > index)
    return all(other.phase == "exited" for other in others)


def end(state: PodState, now: int, decisions: list[Event]) -> Result:
    """The last word on a pod whose stop has begun, as its containers stand."""
    if state.over or not state.begun:
        return state, decisions
    return replace(state, over=True), [*decisions, pod_ended(state, now)]


def pod_ended(state: PodState, now: int) -> PodEnded:
    """Its fate, from its containers' ends."""
    assert state.pod is not None
    had_ns = min(state.grace_ns, now - state.begun_ns) if state.means and state.begun else state.grace_ns
    fate = describe(state.downs, had_ns, state.pod, state.finding, by_number=bool(state.means))
    return PodEnded(
        uid=state.pod.uid,
        wave=state.wave,
        outcome=fate.outcome,
        reason=fate.reason,
        elapsed_ns=max(0, now - state.begun_ns),
        succeeded=fate.succeeded,
        **_whose(state),
    )


def _whose(state: PodState) -> dict[str, Any]:
    """In mode process nobody has to be told whose pod it was."""
    if not state.means or state.pod is None:
        return {}
    pod = state.pod
    returns = ("always" if pod.tolerates_all else "untainted") if pod.daemon else ""
    return {
        "means": state.means,
        "namespace": pod.namespace,
        "name": pod.name,
        "owner": pod.owner,
        "deleted": state.deleted,
        "returns": returns,
    }

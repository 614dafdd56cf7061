"""HookActor: one pod, from its stop to its end: preStop hooks, stop signals, SIGKILL, and why.

All containers go down at once; sidecars (restartable init containers) run their hooks with the others and
are stopped last, in reverse order (facts-kubelet 4.1). The actor outlives a cancel, because a pod
whose stop has begun is finished within its grace, and serves a second episode with what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from actors.logic import container as steps
from actors.logic.actor import NEVER_NS, ActorType, Result
from actors.logic.answers import ANSWERS
from actors.logic.container import Down
from actors.logic.outcome import describe
from actors.logic.pod import PodState, handed_over
from events.base import NS_PER_SECOND, Event
from events.decisions import (
    DeadlineMoved,
    PodEnded,
    PodPlanned,
    PodsEnded,
    PodStopBegan,
    ShutdownCancelled,
)
from events.facts import AutopsyTaken, ContainerExited, DaemonStarted, HurryRequested, OrderEnded, Tick

NAME = steps.OWNER


def _planned(state: PodState, event: PodPlanned, now: int) -> Result:
    """A second episode adopts a pod that is still on its way down: hooks run and grace used stay so."""
    if state.begun and not state.over:
        return replace(state, wave=event.wave), ()
    downs = tuple(
        Down(
            uid=event.pod.uid,
            spec=spec,
            phase="running" if spec.running else "exited",
            first_ordinal=event.first_ordinal,
        )
        for spec in event.pod.containers
    )
    return PodState(
        pod=event.pod,
        wave=event.wave,
        grace_ns=event.grace_seconds * NS_PER_SECOND,
        sleep_action=event.sleep_action,
        downs=downs,
    ), ()


def _began(state: PodState, event: PodStopBegan, now: int) -> Result:
    if state.begun or state.over:
        return replace(state, downs=tuple(steps.limit(down, event.kill_by_ns) for down in state.downs)), ()
    # A stamp of 0 would read as "not begun"; no clock that runs shows it.
    state = replace(state, begun_ns=max(now, 1), grace_ns=0 if state.hurried else event.grace_ns)
    deadline_ns = now + state.grace_ns
    return _each(
        state,
        now,
        "running",
        lambda down: steps.begin(down, now, deadline_ns, event.kill_by_ns, sleep_action=state.sleep_action),
    )


def _each(state: PodState, now: int, phase: str, step: Callable[[Down], steps.Step]) -> Result:
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
    return (state, decisions) if left else _end(state, now, decisions)


def _has_turn(downs: Sequence[Down], index: int) -> bool:
    """A sidecar waits for the main containers and for the sidecars that were started after it."""
    if not downs[index].spec.sidecar:
        return True
    others = (other for at, other in enumerate(downs) if not other.spec.sidecar or at > index)
    return all(other.phase == "exited" for other in others)


def _end(state: PodState, now: int, decisions: list[Event]) -> Result:
    if state.over or not state.begun:
        return state, decisions
    return replace(state, over=True), [*decisions, _pod_ended(state, now)]


def _pod_ended(state: PodState, now: int) -> PodEnded:
    assert state.pod is not None
    fate = describe(state.downs, state.grace_ns, state.pod, state.finding)
    return PodEnded(
        uid=state.pod.uid,
        wave=state.wave,
        outcome=fate.outcome,
        reason=fate.reason,
        elapsed_ns=max(0, now - state.begun_ns),
        succeeded=fate.succeeded,
    )


def _exited(state: PodState, event: ContainerExited, now: int) -> Result:
    def step(down: Down) -> steps.Step:
        if down.spec.name != event.container or down.phase == "exited":
            return down, []
        return steps.exited(down, now, event.exit_code, event.signal)

    return _each(state, now, "", step)


def _tick(state: PodState, event: Tick, now: int) -> Result:
    return _each(state, now, "", lambda down: _due(down, now))


def _due(down: Down, now: int) -> steps.Step:
    if down.due_ns() > now or down.phase == "turn":
        return down, []
    if down.phase == "hook":
        return steps.cut_hook(down, now)
    if down.kill_at_ns <= now:
        return steps.kill(down)
    return steps.autopsy(down)


def _order_ended(state: PodState, event: OrderEnded, now: int) -> Result:
    what, _, name = event.key.split("/")[1].partition(":")
    answer = ANSWERS.get(what)
    if answer is None:
        return state, ()

    def step(down: Down) -> steps.Step:
        return answer(down, event, now) if down.spec.name == name else (down, [])

    return _each(state, now, "", step)


def _restarted(state: PodState, event: DaemonStarted, now: int) -> Result:
    return replace(state, downs=tuple(steps.resume_stop(down, now) for down in state.downs)), ()


def _autopsied(state: PodState, event: AutopsyTaken, now: int) -> Result:
    first = event.processes[0] if event.processes else None
    signal = next((down.spec.stop_signal for down in state.downs if down.spec.name == event.container), "")
    if first is None or signal not in first.signals_ignored:
        return state, ()
    return replace(state, finding=f"its first process ignores {signal}"), ()


def _hurry(state: PodState, event: HurryRequested, now: int) -> Result:
    named = state.pod is not None and event.pod in (state.pod.uid, state.pod.name, state.pod.label)
    if not named or state.over:
        return state, ()
    if not state.begun:
        return replace(state, hurried=True, finding=f"hurried by uid {event.asked_by}"), ()
    state = replace(
        state,
        grace_ns=min(state.grace_ns, now - state.begun_ns),
        finding=f"hurried by uid {event.asked_by}",
        downs=tuple(steps.shorten(down, now) for down in state.downs),
    )
    return _tick(state, Tick(), now)


def _cancelled(state: PodState, event: ShutdownCancelled, now: int) -> Result:
    """What has begun is finished; what has not is spared."""
    if state.begun or state.over or state.pod is None:
        return state, ()
    return replace(state, over=True), [
        PodEnded(uid=state.pod.uid, wave=state.wave, outcome="spared", reason="the shutdown was cancelled")
    ]


def _budget_over(state: PodState, event: PodsEnded, now: int) -> Result:
    if not state.begun:
        return _never_begun(state, now)
    cancels = [cancel for down in state.downs for cancel in steps.abandon_hook(down)]
    return _end(state, now, cancels if not state.over else [])


def _never_begun(state: PodState, now: int) -> Result:
    if state.over or state.pod is None:
        return state, ()
    if all(down.phase == "exited" for down in state.downs):
        return replace(state, over=True), [_pod_ended(replace(state, begun_ns=now), now)]
    reason = "the lock was released before its wave"
    return replace(state, over=True), [
        PodEnded(uid=state.pod.uid, wave=state.wave, outcome="unknown", reason=reason)
    ]


def _ended_elsewhere(state: PodState, event: PodEnded, now: int) -> Result:
    """The last word was said for us: the boot that this pod ran in is over."""
    return (state, ()) if state.over else (replace(state, over=True), ())


def _moved(state: PodState, event: DeadlineMoved, now: int) -> Result:
    return replace(state, downs=tuple(steps.limit(down, event.kill_by_ns) for down in state.downs)), ()


def _deadline(state: PodState) -> int:
    if state.over or not state.begun:
        return NEVER_NS
    return min([down.due_ns() for down in state.downs], default=NEVER_NS)


HOOK = ActorType(
    NAME,
    PodState,
    {
        PodPlanned: _planned,
        PodStopBegan: _began,
        ContainerExited: _exited,
        Tick: _tick,
        OrderEnded: _order_ended,
        AutopsyTaken: _autopsied,
        HurryRequested: _hurry,
        ShutdownCancelled: _cancelled,
        PodsEnded: _budget_over,
        PodEnded: _ended_elsewhere,
        DeadlineMoved: _moved,
        DaemonStarted: _restarted,
    },
    deadline=_deadline,
    done=lambda state: state.over or not state.begun,
    handover=handed_over,
)

"""HookActor: one pod, from its stop to its end: preStop hooks, stop signals, SIGKILL, and why.

All containers go down at once; sidecars (restartable init containers) run their hooks with the others and
are stopped last, in reverse order (facts-kubelet 4.1). The actor outlives a cancel, because a pod
whose stop has begun is finished within its grace, and serves a second episode with what is left.
"""

from __future__ import annotations

from msgspec.structs import replace

from actors.logic import container as steps
from actors.logic import delegate
from actors.logic.actor import NEVER_NS, ActorType, Result
from actors.logic.answers import ANSWERS
from actors.logic.budget import FLOOR_NS
from actors.logic.container import Down
from actors.logic.pod import PodState, handed_over
from actors.logic.turns import each, end, pod_ended
from events.base import NS_PER_SECOND
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
        state = replace(state, wave=event.wave, withdrawn=False)
        return (state, ()) if event.means == state.means else delegate.hand_over(state, now)
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
        means=event.means,
        first_ordinal=event.first_ordinal if event.means == "api" else 0,
    ), ()


def _began(state: PodState, event: PodStopBegan, now: int) -> Result:
    if state.begun or state.over:
        return _limit(state, event.kill_by_ns, now)
    # A stamp of 0 would read as "not begun"; no clock that runs shows it.
    state = replace(state, begun_ns=max(now, 1), grace_ns=0 if state.hurried else event.grace_ns)
    if state.means in ("api", "observe"):
        return delegate.begin(state, event, now)
    deadline_ns = now + state.grace_ns
    return each(
        state,
        now,
        "running",
        lambda down: steps.begin(down, now, deadline_ns, event.kill_by_ns, sleep_action=state.sleep_action),
    )


def _exited(state: PodState, event: ContainerExited, now: int) -> Result:
    def step(down: Down) -> steps.Step:
        if down.spec.name != event.container or down.phase == "exited":
            return down, []
        return steps.exited(down, now, event.exit_code, event.signal)

    return each(state, now, "", step)


def _tick(state: PodState, event: Tick, now: int) -> Result:
    return each(state, now, "", lambda down: _due(down, now))


def _due(down: Down, now: int) -> steps.Step:
    if down.due_ns() > now or down.phase == "turn":
        return down, []
    if down.phase == "hook":
        return steps.cut_hook(down, now)
    if down.kill_at_ns <= now:
        return steps.kill(down)
    return steps.autopsy(down)


def _limit(state: PodState, kill_by_ns: int, now: int) -> Result:
    """The last possible SIGKILL has moved; a kubelet that ends its pods by itself keeps its own."""
    if state.means == "observe":
        return state, ()
    state = replace(state, downs=tuple(steps.limit(down, kill_by_ns) for down in state.downs))
    return delegate.shorten(state, kill_by_ns - FLOOR_NS, now)


def _order_ended(state: PodState, event: OrderEnded, now: int) -> Result:
    what, _, name = event.key.split("/")[1].partition(":")
    if what == "delete":
        return delegate.delete_ended(state, event, now)
    answer = ANSWERS.get(what)
    if answer is None:
        return state, ()

    def step(down: Down) -> steps.Step:
        return answer(down, event, now) if down.spec.name == name else (down, [])

    return each(state, now, "", step)


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
    if not named or state.over or state.means == "observe":
        return state, ()
    if not state.begun:
        return replace(state, hurried=True, finding=f"hurried by uid {event.asked_by}"), ()
    state = replace(
        state,
        grace_ns=min(state.grace_ns, now - state.begun_ns),
        finding=f"hurried by uid {event.asked_by}",
    )
    if state.means == "api":
        return delegate.hurry(state, now)
    downs = tuple(steps.shorten(down, now) for down in state.downs)
    return _tick(replace(state, downs=downs), Tick(), now)


def _cancelled(state: PodState, event: ShutdownCancelled, now: int) -> Result:
    """What has begun is finished; what has not is spared. A delete that is not taken has begun nothing."""
    if state.delete_key and not state.over:
        return replace(state, withdrawn=True), ()
    if state.begun or state.over or state.pod is None:
        return state, ()
    return replace(state, over=True), [
        PodEnded(uid=state.pod.uid, wave=state.wave, outcome="spared", reason="the shutdown was cancelled")
    ]


def _budget_over(state: PodState, event: PodsEnded, now: int) -> Result:
    if not state.begun:
        return _never_begun(state, now)
    cancels = [cancel for down in state.downs for cancel in steps.abandon_hook(down)]
    return end(state, now, cancels if not state.over else [])


def _never_begun(state: PodState, now: int) -> Result:
    if state.over or state.pod is None:
        return state, ()
    if all(down.phase == "exited" for down in state.downs):
        return replace(state, over=True), [pod_ended(replace(state, begun_ns=now), now)]
    reason = "the lock was released before its wave"
    return replace(state, over=True), [
        PodEnded(uid=state.pod.uid, wave=state.wave, outcome="unknown", reason=reason)
    ]


def _ended_elsewhere(state: PodState, event: PodEnded, now: int) -> Result:
    """The last word was said for us: the boot that this pod ran in is over."""
    return (state, ()) if state.over else (replace(state, over=True), ())


def _moved(state: PodState, event: DeadlineMoved, now: int) -> Result:
    return _limit(state, event.kill_by_ns, now)


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
        **delegate.HEARD,
    },
    deadline=_deadline,
    done=lambda state: state.over or not state.begun,
    handover=handed_over,
)

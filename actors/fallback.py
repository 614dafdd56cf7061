"""FallbackActor: plain code that ends a shutdown after another actor has failed.

Theory of operation. While all is well, it only follows the pods. When an actor that ends pods fails, all of
them fail (`sets.Rescue`), and the fallback leads. In ascending priority each pod gets its stop signal, the
rest of its grace, and SIGKILL; then the next wave begins. The statuses and the release follow as always, at
the latest at ``release_by_ns``. Without a plan it lists the pods itself, as one wave. After a failure of
another actor it only secures the release.

What this gives up: a defect at one pod costs all pods their hooks, autopsies and order between containers.
Pods that are found later get no stop. A cancel closes the shutdown at once: a pod that has its stop signal
may run on. Two leaders side by side would keep all that, and could not be tested. The fallback imports no
actor that it replaces.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Literal, get_args

from msgspec.structs import replace

from ebbtide.actors.actor import (
    EVERY,
    NEVER_NS,
    ActorType,
    Handler,
    Result,
    Row,
    State,
    Transitions,
    fresh_but,
    ignored,
)
from ebbtide.actors.policy.grace_periods import FLOOR_NS, REAP_MARGIN_NS
from ebbtide.actors.policy.resume import FoundAtStart, LastEpisode, resume_action
from ebbtide.events import decisions as d
from ebbtide.events import facts as f
from ebbtide.events import kinds
from ebbtide.events.base import NS_PER_SECOND, BoundedDict, BoundedTuple, Event, order_key, parse_order_key
from ebbtide.events.values import Pod, TerminationMode

NAME = "FallbackActor"

#: Listings that may fail before the shutdown goes on without one.
LISTINGS_MAX = 2
#: From the last pod's end to the release, after a failure of an actor that leads to it.
SECURED_NS = 2 * NS_PER_SECOND
#: Kept free before logind's own timer, in a shutdown that the fallback opens.
OPENED_MARGIN_NS = NS_PER_SECOND

Phase = Literal["idle", "watching", "leading", "ended", "withdrawn", "cancelled"]


class FallbackPod(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A pod that has not ended. ``left``: running containers; ``kill_at_ns`` 0: not signalled here."""

    pod: Pod
    wave: int
    grace_ns: int
    left: BoundedTuple[kinds.Container] = ()
    begun_ns: int = 0
    kill_at_ns: int = 0
    killed: bool = False
    #: What its containers' ends have shown so far.
    outcome: d.PodOutcome = "graceful"


class FallbackState(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    phase: Phase = "idle"
    leading: bool = False
    #: A signal, and a start, that no actor has answered yet. ``moved``: that start found another userspace.
    detected: d.ShutdownDetected | None = None
    start: f.DaemonStarted | None = None
    moved: bool = False
    home: str = ""
    #: The kubelet ends the pods, in this shutdown or by configuration: the fallback signals none.
    observing: bool = False
    onlooker: bool = False
    deadline_ns: int = 0
    release_by_ns: int = NEVER_NS
    released: bool = False
    secured: bool = False
    pods: BoundedDict[kinds.Uid, FallbackPod] = {}
    #: The last wave that has begun.
    wave: int = -1
    planned: bool = False
    listing_key: str = ""
    listings: int = 0
    ordinal: int = 0
    # For the trace of a shutdown that the fallback opens.
    projection_version: int = d.FIRST_PROJECTION_VERSION
    resource: BoundedDict[str, str] = {}


_STOPS = (d.PodStopBegan, d.SendSignal, d.KillContainer, d.PodEnded, d.PodsEnded, d.ReleaseLock)
_ENGAGES = (d.ShutdownBegan, d.FallbackEngaged, d.TakeInventory, *_STOPS)
_CLOSES = (d.ShutdownCancelled, d.PodEnded, d.EpisodeClosed, d.Resumed)
_NOT_LEADING = "idle watching ended withdrawn cancelled"


# fmt: off
def _transitions() -> Transitions:
    return Transitions(
        get_args(Phase),
        attrgetter("phase"),
        # An actor fails.
        Row("idle", d.ActorFailed, lambda state, event, now: _open(state, event, [], now), "= leading ended",
            _ENGAGES),
        Row("watching leading ended withdrawn cancelled", d.ActorFailed, _failed, "= leading ended idle",
            (*_ENGAGES, *_CLOSES)),
        # The pods.
        Row(_NOT_LEADING, d.PodPlanned, _pod_planned),
        ignored("leading", d.PodPlanned),
        Row(_NOT_LEADING, f.PodJoined, lambda state, event, now: (_joined(state, event)[0], ())),
        Row("leading", f.PodJoined, _joined_late, decides=(d.SendSignal,)),
        Row(EVERY, d.PodStopBegan, _stop_began),
        Row(EVERY, d.PodEnded, lambda state, event, now: (_without_pod(state, event.uid), ())),
        Row(_NOT_LEADING, f.ContainerExited, _container_exited),
        Row("leading", f.ContainerExited, _then_go_on(_container_exited), "= ended", _STOPS),
        Row(_NOT_LEADING, f.HurryRequested, _hurried),
        Row("leading", f.HurryRequested, _then_go_on(_hurried), "= ended", _STOPS),
        # The shutdown.
        Row("idle withdrawn cancelled", d.ShutdownDetected,
            lambda state, event, now: (replace(state, detected=event), ())),
        Row("leading", d.ShutdownDetected, _then_go_on(_shortened), "= ended", _STOPS),
        Row("ended", d.ShutdownDetected, _shortened),
        ignored("watching", d.ShutdownDetected),
        Row(_NOT_LEADING, d.ShutdownBegan, _began, "watching"),
        ignored("leading", d.ShutdownBegan),
        Row(EVERY, d.MeansChosen,
            lambda state, event, now: (replace(state, observing=event.means == "observe"), ())),
        Row(EVERY, d.DeadlineMoved, _sets("deadline_ns", "release_by_ns")),
        Row(EVERY, d.PlanMade, _sets(planned=True)),
        Row("leading", f.InventoryTaken, _inventory_taken, "= ended", (d.PodPlanned, *_STOPS)),
        Row("leading", f.OrderEnded, _order_ended, "= ended", (d.TakeInventory, *_STOPS)),
        Row("leading", f.Tick, _then_go_on(_sets()), "= ended", _STOPS),
        Row("watching ended", f.Tick, lambda state, event, now: _release(state), decides=(d.ReleaseLock,)),
        Row("leading", f.ReleaseRequested, lambda state, event, now: _give_up(state, now), "ended", _STOPS),
        ignored(_NOT_LEADING, f.InventoryTaken, f.OrderEnded, f.ReleaseRequested),
        ignored("idle withdrawn cancelled", f.Tick),
        Row("watching ended", d.PodsEnded, _pods_ended, "ended"),
        ignored("idle leading withdrawn cancelled", d.PodsEnded),
        Row("ended", d.StatusesSettled,
            lambda state, event, now: _release(state) if state.secured else (state, ()),
            decides=(d.ReleaseLock,)),
        ignored("idle watching leading withdrawn cancelled", d.StatusesSettled),
        Row(EVERY, d.ReleaseLock, _sets(released=True, release_by_ns=NEVER_NS)),
        Row("watching leading ended", d.ShutdownWithdrawn, _withdrawn, "withdrawn idle", _CLOSES),
        ignored("idle withdrawn cancelled", d.ShutdownWithdrawn),
        Row("withdrawn", d.ShutdownCancelled, _sets(phase="cancelled"), "cancelled"),
        ignored("idle watching leading ended cancelled", d.ShutdownCancelled),
        Row("watching ended withdrawn cancelled", d.EpisodeClosed,
            lambda state, event, now: (_idle(state), ()), "idle"),
        ignored("idle leading", d.EpisodeClosed),
        Row(EVERY, f.DaemonStarted, _started, "= idle", _CLOSES),
        Row(EVERY, d.Resumed, _sets(start=None)),
        Row(EVERY, d.ConfigAdopted, _sets("projection_version", "resource")),
    )
# fmt: on


def _idle(state: FallbackState) -> FallbackState:
    return fresh_but(state, ("home", "onlooker", "ordinal", "projection_version", "resource"))


def _with_pod(state: FallbackState, pod: FallbackPod) -> FallbackState:
    return replace(state, pods={**state.pods, pod.pod.uid: pod})


def _without_pod(state: FallbackState, uid: str) -> FallbackState:
    # A copy and a removal: a new dict, entry by entry, takes a fifth of a replay with 1 000 pods.
    pods = state.pods.copy()
    pods.pop(uid, None)
    return replace(state, pods=pods)


def _ended(
    state: FallbackState, pod: FallbackPod, outcome: d.PodOutcome, reason: str, now: int
) -> d.PodEnded:
    return d.PodEnded(
        uid=pod.pod.uid,
        wave=pod.wave,
        outcome=outcome,
        reason=reason,
        elapsed_ns=max(0, now - pod.begun_ns) if pod.begun_ns else 0,
        gone=outcome == "unknown" and not pod.left,
        means="observe" if state.observing else "",
    )


# --- follow the pods -----------------------------------------------------------------------------


def _pod_planned(state: FallbackState, event: d.PodPlanned, now: int) -> Result:
    left = tuple(each.name for each in event.pod.containers if each.running)
    grace_ns = event.grace_seconds * NS_PER_SECOND
    return _with_pod(state, FallbackPod(pod=event.pod, wave=event.wave, grace_ns=grace_ns, left=left)), ()


def _joined(state: FallbackState, event: f.PodJoined) -> tuple[FallbackState, list[str]]:
    """Containers of a known pod that the kubelet has started since: they are left too."""
    pod = state.pods.get(event.pod.uid)
    if pod is None:
        return state, []
    new = [each.name for each in event.pod.containers if each.running and each.name not in pod.left]
    return _with_pod(state, replace(pod, pod=event.pod, left=(*pod.left, *new))), new


def _joined_late(state: FallbackState, event: f.PodJoined, now: int) -> Result:
    """A new container of a pod that has its stop signal gets one too, and at least the floor."""
    state, new = _joined(state, event)
    pod = state.pods.get(event.pod.uid)
    if pod is None or not pod.kill_at_ns or not new:
        return state, ()
    kill_at_ns = max(pod.kill_at_ns, now + FLOOR_NS)
    return _signal(state, replace(pod, killed=False, kill_at_ns=kill_at_ns), new)


def _stop_began(state: FallbackState, event: d.PodStopBegan, now: int) -> Result:
    pod = state.pods.get(event.uid)
    if pod is None or pod.begun_ns:
        return state, ()
    # A hurried pod has no grace.
    pod = replace(pod, begun_ns=max(now, 1), grace_ns=event.grace_ns if pod.grace_ns else 0)
    return replace(_with_pod(state, pod), wave=max(state.wave, event.wave)), ()


def _container_exited(state: FallbackState, event: f.ContainerExited, now: int) -> Result:
    pod = state.pods.get(event.uid)
    if pod is None or event.container not in pod.left:
        return state, ()
    outcome: d.PodOutcome = "unknown" if event.gone else pod.outcome
    if pod.begun_ns and (event.signal == "SIGKILL" or event.exit_code == 137 or pod.outcome == "killed"):
        outcome = "killed"
    left = tuple(name for name in pod.left if name != event.container)
    return _with_pod(state, replace(pod, left=left, outcome=outcome)), ()


def _hurried(state: FallbackState, event: f.HurryRequested, now: int) -> Result:
    for pod in state.pods.values():
        if event.pod in (pod.pod.uid, pod.pod.name, pod.pod.label) and not state.observing:
            kill_at_ns = min(pod.kill_at_ns, now + FLOOR_NS)
            state = _with_pod(state, replace(pod, grace_ns=0, kill_at_ns=kill_at_ns))
    return state, ()


# --- lead the shutdown -----------------------------------------------------------------------------


def _signal(
    state: FallbackState, pod: FallbackPod, names: Sequence[str]
) -> tuple[FallbackState, list[Event]]:
    """The stop signal, or SIGKILL for a pod whose time is over."""
    uid, orders, kind = pod.pod.uid, list[Event](), "kill" if pod.killed else "stop"
    for each in () if state.observing else pod.pod.containers:
        if each.name in names:
            key = order_key(NAME, f"{kind}:{each.name}", uid, state.ordinal + len(orders))
            stop = d.SendSignal(key=key, uid=uid, container=each.name, signal=each.stop_signal)
            orders.append(d.KillContainer(key=key, uid=uid, container=each.name) if pod.killed else stop)
    return replace(_with_pod(state, pod), ordinal=state.ordinal + len(orders)), orders


def _begin_stop(state: FallbackState, pod: FallbackPod, now: int) -> tuple[FallbackState, list[Event]]:
    """The pod has what is left of its grace: at least the floor, and no longer than to the release."""
    began: list[Event] = []
    last_ns = state.release_by_ns - REAP_MARGIN_NS
    if not pod.begun_ns:
        grace_ns = min(pod.grace_ns, max(0, state.deadline_ns - now))
        pod = replace(pod, begun_ns=max(now, 1), grace_ns=grace_ns)
        if not state.observing:
            began = [d.PodStopBegan(uid=pod.pod.uid, wave=pod.wave, grace_ns=grace_ns, kill_by_ns=last_ns)]
    kill_at_ns = max(now, min(max(now + FLOOR_NS, pod.begun_ns + pod.grace_ns), last_ns), 1)
    kill_at_ns = NEVER_NS if state.observing else kill_at_ns
    state, signals = _signal(state, replace(pod, kill_at_ns=kill_at_ns), pod.left)
    return state, [*began, *signals]


def _go_on(state: FallbackState, made: Sequence[Event], now: int) -> Result:
    """As far as the shutdown can go by now: pods that have ended, SIGKILL, the next wave, the end."""
    decisions = list(made)
    for pod in state.pods.values():
        if not pod.left:
            outcome: d.PodOutcome = "killed" if pod.killed else pod.outcome
            decisions.append(_ended(state, pod, outcome, "ended under the fallback", now))
            state = _without_pod(state, pod.pod.uid)
        elif _is_signalled(pod) and pod.kill_at_ns <= now:
            state, kills = _signal(state, replace(pod, killed=True), pod.left)
            decisions += kills
    waiting = [pod for pod in state.pods.values() if not pod.kill_at_ns]
    if waiting and not any(map(_is_signalled, state.pods.values())):
        state = replace(state, wave=max(state.wave, min(pod.wave for pod in waiting)))
    everyone = state.observing or now >= _last_begin_ns(state)
    for pod in waiting:
        if everyone or pod.wave <= state.wave:
            state, begun = _begin_stop(state, pod, now)
            decisions += begun
    if state.released or state.release_by_ns <= now:
        state, end = _give_up(state, now)
        state, release = _release(state)
        return state, [*decisions, *end, *release]
    if state.pods or not state.planned:
        return state, decisions
    return replace(state, phase="ended"), [*decisions, d.PodsEnded()]


def _last_begin_ns(state: FallbackState) -> int:
    """Each pod gets its stop signal, and the floor after it if there is time."""
    return min(state.deadline_ns, state.release_by_ns - REAP_MARGIN_NS - FLOOR_NS)


def _is_signalled(pod: FallbackPod) -> bool:
    return pod.kill_at_ns > 0 and not pod.killed


def _then_go_on(note: Handler) -> Handler:
    return lambda state, event, now: _go_on(*note(state, event, now), now)


def _give_up(state: FallbackState, now: int) -> tuple[FallbackState, list[Event]]:
    end: list[Event] = [d.PodsEnded(unfinished=tuple(state.pods))]
    for pod in state.pods.values():
        outcome: d.PodOutcome = "failed" if pod.killed else "unknown"
        end.append(_ended(state, pod, outcome, "not seen to end under the fallback", now))
    return replace(state, phase="ended", pods={}), end


def _release(state: FallbackState) -> tuple[FallbackState, list[Event]]:
    if state.released:
        return state, []
    order = d.ReleaseLock(key=order_key(NAME, "release", "", state.ordinal))
    return replace(state, released=True, release_by_ns=NEVER_NS, ordinal=state.ordinal + 1), [order]


def _list_pods(state: FallbackState) -> tuple[FallbackState, list[Event]]:
    key = order_key(NAME, "inventory", "", state.ordinal)
    state = replace(state, listing_key=key, listings=state.listings + 1, ordinal=state.ordinal + 1)
    return state, [d.TakeInventory(key=key, refresh=True)]


def _inventory_taken(state: FallbackState, event: f.InventoryTaken, now: int) -> Result:
    """Without the plan the pods' order is unknown: one wave, with the grace that each asks for."""
    if event.key != state.listing_key:
        return state, ()
    left_seconds = max(0, state.deadline_ns - now) // NS_PER_SECOND
    made: list[Event] = []
    for pod in {pod.uid: pod for pod in event.pods}.values():
        asked = left_seconds if pod.grace_seconds is None else pod.grace_seconds
        seconds = max(0, min(asked, left_seconds))
        means: TerminationMode = "observe" if state.observing else ""
        planned = d.PodPlanned(wave=0, grace_seconds=seconds, pod=pod, means=means)
        state, _ = _pod_planned(state, planned, now)
        made.append(planned)
    return _go_on(replace(state, planned=event.part == event.parts), made, now)


def _order_ended(state: FallbackState, event: f.OrderEnded, now: int) -> Result:
    """A signal whose outcome is lost is sent again; a listing that has failed is tried again."""
    key = parse_order_key(event.key)
    pod = state.pods.get(key.subject)
    if pod is not None and event.result == "unknown" and key.part in pod.left:
        return _signal(state, pod, (key.part,))
    if event.key != state.listing_key or event.result == "done" or state.planned:
        return state, ()
    # The daemon died: this says nothing against the next listing.
    if state.listings < LISTINGS_MAX or event.result == "unknown":
        return _list_pods(state)
    return _go_on(replace(state, planned=True), (), now)


# --- a shutdown begins and ends --------------------------------------------------------------------


def _began(state: FallbackState, event: d.ShutdownBegan, now: int) -> Result:
    times = {"deadline_ns": event.deadline_ns, "release_by_ns": event.release_by_ns}
    return replace(_idle(state), phase="watching", observing=state.onlooker, **times), ()


def _open(state: FallbackState, event: d.ActorFailed, made: list[Event], now: int) -> Result:
    """The EpisodeActor failed at the signal. The fallback knows no periods: its budget is the whole grant."""
    signal = state.detected
    if signal is None or event.actor != "EpisodeActor":
        return state, made
    left_ns = max(0, signal.grant_ns - OPENED_MARGIN_NS)
    began = d.ShutdownBegan(
        kind=signal.kind,
        grant_ns=signal.grant_ns,
        requested_ns=signal.grant_ns,
        budget_ns=left_ns,
        deadline_ns=now + left_ns,
        release_by_ns=now + left_ns,
        lock_held=signal.lock_held,
        projection_version=state.projection_version,
        resource=state.resource,
    )
    state, _ = _began(state, began, now)
    return _engage(state, event, [*made, began], now)


def _engage(state: FallbackState, event: d.ActorFailed, made: list[Event], now: int) -> Result:
    made = [*made, d.FallbackEngaged(pods=tuple(state.pods), reason=f"{event.actor} failed")]
    state, order = (state, []) if state.planned else _list_pods(state)
    return _go_on(replace(state, phase="leading", leading=True), [*made, *order], now)


def _shortened(state: FallbackState, event: d.ShutdownDetected, now: int) -> Result:
    """A restarted logind, or the service manager's stop, may leave less time, never more."""
    release_by_ns = min(state.release_by_ns, now + max(0, event.grant_ns - OPENED_MARGIN_NS))
    last_ns = max(now, release_by_ns - REAP_MARGIN_NS)
    return replace(
        state,
        deadline_ns=min(state.deadline_ns, release_by_ns),
        release_by_ns=release_by_ns,
        pods={uid: replace(pod, kill_at_ns=min(pod.kill_at_ns, last_ns)) for uid, pod in state.pods.items()},
    ), ()


def _failed(state: FallbackState, event: d.ActorFailed, now: int) -> Result:
    if event.actor in ("LogindActor", "NodeStatusActor"):
        state = replace(state, secured=True)
        return _pods_ended(state, event, now) if state.phase == "ended" else (state, ())
    if event.actor == "ConfigReconciler" or state.leading:
        return state, ()
    # A start that finds the shutdown cancelled: ShutdownWithdrawn follows in this step.
    cancelled = state.start is not None and state.start.preparing is False
    state, made = _answer_start(replace(state, leading=True), now)
    if state.phase in ("withdrawn", "cancelled"):
        closed, end = _close(state, now)
        return _open(replace(closed, detected=state.detected), event, [*made, *end], now)
    return (state, made) if cancelled or state.phase != "watching" else _engage(state, event, made, now)


def _pods_ended(state: FallbackState, event: Event, now: int) -> Result:
    secured = state.secured and not state.released
    by_ns = min(state.release_by_ns, now + SECURED_NS) if secured else state.release_by_ns
    return replace(state, phase="ended", release_by_ns=by_ns), ()


def _withdrawn(state: FallbackState, event: d.ShutdownWithdrawn, now: int) -> Result:
    state = replace(state, phase="withdrawn", release_by_ns=NEVER_NS)
    return _close(state, now) if state.leading else (state, ())


def _close(state: FallbackState, now: int) -> tuple[FallbackState, list[Event]]:
    """A cancel, in one step: no pod is followed any further."""
    reason: Literal["cancelled", "did-not-go-down"] = "did-not-go-down" if state.released else "cancelled"
    made: list[Event] = [d.ShutdownCancelled(reason=reason)] if state.phase == "withdrawn" else []
    for pod in state.pods.values():
        outcome: d.PodOutcome = "unknown" if pod.begun_ns else "spared"
        made.append(_ended(state, pod, outcome, "the shutdown was cancelled", now))
    followed = state.detected is not None
    made.append(d.EpisodeClosed(outcome="cancelled", last_wave=state.wave, followed=followed))
    return _idle(state), made


def _started(state: FallbackState, event: f.DaemonStarted, now: int) -> Result:
    home = f"{event.boot_id}/{event.userspace_id}"
    state = replace(state, start=event, moved=home != state.home, home=home, onlooker=event.mode == "observe")
    return _answer_start(state, now) if state.leading else (state, ())


def _answer_start(state: FallbackState, now: int) -> tuple[FallbackState, list[Event]]:
    """By the same table as the EpisodeActor. In another boot or userspace the pods are gone."""
    start, same = state.start, not state.moved
    if start is None:
        return state, []
    cancelled = state.phase in ("withdrawn", "cancelled")
    last: LastEpisode = "closed" if cancelled else "released" if state.released else "open"
    resumed = d.Resumed(
        action=resume_action(FoundAtStart(last, start.preparing, same, same, start.lock_inherited))
    )
    if same:
        return replace(state, start=None), [resumed]
    reason = "the machine went down before its end was seen"
    ended = [_ended(state, replace(pod, begun_ns=0), "unknown", reason, now) for pod in state.pods.values()]
    outcome: d.EpisodeOutcome = "cancelled" if cancelled else "complete" if state.released else "truncated"
    return _idle(state), [*ended, d.EpisodeClosed(outcome=outcome, last_wave=state.wave), resumed]


def _sets(*fields: str, **values: Any) -> Handler:
    """Takes these fields from the event, and these values."""
    return lambda state, event, now: (replace(state, **{n: getattr(event, n) for n in fields}, **values), ())


def _deadline(state: FallbackState) -> int:
    if state.phase != "leading":
        return state.release_by_ns
    kills = [pod.kill_at_ns for pod in state.pods.values() if _is_signalled(pod)]
    waits = any(not pod.kill_at_ns for pod in state.pods.values())
    return min(state.release_by_ns, _last_begin_ns(state) if waits else NEVER_NS, *kills)


FALLBACK = ActorType(
    NAME,
    FallbackState,
    _transitions(),
    deadline=_deadline,
    # One that failed in a shutdown must not release a lock of the next.
    afresh=lambda state, now, in_episode, start: state if in_episode else _idle(state),
)

"""FallbackActor: plain code that ends a shutdown after another actor has failed.

When an actor that ends pods fails, all of them fail, and the fallback leads: it takes over the pods that have
not ended, from the actors' last states (`system.Rescue`). In ascending priority each pod gets its stop
signal, the rest of its grace, and SIGKILL. The release follows at ``release_by_ns`` at the latest. Without a
plan it lists the pods itself, as one wave. After a failure of another actor it only secures the release.

So one defect costs all pods their hooks, autopsies and order between containers, and later pods get no stop.
In mode observe the pods' fates are unknown. A shutdown that the fallback opens has no names in its trace. The
fallback imports no actor that it replaces. docs/actors.md has the other rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Literal, get_args

from msgspec.structs import replace

from ebbtide.actors.actor import EVERY, NEVER_NS, ActorType, Result, Row, State, Transitions, ignored, takes
from ebbtide.actors.policy.grace_periods import FLOOR_NS, REAP_MARGIN_NS, pod_grace_seconds
from ebbtide.actors.policy.resume import FoundAtStart, LastEpisode, resume_action
from ebbtide.events import decisions as d
from ebbtide.events import facts as f
from ebbtide.events import kinds
from ebbtide.events.base import NS_PER_SECOND, BoundedDict, BoundedTuple, Event, order_key, parse_order_key
from ebbtide.events.values import Pod, TerminationMode

NAME = "FallbackActor"

#: After a failure of these the fallback leads; of those it only secures the release.
LEADS_FOR = ("EpisodeActor", "WaveActor", "HookActor", "KubeletActor")
SECURES_FOR = ("LogindActor", "NodeStatusActor")
#: After so many failed listings the shutdown goes on without one.
LISTINGS_MAX = 2
#: From the last pod's end to the secured release.
SECURED_NS = 2 * NS_PER_SECOND
#: Before logind's own timer, for a grant that only the fallback knows.
OPENED_MARGIN_NS = NS_PER_SECOND

#: The failed actor's pod gets SIGKILL again, at once: the actor may have missed its outcome.
KILL_AGAIN_NS = 1

Phase = Literal["idle", "watching", "leading", "ended", "withdrawn", "cancelled"]


class FallbackPod(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A pod that has not ended. ``left``: running containers."""

    pod: Pod
    wave: int
    grace_ns: int
    left: BoundedTuple[kinds.Container] = ()
    #: By the failed actors.
    signalled: BoundedTuple[kinds.Container] = ()
    begun_ns: int = 0
    #: 0: not signalled by the fallback. NEVER_NS: it had SIGKILL. KILL_AGAIN_NS: from its failed actor.
    kill_at_ns: int = 0
    #: SIGKILL has no answer yet.
    kills_open: BoundedTuple[kinds.Container] = ()
    #: As far as its containers' ends show.
    outcome: d.PodOutcome = "graceful"
    #: All ended containers but the sidecars had exit code 0.
    succeeds: bool = False
    exit_codes: tuple[kinds.ExitCode, ...] = ()
    #: As in `PodEnded`, of a node's pod.
    means: TerminationMode = ""
    deleted: bool = False

    @property
    def is_signalled(self) -> bool:
        return 0 < self.kill_at_ns < NEVER_NS

    @property
    def is_killed(self) -> bool:
        return self.kill_at_ns == NEVER_NS


class FallbackState(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    phase: Phase = "idle"
    leading: bool = False
    #: A signal and a start that no actor has answered yet.
    detected: d.ShutdownDetected | None = None
    start: f.DaemonStarted | None = None
    #: Boot and userspace of the last answered start.
    home: str = ""
    #: The kubelet ends the pods by itself.
    observing: bool = False
    deadline_ns: int = 0
    release_by_ns: int = NEVER_NS
    released: bool = False
    secured: bool = False
    pods: BoundedDict[kinds.Uid, FallbackPod] = {}
    #: The last that has begun.
    wave: int = -1
    planned: bool = False
    listing_key: str = ""
    listings: int = 0
    ordinal: int = 0

    @property
    def last_kill_ns(self) -> int:
        return self.release_by_ns - REAP_MARGIN_NS

    @property
    def last_begin_ns(self) -> int:
        """Later there is no time for a stop signal and the floor."""
        return min(self.deadline_ns, self.last_kill_ns - FLOOR_NS)


_ENDS = (d.PodEnded, d.PodsEnded, d.ReleaseLock)
_STOPS = (d.TakeInventory, d.PodStopBegan, d.SendSignal, d.KillContainer, *_ENDS)
_ENGAGES = (d.ShutdownBegan, d.FallbackEngaged, *_STOPS)
_CLOSES = (d.ShutdownCancelled, d.PodEnded, d.EpisodeClosed, d.Resumed)


# fmt: off
def _transitions() -> Transitions:
    return Transitions(
        get_args(Phase),
        attrgetter("phase"),
        Row("idle", d.ActorFailed, _open, "= leading ended", _ENGAGES),
        Row("watching leading ended withdrawn cancelled", d.ActorFailed, _failed, "= leading ended idle",
            (*_ENGAGES, *_CLOSES)),
        Row("watching leading", d.PodStopBegan, _stop_began),
        # Another actor may fail at the same end.
        Row("watching", f.ContainerExited, _note_exit),
        Row("leading", f.ContainerExited, _container_exited, "= ended", _STOPS),
        Row("leading", f.InventoryTaken, _inventory_taken, "= ended", (d.PodPlanned, *_STOPS)),
        Row("leading", f.OrderEnded, _order_ended, "= ended", _STOPS),
        Row("leading", f.Tick, _go_on, "= ended", _STOPS),
        Row("leading", f.ReleaseRequested, _give_up, "ended", _ENDS),
        Row("watching ended", f.Tick, _release, decides=(d.ReleaseLock,)),
        ignored("idle withdrawn cancelled", f.Tick),
        ignored("idle watching ended withdrawn cancelled", f.InventoryTaken, f.OrderEnded,
                f.ReleaseRequested),
        ignored("idle ended withdrawn cancelled", d.PodStopBegan, f.ContainerExited),
        Row("idle withdrawn cancelled", d.ShutdownDetected,
            lambda state, event, now: (replace(state, detected=event), ())),
        Row("leading ended", d.ShutdownDetected, _shorten),
        ignored("watching", d.ShutdownDetected),
        Row("idle watching ended withdrawn cancelled", d.ShutdownBegan, _began, "watching"),
        ignored("leading", d.ShutdownBegan),
        Row(EVERY, d.MeansChosen,
            lambda state, event, now: (replace(state, observing=event.means == "observe"), ())),
        Row(EVERY, d.DeadlineMoved, takes("deadline_ns", "release_by_ns")),
        Row("watching ended", d.PodsEnded, _pods_ended, "ended"),
        ignored("idle leading withdrawn cancelled", d.PodsEnded),
        Row(EVERY, d.ReleaseLock, takes(released=True, release_by_ns=NEVER_NS)),
        Row("watching leading ended", d.ShutdownWithdrawn, _withdrawn, "withdrawn idle", _CLOSES),
        ignored("idle withdrawn cancelled", d.ShutdownWithdrawn),
        Row("withdrawn", d.ShutdownCancelled, takes(phase="cancelled"), "cancelled"),
        ignored("idle watching leading ended cancelled", d.ShutdownCancelled),
        Row("watching ended withdrawn cancelled", d.EpisodeClosed,
            lambda state, event, now: (_idle(state), ()), "idle"),
        ignored("idle leading", d.EpisodeClosed),
        Row(EVERY, f.DaemonStarted, _started, "= idle", _CLOSES),
        Row(EVERY, d.Resumed, lambda state, event, now: (_at_home(state), ())),
    )
# fmt: on


def _idle(state: FallbackState) -> FallbackState:
    return FallbackState(home=state.home, ordinal=state.ordinal)


# --- an actor fails


def _open(state: FallbackState, event: d.ActorFailed, now: int) -> Result:
    """Without periods the budget is the whole grant."""
    signal = state.detected
    if signal is None or event.actor != "EpisodeActor":
        return state, ()
    left_ns = max(0, signal.grant_ns - OPENED_MARGIN_NS)
    began = d.ShutdownBegan(
        kind=signal.kind,
        grant_ns=signal.grant_ns,
        requested_ns=signal.grant_ns,
        budget_ns=left_ns,
        deadline_ns=now + left_ns,
        release_by_ns=now + left_ns,
        lock_held=signal.lock_held,
    )
    state, _ = _began(state, began, now)
    return _engage(state, event, now, [began])


def _failed(state: FallbackState, event: d.ActorFailed, now: int) -> Result:
    if event.actor in SECURES_FOR:
        state = replace(state, secured=True)
        return _pods_ended(state, event, now) if state.phase == "ended" else (state, ())
    if event.actor not in LEADS_FOR or state.leading:
        return state, ()
    # ShutdownWithdrawn follows in this step.
    cancelled = state.start is not None and state.start.preparing is False
    state, made = _answer_start(replace(state, leading=True), now)
    if state.phase in ("withdrawn", "cancelled"):
        closed, end = _close(state, now)
        opened, began = _open(replace(closed, detected=state.detected), event, now)
        return opened, [*made, *end, *began]
    if state.phase == "ended" and not cancelled:
        # At PodsEnded: pods without a fate get it here.
        state, end = _end_unfinished(state, now)
        return state, [*made, *end]
    return (state, made) if cancelled or state.phase != "watching" else _engage(state, event, now, made)


def _engage(state: FallbackState, event: d.ActorFailed, now: int, made: Sequence[Event]) -> Result:
    engaged = d.FallbackEngaged(pods=tuple(state.pods), reason=f"{event.actor} failed")
    return _go_on(replace(state, phase="leading", leading=True), event, now, [*made, engaged])


# --- lead the shutdown


def _go_on(state: FallbackState, event: Event, now: int, made: Sequence[Event] = ()) -> Result:
    if state.observing:
        return _stop_short(state, event, now, made)
    decisions = list(made)
    if not state.planned and not state.listing_key:
        key = order_key(NAME, "inventory", "", state.ordinal)
        state = replace(state, listing_key=key, listings=state.listings + 1, ordinal=state.ordinal + 1)
        decisions.append(d.TakeInventory(key=key, refresh=True))
    for pod in state.pods.values():
        if not pod.left:
            outcome: d.PodOutcome = "killed" if pod.is_killed else pod.outcome
            decisions.append(_ended(pod, outcome, "ended under the fallback", now))
            state = replace(state, pods={uid: each for uid, each in state.pods.items() if each is not pod})
        elif pod.is_signalled and min(pod.kill_at_ns, state.last_kill_ns) <= now:
            state, kills = _signal(state, replace(pod, kill_at_ns=NEVER_NS), pod.left)
            decisions += kills
    waiting = [pod for pod in state.pods.values() if not pod.kill_at_ns]
    if waiting and not any(pod.is_signalled for pod in state.pods.values()):
        state = replace(state, wave=max(state.wave, min(pod.wave for pod in waiting)))
    for pod in waiting:
        if pod.wave <= state.wave or now >= state.last_begin_ns:
            state, begun = _begin_stop(state, pod, now)
            decisions += begun
    if state.released or state.release_by_ns <= now:
        return _stop_short(state, event, now, decisions)
    if state.pods or not state.planned:
        return state, decisions
    return replace(state, phase="ended"), [*decisions, d.PodsEnded()]


def _begin_stop(state: FallbackState, pod: FallbackPod, now: int) -> tuple[FallbackState, list[Event]]:
    """The pod gets the rest of its grace: at least the floor, and at most until the release."""
    began: list[Event] = []
    last_ns = state.last_kill_ns
    if not pod.begun_ns:
        grace_ns = min(pod.grace_ns, max(0, min(state.deadline_ns, last_ns) - now))
        pod = replace(pod, begun_ns=max(now, 1), grace_ns=grace_ns)
        began = [d.PodStopBegan(uid=pod.pod.uid, wave=pod.wave, grace_ns=grace_ns, kill_by_ns=last_ns)]
    kill_at_ns = max(now, min(max(now + FLOOR_NS, pod.begun_ns + pod.grace_ns), last_ns), 1)
    unsignalled = [name for name in pod.left if name not in pod.signalled]
    state, signals = _signal(state, replace(pod, kill_at_ns=kill_at_ns), unsignalled)
    return state, [*began, *signals]


def _signal(
    state: FallbackState, pod: FallbackPod, names: Sequence[str]
) -> tuple[FallbackState, list[Event]]:
    uid, orders, kind = pod.pod.uid, list[Event](), "kill" if pod.is_killed else "stop"
    if pod.is_killed:
        pod = replace(pod, kills_open=tuple(dict.fromkeys((*pod.kills_open, *names))))
    for each in pod.pod.containers:
        if each.name in names:
            key = order_key(NAME, f"{kind}:{each.name}", uid, state.ordinal + len(orders))
            stop = d.SendSignal(key=key, uid=uid, container=each.name, signal=each.stop_signal)
            orders.append(d.KillContainer(key=key, uid=uid, container=each.name) if pod.is_killed else stop)
    return replace(state, pods={**state.pods, uid: pod}, ordinal=state.ordinal + len(orders)), orders


def _stop_began(state: FallbackState, event: d.PodStopBegan, now: int) -> Result:
    """The WaveActor's stop, which the failed HookActor did not begin."""
    pod = state.pods.get(event.uid)
    if pod is None or pod.begun_ns:
        return state, ()
    pod = replace(pod, begun_ns=max(now, 1), grace_ns=event.grace_ns)
    return replace(state, pods={**state.pods, event.uid: pod}), ()


def _container_exited(state: FallbackState, event: f.ContainerExited, now: int) -> Result:
    state, _ = _note_exit(state, event, now)
    return _go_on(state, event, now)


def _note_exit(state: FallbackState, event: f.ContainerExited, now: int) -> Result:
    pod = state.pods.get(event.uid)
    if pod is None or event.container not in pod.left:
        return state, ()
    left = tuple(name for name in pod.left if name != event.container)
    outcome: d.PodOutcome = "unknown" if event.gone or event.lost else pod.outcome
    if pod.begun_ns and (event.signal == "SIGKILL" or event.exit_code == 137 or pod.outcome == "killed"):
        outcome = "killed"
    sidecar = any(each.sidecar for each in pod.pod.containers if each.name == event.container)
    succeeds = pod.succeeds and (sidecar or event.exit_code == 0)
    codes = () if event.exit_code is None else ((event.container, event.exit_code),)
    pod = replace(pod, left=left, outcome=outcome, succeeds=succeeds, exit_codes=(*pod.exit_codes, *codes))
    return replace(state, pods={**state.pods, event.uid: pod}), ()


def _inventory_taken(state: FallbackState, event: f.InventoryTaken, now: int) -> Result:
    """Without the plan the order is unknown: one wave, with the grace that each pod asks for."""
    if event.key != state.listing_key:
        return state, ()
    left_seconds = max(0, min(state.deadline_ns, state.last_kill_ns) - now) // NS_PER_SECOND
    pods, made = dict(state.pods), list[Event]()
    for pod in event.pods:
        if pod.uid in pods:
            continue
        seconds = pod_grace_seconds(left_seconds, pod, now)
        left = tuple(each.name for each in pod.containers if each.running)
        pods[pod.uid] = FallbackPod(pod=pod, wave=0, grace_ns=seconds * NS_PER_SECOND, left=left)
        made.append(d.PodPlanned(wave=0, grace_seconds=seconds, pod=pod))
    return _go_on(replace(state, pods=pods, planned=event.part == event.parts), event, now, made)


def _order_ended(state: FallbackState, event: f.OrderEnded, now: int) -> Result:
    key = parse_order_key(event.key)
    pod = state.pods.get(key.subject)
    # The daemon died, which does not count against a listing.
    lost = event.result == "unknown"
    if pod is not None and lost and key.what in ("stop", "kill") and key.part in pod.left:
        return _signal(state, pod, (key.part,))
    if pod is not None and key.what == "kill" and event.result in ("done", "failed"):
        pod = replace(pod, kills_open=tuple(name for name in pod.kills_open if name != key.part))
        return replace(state, pods={**state.pods, pod.pod.uid: pod}), ()
    if event.key != state.listing_key or event.result == "done" or state.planned:
        return state, ()
    planned = not lost and state.listings >= LISTINGS_MAX
    return _go_on(replace(state, listing_key="", planned=planned), event, now)


def _shorten(state: FallbackState, event: d.ShutdownDetected, now: int) -> Result:
    """Never gives more time."""
    release_by_ns = min(state.release_by_ns, now + max(0, event.grant_ns - OPENED_MARGIN_NS))
    deadline_ns = min(state.deadline_ns, release_by_ns)
    return replace(state, deadline_ns=deadline_ns, release_by_ns=release_by_ns), ()


# --- its end


def _ended(pod: FallbackPod, outcome: d.PodOutcome, reason: str, now: int) -> d.PodEnded:
    ended = d.PodEnded(
        uid=pod.pod.uid,
        wave=pod.wave,
        outcome=outcome,
        reason=reason,
        elapsed_ns=max(0, now - pod.begun_ns) if pod.begun_ns else 0,
        succeeded=pod.succeeds and not pod.left,
        gone=outcome == "unknown" and not pod.left,
    )
    return ended.on_node(pod.pod, pod.means, pod.exit_codes, deleted=pod.deleted) if pod.means else ended


def _end_unfinished(state: FallbackState, now: int) -> tuple[FallbackState, list[Event]]:
    """SIGKILL without an answer is not done."""
    reason = "not seen to end under the fallback"
    end: list[Event] = []
    for pod in state.pods.values():
        killed = pod.kill_at_ns in (KILL_AGAIN_NS, NEVER_NS) and not pod.kills_open
        end.append(_ended(pod, "failed" if killed else "unknown", reason, now))
    return replace(state, pods={}), end


def _give_up(state: FallbackState, event: Event, now: int) -> Result:
    over = d.PodsEnded(unfinished=tuple(state.pods))
    state, end = _end_unfinished(state, now)
    return replace(state, phase="ended"), [over, *end]


def _stop_short(state: FallbackState, event: Event, now: int, made: Sequence[Event]) -> Result:
    state, end = _give_up(state, event, now)
    state, release = _release(state, event, now)
    return state, [*made, *end, *release]


def _release(state: FallbackState, event: Event, now: int) -> Result:
    if state.released:
        return state, []
    order = d.ReleaseLock(key=order_key(NAME, "release", "", state.ordinal))
    return replace(state, released=True, release_by_ns=NEVER_NS, ordinal=state.ordinal + 1), [order]


def _pods_ended(state: FallbackState, event: Event, now: int) -> Result:
    secured = state.secured and not state.released
    by_ns = min(state.release_by_ns, now + SECURED_NS) if secured else state.release_by_ns
    return replace(state, phase="ended", release_by_ns=by_ns), ()


# --- a shutdown's begin, a cancel, another daemon


def _began(state: FallbackState, event: d.ShutdownBegan, now: int) -> Result:
    times = {"deadline_ns": event.deadline_ns, "release_by_ns": event.release_by_ns}
    return replace(_idle(state), phase="watching", **times), ()


def _withdrawn(state: FallbackState, event: d.ShutdownWithdrawn, now: int) -> Result:
    state = replace(state, phase="withdrawn", release_by_ns=NEVER_NS)
    return _close(state, now) if state.leading else (state, ())


def _close(state: FallbackState, now: int) -> tuple[FallbackState, list[Event]]:
    reason: Literal["cancelled", "did-not-go-down"] = "did-not-go-down" if state.released else "cancelled"
    made: list[Event] = [d.ShutdownCancelled(reason=reason)] if state.phase == "withdrawn" else []
    followed = state.detected is not None
    for pod in state.pods.values():
        outcome: d.PodOutcome = "unknown" if pod.begun_ns else "spared"
        # The next shutdown counts a pod that still ends.
        if not (followed and pod.begun_ns):
            made.append(_ended(pod, outcome, "the shutdown was cancelled", now))
    made.append(d.EpisodeClosed(outcome="cancelled", last_wave=state.wave, followed=followed))
    return _idle(state), made


def _started(state: FallbackState, event: f.DaemonStarted, now: int) -> Result:
    state = replace(state, start=event)
    return _answer_start(state, now) if state.leading else (state, ())


def _answer_start(state: FallbackState, now: int) -> tuple[FallbackState, list[Event]]:
    """By the EpisodeActor's table. In another boot or userspace the pods are gone."""
    start, before = state.start, state.home
    if start is None:
        return state, []
    state = _at_home(state)
    same, cancelled = state.home == before, state.phase in ("withdrawn", "cancelled")
    last: LastEpisode = "closed" if cancelled else "released" if state.released else "open"
    found = FoundAtStart(last, start.preparing, same, same, start.lock_inherited)
    resumed = d.Resumed(action=resume_action(found))
    if same:
        return state, [resumed]
    reason = "the machine went down before its end was seen"
    ended = [_ended(replace(pod, begun_ns=0), "unknown", reason, now) for pod in state.pods.values()]
    outcome: d.EpisodeOutcome = "cancelled" if cancelled else "complete" if state.released else "truncated"
    return _idle(state), [*ended, d.EpisodeClosed(outcome=outcome, last_wave=state.wave), resumed]


def _at_home(state: FallbackState) -> FallbackState:
    start = state.start
    home = state.home if start is None else f"{start.boot_id}/{start.userspace_id}"
    return replace(state, start=None, home=home)


def _deadline(state: FallbackState) -> int:
    if state.phase != "leading":
        return state.release_by_ns
    if state.observing:
        return 0
    kills_ns = [min(pod.kill_at_ns, state.last_kill_ns) for pod in state.pods.values() if pod.is_signalled]
    waits = any(not pod.kill_at_ns for pod in state.pods.values())
    return min(state.release_by_ns, state.last_begin_ns if waits else NEVER_NS, *kills_ns)


FALLBACK = ActorType(
    NAME,
    FallbackState,
    _transitions(),
    deadline=_deadline,
    # One that failed in a shutdown must not release a lock of the next.
    afresh=lambda state, now, in_episode, start: state if in_episode else _idle(state),
)

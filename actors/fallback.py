"""FallbackActor: code that cannot do much wrong, for when another actor's code did.

Theory of operation. While all is well it only remembers where the shutdown is. When an actor fails, its pods
come with its failure (`Handover`). Those of a HookActor are stopped here: the stop signal, what is left of
the grace and of the budget, SIGKILL; no hooks, no order between containers, no autopsy. A pod whose stop had
not begun waits for its wave, like any other. For a LogindActor or a NodeStatusActor the release is ordered
here. What is done in place of the others, as plainly as it can be, is in `actors.fallback_duties`.

And a bug of ours must not hold a machine: when all else is silent, the release is ordered here. The other
actors' names are written out, not imported: the fallback must not lean on the code that it stands in for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from msgspec.structs import replace

from ebbtide.actors import fallback_duties as duties
from ebbtide.actors.actor import EVERY, NEVER_NS, ActorType, Handler, Result, Row, State, Transitions, ignored
from ebbtide.actors.fallback_duties import NAME
from ebbtide.actors.policy.grace_periods import FLOOR_NS
from ebbtide.actors.policy.termination_mode import NODE_MODES
from ebbtide.events import decisions as d
from ebbtide.events import facts as f
from ebbtide.events.base import (
    ORDINALS_PER_PLAN,
    BoundedDict,
    BoundedTuple,
    Event,
    order_key,
    parse_order_key,
)
from ebbtide.events.values import Pod


class FallbackPod(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A pod taken over. ``left`` are the containers that still run; ``begun_ns`` 0: not asked to stop yet."""

    pod: Pod
    wave: int
    grace_ns: int
    begun_ns: int = 0
    kill_at_ns: int = NEVER_NS
    left: BoundedTuple[str] = ()
    killed: bool = False
    tries: int = 0
    #: From a shutdown that is closed: the next one gives the pod an actor of its own again.
    former: bool = False
    #: Where the ordinals of its order keys begin: never those of an earlier take-over of the same pod.
    first_ordinal: int = 0
    #: Somebody said that it need not be waited for.
    hurried: bool = False


class FallbackState(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """``cares`` are the pods taken over, by UID; ``failed`` the actors whose duty is done here."""

    in_episode: bool = False
    #: A signal that no episode has answered yet.
    detected: d.ShutdownDetected | None = None
    deadline_ns: int = 0
    release_by_ns: int = NEVER_NS
    released: bool = False
    stage: Literal["", "pods-ended", "settled", "cancelled"] = ""
    #: The last wave that began.
    wave: int = -1
    failed: BoundedTuple[str] = ()
    cares: BoundedDict[str, FallbackPod] = {}
    #: The inventory, until there is a plan.
    inventory: tuple[Pod, ...] = ()
    listed: bool = False
    planned: bool = False
    listing_key: str = ""
    listings: int = 0
    #: Whom the end waits for, once the EpisodeActor has failed: UID to wave.
    waited: BoundedDict[str, int] = {}
    home: str = ""
    #: A Kubernetes node; its kubelet ends the pods by itself: nothing of theirs is ours to stop.
    node: bool = False
    observing: bool = False
    #: Its mode is to look on, or a kubelet's lock makes it so: the same without a KubeletActor.
    onlooker: bool = False
    kubelet_lock: bool = False
    #: When the KubeletActor failed, perhaps in the very step in which a shutdown begins.
    kubelet_failed_ns: int = 0
    #: A start that nobody has answered yet, and when a start last found another boot or userspace.
    start: f.DaemonStarted | None = None
    moved_ns: int = -1
    ordinal: int = 0
    # Of the trace of a shutdown that nobody else begins.
    projection_version: int = d.FIRST_PROJECTION_VERSION
    resource: BoundedDict[str, str] = {}

    @property
    def phase(self) -> str:
        """One of `PHASES`."""
        if self.in_episode:
            return "withdrawn" if self.stage == "cancelled" else self.stage or "open"
        return "cancelled" if self.stage == "cancelled" else "idle"

    @property
    def in_charge(self) -> bool:
        """Has the EpisodeActor failed?"""
        return "EpisodeActor" in self.failed


#: What is said of a pod at its end: what ended it, and how far its stop was.
POD_ENDS: dict[tuple[str, str], tuple[d.PodOutcome, str]] = {
    ("exited", "stopping"): ("graceful", "ended under the fallback"),
    ("exited", "killed"): ("killed", "ended by the fallback, with SIGKILL"),
    ("released", "waiting"): ("unknown", "the lock was released before its wave"),
    ("released", "stopping"): ("unknown", "still running under the fallback"),
    ("released", "killed"): ("failed", "still there after the fallback's SIGKILL"),
    ("cancelled", "waiting"): ("spared", "the shutdown was cancelled"),
}


def _pod_ends(taken: FallbackPod, cause: str, now: int) -> d.PodEnded:
    progress = "killed" if taken.killed else "stopping" if taken.begun_ns else "waiting"
    outcome, why = POD_ENDS[cause, progress]
    elapsed_ns = now - taken.begun_ns if taken.begun_ns else 0
    return d.PodEnded(uid=taken.pod.uid, wave=taken.wave, outcome=outcome, reason=why, elapsed_ns=elapsed_ns)


def _with_pod(state: FallbackState, taken: FallbackPod) -> FallbackState:
    return replace(state, cares={**state.cares, taken.pod.uid: taken})


def _without_pod(state: FallbackState, uid: str) -> FallbackState:
    return replace(state, cares={each: taken for each, taken in state.cares.items() if each != uid})


def _stop_pod(state: FallbackState, taken: FallbackPod, grace_ns: int, now: int) -> Result:
    """The stop signal; SIGKILL when what is left of the grace is over, or of the budget."""
    begun_ns, uid = taken.begun_ns or max(now, 1), taken.pod.uid
    grace_ns = min(grace_ns, FLOOR_NS) if taken.hurried else grace_ns
    kill_at_ns = max(now, min(begun_ns + grace_ns, state.deadline_ns))
    state = _with_pod(state, replace(taken, begun_ns=begun_ns, kill_at_ns=kill_at_ns))
    if not taken.left:
        return state, [_pod_ends(state.cares[uid], "exited", now)]
    signals: list[Event] = []
    for container in taken.pod.containers:
        name, signal = container.name, container.stop_signal
        if name in taken.left:
            key = order_key(NAME, f"stop:{name}", uid, taken.first_ordinal)
            signals.append(d.SendSignal(key=key, uid=uid, container=name, signal=signal))
    return state, signals


def _kill_pod(state: FallbackState, taken: FallbackPod) -> Result:
    """SIGKILL; said again after a restart that lost its outcome."""
    uid, ordinal = taken.pod.uid, taken.first_ordinal + taken.tries
    keys = {name: order_key(NAME, f"kill:{name}", uid, ordinal) for name in taken.left}
    kills: list[Event] = [d.KillContainer(key=key, uid=uid, container=name) for name, key in keys.items()]
    return _with_pod(state, replace(taken, killed=True, tries=taken.tries + 1)), kills


def _stop_began(state: FallbackState, event: d.PodStopBegan, now: int) -> Result:
    """Its wave begins it. If that comes in the step that took the pod over, its grace is the true one."""
    taken = state.cares.get(event.uid)
    if taken is None or taken.begun_ns not in (0, now):
        return state, ()
    state, decisions = _stop_pod(state, taken, event.grace_ns, now)
    return state, () if taken.begun_ns else decisions


def _container_exited(state: FallbackState, event: f.ContainerExited, now: int) -> Result:
    """Observed. A pod whose stop has not begun still waits for its wave, like any other."""
    taken = state.cares.get(event.uid)
    if taken is None:
        return state, ()
    seen = event.container in taken.left
    taken = replace(taken, left=tuple(name for name in taken.left if name != event.container))
    over = seen and taken.begun_ns and not taken.left
    return _with_pod(state, taken), [_pod_ends(taken, "exited", now)] if over else ()


def _pod_planned(state: FallbackState, event: d.PodPlanned, now: int) -> Result:
    """A pod whose actor failed in this very shutdown stays ours, in its new place."""
    taken = state.cares.get(event.pod.uid)
    if taken is None:
        return state, ()
    if taken.former:
        return _without_pod(state, event.pod.uid), ()
    return _with_pod(state, replace(taken, wave=event.wave)), ()


def _hurry(state: FallbackState, event: f.HurryRequested, now: int) -> Result:
    """No more waiting for a pod of ours: the floor after its stop signal is all that it has left."""
    for taken in state.cares.values():
        if event.pod in (taken.pod.uid, taken.pod.name, taken.pod.label):
            floor_ns = max(now, taken.begun_ns + FLOOR_NS) if taken.begun_ns else NEVER_NS
            kill_at_ns = min(taken.kill_at_ns, floor_ns)
            state = _with_pod(state, replace(taken, hurried=True, kill_at_ns=kill_at_ns))
    return state, ()


def _take_pods(state: FallbackState, event: d.ActorFailed, now: int) -> Result:
    """Also after a cancel: a pod whose stop has begun is finished by somebody."""
    if state.moved_ns == now:  # the very step that found another boot: its pods went with the last one
        return state, ()
    decisions: list[Event] = []
    for handed in event.handover:
        taken = FallbackPod(
            **{name: getattr(handed, name) for name in ("pod", "wave", "grace_ns", "begun_ns")},
            left=tuple(c.name for c in handed.pod.containers if c.running and c.name not in handed.exited),
            first_ordinal=state.ordinal * ORDINALS_PER_PLAN,
        )
        made: Sequence[Event] = ()
        state = replace(_with_pod(state, taken), ordinal=state.ordinal + 1)
        if state.stage in ("pods-ended", "settled"):
            made = [_pod_ends(taken, "released", now)]
        elif taken.begun_ns or (not state.stage and taken.wave <= state.wave):
            state, made = _stop_pod(state, taken, taken.grace_ns, now)
        elif state.stage == "cancelled":
            made = [_pod_ends(taken, "cancelled", now)]
        decisions += [duties.engaged(event, taken.pod.uid), *made]
    return state, decisions


def _release_instead(state: FallbackState, event: d.ActorFailed, now: int) -> Result:
    """Without the LogindActor nobody orders the release, without the NodeStatusActor nobody leads to it."""
    state, release = _release_if_over(replace(state, failed=(*state.failed, event.actor)))
    return state, [duties.engaged(event), *release]


def _in_place_of(**duty_of: Handler) -> Handler:
    """Whose failure is not named here owned no pod, and nothing has to be done in its place."""

    def handle(state: FallbackState, event: d.ActorFailed, now: int) -> Result:
        duty = duty_of.get(event.actor)
        return (state, ()) if duty is None else duty(state, event, now)

    return handle


def _release_if_over(state: FallbackState) -> Result:
    nobody_settles = "NodeStatusActor" in state.failed and state.stage in ("pods-ended", "settled")
    nobody_releases = "LogindActor" in state.failed and state.stage == "settled"
    return _order_release(state) if nobody_settles or nobody_releases else (state, ())


def _order_release(state: FallbackState) -> Result:
    if not state.in_episode or state.released:
        return replace(state, release_by_ns=NEVER_NS), ()
    order = d.ReleaseLock(key=order_key(NAME, "release", "", state.ordinal))
    return replace(state, released=True, release_by_ns=NEVER_NS, ordinal=state.ordinal + 1), [order]


def _tick(state: FallbackState, event: f.Tick, now: int) -> Result:
    decisions: list[Event] = []
    for taken in state.cares.values():
        if not taken.killed and taken.kill_at_ns <= now:
            state, kills = _kill_pod(state, taken)
            decisions += kills
    if state.release_by_ns > now:
        return state, decisions
    state, given_up = duties.conclude(state, give_up=True)
    state, order = _order_release(state)
    return state, [*decisions, *given_up, *order]


def _order_ended(state: FallbackState, event: f.OrderEnded, now: int) -> Result:
    _, what, _, uid, _ = parse_order_key(event.key)
    taken, lost = state.cares.get(uid), event.result == "unknown"
    if what == "stop-kubelet":
        # In the KubeletActor's place: the last statuses wait to hear it.
        return state, [d.KubeletStopped(result=event.result)]
    if what == "inventory" and event.result != "done":
        return duties.inventory_failed(state, lost=lost, now=now)
    return _kill_pod(state, taken) if taken and lost and what == "kill" else (state, ())


def _pod_ended(state: FallbackState, event: d.PodEnded, now: int) -> Result:
    if event.uid in state.cares:
        state = _without_pod(state, event.uid)
    return duties.pod_ended(state, event.uid)


def _pods_ended(state: FallbackState, event: d.PodsEnded, now: int) -> Result:
    """Pods of ours that outlived the budget are given up."""
    ended: list[Event] = [_pod_ends(taken, "released", now) for taken in state.cares.values()]
    if state.stage == "cancelled":
        return state, ended
    state, release = _release_if_over(replace(state, stage="pods-ended"))
    return state, [*ended, *release]


def _settled(state: FallbackState, event: d.StatusesSettled, now: int) -> Result:
    return _release_if_over(replace(state, stage="settled"))


def _began(state: FallbackState, event: d.ShutdownBegan, now: int) -> Result:
    times = {"deadline_ns": event.deadline_ns, "release_by_ns": event.release_by_ns}
    began = _fresh_state(state, in_episode=True, failed=state.failed, **times)
    return duties.stop_kubelet(began) if state.kubelet_failed_ns == now else (began, ())


def _fresh_state(state: FallbackState, **more: Any) -> FallbackState:
    kept = ("home", "cares", "ordinal", "node", "onlooker", "kubelet_lock", "projection_version", "resource")
    return FallbackState(**{name: getattr(state, name) for name in kept} | more)


def _cancelled(state: FallbackState, event: d.ShutdownCancelled, now: int) -> Result:
    """Pods of ours are followed to their end; nothing is released for a machine that stays."""
    waiting = [taken for taken in state.cares.values() if not taken.begun_ns]
    state, closed = duties.conclude(replace(state, in_episode=False, stage="cancelled"))
    return state, [*(_pod_ends(taken, "cancelled", now) for taken in waiting), *closed]


def _after_shutdown(state: FallbackState) -> FallbackState:
    """Pods of ours outlive the episode, like any other pod whose stop has begun."""
    former = {uid: replace(taken, former=True) for uid, taken in state.cares.items()}
    return _fresh_state(state, cares=former, moved_ns=state.moved_ns)


def _started(state: FallbackState, event: f.DaemonStarted, now: int) -> Result:
    """In another boot, or userspace, the processes are gone, and so is what we took over."""
    home = f"{event.boot_id}/{event.userspace_id}"
    moved_ns = state.moved_ns if home == state.home else now
    node, failed = event.mode in NODE_MODES, ("EpisodeActor",) if state.in_charge else ()
    onlooker = event.mode == "observe" if node else state.onlooker
    before = replace(state, moved_ns=moved_ns)
    decisions = duties.resume_shutdown(before, event, now) if state.in_charge else ()
    if home != state.home:
        state = replace(state, cares={}, waited={})
    fields = {"home": home, "moved_ns": moved_ns, "node": node, "onlooker": onlooker}
    return replace(state, start=event, failed=failed, **fields), decisions


def _sets(*fields: str, **values: Any) -> Handler:
    """Remember these fields of the event, and these values."""
    return lambda state, event, now: (replace(state, **{n: getattr(event, n) for n in fields}, **values), ())


def _deadline(state: FallbackState) -> int:
    kills = (taken.kill_at_ns for taken in state.cares.values() if not taken.killed)
    return min(state.release_by_ns, min(kills, default=NEVER_NS))


#: Withdrawn: nobody has answered a cancel yet.
PHASES = ("idle", "open", "pods-ended", "settled", "withdrawn", "cancelled")

# fmt: off
_PODS: dict[str, Handler] = {"HookActor": _take_pods, "WaveActor": duties.begin_pods}
_OUTSIDE = _in_place_of(**_PODS, EpisodeActor=duties.open_episode, KubeletActor=duties.kubelet_actor_failed)
_IN_EPISODE = _in_place_of(**_PODS, EpisodeActor=duties.take_charge, NodeStatusActor=_release_instead,
                           LogindActor=_release_instead, KubeletActor=duties.replace_kubelet_actor)
_CANCELLED = _in_place_of(**_PODS, EpisodeActor=duties.take_charge, KubeletActor=duties.kubelet_actor_failed)

_STOPS = (d.FallbackEngaged, d.SendSignal, d.PodEnded, d.PodStopBegan)
_PLANS = (d.TakeInventory, d.PodPlanned, d.PodStopBegan, d.PodsEnded)
_KUBELET = (d.HandedOver, d.StopKubelet, d.MeansChosen)
_CLOSES = (d.PodEnded, d.EpisodeClosed, d.Resumed, d.ShutdownCancelled)

TRANSITIONS = Transitions(
    PHASES,
    lambda state: state.phase,
    # An actor fails.
    Row("idle", d.ActorFailed, _OUTSIDE, decides=(*_STOPS, d.ShutdownBegan, d.TakeInventory)),
    Row("open pods-ended settled withdrawn", d.ActorFailed, _IN_EPISODE, "= pods-ended",
        (*_STOPS, *_PLANS, *_KUBELET, *_CLOSES, d.ReleaseLock)),
    Row("cancelled", d.ActorFailed, _CANCELLED, decides=(*_STOPS, *_CLOSES)),
    # Pods taken over.
    Row(EVERY, d.PodStopBegan, _stop_began, decides=_STOPS),
    Row(EVERY, f.ContainerExited, _container_exited, decides=(d.PodEnded,)),
    Row(EVERY, d.PodPlanned, _pod_planned),
    Row(EVERY, f.HurryRequested, _hurry),
    Row(EVERY, d.PodEnded, _pod_ended, "= pods-ended", (d.PodsEnded, d.EpisodeClosed)),
    Row(EVERY, f.OrderEnded, _order_ended, "= pods-ended", (*_PLANS, d.KillContainer, d.KubeletStopped)),
    Row(EVERY, f.Tick, _tick, "= pods-ended", (d.KillContainer, d.PodsEnded, d.ReleaseLock)),
    # The shutdown, from the signal to its end.
    Row("idle cancelled", d.ShutdownDetected, lambda state, event, now: (replace(state, detected=event), ())),
    ignored("open pods-ended settled withdrawn", d.ShutdownDetected),
    Row(EVERY, d.ShutdownBegan, _began, "open", _KUBELET),
    Row(EVERY, d.TakeInventory, duties.inventory_ordered),
    Row("open", f.InventoryTaken, duties.inventory_taken, "= pods-ended", _PLANS),
    ignored("idle pods-ended settled withdrawn cancelled", f.InventoryTaken),
    Row(EVERY, d.PlanMade, _sets(planned=True, listing_key="", inventory=())),
    Row(EVERY, d.WaveStarted, _sets("wave")),
    Row(EVERY, d.DeadlineMoved, _sets("deadline_ns", "release_by_ns")),
    Row("open withdrawn", f.ReleaseRequested, duties.release_requested, "= pods-ended", (d.PodsEnded,)),
    ignored("idle pods-ended settled cancelled", f.ReleaseRequested),
    Row("open pods-ended settled", d.PodsEnded, _pods_ended, "pods-ended", (d.PodEnded, d.ReleaseLock)),
    Row("idle withdrawn cancelled", d.PodsEnded, _pods_ended, decides=(d.PodEnded,)),
    Row("open pods-ended settled", d.StatusesSettled, _settled, "settled", (d.ReleaseLock,)),
    ignored("idle withdrawn cancelled", d.StatusesSettled),
    Row(EVERY, d.ReleaseLock, _sets(released=True, release_by_ns=NEVER_NS)),
    Row(EVERY, d.ShutdownWithdrawn, duties.withdrawn, "withdrawn cancelled", (d.ShutdownCancelled,)),
    Row(EVERY, d.ShutdownCancelled, _cancelled, "cancelled", (d.PodEnded, d.EpisodeClosed)),
    Row(EVERY, d.EpisodeClosed, lambda state, event, now: (_after_shutdown(state), ()), "idle"),
    # The process, and the node.
    Row(EVERY, f.DaemonStarted, _started, decides=_CLOSES),
    Row(EVERY, d.Resumed, _sets(start=None)),
    Row(EVERY, d.ConfigAdopted, _sets("projection_version", "resource")),
    Row(EVERY, d.MeansChosen, duties.mode_chosen),
    Row(EVERY, f.LogindRead, duties.lock_read),
    Row(EVERY, f.PrepareForShutdown, duties.lock_read),
)
# fmt: on

FALLBACK = ActorType(
    NAME,
    FallbackState,
    TRANSITIONS,
    deadline=_deadline,
    # A fallback that failed at an episode's end must not release a lock of the next.
    afresh=lambda state, now, in_episode, start: state if in_episode else _after_shutdown(state),
)

"""Pods in the fallback's own care: those whose HookActor failed.

No hooks, no turns, no autopsy: the stop signal (again, if need be), then what is left of the pod's grace and
of the budget, then SIGKILL (design, rule 7). A pod whose stop had not begun waits for its wave's word.
"""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from actors.logic.actor import NEVER_NS, Handler, Result, State
from actors.logic.budget import FLOOR_NS
from events.base import ORDINALS_PER_PLAN, Event, order_key
from events.decisions import (
    ActorFailed,
    FallbackEngaged,
    KillContainer,
    PodEnded,
    PodOutcome,
    PodPlanned,
    PodStopBegan,
    SendSignal,
    ShutdownDetected,
)
from events.facts import ContainerExited, DaemonStarted, HurryRequested
from events.model import Handover, Pod

OWNER = "FallbackActor"

# Not imported: the fallback must not lean on the code that it stands in for.
EPISODE = "EpisodeActor"


class Care(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """``left`` are the containers that still run; ``begun_ns`` 0: its stop has not begun."""

    pod: Pod
    wave: int
    grace_ns: int
    begun_ns: int = 0
    kill_at_ns: int = NEVER_NS
    left: tuple[str, ...] = ()
    killed: bool = False
    tries: int = 0
    #: From a shutdown that is closed: the next one gives the pod an actor of its own again.
    former: bool = False
    #: Where the ordinals of its order keys begin: never those of an earlier care for the same pod.
    first_ordinal: int = 0
    #: Somebody said that it need not be waited for.
    hurried: bool = False


Step = tuple[Care, list[Event]]


def _care(handed: Handover, first_ordinal: int) -> Care:
    """From a failed actor; nothing is done yet."""
    left = tuple(c.name for c in handed.pod.containers if c.running and c.name not in handed.exited)
    return Care(
        pod=handed.pod,
        wave=handed.wave,
        grace_ns=handed.grace_ns,
        begun_ns=handed.begun_ns,
        left=left,
        first_ordinal=first_ordinal,
    )


def _stop(care: Care, grace_ns: int, deadline_ns: int, now: int) -> Step:
    """The stop signal; SIGKILL when what is left of the grace is over, or the budget, at ``deadline_ns``."""
    begun_ns = care.begun_ns or max(now, 1)
    grace_ns = min(grace_ns, FLOOR_NS) if care.hurried else grace_ns
    kill_at_ns = max(now, min(begun_ns + grace_ns, deadline_ns))
    care = replace(care, begun_ns=begun_ns, kill_at_ns=kill_at_ns)
    return care, _signals(care) if care.left else [_ended(care, now)]


def _signals(care: Care) -> list[Event]:
    uid = care.pod.uid
    return [
        SendSignal(
            key=order_key(OWNER, f"stop:{c.name}", uid, care.first_ordinal),
            uid=uid,
            container=c.name,
            signal=c.stop_signal,
        )
        for c in care.pod.containers
        if c.name in care.left
    ]


def kill(care: Care) -> Step:
    """SIGKILL; said again after a restart that lost its outcome."""
    uid, ordinal = care.pod.uid, care.first_ordinal + care.tries
    return replace(care, killed=True, tries=care.tries + 1), [
        KillContainer(key=order_key(OWNER, f"kill:{name}", uid, ordinal), uid=uid, container=name)
        for name in care.left
    ]


def _saw_exit(care: Care, container: str, now: int) -> Step:
    """Observed. A pod whose stop has not begun still waits for its wave, like any other."""
    if container not in care.left:
        return care, []
    care = replace(care, left=tuple(name for name in care.left if name != container))
    return care, [_ended(care, now)] if care.begun_ns and not care.left else []


def _ended(care: Care, now: int) -> PodEnded:
    outcome: PodOutcome = "killed" if care.killed else "graceful"
    how = "ended by the fallback, with SIGKILL" if care.killed else "ended under the fallback"
    return PodEnded(
        uid=care.pod.uid, wave=care.wave, outcome=outcome, reason=how, elapsed_ns=now - care.begun_ns
    )


def give_up(care: Care, now: int) -> PodEnded:
    """The last word on a pod that outlived the budget, or that no wave ever called."""
    uid, wave = care.pod.uid, care.wave
    if not care.begun_ns:
        return PodEnded(uid=uid, wave=wave, outcome="unknown", reason="the lock was released before its wave")
    outcome: PodOutcome = "failed" if care.killed else "unknown"
    reason = "still there after the fallback's SIGKILL" if care.killed else "still running under the fallback"
    return PodEnded(uid=uid, wave=wave, outcome=outcome, reason=reason, elapsed_ns=now - care.begun_ns)


def spare(care: Care) -> PodEnded:
    """A cancel came before its stop had begun."""
    return PodEnded(uid=care.pod.uid, wave=care.wave, outcome="spared", reason="the shutdown was cancelled")


# --- many of them ------------------------------------------------------------------------------


class FallbackState(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    in_episode: bool = False
    #: A signal that no episode has answered yet.
    detected: ShutdownDetected | None = None
    deadline_ns: int = 0
    release_by_ns: int = NEVER_NS
    released: bool = False
    stage: Literal["", "pods-ended", "settled", "cancelled"] = ""
    #: The last wave that began.
    wave: int = -1
    #: Whose duty is ours now.
    failed: tuple[str, ...] = ()
    cares: dict[str, Care] = {}
    #: The inventory, until there is a plan.
    inventory: tuple[Pod, ...] = ()
    listed: bool = False
    planned: bool = False
    listing_key: str = ""
    listings: int = 0
    #: Whom the end waits for, once the EpisodeActor has failed: UID to wave.
    waited: dict[str, int] = {}
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
    start: DaemonStarted | None = None
    moved_ns: int = -1
    ordinal: int = 0

    @property
    def leads(self) -> bool:
        return EPISODE in self.failed


def engaged(event: ActorFailed, uids: tuple[str, ...] = ()) -> FallbackEngaged:
    return FallbackEngaged(pods=uids, reason=f"{event.actor} failed")


def take_pod(state: FallbackState, event: ActorFailed, now: int) -> Result:
    """Also after a cancel: a pod whose stop has begun is finished by somebody."""
    if state.moved_ns == now:  # the very step that found another boot: its pods went with the last one
        return state, ()
    decisions: list[Event] = []
    for handed in event.handover:
        care, made = _first_step(state, _care(handed, state.ordinal * ORDINALS_PER_PLAN), now)
        state, _ = put(replace(state, ordinal=state.ordinal + 1), care, made)
        decisions += [engaged(event, (handed.pod.uid,)), *made]
    return state, decisions


def _first_step(state: FallbackState, care: Care, now: int) -> Step:
    """A pod whose wave has not begun waits for it."""
    if state.stage in ("pods-ended", "settled"):
        return care, [give_up(care, now)]
    if care.begun_ns:
        return _stop(care, care.grace_ns, state.deadline_ns, now)
    if state.stage == "cancelled":
        return care, [spare(care)]
    due = care.wave <= state.wave
    return _stop(care, care.grace_ns, state.deadline_ns, now) if due else (care, [])


def put(state: FallbackState, care: Care, decisions: list[Event]) -> Result:
    return replace(state, cares={**state.cares, care.pod.uid: care}), decisions


def stop_began(state: FallbackState, event: PodStopBegan, now: int) -> Result:
    """Its wave's word. If that comes in the step that took the pod over, its grace is the true one."""
    care = state.cares.get(event.uid)
    if care is None or care.begun_ns not in (0, now):
        return state, ()
    stopped, decisions = _stop(care, event.grace_ns, state.deadline_ns, now)
    return put(state, stopped, [] if care.begun_ns else decisions)


def container_exited(state: FallbackState, event: ContainerExited, now: int) -> Result:
    care = state.cares.get(event.uid)
    return (state, ()) if care is None else put(state, *_saw_exit(care, event.container, now))


def replanned(state: FallbackState, event: PodPlanned, now: int) -> Result:
    """A pod whose actor failed in this very shutdown stays ours, in its new place."""
    care = state.cares.get(event.pod.uid)
    if care is None or care.former:
        return without(state, event.pod.uid), ()
    return put(state, replace(care, wave=event.wave), [])


def without(state: FallbackState, uid: str) -> FallbackState:
    if uid not in state.cares:
        return state
    return replace(state, cares={each: care for each, care in state.cares.items() if each != uid})


def hurry(state: FallbackState, event: HurryRequested, now: int) -> Result:
    """No more waiting for a pod of ours: the floor after its stop signal is all that it has left."""
    named = [
        care for care in state.cares.values() if event.pod in (care.pod.uid, care.pod.name, care.pod.label)
    ]
    for care in named:
        kill_at_ns = max(now, care.begun_ns + FLOOR_NS) if care.begun_ns else NEVER_NS
        state, _ = put(state, replace(care, hurried=True, kill_at_ns=min(care.kill_at_ns, kill_at_ns)), [])
    return state, ()


#: What people ask of pods in the fallback's care.
ASKED: dict[type[Event], Handler] = {HurryRequested: hurry}

"""What the fallback does in place of a WaveActor, an EpisodeActor or a KubeletActor that has failed.

Theory of operation. They own no pod, but without them no pod's stop begins, nobody says when all have ended,
and a kubelet starts again what is stopped. As plainly as it can be:

* WaveActor: those of its pods that have not begun begin now; the other waves keep their order.
* EpisodeActor: every pod that has not begun begins now, without waves, and needs a plan only where there was
  none. From then on the fallback is in charge (`FallbackState.in_charge`): it says when all have ended, or
  who has not when time is over, answers a cancel, and closes the shutdown.
* KubeletActor: the pods are ours to end, and the kubelet is stopped for it.

The pods themselves are stopped by whoever has them: their HookActor, or the fallback (`actors.fallback`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ebbtide.actors.actor import NEVER_NS, Result
from ebbtide.actors.policy.resume import FoundAtStart, LastEpisode, resume_action
from ebbtide.events import decisions as d
from ebbtide.events import facts as f
from ebbtide.events.base import NS_PER_SECOND, ORDINALS_PER_PLAN, Event, order_key
from ebbtide.events.values import Handover, Pod, TerminationMode

if TYPE_CHECKING:
    from ebbtide.actors.fallback import FallbackPod, FallbackState

NAME = "FallbackActor"

#: Listings that may fail before the shutdown goes on without one.
LISTINGS_MAX = 2

#: Kept free before logind's own timer in an episode that the fallback itself had to open.
OWN_EPISODE_MARGIN_NS = NS_PER_SECOND


def engaged(event: d.ActorFailed, *uids: str) -> d.FallbackEngaged:
    return d.FallbackEngaged(pods=uids, reason=f"{event.actor} failed")


def begin_pods(state: FallbackState, event: d.ActorFailed, now: int) -> Result:
    """Every pod (of one wave, if one failed) that has not begun begins now, whoever stops it."""
    # Also those that an earlier failure has brought here: nobody else would begin them.
    everybody: list[Handover | FallbackPod] = [*event.handover, *state.cares.values()]
    waiting = [each for each in everybody if not each.begun_ns and event.subject in ("", str(each.wave))]
    begun = [_pod_begins(state, each.pod, each.wave, each.grace_ns, now) for each in waiting]
    return state, [engaged(event, *(each.pod.uid for each in waiting)), *begun]


def _pod_begins(state: FallbackState, pod: Pod, wave: int, grace_ns: int, now: int) -> d.PodStopBegan:
    kill_by_ns = max(now, state.deadline_ns)
    grace_ns = min(grace_ns, kill_by_ns - now)
    return d.PodStopBegan(uid=pod.uid, wave=wave, grace_ns=grace_ns, kill_by_ns=kill_by_ns)


def take_charge(state: FallbackState, event: d.ActorFailed, now: int) -> Result:
    """The EpisodeActor has failed, in whatever it was doing. After that it has no part in this shutdown."""
    everybody: list[Handover | FallbackPod] = [*event.handover, *state.cares.values()]
    waited = {each.pod.uid: each.wave for each in everybody}
    state = replace(state, failed=(*state.failed, event.actor), waited=waited)
    # It may have failed at the very start that somebody has to answer.
    resumed = resume_shutdown(state, state.start, now) if state.start else []
    if state.start and state.moved_ns == now:
        return replace(state, waited={}), resumed
    if state.start and state.start.preparing is False:
        return state, resumed
    state, decisions = _go_on(state, event, now)
    return state, [*resumed, *decisions]


def _go_on(state: FallbackState, event: d.ActorFailed, now: int) -> Result:
    """From wherever the shutdown is."""
    if state.phase == "withdrawn":
        return state, [d.ShutdownCancelled(reason="cancelled")]
    if state.phase == "cancelled":  # what has begun is not waited for beyond the shutdown's own end
        end_by_ns = now if state.release_by_ns == NEVER_NS else state.release_by_ns
        return conclude(replace(state, release_by_ns=end_by_ns))
    if state.stage:
        return state, ()
    if state.released:
        return conclude(state, give_up=True)
    _, begun = begin_pods(state, event, now)
    if state.planned:
        state, decisions = conclude(state)
    else:
        state, decisions = _plan_all_pods(state, now) if state.listed else _order_inventory(state)
    return state, [*begun, *decisions]


def open_episode(state: FallbackState, event: d.ActorFailed, now: int) -> Result:
    signal = state.detected
    if signal is None:
        return state, ()
    # The whole grant is the budget: which periods were asked for is not known here, and the pods' own graces
    # bound it.
    left_ns = max(0, signal.grant_ns - OWN_EPISODE_MARGIN_NS)
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
    state, order = _order_inventory(replace(state, failed=(event.actor,)))
    return state, [began, engaged(event), *order]


def _order_inventory(state: FallbackState) -> tuple[FallbackState, list[Event]]:
    order = d.TakeInventory(key=order_key(NAME, "inventory", "", state.ordinal), refresh=True)
    return replace(state, listings=state.listings + 1, ordinal=state.ordinal + 1), [order]


def inventory_ordered(state: FallbackState, event: d.TakeInventory, now: int) -> Result:
    return (state, ()) if state.planned else (replace(state, listing_key=event.key), ())


def inventory_taken(state: FallbackState, event: f.InventoryTaken, now: int) -> Result:
    """Kept for the case that the plan itself fails. A listing of another shutdown is not this one's."""
    if state.planned or event.key != state.listing_key:
        return state, ()
    before = state.inventory if event.part > 1 else ()
    state = replace(state, inventory=before + event.pods, listed=event.part == event.parts)
    return _plan_all_pods(state, now) if state.listed and state.in_charge else (state, ())


def _plan_all_pods(state: FallbackState, now: int) -> Result:
    """Every pod of the inventory into one wave, with the grace that it asks for itself."""
    pods = {pod.uid: pod for pod in state.inventory}
    left_seconds = max(0, state.deadline_ns - now) // NS_PER_SECOND
    # In the upper half of a plan's ordinals: an EpisodeActor's plan and the take-over of a pod begin at the
    # lower one, and no two orders may have one key.
    ordinal = state.ordinal * ORDINALS_PER_PLAN + ORDINALS_PER_PLAN // 2
    means: TerminationMode = "observe" if state.observing else ""
    decisions: list[Event] = []
    for pod in pods.values():
        asked_seconds = left_seconds if pod.grace_seconds is None else pod.grace_seconds
        seconds = max(0, min(asked_seconds, left_seconds))
        planned = d.PodPlanned(wave=0, grace_seconds=seconds, pod=pod, first_ordinal=ordinal, means=means)
        decisions += [planned, _pod_begins(state, pod, 0, seconds * NS_PER_SECOND, now)]
    # One wave, because their order is what the failed actor knew; time for each of them matters more.
    waited = dict.fromkeys(pods, 0)
    state = replace(state, planned=True, listing_key="", inventory=(), wave=0, waited=waited)
    state, over = conclude(replace(state, ordinal=state.ordinal + 1))
    return state, [*decisions, *over]


def inventory_failed(state: FallbackState, *, lost: bool, now: int) -> Result:
    """A lost listing is taken again, a failed one once; then it goes on without."""
    if state.planned or state.stage or not state.in_charge:
        return state, ()
    # A lost one says nothing against the next: the daemon died, not the runtime.
    again = lost or state.listings < LISTINGS_MAX
    return _order_inventory(state) if again else _plan_all_pods(state, now)


def conclude(state: FallbackState, *, give_up: bool = False) -> Result:
    """What the EpisodeActor would say once nobody is waited for, or time is over: who is left then."""
    if not state.in_charge or state.stage not in ("", "cancelled") or (state.waited and not give_up):
        return state, ()
    # After a cancel the shutdown closes when what had begun has ended; there is nothing to flush and nothing
    # to release.
    if state.stage and not give_up:
        return state, [d.EpisodeClosed(outcome="cancelled")]
    return replace(state, stage=state.stage or "pods-ended"), [d.PodsEnded(unfinished=tuple(state.waited))]


def pod_ended(state: FallbackState, uid: str) -> Result:
    if uid not in state.waited:
        return state, ()
    return conclude(replace(state, waited={each: wave for each, wave in state.waited.items() if each != uid}))


def release_requested(state: FallbackState, event: f.ReleaseRequested, now: int) -> Result:
    return conclude(state, give_up=True)


def withdrawn(state: FallbackState, event: d.ShutdownWithdrawn, now: int) -> Result:
    """A cancel, which the EpisodeActor would answer."""
    answer = (d.ShutdownCancelled(reason=event.reason),) if state.in_charge else ()
    return replace(state, stage="cancelled", detected=None), answer


def resume_shutdown(state: FallbackState, event: f.DaemonStarted, now: int) -> list[Event]:
    """A start, by the same table as ever. In another boot or userspace the pods went with theirs."""
    same, cancelled = state.moved_ns != now, state.stage == "cancelled"
    last: LastEpisode = "closed" if cancelled else "released" if state.released else "open"
    found = FoundAtStart(last, event.preparing, same, same, event.lock_inherited)
    resumed = d.Resumed(action=resume_action(found))
    if same:
        return [resumed]
    end: d.EpisodeOutcome = "cancelled" if cancelled else "complete" if state.released else "truncated"
    why = "the machine went down before its end was seen"
    lost = [d.PodEnded(uid=uid, wave=at, outcome="unknown", reason=why) for uid, at in state.waited.items()]
    return [*lost, d.EpisodeClosed(outcome=end), resumed]


def replace_kubelet_actor(state: FallbackState, event: d.ActorFailed, now: int) -> Result:
    state, decisions = stop_kubelet(state)
    return state, [engaged(event), *decisions] if decisions else ()


def kubelet_actor_failed(state: FallbackState, event: d.ActorFailed, now: int) -> Result:
    """Outside of a shutdown the kubelet runs on. One may begin in this very step."""
    return replace(state, kubelet_failed_ns=now), ()


def stop_kubelet(state: FallbackState) -> Result:
    """Nobody else keeps it from starting again what is stopped. Where it ends the pods, it goes on."""
    if not state.node or state.observing:
        return state, ()
    reason = "KubeletActor failed"
    if state.onlooker or state.kubelet_lock:
        return replace(state, observing=True), [d.MeansChosen(means="observe", reason=reason)]
    order = d.StopKubelet(key=order_key(NAME, "stop-kubelet", "", state.ordinal))
    return replace(state, ordinal=state.ordinal + 1), [d.HandedOver(reason=reason), order]


def mode_chosen(state: FallbackState, event: d.MeansChosen, now: int) -> Result:
    return (replace(state, observing=True), ()) if event.means == "observe" else (state, ())


def lock_read(state: FallbackState, event: f.LogindRead | f.PrepareForShutdown, now: int) -> Result:
    if not state.node or event.kubelet_lock == state.kubelet_lock:
        return state, ()
    return replace(state, kubelet_lock=event.kubelet_lock), ()

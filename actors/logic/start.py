"""A start: what the EpisodeActor does about the shutdown that its journal ends with.

The resume table says which action it is (`actors.policy.resume`); here is what that means for the state, and
what another boot, or userspace, says of pods whose end nobody has seen.
"""

from __future__ import annotations

from msgspec.structs import replace

from actors.logic.actor import Result
from actors.logic.course import STANDING, EpisodeState, open_pods
from actors.policy.resume import Found, resume_action
from events.base import Event
from events.decisions import EpisodeClosed, EpisodeOutcome, PodEnded, Resumed
from events.facts import DaemonStarted


def without_shutdown(state: EpisodeState) -> EpisodeState:
    return EpisodeState(
        periods=state.periods,
        requested_ns=state.requested_ns,
        reserve_ns=state.reserve_ns,
        elastic=state.elastic,
        sleep_action=state.sleep_action,
        boot_id=state.boot_id,
        userspace_id=state.userspace_id,
        ordinal=state.ordinal,
        plans=state.plans,
        carried=open_pods(state),
        sleeps_terminated_early=state.sleeps_terminated_early,
    )


def started(state: EpisodeState, event: DaemonStarted, now: int) -> Result:
    same_boot = event.boot_id == state.boot_id
    same_userspace = same_boot and event.userspace_id == state.userspace_id
    known = bool(state.boot_id)
    found = Found(STANDING[state.phase], event.preparing, same_boot, same_userspace, event.lock_inherited)
    action = resume_action(found)
    state = replace(state, boot_id=event.boot_id, userspace_id=event.userspace_id)
    left = _left_behind(state, action, new_boot=known and not same_userspace)
    resumed = Resumed(action=action, previous=left)
    if same_userspace:
        return state, [resumed]
    unseen = _never_seen(state)
    closed: list[Event] = []
    if state.phase != "idle":
        closed = [EpisodeClosed(outcome=_outcome(state), last_wave=state.wave)]
    return replace(without_shutdown(state), carried={}), [*unseen, *closed, resumed]


def _never_seen(state: EpisodeState) -> list[Event]:
    """The last boot's pods went with it. Said for each: nothing is waited for, or killed, in this one."""
    reason = "the machine went down before its end was seen"
    return [
        PodEnded(uid=uid, wave=wave, outcome="unknown", reason=reason)
        for uid, wave in open_pods(state).items()
    ]


def _outcome(state: EpisodeState) -> EpisodeOutcome:
    if state.phase in ("released", "cancelling"):
        return "complete" if state.phase == "released" else "cancelled"
    return "truncated" if state.wave >= 0 else "never-begun"


def _left_behind(state: EpisodeState, action: str, *, new_boot: bool) -> str:
    """What the next boot says of the last one (design, "What each shutdown does", 9)."""
    if action.startswith("close-complete"):
        return "complete"
    if action.startswith("close-truncated"):
        return f"cut short at wave {state.wave}" if state.wave >= 0 else "never begun"
    return "ended without a shutdown that was seen" if new_boot and state.phase == "idle" else ""

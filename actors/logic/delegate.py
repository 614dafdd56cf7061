"""A pod that the kubelet ends: because we delete its object, or of its own accord while we look on.

Whatever the kubelet does is seen by its containers' ends. Of a deleted pod the grace is only ever shortened;
one that outlives it is killed here, since a kubelet that deletes a pod does not start it again. Handed over,
it is ours: its hooks count as spent, unless the API server never took the delete (design, rule 9).
"""

from __future__ import annotations

from msgspec.structs import replace

from actors.logic import container as steps
from actors.logic.actor import NEVER_NS, Handler, Result
from actors.logic.budget import FLOOR_NS
from actors.logic.container import AUTOPSY_LEAD_NS, OWNER, Down
from actors.logic.pod import PodState
from actors.logic.turns import each
from events.base import NS_PER_SECOND, Event, order_key
from events.decisions import DeletePod, DeleteRefused, HandedOver, PodEnded, PodStopBegan
from events.facts import OrderEnded

#: An API grace of 0 would take the object away at once, whatever still runs.
DELETE_SECONDS_MIN = 1

HANDED_OVER = "preStop spent: the kubelet had the pod"


def begin(state: PodState, event: PodStopBegan, now: int) -> Result:
    """``state`` knows its grace. A pod of which nothing runs any more is deleted all the same."""
    if state.means == "observe":
        return each(state, now, "running", lambda down: (_watched(down, now), []))
    deadline_ns = now + state.grace_ns
    until_ns = min(deadline_ns, event.kill_by_ns - FLOOR_NS)
    state, order = _delete(state, until_ns, now)
    state, decisions = each(
        state, now, "running", lambda down: (_deleted(down, now, deadline_ns, event.kill_by_ns), [])
    )
    return state, [order, *decisions]


def _watched(down: Down, now: int) -> Down:
    return replace(
        down, phase="stopping", stop_since_ns=now, delegated=True, kill_at_ns=NEVER_NS, autopsy=True
    )


def _deleted(down: Down, now: int, deadline_ns: int, limit_ns: int) -> Down:
    """The kubelet's SIGKILL comes at the end of the grace, or 2 s after a hook that used all of it."""
    return replace(
        down,
        phase="stopping",
        stop_since_ns=now,
        deadline_ns=deadline_ns,
        limit_ns=limit_ns,
        kill_at_ns=max(now, min(deadline_ns + FLOOR_NS, limit_ns)),
        autopsy_at_ns=max(now, deadline_ns - AUTOPSY_LEAD_NS),
        delegated=True,
    )


def _delete(state: PodState, until_ns: int, now: int) -> tuple[PodState, DeletePod]:
    assert state.pod is not None
    key = order_key(OWNER, "delete", state.pod.uid, state.first_ordinal + state.deletes)
    order = DeletePod(
        key=key,
        uid=state.pod.uid,
        namespace=state.pod.namespace,
        name=state.pod.name,
        grace_seconds=max(DELETE_SECONDS_MIN, (until_ns - now) // NS_PER_SECOND),
        after_taint=state.pod.daemon,
    )
    return replace(state, deletes=state.deletes + 1, delete_key=key, delete_until_ns=until_ns), order


def shorten(state: PodState, until_ns: int, now: int) -> Result:
    """Less time than the last delete gave, by a second at least: it is given again."""
    until_ns = max(until_ns, now)
    if state.means != "api" or state.over or not state.begun or state.refused:
        return state, ()
    if until_ns > state.delete_until_ns - NS_PER_SECOND:
        return state, ()
    state, order = _delete(state, until_ns, now)
    return state, [order]


def hurry(state: PodState, now: int) -> Result:
    """No more waiting: the least that a delete can give, and the floor after it."""
    last_ns = now + DELETE_SECONDS_MIN * NS_PER_SECOND + FLOOR_NS
    downs = tuple(
        replace(down, deadline_ns=min(down.deadline_ns, now), kill_at_ns=min(down.kill_at_ns, last_ns))
        for down in state.downs
    )
    return shorten(replace(state, downs=downs), now, now)


def delete_ended(state: PodState, event: OrderEnded, now: int) -> Result:
    """Lost: it is given again, with what is left. Not taken: the pod waits to be handed over.

    ``failed``: the server refused it, or never got it, so no hook has run. ``timed-out``: it was sent, and
    nobody answered: its hooks count as spent (design, rule 4).
    """
    if event.result == "done":
        state = replace(state, deleted=True)
    if event.key != state.delete_key or state.pod is None:
        return state, ()
    first = state.deletes == 1  # a later one only shortens: the pod is on its way
    refused = first and event.result in ("failed", "cancelled")
    uid, state = state.pod.uid, replace(state, delete_key="", refused=state.refused or refused)
    if refused and state.withdrawn and not state.over:
        return _spared(state, uid)
    if state.over or state.means == "api":
        return _answered(state, event, uid, now)
    return take_over(state, now)


def _spared(state: PodState, uid: str) -> Result:
    reason = "the shutdown was cancelled before its delete was taken"
    spared = PodEnded(uid=uid, wave=state.wave, outcome="spared", reason=reason)
    return replace(state, over=True), [spared]


def _answered(state: PodState, event: OrderEnded, uid: str, now: int) -> Result:
    if state.over or event.result == "done":
        return state, ()
    if event.result == "unknown":  # the daemon died in between
        state, order = _delete(state, state.delete_until_ns, now)
        return state, [order]
    return state, [DeleteRefused(uid=uid, reason=event.reason or event.result)]


def handed_over(state: PodState, event: HandedOver, now: int) -> Result:
    return hand_over(state, now)


def hand_over(state: PodState, now: int) -> Result:
    """From now on it is ours. One whose stop has not begun waits for its wave like any other.

    One whose delete is under way waits for its outcome, soon: that tells whether its hooks may have run.
    """
    if state.means != "api" or state.pod is None or state.over:
        return state, ()
    state = replace(state, means="cri")
    return (state, ()) if state.delete_key or not state.begun else take_over(state, now)


def take_over(state: PodState, now: int) -> Result:
    return each(state, now, "stopping", lambda down: _taken_over(down, state, now))


def _taken_over(down: Down, state: PodState, now: int) -> steps.Step:
    if not down.delegated:
        return down, []
    ours = replace(down, delegated=False, autopsy=False, autopsy_at_ns=NEVER_NS, tries=down.tries + 1)
    if state.refused:
        ours = replace(ours, phase="running", stop_since_ns=0, kill_at_ns=NEVER_NS)
        return steps.begin(ours, now, down.deadline_ns, down.limit_ns, sleep_action=state.sleep_action)
    note = "" if down.spec.hook is None else HANDED_OVER
    return replace(ours, phase="turn", hook_note=note), []


#: What a pod's actor hears of, beside what it hears of every pod.
HEARD: dict[type[Event], Handler] = {HandedOver: handed_over}

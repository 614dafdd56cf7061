"""HookActor: one pod, from its stop to its end: preStop hooks, stop signals, SIGKILL, and why.

    planned -> stopping -> ended

All containers go down at once; sidecars (restartable init containers) run their hooks with the others and
are stopped last, in reverse order, as by the kubelet. What one container does next is `actors.container`'s;
here is when, and for which. The actor outlives a cancel, because a pod whose stop has begun is finished
within its grace, and serves a second episode with what is left.

The file follows a pod: its state, its containers' turns, what is said of its end, a pod that the kubelet ends
for us, and the handlers with the table of transitions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from ebbtide.actors import container as steps
from ebbtide.actors.actor import (
    EVERY,
    NEVER_NS,
    ActorType,
    Result,
    Row,
    State,
    Transitions,
    ignored,
)
from ebbtide.actors.container import (
    AUTOPSY_BEFORE_KILL_NS,
    NAME,
    ORDER_ENDED_BY_KIND,
    ContainerState,
)
from ebbtide.actors.policy.grace_periods import DELETE_SECONDS_MIN, FLOOR_NS
from ebbtide.events.base import NS_PER_SECOND, Event, order_key, parse_order_key
from ebbtide.events.decisions import (
    CancelOrder,
    DeadlineMoved,
    DeleteOverdue,
    DeletePod,
    DeleteRefused,
    HandedOver,
    HookEnded,
    HookStarted,
    KillContainer,
    PodEnded,
    PodOutcome,
    PodPlanned,
    PodsEnded,
    PodStopBegan,
    RunHook,
    SendSignal,
    ShutdownCancelled,
    TakeAutopsy,
)
from ebbtide.events.facts import (
    AutopsyTaken,
    ContainerExited,
    DaemonStarted,
    HurryRequested,
    OrderEnded,
    PodJoined,
    Tick,
)
from ebbtide.events.values import Pod, TerminationMode


class PodState(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    pod: Pod | None = None
    wave: int = -1
    sleep_action: bool = True
    begun_ns: int = 0
    grace_ns: int = 0
    downs: tuple[ContainerState, ...] = ()
    #: What the autopsy found of the stop signal, in words.
    finding: str = ""
    over: bool = False
    #: Said before its wave began: it will have no grace then, only the floor.
    hurried: bool = False
    #: By whom it is ended; of "api" it becomes "cri" when it is handed over.
    means: TerminationMode = ""
    #: Deletes so far, with those that a later daemon gave again, and the key of the one whose outcome is not
    #: known.
    deletes: int = 0
    delete_key: str = ""
    #: The API server did not take the delete: its hooks have not run.
    refused: bool = False
    #: It took it, perhaps after somebody had lost patience: the object is going.
    deleted: bool = False
    #: The shutdown was cancelled while a delete was under way, or while it was stopped.
    withdrawn: bool = False
    #: What the last delete gave, as a time: another one only ever shortens it.
    delete_until_ns: int = 0
    first_ordinal: int = 0
    #: When a daemon has started since its stop began.
    daemon_ns: int = 0

    @property
    def begun(self) -> bool:
        return self.begun_ns > 0


def phase_of(state: PodState) -> str:
    if state.over:
        return "ended"
    if state.begun_ns > 0:
        return "stopping"
    return "new" if state.pod is None else "planned"


# --- its containers' turns ---------------------------------------------------------------------


def _each_container(
    state: PodState, now: int, phase: str, step: Callable[[ContainerState], steps.ContainerStep]
) -> Result:
    """Apply ``step`` to every container in ``phase`` ("" for all), then stop those whose turn has come.

    Says so when all have exited. Of a pod whose stop has not begun that is said when it does.
    """
    decisions: list[Event] = []
    downs = list(state.downs)
    for index, down in enumerate(downs):
        if not phase or down.phase == phase:
            downs[index], made = step(down)
            decisions += made
    # After all of them, because a sidecar's turn is a matter of the others. Once through is enough: a stop
    # gives nobody the turn, only an exit does, and that is a step of its own.
    left = False
    for index, down in enumerate(downs):
        left = left or down.phase != "exited"
        if down.phase == "turn" and (_has_turn(downs, index) or down.stop_by_ns <= now):
            downs[index], made = steps.stop(down, now)
            decisions += made
    state = replace(state, downs=tuple(downs))
    return (state, decisions) if left or not state.begun else _end_pod(state, now, decisions)


def _has_turn(downs: Sequence[ContainerState], index: int) -> bool:
    """A sidecar waits for the main containers and for the sidecars that were started after it."""
    if not downs[index].spec.sidecar:
        return True
    others = (other for at, other in enumerate(downs) if not other.spec.sidecar or at > index)
    return all(other.phase == "exited" for other in others)


def _end_pod(state: PodState, now: int, decisions: list[Event]) -> Result:
    """Nothing more is done about it, whatever is still learned of its containers."""
    return replace(state, over=True), [*decisions, _pod_ended_event(state, now)]


def _pod_ended_event(state: PodState, now: int) -> PodEnded:
    """Its fate, from its containers' ends."""
    assert state.pod is not None
    pod, on_node = state.pod, bool(state.means)
    fate = _describe_fate(state.downs, _had_ns(state, now), pod, state.finding, by_number=on_node)
    ended = PodEnded(
        uid=pod.uid,
        wave=state.wave,
        outcome=fate.outcome,
        reason=fate.reason,
        elapsed_ns=max(0, now - state.begun_ns),
        succeeded=fate.succeeded,
    )
    gone = fate.outcome == "unknown" and all(down.phase == "exited" for down in state.downs)
    if not on_node:  # in mode process nobody has to be told whose pod it was
        return replace(ended, gone=gone and any(down.end_unseen for down in state.downs))
    returns = ("always" if pod.tolerates_all else "untainted") if pod.daemon else ""
    return replace(
        ended,
        means=state.means,
        namespace=pod.namespace,
        name=pod.name,
        owner=pod.owner,
        deleted=state.deleted,
        returns=returns,
        gone=gone,
    )


def _had_ns(state: PodState, now: int) -> int:
    """How much time it had."""
    had_ns = [down.kill_at_ns - down.since_ns for down in state.downs if down.killed and down.since_ns]
    if had_ns:
        return max(0, min(had_ns))
    return min(state.grace_ns, now - state.begun_ns) if state.means and state.begun else state.grace_ns


# --- its fate, in one word and one sentence, from its containers' ends --------------------------


class PodFate(NamedTuple):
    outcome: PodOutcome
    reason: str
    succeeded: bool


def _describe_fate(
    downs: Sequence[ContainerState], grace_ns: int, pod: Pod, finding: str, *, by_number: bool = False
) -> PodFate:
    """graceful: ended by itself; killed: by SIGKILL; failed: by nothing; unknown: nobody saw how, or whether.

    ``by_number``: the runtime tells a signal as 128 and its number.
    """
    still = [down for down in downs if down.phase != "exited"]
    if still:
        names = ", ".join(down.spec.name for down in still)
        if all(down.killed for down in still):
            if any(down.kill_open for down in still):
                return PodFate("unknown", f"{names}: neither its end was seen nor what SIGKILL did", False)
            why = next((down.error for down in still if down.error), "still there after SIGKILL")
            return PodFate("failed", f"{names}: {why}", False)
        return PodFate("unknown", f"{names} still running when the lock was released", False)
    killed = [down for down in downs if steps.died_of_our_kill(down) or down.killed_before]
    if killed:
        return PodFate("killed", _killed_text(killed, grace_ns, pod, finding) + _hook_notes(downs), False)
    by_kubelet = [down for down in downs if down.delegated and down.stop_since_ns and _was_killed(down)]
    if by_kubelet:
        return PodFate(
            "killed", _killed_text(by_kubelet, grace_ns, pod, finding, "SIGKILL by the kubelet"), False
        )
    foreign = [
        down
        for down in downs
        if down.stop_since_ns and (_was_killed(down) if by_number else down.exit_signal == "SIGKILL")
    ]
    if foreign:
        names = ", ".join(down.spec.name for down in foreign)
        return PodFate("killed", f"SIGKILL from elsewhere for {names}" + _hook_notes(downs), False)
    unheard = [down for down in downs if down.delegated and down.stop_since_ns and down.exit_code is None]
    # It was the kubelet's to kill, and it has taken the container away before anybody asked how it ended.
    if unheard and not any(down.exit_signal for down in unheard):
        names = ", ".join(down.spec.name for down in unheard)
        return PodFate("unknown", f"{names} ended under the kubelet, exit code not known", False)
    gone = ", ".join(down.spec.name for down in downs if down.end_unseen)
    if gone:
        return PodFate("unknown", f"{gone}: gone, and nobody saw it end{_hook_notes(downs)}", False)
    succeeded = all(down.exit_code == 0 for down in downs)
    return PodFate("graceful", _graceful_text(downs) + _hook_notes(downs), succeeded)


def _was_killed(down: ContainerState) -> bool:
    """A runtime says it with 128 + 9."""
    return down.exit_signal == "SIGKILL" or down.exit_code == 137


def _killed_text(
    killed: Sequence[ContainerState], grace_ns: int, pod: Pod, finding: str, how: str = "SIGKILL"
) -> str:
    names = ", ".join(down.spec.name for down in killed)
    asked = pod.grace_seconds
    whole, rest = divmod(grace_ns, NS_PER_SECOND)
    had = f"{whole}.{rest // 100_000_000}" if rest >= 100_000_000 else str(whole)
    cut = f", asked for {asked} s" if asked is not None and asked * NS_PER_SECOND > grace_ns else ""
    found = f", {finding}" if finding else ""
    return f"{how} for {names}: had {had} s{cut}{found}"


def _graceful_text(downs: Sequence[ContainerState]) -> str:
    """The worst end tells most: a non-zero exit before a zero one."""
    if not downs:
        return "had no containers"
    worst = max(downs, key=lambda down: (down.exit_signal != "", down.exit_code or 0))
    if worst.stop_since_ns == 0 and all(down.stop_since_ns == 0 for down in downs):
        return f"had ended before its stop signal, {_end_text(worst)}"
    return _end_text(worst)


def _end_text(down: ContainerState) -> str:
    if down.exit_signal:
        return f"ended by {down.exit_signal}"
    return "exit code not known" if down.exit_code is None else f"exit code {down.exit_code}"


def _hook_notes(downs: Sequence[ContainerState]) -> str:
    notes = [note for down in downs for note in (down.hook_note, down.stop_note) if note]
    again = [down.spec.name for down in downs if down.again]
    if again:
        notes.append(f"{', '.join(again)} had ended before, and was started again by the kubelet")
    return "; " + "; ".join(notes) if notes else ""


# --- a pod that the kubelet ends: because we delete its object, or of its own accord -------------

# Whatever the kubelet does is seen by its containers' ends. Of a deleted pod the grace is only ever
# shortened; one that outlives it is killed here, since a kubelet that deletes a pod does not start it again.
# Handed over, it is ours: its hooks count as spent, unless the API server never took the delete.

HANDED_OVER = "preStop spent: the kubelet had the pod"


def _under_watch(down: ContainerState, now: int) -> ContainerState:
    return replace(
        down, phase="stopping", stop_since_ns=now, delegated=True, kill_at_ns=NEVER_NS, autopsy=True
    )


def _begin_delegated(state: PodState, event: PodStopBegan, now: int) -> Result:
    """``state`` knows its grace. A pod of which nothing runs any more is deleted all the same."""
    if state.means == "observe":
        # Nothing of it is ours to do: no SIGKILL ever, and no autopsy, which is a look before one.
        return _each_container(state, now, "running", lambda down: (_under_watch(down, now), []))
    deadline_ns = now + state.grace_ns
    until_ns = min(deadline_ns, event.kill_by_ns - FLOOR_NS)
    state, order = _order_delete(state, until_ns, now)
    state, decisions = _each_container(
        state, now, "running", lambda down: (_under_delete(down, now, deadline_ns, event.kill_by_ns), [])
    )
    return state, [order, *decisions]


def _under_delete(down: ContainerState, now: int, deadline_ns: int, limit_ns: int) -> ContainerState:
    """The kubelet's SIGKILL comes at the end of the grace, or 2 s after a hook that used all of it."""
    return replace(
        down,
        phase="stopping",
        stop_since_ns=now,
        deadline_ns=deadline_ns,
        limit_ns=limit_ns,
        kill_at_ns=steps.overdue_ns(now, deadline_ns, limit_ns),
        autopsy_at_ns=max(now, deadline_ns - AUTOPSY_BEFORE_KILL_NS),
        delegated=True,
    )


def _order_delete(state: PodState, until_ns: int, now: int) -> tuple[PodState, DeletePod]:
    assert state.pod is not None
    # A key of its own for each delete, since the outcome of an earlier one may still come.
    key = order_key(NAME, "delete", state.pod.uid, state.first_ordinal + state.deletes)
    # The API counts whole seconds. The one that is begun is the pod's: 9.999 s of grace are not 9, and what
    # it may take longer than its wave is less than the floor that SIGKILL waits for in any case.
    whole_seconds = -((now - until_ns) // NS_PER_SECOND)
    order = DeletePod(
        key=key,
        uid=state.pod.uid,
        namespace=state.pod.namespace,
        name=state.pod.name,
        grace_seconds=max(DELETE_SECONDS_MIN, whole_seconds),
        after_taint=state.pod.daemon,
    )
    return replace(state, deletes=state.deletes + 1, delete_key=key, delete_until_ns=until_ns), order


def _shorten_delete(state: PodState, until_ns: int, now: int) -> Result:
    """Less time than the last delete gave, by a second at least: it is given again."""
    until_ns = max(until_ns, now)
    if state.means != "api" or state.refused:
        return state, ()
    # The API counts whole seconds: less than one cannot be said, and a call for each pod of a wave is not for
    # nothing.
    if until_ns > state.delete_until_ns - NS_PER_SECOND:
        return state, ()
    state, order = _order_delete(state, until_ns, now)
    return state, [order]


def _note_delete(state: PodState, event: OrderEnded) -> PodState:
    """The server took it, or not; one that was sent and not answered is neither."""
    if event.result == "done":
        state = replace(state, deleted=True)
    if event.key != state.delete_key:
        return state
    first = state.deletes == 1  # a later one only shortens: the pod is on its way
    refused = first and event.result in ("failed", "cancelled")
    return replace(state, delete_key="", refused=state.refused or refused)


def _delete_ended(state: PodState, event: OrderEnded, now: int) -> Result:
    """Lost: it is given again, with what is left. Not taken: the pod waits to be handed over.

    ``failed``: the server refused it, or never got it, so no hook has run. ``timed-out``: it was sent, and
    nobody answered: its hooks count as spent, since a hook runs at most once. So they do where it was given
    again by another daemon, whatever became of that.
    """
    assert state.pod is not None
    uid, refused_before, known = state.pod.uid, state.refused, event.key == state.delete_key
    state = _note_delete(state, event)
    if not known:
        return state, ()
    # In this order: after a cancel nobody takes it over, and what was handed over meanwhile is ours, however
    # the delete ended.
    if state.refused and not refused_before and state.withdrawn:
        return _spare(state, "the shutdown was cancelled before its delete was taken")
    if state.means != "api":
        return _take_over(state, now)
    if event.result == "done":
        return state, ()
    if event.result == "unknown":  # the daemon died in between
        state, order = _order_delete(state, state.delete_until_ns, now)
        return state, [order]
    return state, [DeleteRefused(uid=uid, reason=event.reason or event.result)]


def _spare(state: PodState, reason: str) -> Result:
    assert state.pod is not None
    spared = PodEnded(uid=state.pod.uid, wave=state.wave, outcome="spared", reason=reason)
    return replace(state, over=True), [spared]


def _await_handed_over(state: PodState, event: HandedOver, now: int) -> Result:
    """One whose stop has not begun waits for its wave like any other."""
    return (replace(state, means="cri"), ()) if state.means == "api" else (state, ())


def _handed_over(state: PodState, event: HandedOver, now: int) -> Result:
    """The pod has its grace again, as far as its wave has time: a failed kubelet may have told it nothing.

    A straggler's wave has no time, and a hurried pod gets none.
    """
    if state.means != "api":
        return state, ()
    has_time = state.wave == event.wave and not state.hurried
    return _pass_over(state, min(now + state.grace_ns, event.until_ns) if has_time else 0, now)


def _pass_over(state: PodState, until_ns: int, now: int) -> Result:
    """From the kubelet to us. A delete that is under way is waited for first: its outcome tells whether the
    kubelet may have run the pod's hooks.
    """
    downs = tuple(replace(down, deadline_ns=max(down.deadline_ns, until_ns)) for down in state.downs)
    grace_ns = max([state.grace_ns, until_ns - state.begun_ns])
    state = replace(state, means="cri", downs=downs, grace_ns=grace_ns)
    return (state, ()) if state.delete_key else _take_over(state, now)


def _take_over(state: PodState, now: int) -> Result:
    return _each_container(state, now, "stopping", lambda down: _taken_over(down, state, now))


def _taken_over(down: ContainerState, state: PodState, now: int) -> steps.ContainerStep:
    if not down.delegated:
        return down, []
    # Another try's key: what the kubelet's time led to must not be taken for the outcome of ours.
    ours = replace(
        down,
        delegated=False,
        autopsy=False,
        autopsy_at_ns=NEVER_NS,
        tries=down.tries + 1,
        since_ns=max(now, 1),
    )
    if state.refused:
        ours = replace(ours, phase="running", stop_since_ns=0, kill_at_ns=NEVER_NS)
        return steps.begin(ours, now, down.deadline_ns, down.limit_ns, sleep_action=state.sleep_action)
    note = "" if down.spec.hook is None else HANDED_OVER
    return replace(ours, phase="turn", hook_note=note or down.hook_note), []


# --- the handlers -------------------------------------------------------------------------------


def _adopted(state: PodState, event: PodPlanned, now: int) -> Result:
    """A second episode adopts the pod. Its hooks stay run and its grace stays used.

    A pod that Ebbtide only observed begins with its new wave: it got no stop from us. A container that the
    kubelet started again after a cancel is stopped with the rest of its pod, with a grace of its own.
    """
    if state.means == "observe" != event.means:
        state, decisions = _plan(event)
        # The kubelet may have run its hooks, and a hook runs once.
        return replace(state, downs=tuple(_hook_spent(down) for down in state.downs)), decisions
    # No new grace: a cancel must not give more time to a pod that began to stop before it.
    state, decisions = replace(state, wave=event.wave, withdrawn=False), ()
    if event.means != state.means:
        state, decisions = _pass_over(state, 0, now) if state.means == "api" else (state, ())
    if not state.means or not state.begun or state.over:
        return state, decisions
    # After a cancel no SIGKILL of ours was due.
    downs = tuple(
        replace(down, kill_at_ns=steps.overdue_ns(now, down.deadline_ns, down.limit_ns))
        if down.phase == "stopping" and down.delegated
        else down
        for down in state.downs
    )
    state = replace(state, downs=downs)
    deadline_ns = now + event.grace_seconds * NS_PER_SECOND
    state, again = _stop_again(state, event.pod, now, deadline_ns, NEVER_NS)
    if state.means == "api" and not state.deleted and not state.delete_key:
        # Sent and not answered before: a kubelet that never heard of it would start the pod again.
        begun_anew = any(down.again and down.since_ns == max(now, 1) for down in state.downs)
        until_ns = deadline_ns if begun_anew else max(now, state.delete_until_ns)
        state, order = _order_delete(state, until_ns, now)
        decisions = [*decisions, order]
    return state, [*decisions, *again]


def _hook_spent(down: ContainerState) -> ContainerState:
    note = HANDED_OVER if down.spec.hook else ""
    return replace(down, spec=replace(down.spec, hook=None), hook_note=note)


def _plan(event: PodPlanned) -> Result:
    downs = tuple(
        ContainerState(
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


def _planned(state: PodState, event: PodPlanned, now: int) -> Result:
    """A delete of its first life that nobody has answered may still reach the kubelet, which runs hooks."""
    planned, decisions = _plan(event)
    if event.again and _perhaps_deleted(state):
        planned = replace(planned, downs=tuple(map(_hook_spent, planned.downs)))
    return planned, decisions


def _perhaps_deleted(state: PodState) -> bool:
    return state.deletes > 0 and not state.refused


def _stop_began(state: PodState, event: PodStopBegan, now: int) -> Result:
    # A stamp of 0 would read as "not begun"; no clock that runs shows it.
    state = replace(state, begun_ns=max(now, 1), grace_ns=0 if state.hurried else event.grace_ns)
    if state.means in ("api", "observe"):
        return _begin_delegated(state, event, now)
    deadline_ns = now + state.grace_ns
    return _each_container(
        state,
        now,
        "running",
        lambda down: steps.begin(down, now, deadline_ns, event.kill_by_ns, sleep_action=state.sleep_action),
    )


def _container_exited(state: PodState, event: ContainerExited, now: int) -> Result:
    def step(down: ContainerState) -> steps.ContainerStep:
        if down.spec.name != event.container or down.phase == "exited":
            return down, []
        return steps.exited(down, now, event.exit_code, event.signal, gone=event.gone)

    return _each_container(state, now, "", step)


def _runs_again(state: PodState, event: PodJoined, now: int) -> Result:
    """Before its stop has begun: what has ended on record and runs now is to be stopped like the rest."""
    state = _with_unknown(state, event.pod)
    return replace(state, downs=tuple(_started_again(down, event.pod, 0) or down for down in state.downs)), ()


def _stopped_again(state: PodState, event: PodJoined, now: int) -> Result:
    """In what is left of the pod's grace, with the floor that every stop has: it is the same pod.

    After a cancel it is to run again.
    """
    if state.withdrawn:
        return state, ()
    # One that had ended before its pod's stop has no times of its own.
    deadline_ns = max(down.deadline_ns for down in state.downs)
    limit_ns = max(down.limit_ns for down in state.downs)
    return _stop_again(state, event.pod, now, deadline_ns, limit_ns)


def _stop_again(state: PodState, pod: Pod, now: int, deadline_ns: int, limit_ns: int) -> Result:
    """``pod``: as it is now."""
    state = _with_unknown(state, pod)

    def step(down: ContainerState) -> steps.ContainerStep:
        again = _started_again(down, pod, max(now, 1))
        if again is None:
            return down, []
        if state.means == "observe":
            return _under_watch(again, now), []
        if state.means == "api":
            return _under_delete(again, now, deadline_ns, limit_ns), []
        if _perhaps_deleted(state):
            again = _hook_spent(again)
        return steps.begin(again, now, deadline_ns, limit_ns, sleep_action=state.sleep_action)

    return _each_container(state, now, "exited", step)


def _with_unknown(state: PodState, pod: Pod) -> PodState:
    """What runs and no plan had: it had ended before, so that no view of its pod showed it."""
    names = [down.spec.name for down in state.downs]
    first_ordinal = max((down.first_ordinal for down in state.downs), default=state.first_ordinal)
    unknown = (each for each in pod.containers if each.running and each.name not in names)
    found = tuple(
        ContainerState(uid=pod.uid, spec=spec, phase="exited", first_ordinal=first_ordinal, tries=-1)
        for spec in unknown
    )
    return replace(state, downs=(*state.downs, *found)) if found else state


def _started_again(down: ContainerState, pod: Pod, since_ns: int) -> ContainerState | None:
    """None: it has not been, as far as is known."""
    spec = next((each for each in pod.containers if each.name == down.spec.name), None)
    if down.phase != "exited" or spec is None or not spec.running:
        return None
    return steps.started_again(down, spec, since_ns)


def _tick(state: PodState, event: Tick, now: int) -> Result:
    # What fell due while no daemon ran has waited for the first look of the one that runs.
    waited_ns = now - state.daemon_ns if state.daemon_ns else NEVER_NS
    due_ns = now - steps.STANDSTILL_NS
    if waited_ns > steps.STANDSTILL_NS and any(down.due_ns() <= due_ns for down in state.downs):
        state = replace(state, downs=tuple(steps.stood_still(down, now, due_ns) for down in state.downs))
    overdue = [
        down.phase == "stopping" and down.delegated and down.limit_ns > now >= down.kill_at_ns
        for down in state.downs
    ]
    if any(overdue):
        # Handed over, it gets its signal. Otherwise SIGKILL comes at the shutdown's last moment for it.
        downs = tuple(
            replace(down, kill_at_ns=down.limit_ns, autopsy=True) if late else down
            for down, late in zip(state.downs, overdue, strict=True)
        )
        state = replace(state, downs=downs)
    state, decisions = _each_container(
        state, now, "", lambda down: _container_due(down, now, state.daemon_ns)
    )
    assert state.pod is not None
    return state, [DeleteOverdue(uid=state.pod.uid), *decisions] if any(overdue) else decisions


def _container_due(down: ContainerState, now: int, daemon_ns: int = 0) -> steps.ContainerStep:
    # Whose turn has come by time is stopped by `_each_container`, with whom it has come by an exit.
    if down.due_ns() > now or down.phase == "turn":
        return down, []
    if down.phase == "hook":
        return steps.cut_hook(down, now, lost=down.hook_since_ns < daemon_ns > now - steps.FOLLOWED_NS)
    if down.kill_at_ns <= now:
        return steps.kill(down)
    return steps.autopsy(down)


def _note_last_kill(state: PodState, event: PodStopBegan | DeadlineMoved, now: int) -> Result:
    """The last possible SIGKILL has moved; a kubelet that ends its pods by itself keeps its own."""
    if state.means == "observe":
        return state, ()
    return replace(state, downs=tuple(steps.limit(down, event.kill_by_ns) for down in state.downs)), ()


def _last_kill_moved(state: PodState, event: PodStopBegan | DeadlineMoved, now: int) -> Result:
    state, _ = _note_last_kill(state, event, now)
    return _shorten_delete(state, event.kill_by_ns - FLOOR_NS, now)


def _delete_noted(state: PodState, event: OrderEnded, now: int) -> Result:
    """Record whether the object goes, even after the pod has ended. If the server refused the delete, or did
    not answer, the kubelet may restart containers that ended by themselves.
    """
    if parse_order_key(event.key).what != "delete":
        return state, ()
    asked = state.means == "api" and event.key == state.delete_key
    state = _note_delete(state, event)
    if state.pod is None or not asked or state.deleted:
        return state, ()
    return state, [DeleteRefused(uid=state.pod.uid, reason=event.reason or event.result)]


def _order_ended(state: PodState, event: OrderEnded, now: int) -> Result:
    key = parse_order_key(event.key)
    if key.what == "delete":
        return _delete_ended(state, event, now)
    # An autopsy's, or a cancel's, changes nothing: what they were to bring is a fact of its own, or has come.
    answer = ORDER_ENDED_BY_KIND.get(key.what)
    if answer is None:
        return state, ()
    name = key.part

    def step(down: ContainerState) -> steps.ContainerStep:
        return answer(down, event, now) if down.spec.name == name else (down, [])

    return _each_container(state, now, "", step)


def _daemon_started(state: PodState, event: DaemonStarted, now: int) -> Result:
    """An open delete is given again, and the outcome is that of a second one: the first may be taken."""
    downs = tuple(steps.resume_stop(down, now) for down in state.downs)
    deletes = state.deletes + 1 if state.delete_key else state.deletes
    daemon_ns = max(now, 1) if state.begun and not state.over else state.daemon_ns
    return replace(state, downs=downs, deletes=deletes, daemon_ns=daemon_ns), ()


def _autopsy_taken(state: PodState, event: AutopsyTaken, now: int) -> Result:
    # The first process alone: the stop signal goes to no other.
    first = event.processes[0] if event.processes else None
    signal = next((down.spec.stop_signal for down in state.downs if down.spec.name == event.container), "")
    if first is None or signal not in first.signals_ignored:
        return state, ()
    return replace(state, finding=f"its first process ignores {signal}"), ()


def _is_named(state: PodState, event: HurryRequested) -> bool:
    """A kubelet that ends its pods by itself is hurried by nobody."""
    pod = state.pod
    named = pod is not None and event.pod in (pod.uid, pod.name, pod.label)
    return named and state.means != "observe"


def _hurry_later(state: PodState, event: HurryRequested, now: int) -> Result:
    if not _is_named(state, event):
        return state, ()
    return replace(state, hurried=True, finding=f"hurried by uid {event.asked_by}"), ()


def _hurry(state: PodState, event: HurryRequested, now: int) -> Result:
    if not _is_named(state, event):
        return state, ()
    state = replace(
        state,
        # Kept for a hand-over from the kubelet: a hurried pod gets no new time.
        hurried=state.hurried or state.means == "api",
        grace_ns=min(state.grace_ns, now - state.begun_ns),
        finding=f"hurried by uid {event.asked_by}",
    )
    if state.means == "api":
        # The least that a delete can give; the kubelet does the rest.
        downs = tuple(
            replace(
                down,
                deadline_ns=min(down.deadline_ns, now),
                kill_at_ns=min(down.kill_at_ns, steps.overdue_ns(now, now, down.limit_ns)),
            )
            for down in state.downs
        )
        return _shorten_delete(replace(state, downs=downs), now, now)
    downs = tuple(steps.shorten(down, now) for down in state.downs)
    # At once: whoever is due by the shorter time would otherwise be so by a tick of its own, one record
    # later.
    return _each_container(replace(state, downs=downs), now, "", lambda down: _container_due(down, now))


def _spared(state: PodState, event: ShutdownCancelled, now: int) -> Result:
    """What has not begun is spared."""
    return _spare(state, "the shutdown was cancelled")


def _cancelled(state: PodState, event: ShutdownCancelled, now: int) -> Result:
    """What has begun is finished, but a delete that is not taken has begun nothing; nor is what its kubelet
    starts again from now on. And no last SIGKILL has to come before a release.
    """
    downs = tuple(
        replace(down, limit_ns=NEVER_NS, kill_at_ns=NEVER_NS if down.delegated else down.kill_at_ns)
        for down in state.downs
    )
    return replace(state, downs=downs, withdrawn=True), ()


def _given_up(state: PodState, event: PodsEnded, now: int) -> Result:
    """What is said last about a pod: no effect of its actor outlives that."""
    # Hooks only: a stop signal or SIGKILL that is out ends what it was meant to end, and that is wanted.
    return _end_pod(state, now, [cancel for down in state.downs for cancel in steps.abandon_hook(down)])


def _never_begun(state: PodState, event: PodsEnded, now: int) -> Result:
    if all(down.phase == "exited" for down in state.downs):
        return replace(state, over=True), [_pod_ended_event(replace(state, begun_ns=now), now)]
    assert state.pod is not None
    reason = "the lock was released before its wave"
    return replace(state, over=True), [
        PodEnded(uid=state.pod.uid, wave=state.wave, outcome="unknown", reason=reason)
    ]


def _ended_elsewhere(state: PodState, event: PodEnded, now: int) -> Result:
    """Said by another actor for us: the boot that this pod ran in is over."""
    return replace(state, over=True), ()


def _deadline(state: PodState) -> int:
    if state.over or not state.begun:
        return NEVER_NS
    return min([down.due_ns() for down in state.downs], default=NEVER_NS)


# --- the table ---------------------------------------------------------------------------------

#: What may be decided when containers are due, or change hands.
HOOK_BEGINS = (HookStarted, RunHook)
HOOK_ENDS = (CancelOrder, HookEnded)

# fmt: off
TRANSITIONS = Transitions(
    ("new", "planned", "stopping", "ended"),
    phase_of,
    # phases          event           handler             leads to        decides
    Row("new planned ended", PodPlanned, _planned,        "planned"),
    Row("stopping",   PodPlanned,     _adopted,           "= planned ended",
        (DeletePod, *HOOK_BEGINS, HookEnded, SendSignal, PodEnded)),
    Row("planned",    PodStopBegan,   _stop_began,        "stopping ended",
        (DeletePod, *HOOK_BEGINS, HookEnded, SendSignal, PodEnded)),
    Row("stopping",   PodStopBegan,   _last_kill_moved,   "=",            (DeletePod,)),
    Row("stopping",   DeadlineMoved,  _last_kill_moved,   "=",            (DeletePod,)),
    Row("ended",      PodStopBegan,   _note_last_kill),
    Row("planned ended", DeadlineMoved, _note_last_kill),

    Row("planned",    ContainerExited, _container_exited),
    Row("stopping",   ContainerExited, _container_exited, "= ended",      (*HOOK_ENDS, SendSignal, PodEnded)),
    Row("stopping",   Tick,           _tick,              "=",
        (*HOOK_ENDS, SendSignal, TakeAutopsy, DeleteOverdue, KillContainer)),
    Row("planned",    OrderEnded,     _order_ended),
    Row("stopping",   OrderEnded,     _order_ended,       "= ended",
        (DeletePod, DeleteRefused, *HOOK_BEGINS, HookEnded, SendSignal, KillContainer, PodEnded)),
    Row("ended",      OrderEnded,     _delete_noted,      "=",            (DeleteRefused,)),
    Row(EVERY,        AutopsyTaken,   _autopsy_taken),
    Row(EVERY,        DaemonStarted,  _daemon_started),
    Row("planned",    PodJoined,      _runs_again),
    Row("stopping",   PodJoined,      _stopped_again,     "=",
        (*HOOK_BEGINS, HookEnded, SendSignal)),
    ignored("new ended", PodJoined),

    Row("planned",    HandedOver,     _await_handed_over),
    Row("stopping",   HandedOver,     _handed_over,  "= ended",
        (*HOOK_BEGINS, HookEnded, SendSignal, PodEnded)),
    Row("planned",    HurryRequested, _hurry_later),
    Row("stopping",   HurryRequested, _hurry,             "=",
        (DeletePod, *HOOK_ENDS, SendSignal, TakeAutopsy, KillContainer)),

    Row("planned",    ShutdownCancelled, _spared,         "ended",        (PodEnded,)),
    Row("stopping",   ShutdownCancelled, _cancelled),
    Row("planned",    PodsEnded,      _never_begun,       "ended",        (PodEnded,)),
    Row("stopping",   PodsEnded,      _given_up,          "ended",        (CancelOrder, PodEnded)),
    Row("planned stopping", PodEnded, _ended_elsewhere,   "ended"),

    # Only what is stopped is due; what has ended is nobody's business any more.
    ignored("planned ended", Tick),
    ignored("ended", ContainerExited, HandedOver, HurryRequested, ShutdownCancelled, PodsEnded, PodEnded),
    # A pod's actor is made by its plan, which is the first that it hears.
    ignored("new", PodStopBegan, DeadlineMoved, ContainerExited, Tick, OrderEnded, HandedOver, HurryRequested,
            ShutdownCancelled, PodsEnded, PodEnded),
)
# fmt: on

HOOK = ActorType(
    NAME,
    PodState,
    TRANSITIONS,
    deadline=_deadline,
    done=lambda state: state.over or not state.begun,
)

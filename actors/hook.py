"""HookActor: one pod's stop: preStop hooks, stop signals, SIGKILL, and the pod's fate.

    planned -> stopping -> ended

    each container: running -> hook -> turn -> stopping -> killed -> exited

All containers begin at once. Sidecars run their hooks with the others and get their signals last, in reverse
order, as by the kubelet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from msgspec.structs import replace

from ebbtide.actors.actor import EVERY, NEVER_NS, ActorType, Result, Row, State, Transitions, ignored, takes
from ebbtide.actors.policy.grace_periods import FLOOR_NS, GRACE_NS_MIN, GRACE_SECONDS_MIN
from ebbtide.actors.policy.termination_mode import SIGN_NS
from ebbtide.events import decisions as d
from ebbtide.events import facts as f
from ebbtide.events import kinds
from ebbtide.events.base import NS_PER_SECOND, Event, OrderKey, order_key, parse_order_key
from ebbtide.events.values import Container, Pod, TerminationMode

NAME = "HookActor"


class PodState(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    pod: Pod | None = None
    wave: int = -1
    sleep_action: bool = True
    begun_ns: int = 0
    grace_ns: int = 0
    downs: tuple[ContainerState, ...] = ()
    #: For the fate's text: the autopsy's finding about the stop signal, or who hurried the pod.
    finding: str = ""
    over: bool = False
    #: Before its wave: it gets no grace. Under api: it gets no new time at a hand-over.
    hurried: bool = False
    #: Who ends the pod. A hand-over changes "api" to "cri".
    means: TerminationMode = ""
    #: Deletes so far, and the key of the open one.
    deletes: int = 0
    delete_key: str = ""
    #: The API server did not take the delete, so no hook has run.
    refused: bool = False
    #: The API server took the delete.
    deleted: bool = False
    #: The shutdown was cancelled after the stop began.
    withdrawn: bool = False
    #: The end of the last delete's grace, and of the one before.
    delete_until_ns: int = 0
    earlier_until_ns: int = 0
    first_ordinal: int = 0
    #: A daemon's start after the stop began.
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


HOOK_BEGINS = (d.HookStarted, d.RunHook)
HOOK_ENDS = (d.CancelOrder, d.HookEnded)


# fmt: off
def _transitions() -> Transitions:
    return Transitions(
        ("new", "planned", "stopping", "ended"),
        phase_of,
        # phases          event           handler             leads to        decides
        Row("new planned ended", d.PodPlanned, _planned,        "planned"),
        Row("stopping",   d.PodPlanned,     _adopted,           "= planned ended",
            (d.DeletePod, *HOOK_BEGINS, d.HookEnded, d.SendSignal, d.PodEnded)),
        Row("planned",    d.PodStopBegan,   _stop_began,        "stopping ended",
            (d.DeletePod, *HOOK_BEGINS, d.HookEnded, d.SendSignal, d.PodEnded)),
        Row("stopping",   d.PodStopBegan,   _last_kill_moved,   "=",            (d.DeletePod,)),
        Row("stopping",   d.DeadlineMoved,  _last_kill_moved,   "=",            (d.DeletePod,)),
        Row("ended",      d.PodStopBegan,   _note_last_kill),
        Row("planned ended", d.DeadlineMoved, _note_last_kill),

        Row("planned",    f.ContainerExited, _container_exited),
        Row("stopping",   f.ContainerExited, _container_exited, "= ended",
            (*HOOK_ENDS, d.SendSignal, d.PodEnded)),
        Row("stopping",   f.Tick,           _tick,              "=",
            (*HOOK_ENDS, d.SendSignal, d.TakeAutopsy, d.DeleteOverdue, d.KillContainer)),
        Row("planned",    f.OrderEnded,     _order_ended),
        Row("stopping",   f.OrderEnded,     _order_ended,       "= ended",
            (d.DeletePod, d.DeleteRefused, *HOOK_BEGINS, d.HookEnded, d.SendSignal, d.KillContainer,
             d.PodEnded)),
        Row("ended",      f.OrderEnded,     _delete_noted,      "=",            (d.DeleteRefused,)),
        Row(EVERY,        f.AutopsyTaken,   _autopsy_taken),
        Row(EVERY,        f.DaemonStarted,  _daemon_started),
        Row("planned",    f.PodJoined,      _runs_again),
        Row("stopping",   f.PodJoined,      _stopped_again,     "=",
            (*HOOK_BEGINS, d.HookEnded, d.SendSignal)),
        ignored("new ended", f.PodJoined),

        Row("planned",    d.HandedOver,     lambda state, event, now: (
                replace(state, means="cri") if state.means == "api" else state, ())),
        Row("stopping",   d.HandedOver,     _handed_over,  "= ended",
            (*HOOK_BEGINS, d.HookEnded, d.SendSignal, d.PodEnded)),
        Row("planned",    f.HurryRequested, _hurry_later),
        Row("stopping",   f.HurryRequested, _hurry,             "=",
            (d.DeletePod, *HOOK_ENDS, d.SendSignal, d.TakeAutopsy, d.KillContainer)),

        Row("planned",    d.ShutdownCancelled,
            lambda state, event, now: _leave(state, "the shutdown was cancelled"), "ended", (d.PodEnded,)),
        Row("stopping",   d.ShutdownCancelled, _cancelled),
        Row("planned",    d.PodsEnded,      _never_begun,       "ended",        (d.PodEnded,)),
        Row("stopping",   d.PodsEnded,      _given_up,          "ended",        (d.CancelOrder, d.PodEnded)),
        # The EpisodeActor has recorded its end: its boot is over, for example.
        Row("planned stopping", d.PodEnded, takes(over=True),   "ended"),

        ignored("planned ended", f.Tick),
        ignored("ended", f.ContainerExited, d.HandedOver, f.HurryRequested, d.ShutdownCancelled,
                d.PodsEnded, d.PodEnded),
        # A pod's first event is its plan.
        ignored("new", d.PodStopBegan, d.DeadlineMoved, f.ContainerExited, f.Tick, f.OrderEnded,
                d.HandedOver, f.HurryRequested, d.ShutdownCancelled, d.PodsEnded, d.PodEnded),
    )
# fmt: on


# --- one container

#: So long before the last possible SIGKILL a kubelet whose pod still runs counts as failed.
LAST_CHANCE_NS = NS_PER_SECOND

#: How long before SIGKILL a straggler is examined: SIGKILL removes the evidence.
AUTOPSY_BEFORE_KILL_NS = 250_000_000

#: A daemon this late for a deadline stood still. Load alone makes it late by tens of milliseconds.
STANDSTILL_NS = NS_PER_SECOND
#: The time of a hook that may begin only after the standstill.
HOOK_LOOK_NS = NS_PER_SECOND // 2

#: The largest number in a state. The API server accepts sleeps (63 bits of seconds) that would end later.
UNTIL_NS_MAX = (1 << 64) - 1

ContainerPhase = Literal["running", "hook", "turn", "stopping", "killed", "exited"]


class ContainerState(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """``deadline_ns``: the end of the pod's grace. ``limit_ns``: the shutdown's last possible SIGKILL."""

    uid: str
    spec: Container
    phase: ContainerPhase = "running"
    deadline_ns: int = 0
    limit_ns: int = 0
    hook_since_ns: int = 0
    hook_until_ns: int = NEVER_NS
    hook_key: str = ""
    stop_since_ns: int = 0
    kill_at_ns: int = NEVER_NS
    #: The stop signal is ordered, without an outcome yet.
    stop_open: bool = False
    #: The kubelet has sent its stop signal: its pod was being deleted already.
    signalled: bool = False
    autopsy: bool = False
    killed: bool = False
    tries: int = 0
    first_ordinal: int = 0
    exit_code: int | None = None
    exit_signal: kinds.Signal = ""
    #: The runtime lost its end.
    lost: bool = False
    hook_note: str = ""
    error: str = ""
    #: The kubelet runs the hook and stops the container.
    delegated: bool = False
    #: Before the kubelet's SIGKILL.
    autopsy_at_ns: int = NEVER_NS
    #: The stop's outcome, for the fate's text.
    stop_note: str = ""
    kill_open: bool = False
    #: It ended unobserved, and our SIGKILL may not have ended it.
    end_unseen: bool = False
    #: The kubelet started it again: the first of its tries since.
    again: int = 0
    #: When its time began, if later than the pod's.
    since_ns: int = 0
    #: It did not start.
    never_ran: bool = False
    #: Our SIGKILL ended an earlier container of this name.
    killed_before: bool = False

    @property
    def stop_by_ns(self) -> int:
        """The latest time of its stop signal: the floor must fit before the last possible SIGKILL."""
        return min(self.deadline_ns, self.limit_ns - FLOOR_NS)

    def due_ns(self) -> int:
        if self.phase == "hook":
            return min(self.hook_until_ns, self.stop_by_ns)
        if self.phase == "turn":
            return self.stop_by_ns
        if self.phase == "stopping":
            first_look_ns = min(self.autopsy_at_ns, self.kill_at_ns - AUTOPSY_BEFORE_KILL_NS)
            return self.kill_at_ns if self.autopsy else first_look_ns
        return NEVER_NS

    def key(self, what: str) -> str:
        return order_key(NAME, f"{what}:{self.spec.name}", self.uid, self.first_ordinal + self.tries)


ContainerStep = tuple[ContainerState, list[Event]]


def died_of_our_kill(down: ContainerState) -> bool:
    """A runtime reports SIGKILL as 128 + 9. An adopted process has no exit code; our SIGKILL came last."""
    if not down.killed or down.phase != "exited" or down.end_unseen:
        return False
    return down.exit_signal == "SIGKILL" or (not down.exit_signal and down.exit_code in (None, 137))


# --- hook


def begin_container(
    down: ContainerState, now: int, deadline_ns: int, limit_ns: int, *, sleep_action: bool
) -> ContainerStep:
    hook = down.spec.hook
    if hook is None:
        return replace(down, deadline_ns=deadline_ns, limit_ns=limit_ns, phase="turn"), []
    down = replace(down, deadline_ns=deadline_ns, limit_ns=limit_ns)
    if down.stop_by_ns <= now:
        return _skip_hook(down, "not-run", "no grace left for it")
    if hook.kind == "sleep":
        # A sleep is a deadline (KEP-3960): it survives a restart and needs no cancel.
        if not sleep_action:
            return _skip_hook(down, "done", "the gate PodLifecycleSleepAction is off")
        if hook.sleep_seconds <= 0:
            return _skip_hook(down, "done", "")
        until_ns = min(now + hook.sleep_seconds * NS_PER_SECOND, UNTIL_NS_MAX)
        shown_ns = min(until_ns, down.stop_by_ns)
        started = d.HookStarted(uid=down.uid, container=down.spec.name, kind="sleep", until_ns=shown_ns)
        return replace(down, phase="hook", hook_since_ns=now, hook_until_ns=until_ns), [started]
    if hook.kind == "tcpSocket":
        # The API server accepts it; the kubelet starts it and fails.
        started = d.HookStarted(uid=down.uid, container=down.spec.name, kind=hook.kind, until_ns=now)
        down, ended = _skip_hook(down, "failed", "invalid handler: tcpSocket cannot be a preStop hook")
        return down, [started, *ended]
    key = down.key("hook")
    order = d.RunHook(key=key, uid=down.uid, container=down.spec.name, timeout_ns=down.stop_by_ns - now)
    started = d.HookStarted(uid=down.uid, container=down.spec.name, kind=hook.kind, until_ns=down.stop_by_ns)
    return replace(down, phase="hook", hook_since_ns=now, hook_key=key), [started, order]


def _skip_hook(down: ContainerState, result: d.HookResult, reason: str) -> ContainerStep:
    note = "" if result == "done" else f"preStop {result}: {reason}"
    ended = d.HookEnded(uid=down.uid, container=down.spec.name, result=result, reason=reason)
    return replace(down, phase="turn", hook_note=note), [ended]


def end_hook(
    down: ContainerState, now: int, result: d.HookResult, reason: str = "", *, early: bool = False
) -> ContainerStep:
    note = "" if result == "done" else f"preStop {result}" + (f": {reason}" if reason else "")
    ended = d.HookEnded(
        uid=down.uid,
        container=down.spec.name,
        result=result,
        reason=reason,
        early=early,
        elapsed_ns=now - down.hook_since_ns,
    )
    return replace(down, phase="turn", hook_until_ns=NEVER_NS, hook_note=note), [ended]


#: By then a new daemon follows a running hook, or has found it gone. Before `system.LOOK_NS` only the
#: shutdown's end cuts a hook, and a hook of its own begins at the latest 2 s before that end.
FOLLOWED_NS = NS_PER_SECOND // 4
#: For an order without a follower after the daemon's death.
LOST = "its outcome was lost with the daemon"


def cut_hook(down: ContainerState, now: int, *, lost: bool = False) -> ContainerStep:
    """``lost``: the hook's daemon died, so the hook may have ended before."""
    if not down.hook_key:
        if down.hook_until_ns <= now:
            return end_hook(down, now, "done")
        return end_hook(down, now, "timed-out", "the grace was over before the sleep was", early=True)
    cancel = d.CancelOrder(key=down.key("cut"), target=down.hook_key, timed_out=True)
    # A hung runtime may not have begun the hook.
    why = "had not ended when the grace was over"
    result: d.HookResult = "unknown" if lost else "timed-out"
    down, ended = end_hook(down, now, result, LOST if lost else why)
    return down, [cancel, *ended]


# --- stop


def stop_container(down: ContainerState, now: int) -> ContainerStep:
    # A hook may have used up the grace, so the floor outweighs it. The limit outweighs both: a later SIGKILL
    # would come after the release.
    kill_at_ns = max(now, min(max(down.deadline_ns, now + FLOOR_NS), down.limit_ns))
    if down.signalled:
        # The time of that signal is unknown, so the floor counts from now.
        return replace(down, phase="stopping", stop_since_ns=now, kill_at_ns=kill_at_ns), []
    order = _stop_signal(down)
    down = replace(down, phase="stopping", stop_since_ns=now, kill_at_ns=kill_at_ns, stop_open=True)
    return down, [order]


def _stop_signal(down: ContainerState) -> d.SendSignal:
    return d.SendSignal(
        key=down.key("stop"),
        uid=down.uid,
        container=down.spec.name,
        signal=down.spec.stop_signal,
    )


def _stopped_anew(down: ContainerState, now: int) -> ContainerState:
    kill_at_ns = max(down.kill_at_ns, min(now + FLOOR_NS, down.limit_ns))
    return replace(down, stop_since_ns=now, kill_at_ns=kill_at_ns, since_ns=max(now, 1))


def stood_still(down: ContainerState, now: int, due_ns: int) -> ContainerState:
    """After a standstill the last order may not have begun: a stop signal has the floor from now, a hook half
    a second.
    """
    if down.phase == "stopping" and down.stop_open and down.kill_at_ns <= due_ns:
        return _stopped_anew(down, now)
    if down.phase == "hook" and down.hook_key and down.stop_by_ns <= due_ns:
        return replace(down, deadline_ns=now + HOOK_LOOK_NS, since_ns=now)
    return down


def overdue_ns(now: int, deadline_ns: int, limit_ns: int) -> int:
    """When a deleted pod that still runs proves that its kubelet has failed.

    A delete gives at least a second, a container has 2 s after a hook that took all of the grace, and the
    kubelet needs time to act. Before the last possible SIGKILL there is time for a stop signal.
    """
    grace_until_ns = max(deadline_ns, now + GRACE_NS_MIN)
    return max(now, min(grace_until_ns + FLOOR_NS + SIGN_NS, limit_ns - LAST_CHANCE_NS))


def kill_container(down: ContainerState) -> ContainerStep:
    if down.killed:
        down = replace(down, tries=down.tries + 1)
    order = d.KillContainer(key=down.key("kill"), uid=down.uid, container=down.spec.name)
    return replace(down, phase="killed", killed=True, kill_open=True), [order]


def note_exit(down: ContainerState, now: int, exited: f.ContainerExited) -> ContainerStep:
    """A hook of a container that is gone ends too (kubernetes#134338)."""
    decisions: list[Event] = []
    why = "the container has exited"
    if down.phase == "hook" and not down.hook_key:
        down, decisions = end_hook(down, now, "done", why, early=True)
    elif down.phase == "hook":
        cancel = d.CancelOrder(key=down.key("cut"), target=down.hook_key)
        down, ended = end_hook(down, now, "cancelled", why)
        decisions = [cancel, *ended]
    # If SIGKILL finds no container, the edge reports the end before the order's outcome. So an end without an
    # exit code is SIGKILL's only if the order is done.
    unmet = down.killed and (down.kill_open or down.error != "")
    down = replace(
        down,
        phase="exited",
        exit_code=exited.exit_code,
        exit_signal=exited.signal,
        end_unseen=unmet and exited.exit_code is None and not exited.signal,
        lost=exited.lost,
    )
    return down, decisions


def shorten_container(down: ContainerState, now: int) -> ContainerState:
    """``ebbtide hurry``: the grace ends now, the floor stays."""
    kill_at_ns = down.kill_at_ns
    if down.phase == "stopping":
        # The floor counts from the first signal.
        kill_at_ns = max(now, min(down.stop_since_ns + FLOOR_NS, kill_at_ns))
    return replace(down, deadline_ns=min(down.deadline_ns, now), kill_at_ns=kill_at_ns)


# ``unknown``: the daemon died before the outcome. A hook then counts as spent, because running it twice may
# do harm. Stop signal and SIGKILL are repeated: without them the pod loses its grace, or the machine its
# time.


def _hook_order_ended(down: ContainerState, event: f.OrderEnded, key: OrderKey, now: int) -> ContainerStep:
    if down.phase != "hook" or event.key != down.hook_key:
        return down, []
    return end_hook(down, now, event.result, event.reason)


def _is_former(down: ContainerState, key: OrderKey) -> bool:
    """The order was for an earlier container of this name."""
    return int(key.ordinal) < down.first_ordinal + down.again


def _stop_order_ended(down: ContainerState, event: f.OrderEnded, key: OrderKey, now: int) -> ContainerStep:
    """After ``timed-out`` the container may have the signal."""
    if _is_former(down, key):
        return down, []
    if down.phase == "stopping" and event.result == "unknown":
        # The container's time goes on.
        down = replace(down, tries=down.tries + 1, stop_open=True)
        return down, [_stop_signal(down)]
    signal, name, note, error = down.spec.stop_signal, down.spec.name, "", ""
    if event.result in ("unknown", "timed-out"):
        note = f"whether {name} got {signal} is not known"
    elif event.result == "failed":
        note, error = f"{signal} did not reach {name}: {event.reason}", event.reason
    return replace(down, stop_open=False, stop_note=note, error=error), []


def _kill_order_ended(down: ContainerState, event: f.OrderEnded, key: OrderKey, now: int) -> ContainerStep:
    if down.again and _is_former(down, key):
        return down, []
    if down.phase == "killed" and event.result == "unknown":
        return kill_container(down)
    error = event.reason if event.result == "failed" else ""
    return replace(down, error=error, kill_open=False), []


ORDER_ENDED_BY_KIND: dict[str, Callable[[ContainerState, f.OrderEnded, OrderKey, int], ContainerStep]] = {
    "hook": _hook_order_ended,
    "stop": _stop_order_ended,
    "kill": _kill_order_ended,
}


# --- the containers' turns


def _each_container(
    state: PodState, now: int, phase: str, step: Callable[[ContainerState], ContainerStep]
) -> Result:
    """Apply ``step`` to every container in ``phase`` ("" for all). Then stop those whose turn has come, and
    end the pod if all have exited. After a cancel do not wait for a container that was started again.
    """
    decisions: list[Event] = []
    downs = list(state.downs)
    for index, down in enumerate(downs):
        if not phase or down.phase == phase:
            downs[index], made = step(down)
            decisions += made
    # A sidecar's turn depends on the others. Only an exit gives a turn, so one pass is enough.
    over = state.begun_ns > 0
    for index, down in enumerate(downs):
        over = over and (down.phase == "exited" or (state.withdrawn and down.phase == "running"))
        if down.phase == "turn" and (_has_turn(downs, index) or down.stop_by_ns <= now):
            downs[index], made = stop_container(down, now)
            decisions += made
    state = replace(state, downs=tuple(downs), over=over)
    return (state, [*decisions, _pod_ended_event(state, now)]) if over else (state, decisions)


def _has_turn(downs: Sequence[ContainerState], index: int) -> bool:
    """A sidecar waits for the main containers and for later sidecars."""
    if not downs[index].spec.sidecar:
        return True
    others = (other for at, other in enumerate(downs) if not other.spec.sidecar or at > index)
    return all(other.phase == "exited" for other in others)


def _pod_ended_event(state: PodState, now: int) -> d.PodEnded:
    assert state.pod is not None
    pod, on_node = state.pod, bool(state.means)
    outcome, reason = _describe_fate(state, now)
    gone = outcome == "unknown" and all(down.phase == "exited" for down in state.downs)
    ended = d.PodEnded(
        uid=pod.uid,
        wave=state.wave,
        outcome=outcome,
        reason=reason,
        elapsed_ns=max(0, now - state.begun_ns),
        succeeded=_succeeded(state.downs),
        gone=gone and (on_node or any(down.end_unseen for down in state.downs)),
    )
    codes = tuple((each.spec.name, each.exit_code) for each in state.downs if each.exit_code is not None)
    return ended.on_node(pod, state.means, codes, deleted=state.deleted) if on_node else ended


def _succeeded(downs: Sequence[ContainerState]) -> bool:
    """Sidecars do not decide a pod's phase, as in the kubelet."""
    return all(
        down.phase == "exited" and down.exit_code == 0 and not down.killed_before
        for down in downs
        if not down.spec.sidecar
    )


def _had_ns(state: PodState, now: int) -> tuple[int, str]:
    """The pod's time. "At least": only the time since a killed container's stop began again is sure."""
    again_ns = [down.kill_at_ns - down.since_ns for down in state.downs if down.killed and down.since_ns]
    grace_ns = min(state.grace_ns, now - state.begun_ns)
    had_ns = max(0, min(again_ns, default=grace_ns))
    return had_ns, "at least " if again_ns and had_ns < grace_ns else ""


# --- the fate


def _describe_fate(state: PodState, now: int) -> tuple[d.PodOutcome, str]:
    """failed: it did not end. unknown: its end was not observed."""
    downs = state.downs
    again = ", ".join(down.spec.name for down in downs if down.phase == "running")
    still = [down for down in downs if down.phase not in ("exited", "running")]
    if still:
        names = ", ".join(down.spec.name for down in still)
        if all(down.killed for down in still):
            if any(down.kill_open for down in still):
                return "unknown", f"{names}: no end seen, and no answer to SIGKILL"
            why = next((down.error for down in still if down.error), "still there after SIGKILL")
            return "failed", f"{names}: {why}"
        return "unknown", f"{names} still running when the lock was released"
    if again:
        return "spared", f"the kubelet started {again} again after the cancel"
    killed = [down for down in downs if died_of_our_kill(down) or down.killed_before]
    if killed:
        return "killed", _killed_text(killed, state, now) + _hook_notes(downs)
    by_kubelet = [down for down in downs if down.delegated and down.stop_since_ns and _was_killed(down)]
    if by_kubelet:
        return "killed", _killed_text(by_kubelet, state, now, "SIGKILL by the kubelet")
    foreign = [
        down
        for down in downs
        if down.stop_since_ns and (_was_killed(down) if state.means else down.exit_signal == "SIGKILL")
    ]
    if foreign:
        names = ", ".join(down.spec.name for down in foreign)
        return "killed", f"SIGKILL from elsewhere for {names}" + _hook_notes(downs)
    gone = ", ".join(down.spec.name for down in downs if down.end_unseen)
    if gone:
        return "unknown", f"{gone}: gone, end not seen{_hook_notes(downs)}"
    unheard = [
        down
        for down in downs
        if (down.delegated or _perhaps_deleted(state))
        and down.stop_since_ns
        and down.exit_code is None
        and not down.never_ran
    ]
    # The kubelet removed the container before Ebbtide read its exit code. It may have sent SIGKILL.
    if unheard and not any(down.exit_signal for down in unheard):
        names = ", ".join(down.spec.name for down in unheard)
        return "unknown", f"{names} ended under the kubelet, exit code not known"
    lost = ", ".join(down.spec.name for down in downs if down.lost)
    if lost:
        return "unknown", f"{lost}: the runtime lost its end{_hook_notes(downs)}"
    return "graceful", _graceful_text(downs) + _hook_notes(downs)


def _was_killed(down: ContainerState) -> bool:
    return down.exit_signal == "SIGKILL" or down.exit_code == 137


def _killed_text(killed: Sequence[ContainerState], state: PodState, now: int, how: str = "SIGKILL") -> str:
    names, (grace_ns, bound) = ", ".join(down.spec.name for down in killed), _had_ns(state, now)
    asked = None if state.pod is None else state.pod.grace_seconds
    whole, tenths = divmod(grace_ns // 100_000_000, 10)
    had = f"{whole}.{tenths}" if tenths else str(whole)
    cut = f", asked for {asked} s" if asked is not None and asked * NS_PER_SECOND > grace_ns else ""
    found = f", {state.finding}" if state.finding else ""
    return f"{how} for {names}: had {bound}{had} s{cut}{found}"


def _graceful_text(downs: Sequence[ContainerState]) -> str:
    if not downs:
        return "had no containers"
    if all(down.never_ran or not down.spec.running for down in downs):
        return "none of its containers was running"
    worst = max(downs, key=lambda down: (down.exit_signal != "", down.exit_code or 0))
    if all(down.stop_since_ns == 0 for down in downs):
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


# --- a pod that the kubelet ends

# A pod that outlives its delete's grace proves a failed kubelet, and is handed over. Its hooks then count as
# spent, unless the API server did not take the delete.

HANDED_OVER = "preStop not run: the kubelet may have run it"


def _under_watch(down: ContainerState, now: int) -> ContainerState:
    return replace(
        down, phase="stopping", stop_since_ns=now, delegated=True, kill_at_ns=NEVER_NS, autopsy=True
    )


def _begin_delegated(state: PodState, event: d.PodStopBegan, now: int) -> Result:
    """Also deletes a pod without a running container."""
    if state.means == "observe":
        # No SIGKILL, so no autopsy before one.
        return _each_container(state, now, "running", lambda down: (_under_watch(down, now), []))
    deadline_ns = now + state.grace_ns
    until_ns = min(deadline_ns, event.kill_by_ns - FLOOR_NS)
    orders: Sequence[Event]
    if state.deleted:
        state, orders = _shorten_delete(state, until_ns, now)
    else:
        state, order = _order_delete(state, until_ns, now)
        orders = [order]
    state, decisions = _each_container(
        state, now, "running", lambda down: (_under_delete(down, now, deadline_ns, event.kill_by_ns), [])
    )
    return state, [*orders, *decisions]


def _under_delete(down: ContainerState, now: int, deadline_ns: int, limit_ns: int) -> ContainerState:
    return replace(
        down,
        phase="stopping",
        stop_since_ns=now,
        deadline_ns=deadline_ns,
        limit_ns=limit_ns,
        kill_at_ns=overdue_ns(now, deadline_ns, limit_ns),
        autopsy_at_ns=max(now, deadline_ns - AUTOPSY_BEFORE_KILL_NS),
        delegated=True,
    )


def _order_delete(state: PodState, until_ns: int, now: int) -> tuple[PodState, d.DeletePod]:
    assert state.pod is not None
    # A new key: an earlier delete's outcome may still come.
    key = order_key(NAME, "delete", state.pod.uid, state.first_ordinal + state.deletes)
    # The API counts whole seconds, so round up: the rest is less than the floor.
    whole_seconds = -((now - until_ns) // NS_PER_SECOND)
    order = d.DeletePod(
        key=key,
        uid=state.pod.uid,
        namespace=state.pod.namespace,
        name=state.pod.name,
        grace_seconds=max(GRACE_SECONDS_MIN, whole_seconds),
        after_taint=state.pod.daemon,
    )
    return replace(state, deletes=state.deletes + 1, delete_key=key, delete_until_ns=until_ns), order


def _shorten_delete(state: PodState, until_ns: int, now: int) -> Result:
    until_ns = max(until_ns, now)
    # The API counts whole seconds, and a call for each pod of a wave costs time.
    if state.means != "api" or state.refused or until_ns > state.delete_until_ns - NS_PER_SECOND:
        return state, ()
    state, order = _order_delete(replace(state, earlier_until_ns=state.delete_until_ns), until_ns, now)
    return state, [order]


def _note_delete(state: PodState, event: f.OrderEnded) -> PodState:
    """A delete without an answer is neither taken nor refused."""
    first = state.deletes == 1 and not state.deleted  # a later one only shortens: the pod is on its way
    if event.result == "done":
        state = replace(state, deleted=True)
    if event.key != state.delete_key:
        return state
    refused = first and event.result in ("failed", "cancelled")
    return replace(state, delete_key="", refused=state.refused or refused)


def _delete_ended(state: PodState, event: f.OrderEnded, now: int) -> Result:
    """A delete that was not taken causes the hand-over, unless the server refuses to shorten an earlier one.

    ``failed``: the server refused it or never got it, so no hook has run. ``timed-out``: the hooks count as
    spent, since a hook runs at most once.
    """
    assert state.pod is not None
    uid, refused_before, known = state.pod.uid, state.refused, event.key == state.delete_key
    state = _note_delete(state, event)
    if not known:
        return state, ()
    # Order matters: after a cancel no hand-over follows; after a hand-over the pod is ours in any case.
    if state.refused and not refused_before and state.withdrawn:
        return _leave(state, "the shutdown was cancelled before its delete was taken")
    if state.means != "api":
        return _take_over(state, now)
    if event.result == "done":
        return state, ()
    if event.result == "unknown":  # the daemon died in between
        state, order = _order_delete(state, state.delete_until_ns, now)
        return state, [order]
    reason = event.reason or event.result
    if not (state.deleted and reason.startswith(f.API_ANSWERED)):
        return state, [d.DeleteRefused(uid=uid, reason=reason)]
    # The earlier deletion goes on, so its grace counts again.
    until_ns = state.earlier_until_ns
    downs = tuple(
        replace(
            down,
            deadline_ns=until_ns if state.hurried else down.deadline_ns,
            kill_at_ns=max(down.kill_at_ns, overdue_ns(state.begun_ns, until_ns, down.limit_ns)),
        )
        for down in state.downs
    )
    state = replace(
        state,
        downs=downs,
        grace_ns=until_ns - state.begun_ns,
        delete_until_ns=until_ns,
        hurried=False,
        finding="",
    )
    return state, [d.DeleteRefused(uid=uid, reason=reason, earlier_until_ns=until_ns)]


def _leave(state: PodState, reason: str, outcome: d.PodOutcome = "spared") -> Result:
    assert state.pod is not None
    ended = d.PodEnded(uid=state.pod.uid, wave=state.wave, outcome=outcome, reason=reason)
    return replace(state, over=True), [ended]


def _handed_over(state: PodState, event: d.HandedOver, now: int) -> Result:
    """The grace begins again if the wave has time, because a failed kubelet may have stopped no container."""
    if state.means != "api":
        return state, ()
    has_time = state.wave == event.wave and not state.hurried
    return _pass_over(state, min(now + state.grace_ns, event.until_ns) if has_time else 0, now)


def _pass_over(state: PodState, until_ns: int, now: int) -> Result:
    """From now on the runtime ends the pod. An open delete's outcome comes first: it shows whether the
    kubelet may have run the hooks.
    """
    downs = tuple(replace(down, deadline_ns=max(down.deadline_ns, until_ns)) for down in state.downs)
    grace_ns = max([state.grace_ns, until_ns - state.begun_ns])
    state = replace(state, means="cri", downs=downs, grace_ns=grace_ns)
    return (state, ()) if state.delete_key else _take_over(state, now)


def _take_over(state: PodState, now: int) -> Result:
    return _each_container(state, now, "stopping", lambda down: _taken_over(down, state, now))


def _taken_over(down: ContainerState, state: PodState, now: int) -> ContainerStep:
    if not down.delegated:
        return down, []
    # New keys: an earlier order's outcome may still come.
    ours = replace(
        down,
        delegated=False,
        autopsy=False,
        autopsy_at_ns=NEVER_NS,
        signalled=False,
        tries=down.tries + 1,
        since_ns=max(now, 1),
    )
    if state.refused:
        ours = replace(ours, phase="running", stop_since_ns=0, kill_at_ns=NEVER_NS)
        return begin_container(ours, now, down.deadline_ns, down.limit_ns, sleep_action=state.sleep_action)
    return replace(ours, phase="turn", hook_note=HANDED_OVER if down.spec.hook else down.hook_note), []


# --- the handlers


def _adopted(state: PodState, event: d.PodPlanned, now: int) -> Result:
    """A second shutdown adopts the pod: its hooks do not run again, and its grace goes on. If only one of the
    two observes the pod, it begins with its new wave. A container that the kubelet has started again has a
    grace of its own.
    """
    if state.means != event.means and "observe" in (state.means, event.means):
        state, decisions = _plan(event, now)
        # The kubelet may have run its hooks.
        return replace(state, downs=tuple(_hook_spent(down) for down in state.downs)), decisions
    # A cancel gives no new grace.
    state, decisions = replace(state, wave=event.wave, withdrawn=False), ()
    if event.means != state.means:
        state, decisions = _pass_over(state, 0, now)
    if not state.means or not state.begun or state.over:
        return state, decisions
    # The cancel had set SIGKILL's time to never.
    downs = tuple(
        replace(down, kill_at_ns=overdue_ns(now, down.deadline_ns, down.limit_ns))
        if state.means == "api" and down.phase == "stopping"
        else down
        for down in state.downs
    )
    state = replace(state, downs=downs)
    deadline_ns = now + event.grace_seconds * NS_PER_SECOND
    state, again = _stop_again(state, event.pod, now, deadline_ns, NEVER_NS)
    if state.means == "api" and not state.deleted and not state.delete_key:
        # Without an answer the kubelet may not know of the delete, and start the pod again.
        begun_anew = any(down.again and down.since_ns == max(now, 1) for down in state.downs)
        until_ns = deadline_ns if begun_anew else max(now, state.delete_until_ns)
        state, order = _order_delete(state, until_ns, now)
        decisions = [*decisions, order]
    return state, [*decisions, *again]


def _hook_spent(down: ContainerState) -> ContainerState:
    return replace(down, spec=replace(down.spec, hook=None), hook_note=HANDED_OVER if down.spec.hook else "")


def _plan(event: d.PodPlanned, now: int) -> Result:
    downs = tuple(
        ContainerState(
            uid=event.pod.uid,
            spec=spec,
            phase="running" if spec.running else "exited",
            exit_code=spec.exit_code,
            first_ordinal=event.first_ordinal,
        )
        for spec in event.pod.containers
    )
    deletion = event.pod.deletion
    if deletion is not None:
        signalled = [
            event.stopping and _was_signalled(downs, index, event, now) for index in range(len(downs))
        ]
        downs = tuple(
            replace(_hook_spent(down), signalled=each, stop_since_ns=max(now, 1) if each else 0)
            for down, each in zip(downs, signalled, strict=True)
        )
    return PodState(
        pod=event.pod,
        wave=event.wave,
        grace_ns=event.grace_seconds * NS_PER_SECOND,
        sleep_action=event.sleep_action,
        downs=downs,
        means=event.means,
        first_ordinal=event.first_ordinal if event.means == "api" else 0,
        # The object goes in any case.
        deleted=deletion is not None and bool(event.means),
        delete_until_ns=0 if deletion is None else deletion.until_ns,
    ), ()


def _was_signalled(downs: Sequence[ContainerState], index: int, event: d.PodPlanned, now: int) -> bool:
    """By the kubelet: not before a sidecar's turn, and not before the hook's end."""
    spec, deletion = downs[index].spec, event.pod.deletion
    assert deletion is not None
    over = spec.hook is None or spec.hook_over or spec.hook.kind == "tcpSocket"
    if spec.hook is not None and spec.hook.kind == "sleep":
        sleep_ns = spec.hook.sleep_seconds * NS_PER_SECOND if event.sleep_action else 0
        over = min(deletion.since_ns + sleep_ns, deletion.until_ns) <= now
    return over and _has_turn(downs, index)


def _planned(state: PodState, event: d.PodPlanned, now: int) -> Result:
    """After an unanswered delete the kubelet may run hooks."""
    planned, decisions = _plan(event, now)
    if event.again and _perhaps_deleted(state):
        planned = replace(planned, downs=tuple(map(_hook_spent, planned.downs)))
    return planned, decisions


def _perhaps_deleted(state: PodState) -> bool:
    return state.deletes > 0 and not state.refused


def _stop_began(state: PodState, event: d.PodStopBegan, now: int) -> Result:
    # 0 means "not begun".
    state = replace(state, begun_ns=max(now, 1), grace_ns=0 if state.hurried else event.grace_ns)
    if state.means in ("api", "observe"):
        return _begin_delegated(state, event, now)
    deadline_ns = now + state.grace_ns
    return _each_container(
        state,
        now,
        "running",
        lambda down: begin_container(
            down, now, deadline_ns, event.kill_by_ns, sleep_action=state.sleep_action
        ),
    )


def _container_exited(state: PodState, event: f.ContainerExited, now: int) -> Result:
    def step(down: ContainerState) -> ContainerStep:
        if down.spec.name != event.container or down.phase == "exited":
            return down, []
        down = replace(down, never_ran=event.never_ran)
        return note_exit(down, now, event)

    return _each_container(state, now, "", step)


def _runs_again(state: PodState, event: f.PodJoined, now: int) -> Result:
    """Not stopped now: before its stop, or after a cancel."""
    state = _with_unknown(state, event.pod)
    return replace(state, downs=tuple(_started_again(down, event.pod, 0) or down for down in state.downs)), ()


def _stopped_again(state: PodState, event: f.PodJoined, now: int) -> Result:
    """The container has the rest of the pod's grace, and the floor."""
    if state.withdrawn:
        return _runs_again(state, event, now)
    # A container that ended before the stop has no times of its own.
    deadline_ns = max(down.deadline_ns for down in state.downs)
    limit_ns = max(down.limit_ns for down in state.downs)
    return _stop_again(state, event.pod, now, deadline_ns, limit_ns)


def _stop_again(state: PodState, pod: Pod, now: int, deadline_ns: int, limit_ns: int) -> Result:
    state = _with_unknown(state, pod)

    def step(down: ContainerState) -> ContainerStep:
        again = _started_again(down, pod, max(now, 1))
        if down.phase == "running":  # since the cancel
            again = replace(down, since_ns=max(now, 1))
        if again is None:
            return down, []
        if state.means == "observe":
            return _under_watch(again, now), []
        if state.means == "api":
            return _under_delete(again, now, deadline_ns, limit_ns), []
        if _perhaps_deleted(state):
            again = _hook_spent(again)
        return begin_container(again, now, deadline_ns, limit_ns, sleep_action=state.sleep_action)

    return _each_container(state, now, "", step)


def _with_unknown(state: PodState, pod: Pod) -> PodState:
    """Add containers that no plan had: they had ended before."""
    names = [down.spec.name for down in state.downs]
    first_ordinal = max((down.first_ordinal for down in state.downs), default=state.first_ordinal)
    unknown = (each for each in pod.containers if each.running and each.name not in names)
    found = tuple(
        ContainerState(uid=pod.uid, spec=spec, phase="exited", first_ordinal=first_ordinal, tries=-1)
        for spec in unknown
    )
    return replace(state, downs=(*state.downs, *found)) if found else state


def _started_again(down: ContainerState, pod: Pod, since_ns: int) -> ContainerState | None:
    spec = next((each for each in pod.containers if each.name == down.spec.name), None)
    if down.phase != "exited" or spec is None or not spec.running:
        return None
    # Its hook has not run, and it had no signal. Its orders have new keys.
    return ContainerState(
        uid=down.uid,
        spec=spec,
        first_ordinal=down.first_ordinal,
        tries=down.tries + 1,
        again=down.tries + 1,
        since_ns=since_ns,
        killed_before=down.killed_before or died_of_our_kill(down),
    )


def _tick(state: PodState, event: f.Tick, now: int) -> Result:
    # Overdue steps waited for the new daemon's first look.
    waited_ns = now - state.daemon_ns if state.daemon_ns else NEVER_NS
    due_ns = now - STANDSTILL_NS
    if waited_ns > STANDSTILL_NS and any(down.due_ns() <= due_ns for down in state.downs):
        state = replace(state, downs=tuple(stood_still(down, now, due_ns) for down in state.downs))
    overdue = [
        down.phase == "stopping" and down.delegated and down.limit_ns > now >= down.kill_at_ns
        for down in state.downs
    ]
    if any(overdue):
        # The hand-over gives it its signal; else SIGKILL comes at the last possible moment.
        downs = tuple(
            replace(down, kill_at_ns=down.limit_ns, autopsy=True) if late else down
            for down, late in zip(state.downs, overdue, strict=True)
        )
        state = replace(state, downs=downs)
    state, decisions = _each_container(
        state, now, "", lambda down: _container_due(down, now, state.daemon_ns)
    )
    assert state.pod is not None
    return state, [d.DeleteOverdue(uid=state.pod.uid), *decisions] if any(overdue) else decisions


def _container_due(down: ContainerState, now: int, daemon_ns: int = 0) -> ContainerStep:
    if down.due_ns() > now or down.phase == "turn":
        return down, []
    if down.phase == "hook":
        return cut_hook(down, now, lost=now < daemon_ns + FOLLOWED_NS)
    if down.kill_at_ns <= now:
        return kill_container(down)
    order = d.TakeAutopsy(key=down.key("autopsy"), uid=down.uid, container=down.spec.name)
    return replace(down, autopsy=True), [order]


def _note_last_kill(state: PodState, event: d.PodStopBegan | d.DeadlineMoved, now: int) -> Result:
    """A kubelet that ends its pods by itself keeps its own limit."""
    if state.means == "observe":
        return state, ()
    downs = list(state.downs)
    for index, down in enumerate(downs):
        # Only ever sooner: the later waves need the time.
        last_ns = event.kill_by_ns - LAST_CHANCE_NS if down.delegated else event.kill_by_ns
        downs[index] = replace(down, limit_ns=event.kill_by_ns, kill_at_ns=min(down.kill_at_ns, last_ns))
    return replace(state, downs=tuple(downs)), ()


def _last_kill_moved(state: PodState, event: d.PodStopBegan | d.DeadlineMoved, now: int) -> Result:
    state, _ = _note_last_kill(state, event, now)
    return _shorten_delete(state, event.kill_by_ns - FLOOR_NS, now)


def _delete_noted(state: PodState, event: f.OrderEnded, now: int) -> Result:
    """Notes the outcome even after the pod's end: without a delete the kubelet may start ended containers
    again.
    """
    if parse_order_key(event.key).what != "delete":
        return state, ()
    asked = state.means == "api" and event.key == state.delete_key
    state = _note_delete(state, event)
    if state.pod is None or not asked or state.deleted:
        return state, ()
    return state, [d.DeleteRefused(uid=state.pod.uid, reason=event.reason or event.result)]


def _order_ended(state: PodState, event: f.OrderEnded, now: int) -> Result:
    key = parse_order_key(event.key)
    if key.what == "delete":
        return _delete_ended(state, event, now)
    answer = ORDER_ENDED_BY_KIND.get(key.what)
    if answer is None:
        return state, ()

    def step(down: ContainerState) -> ContainerStep:
        return answer(down, event, key, now) if down.spec.name == key.part else (down, [])

    return _each_container(state, now, "", step)


def _daemon_started(state: PodState, event: f.DaemonStarted, now: int) -> Result:
    """Without its outcome a stop signal may not have gone out: the floor counts from now. An open delete is
    repeated, so the first one may have been taken.
    """
    downs = tuple(
        _stopped_anew(down, now) if down.phase == "stopping" and down.stop_open else down
        for down in state.downs
    )
    deletes = state.deletes + 1 if state.delete_key else state.deletes
    daemon_ns = max(now, 1) if state.begun and not state.over else state.daemon_ns
    return replace(state, downs=downs, deletes=deletes, daemon_ns=daemon_ns), ()


def _autopsy_taken(state: PodState, event: f.AutopsyTaken, now: int) -> Result:
    # Only the first process gets the stop signal.
    first = event.processes[0] if event.processes else None
    signal = next((down.spec.stop_signal for down in state.downs if down.spec.name == event.container), "")
    if first is None or signal not in first.signals_ignored:
        return state, ()
    return replace(state, finding=f"its first process ignores {signal}"), ()


def _is_named(state: PodState, event: f.HurryRequested) -> bool:
    pod = state.pod
    named = pod is not None and event.pod in (pod.uid, pod.name, pod.label)
    return named and state.means != "observe"


def _hurry_later(state: PodState, event: f.HurryRequested, now: int) -> Result:
    if not _is_named(state, event):
        return state, ()
    return replace(state, hurried=True, finding=f"hurried by uid {event.asked_by}"), ()


def _hurry(state: PodState, event: f.HurryRequested, now: int) -> Result:
    if not _is_named(state, event):
        return state, ()
    state = replace(
        state,
        hurried=state.hurried or state.means == "api",
        grace_ns=min(state.grace_ns, now - state.begun_ns),
        finding=f"hurried by uid {event.asked_by}",
    )
    if state.means == "api":
        downs = tuple(
            replace(
                down,
                deadline_ns=min(down.deadline_ns, now),
                kill_at_ns=down.kill_at_ns
                if state.withdrawn
                else min(down.kill_at_ns, overdue_ns(now, now, down.limit_ns)),
            )
            for down in state.downs
        )
        return _shorten_delete(replace(state, downs=downs), now, now)
    downs = tuple(shorten_container(down, now) for down in state.downs)
    return _each_container(replace(state, downs=downs), now, "", lambda down: _container_due(down, now))


def _cancelled(state: PodState, event: d.ShutdownCancelled, now: int) -> Result:
    """A stop that has begun is finished; only the kubelet ends a deleted pod. A delete without an outcome is
    no begun stop, and a container that the kubelet starts from now on keeps running.
    """
    downs = tuple(
        replace(down, limit_ns=NEVER_NS, kill_at_ns=NEVER_NS if down.delegated else down.kill_at_ns)
        for down in state.downs
    )
    return replace(state, downs=downs, withdrawn=True), ()


def _given_up(state: PodState, event: d.PodsEnded, now: int) -> Result:
    # No hook outlives the pod's record. An open stop signal or SIGKILL is still wanted.
    running = [down for down in state.downs if down.phase == "hook" and down.hook_key]
    cancels = [d.CancelOrder(key=down.key("cut"), target=down.hook_key) for down in running]
    return replace(state, over=True), [*cancels, _pod_ended_event(state, now)]


def _never_begun(state: PodState, event: d.PodsEnded, now: int) -> Result:
    if all(down.phase == "exited" for down in state.downs):
        return replace(state, over=True), [_pod_ended_event(replace(state, begun_ns=now), now)]
    return _leave(state, "the lock was released before its wave", "unknown")


def _deadline(state: PodState) -> int:
    if state.over or not state.begun:
        return NEVER_NS
    return min(map(ContainerState.due_ns, state.downs), default=NEVER_NS)


HOOK = ActorType(
    NAME,
    PodState,
    _transitions(),
    deadline=_deadline,
    done=lambda state: state.over or not state.begun,
)

"""One container's way down, as a value: hook, turn, stop signal, autopsy, SIGKILL, exit.

    running -> hook -> turn -> stopping -> killed -> exited

Every arrow but the last is a decision; the last is an observation and may come at any time. The functions
here say what a container does next; `actors.hook` says when, and for which pod.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from msgspec.structs import replace

from ebbtide.actors.actor import NEVER_NS, State
from ebbtide.actors.policy.grace_periods import DELETE_SECONDS_MIN, FLOOR_NS
from ebbtide.actors.policy.termination_mode import SIGN_NS
from ebbtide.events.base import NS_PER_SECOND, Event, order_key, parse_order_key
from ebbtide.events.decisions import (
    CancelOrder,
    HookEnded,
    HookResult,
    HookStarted,
    KillContainer,
    RunHook,
    SendSignal,
    TakeAutopsy,
)
from ebbtide.events.facts import OrderEnded
from ebbtide.events.values import Container

#: The actor whose orders these are (`actors.hook`).
NAME = "HookActor"

#: How long before the last possible SIGKILL a kubelet is given up.
LAST_CHANCE_NS = NS_PER_SECOND

#: How long before SIGKILL a straggler is looked at.
AUTOPSY_BEFORE_KILL_NS = 250_000_000

#: How late a deadline is met by a daemon that has stood still; by load alone it is tens of milliseconds.
STANDSTILL_NS = NS_PER_SECOND
#: What a hook has then that perhaps begins only now: most take less.
HOOK_LOOK_NS = NS_PER_SECOND // 2

#: The largest number that a state can be written with. A sleep of so many seconds as the API server takes
#: (any of 63 bits) would end later, and a daemon that cannot write its states down ends in mid-shutdown.
#: Every number that could be written stays as it was, and with it the digests of old journals.
UNTIL_NS_MAX = (1 << 64) - 1

ContainerPhase = Literal["running", "hook", "turn", "stopping", "killed", "exited"]


class ContainerState(State, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """``deadline_ns`` is the end of the pod's grace, ``limit_ns`` the shutdown's last possible SIGKILL."""

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
    #: The stop signal is ordered, and its outcome not known yet.
    stop_open: bool = False
    autopsy: bool = False
    killed: bool = False
    tries: int = 0
    first_ordinal: int = 0
    exit_code: int | None = None
    exit_signal: str = ""
    hook_note: str = ""
    error: str = ""
    #: The kubelet runs the hook and stops it, asked by the API or of its own accord.
    delegated: bool = False
    #: Before the kubelet's SIGKILL, not only before ours.
    autopsy_at_ns: int = NEVER_NS
    #: What the stop's outcome leaves to say.
    stop_note: str = ""
    #: SIGKILL is ordered, and its outcome not known yet.
    kill_open: bool = False
    #: Nobody saw it end, and that our SIGKILL has met it is not known.
    end_unseen: bool = False
    #: Started again by its kubelet since its end was on record: the first of its tries since then.
    again: int = 0
    #: Since when it has had its time, where that is later than its pod.
    since_ns: int = 0
    #: Our SIGKILL has ended one that ran before under its name.
    killed_before: bool = False

    @property
    def stop_by_ns(self) -> int:
        """Latest time of the stop signal: the grace's end, or the floor before the last possible SIGKILL.

        Without the reserve the last wave's grace ends after that, and a hook would cost it its stop signal.
        """
        return min(self.deadline_ns, self.limit_ns - FLOOR_NS)

    def due_ns(self) -> int:
        """When this container wants to be looked at again."""
        if self.phase == "hook":
            return min(self.hook_until_ns, self.stop_by_ns)
        if self.phase == "turn":
            return self.stop_by_ns
        if self.phase == "stopping":
            # Looked at first, because SIGKILL takes away what there is to see; whoever was looked at is due
            # once more.
            first_look_ns = min(self.autopsy_at_ns, self.kill_at_ns - AUTOPSY_BEFORE_KILL_NS)
            return self.kill_at_ns if self.autopsy else first_look_ns
        return NEVER_NS

    def key(self, what: str) -> str:
        return order_key(NAME, f"{what}:{self.spec.name}", self.uid, self.first_ordinal + self.tries)


ContainerStep = tuple[ContainerState, list[Event]]


def started_again(down: ContainerState, spec: Container, since_ns: int) -> ContainerState:
    """Its kubelet has started it again: another container, whose hook has not run, and which nobody has told
    to stop. Its orders are other ones. That ours was killed stays true of the pod.
    """
    return ContainerState(
        uid=down.uid,
        spec=spec,
        first_ordinal=down.first_ordinal,
        tries=down.tries + 1,
        again=down.tries + 1,
        since_ns=since_ns,
        killed_before=down.killed_before or died_of_our_kill(down),
    )


def died_of_our_kill(down: ContainerState) -> bool:
    """A runtime tells SIGKILL as 128 + 9. Of an adopted process nothing is told, and ours came last."""
    unseen = not down.exit_signal and down.exit_code in (None, 137)
    killed = down.phase == "exited" and down.killed and not down.end_unseen
    return killed and (down.exit_signal == "SIGKILL" or unseen)


# --- hook --------------------------------------------------------------------------------------


def begin(
    down: ContainerState, now: int, deadline_ns: int, limit_ns: int, *, sleep_action: bool
) -> ContainerStep:
    """The container's pod is told to stop. Without grace no hook runs, as in the kubelet."""
    down = replace(down, deadline_ns=deadline_ns, limit_ns=limit_ns)
    hook = down.spec.hook
    if hook is None:
        return replace(down, phase="turn"), []
    if down.stop_by_ns <= now:
        return _skip_hook(down, "not-run", "no grace left for it")
    if hook.kind == "sleep":
        # A sleep is a deadline, not an effect (KEP-3960): nothing runs anywhere, so nothing is lost in a
        # restart, and an end of the container or of the grace ends it without a cancel.
        if not sleep_action:
            return _skip_hook(down, "done", "the gate PodLifecycleSleepAction is off")
        if hook.sleep_seconds <= 0:
            return _skip_hook(down, "done", "")
        until_ns = min(now + hook.sleep_seconds * NS_PER_SECOND, UNTIL_NS_MAX)
        shown_ns = min(until_ns, down.stop_by_ns)
        started = HookStarted(uid=down.uid, container=down.spec.name, kind="sleep", until_ns=shown_ns)
        return replace(down, phase="hook", hook_since_ns=now, hook_until_ns=until_ns), [started]
    if hook.kind == "tcpSocket":
        # The API server takes it, and the kubelet starts it and fails: so both are on record here.
        started = HookStarted(uid=down.uid, container=down.spec.name, kind=hook.kind, until_ns=now)
        down, ended = _skip_hook(down, "failed", "invalid handler: tcpSocket cannot be a preStop hook")
        return down, [started, *ended]
    key = down.key("hook")
    order = RunHook(key=key, uid=down.uid, container=down.spec.name, timeout_ns=down.stop_by_ns - now)
    started = HookStarted(uid=down.uid, container=down.spec.name, kind=hook.kind, until_ns=down.stop_by_ns)
    return replace(down, phase="hook", hook_since_ns=now, hook_key=key), [started, order]


def _skip_hook(down: ContainerState, result: HookResult, reason: str) -> ContainerStep:
    note = "" if result == "done" else f"preStop {result}: {reason}"
    ended = HookEnded(uid=down.uid, container=down.spec.name, result=result, reason=reason)
    return replace(down, phase="turn", hook_note=note), [ended]


def end_hook(
    down: ContainerState, now: int, result: HookResult, reason: str = "", *, early: bool = False
) -> ContainerStep:
    """The hook is over, however; the container waits for its turn."""
    note = "" if result == "done" else f"preStop {result}" + (f": {reason}" if reason else "")
    ended = HookEnded(
        uid=down.uid,
        container=down.spec.name,
        result=result,
        reason=reason,
        early=early,
        elapsed_ns=now - down.hook_since_ns,
    )
    return replace(down, phase="turn", hook_until_ns=NEVER_NS, hook_note=note), [ended]


#: After so long a daemon that has started follows what runs, or has heard that it does not.
FOLLOWED_NS = NS_PER_SECOND // 4
#: Of an order that a daemon left open, and that its successor does not follow.
LOST = "its outcome was lost with the daemon"


def cut_hook(down: ContainerState, now: int, *, lost: bool = False) -> ContainerStep:
    """The grace is over while the hook runs: it is cancelled, and nobody waits for it any longer.

    ``lost``: its daemon has died, and the next one cannot know yet whether it has ended before.
    """
    if not down.hook_key:
        if down.hook_until_ns <= now:
            return end_hook(down, now, "done")
        return end_hook(down, now, "timed-out", "the grace was over before the sleep was", early=True)
    cancel = CancelOrder(key=down.key("cut"), target=down.hook_key, timed_out=True)
    # Of a call to a runtime that has stopped answering nobody knows whether the hook has begun.
    why = "had not ended when the grace was over"
    result: HookResult = "unknown" if lost else "timed-out"
    down, ended = end_hook(down, now, result, LOST if lost else why)
    return down, [cancel, *ended]


def abandon_hook(down: ContainerState) -> list[Event]:
    """The last word on the pod is said: no effect of its actor outlives that."""
    running = down.phase == "hook" and down.hook_key
    return [CancelOrder(key=down.key("cut"), target=down.hook_key)] if running else []


# --- stop --------------------------------------------------------------------------------------


def stop(down: ContainerState, now: int) -> ContainerStep:
    """The stop signal; SIGKILL follows at the end of the grace, but never sooner than the floor after it."""
    # The floor wins over the grace (a hook may have used all of it), and the shutdown's limit over both: a
    # SIGKILL after it would come when the lock is released already, and its outcome be on record nowhere.
    kill_at_ns = max(now, min(max(down.deadline_ns, now + FLOOR_NS), down.limit_ns))
    order = _stop_signal(down)
    down = replace(down, phase="stopping", stop_since_ns=now, kill_at_ns=kill_at_ns, stop_open=True)
    return down, [order]


def _stop_signal(down: ContainerState) -> SendSignal:
    return SendSignal(
        key=down.key("stop"),
        uid=down.uid,
        container=down.spec.name,
        signal=down.spec.stop_signal,
    )


def resume_stop(down: ContainerState, now: int) -> ContainerState:
    """A daemon died before the outcome: perhaps nothing was sent. The floor counts from now."""
    if down.phase != "stopping" or not down.stop_open:
        return down
    kill_at_ns = max(down.kill_at_ns, min(now + FLOOR_NS, down.limit_ns))
    return replace(down, stop_since_ns=now, kill_at_ns=kill_at_ns)


def stood_still(down: ContainerState, now: int, due_ns: int) -> ContainerState:
    """A daemon that comes to its deadlines long after ``due_ns`` has stood still, or the machine has: what it
    ordered last may not have begun. A stop signal without an outcome has the floor from now; a hook a moment.
    """
    if down.phase == "stopping" and down.stop_open and down.kill_at_ns <= due_ns:
        kill_at_ns = max(down.kill_at_ns, min(now + FLOOR_NS, down.limit_ns))
        return replace(down, stop_since_ns=now, kill_at_ns=kill_at_ns, since_ns=now)
    if down.phase == "hook" and down.hook_key and down.stop_by_ns <= due_ns:
        return replace(down, deadline_ns=now + HOOK_LOOK_NS, since_ns=now)
    return down


def repeat_stop(down: ContainerState) -> ContainerStep:
    """The daemon died between the call and its record: the signal is sent once more, its time goes on."""
    down = replace(down, tries=down.tries + 1, stop_open=True)
    return down, [_stop_signal(down)]


def autopsy(down: ContainerState) -> ContainerStep:
    order = TakeAutopsy(key=down.key("autopsy"), uid=down.uid, container=down.spec.name)
    return replace(down, autopsy=True), [order]


def overdue_ns(now: int, deadline_ns: int, limit_ns: int) -> int:
    """When a deleted pod that still runs shows that its kubelet has failed.

    A delete gives a second at least. A hook that took all of the grace has 2 s after it, and a kubelet some
    time to act. A container that it has not stopped gets its signal before the last possible SIGKILL.
    """
    grace_until_ns = max(deadline_ns, now + DELETE_SECONDS_MIN * NS_PER_SECOND)
    return max(now, min(grace_until_ns + FLOOR_NS + SIGN_NS, limit_ns - LAST_CHANCE_NS))


def kill(down: ContainerState) -> ContainerStep:
    """SIGKILL for the whole tree; said again after a restart that lost its outcome."""
    if down.killed:
        down = replace(down, tries=down.tries + 1)
    order = KillContainer(key=down.key("kill"), uid=down.uid, container=down.spec.name)
    return replace(down, phase="killed", killed=True, kill_open=True), [order]


def exited(
    down: ContainerState, now: int, exit_code: int | None, signal: str, *, gone: bool = False
) -> ContainerStep:
    """Observed. A hook of a container that is gone has nothing to wait for (kubernetes#134338)."""
    decisions: list[Event] = []
    why = "the container has exited"
    if down.phase == "hook" and not down.hook_key:
        down, decisions = end_hook(down, now, "done", why, early=True)
    elif down.phase == "hook":
        cancel = CancelOrder(key=down.key("cut"), target=down.hook_key)
        down, ended = end_hook(down, now, "cancelled", why)
        decisions = [cancel, *ended]
    # A SIGKILL that is done has met it: whom it does not find is said to be gone before its outcome is.
    unmet = down.killed and (down.kill_open or down.error != "")
    end_unseen = gone and unmet
    down = replace(down, phase="exited", exit_code=exit_code, exit_signal=signal, end_unseen=end_unseen)
    return down, decisions


def shorten(down: ContainerState, now: int) -> ContainerState:
    """No more waiting: the grace ends now, the floor stays (``ebbtide hurry``)."""
    kill_at_ns = down.kill_at_ns
    if down.phase == "stopping":
        # The floor counts from the signal: who has had it already is not given it anew.
        kill_at_ns = max(now, min(down.stop_since_ns + FLOOR_NS, kill_at_ns))
    return replace(down, deadline_ns=min(down.deadline_ns, now), kill_at_ns=kill_at_ns)


def limit(down: ContainerState, limit_ns: int) -> ContainerState:
    """The shutdown's last possible SIGKILL has moved."""
    # Only ever sooner: a limit that moves away finds the pods' ends laid out, and the waves behind them.
    last_ns = limit_ns - LAST_CHANCE_NS if down.delegated else limit_ns
    return replace(down, limit_ns=limit_ns, kill_at_ns=min(down.kill_at_ns, last_ns))


# What the outcome of an order means for the container that it was about.
#
# A lost outcome (``unknown``: the daemon died in between) is the interesting one. A hook counts as spent: it
# may have drained half a queue, and what it does need not bear being done twice. A stop signal and SIGKILL
# are sent again: a second one harms nobody, a missing one costs the pod its grace, or the machine its time.


def _hook_order_ended(down: ContainerState, event: OrderEnded, now: int) -> ContainerStep:
    if down.phase != "hook" or event.key != down.hook_key:
        return down, []
    return end_hook(down, now, event.result, event.reason)


def _is_former(down: ContainerState, event: OrderEnded) -> bool:
    """Is it the outcome of an order from before the first of these tries?"""
    return int(parse_order_key(event.key).ordinal) < down.first_ordinal + down.again


def _stop_order_ended(down: ContainerState, event: OrderEnded, now: int) -> ContainerStep:
    """Lost with its daemon it is sent again. What an edge has sent without an answer (``timed-out``) is not:
    somebody may have heard it, also where that edge has adopted the order and sent it a second time.
    """
    if _is_former(down, event):  # what it was told before its kubelet started it again
        return down, []
    signal, name = down.spec.stop_signal, down.spec.name
    down = replace(down, stop_open=False)
    if down.phase == "stopping" and event.result == "unknown":
        return repeat_stop(down)
    error = event.reason if event.result == "failed" else ""
    not_known = f"whether {name} got {signal} is not known"
    notes = {
        "unknown": not_known,
        "timed-out": not_known,
        "failed": f"{signal} did not reach {name}: {error}",
    }
    return replace(down, stop_note=notes.get(event.result, ""), error=error), []


def _kill_order_ended(down: ContainerState, event: OrderEnded, now: int) -> ContainerStep:
    if down.again and _is_former(down, event):
        return down, []
    if down.phase == "killed" and event.result == "unknown":
        return kill(down)
    error = event.reason if event.result == "failed" else ""
    return replace(down, error=error, kill_open=False), []


#: What an order's outcome means, by the order's word in its key.
ORDER_ENDED_BY_KIND: dict[str, Callable[[ContainerState, OrderEnded, int], ContainerStep]] = {
    "hook": _hook_order_ended,
    "stop": _stop_order_ended,
    "kill": _kill_order_ended,
}

"""The steps of one container's stop: hook, turn, stop signal, autopsy, SIGKILL, exit.

    running -> hook -> turn -> stopping -> killed -> exited

A container may exit in any phase. These functions decide a container's next step; `actors.hook` decides when.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from msgspec.structs import replace

from ebbtide.actors.actor import NEVER_NS, State
from ebbtide.actors.policy.grace_periods import DELETE_SECONDS_MIN, FLOOR_NS
from ebbtide.actors.policy.termination_mode import SIGN_NS
from ebbtide.events import decisions as d
from ebbtide.events import facts as f
from ebbtide.events import kinds
from ebbtide.events.base import NS_PER_SECOND, Event, order_key, parse_order_key
from ebbtide.events.values import Container

#: The actor that gives these orders (`actors.hook`).
NAME = "HookActor"

#: The kubelet fails at the latest so long before the last possible SIGKILL.
LAST_CHANCE_NS = NS_PER_SECOND

#: How long before SIGKILL a straggler is examined.
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
    autopsy: bool = False
    killed: bool = False
    tries: int = 0
    first_ordinal: int = 0
    exit_code: int | None = None
    exit_signal: kinds.Signal = ""
    hook_note: str = ""
    error: str = ""
    #: The kubelet runs the hook and stops the container: its pod is deleted, or it does so by itself.
    delegated: bool = False
    #: Before the kubelet's SIGKILL.
    autopsy_at_ns: int = NEVER_NS
    #: What the stop's outcome adds to the pod's fate.
    stop_note: str = ""
    #: SIGKILL is ordered, without an outcome yet.
    kill_open: bool = False
    #: It ended unobserved, and our SIGKILL may not have ended it.
    end_unseen: bool = False
    #: The kubelet started it again after its recorded end: the first of its tries since.
    again: int = 0
    #: When its time began, if later than the pod's.
    since_ns: int = 0
    #: Our SIGKILL ended an earlier container of this name.
    killed_before: bool = False

    @property
    def stop_by_ns(self) -> int:
        """Latest time of the stop signal. In the last wave the floor must fit before the last possible
        SIGKILL.
        """
        return min(self.deadline_ns, self.limit_ns - FLOOR_NS)

    def due_ns(self) -> int:
        """When the container needs its next step."""
        if self.phase == "hook":
            return min(self.hook_until_ns, self.stop_by_ns)
        if self.phase == "turn":
            return self.stop_by_ns
        if self.phase == "stopping":
            # Examine it first: SIGKILL removes the evidence.
            first_look_ns = min(self.autopsy_at_ns, self.kill_at_ns - AUTOPSY_BEFORE_KILL_NS)
            return self.kill_at_ns if self.autopsy else first_look_ns
        return NEVER_NS

    def key(self, what: str) -> str:
        return order_key(NAME, f"{what}:{self.spec.name}", self.uid, self.first_ordinal + self.tries)


ContainerStep = tuple[ContainerState, list[Event]]


def started_again(down: ContainerState, spec: Container, since_ns: int) -> ContainerState:
    """Another container under the same name: its hook has not run, and it had no signal. Its orders have new
    keys.
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
    """A runtime reports SIGKILL as 128 + 9. An adopted process has no exit code; our SIGKILL came last."""
    unseen = not down.exit_signal and down.exit_code in (None, 137)
    killed = down.phase == "exited" and down.killed and not down.end_unseen
    return killed and (down.exit_signal == "SIGKILL" or unseen)


# --- hook --------------------------------------------------------------------------------------


def begin(
    down: ContainerState, now: int, deadline_ns: int, limit_ns: int, *, sleep_action: bool
) -> ContainerStep:
    """Begin the stop. Without grace no hook runs, as in the kubelet."""
    down = replace(down, deadline_ns=deadline_ns, limit_ns=limit_ns)
    hook = down.spec.hook
    if hook is None:
        return replace(down, phase="turn"), []
    if down.stop_by_ns <= now:
        return _skip_hook(down, "not-run", "no grace left for it")
    if hook.kind == "sleep":
        # A sleep is a deadline, not an effect (KEP-3960): it survives a restart and needs no cancel.
        if not sleep_action:
            return _skip_hook(down, "done", "the gate PodLifecycleSleepAction is off")
        if hook.sleep_seconds <= 0:
            return _skip_hook(down, "done", "")
        until_ns = min(now + hook.sleep_seconds * NS_PER_SECOND, UNTIL_NS_MAX)
        shown_ns = min(until_ns, down.stop_by_ns)
        started = d.HookStarted(uid=down.uid, container=down.spec.name, kind="sleep", until_ns=shown_ns)
        return replace(down, phase="hook", hook_since_ns=now, hook_until_ns=until_ns), [started]
    if hook.kind == "tcpSocket":
        # The API server accepts it, the kubelet starts it and fails: record both.
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
    """The container waits for its turn."""
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


#: By then a new daemon follows a running hook, or has found it gone.
FOLLOWED_NS = NS_PER_SECOND // 4
#: For an order without a follower after the daemon's death.
LOST = "its outcome was lost with the daemon"


def cut_hook(down: ContainerState, now: int, *, lost: bool = False) -> ContainerStep:
    """Cancel a hook that still runs at the end of the grace. ``lost``: its daemon died, so it may have ended
    before.
    """
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


def abandon_hook(down: ContainerState) -> list[Event]:
    """No effect outlives the pod's record."""
    running = down.phase == "hook" and down.hook_key
    return [d.CancelOrder(key=down.key("cut"), target=down.hook_key)] if running else []


# --- stop --------------------------------------------------------------------------------------


def stop(down: ContainerState, now: int) -> ContainerStep:
    """The stop signal. SIGKILL follows at the end of the grace, and 2 s after the signal at the soonest."""
    # The floor outweighs the grace, which a hook may have used up. The limit outweighs both: a later SIGKILL
    # would come after the release.
    kill_at_ns = max(now, min(max(down.deadline_ns, now + FLOOR_NS), down.limit_ns))
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


def resume_stop(down: ContainerState, now: int) -> ContainerState:
    """A daemon died before the outcome, so the signal may not have gone out. The floor counts from now."""
    if down.phase != "stopping" or not down.stop_open:
        return down
    kill_at_ns = max(down.kill_at_ns, min(now + FLOOR_NS, down.limit_ns))
    return replace(down, stop_since_ns=now, kill_at_ns=kill_at_ns)


def stood_still(down: ContainerState, now: int, due_ns: int) -> ContainerState:
    """After a standstill the last order may not have begun: a stop signal has the floor from now, a hook half
    a second.
    """
    if down.phase == "stopping" and down.stop_open and down.kill_at_ns <= due_ns:
        kill_at_ns = max(down.kill_at_ns, min(now + FLOOR_NS, down.limit_ns))
        return replace(down, stop_since_ns=now, kill_at_ns=kill_at_ns, since_ns=now)
    if down.phase == "hook" and down.hook_key and down.stop_by_ns <= due_ns:
        return replace(down, deadline_ns=now + HOOK_LOOK_NS, since_ns=now)
    return down


def repeat_stop(down: ContainerState) -> ContainerStep:
    """The daemon died between the call and its record. The container's time goes on."""
    down = replace(down, tries=down.tries + 1, stop_open=True)
    return down, [_stop_signal(down)]


def autopsy(down: ContainerState) -> ContainerStep:
    order = d.TakeAutopsy(key=down.key("autopsy"), uid=down.uid, container=down.spec.name)
    return replace(down, autopsy=True), [order]


def overdue_ns(now: int, deadline_ns: int, limit_ns: int) -> int:
    """When a deleted pod that still runs proves that its kubelet has failed.

    A delete gives at least a second. A container has 2 s after a hook that took all of the grace, and the
    kubelet needs time to act. A container without a signal gets one before the last possible SIGKILL.
    """
    grace_until_ns = max(deadline_ns, now + DELETE_SECONDS_MIN * NS_PER_SECOND)
    return max(now, min(grace_until_ns + FLOOR_NS + SIGN_NS, limit_ns - LAST_CHANCE_NS))


def kill(down: ContainerState) -> ContainerStep:
    """SIGKILL for the process tree. Repeated if a restart lost the outcome."""
    if down.killed:
        down = replace(down, tries=down.tries + 1)
    order = d.KillContainer(key=down.key("kill"), uid=down.uid, container=down.spec.name)
    return replace(down, phase="killed", killed=True, kill_open=True), [order]


def exited(
    down: ContainerState, now: int, exit_code: int | None, signal: str, *, gone: bool = False
) -> ContainerStep:
    """A hook of a container that is gone ends too (kubernetes#134338)."""
    decisions: list[Event] = []
    why = "the container has exited"
    if down.phase == "hook" and not down.hook_key:
        down, decisions = end_hook(down, now, "done", why, early=True)
    elif down.phase == "hook":
        cancel = d.CancelOrder(key=down.key("cut"), target=down.hook_key)
        down, ended = end_hook(down, now, "cancelled", why)
        decisions = [cancel, *ended]
    # SIGKILL ended it only if the order is done: a container that SIGKILL does not find is reported gone
    # first.
    unmet = down.killed and (down.kill_open or down.error != "")
    end_unseen = gone and unmet
    down = replace(down, phase="exited", exit_code=exit_code, exit_signal=signal, end_unseen=end_unseen)
    return down, decisions


def shorten(down: ContainerState, now: int) -> ContainerState:
    """``ebbtide hurry``: the grace ends now, the floor stays."""
    kill_at_ns = down.kill_at_ns
    if down.phase == "stopping":
        # The floor counts from the first signal.
        kill_at_ns = max(now, min(down.stop_since_ns + FLOOR_NS, kill_at_ns))
    return replace(down, deadline_ns=min(down.deadline_ns, now), kill_at_ns=kill_at_ns)


def limit(down: ContainerState, limit_ns: int) -> ContainerState:
    """The shutdown's last possible SIGKILL moved."""
    # Only ever sooner: the later waves need the time.
    last_ns = limit_ns - LAST_CHANCE_NS if down.delegated else limit_ns
    return replace(down, limit_ns=limit_ns, kill_at_ns=min(down.kill_at_ns, last_ns))


# The outcomes of a container's orders. ``unknown``: the daemon died before the outcome. A hook then counts as
# spent, because running it twice may do harm. Stop signal and SIGKILL are repeated: without them the pod
# loses its grace, or the machine its time.


def _hook_order_ended(down: ContainerState, event: f.OrderEnded, now: int) -> ContainerStep:
    if down.phase != "hook" or event.key != down.hook_key:
        return down, []
    return end_hook(down, now, event.result, event.reason)


def _is_former(down: ContainerState, event: f.OrderEnded) -> bool:
    """Is it the outcome of an order to an earlier container of this name?"""
    return int(parse_order_key(event.key).ordinal) < down.first_ordinal + down.again


def _stop_order_ended(down: ContainerState, event: f.OrderEnded, now: int) -> ContainerStep:
    """Repeat a signal that was lost with its daemon. After ``timed-out`` the container may have it."""
    if _is_former(down, event):
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


def _kill_order_ended(down: ContainerState, event: f.OrderEnded, now: int) -> ContainerStep:
    if down.again and _is_former(down, event):
        return down, []
    if down.phase == "killed" and event.result == "unknown":
        return kill(down)
    error = event.reason if event.result == "failed" else ""
    return replace(down, error=error, kill_open=False), []


#: By the order's name in its key.
ORDER_ENDED_BY_KIND: dict[str, Callable[[ContainerState, f.OrderEnded, int], ContainerStep]] = {
    "hook": _hook_order_ended,
    "stop": _stop_order_ended,
    "kill": _kill_order_ended,
}

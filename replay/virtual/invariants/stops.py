"""Pods and cancels: nothing twice, nothing too early, nothing too late, nobody who has not begun."""

from __future__ import annotations

from collections.abc import Iterator

from events.base import NS_PER_SECOND
from events.decisions import (
    DeadlineMoved,
    EpisodeClosed,
    PodsEnded,
    PodStopBegan,
    ShutdownBegan,
    ShutdownCancelled,
    StartPod,
)
from replay.virtual.invariants.words import Breaches, name, seconds, times
from replay.virtual.kubelet import KUBELET
from replay.virtual.pods import Box
from replay.virtual.trail import MS, Seen
from replay.virtual.view import BootView

FLOOR_NS = 2 * NS_PER_SECOND

#: Between a daemon's start and its having caught up with what it missed.
CATCH_UP_NS = NS_PER_SECOND

#: A delete is tried for 1.5 s, and its grace is a second at the least.
KUBELET_ASKS_NS = 3000 * MS


def no_hook_twice(view: BootView) -> Breaches:
    """A container's hook runs at most once in a shutdown, over all daemons that know of it (rule 4)."""
    if view.hurt:
        return
    for box in view.boxes():
        for hooks in _by_shutdown(view, box, view.of_box(box, "hook")):
            if len(hooks) > 1 and not any(hook.late for hook in hooks[:-1]):
                yield f"{name(box)} ran its hook {len(hooks)} times, at {times(hooks)}"


def no_stop_twice(view: BootView) -> Breaches:
    """The stop signal is repeated only by another daemon."""
    for box in view.boxes():
        for signals in _by_shutdown(view, box, view.of_box(box, "signal")):
            lives = [seen.life for seen in signals if not seen.detail]
            if len(lives) != len(dict.fromkeys(lives)):
                yield f"{name(box)} got its stop signal from daemons {lives}"


def _by_shutdown(view: BootView, box: Box, seen: list[Seen]) -> list[list[Seen]]:
    """Parted where the pod's case was closed while it ran: the next shutdown begins with it anew."""
    if len(seen) < 2:
        return [seen]
    ends = [at_ns for at_ns, _ in view.ends(box.uid)]
    parts: dict[int, list[Seen]] = {}
    for each in seen:
        parts.setdefault(sum(end <= each.at_ns for end in ends), []).append(each)
    return list(parts.values())


def nobody_is_touched_without_a_shutdown(view: BootView) -> Breaches:
    """Before the first word of a shutdown no pod is harmed."""
    first_ns = min((seen.at_ns for seen in view.of("shutdown", "stopping")), default=view.ended_ns + 1)
    for seen in view.of("hook", "signal", "kill"):
        if seen.at_ns < first_ns:
            yield f"{seen.what} for {seen.uid}/{seen.container} at {seconds(seen.at_ns)} without any shutdown"


def grace_is_kept(view: BootView) -> Breaches:
    """No SIGKILL comes before the grace is over and the floor passed, but for the shutdown's own limit."""
    for box in view.boxes():
        for kill in [kill for kill in view.of_box(box, "kill") if kill.life != KUBELET][:1]:
            if kill.detail == "not running":
                continue
            began = _told(view, box)
            if began is None:
                yield f"{name(box)} was killed at {seconds(kill.at_ns)} without having been told to stop"
            elif not _may_kill(view, box, kill, *began):
                yield f"{name(box)} was killed too early, at {seconds(kill.at_ns)}"


def _told(view: BootView, box: Box) -> tuple[int, PodStopBegan] | None:
    """When its stop began: one that was then spared, because no delete was taken, begins anew."""
    for at_ns, began in view.stop_begins(box.uid):
        outcomes = [end.outcome for end_ns, end in view.ends(box.uid) if end_ns >= at_ns]
        if outcomes[:1] != ["spared"]:
            return at_ns, began
    return None


def _may_kill(view: BootView, box: Box, kill: Seen, began_ns: int, event: PodStopBegan) -> bool:
    signals = view.of_box(box, "signal")
    if any(limit_ns <= kill.at_ns + MS for limit_ns in _limits(view, box.uid)):
        return True
    # The kubelet's clock runs from when it heard of the delete, ours from when it was ordered.
    if view.by_kubelet(box.uid) and kill.at_ns >= began_ns + event.grace_ns + FLOOR_NS - MS:
        return True
    if not signals or kill.at_ns < signals[0].at_ns + FLOOR_NS - view.slack_ns:
        return False
    hurried = any(seen.uid == box.uid for seen in view.of("hurry"))
    return hurried or kill.at_ns >= began_ns + event.grace_ns - MS


def _limits(view: BootView, uid: str) -> Iterator[int]:
    """Every last moment for SIGKILL that was ever decided, in world time."""
    for _, began in view.stop_begins(uid):
        yield view.mono_at_ns(began.kill_by_ns)
    for _, moved in view.events(DeadlineMoved):
        yield view.mono_at_ns(moved.kill_by_ns)


def nobody_gets_more_than_the_grace(view: BootView) -> Breaches:
    """When the grace is over a container has its stop signal, and SIGKILL as soon as the floor allows."""
    if view.hurt:
        return
    for box in view.boxes():
        told = _told(view, box)
        if told is None or view.by_kubelet(box.uid) == "observe":
            continue
        began_ns, began = told
        stop_by_ns = began_ns + began.grace_ns + view.slack_ns + _asks_ns(view, box)
        stops = view.of_box(box, "signal")
        if not stops and _answerable(view, box, began_ns, stop_by_ns):
            yield f"{name(box)} had no stop signal by {seconds(stop_by_ns)}, when its grace was over"
        if stops:
            kill_by_ns = max(stop_by_ns, stops[-1].at_ns + FLOOR_NS + view.slack_ns)
            kills = view.of_box(box, "kill")
            if (not kills or kills[0].at_ns > kill_by_ns) and _answerable(view, box, began_ns, kill_by_ns):
                yield f"{name(box)} was not killed by {seconds(kill_by_ns)}"


def _asks_ns(view: BootView, box: Box) -> int:
    """What it takes to have a kubelet do it: whole seconds of grace, a delete on its way, or refused."""
    return KUBELET_ASKS_NS if view.by_kubelet(box.uid) else 0


def _answerable(view: BootView, box: Box, began_ns: int, at_ns: int) -> bool:
    """Whether the container still ran, and a daemon was there that had to do something about it."""
    since_ns = max(began_ns, at_ns - view.slack_ns - CATCH_UP_NS)
    runs = view.exit_ns(box) > at_ns
    return runs and view.served_through(since_ns, at_ns) and at_ns < _given_up_ns(view, began_ns)


def _given_up_ns(view: BootView, after_ns: int) -> int:
    """When pods were nobody's business any more: the end of the budget, or of the machine."""
    ends = (view.at_ns(record) for record, _ in view.events(PodsEnded))
    return min([end for end in ends if end >= after_ns] + [view.stopping_ns])


def a_cancel_spares_who_has_not_begun(view: BootView) -> Breaches:
    """After a cancel nobody new is told to stop, unless the machine goes down past logind."""
    off = view.of("withdraw", "shutdown", "stopping")
    for record, event in view.events(PodStopBegan):
        at_ns = view.at_ns(record)
        if at_ns >= view.stopping_ns:
            continue
        last = [seen for seen in off if seen.at_ns <= at_ns - view.slack_ns]
        later = any(at_ns - view.slack_ns < seen.at_ns <= at_ns for seen in off)
        if last and last[-1].what == "withdraw" and not later and _heard(view, last[-1], at_ns):
            yield f"{event.uid} was told to stop at {seconds(at_ns)}, cancelled at {seconds(last[-1].at_ns)}"


def _heard(view: BootView, withdrawn: Seen, at_ns: int) -> bool:
    """Whether a daemon was there and on the bus to hear of the cancel."""
    broken = any(
        withdrawn.at_ns - 2 * NS_PER_SECOND <= seen.at_ns <= at_ns
        for seen in view.of("bus-lost", "logind-gone", "logind-back")
    )
    return not broken and view.served_through(withdrawn.at_ns, at_ns)


def late_pods_are_rejected(view: BootView) -> Breaches:
    """While the node goes down no pod is started."""
    if view.hurt:
        return
    down = False
    for record in view.records:
        if isinstance(record.event, ShutdownBegan):
            down = True
        elif isinstance(record.event, ShutdownCancelled | EpisodeClosed):
            down = False
        elif isinstance(record.event, StartPod) and down:
            yield f"record {record.seq}: {record.event.uid} is started in a shutdown"

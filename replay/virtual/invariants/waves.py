"""Waves and the lock: in order, nobody forgotten, released in time and not before."""

from __future__ import annotations

from itertools import pairwise

from actors.policy.periods import enabled
from events.base import NS_PER_SECOND
from events.decisions import (
    DeadlineMoved,
    PlanMade,
    PodPlanned,
    PodsEnded,
    PodStopBegan,
    ReleaseLock,
    ShutdownBegan,
    WaveStarted,
)
from events.facts import PrepareForShutdown
from events.record import Record
from replay.virtual.invariants.words import Breaches, name, seconds
from replay.virtual.pods import Box
from replay.virtual.trail import MS, Seen
from replay.virtual.view import BootView

#: Between a daemon's start and its having caught up with what it missed.
CATCH_UP_NS = NS_PER_SECOND

#: The longest pause between two attempts to arm, and then some.
REARM_NS = 35 * NS_PER_SECOND


def waves_keep_their_order(view: BootView) -> Breaches:
    """No pod is touched before the waves below its own have ended or had their time."""
    for episode, records in view.episodes().items():
        waves = {each.event.wave: each for each in records if isinstance(each.event, WaveStarted)}
        members = {each.event.uid: each.event for each in records if isinstance(each.event, PodStopBegan)}
        lasting = _last_exits(view, members)
        for seen in view.of("hook", "signal"):
            began = members.get(seen.uid)
            if began is None or began.wave not in waves or seen.at_ns < view.at_ns(waves[began.wave]):
                continue
            for lower, record in waves.items():
                if lower < began.wave and lower in lasting:
                    yield from _waits_for(view, episode, seen, record, *lasting[lower])


def _last_exits(view: BootView, members: dict[str, PodStopBegan]) -> dict[int, tuple[int, Box]]:
    """Who is the last to go in each wave, and when."""
    lasting: dict[int, tuple[int, Box]] = {}
    for uid, began in members.items():
        for box in view.boxes(uid):
            exit_ns = view.exit_ns(box)
            if began.wave not in lasting or exit_ns > lasting[began.wave][0]:
                lasting[began.wave] = (exit_ns, box)
    return lasting


def _waits_for(view: BootView, episode: int, seen: Seen, lower: Record, exit_ns: int, last: Box) -> Breaches:
    assert isinstance(lower.event, WaveStarted)
    over_ns = view.mono_at_ns(lower.event.deadline_ns)
    if seen.at_ns < over_ns and exit_ns > seen.at_ns:
        yield (
            f"episode {episode}: {seen.what} for {seen.uid} at {seconds(seen.at_ns)}, while {name(last)} "
            f"of wave {lower.event.wave} runs and has until {seconds(over_ns)}"
        )


def waves_do_not_dawdle(view: BootView) -> Breaches:
    """A wave begins as soon as the one before it has ended: time that nobody needs is not waited out."""
    for episode, records in view.episodes().items():
        began = [record for record in records if isinstance(record.event, WaveStarted)]
        members = {each.event.uid: each.event for each in records if isinstance(each.event, PodStopBegan)}
        lasting = _last_exits(view, members)
        for before, after in pairwise(began):
            gone_ns, _ = lasting.get(_wave_of(before), (0, None))
            over_ns = max(view.at_ns(before), gone_ns) + view.slack_ns
            if view.at_ns(after) > over_ns and view.served_through(over_ns - view.slack_ns, over_ns):
                yield (
                    f"episode {episode}: wave {_wave_of(after)} began at {seconds(view.at_ns(after))}; "
                    f"those before it were gone by {seconds(over_ns - view.slack_ns)}"
                )


def _wave_of(record: Record) -> int:
    assert isinstance(record.event, WaveStarted)
    return record.event.wave


def every_pod_is_signalled(view: BootView) -> Breaches:
    """Nobody is forgotten: what still runs when the lock goes has been told to stop."""
    for release in _orderly_releases(view):
        for box in _still_planned(view, release):
            told = any(seen.at_ns <= release.at_ns for seen in view.of_box(box, "signal"))
            if not told and not _on_its_way(view, box, release) and _had_time(view, release):
                yield f"{name(box)} ran at the release at {seconds(release.at_ns)}, never told to stop"


def _on_its_way(view: BootView, box: Box, release: Seen) -> bool:
    """Whether its stop was ordered of a runtime that takes so long for it."""
    return any(at_ns + view.boot.slow_ns > release.at_ns for at_ns, _ in view.stop_begins(box.uid))


def the_lock_waits_for_the_pods(view: BootView) -> Breaches:
    """The lock is not released while pods run, but at the end of the time (or because somebody said so)."""
    for release in _orderly_releases(view):
        running = [name(box) for box in _still_planned(view, release)]
        if running and release.at_ns < _release_by_ns(view, release) - NS_PER_SECOND:
            yield f"the lock was released at {seconds(release.at_ns)} while {', '.join(running)} ran"


def the_lock_goes_at_once(view: BootView) -> Breaches:
    """As soon as possible (KEP-2000): when the last pod is gone only the statuses may take their time."""
    for episode, records in view.episodes().items():
        planned = [each.event.pod.uid for each in records if isinstance(each.event, PodPlanned)]
        plan = next((each for each in records if isinstance(each.event, PlanMade)), None)
        if plan is None:
            continue
        gone_ns = [view.exit_ns(box) for uid in planned for box in view.boxes(uid)]
        since_ns = max([view.at_ns(plan), *gone_ns])
        by_ns = since_ns + _flush_ns(view) + view.slack_ns
        if _undisturbed(view, view.at_ns(plan), by_ns) and not view.of("release"):
            yield f"episode {episode}: no release by {seconds(by_ns)}, all pods gone at {seconds(since_ns)}"
        for release in view.of("release"):
            if release.at_ns > by_ns and _undisturbed(view, view.at_ns(plan), release.at_ns):
                at = seconds(release.at_ns)
                yield f"episode {episode}: released at {at}, all pods gone at {seconds(since_ns)}"


def _flush_ns(view: BootView) -> int:
    """What statuses and the trace may take under any configuration of this boot."""
    flushes = (
        max(each.status_flush_seconds * NS_PER_SECOND, each.trace_flush_ns) for each in view.boot.settings
    )
    return max(flushes)


def _undisturbed(view: BootView, from_ns: int, to_ns: int) -> bool:
    """Whether one daemon was there all the time, and nobody changed the course of things."""
    changed = any(from_ns <= seen.at_ns < to_ns for seen in view.of(*CHANGES))
    return view.served_through(from_ns, to_ns) and not changed


#: What gives a shutdown another course, or another configuration.
CHANGES = ("withdraw", "reload", "logind-gone", "stopping", "appeared", "unit-stop")


def _orderly_releases(view: BootView) -> list[Seen]:
    """Releases that nobody asked for, of a shutdown that is on record."""
    asked = [seen.at_ns for seen in view.of("release-asked")]
    return [
        seen
        for seen in view.of("release")
        if seen.detail == ReleaseLock.__name__ and not any(at <= seen.at_ns for at in asked) and not view.hurt
    ]


def _still_planned(view: BootView, release: Seen) -> list[Box]:
    """Containers of planned pods that run at that moment."""
    planned = dict.fromkeys(
        event.pod.uid for record, event in view.events(PodPlanned) if view.at_ns(record) <= release.at_ns
    )
    return [
        box
        for box in view.boxes()
        if box.uid in planned and view.exit_ns(box) > release.at_ns and view.of_box(box, "start")
    ]


def _release_by_ns(view: BootView, release: Seen) -> int:
    """The last one decided before the pods were given up, in world time."""
    found, given_up = 0, False
    for record in view.records:
        if view.at_ns(record) > release.at_ns:
            break
        if isinstance(record.event, ShutdownBegan | DeadlineMoved) and not given_up:
            found = view.mono_at_ns(record.event.release_by_ns)
        given_up = isinstance(record.event, PodsEnded) or (
            given_up and not isinstance(record.event, ShutdownBegan)
        )
    return found


def _had_time(view: BootView, release: Seen) -> bool:
    """Whether the releasing daemon was there well before the end, or all along where time was short."""
    began = [view.at_ns(record) for record, _ in view.events(ShutdownBegan)]
    began_ns = max((at_ns for at_ns in began if at_ns <= release.at_ns), default=0)
    end_ns = min(release.at_ns, _release_by_ns(view, release) - NS_PER_SECOND)
    if end_ns - CATCH_UP_NS < began_ns:
        return view.served_through(began_ns, release.at_ns)
    return view.served_through(end_ns - CATCH_UP_NS, end_ns)


def the_grant_is_enough(view: BootView) -> Breaches:
    """logind's own timer never has to end a shutdown that a daemon has seen from its signal on."""
    for limit in view.of("limit"):
        held = [holder for holder in limit.detail.split(",") if holder]
        alive = view.served_through(limit.at_ns - CATCH_UP_NS, limit.at_ns)
        if limit.at_ns < view.stopping_ns and alive and held and _heard_at_once(view, limit):
            yield f"logind's limit came at {seconds(limit.at_ns)} with the lock still held by {limit.detail}"


def _heard_at_once(view: BootView, limit: Seen) -> bool:
    """Not so where the limit was being raised at that moment: the property is read after the signal."""
    signal_ns = max(seen.at_ns for seen in view.of("shutdown") if seen.at_ns <= limit.at_ns)
    raising = any(signal_ns - 100 * MS <= seen.at_ns <= signal_ns for seen in view.of("drop-in"))
    return not raising and any(
        event.active and signal_ns <= view.at_ns(record) <= signal_ns + 100 * MS
        for record, event in view.events(PrepareForShutdown)
    )


def a_node_that_stays_is_armed(view: BootView) -> Breaches:
    """Left alone for long enough, an enabled daemon holds the lock, and its node is shown as it was."""
    quiet_ns = view.ended_ns - REARM_NS
    calm = not any(seen.at_ns > quiet_ns for seen in view.seen if seen.what in DISTURBANCES)
    if not calm or view.boot.preparing or not view.served_through(quiet_ns, view.ended_ns):
        return
    held = any(seen.what == "lock" for seen in view.seen) and not _unlocked(view)
    if enabled(view.boot.settings[-1]) != held:
        yield f"the lock is {'held' if held else 'not held'} at the end of a boot that went on quietly"
    if not view.boot.shown_ready and view.boot.api_answers:
        yield "the node is still shown as going down"


#: What may keep a node from being armed for a while.
DISTURBANCES = (
    "shutdown",
    "withdraw",
    "reload",
    "logind-gone",
    "logind-back",
    "bus-lost",
    "crash",
    "left",
    "stopping",
    "disk-fault",
)


def _unlocked(view: BootView) -> bool:
    """Whether the last word on the lock was its loss; the boot's own end does not count."""
    words = [seen for seen in view.of("lock", "unlock") if seen.at_ns < view.ended_ns]
    return bool(words) and words[-1].what == "unlock"

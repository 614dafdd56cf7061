"""The lock: held while pods run, released at once when they are gone, and in time; and armed again."""

from __future__ import annotations

from collections.abc import Sequence

from actors.policy.periods import enabled
from events.base import NS_PER_SECOND, Event
from events.decisions import (
    AwaitStatuses,
    DeadlineMoved,
    PlanMade,
    PodPlanned,
    PodsEnded,
    ReleaseLock,
    ShutdownBegan,
)
from events.facts import ApiRead, OrderEnded, PrepareForShutdown
from events.record import Record
from replay.virtual.invariants.words import Breaches, name, seconds
from replay.virtual.pods import Box
from replay.virtual.trail import MS, Seen
from replay.virtual.view import BootView

#: Between a daemon's start and its having caught up with what it missed.
CATCH_UP_NS = NS_PER_SECOND

#: The longest pause between two attempts to arm, and then some.
REARM_NS = 35 * NS_PER_SECOND


def the_lock_waits_for_the_pods(view: BootView) -> Breaches:
    """The lock is not released while pods run, but at the end of the time (or because somebody said so)."""
    for release in orderly_releases(view):
        running = [name(box) for box in still_planned(view, release)]
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
        since_ns = max([view.at_ns(plan), *gone_ns, *_last_words(view, records)])
        by_ns = since_ns + _flush_ns(view) + view.slack_ns
        if _undisturbed(view, view.at_ns(plan), by_ns) and not view.of("release"):
            yield f"episode {episode}: no release by {seconds(by_ns)}, all pods gone at {seconds(since_ns)}"
        for release in view.of("release"):
            if view.boot.mode and release.at_ns > _release_by_ns(view, release) - NS_PER_SECOND:
                continue  # an API server that answers is waited for to the end of the grant
            if release.at_ns > by_ns and _undisturbed(view, view.at_ns(plan), release.at_ns):
                at = seconds(release.at_ns)
                yield f"episode {episode}: released at {at}, all pods gone at {seconds(since_ns)}"


def _last_words(view: BootView, records: Sequence[Record]) -> list[int]:
    """On a Kubernetes node: when the API server had answered, or not in time; the grant is there for that."""
    if not view.boot.mode:
        return []
    released = [record.seq for record in records if isinstance(record.event, ReleaseLock)]
    if not released:
        return _waits(view, records)
    return [view.at_ns(record) for record in records if record.seq < released[0] and _is_word(record.event)]


def _waits(view: BootView, records: Sequence[Record]) -> list[int]:
    """Of a shutdown that was cancelled first: until when the kubelet's statuses would have been awaited."""
    ended = {record.event.key: None for record in records if isinstance(record.event, OrderEnded)}
    return [
        view.at_ns(record) + record.event.timeout_ns
        for record in records
        if isinstance(record.event, AwaitStatuses) and record.event.key not in ended
    ]


def _is_word(event: Event) -> bool:
    """An outcome; or that the API server is gone, from where on the configured time is waited."""
    if isinstance(event, OrderEnded):
        return event.key.startswith("NodeStatusActor/")
    return isinstance(event, ApiRead) and not event.reachable


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


def orderly_releases(view: BootView) -> list[Seen]:
    """Releases that nobody asked for, of a shutdown that is on record."""
    asked = [seen.at_ns for seen in view.of("release-asked")]
    return [
        seen
        for seen in view.of("release")
        if seen.detail == ReleaseLock.__name__ and not any(at <= seen.at_ns for at in asked) and not view.hurt
    ]


def still_planned(view: BootView, release: Seen) -> list[Box]:
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


def had_time(view: BootView, release: Seen) -> bool:
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
    if _alone(view):
        held = False  # the kubelet's, at most
    if (enabled(view.boot.settings[-1]) and not _alone(view)) != held:
        yield f"the lock is {'held' if held else 'not held'} at the end of a boot that went on quietly"
    if not view.boot.shown_ready and view.boot.api_answers:
        yield "the node is still shown as going down"


def _alone(view: BootView) -> bool:
    """A mode that ends pods itself is not armed beside a kubelet that does the same."""
    return view.boot.kubelet_lock and view.boot.mode in ("api", "cri")


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

"""What the log says of a shutdown: its waves, its pods, and who asked for what."""

from __future__ import annotations

from collections.abc import Iterator

from ebbtide.lines.base import INFO, NOTICE, WARNING, Line, Lines, Teller, elapsed, seconds
from events import decisions as d
from events import facts as f
from events.base import Event
from events.record import Record


def _began(lines: Lines, event: d.ShutdownBegan, record: Record) -> Iterator[Line]:
    lines.began_ns, lines.lock_held = record.mono_ns, event.lock_held
    lock = "" if event.lock_held else ", without a lock"
    yield (
        NOTICE,
        f"shutdown began: {event.kind}, budget {seconds(event.budget_ns)} s of"
        f" {seconds(event.requested_ns)} s asked for, logind grants {seconds(event.grant_ns)} s{lock}",
    )


def _moved(lines: Lines, event: d.DeadlineMoved, record: Record) -> Iterator[Line]:
    why = "in overtime" if event.overtime else "logind starts its delay anew"
    yield WARNING, f"deadline moved: {seconds(event.deadline_ns - record.mono_ns)} s left, {why}"


def _planned(lines: Lines, event: d.PodPlanned, record: Record) -> Iterator[Line]:
    lines.labels[event.pod.uid] = event.pod.label
    late = ", late" if event.late else ""
    yield INFO, f"pod {event.pod.label}: wave {event.wave}, {event.grace_seconds} s{late}"


def _wave_started(lines: Lines, event: d.WaveStarted, record: Record) -> Iterator[Line]:
    pods = f"{len(event.pods)} pod{'s' if len(event.pods) != 1 else ''}"
    period = seconds(event.deadline_ns - record.mono_ns)
    yield (
        NOTICE,
        f"+{lines.since(record)} s wave {event.wave} (priority {event.priority}): {pods}, {period} s",
    )


def _wave_ended(lines: Lines, event: d.WaveEnded, record: Record) -> Iterator[Line]:
    late = f"; still running: {lines.names(event.stragglers)}" if event.stragglers else ""
    level = WARNING if event.stragglers else NOTICE
    yield level, f"+{lines.since(record)} s wave {event.wave} {event.outcome}{late}"


def _pod_ended(lines: Lines, event: d.PodEnded, record: Record) -> Iterator[Line]:
    level = INFO if event.outcome in ("graceful", "spared") else WARNING
    name = lines.labels.get(event.uid, event.uid)
    yield (
        level,
        f"+{lines.since(record)} s pod {name} {event.outcome} after {elapsed(event.elapsed_ns)} s:"
        f" {event.reason}",
    )


def _hook_ended(lines: Lines, event: d.HookEnded, record: Record) -> Iterator[Line]:
    if event.result != "done":
        name = lines.labels.get(event.uid, event.uid)
        yield (
            WARNING,
            f"+{lines.since(record)} s pod {name}: preStop of {event.container} {event.result}:"
            f" {event.reason}",
        )


def _autopsy(lines: Lines, event: f.AutopsyTaken, record: Record) -> Iterator[Line]:
    name = lines.labels.get(event.uid, event.uid)
    for process in event.processes:
        ignored = f", ignores {' '.join(process.signals_ignored)}" if process.signals_ignored else ""
        where = f" in {process.wait_channel}" if process.wait_channel else ""
        yield (
            WARNING,
            f"autopsy of {name}/{event.container}: {process.command} ({process.pid}) {process.state}{where}"
            f"{ignored}{_connections(process.connections)}",
        )


def _connections(count: int) -> str:
    return f", {count} open connection{'' if count == 1 else 's'}" if count else ""


def _rejected(lines: Lines, event: d.PodRejected, record: Record) -> Iterator[Line]:
    yield NOTICE, f"pod {event.label} rejected: {event.message}"


def _cancelled(lines: Lines, event: d.ShutdownCancelled, record: Record) -> Iterator[Line]:
    yield NOTICE, f"+{lines.since(record)} s shutdown {event.reason.replace('-', ' ')}"


def _pods_ended(lines: Lines, event: d.PodsEnded, record: Record) -> Iterator[Line]:
    left = lines.names(event.unfinished)
    what = f"given up on: {left}" if left else "all pods ended"
    yield WARNING if left else NOTICE, f"+{lines.since(record)} s {what}"


def _release(lines: Lines, event: d.ReleaseLock, record: Record) -> Iterator[Line]:
    what = "lock released" if lines.lock_held else "nothing is held, the machine may go"
    yield NOTICE, f"+{lines.since(record)} s {what}"


def _closed(lines: Lines, event: d.EpisodeClosed, record: Record) -> Iterator[Line]:
    yield NOTICE, f"shutdown closed: {event.outcome}"


def _hurry(lines: Lines, event: f.HurryRequested, record: Record) -> Iterator[Line]:
    yield NOTICE, f"uid {event.asked_by} says: hurry {event.pod}"


def _release_asked(lines: Lines, event: f.ReleaseRequested, record: Record) -> Iterator[Line]:
    yield NOTICE, f"uid {event.asked_by} says: release"


TELL: dict[type[Event], Teller] = {
    d.ShutdownBegan: _began,
    d.DeadlineMoved: _moved,
    d.PodPlanned: _planned,
    d.WaveStarted: _wave_started,
    d.WaveEnded: _wave_ended,
    d.PodEnded: _pod_ended,
    d.HookEnded: _hook_ended,
    d.PodRejected: _rejected,
    d.ShutdownCancelled: _cancelled,
    d.PodsEnded: _pods_ended,
    d.ReleaseLock: _release,
    d.EpisodeClosed: _closed,
    f.AutopsyTaken: _autopsy,
    f.HurryRequested: _hurry,
    f.ReleaseRequested: _release_asked,
}

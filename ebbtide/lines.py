"""One line a transition, for the system log and a pipe: what an operator reads at default verbosity.

A table from event type to a function that words it. Everything is told from events alone, so that a
journal read later gives the same lines; only records above the resume point are told, and once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from events import decisions as d
from events import facts as f
from events.base import NS_PER_SECOND, Event
from events.record import Record

#: sd-daemon(3) log levels.
ERROR, WARNING, NOTICE, INFO = 3, 4, 5, 6

Line = tuple[int, str]
Teller = Callable[["Lines", Any, Record], Iterator[Line]]


def seconds(ns: int) -> str:
    """``20``, ``0.5``: at most one decimal, none where it would be zero."""
    tenths = (ns + 50_000_000) // 100_000_000
    return str(tenths // 10) if tenths % 10 == 0 else f"{tenths // 10}.{tenths % 10}"


def elapsed(ns: int) -> str:
    """``3.07``: what was measured, to the hundredth."""
    return f"{ns / NS_PER_SECOND:.2f}"


class Lines:
    """Turns records into lines; remembers the pods' names."""

    def __init__(self) -> None:
        self.labels: dict[str, str] = {}
        self.began_ns = 0

    def of(self, records: Sequence[Record]) -> Iterator[Line]:
        for record in records:
            tell = TELL.get(type(record.event))
            if tell is not None:
                yield from tell(self, record.event, record)

    def names(self, uids: Sequence[str]) -> str:
        return ", ".join(self.labels.get(uid, uid) for uid in uids)

    def since(self, record: Record) -> str:
        return elapsed(record.mono_ns - self.began_ns)


def _armed(lines: Lines, event: d.Armed, record: Record) -> Iterator[Line]:
    yield NOTICE, f"armed: delay lock taken, logind grants {seconds(event.grant_ns)} s"


def _disarmed(lines: Lines, event: d.Disarmed, record: Record) -> Iterator[Line]:
    again = ""
    if event.retry_at_ns:
        again = f"; next try in {seconds(event.retry_at_ns - record.mono_ns)} s"
    yield WARNING if event.retry_at_ns else NOTICE, f"not armed: {event.reason}{again}"


def _assessed(lines: Lines, event: d.GrantAssessed, record: Record) -> Iterator[Line]:
    if event.sufficient:
        yield NOTICE, f"logind grants {seconds(event.grant_ns)} s, {seconds(event.needed_ns)} s needed"
        return
    who = f"; {event.overridden_by} overrides ours" if event.overridden_by else ""
    yield (
        WARNING,
        f"logind grants {seconds(event.grant_ns)} s of the {seconds(event.needed_ns)} s needed{who};"
        " the highest priorities are served first",
    )


def _drop_in(lines: Lines, event: d.WriteDropIn, record: Record) -> Iterator[Line]:
    yield NOTICE, f"drop-in: asking logind for InhibitDelayMaxSec={event.seconds}"


def _drop_in_removed(lines: Lines, event: d.RemoveDropIn, record: Record) -> Iterator[Line]:
    yield NOTICE, "drop-in: taking ours away, it is no longer needed"


def _resumed(lines: Lines, event: d.Resumed, record: Record) -> Iterator[Line]:
    if event.previous:
        yield WARNING if "complete" not in event.previous else NOTICE, f"last shutdown: {event.previous}"
    if event.action not in ("fresh", "begin"):
        yield NOTICE, f"start: {event.action.replace('-', ' ')}"


def _scheduled(lines: Lines, event: f.ScheduleRead, record: Record) -> Iterator[Line]:
    if not event.at_wall_ns:
        yield NOTICE, "no shutdown is scheduled any more"
        return
    who = f" by uid {event.uid}" if event.uid is not None else ""
    where = f" on {event.tty}" if event.tty else ""
    why = f': "{event.wall_message}"' if event.wall_message else ""
    left = seconds(max(0, event.at_wall_ns - record.wall_ns))
    yield NOTICE, f"{event.kind} scheduled in {left} s{who}{where}{why}"


def _began(lines: Lines, event: d.ShutdownBegan, record: Record) -> Iterator[Line]:
    lines.began_ns = record.mono_ns
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
        f"+{lines.since(record)} s pod {name} {event.outcome} after {elapsed(event.elapsed_ns)} s: {event.reason}",
    )


def _hook_ended(lines: Lines, event: d.HookEnded, record: Record) -> Iterator[Line]:
    if event.result != "done":
        name = lines.labels.get(event.uid, event.uid)
        yield (
            WARNING,
            f"+{lines.since(record)} s pod {name}: preStop of {event.container} {event.result}: {event.reason}",
        )


def _autopsy(lines: Lines, event: f.AutopsyTaken, record: Record) -> Iterator[Line]:
    name = lines.labels.get(event.uid, event.uid)
    for process in event.processes:
        ignored = f", ignores {' '.join(process.signals_ignored)}" if process.signals_ignored else ""
        where = f" in {process.wait_channel}" if process.wait_channel else ""
        yield (
            WARNING,
            f"autopsy of {name}/{event.container}: {process.command} ({process.pid}) {process.state}{where}"
            f"{ignored}, {process.connections} connections",
        )


def _rejected(lines: Lines, event: d.PodRejected, record: Record) -> Iterator[Line]:
    yield NOTICE, f"pod {event.label} rejected: {event.message}"


def _manifest(lines: Lines, event: f.ManifestRejected, record: Record) -> Iterator[Line]:
    yield ERROR, f"manifest {event.path}: {event.error}"


def _cancelled(lines: Lines, event: d.ShutdownCancelled, record: Record) -> Iterator[Line]:
    yield NOTICE, f"+{lines.since(record)} s shutdown {event.reason.replace('-', ' ')}"


def _pods_ended(lines: Lines, event: d.PodsEnded, record: Record) -> Iterator[Line]:
    left = f"; given up: {lines.names(event.unfinished)}" if event.unfinished else ""
    yield (WARNING if left else NOTICE), f"+{lines.since(record)} s all pods ended{left}"


def _release(lines: Lines, event: d.ReleaseLock, record: Record) -> Iterator[Line]:
    yield NOTICE, f"+{lines.since(record)} s lock released"


def _closed(lines: Lines, event: d.EpisodeClosed, record: Record) -> Iterator[Line]:
    yield NOTICE, f"shutdown closed: {event.outcome}"


def _settings_rejected(lines: Lines, event: f.SettingsRejected, record: Record) -> Iterator[Line]:
    yield ERROR, f"configuration not reloaded, the old one stays: {event.error}"


def _deferred(lines: Lines, event: d.ConfigDeferred, record: Record) -> Iterator[Line]:
    yield NOTICE, "configuration read; it waits for the end of this shutdown"


def _failed(lines: Lines, event: d.ActorFailed, record: Record) -> Iterator[Line]:
    yield ERROR, f"{event.actor} {event.subject} failed ({event.error}); the fallback takes over"


def _panicked(lines: Lines, event: f.EffectPanicked, record: Record) -> Iterator[Line]:
    yield ERROR, f"effect {event.key} broke: {event.error}"


def _late(lines: Lines, event: f.DurabilityLate, record: Record) -> Iterator[Line]:
    yield WARNING, f"the disk is late: {event.key} went ahead after {event.waited_ns // 1_000_000} ms"


def _storage(lines: Lines, event: f.StorageFailed, record: Record) -> Iterator[Line]:
    yield ERROR, f"journal at {event.location} failed: {event.error}"


def _storage_moved(lines: Lines, event: f.StorageMoved, record: Record) -> Iterator[Line]:
    yield WARNING, f"journal goes on at {event.location} from record {event.first_seq}"


def _foreign(lines: Lines, event: f.SignalRejected, record: Record) -> Iterator[Line]:
    yield WARNING, f"signal {event.member} from {event.sender or 'nobody'} ignored: {event.reason}"


def _hurry(lines: Lines, event: f.HurryRequested, record: Record) -> Iterator[Line]:
    yield NOTICE, f"uid {event.asked_by} says: hurry {event.pod}"


def _release_asked(lines: Lines, event: f.ReleaseRequested, record: Record) -> Iterator[Line]:
    yield NOTICE, f"uid {event.asked_by} says: release"


def _leave(lines: Lines, event: d.Leave, record: Record) -> Iterator[Line]:
    yield NOTICE, f"leaving: {event.reason}"


TELL: dict[type[Event], Teller] = {
    d.Armed: _armed,
    d.Disarmed: _disarmed,
    d.GrantAssessed: _assessed,
    d.WriteDropIn: _drop_in,
    d.RemoveDropIn: _drop_in_removed,
    d.Resumed: _resumed,
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
    d.ConfigDeferred: _deferred,
    d.ActorFailed: _failed,
    d.Leave: _leave,
    f.ScheduleRead: _scheduled,
    f.AutopsyTaken: _autopsy,
    f.ManifestRejected: _manifest,
    f.SettingsRejected: _settings_rejected,
    f.EffectPanicked: _panicked,
    f.DurabilityLate: _late,
    f.StorageFailed: _storage,
    f.StorageMoved: _storage_moved,
    f.SignalRejected: _foreign,
    f.HurryRequested: _hurry,
    f.ReleaseRequested: _release_asked,
}

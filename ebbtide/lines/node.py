"""What the log says of the node: armed or not, the grant, the disk, the configuration, our own failures."""

from __future__ import annotations

from collections.abc import Iterator

from ebbtide.lines.base import ERROR, NOTICE, WARNING, Line, Lines, Teller, ordered, seconds
from events import decisions as d
from events import facts as f
from events.base import Event
from events.record import Record

#: How the key of an order to start a pod begins.
START = "NodeStatusActor/start/"


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


def _manifest(lines: Lines, event: f.ManifestRejected, record: Record) -> Iterator[Line]:
    yield ERROR, f"manifest {event.path}: {event.error}"


def _settings_rejected(lines: Lines, event: f.SettingsRejected, record: Record) -> Iterator[Line]:
    yield ERROR, f"configuration not reloaded, the old one stays: {event.error}"


def _appeared(lines: Lines, event: f.PodAppeared, record: Record) -> Iterator[Line]:
    """Tells nothing: its name is needed if it cannot start."""
    lines.labels[event.pod.uid] = event.pod.label
    yield from ()


def _order_ended(lines: Lines, event: f.OrderEnded, record: Record) -> Iterator[Line]:
    """A failed stop stands in its pod's reason, a failed arming in ours; a failed start in none."""
    if event.result in ("failed", "timed-out") and event.key.startswith(START):
        yield ERROR, f"{ordered(lines, event.key)} failed: {event.reason or event.result}"


def _deferred(lines: Lines, event: d.ConfigDeferred, record: Record) -> Iterator[Line]:
    yield NOTICE, "configuration read; it waits for the end of this shutdown"


def _failed(lines: Lines, event: d.ActorFailed, record: Record) -> Iterator[Line]:
    yield ERROR, f"{event.actor} {event.subject} failed ({event.error}); the fallback takes over"


def _panicked(lines: Lines, event: f.EffectPanicked, record: Record) -> Iterator[Line]:
    yield ERROR, f"{ordered(lines, event.key)} broke: {event.error}"


def _late(lines: Lines, event: f.DurabilityLate, record: Record) -> Iterator[Line]:
    waited = event.waited_ns // 1_000_000
    yield WARNING, f"the disk is late: {ordered(lines, event.key)} went ahead after {waited} ms"


def _storage(lines: Lines, event: f.StorageFailed, record: Record) -> Iterator[Line]:
    yield ERROR, f"journal at {event.location} failed: {event.error}"


def _storage_moved(lines: Lines, event: f.StorageMoved, record: Record) -> Iterator[Line]:
    yield WARNING, f"journal goes on at {event.location} from record {event.first_seq}"


def _foreign(lines: Lines, event: f.SignalRejected, record: Record) -> Iterator[Line]:
    yield WARNING, f"signal {event.member} from {event.sender or 'nobody'} ignored: {event.reason}"


def _leave(lines: Lines, event: d.Leave, record: Record) -> Iterator[Line]:
    yield NOTICE, f"leaving: {event.reason}"


TELL: dict[type[Event], Teller] = {
    d.Armed: _armed,
    d.Disarmed: _disarmed,
    d.GrantAssessed: _assessed,
    d.WriteDropIn: _drop_in,
    d.RemoveDropIn: _drop_in_removed,
    d.Resumed: _resumed,
    d.ConfigDeferred: _deferred,
    d.ActorFailed: _failed,
    d.Leave: _leave,
    f.ScheduleRead: _scheduled,
    f.ManifestRejected: _manifest,
    f.SettingsRejected: _settings_rejected,
    f.PodAppeared: _appeared,
    f.OrderEnded: _order_ended,
    f.EffectPanicked: _panicked,
    f.DurabilityLate: _late,
    f.StorageFailed: _storage,
    f.StorageMoved: _storage_moved,
    f.SignalRejected: _foreign,
}

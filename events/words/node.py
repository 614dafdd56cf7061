"""What is said of the node: armed or not, the grant, the disk, the configuration, our own failures."""

from __future__ import annotations

from events import decisions as d
from events import facts as f
from events.base import Event
from events.marks import Checkpoint, StatesDigest
from events.record import Stamp
from events.words.base import (
    DEBUG,
    ERROR,
    INFO,
    NOTICE,
    WARNING,
    Names,
    Said,
    Teller,
    count,
    ordered,
    seconds,
)

#: Results of an order that are a fault of somebody's; ``unknown`` is what a restart leaves.
FAULTS = ("failed", "timed-out")


def _daemon_started(names: Names, event: f.DaemonStarted, at: Stamp) -> Said:
    lock = ", the lock inherited" if event.lock_inherited else ""
    return Said(INFO, f"ebbtide {event.version} started on {event.node}, mode {event.mode}{lock}")


def _stop_requested(names: Names, event: f.StopRequested, at: Stamp) -> Said:
    if event.system_stopping:
        return Said(WARNING, f"told to stop while the system stops, {seconds(event.stop_time_ns)} s are left")
    return Said(INFO, "told to stop")


def _settings(names: Names, event: f.SettingsLoaded, at: Stamp) -> Said:
    return Said(INFO, "configuration loaded")


def _settings_rejected(names: Names, event: f.SettingsRejected, at: Stamp) -> Said:
    return Said(ERROR, f"configuration not reloaded, the old one stays: {event.error}")


def _tick(names: Names, event: f.Tick, at: Stamp) -> Said:
    return Said(DEBUG, "a deadline is due")


def _clock(names: Names, event: f.ClockStepped, at: Stamp) -> Said:
    """Exact to the millisecond, with its sign."""
    sign, size_ms = ("-" if event.delta_ns < 0 else "+"), abs(event.delta_ns) // 1_000_000
    return Said(INFO, f"the wall clock was stepped by {sign}{size_ms // 1000}.{size_ms % 1000:03d} s")


def _order_ended(names: Names, event: f.OrderEnded, at: Stamp) -> Said:
    level = WARNING if event.result in FAULTS else DEBUG if event.result == "done" else INFO
    why = f": {event.reason}" if event.reason else ""
    result = "is done" if event.result == "done" else f"ended {event.result}"
    if event.result in FAULTS:
        result, why = "failed", f": {event.reason or event.result}"
    return Said(level, f"{ordered(names, event.key)} {result}{why}")


def _panicked(names: Names, event: f.EffectPanicked, at: Stamp) -> Said:
    return Said(ERROR, f"{ordered(names, event.key)} broke: {event.error}")


def _late(names: Names, event: f.DurabilityLate, at: Stamp) -> Said:
    waited = event.waited_ns // 1_000_000
    return Said(WARNING, f"the disk is late: {ordered(names, event.key)} went ahead after {waited} ms")


def _storage(names: Names, event: f.StorageFailed, at: Stamp) -> Said:
    return Said(ERROR, f"journal at {event.location} failed: {event.error}")


def _storage_moved(names: Names, event: f.StorageMoved, at: Stamp) -> Said:
    return Said(WARNING, f"journal goes on at {event.location} from record {event.first_seq}")


def _logind_read(names: Names, event: f.LogindRead, at: Stamp) -> Said:
    preparing = ", a shutdown is being prepared" if event.preparing else ""
    return Said(DEBUG, f"logind grants {seconds(event.grant_ns)} s{preparing}")


def _foreign(names: Names, event: f.SignalRejected, at: Stamp) -> Said:
    return Said(WARNING, f"signal {event.member} from {event.sender or 'nobody'} ignored: {event.reason}")


def _preparing(names: Names, event: f.PreparingRead, at: Stamp) -> Said:
    what = "a shutdown is being prepared" if event.preparing else "no shutdown is being prepared"
    return Said(INFO, f"logind says: {what}")


def _scheduled(names: Names, event: f.ScheduleRead, at: Stamp) -> Said:
    if not event.at_wall_ns:
        return Said(NOTICE, "no shutdown is scheduled any more")
    who = f" by uid {event.uid}" if event.uid is not None else ""
    where = f" on {event.tty}" if event.tty else ""
    why = f': "{event.wall_message}"' if event.wall_message else ""
    left = seconds(max(0, event.at_wall_ns - at.wall_ns))
    return Said(NOTICE, f"{event.kind} scheduled in {left} s{who}{where}{why}")


def _bus_lost(names: Names, event: f.BusLost, at: Stamp) -> Said:
    return Said(WARNING, f"lost the bus: {event.error}")


def _drop_ins(names: Names, event: f.DropInsRead, at: Stamp) -> Said:
    ours = "not there" if event.ours_ns is None else f"{seconds(event.ours_ns)} s"
    return Said(DEBUG, f"logind's drop-ins ask for {seconds(event.others_ns)} s, ours: {ours}")


def _manifest(names: Names, event: f.ManifestRejected, at: Stamp) -> Said:
    return Said(ERROR, f"manifest {event.path}: {event.error}")


def _adopted(names: Names, event: d.ConfigAdopted, at: Stamp) -> Said:
    if not event.enabled:
        return Said(INFO, "configuration adopted: graceful shutdown is off")
    periods = ", ".join(f"{each.seconds} s from priority {each.priority}" for each in event.periods)
    return Said(INFO, f"configuration adopted: {periods}, {event.budget} budget")


def _deferred(names: Names, event: d.ConfigDeferred, at: Stamp) -> Said:
    return Said(NOTICE, "configuration read; it waits for the end of this shutdown")


def _assessed(names: Names, event: d.GrantAssessed, at: Stamp) -> Said:
    grant, needed = seconds(event.grant_ns), seconds(event.needed_ns)
    if event.sufficient:
        return Said(NOTICE, f"logind grants {grant} s, {needed} s needed")
    who = f"; {event.overridden_by} overrides ours" if event.overridden_by else ""
    return Said(
        WARNING,
        f"logind grants {grant} s of the {needed} s needed{who}; the highest priorities are served first",
    )


def _drop_in(names: Names, event: d.WriteDropIn, at: Stamp) -> Said:
    return Said(NOTICE, f"drop-in: asking logind for InhibitDelayMaxSec={event.seconds}")


def _drop_in_removed(names: Names, event: d.RemoveDropIn, at: Stamp) -> Said:
    return Said(NOTICE, "drop-in: taking ours away, it is no longer needed")


def _arm(names: Names, event: d.Arm, at: Stamp) -> Said:
    return Said(DEBUG, "taking the delay lock" if event.lock else "listening to logind without a lock")


def _disarm(names: Names, event: d.Disarm, at: Stamp) -> Said:
    return Said(DEBUG, "giving the delay lock back")


def _armed(names: Names, event: d.Armed, at: Stamp) -> Said:
    return Said(NOTICE, f"armed: delay lock taken, logind grants {seconds(event.grant_ns)} s")


def _disarmed(names: Names, event: d.Disarmed, at: Stamp) -> Said:
    if not event.retry_at_ns:
        return Said(NOTICE, f"not armed: {event.reason}")
    again = seconds(event.retry_at_ns - at.mono_ns)
    return Said(WARNING, f"not armed: {event.reason}; next try in {again} s")


def _flush(names: Names, event: d.FlushTraces, at: Stamp) -> Said:
    return Said(DEBUG, f"having the traces sent, for {seconds(event.timeout_ns)} s at most")


def _leave(names: Names, event: d.Leave, at: Stamp) -> Said:
    return Said(NOTICE, f"leaving: {event.reason}")


def _resumed(names: Names, event: d.Resumed, at: Stamp) -> Said:
    """What the last boot left comes first: that is the news."""
    start = f"start: {event.action.replace('-', ' ')}"
    if not event.previous:
        return Said(NOTICE, start)
    level = NOTICE if "complete" in event.previous else WARNING
    return Said(level, f"last shutdown: {event.previous}; {start}")


def _failed(names: Names, event: d.ActorFailed, at: Stamp) -> Said:
    who = f"{event.actor} {names.of(event.subject)}".rstrip()
    return Said(ERROR, f"{who} failed ({event.error}); the fallback takes over")


def _engaged(names: Names, event: d.FallbackEngaged, at: Stamp) -> Said:
    why = f": {event.reason}" if event.reason else ""
    pods = f" {names.all_of(event.pods)}" if event.pods else ""
    return Said(WARNING, f"the fallback took over{pods}{why}")


def _checkpoint(names: Names, event: Checkpoint, at: Stamp) -> Said:
    open_orders = count(len(event.open_orders), "open order")
    return Said(DEBUG, f"checkpoint of {count(len(event.actors), 'actor')}, {open_orders}")


def _digest(names: Names, event: StatesDigest, at: Stamp) -> Said:
    return Said(DEBUG, f"the states of {count(len(event.actors), 'actor')}, digested")


TELL: dict[type[Event], Teller] = {
    f.DaemonStarted: _daemon_started,
    f.StopRequested: _stop_requested,
    f.SettingsLoaded: _settings,
    f.SettingsRejected: _settings_rejected,
    f.Tick: _tick,
    f.ClockStepped: _clock,
    f.OrderEnded: _order_ended,
    f.EffectPanicked: _panicked,
    f.DurabilityLate: _late,
    f.StorageFailed: _storage,
    f.StorageMoved: _storage_moved,
    f.LogindRead: _logind_read,
    f.SignalRejected: _foreign,
    f.PreparingRead: _preparing,
    f.ScheduleRead: _scheduled,
    f.BusLost: _bus_lost,
    f.DropInsRead: _drop_ins,
    f.ManifestRejected: _manifest,
    d.ConfigAdopted: _adopted,
    d.ConfigDeferred: _deferred,
    d.GrantAssessed: _assessed,
    d.WriteDropIn: _drop_in,
    d.RemoveDropIn: _drop_in_removed,
    d.Arm: _arm,
    d.Disarm: _disarm,
    d.Armed: _armed,
    d.Disarmed: _disarmed,
    d.Leave: _leave,
    d.FlushTraces: _flush,
    d.Resumed: _resumed,
    d.ActorFailed: _failed,
    d.FallbackEngaged: _engaged,
    Checkpoint: _checkpoint,
    StatesDigest: _digest,
}

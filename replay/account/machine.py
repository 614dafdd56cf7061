"""What the events around a shutdown mean for its account: restarts, failures, disk, bus, clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from events.decisions import ActorFailed, FallbackEngaged, Resumed
from events.facts import (
    BusLost,
    ClockStepped,
    DaemonStarted,
    DurabilityLate,
    EffectPanicked,
    ManifestRejected,
    ScheduleRead,
    SettingsRejected,
    SignalRejected,
    StorageFailed,
    StorageMoved,
)
from replay.account.before import told_of
from replay.account.tale import Tale
from replay.account.words import plural, span


def _started(tale: Tale, event: DaemonStarted) -> None:
    """The one that was running at the signal stands first already."""
    seq, at_ns, _ = tale.place
    if seq == tale.number:
        return
    quiet_since_ns = tale.last_ns if tale.place.same_boot else None
    tale.processes.append(replace(told_of(event, seq, at_ns), quiet_since_ns=quiet_since_ns))


def _resumed(tale: Tale, event: Resumed) -> None:
    if not tale.processes:
        return
    process = replace(tale.processes.pop(), action=event.action, previous=event.previous)
    if event.action.startswith("close-") and process.quiet_since_ns is not None:
        # A soft reboot keeps the boot, and what it closes was over before.
        tale.last_ns = process.quiet_since_ns
        process = replace(process, quiet_since_ns=None)
    tale.processes.append(process)
    if process.at_ns is not None and process.quiet_since_ns is not None:
        tale.note("restarted", away=span(process.at_ns - process.quiet_since_ns), action=event.action)


def _actor_failed(tale: Tale, event: ActorFailed) -> None:
    """Its subject is a pod's UID, or a wave's number."""
    subject = tale.pods[event.subject].label if event.subject in tale.pods else event.subject
    tale.note(
        "actor-failed", actor=f"{event.actor} of {subject}" if subject else event.actor, error=event.error
    )


def _fallback(tale: Tale, event: FallbackEngaged) -> None:
    for uid in event.pods:
        tale.change_pod(uid, fallback=True)
    tale.note("fallback", count=plural(len(event.pods), "pod"), reason=event.reason)


def _panicked(tale: Tale, event: EffectPanicked) -> None:
    tale.note("effect-panicked", key=event.key, error=event.error)


def _late(tale: Tale, event: DurabilityLate) -> None:
    longest_ns = max(event.waited_ns, tale.longest_wait_ns)
    tale.longest_wait_ns = longest_ns
    tale.tally("durability-late", waited=span(longest_ns))


def _storage_failed(tale: Tale, event: StorageFailed) -> None:
    tale.note("storage-failed", location=event.location, error=event.error)


def _storage_moved(tale: Tale, event: StorageMoved) -> None:
    tale.note("storage-moved", location=event.location, seq=event.first_seq)


def _bus_lost(tale: Tale, event: BusLost) -> None:
    tale.note("bus-lost", error=event.error)


def _signal_rejected(tale: Tale, event: SignalRejected) -> None:
    tale.tally("signal-rejected", reason=event.reason)


def _stepped(tale: Tale, event: ClockStepped) -> None:
    sign = "+" if event.delta_ns > 0 else ""
    tale.note("clock-stepped", delta=f"{sign}{span(event.delta_ns)}")


def _settings_rejected(tale: Tale, event: SettingsRejected) -> None:
    tale.note("settings-rejected", error=event.error)


def _manifest_rejected(tale: Tale, event: ManifestRejected) -> None:
    tale.note("manifest-rejected", path=event.path, error=event.error)


def _scheduled(tale: Tale, event: ScheduleRead) -> None:
    """Read a moment after the signal it says as much as before; that it went away says nothing (252)."""
    if event.at_wall_ns:
        tale.schedule = event


MACHINE: dict[type, Callable[[Tale, Any], None]] = {
    DaemonStarted: _started,
    Resumed: _resumed,
    ActorFailed: _actor_failed,
    FallbackEngaged: _fallback,
    EffectPanicked: _panicked,
    DurabilityLate: _late,
    StorageFailed: _storage_failed,
    StorageMoved: _storage_moved,
    BusLost: _bus_lost,
    SignalRejected: _signal_rejected,
    ClockStepped: _stepped,
    SettingsRejected: _settings_rejected,
    ManifestRejected: _manifest_rejected,
    ScheduleRead: _scheduled,
}

"""What stands before a shutdown: the configuration in force, the process, who had scheduled it.

Learned record by record; of a journal whose first segments were removed, from the checkpoint that it begins
with, whose states are read as plain values so that another version's are no obstacle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from events.codec import decode_event
from events.decisions import ConfigAdopted, GrantAssessed
from events.facts import DaemonStarted, ScheduleRead, SettingsLoaded
from events.frames import RawRecord
from events.marks import Checkpoint
from replay.account.model import ConfigurationTold, ProcessTold


class Before:
    """``process`` None: nobody is known to have written yet."""

    def __init__(self) -> None:
        self.configuration = ConfigurationTold()
        self.process: ProcessTold | None = None
        self.assessed: GrantAssessed | None = None
        self.schedule: ScheduleRead | None = None
        self._fresh = True

    def learn(self, raw: RawRecord) -> None:
        """Most records say nothing. Raises BadPayload."""
        see = _LEARNED.get(raw.tag)
        if see is not None:
            see(self, decode_event(raw.tag, raw.payload), raw)
        self._fresh = False

    def started(self, event: DaemonStarted, raw: RawRecord) -> None:
        """Another boot knows nothing of a schedule."""
        self.schedule = None
        self.process = told_of(event, raw.seq, None)

    def adopted(self, event: ConfigAdopted, raw: RawRecord) -> None:
        self.configuration = ConfigurationTold(
            periods=event.periods,
            requested_ns=event.requested_ns,
            reserve_ns=event.reserve_ns,
            budget=event.budget,
            sleep_action=event.sleep_action,
            status_flush_ns=event.status_flush_ns,
            trace_flush_ns=event.trace_flush_ns,
            sources=self.configuration.sources,
        )

    def loaded(self, event: SettingsLoaded, raw: RawRecord) -> None:
        """Adopted in the same step; one that waits for a shutdown's end is loaded again after it."""
        self.configuration = replace(self.configuration, sources=event.sources)

    def assess(self, event: GrantAssessed, raw: RawRecord) -> None:
        self.assessed = event

    def scheduled(self, event: ScheduleRead, raw: RawRecord) -> None:
        self.schedule = event if event.at_wall_ns else None

    def checkpoint(self, mark: Checkpoint, raw: RawRecord) -> None:
        """Only what a journal begins with: later ones repeat what is known."""
        if not self._fresh:
            return
        states = {kept.actor: _plain(kept.state) for kept in mark.actors if not kept.subject}
        episode, status = states.get("EpisodeActor", {}), states.get("NodeStatusActor", {})
        given = ("periods", "requested_ns", "reserve_ns")
        known: dict[str, Any] = {name: episode[name] for name in given if name in episode}
        known["budget"] = "elastic" if episode.get("elastic") else "strict"
        known["sleep_action"] = episode.get("sleep_action", True)
        known["status_flush_ns"] = status.get("flush_ns", 0)
        known["trace_flush_ns"] = status.get("trace_flush_ns", 0)
        try:
            self.configuration = msgspec.convert(known, ConfigurationTold)
        except msgspec.ValidationError:
            return


def told_of(event: DaemonStarted, seq: int, at_ns: int | None) -> ProcessTold:
    return ProcessTold(
        seq=seq, at_ns=at_ns, version=event.version, pid=event.pid, mode=event.mode, boot_id=event.boot_id
    )


def _plain(state: msgspec.Raw) -> dict[str, Any]:
    try:
        decoded = msgspec.msgpack.decode(state)
    except (msgspec.DecodeError, ValueError):
        return {}
    return decoded if isinstance(decoded, dict) else {}


_LEARNED: dict[str, Callable[[Before, Any, RawRecord], None]] = {
    DaemonStarted.__name__: Before.started,
    ConfigAdopted.__name__: Before.adopted,
    SettingsLoaded.__name__: Before.loaded,
    GrantAssessed.__name__: Before.assess,
    ScheduleRead.__name__: Before.scheduled,
    Checkpoint.__name__: Before.checkpoint,
}

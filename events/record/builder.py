"""A shutdown while it is being read: everything known so far, in values that are replaced as more is learned.

First what stands before a shutdown (`Beforehand`), then `RecordBuilder`, last the texts of the notices. What
each event means stands in `events.record.fold`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from ebbtide.events.base import Checkpoint, Stamp, episode_id, shutdown_trace_id
from ebbtide.events.codec import RawRecord, decode_event
from ebbtide.events.decisions import ConfigAdopted, EpisodeOutcome, GrantAssessed
from ebbtide.events.facts import DaemonStarted, ScheduleRead, SettingsLoaded
from ebbtide.events.record.episodes import RecordPoint
from ebbtide.events.record.format import plural
from ebbtide.events.record.model import (
    ConfigurationRecord,
    DamageRecord,
    HookRecord,
    Notice,
    OrderRecord,
    ProcessRecord,
    ShutdownRecord,
)
from ebbtide.events.record.progress import ProgressBuilder
from ebbtide.events.segment import Header


class Beforehand:
    """What stands before a shutdown: the configuration in force, the process, who had scheduled it.

    Learned record by record; of a journal whose first segments were removed, from the checkpoint that it
    begins with, whose states are read as plain values so that another version's are no obstacle. ``process``
    None: nobody is known to have written yet.
    """

    def __init__(self) -> None:
        self.configuration = ConfigurationRecord()
        self.process: ProcessRecord | None = None
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
        self.process = process_record(event, raw.seq, None)

    def adopted(self, event: ConfigAdopted, raw: RawRecord) -> None:
        self.configuration = ConfigurationRecord(
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
        states = {kept.actor: _plain_state(kept.state) for kept in mark.actors if not kept.subject}
        episode, status = states.get("EpisodeActor", {}), states.get("NodeStatusActor", {})
        given = ("periods", "requested_ns", "reserve_ns")
        known: dict[str, Any] = {name: episode[name] for name in given if name in episode}
        known["budget"] = "elastic" if episode.get("elastic") else "strict"
        known["sleep_action"] = episode.get("sleep_action", True)
        known["status_flush_ns"] = status.get("flush_ns", 0)
        known["trace_flush_ns"] = status.get("trace_flush_ns", 0)
        try:
            self.configuration = msgspec.convert(known, ConfigurationRecord)
        except msgspec.ValidationError:
            return


def process_record(event: DaemonStarted, seq: int, at_ns: int | None) -> ProcessRecord:
    return ProcessRecord(
        seq=seq, at_ns=at_ns, version=event.version, pid=event.pid, mode=event.mode, boot_id=event.boot_id
    )


def _plain_state(state: msgspec.Raw) -> dict[str, Any]:
    try:
        decoded = msgspec.msgpack.decode(state)
    except (ValueError, RecursionError):  # msgspec's and UTF-8's errors are ValueErrors
        return {}
    return decoded if isinstance(decoded, dict) else {}


_LEARNED: dict[str, Callable[[Beforehand, Any, RawRecord], None]] = {
    DaemonStarted.__name__: Beforehand.started,
    ConfigAdopted.__name__: Beforehand.adopted,
    SettingsLoaded.__name__: Beforehand.loaded,
    GrantAssessed.__name__: Beforehand.assess,
    ScheduleRead.__name__: Beforehand.scheduled,
    Checkpoint.__name__: Beforehand.checkpoint,
}


class RecordBuilder(ProgressBuilder):
    """A shutdown while it is being read, with everything that a `ShutdownRecord` says of it."""

    def __init__(
        self, number: int, first: RawRecord, header: Header, before: Beforehand, former: RecordBuilder | None
    ) -> None:
        started = Stamp(first.mono_ns, first.wall_ns)
        super().__init__(number, started, header.identity.boot_id, first.hash)
        self.headless = first.seq != number
        self.identity = header.identity
        self.last_ns, self.events = 0, 0
        self.longest_wait_ns = 0
        self.configuration: ConfigurationRecord = before.configuration
        self.assessed = before.assessed
        self.schedule = before.schedule
        self.beside: dict[str, OrderRecord] = {}
        self.processes: list[ProcessRecord] = [before.process] if before.process is not None else []
        self.notices: list[Notice] = []
        self.tallies: dict[str, tuple[RecordPoint, int, dict[str, object]]] = {}
        self.unknown_types: dict[str, int] = {}
        if former is not None:
            self.listed = former.introductions()

    def change_hook(self, uid: str, container: str, **changes: Any) -> HookRecord | None:
        """The hook of a container that has not ended; None where none has begun."""
        hooks = list(self.pod(uid).hooks)
        for at, hook in enumerate(hooks):
            if hook.container == container and hook.ended_ns is None:
                hooks[at] = replace(hook, **changes)
                self.change_pod(uid, hooks=tuple(hooks))
                return hooks[at]
        return None

    # --- notices ------------------------------------------------------------------------------

    def note(self, code: str, uid: str = "", **values: object) -> None:
        """One notice, at the record that is being interpreted."""
        if uid:
            values["pod"] = self.pod(uid).label
        seq, at_ns, _ = self.point
        self.notices.append(
            Notice(seq=seq, at_ns=at_ns, code=code, text=notice_text(code, **values), pod=uid)
        )

    def tally(self, code: str, **values: object) -> None:
        """One notice however often it happens, at the first time; ``values`` are those of the last one."""
        point, count, _ = self.tallies.get(code, (self.point, 0, {}))
        self.tallies[code] = (point, count + 1, values)

    # --- the end ------------------------------------------------------------------------------

    def record(
        self, journal_id: bytes, boot_id: str | None, damage: DamageRecord | None = None
    ) -> ShutdownRecord:
        """The record as it stands. ``boot_id`` is this machine's, now (see `events.record.fold`)."""
        identity = self.identity
        damaged = damage is not None and damage.here
        outcome = self.outcome(boot_id, damaged=damaged)
        schedule = self.schedule
        return ShutdownRecord(
            id=episode_id(journal_id, self.number),
            trace_id=shutdown_trace_id(self.first_hash),
            journal_id=journal_id.hex(),
            first_seq=self.number,
            last_seq=self.last_seq,
            node=identity.node,
            machine_id=identity.machine_id,
            boot_id=identity.boot_id,
            version=identity.code_version,
            logic=identity.logic,
            kind=self.kind,
            outcome=outcome,
            headless=self.headless,
            started_wall_ns=self.started.wall_ns,
            started_mono_ns=self.started.mono_ns,
            ended_ns=self.ended_ns(outcome),
            lock_lost_ns=self.lock_lost_ns,
            damage=damage,
            last_ns=self.last_ns,
            configuration=self.configuration,
            waves=tuple(self.waves),
            pods=tuple(replace(pod, outcome=self.outcomes[uid]) for uid, pod in self.pods.items()),
            beside=tuple(self.beside.values()),
            processes=tuple(self.processes),
            notices=self._all_notices(outcome, damaged),
            unknown_types=self.unknown_types,
            events=self.events,
            asked_by_uid=schedule.uid if schedule else None,
            asked_tty=schedule.tty if schedule else "",
            wall_message=schedule.wall_message if schedule else "",
            **self.fields,
        )

    def _all_notices(self, outcome: EpisodeOutcome, damaged: bool) -> tuple[Notice, ...]:
        """In the order of the record; what only the end can say comes last."""
        found = list(self.notices)
        for code, (point, count, values) in self.tallies.items():
            text = notice_text(code, count=plural(count, TALLIED_NOTICES[code]), **values)
            found.append(Notice(seq=point.seq, at_ns=point.at_ns, code=code, text=text))
        found.sort(key=lambda notice: notice.seq)
        wave = self.fields.get("last_wave", -1)
        if self.headless:
            text = notice_text("begin-lost")
            found.insert(0, Notice(seq=self.number, at_ns=0, code="begin-lost", text=text))
        if outcome in ("truncated", "never-begun") and (damaged or not self.headless):
            code = "cut-short" if outcome == "truncated" and wave >= 0 else "never-begun"
            # Told only where its first records could not be read: every shutdown begins with this one.
            code = "begin-lost" if outcome == "truncated" and "budget_ns" not in self.fields else code
            code = "record-damaged" if damaged else code
            text = notice_text(code, wave=wave)
            found.append(Notice(seq=self.last_seq, at_ns=self.last_ns, code=code, text=text))
        if self.unknown_types:
            count, types = sum(self.unknown_types.values()), ", ".join(self.unknown_types)
            text = notice_text("unknown-events", count=plural(count, "event"), types=types)
            found.append(Notice(seq=self.last_seq, at_ns=self.last_ns, code="unknown-events", text=text))
        return tuple(found)


# What an operator should know of a shutdown: one stable code a happening, and its sentence.
#
# The table is the only list of them. A sentence says what happened and, where there is one, the cure.


NOTICE_TEXTS: dict[str, str] = {
    # --- the time that there was
    "grant-too-small": "logind granted {grant} of the {requested} that the waves ask for{override}: "
    "the lowest priorities had less, raise InhibitDelayMaxSec to {needed}",
    "reserve-not-granted": "logind granted {grant}, enough for the waves, not for the reserve{override}: "
    "raise InhibitDelayMaxSec to {needed}",
    "lock-not-held": "the shutdown began without the delay lock: the machine did not have to wait for a pod",
    "lock-lost": "LOCK LOST: the daemon was started again without the delay lock, and the machine did not "
    "have to wait for a pod any more",
    "overtime": "the service manager was stopping the daemon, logind's timer or its lock no longer counted",
    "deadline-moved": "the shutdown's deadline moved to {deadline} after the signal",
    # --- pods and hooks
    "pod-killed": "{pod} was killed: {reason}",
    "pod-failed": "{pod} could not be ended: {reason}",
    "pod-unknown": "what became of {pod} is not known: {reason}",
    "pod-late": "{pod} was not in the inventory at the signal and joined wave {wave}",
    "pod-again": "{pod} had ended, was started again by its kubelet and joined wave {wave}",
    "hook-failed": "the preStop hook ({kind}) of {pod}, container {container}, failed: {reason}",
    "hook-timed-out": "the preStop hook ({kind}) of {pod}, container {container}, was cut after {took}: "
    "{reason}",
    "hook-not-run": "the preStop hook ({kind}) of {pod}, container {container}, did not run: {reason}",
    "hook-unknown": "how the preStop hook ({kind}) of {pod}, container {container}, ended is not known: "
    "{reason}",
    "wave-overran": "wave {wave} (priority {priority}) overran its {period}: {count} still running",
    "pods-unfinished": "{count} outlived the budget: {pods}",
    "volumes-mounted": "wave {wave} ended with volumes of {count} still mounted: {pods}",
    # --- a Kubernetes node
    "api-lost": "the API server did not answer: {error}",
    "runtime-lost": "the container runtime did not answer: {error}",
    "delete-refused": "{count} not taken by the API server in time ({reason})",
    "handed-over": "the shutdown was handed over to the container runtime: {reason}",
    "kubelet-failed": "the kubelet could not be stopped ({result}): {reason}; it may have started pods again",
    "kubelet-start-failed": "the kubelet could not be started again ({result}): {reason}; start it",
    "kubelet-left-running": "the kubelet had not ended {count} at the release: {pods}",
    "final-statuses-missing": "{count} without a final status in the API server at the release: {pods}",
    "withdraw-failed": "pods could not be taken out of their Services ({result}): {reason}",
    "await-failed": "the final statuses were not all seen in time ({result}): {reason}",
    "mounts-failed": "what is mounted could not be read ({result}): {reason}",
    "certificate-failed": "the certificate could not be published ({result}): {reason}",
    "not-safe-to-detach": "volumes are not safe to detach: {why}",
    # --- people
    "hurried": "uid {asker} asked not to wait for {pod} any longer",
    "release-requested": "uid {asker} asked to let the machine go",
    "cancelled": "the shutdown was withdrawn ({reason})",
    # --- the daemon
    "restarted": "the daemon was started again, none had run for at most {away} ({action})",
    "cut-short": "the machine went down before the release, at wave {wave}",
    "never-begun": "the machine went down before any wave began",
    "actor-failed": "{actor} failed ({error}): the fallback took its part",
    "fallback": "the fallback took over {count} ({reason})",
    "effect-panicked": "the order {key} ended in an error that nobody foresaw: {error}",
    "settings-rejected": "a configuration could not be used: {error}",
    "manifest-rejected": "a pod manifest could not be used: {path}: {error}",
    "inventory-failed": "the pods could not be listed ({result}): {reason}",
    "announce-failed": "the node could not be shown as going down ({result}): {reason}",
    "statuses-failed": "pod statuses could not be delivered ({result}): {reason}",
    "statuses-undelivered": "{count} not delivered in time",
    "traces-failed": "the trace could not be sent before the release ({result}): {reason}",
    "release-failed": "the lock could not be released ({result}): {reason}",
    # --- the machine
    "durability-late": "{count} began before the disk had answered, after {waited} at the longest",
    "storage-failed": "the journal could not be written in {location}: {error}",
    "storage-moved": "the journal went on in {location}, from record {seq}",
    "bus-lost": "the connection to logind was lost: {error}",
    "signal-rejected": "{count} from somebody else than logind, or with a wrong body ({reason})",
    "clock-stepped": "the wall clock was moved by {delta}; no deadline moved with it",
    # --- the record itself
    "begin-lost": "the record of its begin is lost: what became of its pods is not known",
    "record-damaged": "the record ends here, in damage: what happened after it is not known",
    "unreadable": "{count} could not be read, and is not told of: the journal was edited, or miswritten",
    "unknown-events": "{count} of types that this version does not know ({types}): use a newer ebbtide",
}

#: Those that are told once however often they happen, and what is counted.
TALLIED_NOTICES: dict[str, str] = {
    "durability-late": "effect",
    "signal-rejected": "signal",
    "delete-refused": "delete",
    "unreadable": "record",
}


def notice_text(code: str, **values: object) -> str:
    """The sentence of a code. Raises KeyError on a code that is not in the table."""
    return NOTICE_TEXTS[code].format(**values)

"""The fold of a shutdown: what each event means for its record.

It executes no logic, so it reads any version's journal: it counts unknown types, and skips payloads that it
cannot decode. A pod or wave without an introduction gets a short record: the journal may have lost its begin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import msgspec
from msgspec.structs import asdict, replace

from ebbtide.events import base
from ebbtide.events import decisions as d
from ebbtide.events import facts as f
from ebbtide.events.base import Event, Record, Stamp, episode_id, shutdown_trace_id
from ebbtide.events.codec import (
    FLAG_LAST,
    BadPayload,
    RawRecord,
    count_values,
    decode_event,
    plain_payload,
)
from ebbtide.events.messages import END_REASON_TEXTS, Names, plural, shortened_list
from ebbtide.events.record import shutdown_record
from ebbtide.events.record.causes import reason_text
from ebbtide.events.record.shutdown_record import TALLIED_NOTICES, RecordPart, notice_text
from ebbtide.events.segment import Header, Identity, Link
from ebbtide.events.units import size_text, span
from ebbtide.events.values import Hook, Period, Pod

MethodT = TypeVar("MethodT", bound=Callable[..., None])
PartT = TypeVar("PartT", bound=RecordPart)


class RecordPoint(NamedTuple):
    """``at_ns``: since the episode's begin; ``same_boot``: in the boot of that begin."""

    seq: int
    at_ns: int
    same_boot: bool


def meaning(*kinds: type[Event]) -> Callable[[MethodT], MethodT]:
    """Makes a fold's method the handler of these events."""

    def mark(method: MethodT) -> MethodT:
        vars(method)["tags"] = tuple(kind.__name__ for kind in kinds)
        return method

    return mark


#: In the events of one record: a value or four bytes of text count one, and take some 40 bytes of memory; a
#: comparison counts too. A shutdown of 10 000 pods has four to five million.
KEPT_MAX = 5_000_000
#: Of a pod's containers, hooks and autopsies each, which the fold searches one by one.
PARTS_MAX = 256
#: No configuration has so many periods.
WAVES_MAX = 1024
#: Of unknown types: a notice names all of them.
TYPES_MAX = 64
BYTES_A_VALUE = 4
#: Twice the largest record, the plan for 10 000 pods. Notices and tables repeat a text.
RECORD_BYTES_MAX = 2 << 20


class EpisodeFold:
    """Times are nanoseconds since the episode's begin."""

    #: By type tag. A reader need not decode other types.
    handlers: ClassVar[dict[str, Callable[[Any, Any], None]]]
    #: Tags that count after the episode's end, in records of no episode.
    late_tags: ClassVar[tuple[str, ...]] = ()
    record: Any

    def __init_subclass__(cls) -> None:
        cls.handlers = {tag: each for each in vars(cls).values() for tag in getattr(each, "tags", ())}

    def __init__(self, number: int, first: RawRecord | Stamp, boot_id: str) -> None:
        self.number = number
        self.started = Stamp(first.mono_ns, first.wall_ns)
        self.boot_id = boot_id
        self.unreadable: BadPayload | None = None
        #: The current record.
        self.point = RecordPoint(number, 0, True)
        self.kept = 0

    def decode(self, raw: RawRecord) -> Event:
        """Raises BadPayload, also above `KEPT_MAX`."""
        if len(raw.payload) > RECORD_BYTES_MAX:
            raise BadPayload(f"{raw.tag} of more than {size_text(RECORD_BYTES_MAX)}")
        self.spend(1 + count_values(raw.payload) + len(raw.payload) // BYTES_A_VALUE)
        return decode_event(raw.tag, raw.payload)

    def spend(self, values: int) -> None:
        """Raises BadPayload above `KEPT_MAX`."""
        self.kept += values
        if self.kept > KEPT_MAX:
            raise BadPayload(f"the events of {self.record.id} have more values than any node's")

    def turn_to(self, record: RawRecord | Record, boot_id: str) -> None:
        """``boot_id``: of the record's writer."""
        # The monotonic clock restarts with each boot: between boots only the wall clock measures.
        same = boot_id == self.boot_id
        at_ns = record.mono_ns - self.started.mono_ns if same else record.wall_ns - self.started.wall_ns
        self.point = RecordPoint(record.seq, at_ns, same)

    @property
    def goes_on(self) -> bool:
        raise NotImplementedError

    def take(self, raw: RawRecord, header: Header, fact: RawRecord | None) -> Event | None:
        raise NotImplementedError

    def finish(self, boot_id: str | None, damage: Any) -> Any:
        raise NotImplementedError


def begin_of_record(number: int, first: RawRecord | Stamp, header: Header) -> dict[str, Any]:
    """From the first record of an episode, and its segment's header."""
    identity = header.identity
    return {
        "id": episode_id(header.journal_id, number),
        "trace_id": shutdown_trace_id(first.hash if isinstance(first, RawRecord) else b""),
        "journal_id": header.journal_id.hex(),
        "first_seq": number,
        "last_seq": number,
        "node": identity.node,
        "boot_id": identity.boot_id,
        "version": identity.code_version,
        "logic": identity.logic,
        "started_wall_ns": first.wall_ns,
        "started_mono_ns": first.mono_ns,
    }


def grouped_by_episode(records: Sequence[RawRecord]) -> Sequence[RawRecord]:
    """Each episode's records together.

    One step may close a cancelled shutdown and open the next: its first record belongs to the next one, and
    the closing records follow.
    """
    opening = [index for index, raw in enumerate(records) if raw.episode == raw.seq and raw.cause == 0]
    if not opening:
        return records
    made = list(records)
    for index in opening:
        ends = (at + 1 for at in range(index, len(made)) if made[at].flags & FLAG_LAST)
        end = next(ends, len(made))
        mine = made[index].episode
        step = made[index:end]
        made[index:end] = [
            *(raw for raw in step if raw.episode not in (0, mine)),
            *(raw for raw in step if raw.episode in (0, mine)),
        ]
    return made


# --- a shutdown


class BootRecord(NamedTuple):
    """``episode``: the id of the boot's shutdown or outage, or empty."""

    event: d.LastBootEnded
    episode: str


class Beforehand:
    """The state of the node before a shutdown, and how boots ended.

    After retention, the first checkpoint has the configuration, as plain values. ``process`` None: no start
    is on record.
    """

    def __init__(self) -> None:
        self.configuration = shutdown_record.ConfigurationRecord()
        self.process: shutdown_record.ProcessRecord | None = None
        self.assessed: d.GrantAssessed | None = None
        self.schedule: f.ScheduleRead | None = None
        #: How each part failed at its last look; empty: it answered.
        self.parts: dict[PartName, str] = {}
        self.boots: list[BootRecord] = []
        #: By boot: the id of its last shutdown. The next may begin before the report on a boot comes.
        self.last_of_boot: dict[str, str] = {}
        self._fresh = True

    def learn(self, raw: RawRecord) -> None:
        """Raises BadPayload."""
        fresh, self._fresh = self._fresh, False
        if raw.tag not in _LEARNED:
            return
        match decode_event(raw.tag, raw.payload):
            case d.LastBootEnded() as event:
                episode = self.last_of_boot.get(event.boot_id, "") if event.recorded else ""
                self.boots.append(BootRecord(event, episode))
            case f.DaemonStarted() as event:
                self.schedule, self.process = None, process_record(event, raw.seq, None)
                self.parts = {}
            case d.ConfigAdopted() as event:
                adopted = {name: of for name, of in asdict(event).items() if name in _CONFIGURED}
                self.configuration = replace(self.configuration, **adopted)
            case f.SettingsLoaded() as event:
                # The actors adopt them in this step, or load them again after the shutdown.
                self.configuration = replace(self.configuration, sources=event.sources)
            case d.GrantAssessed() as event:
                self.assessed = event
            case f.ScheduleRead() as event:
                self.schedule = event if event.at_wall_ns else None
            case f.ApiRead() | f.RuntimeRead() | f.KubeletRead() as event:
                part, self.parts[part] = part_state(event)
            case base.Checkpoint() as mark if fresh:
                names = ("EpisodeActor", "NodeStatusActor")
                mine = (each for each in mark.actors if each.actor in names and not each.subject)
                states = {each.actor: plain_payload(bytes(each.state)) for each in mine}
                plan, status = (of if isinstance(of := states.get(name), dict) else {} for name in names)
                given = ("periods", "requested_ns", "reserve_ns", "sleep_action")
                known: dict[str, Any] = {name: plan[name] for name in given if name in plan}
                known["budget"] = "elastic" if plan.get("elastic") else "strict"
                known["status_flush_ns"] = status.get("flush_ns", 0)
                known["trace_flush_ns"] = status.get("trace_flush_ns", 0)
                with suppress(msgspec.ValidationError):
                    self.configuration = msgspec.convert(known, shutdown_record.ConfigurationRecord)


_CONFIGURED = shutdown_record.ConfigurationRecord.__struct_fields__
_LEARNED = tuple(
    kind.__name__
    for kind in (
        *(d.LastBootEnded, f.DaemonStarted, d.ConfigAdopted, f.SettingsLoaded, d.GrantAssessed),
        *(f.ScheduleRead, f.ApiRead, f.RuntimeRead, f.KubeletRead, base.Checkpoint),
    )
)


def process_record(event: f.DaemonStarted, seq: int, at_ns: int | None) -> shutdown_record.ProcessRecord:
    return shutdown_record.ProcessRecord(
        seq=seq, at_ns=at_ns, version=event.version, pid=event.pid, mode=event.mode, boot_id=event.boot_id
    )


PartName = Literal["runtime", "kubelet", "api-server"]
PartRead = f.ApiRead | f.RuntimeRead | f.KubeletRead


def part_state(event: PartRead) -> tuple[PartName, str]:
    """The part, and how it fails; empty: it answers, or the state is unknown."""
    if isinstance(event, f.KubeletRead):
        if event.active is False:
            return "kubelet", "the kubelet does not run"
        ill = event.active and event.healthy is False
        return "kubelet", "the kubelet does not answer, or says that it is not healthy" if ill else ""
    why = f" ({event.error})" if event.error and event.error != "no answer" else ""
    if isinstance(event, f.ApiRead):
        return "api-server", "" if event.reachable else f"the API server did not answer{why}"
    return "runtime", "" if event.reachable else f"the container runtime did not answer{why}"


#: Fates of pods with an observed end.
SEEN_OUTCOMES = ("graceful", "killed")

#: For a reader without a journal.
_NO_HEADER = Header(
    journal_id=b"",
    segment=0,
    anchor_wall_ns=0,
    anchor_mono_ns=0,
    carries=False,
    link=Link(),
    identity=Identity("", "", "", ""),
)


_NOTED_FATES = {"killed": "pod-killed", "failed": "pod-failed", "unknown": "pod-unknown"}

#: A cancelled hook needs no notice.
_NOTED_HOOKS = {
    "failed": "hook-failed",
    "timed-out": "hook-timed-out",
    "not-run": "hook-not-run",
    "unknown": "hook-unknown",
}


class ShutdownFold(EpisodeFold):
    """`finish` completes ``record``. A reader without a journal gives neither ``before`` nor ``header``."""

    record: shutdown_record.ShutdownRecord

    def __init__(
        self,
        number: int,
        first: RawRecord | base.Stamp,
        header: Header = _NO_HEADER,
        before: Beforehand | None = None,
        former: ShutdownFold | None = None,
    ) -> None:
        identity, before = header.identity, before or Beforehand()
        super().__init__(number, first, identity.boot_id)
        self.record = shutdown_record.ShutdownRecord(
            **begin_of_record(number, first, header),
            machine_id=identity.machine_id,
            headless=isinstance(first, RawRecord) and first.seq != number,
            configuration=before.configuration,
            failed_parts=[
                shutdown_record.FailedPart(part=part, at_ns=0, text=text)
                for part, text in before.parts.items()
                if text
            ],
        )
        self.pods: dict[str, shutdown_record.PodRecord] = {}
        self.specs: dict[str, Pod] = {}
        self.waves: list[shutdown_record.WaveRecord] = []
        #: The pods of each wave: a search in a list grows with its length.
        self.waved: dict[int, dict[str, None]] = {}
        #: UIDs in the order of the plan.
        self.planned: dict[str, None] = {}
        #: When each pod got its fate, also without an observed end.
        self.decided_ns: dict[str, int] = {}
        #: Pods outside of the plan: listed late, or from an earlier shutdown that was ending them.
        self.listed = {} if former is None else former.without_fate()
        begun = () if former is None else (u for u in self.listed if former.pods[u].began_ns is not None)
        self.stopping = dict.fromkeys(begun)
        self.released_ns: int | None = None
        self.withdrawn = False
        self.closed: d.EpisodeOutcome | None = None
        self.closed_ns: int | None = None
        self.begun = False
        #: The latest daemon inherited the lock of the daemon before.
        self.inherited = True
        self.longest_wait_ns = 0
        self.assessed = before.assessed
        self.schedule = before.schedule
        self.beside: dict[str, shutdown_record.OrderRecord] = {}
        self.processes = [] if before.process is None else [replace(before.process)]
        self.notices: list[shutdown_record.Notice] = []
        #: By code: its notice, and a count.
        self.tallies: dict[str, tuple[shutdown_record.Notice, int]] = {}
        before.last_of_boot[self.boot_id] = self.record.id

    def see(self, event: base.Event) -> None:
        """At the point of the last `turn_to`."""
        handle = self.handlers.get(type(event).__name__)
        if handle is not None:
            # A live shutdown continues, even if its record is incomplete.
            with suppress(BadPayload):
                handle(self, event)

    def take(self, raw: RawRecord, header: Header, fact: RawRecord | None) -> Event | None:
        if raw.episode == self.number:
            self.record.events += 1
            self.record.last_seq = raw.seq
        elif raw.tag != d.LastBootEnded.__name__ and (
            raw.tag not in CLOSING_TAGS or fact is None or fact.episode != self.number
        ):
            return None
        self.turn_to(raw, header.identity.boot_id)
        event, handle = None, self.handlers.get(raw.tag)
        if handle is not None:
            try:
                event = self.decode(raw)
                handle(self, event)
            except BadPayload as error:
                self.unreadable = error
                self.tally("unreadable")
        elif raw.tag not in base.TYPES:
            unknown = self.record.unknown_types
            tag = raw.tag if raw.tag in unknown or len(unknown) < TYPES_MAX else "others"
            unknown[tag] = unknown.get(tag, 0) + 1
        if raw.episode == self.number and self.point.same_boot and raw.tag not in MARK_TAGS:
            self.record.last_ns = self.point.at_ns
        return event

    def since(self, mono_ns: int) -> int:
        return mono_ns - self.started.mono_ns

    def without_fate(self) -> dict[str, Pod]:
        return {uid: spec for uid, spec in self.specs.items() if self.pods[uid].outcome is None}

    def introduce(self, spec: Pod) -> shutdown_record.PodRecord:
        """A known pod keeps its record."""
        self.specs[spec.uid] = spec
        pod = self.pods.get(spec.uid)
        if pod is None:
            pod = self.pods[spec.uid] = shutdown_record.PodRecord(
                uid=spec.uid,
                namespace=spec.namespace,
                name=spec.name,
                priority=spec.priority,
                wanted_grace_seconds=spec.grace_seconds,
                owner=spec.owner,
                volumes=spec.volumes,
                again=spec.uid in self.stopping or spec.deletion is not None,
                containers=[
                    shutdown_record.ContainerRecord(
                        name=each.name,
                        sidecar=each.sidecar,
                        stop_signal=each.stop_signal,
                        running=each.running,
                    )
                    for each in spec.containers
                ],
            )
        return pod

    def pod(self, uid: str) -> shutdown_record.PodRecord:
        pod = self.pods.get(uid)
        if pod is not None:
            return pod
        return self.introduce(self.listed.get(uid) or Pod(uid=uid, namespace="", name=uid))

    def container(self, uid: str, name: str) -> shutdown_record.ContainerRecord:
        pod = self.pod(uid)
        for each in pod.containers:
            if each.name == name:
                return each
        made = shutdown_record.ContainerRecord(name=name)
        _add(pod.containers, made)
        return made

    def wave(self, index: int) -> shutdown_record.WaveRecord:
        """Adds missing waves, because the fallback makes no plan. Raises BadPayload."""
        if index > WAVES_MAX:
            raise BadPayload(f"wave {index} is above {WAVES_MAX}")
        while len(self.waves) <= max(index, 0):
            self.waves.append(shutdown_record.WaveRecord(index=len(self.waves), priority=0, planned_ns=0))
        return self.waves[index]

    def label(self, uid: str) -> str:
        """Of any pod: a pod that ended before the signal may have a mounted volume."""
        known = self.pods.get(uid) or self.listed.get(uid)
        return uid if known is None else known.label

    def labels(self, uids: Iterable[str]) -> str:
        return shortened_list(list(map(self.label, uids)))

    # --- notices

    def note(self, code: str, uid: str = "", **values: Any) -> None:
        """Adds a notice at the current record."""
        if uid:
            values["pod"] = self.pod(uid).label
        self.notices.append(self._notice(self.point, code, uid, **values))

    def tally(self, code: str, **values: Any) -> None:
        """One notice for all, at the first occurrence, with the last ``values``."""
        if code not in self.tallies:
            self.notices.append(self._notice(self.point, code, count="", **values))
            self.tallies[code] = (self.notices[-1], 0)
        notice, count = self.tallies[code]
        self.tallies[code] = (notice, count + 1)
        notice.text = notice_text(code, count=plural(count + 1, TALLIED_NOTICES[code]), **values)

    def _notice(self, point: RecordPoint, code: str, uid: str = "", **values: Any) -> shutdown_record.Notice:
        text = notice_text(code, **values)
        return shutdown_record.Notice(seq=point.seq, at_ns=point.at_ns, code=code, text=text, pod=uid)

    # --- the end

    @property
    def goes_on(self) -> bool:
        """The journal does not have its end."""
        return self.released_ns is None and self.closed is None

    def outcome(self, boot_id: str | None, *, damaged: bool) -> d.EpisodeOutcome:
        """An open shutdown is running. It was cut short if ``boot_id`` (this machine's, now) is another one,
        or if its record ends in damage.
        """
        if self.released_ns is not None:
            return "complete"
        if self.closed is not None:
            # Without its begin the record may lack the release, which the closing daemon has read.
            unreleased = self.withdrawn or not self.record.headless
            return "truncated" if self.closed == "complete" and unreleased else self.closed
        same_boot = boot_id in (None, self.boot_id)
        return "running" if same_boot and not damaged else "truncated"

    def ended_ns(self, outcome: d.EpisodeOutcome) -> int | None:
        return {"complete": self.released_ns, "cancelled": self.closed_ns}.get(outcome)

    def finish(
        self, boot_id: str | None = None, damage: shutdown_record.DamageRecord | None = None
    ) -> shutdown_record.ShutdownRecord:
        """``boot_id``: see `outcome`."""
        record, schedule = self.record, self.schedule
        damaged = damage is not None and damage.here
        record.outcome = self.outcome(boot_id, damaged=damaged)
        record.ended_ns = self.ended_ns(record.outcome)
        record.damage = damage
        record.waves = tuple(self.waves)
        record.pods = tuple(self.pods.values())
        record.beside = tuple(self.beside.values())
        record.processes = tuple(self.processes)
        if schedule is not None:
            record.asked_by_uid, record.asked_tty = schedule.uid, schedule.tty
            record.wall_message = schedule.wall_message
        record.notices = self._all_notices(record.outcome, damaged)
        return record

    def _all_notices(self, outcome: d.EpisodeOutcome, damaged: bool) -> tuple[shutdown_record.Notice, ...]:
        """Notices about the record's end come last."""
        found, record = list(self.notices), self.record
        end = RecordPoint(record.last_seq, record.last_ns, True)
        if record.headless:
            found.insert(0, self._notice(RecordPoint(self.number, 0, True), "begin-lost"))
        if outcome in ("truncated", "never-begun") and (damaged or not record.headless):
            code = "cut-short" if outcome == "truncated" and record.last_wave >= 0 else "never-begun"
            # Every shutdown begins with `ShutdownBegan`. Without it the first records were unreadable.
            code = "begin-lost" if outcome == "truncated" and not self.begun else code
            code, why = "record-damaged" if damaged else code, END_REASON_TEXTS.get(record.boot_end_why, "")
            why, last = f" ({why})" if why else "", span(record.last_ns)
            found.append(self._notice(end, code, wave=record.last_wave, why=why, last=last))
        if (holder := record.longest_holder) is not None:
            took = span(holder.held_until_ns - (record.ended_ns or 0))
            took = f"at least {took}" if holder.until_ns is None else took
            named: dict[str, Any] = {
                "who": holder.who,
                "pid": holder.pid,
                "user": holder.uid,
                "why": holder.why,
            }
            found.append(self._notice(end, "another-holder", took=took, **named))
        if record.unknown_types:
            count = plural(sum(record.unknown_types.values()), "event")
            found.append(
                self._notice(end, "unknown-events", count=count, types=", ".join(record.unknown_types))
            )
        return tuple(found)

    # --- the shutdown and its waves

    @meaning(d.ShutdownDetected)
    def shutdown_detected(self, event: d.ShutdownDetected) -> None:
        if event.overtime:
            self.record.overtime = True
            self.note("overtime")

    @meaning(d.ShutdownBegan)
    def shutdown_began(self, event: d.ShutdownBegan) -> None:
        record, self.begun = self.record, True
        record.kind, record.lock_held = event.kind, event.lock_held
        record.grant_ns, record.budget_ns = event.grant_ns, event.budget_ns
        record.deadline_ns, record.release_by_ns = map(self.since, (event.deadline_ns, event.release_by_ns))
        # logind waits for the kubelet's lock too.
        if not (event.lock_held or record.by.kubelet_lock):
            record.lock_lost_ns = 0
            self.note("lock-not-held")
        asked = record.configuration
        if event.grant_ns >= asked.requested_ns + asked.reserve_ns:
            return
        overridden = record.grant_overridden_by = "" if self.assessed is None else self.assessed.overridden_by
        self.note(
            "grant-too-small" if event.grant_ns < asked.requested_ns else "reserve-not-granted",
            grant=span(event.grant_ns),
            requested=span(asked.requested_ns),
            override=f" ({overridden} overrides it)" if overridden else "",
        )

    @meaning(d.DeadlineMoved)
    def deadline_moved(self, event: d.DeadlineMoved) -> None:
        deadline_ns = self.record.deadline_ns = self.since(event.deadline_ns)
        self.record.release_by_ns = self.since(event.release_by_ns)
        self.spend(len(self.pods))
        for pod in self.pods.values():
            if pod.began_ns is not None and pod.outcome is None:
                pod.kill_by_ns = self.since(event.kill_by_ns)
        for wave in self.waves:
            if wave.outcome == "open" and wave.deadline_ns is not None:
                wave.deadline_ns = min(wave.deadline_ns, deadline_ns)
        self.note("deadline-moved", deadline=span(deadline_ns))

    @meaning(d.PlanMade)
    def plan_made(self, event: d.PlanMade) -> None:
        self.waved = {}
        self.waves = [
            shutdown_record.WaveRecord(
                index=index,
                priority=wave.priority,
                planned_ns=wave.period_seconds * base.NS_PER_SECOND,
                pods=[pod.uid for pod in wave.pods],
                handover=wave.handover,
            )
            for index, wave in enumerate(event.waves)
        ]

    @meaning(d.WaveStarted)
    def wave_started(self, event: d.WaveStarted) -> None:
        wave = self.wave(event.wave)
        wave.priority, wave.period_ns = event.priority, event.period_ns
        wave.began_ns, wave.deadline_ns = self.point.at_ns, self.since(event.deadline_ns)
        wave.outcome = "open"
        self.record.last_wave = event.wave

    @meaning(d.WaveEnded)
    def wave_ended(self, event: d.WaveEnded) -> None:
        # A wave without a begin belongs to an earlier shutdown.
        if event.wave >= len(self.waves) or self.waves[event.wave].began_ns is None:
            return
        wave = self.waves[event.wave]
        wave.ended_ns, wave.outcome = self.point.at_ns, event.outcome
        wave.unused_ns, wave.stragglers, wave.mounted = event.unused_ns, event.stragglers, event.mounted
        if event.mounted:
            count, pods = plural(len(event.mounted), "pod"), self.labels(event.mounted)
            self.note("volumes-mounted", wave=event.wave, count=count, pods=pods)
        if event.outcome == "overran" and event.stragglers:
            count = plural(len(event.stragglers), "pod")
            period = span((wave.deadline_ns or 0) - (wave.began_ns or 0))
            self.note("wave-overran", wave=event.wave, priority=wave.priority, period=period, count=count)

    @meaning(d.PodsEnded)
    def pods_ended(self, event: d.PodsEnded) -> None:
        if self.record.pods_ended_ns is None:
            self.record.pods_ended_ns = self.point.at_ns
        if event.unfinished:
            count, pods = plural(len(event.unfinished), "pod"), self.labels(event.unfinished)
            self.note("pods-unfinished", count=count, pods=pods)

    @meaning(d.ShutdownCancelled)
    def shutdown_cancelled(self, event: d.ShutdownCancelled) -> None:
        if self.record.cancelled_ns is None:
            self.record.cancelled_ns = self.point.at_ns
        self.record.cancel_reason = event.reason
        self.note("cancelled", reason=event.reason)

    @meaning(d.StatusesSettled)
    def statuses_settled(self, event: d.StatusesSettled) -> None:
        if self.point.same_boot and self.closed is None:
            self.record.statuses_settled_ns = self.point.at_ns
        if event.missing:
            self.record.undelivered = len(event.missing)
            statuses = "pod status" if len(event.missing) == 1 else "pod statuses"
            pods = self.labels(event.missing)
            self.note("statuses-undelivered", count=f"{len(event.missing)} {statuses}", pods=pods)

    @meaning(d.ShutdownWithdrawn)
    def shutdown_withdrawn(self, event: d.ShutdownWithdrawn) -> None:
        """The machine stayed up, so the release does not count."""
        self.released_ns, self.withdrawn = None, True

    @meaning(d.LastBootEnded)
    def boot_ended(self, event: d.LastBootEnded) -> None:
        if event.recorded and event.boot_id == self.boot_id:
            self.record.boot_end_why = event.why

    @meaning(d.EpisodeClosed)
    def episode_closed(self, event: d.EpisodeClosed) -> None:
        self.closed, self.closed_ns = event.outcome, self.point.at_ns
        for pod in self.pods.values():
            if event.followed and pod.outcome is None:
                pod.goes_on, pod.reason = True, "goes on in the next shutdown"

    # --- orders beside the waves

    @meaning(*(kind for kind in base.TYPES.values() if issubclass(kind, base.Order) and kind.beside))
    def side_order_given(self, event: base.Order) -> None:
        seq, at_ns, _ = self.point
        text = f.order_text(Names(), event.key)
        order = shutdown_record.OrderRecord(what=event.beside, text=text, seq=seq, began_ns=at_ns)
        self.beside[event.key] = order

    @meaning(d.ReleaseLock)
    def lock_released(self, event: d.ReleaseLock) -> None:
        self.released_ns = self.point.at_ns
        self.side_order_given(event)

    @meaning(f.OrderEnded)
    def order_ended(self, event: f.OrderEnded) -> None:
        beside, failed = self.beside.get(event.key), event.result == "failed"
        if beside is not None and beside.ended_ns is None:
            beside.ended_ns, beside.result, beside.reason = self.point.at_ns, event.result, event.reason
            if event.result in f.FAILED_RESULTS:
                why = event.reason or "no reason given"
                self.note(f"{beside.what}-failed", result=event.result, reason=why)
        key = base.parse_order_key(event.key)
        if key.subject not in self.pods:
            return
        if key.what == "stop":
            self.container(key.subject, key.part).answered_ns = event.elapsed_ns
        if event.result not in ("done", "failed"):
            return
        why = event.reason if failed else ""
        if key.what == "stop":
            container = self.container(key.subject, key.part)
            container.stop_refused, container.stop_refusal = failed, why
            container.taken_ns = None if failed else self.point.at_ns
        elif key.what == "kill":
            self.container(key.subject, key.part).kill_refusal = why

    # --- a Kubernetes node

    @meaning(d.MeansChosen)
    def termination_mode_chosen(self, event: d.MeansChosen) -> None:
        self.record.by.means, self.record.by.reason = event.means, event.reason

    @meaning(d.HandedOver)
    def handed_over(self, event: d.HandedOver) -> None:
        by = self.record.by
        by.handed_over_ns, by.handed_over_reason = self.point.at_ns, event.reason
        if event.reason.startswith("the kubelet "):
            self.part_turned("kubelet", event.reason)
        # No warning if the plan hands over pods that no delete ends.
        if not any(wave.handover for wave in self.waves if wave.outcome == "open"):
            self.note("handed-over", reason=event.reason)

    @meaning(f.ApiRead, f.RuntimeRead, f.KubeletRead)
    def part_read(self, event: PartRead) -> None:
        part, fails = part_state(event)
        # A kubelet that we stopped does not run.
        if part == "kubelet" and (self.record.by.means == "cri" or self.record.by.handed_over_ns is not None):
            return
        self.part_turned(part, fails)
        if fails and not isinstance(event, f.KubeletRead):
            self.note(
                "api-lost" if part == "api-server" else "runtime-lost", error=event.error or "no answer"
            )

    def part_turned(self, part: PartName, fails: str) -> None:
        """``fails`` empty: it answers again."""
        parts, at_ns = self.record.failed_parts, self.point.at_ns
        open_ = next((each for each in parts if each.part == part and each.until_ns is None), None)
        if fails and open_ is None:
            parts.append(shutdown_record.FailedPart(part=part, at_ns=at_ns, text=fails))
        elif not fails and open_ is not None:
            open_.until_ns = at_ns

    @meaning(f.PrepareForShutdown)
    def signalled(self, event: f.PrepareForShutdown) -> None:
        self.record.by.kubelet_lock |= event.active and event.kubelet_lock

    @meaning(d.DeleteRefused)
    def delete_refused(self, event: d.DeleteRefused) -> None:
        if event.earlier_until_ns:
            # The server refused to shorten the deletion, so a hurry had no effect.
            self.pod(event.uid).hurried_ns = None
            return
        self.pod(event.uid).refused = event.reason
        self.tally("delete-refused", reason=event.reason)

    @meaning(f.VolumesUnmounted)
    def volumes_unmounted(self, event: f.VolumesUnmounted) -> None:
        if event.uid in self.pods:
            self.pods[event.uid].unmounted_ns = self.point.at_ns

    @meaning(d.DetachCertified)
    def detach_certified(self, event: d.DetachCertified) -> None:
        self.record.by.certificate = event
        if not event.safe:
            uids = (*event.running, *(uid for uid, _ in event.mounted))
            self.note(
                "not-safe-to-detach", why=event.why_unsafe(Names({uid: self.label(uid) for uid in uids}))
            )

    @meaning(d.LeftUndone)
    def left_undone(self, event: d.LeftUndone) -> None:
        self.record.by.left_running = event.running
        self.record.by.left_without_status = event.without_status
        for code, uids in (
            ("kubelet-left-running", event.running),
            ("final-statuses-missing", event.without_status),
        ):
            if uids:
                self.note(code, count=plural(len(uids), "pod"), pods=self.labels(uids))

    # --- pods, hooks and containers

    # If the kubelet ends a pod, its stop begins with its delete, or in mode observe with its wave.

    @meaning(f.InventoryTaken)
    def inventory_taken(self, event: f.InventoryTaken) -> None:
        """After the plan, only `PodPlanned` adds a pod to it."""
        if self.planned:
            self.listed |= {spec.uid: spec for spec in event.pods}
            return
        for spec in event.pods:
            self.introduce(spec).outcome = None

    @meaning(f.PodJoined)
    def pod_joined(self, event: f.PodJoined) -> None:
        self.listed[event.pod.uid] = event.pod

    @meaning(d.PodPlanned)
    def pod_planned(self, event: d.PodPlanned) -> None:
        uid = event.pod.uid
        self.planned[uid] = None
        pod, wave = self.introduce(event.pod), self.wave(event.wave)
        pod.wave, pod.grace_seconds = event.wave, event.grace_seconds
        pod.late, pod.means, pod.outcome = event.late, event.means, None
        if uid not in self.waved.setdefault(event.wave, dict.fromkeys(wave.pods)):
            self.waved[event.wave][uid] = None
            wave.pods.append(uid)
        if event.late:
            self.note("pod-late", uid, wave=event.wave)

    @meaning(d.PodRejected)
    def pod_rejected(self, event: d.PodRejected) -> None:
        if event.uid not in self.pods:
            namespace, _, name = event.label.rpartition("/")
            pod = self.introduce(Pod(uid=event.uid, namespace=namespace, name=name))
            pod.outcome, pod.reason = "rejected", event.message or event.reason
            pod.rejected_ns = self.point.at_ns

    @meaning(d.PodStopBegan)
    def pod_stop_began(self, event: d.PodStopBegan) -> None:
        """The fallback may repeat it: the grace runs since the first one."""
        pod = self.pod(event.uid)
        if pod.began_ns is None:
            pod.began_ns, pod.grace_ns = self.point.at_ns, event.grace_ns
            pod.kill_by_ns = self.since(event.kill_by_ns)
            if pod.means == "observe":
                self.ask_to_end(pod)

    @meaning(d.DeletePod)
    def pod_deleted(self, event: d.DeletePod) -> None:
        self.ask_to_end(self.pod(event.uid))

    def ask_to_end(self, pod: shutdown_record.PodRecord) -> None:
        for each in pod.containers:
            if each.running and each.asked_ns is None and each.exited_ns is None:
                each.asked_ns = self.point.at_ns

    @meaning(d.SendSignal)
    def signal_sent(self, event: d.SendSignal) -> None:
        """The first signal counts. A repeat follows an unknown outcome."""
        container = self.container(event.uid, event.container)
        if container.signalled_ns is None:
            container.signalled_ns, container.stop_signal = self.point.at_ns, event.signal

    @meaning(d.KillContainer)
    def kill_ordered(self, event: d.KillContainer) -> None:
        container = self.container(event.uid, event.container)
        if container.killed_ns is None:
            container.killed_ns = self.point.at_ns

    @meaning(d.HookStarted)
    def hook_started(self, event: d.HookStarted) -> None:
        self.add_hook(event.uid, event.container, event.kind, self.since(event.until_ns))

    def add_hook(
        self, uid: str, container: str, kind: str = "", until_ns: int | None = None
    ) -> shutdown_record.HookRecord:
        """A pod without an introduction has no spec."""
        spec = Hook(kind="exec")
        for each in self.specs[uid].containers if uid in self.specs else ():
            if each.name == container and each.hook is not None:
                spec = each.hook
        hook = shutdown_record.HookRecord(
            container=container,
            kind=kind or spec.kind,
            detail=spec.detail,
            began_ns=self.point.at_ns,
            until_ns=self.point.at_ns if until_ns is None else until_ns,
        )
        _add(self.pod(uid).hooks, hook)
        return hook

    @meaning(d.HookEnded)
    def hook_ended(self, event: d.HookEnded) -> None:
        """A skipped hook ends without a begin."""
        hooks = self.pod(event.uid).hooks
        begun = (each for each in hooks if each.container == event.container and each.ended_ns is None)
        hook = next(begun, None) or self.add_hook(event.uid, event.container)
        hook.ended_ns, hook.result = self.point.at_ns, event.result
        hook.reason, hook.early = event.reason, event.early
        code = _NOTED_HOOKS.get(event.result)
        if code is not None:
            took, reason = span(event.elapsed_ns), event.reason or event.result
            self.note(code, event.uid, kind=hook.kind, container=event.container, took=took, reason=reason)

    @meaning(f.ContainerExited)
    def container_exited(self, event: f.ContainerExited) -> None:
        if event.uid in self.pods:
            container = self.container(event.uid, event.container)
            if container.exited_ns is None:
                container.exited_ns = self.point.at_ns
                container.exit_code, container.exit_signal = event.exit_code, event.signal

    @meaning(f.AutopsyTaken)
    def autopsy_taken(self, event: f.AutopsyTaken) -> None:
        taken = shutdown_record.AutopsyRecord(
            container=event.container,
            at_ns=self.point.at_ns,
            processes=event.processes,
            last_lines=event.last_lines,
        )
        _add(self.pod(event.uid).autopsies, taken)

    @meaning(d.PodEnded)
    def pod_ended(self, event: d.PodEnded) -> None:
        pod, at_ns = self.pod(event.uid), self.point.at_ns
        pod.again |= event.uid in self.decided_ns
        self.decided_ns[event.uid] = at_ns
        pod.ended_ns = at_ns if event.outcome in SEEN_OUTCOMES else None
        pod.outcome, pod.reason, pod.succeeded = event.outcome, event.reason, event.succeeded
        pod.gone = event.gone and event.outcome == "unknown"
        pod.reason = reason_text(pod)
        code = _NOTED_FATES.get(event.outcome)
        if code is not None:
            self.note(code, event.uid, reason=pod.reason)

    @meaning(f.HurryRequested)
    def pod_hurried(self, event: f.HurryRequested) -> None:
        """``pod``: a UID, a name, or ``namespace/name``, as for the actors."""
        self.spend(len(self.pods))
        for pod in self.pods.values():
            if event.pod in (pod.uid, pod.name, pod.label) and pod.outcome is None:
                pod.hurried_ns = self.point.at_ns
                self.note("hurried", pod.uid, asker=event.asked_by)

    # --- the daemon and the machine

    @meaning(f.DaemonStarted)
    def daemon_started(self, event: f.DaemonStarted) -> None:
        self.inherited = event.lock_inherited
        seq, at_ns, same_boot = self.point
        if seq != self.number:  # the process at the signal is in the list already
            process = process_record(event, seq, at_ns)
            process.quiet_since_ns = self.record.last_ns if same_boot else None
            self.processes.append(process)

    @meaning(d.Resumed)
    def daemon_resumed(self, event: d.Resumed) -> None:
        record, at_ns = self.record, self.point.at_ns
        # logind gives no lock while the machine goes down.
        if event.action == "resume" and record.lock_held and not (self.inherited or record.lock_lost_ns):
            record.lock_lost_ns = at_ns
        if not self.processes:
            return
        process = self.processes[-1]
        process.action, process.previous = event.action, event.previous
        if event.action.startswith("close-") and process.quiet_since_ns is not None:
            # After a soft reboot the boot is the same, but the shutdown was over before.
            record.last_ns, process.quiet_since_ns = process.quiet_since_ns, None
        if record.lock_lost_ns == at_ns and event.action == "resume":
            self.note("lock-lost")
        if process.at_ns is not None and process.quiet_since_ns is not None:
            self.note("restarted", away=span(process.at_ns - process.quiet_since_ns), action=event.action)

    @meaning(d.ActorFailed)
    def actor_failed(self, event: d.ActorFailed) -> None:
        """``subject``: a pod's UID, or a wave's number."""
        subject = self.pods[event.subject].label if event.subject in self.pods else event.subject
        actor = f"{event.actor} of {subject}" if subject else event.actor
        self.note("actor-failed", actor=actor, error=event.error)

    @meaning(d.FallbackEngaged)
    def fallback_engaged(self, event: d.FallbackEngaged) -> None:
        for uid in event.pods:
            self.pod(uid).fallback = True
        self.note("fallback", count=plural(len(event.pods), "pod"), reason=event.reason)

    @meaning(f.DurabilityLate)
    def durability_late(self, event: f.DurabilityLate) -> None:
        self.longest_wait_ns = max(event.waited_ns, self.longest_wait_ns)
        self.tally("durability-late", waited=span(self.longest_wait_ns))

    @meaning(f.SignalRejected)
    def signal_rejected(self, event: f.SignalRejected) -> None:
        self.tally("signal-rejected", reason=event.reason)

    @meaning(f.LockHoldersRead)
    def holders_read(self, event: f.LockHoldersRead) -> None:
        record, at_ns = self.record, self.point.at_ns
        known = list(record.holders or ())
        self.spend(len(known))
        for holder in event.holders:
            same = (each for each in known if each.until_ns is None and each.of(holder))
            found = next(same, None)
            if found is None:
                made = shutdown_record.HolderRecord(**asdict(holder), began_ns=at_ns, seen_ns=at_ns)
                known.append(made)
            else:
                found.seen_ns = at_ns
        for each in known:
            if each.until_ns is None and not any(map(each.of, event.holders)):
                each.until_ns = at_ns
        record.holders = tuple(known)

    @meaning(f.StopRequested)
    def stop_requested(self, event: f.StopRequested) -> None:
        """The machine waits for no lock any more."""
        for each in self.record.holders or () if event.system_stopping else ():
            each.until_ns = self.point.at_ns if each.until_ns is None else each.until_ns

    @meaning(f.ClockStepped)
    def clock_stepped(self, event: f.ClockStepped) -> None:
        sign = "+" if event.delta_ns > 0 else ""
        self.note("clock-stepped", delta=f"{sign}{span(event.delta_ns)}")

    @meaning(f.ScheduleRead)
    def schedule_read(self, event: f.ScheduleRead) -> None:
        # Ignore an empty schedule: ``shutdown -c`` clears it in logind's delay, and the machine still goes
        # down (systemd 252).
        if event.at_wall_ns:
            self.schedule = event

    @meaning(*(kind for kind in base.TYPES.values() if kind.notice))
    def noted(self, event: base.Event) -> None:
        self.note(event.notice, **asdict(event))


def _add(parts: list[PartT], part: PartT) -> None:
    """Raises BadPayload."""
    if len(parts) >= PARTS_MAX:
        raise BadPayload(f"more than {PARTS_MAX} of a pod: {type(part).__name__}")
    parts.append(part)


#: Records of the closing step that belong to the closed shutdown.
CLOSING_TAGS = (d.Resumed.__name__, d.StatusesSettled.__name__)

MARK_TAGS = {tag: None for tag, kind in base.TYPES.items() if issubclass(kind, base.Mark)}


# --- the node outside of a shutdown

#: Why the daemon is not armed, before it has tried.
NOT_STARTED, STARTING = "not started", "starting"


class NodeState(RecordPart):
    """For the daemon's status and for the metrics. Times are wall-clock times."""

    enabled: bool = False
    armed: bool = False
    #: 0: not armed.
    armed_wall_ns: int = 0
    why_not: str = NOT_STARTED
    retry_at_ns: int = 0
    lock_held: bool = False
    #: The service manager kept the lock for the latest process.
    lock_inherited: bool = False
    grant_ns: int = 0
    requested_ns: int = 0
    reserve_ns: int = 0
    #: The configuration's whole request, with the reserve.
    needed_ns: int = 0
    periods: tuple[Period, ...] = ()
    sufficient: bool = True
    scheduled_wall_ns: int = 0
    #: None: not known since the process began, as in mode process.
    kubelet: bool | None = None
    kubelet_healthy: bool = True
    runtime: bool | None = None
    api: bool | None = None
    runtime_error: str = ""
    api_error: str = ""
    may_taint: bool = True
    #: As in `LogindRead`.
    kubelet_lock: bool = False
    #: None: not known.
    last_boot: d.LastBootEnded | None = None

    @property
    def answers(self) -> dict[str, bool]:
        """Without unknown answers, because False means that the part is down."""
        kubelet = self.kubelet and self.kubelet_healthy
        known = {"kubelet": kubelet, "runtime": self.runtime, "api": self.api}
        return {part: answers for part, answers in known.items() if answers is not None}

    def see(self, record: Record) -> None:
        """A start filters by `NODE_EVENTS`, which has every type here (tests/daemon/test_status.py)."""
        match record.event:
            case f.DaemonStarted() as event:
                # This process must read logind's state and the parts' answers itself.
                self.armed, self.armed_wall_ns, self.why_not = False, 0, STARTING
                self.lock_held = self.lock_inherited = event.lock_inherited
                self.kubelet = self.runtime = self.api = None
                self.runtime_error = self.api_error = ""
            case d.LastBootEnded() as event:
                self.last_boot = event
            case d.ConfigAdopted() as event:
                self.enabled, self.periods = event.enabled, event.periods
                self.requested_ns, self.reserve_ns = event.requested_ns, event.reserve_ns
                self.needed_ns = event.requested_ns + event.reserve_ns if event.enabled else 0
            case d.Armed():
                self.armed = self.lock_held = True
                self.armed_wall_ns, self.why_not, self.retry_at_ns = record.wall_ns, "", 0
            case d.Disarmed() as event:
                self._disarm(event.reason)
                self.retry_at_ns = event.retry_at_ns
            case d.ReleaseLock():
                self._disarm("the lock was released, the machine may go")
            case f.LogindRead() as event:
                self.grant_ns, self.kubelet_lock = event.grant_ns, event.kubelet_lock
            case f.PrepareForShutdown() as event:
                if event.active:  # the signal that ends a shutdown has no locks
                    self.kubelet_lock = event.kubelet_lock
            case d.GrantAssessed() as event:
                self.sufficient, self.grant_ns = event.sufficient, event.grant_ns
            case f.ScheduleRead() as event:
                self.scheduled_wall_ns = event.at_wall_ns
            case f.KubeletRead() as event:
                self.kubelet, self.kubelet_healthy = event.active, event.healthy is not False
            case f.RuntimeRead() as event:
                self.runtime, self.runtime_error = event.reachable, event.error
            case f.ApiRead() as event:
                self.api, self.api_error, self.may_taint = event.reachable, event.error, event.taint

    def _disarm(self, why: str) -> None:
        self.armed = self.lock_held = False
        self.armed_wall_ns, self.why_not = 0, why


#: The types that change a `NodeState`.
NODE_EVENTS: tuple[type[Event], ...] = (
    *(f.DaemonStarted, d.LastBootEnded, d.ConfigAdopted, d.Armed, d.Disarmed, d.ReleaseLock, d.GrantAssessed),
    *(f.LogindRead, f.PrepareForShutdown, f.ScheduleRead, f.KubeletRead, f.RuntimeRead, f.ApiRead),
)

"""The fold of a shutdown: what each event means for its record, in one streaming pass.

A reader feeds a journal's records (`shutdown_records`), or the events of a run (`advance`). The fold executes
no logic, so it reads any version's journal. It counts unknown types, and skips payloads that it cannot
decode. Ids, outcomes, ends and counts come from `events.record.episodes`.

A pod or wave that no record introduced gets a short record: the journal may have lost its begin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from ebbtide.events.base import (
    NS_PER_SECOND,
    TYPES,
    Checkpoint,
    Event,
    Mark,
    Order,
    Stamp,
    episode_id,
    parse_order_key,
    shutdown_trace_id,
)
from ebbtide.events.codec import BadPayload, RawRecord, decode_event
from ebbtide.events.decisions import (
    ActorFailed,
    AnnounceNode,
    AwaitStatuses,
    CheckMounts,
    ConfigAdopted,
    DeadlineMoved,
    DeletePod,
    DeleteRefused,
    DeliverStatuses,
    DetachCertified,
    EpisodeOutcome,
    FallbackEngaged,
    FlushTraces,
    GrantAssessed,
    HandedOver,
    HookEnded,
    HookStarted,
    KillContainer,
    KubeletStopped,
    LeftUndone,
    MeansChosen,
    PlanMade,
    PodEnded,
    PodPlanned,
    PodRejected,
    PodsEnded,
    PodStopBegan,
    PublishCertificate,
    ReleaseLock,
    Resumed,
    SendSignal,
    ShutdownBegan,
    ShutdownCancelled,
    ShutdownDetected,
    StartKubelet,
    StatusesSettled,
    StopKubelet,
    TakeInventory,
    WaveEnded,
    WaveStarted,
    WithdrawPods,
)
from ebbtide.events.facts import (
    FAILED_RESULTS,
    ApiRead,
    AutopsyTaken,
    BusLost,
    ClockStepped,
    ContainerExited,
    DaemonStarted,
    DurabilityLate,
    EffectPanicked,
    HurryRequested,
    InventoryTaken,
    ManifestRejected,
    OrderEnded,
    PodJoined,
    ReleaseRequested,
    RuntimeRead,
    ScheduleRead,
    SettingsLoaded,
    SettingsRejected,
    SignalRejected,
    StorageFailed,
    StorageMoved,
    VolumesUnmounted,
)
from ebbtide.events.messages import plural, shortened_list
from ebbtide.events.reader import History
from ebbtide.events.record.causes import reason_text
from ebbtide.events.record.episodes import (
    EPISODE_HANDLERS,
    EpisodeBuilder,
    RecordPoint,
    first_record,
    grouped_by_episode,
    is_outage_history,
)
from ebbtide.events.record.notices import TALLIED_NOTICES, notice_text
from ebbtide.events.record.shutdown_record import (
    AutopsyRecord,
    ConfigurationRecord,
    ContainerRecord,
    DamageRecord,
    HookRecord,
    NodeRecord,
    Notice,
    OrderRecord,
    PodRecord,
    ProcessRecord,
    ShutdownRecord,
    SideOrder,
    WaveRecord,
    damage_of,
)
from ebbtide.events.segment import Header
from ebbtide.events.units import span
from ebbtide.events.values import Hook, Pod


def shutdown_records(history: History, *, boot_id: str | None = None) -> Iterator[ShutdownRecord]:
    """The shutdowns of a history, oldest first, each once the next one begins.

    An open shutdown counts as ``running``. It was cut short if ``boot_id`` (this machine's, now) names
    another boot, or if its record ends in damage. Only the last record names the damage
    (`model.with_verdict`). Takes memory for one shutdown. A journal of outages has none.
    """
    if is_outage_history(history):
        history.read()
        return
    before = Beforehand()
    shutdown: ShutdownFold | None = None
    fact: RawRecord | None = None
    for batch in history.batches():
        for raw in grouped_by_episode(batch.records):
            if raw.cause == 0:
                fact = raw
            # Not with `suppress`, which would be made anew for each of a million records.
            try:
                before.learn(raw)
            except BadPayload:
                pass  # counted below, where it belongs to a shutdown
            if raw.episode and (shutdown is None or raw.episode != shutdown.number):
                over, first = shutdown, first_record(raw, fact)
                shutdown = ShutdownFold(raw.episode, first, batch.header, before, over)
                if over is not None:
                    yield over.record(history.journal_id, boot_id)
            if shutdown is None:
                continue
            if raw.episode == shutdown.number:
                add_record(shutdown, raw, batch.header)
            elif raw.tag in CLOSING_TYPES and fact is not None and fact.episode == shutdown.number:
                shutdown.turn_to(raw, batch.header.identity.boot_id)
                _interpret(shutdown, raw)
    if shutdown is not None:
        damage = damage_of(history.verdict, here=shutdown.goes_on)
        yield shutdown.record(history.journal_id, boot_id, damage)


def add_record(shutdown: ShutdownFold, raw: RawRecord, header: Header) -> None:
    """One record of the shutdown; ``header`` is its segment's."""
    shutdown.turn_to(raw, header.identity.boot_id)
    shutdown.events += 1
    shutdown.last_seq = raw.seq
    _interpret(shutdown, raw)
    if shutdown.point.same_boot and raw.tag not in MARK_TYPES:
        shutdown.last_ns = shutdown.point.at_ns


def _interpret(shutdown: ShutdownFold, raw: RawRecord) -> None:
    handlers = RECORD_HANDLERS.get(raw.tag)
    if handlers is None:
        if raw.tag not in TYPES:
            shutdown.unknown_types[raw.tag] = shutdown.unknown_types.get(raw.tag, 0) + 1
        return
    try:
        event = decode_event(raw.tag, raw.payload)
    except BadPayload:
        shutdown.tally("unreadable")
        return
    for handle in handlers:
        handle(shutdown, event)


class Beforehand:
    """The configuration, the process and the schedule before a shutdown.

    Where retention removed the first segments, the first checkpoint has the configuration; its states are
    read as plain values, so that another version's do no harm. ``process`` None: no start is on record.
    """

    def __init__(self) -> None:
        self.configuration = ConfigurationRecord()
        self.process: ProcessRecord | None = None
        self.assessed: GrantAssessed | None = None
        self.schedule: ScheduleRead | None = None
        self._fresh = True

    def learn(self, raw: RawRecord) -> None:
        """Raises BadPayload."""
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
        """The actors adopt it in the same step, or load it again after the shutdown."""
        self.configuration = replace(self.configuration, sources=event.sources)

    def assess(self, event: GrantAssessed, raw: RawRecord) -> None:
        self.assessed = event

    def scheduled(self, event: ScheduleRead, raw: RawRecord) -> None:
        self.schedule = event if event.at_wall_ns else None

    def checkpoint(self, mark: Checkpoint, raw: RawRecord) -> None:
        """Only the journal's first record: later checkpoints repeat known facts."""
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


#: Fates of pods with an observed end.
SEEN_OUTCOMES = ("graceful", "killed")


class ShutdownFold(EpisodeBuilder):
    """A shutdown during the fold. ``fields`` are the fields of a `ShutdownRecord` that a single event sets.

    ``before`` and ``header`` are missing where a reader folds events without a journal.
    """

    def __init__(
        self,
        number: int,
        first: RawRecord | Stamp,
        header: Header | None = None,
        before: Beforehand | None = None,
        former: ShutdownFold | None = None,
    ) -> None:
        started, before = Stamp(first.mono_ns, first.wall_ns), before or Beforehand()
        first_hash = first.hash if isinstance(first, RawRecord) else b""
        super().__init__(number, started, header.identity.boot_id if header else "", first_hash)
        self.headless = isinstance(first, RawRecord) and first.seq != number
        self.fields: dict[str, Any] = {}
        self.pods: dict[str, PodRecord] = {}
        self.specs: dict[str, Pod] = {}
        self.waves: list[WaveRecord] = []
        #: When each pod got its fate, also without an observed end.
        self.decided_ns: dict[str, int] = {}
        #: Pods outside of the plan: listed late, or left on their way down by an earlier shutdown.
        self.listed: dict[str, Pod] = {}
        self.identity = header.identity if header else None
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

    def since(self, mono_ns: int) -> int:
        """A moment of this boot, as time since the signal."""
        return mono_ns - self.started.mono_ns

    def introductions(self) -> dict[str, Pod]:
        """The specs of pods without a fate."""
        return {uid: spec for uid, spec in self.specs.items() if self.outcomes[uid] is None}

    def introduce(self, spec: Pod) -> PodRecord:
        """Takes the spec; keeps the record of a known pod."""
        self.specs[spec.uid] = spec
        self.outcomes.setdefault(spec.uid, None)
        pod = self.pods.get(spec.uid)
        if pod is None:
            pod = self.pods[spec.uid] = PodRecord(
                uid=spec.uid,
                namespace=spec.namespace,
                name=spec.name,
                priority=spec.priority,
                wanted_grace_seconds=spec.grace_seconds,
                owner=spec.owner,
                volumes=spec.volumes,
                containers=tuple(
                    ContainerRecord(
                        name=each.name,
                        sidecar=each.sidecar,
                        stop_signal=each.stop_signal,
                        running=each.running,
                    )
                    for each in spec.containers
                ),
            )
        return pod

    def pod(self, uid: str) -> PodRecord:
        """Without an introduction only the UID is known."""
        pod = self.pods.get(uid)
        if pod is not None:
            return pod
        return self.introduce(self.listed.get(uid) or Pod(uid=uid, namespace="", name=uid))

    def change_pod(self, uid: str, **changes: Any) -> None:
        self.pods[uid] = replace(self.pod(uid), **changes)

    def change_container(self, uid: str, name: str, **changes: Any) -> None:
        containers = self.pod(uid).containers
        if all(each.name != name for each in containers):
            containers = (*containers, ContainerRecord(name=name))
        changed = tuple(replace(each, **changes) if each.name == name else each for each in containers)
        self.change_pod(uid, containers=changed)

    def container(self, uid: str, name: str) -> ContainerRecord:
        found = (each for each in self.pod(uid).containers if each.name == name)
        return next(found, ContainerRecord(name=name))

    def change_node(self, **changes: Any) -> None:
        self.fields["by"] = replace(self.fields.get("by", NodeRecord()), **changes)

    def has_begun(self, wave: int) -> bool:
        """A wave that ends without a begin belongs to an earlier shutdown."""
        return wave < len(self.waves) and self.waves[wave].began_ns is not None

    def change_wave(self, index: int, **changes: Any) -> WaveRecord:
        """Adds waves that no plan has named: the fallback makes no plan."""
        while len(self.waves) <= max(index, 0):
            self.waves.append(WaveRecord(index=len(self.waves), priority=0, planned_ns=0))
        self.waves[index] = replace(self.waves[index], **changes)
        return self.waves[index]

    def change_hook(self, uid: str, container: str, **changes: Any) -> HookRecord | None:
        """The container's open hook; None: no hook has begun."""
        hooks = list(self.pod(uid).hooks)
        for at, hook in enumerate(hooks):
            if hook.container == container and hook.ended_ns is None:
                hooks[at] = replace(hook, **changes)
                self.change_pod(uid, hooks=tuple(hooks))
                return hooks[at]
        return None

    # --- notices ------------------------------------------------------------------------------

    def note(self, code: str, uid: str = "", **values: object) -> None:
        """One notice, at the current record."""
        if uid:
            values["pod"] = self.pod(uid).label
        seq, at_ns, _ = self.point
        self.notices.append(
            Notice(seq=seq, at_ns=at_ns, code=code, text=notice_text(code, **values), pod=uid)
        )

    def tally(self, code: str, **values: object) -> None:
        """One notice for all, at the first occurrence, with the ``values`` of the last one."""
        point, count, _ = self.tallies.get(code, (self.point, 0, {}))
        self.tallies[code] = (point, count + 1, values)

    # --- the end ------------------------------------------------------------------------------

    def record(
        self, journal_id: bytes, boot_id: str | None, damage: DamageRecord | None = None
    ) -> ShutdownRecord:
        """The record as it stands. ``boot_id`` is this machine's, now (see `events.record.fold`)."""
        identity = self.identity
        assert identity is not None
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
        """In the order of the record; notices about its end come last."""
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
            # Every shutdown begins with `ShutdownBegan`: without a budget its first records were unreadable.
            code = "begin-lost" if outcome == "truncated" and "budget_ns" not in self.fields else code
            code = "record-damaged" if damaged else code
            text = notice_text(code, wave=wave)
            found.append(Notice(seq=self.last_seq, at_ns=self.last_ns, code=code, text=text))
        if self.unknown_types:
            count, types = sum(self.unknown_types.values()), ", ".join(self.unknown_types)
            text = notice_text("unknown-events", count=plural(count, "event"), types=types)
            found.append(Notice(seq=self.last_seq, at_ns=self.last_ns, code="unknown-events", text=text))
        return tuple(found)


# --- the shutdown and its waves ------------------------------------------------------------------


def _shutdown_detected(shutdown: ShutdownFold, event: ShutdownDetected) -> None:
    if event.overtime:
        shutdown.fields["overtime"] = True
        shutdown.note("overtime")


def _shutdown_began(shutdown: ShutdownFold, event: ShutdownBegan) -> None:
    shutdown.fields |= {
        "grant_ns": event.grant_ns,
        "budget_ns": event.budget_ns,
        "deadline_ns": shutdown.since(event.deadline_ns),
        "release_by_ns": shutdown.since(event.release_by_ns),
        "lock_held": event.lock_held,
    }
    if not event.lock_held:
        shutdown.note("lock-not-held")
    asked = shutdown.configuration
    needed_ns = asked.requested_ns + asked.reserve_ns
    if event.grant_ns >= needed_ns:
        return
    overridden = "" if shutdown.assessed is None else shutdown.assessed.overridden_by
    shutdown.note(
        "grant-too-small" if event.grant_ns < asked.requested_ns else "reserve-not-granted",
        grant=span(event.grant_ns),
        requested=span(asked.requested_ns),
        needed=span(-(-needed_ns // NS_PER_SECOND) * NS_PER_SECOND),
        override=f" ({overridden} overrides it)" if overridden else "",
    )


def _deadline_moved(shutdown: ShutdownFold, event: DeadlineMoved) -> None:
    deadline_ns, kill_by_ns = shutdown.since(event.deadline_ns), shutdown.since(event.kill_by_ns)
    shutdown.fields |= {"deadline_ns": deadline_ns, "release_by_ns": shutdown.since(event.release_by_ns)}
    for pod in list(shutdown.pods.values()):
        if pod.began_ns is not None and shutdown.outcomes[pod.uid] is None:
            shutdown.change_pod(pod.uid, kill_by_ns=kill_by_ns)
    for wave in list(shutdown.waves):
        if wave.outcome == "open" and wave.deadline_ns is not None:
            shutdown.change_wave(wave.index, deadline_ns=min(wave.deadline_ns, deadline_ns))
    shutdown.note("deadline-moved", deadline=span(shutdown.since(event.deadline_ns)))


def _plan_made(shutdown: ShutdownFold, event: PlanMade) -> None:
    shutdown.waves = [
        WaveRecord(
            index=index,
            priority=wave.priority,
            planned_ns=wave.period_seconds * NS_PER_SECOND,
            pods=tuple(pod.uid for pod in wave.pods),
            handover=wave.handover,
        )
        for index, wave in enumerate(event.waves)
    ]


def _wave_began(shutdown: ShutdownFold, event: WaveStarted) -> None:
    shutdown.change_wave(
        event.wave,
        priority=event.priority,
        period_ns=event.period_ns,
        began_ns=shutdown.point.at_ns,
        deadline_ns=shutdown.since(event.deadline_ns),
        outcome="open",
    )
    shutdown.fields["last_wave"] = event.wave


def _wave_ended(shutdown: ShutdownFold, event: WaveEnded) -> None:
    if not shutdown.has_begun(event.wave):
        return
    wave = shutdown.change_wave(
        event.wave,
        ended_ns=shutdown.point.at_ns,
        outcome=event.outcome,
        unused_ns=event.unused_ns,
        stragglers=event.stragglers,
        mounted=event.mounted,
    )
    if event.mounted:
        pods = _pod_labels(shutdown, event.mounted)
        shutdown.note("volumes-mounted", wave=event.wave, count=plural(len(event.mounted), "pod"), pods=pods)
    if event.outcome == "overran" and event.stragglers:
        count, period = plural(len(event.stragglers), "pod"), span(wave.period_ns or 0)
        shutdown.note("wave-overran", wave=event.wave, priority=wave.priority, period=period, count=count)


def _pods_ended(shutdown: ShutdownFold, event: PodsEnded) -> None:
    shutdown.fields.setdefault("pods_ended_ns", shutdown.point.at_ns)
    if event.unfinished:
        pods = _pod_labels(shutdown, event.unfinished)
        shutdown.note("pods-unfinished", count=plural(len(event.unfinished), "pod"), pods=pods)


def _shutdown_cancelled(shutdown: ShutdownFold, event: ShutdownCancelled) -> None:
    shutdown.fields.setdefault("cancelled_ns", shutdown.point.at_ns)
    shutdown.fields["cancel_reason"] = event.reason
    shutdown.note("cancelled", reason=event.reason)


def _statuses_settled(shutdown: ShutdownFold, event: StatusesSettled) -> None:
    if shutdown.point.same_boot and shutdown.closed is None:
        shutdown.fields["statuses_settled_ns"] = shutdown.point.at_ns
    if event.undelivered:
        shutdown.fields["undelivered"] = event.undelivered
        statuses = "pod status" if event.undelivered == 1 else "pod statuses"
        shutdown.note("statuses-undelivered", count=f"{event.undelivered} {statuses}")


def _release_requested(shutdown: ShutdownFold, event: ReleaseRequested) -> None:
    shutdown.note("release-requested", asker=event.asked_by)


# --- orders that stand beside the waves ----------------------------------------------------------


def side_order_began(what: SideOrder) -> Callable[[ShutdownFold, Order], None]:
    def begin(shutdown: ShutdownFold, event: Order) -> None:
        seq, at_ns, _ = shutdown.point
        shutdown.beside[event.key] = OrderRecord(what=what, seq=seq, began_ns=at_ns)

    return begin


def _order_ended(shutdown: ShutdownFold, event: OrderEnded) -> None:
    beside = shutdown.beside.get(event.key)
    if beside is not None and beside.ended_ns is None:
        ended = replace(beside, ended_ns=shutdown.point.at_ns, result=event.result, reason=event.reason)
        shutdown.beside[event.key] = ended
        if event.result in FAILED_RESULTS:
            why = event.reason or "no reason given"
            shutdown.note(f"{beside.what}-failed", result=event.result, reason=why)
    key = parse_order_key(event.key)
    if event.result not in ("done", "failed") or key.subject not in shutdown.pods:
        return
    # A refused stop signal asked no container to end, until a later order does.
    why = event.reason if event.result == "failed" else ""
    if key.what == "stop":
        refused = event.result == "failed"
        if refused or shutdown.container(key.subject, key.part).stop_refused:
            shutdown.change_container(key.subject, key.part, stop_refused=refused, stop_refusal=why)
    elif key.what == "kill" and (why or shutdown.container(key.subject, key.part).kill_refusal):
        shutdown.change_container(key.subject, key.part, kill_refusal=why)


# --- a Kubernetes node ---------------------------------------------------------------------------


def _pod_labels(shutdown: ShutdownFold, uids: tuple[str, ...]) -> str:
    return shortened_list([shutdown.pod(uid).label for uid in uids])


def _termination_mode_chosen(shutdown: ShutdownFold, event: MeansChosen) -> None:
    shutdown.change_node(means=event.means, reason=event.reason)


def _handed_over(shutdown: ShutdownFold, event: HandedOver) -> None:
    shutdown.change_node(handed_over_ns=shutdown.point.at_ns, handed_over_reason=event.reason)
    # The plan hands over pods that no delete ends: that needs no warning.
    if not any(wave.handover for wave in shutdown.waves if wave.outcome == "open"):
        shutdown.note("handed-over", reason=event.reason)


def _kubelet_stopped(shutdown: ShutdownFold, event: KubeletStopped) -> None:
    if event.result == "done":
        shutdown.change_node(kubelet_stopped_ns=shutdown.point.at_ns)


def _api_read(shutdown: ShutdownFold, event: ApiRead) -> None:
    if not event.reachable:
        shutdown.note("api-lost", error=event.error or "no answer")


def _runtime_read(shutdown: ShutdownFold, event: RuntimeRead) -> None:
    if not event.reachable:
        shutdown.note("runtime-lost", error=event.error or "no answer")


def _delete_refused(shutdown: ShutdownFold, event: DeleteRefused) -> None:
    shutdown.change_pod(event.uid, refused=event.reason)
    shutdown.tally("delete-refused", reason=event.reason)


def _volumes_unmounted(shutdown: ShutdownFold, event: VolumesUnmounted) -> None:
    if event.uid in shutdown.pods:
        shutdown.change_pod(event.uid, unmounted_ns=shutdown.point.at_ns)


def _detach_certified(shutdown: ShutdownFold, event: DetachCertified) -> None:
    shutdown.change_node(certificate=event)
    if not event.safe:
        running = [shutdown.pod(uid).label for uid in event.running]
        volumes = [f"{shutdown.pod(uid).label} {name}" if uid else name for uid, name in event.mounted]
        what = f"not seen to end: {shortened_list(running)}" if running else ""
        left = f"mounted: {shortened_list(volumes)}" if volumes else ""
        again = "the kubelet may have started pods again" if event.restarts else ""
        why = "; ".join(part for part in (what, again, left) if part) or "what is mounted is not known"
        shutdown.note("not-safe-to-detach", why=why)


def _left_undone(shutdown: ShutdownFold, event: LeftUndone) -> None:
    shutdown.change_node(left_running=event.running, left_without_status=event.without_status)
    if event.running:
        count = plural(len(event.running), "pod")
        shutdown.note("kubelet-left-running", count=count, pods=_pod_labels(shutdown, event.running))
    if event.without_status:
        count = plural(len(event.without_status), "pod")
        shutdown.note("final-statuses-missing", count=count, pods=_pod_labels(shutdown, event.without_status))


# --- pods, hooks and containers ------------------------------------------------------------------


# A pod that the kubelet ends has no signal of ours: its stop begins with its delete, or, where we only look
# on, with its wave. So its containers have a time at which they were asked to end, and the rest is as
# everywhere.


#: Fates with a notice for each pod.
_NOTED_FATES = {"killed": "pod-killed", "failed": "pod-failed", "unknown": "pod-unknown"}
#: Of hooks; a cancelled hook needs no notice.
_NOTED_HOOKS = {
    "failed": "hook-failed",
    "timed-out": "hook-timed-out",
    "not-run": "hook-not-run",
    "unknown": "hook-unknown",
}


def _inventory_taken(shutdown: ShutdownFold, event: InventoryTaken) -> None:
    """Counts until the plan; the actors plan later arrivals as late pods."""
    if shutdown.planned:
        shutdown.listed |= {spec.uid: spec for spec in event.pods}
        return
    for spec in event.pods:
        shutdown.introduce(spec)


def _pod_joined(shutdown: ShutdownFold, event: PodJoined) -> None:
    """It has a part in the plan only where it is planned. What has ended of one that is known, and runs
    again, is another container.
    """
    uid = event.pod.uid
    shutdown.listed |= {uid: event.pod}
    for each in event.pod.containers if uid in shutdown.pods else ():
        if each.running and shutdown.container(uid, each.name).exited_ns is not None:
            anew = ContainerRecord(name=each.name, sidecar=each.sidecar, stop_signal=each.stop_signal)
            fields = {
                name: getattr(anew, name) for name in ContainerRecord.__struct_fields__ if name != "name"
            }
            shutdown.change_container(uid, each.name, **fields)


def _pod_planned(shutdown: ShutdownFold, event: PodPlanned) -> None:
    uid = event.pod.uid
    if event.again:  # what the record has of its first way down is over
        shutdown.pods.pop(uid, None)
    shutdown.introduce(event.pod)
    given = event.grace_seconds
    shutdown.change_pod(uid, wave=event.wave, grace_seconds=given, late=event.late, means=event.means)
    wave = shutdown.change_wave(event.wave)
    if uid not in wave.pods:
        shutdown.change_wave(event.wave, pods=(*wave.pods, uid))
    if event.again:
        shutdown.note("pod-again", event.pod.uid, wave=event.wave)
    elif event.late:
        shutdown.note("pod-late", event.pod.uid, wave=event.wave)


def _pod_rejected(shutdown: ShutdownFold, event: PodRejected) -> None:
    if event.uid in shutdown.pods:
        return
    namespace, _, name = event.label.rpartition("/")
    shutdown.introduce(Pod(uid=event.uid, namespace=namespace, name=name))
    shutdown.change_pod(event.uid, reason=event.message or event.reason)


def _pod_stop_began(shutdown: ShutdownFold, event: PodStopBegan) -> None:
    """Repeated by the fallback it changes nothing: the grace runs since the first time."""
    if shutdown.pod(event.uid).began_ns is None:
        at_ns = shutdown.point.at_ns
        kill_by_ns = shutdown.since(event.kill_by_ns)
        shutdown.change_pod(event.uid, began_ns=at_ns, grace_ns=event.grace_ns, kill_by_ns=kill_by_ns)
        if shutdown.pod(event.uid).means == "observe":
            _asked_to_end(shutdown, event.uid)


def _pod_deleted(shutdown: ShutdownFold, event: DeletePod) -> None:
    """A second delete only shortens the grace."""
    _asked_to_end(shutdown, event.uid)


def _asked_to_end(shutdown: ShutdownFold, uid: str) -> None:
    """The kubelet ends every running container of the pod from now on."""
    for each in shutdown.pod(uid).containers:
        if each.running and each.asked_ns is None and each.exited_ns is None:
            shutdown.change_container(uid, each.name, asked_ns=shutdown.point.at_ns)


def _signal_sent(shutdown: ShutdownFold, event: SendSignal) -> None:
    """The first signal counts: a repeat means that its outcome was unknown."""
    if shutdown.container(event.uid, event.container).signalled_ns is None:
        changes = {"signalled_ns": shutdown.point.at_ns, "stop_signal": event.signal}
        shutdown.change_container(event.uid, event.container, **changes)


def _kill_ordered(shutdown: ShutdownFold, event: KillContainer) -> None:
    if shutdown.container(event.uid, event.container).killed_ns is None:
        shutdown.change_container(event.uid, event.container, killed_ns=shutdown.point.at_ns)


def _hook_began(shutdown: ShutdownFold, event: HookStarted) -> None:
    spec = _hook_of(shutdown, event.uid, event.container)
    hook = HookRecord(
        container=event.container,
        kind=event.kind,
        detail=spec.detail,
        began_ns=shutdown.point.at_ns,
        until_ns=shutdown.since(event.until_ns),
    )
    shutdown.change_pod(event.uid, hooks=(*shutdown.pod(event.uid).hooks, hook))


def _hook_ended(shutdown: ShutdownFold, event: HookEnded) -> None:
    """A skipped hook ends without a begin."""
    at_ns = shutdown.point.at_ns
    changes = {"ended_ns": at_ns, "result": event.result, "reason": event.reason, "early": event.early}
    hook = shutdown.change_hook(event.uid, event.container, **changes)
    if hook is None:
        spec = _hook_of(shutdown, event.uid, event.container)
        hook = HookRecord(
            container=event.container,
            kind=spec.kind,
            detail=spec.detail,
            began_ns=at_ns,
            until_ns=at_ns,
            **changes,  # type: ignore[arg-type]  # a table of fields of several types
        )
        shutdown.change_pod(event.uid, hooks=(*shutdown.pod(event.uid).hooks, hook))
    code = _NOTED_HOOKS.get(event.result)
    if code is not None:
        took, reason = span(event.elapsed_ns), event.reason or event.result
        shutdown.note(code, event.uid, kind=hook.kind, container=event.container, took=took, reason=reason)


def _hook_of(shutdown: ShutdownFold, uid: str, container: str) -> Hook:
    """From the pod's spec, or a default for a pod without an introduction."""
    spec = shutdown.specs.get(uid, Pod(uid=uid, namespace="", name=uid))
    hooks = (each.hook for each in spec.containers if each.name == container and each.hook is not None)
    return next(hooks, Hook(kind="exec"))


def _container_exited(shutdown: ShutdownFold, event: ContainerExited) -> None:
    """Only for pods of this shutdown."""
    if event.uid in shutdown.pods and shutdown.container(event.uid, event.container).exited_ns is None:
        exit_code, exit_signal = event.exit_code, event.signal
        at_ns = shutdown.point.at_ns
        shutdown.change_container(
            event.uid, event.container, exited_ns=at_ns, exit_code=exit_code, exit_signal=exit_signal
        )


def _autopsy_taken(shutdown: ShutdownFold, event: AutopsyTaken) -> None:
    taken = AutopsyRecord(
        container=event.container,
        at_ns=shutdown.point.at_ns,
        processes=event.processes,
        last_lines=event.last_lines,
    )
    shutdown.change_pod(event.uid, autopsies=(*shutdown.pod(event.uid).autopsies, taken))


def _pod_ended(shutdown: ShutdownFold, event: PodEnded) -> None:
    """Only some outcomes mean an observed end."""
    at_ns = shutdown.point.at_ns
    shutdown.decided_ns[event.uid] = at_ns
    ended_ns = at_ns if event.outcome in SEEN_OUTCOMES else None
    shutdown.change_pod(
        event.uid,
        ended_ns=ended_ns,
        reason=event.reason,
        succeeded=event.succeeded,
        gone=event.gone and event.outcome == "unknown",
    )
    pod = replace(shutdown.pod(event.uid), outcome=event.outcome)
    shutdown.change_pod(event.uid, reason=reason_text(pod))
    code = _NOTED_FATES.get(event.outcome)
    if code is not None:
        shutdown.note(code, event.uid, reason=shutdown.pod(event.uid).reason)


def _pod_hurried(shutdown: ShutdownFold, event: HurryRequested) -> None:
    """As the actors understand a name: a UID, a name, or ``namespace/name``."""
    for pod in list(shutdown.pods.values()):
        if event.pod in (pod.uid, pod.name, pod.label) and shutdown.outcomes[pod.uid] is None:
            shutdown.change_pod(pod.uid, hurried_ns=shutdown.point.at_ns)
            shutdown.note("hurried", pod.uid, asker=event.asked_by)


# --- the daemon and the machine ------------------------------------------------------------------


def _daemon_started(shutdown: ShutdownFold, event: DaemonStarted) -> None:
    """The process that ran at the signal is in the list already."""
    seq, at_ns, _ = shutdown.point
    if seq == shutdown.number:
        return
    quiet_since_ns = shutdown.last_ns if shutdown.point.same_boot else None
    shutdown.processes.append(replace(process_record(event, seq, at_ns), quiet_since_ns=quiet_since_ns))


def _daemon_resumed(shutdown: ShutdownFold, event: Resumed) -> None:
    if not shutdown.processes:
        return
    process = replace(shutdown.processes.pop(), action=event.action, previous=event.previous)
    if event.action.startswith("close-") and process.quiet_since_ns is not None:
        # A soft reboot keeps the boot, and what it closes was over before.
        shutdown.last_ns = process.quiet_since_ns
        process = replace(process, quiet_since_ns=None)
    shutdown.processes.append(process)
    if shutdown.lock_lost_ns == shutdown.point.at_ns and event.action == "resume":
        shutdown.note("lock-lost")
    if process.at_ns is not None and process.quiet_since_ns is not None:
        shutdown.note("restarted", away=span(process.at_ns - process.quiet_since_ns), action=event.action)


def _actor_failed(shutdown: ShutdownFold, event: ActorFailed) -> None:
    """Its subject is a pod's UID, or a wave's number."""
    subject = shutdown.pods[event.subject].label if event.subject in shutdown.pods else event.subject
    shutdown.note(
        "actor-failed", actor=f"{event.actor} of {subject}" if subject else event.actor, error=event.error
    )


def _fallback_engaged(shutdown: ShutdownFold, event: FallbackEngaged) -> None:
    for uid in event.pods:
        shutdown.change_pod(uid, fallback=True)
    shutdown.note("fallback", count=plural(len(event.pods), "pod"), reason=event.reason)


def _effect_panicked(shutdown: ShutdownFold, event: EffectPanicked) -> None:
    shutdown.note("effect-panicked", key=event.key, error=event.error)


def _durability_late(shutdown: ShutdownFold, event: DurabilityLate) -> None:
    longest_ns = max(event.waited_ns, shutdown.longest_wait_ns)
    shutdown.longest_wait_ns = longest_ns
    shutdown.tally("durability-late", waited=span(longest_ns))


def _storage_failed(shutdown: ShutdownFold, event: StorageFailed) -> None:
    shutdown.note("storage-failed", location=event.location, error=event.error)


def _storage_moved(shutdown: ShutdownFold, event: StorageMoved) -> None:
    shutdown.note("storage-moved", location=event.location, seq=event.first_seq)


def _bus_lost(shutdown: ShutdownFold, event: BusLost) -> None:
    shutdown.note("bus-lost", error=event.error)


def _signal_rejected(shutdown: ShutdownFold, event: SignalRejected) -> None:
    shutdown.tally("signal-rejected", reason=event.reason)


def _clock_stepped(shutdown: ShutdownFold, event: ClockStepped) -> None:
    sign = "+" if event.delta_ns > 0 else ""
    shutdown.note("clock-stepped", delta=f"{sign}{span(event.delta_ns)}")


def _settings_rejected(shutdown: ShutdownFold, event: SettingsRejected) -> None:
    shutdown.note("settings-rejected", error=event.error)


def _manifest_rejected(shutdown: ShutdownFold, event: ManifestRejected) -> None:
    shutdown.note("manifest-rejected", path=event.path, error=event.error)


def _schedule_read(shutdown: ShutdownFold, event: ScheduleRead) -> None:
    # Read a moment after the signal it says as much as before. That it went away says nothing: in logind's
    # delay ``shutdown -c`` clears the schedule, and the machine still goes down (systemd 252).
    if event.at_wall_ns:
        shutdown.schedule = event


#: What each event means; the others mean nothing here.
MEANINGS: dict[type[Event], Callable[[ShutdownFold, Any], None]] = {
    ShutdownDetected: _shutdown_detected,
    ShutdownBegan: _shutdown_began,
    DeadlineMoved: _deadline_moved,
    PlanMade: _plan_made,
    WaveStarted: _wave_began,
    WaveEnded: _wave_ended,
    PodsEnded: _pods_ended,
    ShutdownCancelled: _shutdown_cancelled,
    StatusesSettled: _statuses_settled,
    ReleaseRequested: _release_requested,
    OrderEnded: _order_ended,
    MeansChosen: _termination_mode_chosen,
    HandedOver: _handed_over,
    KubeletStopped: _kubelet_stopped,
    ApiRead: _api_read,
    RuntimeRead: _runtime_read,
    DeleteRefused: _delete_refused,
    VolumesUnmounted: _volumes_unmounted,
    DetachCertified: _detach_certified,
    LeftUndone: _left_undone,
    InventoryTaken: _inventory_taken,
    PodJoined: _pod_joined,
    PodPlanned: _pod_planned,
    PodRejected: _pod_rejected,
    PodStopBegan: _pod_stop_began,
    DeletePod: _pod_deleted,
    SendSignal: _signal_sent,
    KillContainer: _kill_ordered,
    HookStarted: _hook_began,
    HookEnded: _hook_ended,
    ContainerExited: _container_exited,
    AutopsyTaken: _autopsy_taken,
    PodEnded: _pod_ended,
    HurryRequested: _pod_hurried,
    DaemonStarted: _daemon_started,
    Resumed: _daemon_resumed,
    ActorFailed: _actor_failed,
    FallbackEngaged: _fallback_engaged,
    EffectPanicked: _effect_panicked,
    DurabilityLate: _durability_late,
    StorageFailed: _storage_failed,
    StorageMoved: _storage_moved,
    BusLost: _bus_lost,
    SignalRejected: _signal_rejected,
    ClockStepped: _clock_stepped,
    SettingsRejected: _settings_rejected,
    ManifestRejected: _manifest_rejected,
    ScheduleRead: _schedule_read,
    TakeInventory: side_order_began("inventory"),
    AnnounceNode: side_order_began("announce"),
    DeliverStatuses: side_order_began("statuses"),
    FlushTraces: side_order_began("traces"),
    ReleaseLock: side_order_began("release"),
    StopKubelet: side_order_began("kubelet"),
    StartKubelet: side_order_began("kubelet-start"),
    WithdrawPods: side_order_began("withdraw"),
    AwaitStatuses: side_order_began("await"),
    CheckMounts: side_order_began("mounts"),
    PublishCertificate: side_order_began("certificate"),
}


#: By type tag: the row of `EPISODE_HANDLERS`, then the one above. A reader need not decode other types.
RECORD_HANDLERS: dict[str, tuple[Callable[[ShutdownFold, Any], None], ...]] = {
    tag: (handler,) for tag, handler in EPISODE_HANDLERS.items()
}
for _kind, _handler in MEANINGS.items():
    RECORD_HANDLERS[_kind.__name__] = (*RECORD_HANDLERS.get(_kind.__name__, ()), _handler)

#: Of these, the events that bring a shutdown further.
PROGRESS_HANDLERS = {
    tag: RECORD_HANDLERS[tag]
    for tag in (
        *EPISODE_HANDLERS,
        ShutdownBegan.__name__,
        DeadlineMoved.__name__,
        PlanMade.__name__,
        WaveStarted.__name__,
        WaveEnded.__name__,
        PodsEnded.__name__,
        ShutdownCancelled.__name__,
        InventoryTaken.__name__,
        PodJoined.__name__,
        PodPlanned.__name__,
        PodRejected.__name__,
        PodStopBegan.__name__,
        DeletePod.__name__,
        SendSignal.__name__,
        KillContainer.__name__,
        OrderEnded.__name__,
        PodEnded.__name__,
        MeansChosen.__name__,
        HandedOver.__name__,
        DetachCertified.__name__,
        LeftUndone.__name__,
    )
}


def advance(shutdown: ShutdownFold, event: Event) -> None:
    """One decoded event that brings the shutdown further, at the point to which the fold was turned."""
    for handle in PROGRESS_HANDLERS.get(type(event).__name__, ()):
        handle(shutdown, event)


#: What the step that closes a shutdown says of it when it is closed already.
CLOSING_TYPES = (Resumed.__name__, StatusesSettled.__name__)

MARK_TYPES = {tag: None for tag, kind in TYPES.items() if issubclass(kind, Mark)}

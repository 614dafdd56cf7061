"""The one fold of shutdowns: what each event means for a `ShutdownRecord`, in one streaming pass.

A pure fold of what was recorded: nothing is executed again, so it works on any version's journal. Types
that are not known are counted, payloads that cannot be read are passed over and said so. Ids, outcomes,
ends and counts are those of `events.record.episodes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from msgspec.structs import replace

from ebbtide.events.base import NS_PER_SECOND, TYPES, Mark, Order
from ebbtide.events.codec import BadPayload, RawRecord, decode_event
from ebbtide.events.decisions import (
    ActorFailed,
    AnnounceNode,
    AwaitStatuses,
    CheckMounts,
    DeadlineMoved,
    DeleteRefused,
    DeliverStatuses,
    DetachCertified,
    FallbackEngaged,
    FlushTraces,
    HandedOver,
    HookEnded,
    HookStarted,
    KubeletStopped,
    LeftUndone,
    PodEnded,
    PodPlanned,
    PodsEnded,
    PublishCertificate,
    ReleaseLock,
    Resumed,
    ShutdownBegan,
    ShutdownCancelled,
    ShutdownDetected,
    StartKubelet,
    StatusesSettled,
    StopKubelet,
    TakeInventory,
    WaveEnded,
    WithdrawPods,
)
from ebbtide.events.facts import (
    ApiRead,
    AutopsyTaken,
    BusLost,
    ClockStepped,
    ContainerExited,
    DaemonStarted,
    DurabilityLate,
    EffectPanicked,
    HurryRequested,
    ManifestRejected,
    OrderEnded,
    ReleaseRequested,
    RuntimeRead,
    ScheduleRead,
    SettingsRejected,
    SignalRejected,
    StorageFailed,
    StorageMoved,
    VolumesUnmounted,
)
from ebbtide.events.messages import shortened_list
from ebbtide.events.model import Hook, Pod
from ebbtide.events.reader import History
from ebbtide.events.record.builder import Beforehand, RecordBuilder, process_record
from ebbtide.events.record.episodes import first_record, grouped_by_episode, is_outage_history
from ebbtide.events.record.format import plural
from ebbtide.events.record.model import (
    AutopsyRecord,
    HookRecord,
    OrderRecord,
    ShutdownRecord,
    SideOrder,
    damage_of,
)
from ebbtide.events.record.progress import PROGRESS_HANDLERS
from ebbtide.events.segment import Header
from ebbtide.events.units import span


def shutdown_records(history: History, *, boot_id: str | None = None) -> Iterator[ShutdownRecord]:
    """The shutdowns of a history, oldest first, each once the next one begins; the last one comes last.

    One that is not closed counts as ``running``, unless ``boot_id`` (of this machine, now) says that its
    boot is over, or its record ends in damage: then nobody can know more than that it is cut short. Only
    the last record names the damage, that of which nobody knows before the end (`model.with_verdict`).
    Takes memory for one shutdown, not for a journal. A journal of outages has none.
    """
    if is_outage_history(history):
        history.read()
        return
    before = Beforehand()
    shutdown: RecordBuilder | None = None
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
                shutdown = RecordBuilder(raw.episode, first, batch.header, before, over)
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


def add_record(shutdown: RecordBuilder, raw: RawRecord, header: Header) -> None:
    """One record of the shutdown; ``header`` is its segment's."""
    shutdown.turn_to(raw, header.identity.boot_id)
    shutdown.events += 1
    shutdown.last_seq = raw.seq
    _interpret(shutdown, raw)
    if shutdown.point.same_boot and raw.tag not in MARK_TYPES:
        shutdown.last_ns = shutdown.point.at_ns


def _interpret(shutdown: RecordBuilder, raw: RawRecord) -> None:
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


# --- the shutdown and its waves ----------------------------------------------------------------


def _shutdown_began(shutdown: RecordBuilder, event: ShutdownBegan) -> None:
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


def _shutdown_detected(shutdown: RecordBuilder, event: ShutdownDetected) -> None:
    if event.overtime:
        shutdown.fields["overtime"] = True
        shutdown.note("overtime")


def _deadline_moved(shutdown: RecordBuilder, event: DeadlineMoved) -> None:
    shutdown.note("deadline-moved", deadline=span(shutdown.since(event.deadline_ns)))


def _wave_ended(shutdown: RecordBuilder, event: WaveEnded) -> None:
    if not shutdown.has_begun(event.wave):
        return
    wave = shutdown.waves[event.wave]
    if event.mounted:
        pods = _pod_labels(shutdown, event.mounted)
        shutdown.note("volumes-mounted", wave=event.wave, count=plural(len(event.mounted), "pod"), pods=pods)
    if event.outcome == "overran" and event.stragglers:
        count, period = plural(len(event.stragglers), "pod"), span(wave.period_ns or 0)
        shutdown.note("wave-overran", wave=event.wave, priority=wave.priority, period=period, count=count)


def _pods_ended(shutdown: RecordBuilder, event: PodsEnded) -> None:
    if event.unfinished:
        pods = _pod_labels(shutdown, event.unfinished)
        shutdown.note("pods-unfinished", count=plural(len(event.unfinished), "pod"), pods=pods)


def _shutdown_cancelled(shutdown: RecordBuilder, event: ShutdownCancelled) -> None:
    shutdown.note("cancelled", reason=event.reason)


def _statuses_settled(shutdown: RecordBuilder, event: StatusesSettled) -> None:
    if shutdown.point.same_boot and shutdown.closed is None:
        shutdown.fields["statuses_settled_ns"] = shutdown.point.at_ns
    if event.undelivered:
        shutdown.fields["undelivered"] = event.undelivered
        statuses = "pod status" if event.undelivered == 1 else "pod statuses"
        shutdown.note("statuses-undelivered", count=f"{event.undelivered} {statuses}")


def _release_requested(shutdown: RecordBuilder, event: ReleaseRequested) -> None:
    shutdown.note("release-requested", asker=event.asked_by)


# --- orders that stand beside the waves --------------------------------------------------------


def side_order_began(what: SideOrder) -> Callable[[RecordBuilder, Order], None]:
    def begin(shutdown: RecordBuilder, event: Order) -> None:
        seq, at_ns, _ = shutdown.point
        shutdown.beside[event.key] = OrderRecord(what=what, seq=seq, began_ns=at_ns)

    return begin


def _order_ended(shutdown: RecordBuilder, event: OrderEnded) -> None:
    beside = shutdown.beside.get(event.key)
    if beside is None or beside.ended_ns is not None:
        return
    ended = replace(beside, ended_ns=shutdown.point.at_ns, result=event.result, reason=event.reason)
    shutdown.beside[event.key] = ended
    if event.result in ("failed", "timed-out"):
        shutdown.note(f"{beside.what}-failed", result=event.result, reason=event.reason or "no reason given")


# --- a Kubernetes node -------------------------------------------------------------------------


def _pod_labels(shutdown: RecordBuilder, uids: tuple[str, ...]) -> str:
    return shortened_list([shutdown.pod(uid).label for uid in uids])


def _handed_over(shutdown: RecordBuilder, event: HandedOver) -> None:
    """Pods that no delete ends are handed over by plan: nobody needs to be warned of that."""
    if not any(wave.handover for wave in shutdown.waves if wave.outcome == "open"):
        shutdown.note("handed-over", reason=event.reason)


def _kubelet_stopped(shutdown: RecordBuilder, event: KubeletStopped) -> None:
    if event.result == "done":
        shutdown.change_node(kubelet_stopped_ns=shutdown.point.at_ns)


def _api_read(shutdown: RecordBuilder, event: ApiRead) -> None:
    if not event.reachable:
        shutdown.note("api-lost", error=event.error or "no answer")


def _runtime_read(shutdown: RecordBuilder, event: RuntimeRead) -> None:
    if not event.reachable:
        shutdown.note("runtime-lost", error=event.error or "no answer")


def _delete_refused(shutdown: RecordBuilder, event: DeleteRefused) -> None:
    shutdown.change_pod(event.uid, refused=event.reason)
    shutdown.tally("delete-refused", reason=event.reason)


def _volumes_unmounted(shutdown: RecordBuilder, event: VolumesUnmounted) -> None:
    if event.uid in shutdown.pods:
        shutdown.change_pod(event.uid, unmounted_ns=shutdown.point.at_ns)


def _detach_certified(shutdown: RecordBuilder, event: DetachCertified) -> None:
    if not event.safe:
        running = [shutdown.pod(uid).label for uid in event.running]
        volumes = [f"{shutdown.pod(uid).label} {name}" if uid else name for uid, name in event.mounted]
        what = f"not seen to end: {shortened_list(running)}" if running else ""
        left = f"mounted: {shortened_list(volumes)}" if volumes else ""
        again = "the kubelet may have started pods again" if event.restarts else ""
        why = "; ".join(part for part in (what, again, left) if part) or "what is mounted is not known"
        shutdown.note("not-safe-to-detach", why=why)


def _left_undone(shutdown: RecordBuilder, event: LeftUndone) -> None:
    if event.running:
        count = plural(len(event.running), "pod")
        shutdown.note("kubelet-left-running", count=count, pods=_pod_labels(shutdown, event.running))
    if event.without_status:
        count = plural(len(event.without_status), "pod")
        shutdown.note("final-statuses-missing", count=count, pods=_pod_labels(shutdown, event.without_status))


# --- pods, hooks and containers ----------------------------------------------------------------


#: Fates that are worth a notice each.
_NOTED_FATES = {"killed": "pod-killed", "failed": "pod-failed", "unknown": "pod-unknown"}
#: Of hooks; a cancelled one had nothing left to wait for.
_NOTED_HOOKS = {
    "failed": "hook-failed",
    "timed-out": "hook-timed-out",
    "not-run": "hook-not-run",
    "unknown": "hook-unknown",
}


def _pod_planned(shutdown: RecordBuilder, event: PodPlanned) -> None:
    if event.again:
        shutdown.note("pod-again", event.pod.uid, wave=event.wave)
    elif event.late:
        shutdown.note("pod-late", event.pod.uid, wave=event.wave)


def _hook_began(shutdown: RecordBuilder, event: HookStarted) -> None:
    spec = _hook_of(shutdown, event.uid, event.container)
    hook = HookRecord(
        container=event.container,
        kind=event.kind,
        detail=spec.detail,
        began_ns=shutdown.point.at_ns,
        until_ns=shutdown.since(event.until_ns),
    )
    shutdown.change_pod(event.uid, hooks=(*shutdown.pod(event.uid).hooks, hook))


def _hook_ended(shutdown: RecordBuilder, event: HookEnded) -> None:
    """One that was passed over ends without having begun."""
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


def _hook_of(shutdown: RecordBuilder, uid: str, container: str) -> Hook:
    """As the manifest has it; nothing is known of one that the record does not introduce."""
    spec = shutdown.specs.get(uid, Pod(uid=uid, namespace="", name=uid))
    hooks = (each.hook for each in spec.containers if each.name == container and each.hook is not None)
    return next(hooks, Hook(kind="exec"))


def _container_exited(shutdown: RecordBuilder, event: ContainerExited) -> None:
    """Of pods of this shutdown only: others may start and end beside it."""
    if event.uid in shutdown.pods and shutdown.container(event.uid, event.container).exited_ns is None:
        exit_code, exit_signal = event.exit_code, event.signal
        at_ns = shutdown.point.at_ns
        shutdown.change_container(
            event.uid, event.container, exited_ns=at_ns, exit_code=exit_code, exit_signal=exit_signal
        )


def _autopsy_taken(shutdown: RecordBuilder, event: AutopsyTaken) -> None:
    taken = AutopsyRecord(
        container=event.container,
        at_ns=shutdown.point.at_ns,
        processes=event.processes,
        last_lines=event.last_lines,
    )
    shutdown.change_pod(event.uid, autopsies=(*shutdown.pod(event.uid).autopsies, taken))


def _pod_ended(shutdown: RecordBuilder, event: PodEnded) -> None:
    code = _NOTED_FATES.get(event.outcome)
    if code is not None:
        shutdown.note(code, event.uid, reason=shutdown.pod(event.uid).reason)


def _pod_hurried(shutdown: RecordBuilder, event: HurryRequested) -> None:
    """As the actors understand a name: a UID, a name, or ``namespace/name``."""
    for pod in list(shutdown.pods.values()):
        if event.pod in (pod.uid, pod.name, pod.label) and shutdown.outcomes[pod.uid] is None:
            shutdown.change_pod(pod.uid, hurried_ns=shutdown.point.at_ns)
            shutdown.note("hurried", pod.uid, asker=event.asked_by)


# --- the daemon and the machine ----------------------------------------------------------------


def _daemon_started(shutdown: RecordBuilder, event: DaemonStarted) -> None:
    """The one that was running at the signal stands first already."""
    seq, at_ns, _ = shutdown.point
    if seq == shutdown.number:
        return
    quiet_since_ns = shutdown.last_ns if shutdown.point.same_boot else None
    shutdown.processes.append(replace(process_record(event, seq, at_ns), quiet_since_ns=quiet_since_ns))


def _daemon_resumed(shutdown: RecordBuilder, event: Resumed) -> None:
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


def _actor_failed(shutdown: RecordBuilder, event: ActorFailed) -> None:
    """Its subject is a pod's UID, or a wave's number."""
    subject = shutdown.pods[event.subject].label if event.subject in shutdown.pods else event.subject
    shutdown.note(
        "actor-failed", actor=f"{event.actor} of {subject}" if subject else event.actor, error=event.error
    )


def _fallback_engaged(shutdown: RecordBuilder, event: FallbackEngaged) -> None:
    for uid in event.pods:
        shutdown.change_pod(uid, fallback=True)
    shutdown.note("fallback", count=plural(len(event.pods), "pod"), reason=event.reason)


def _effect_panicked(shutdown: RecordBuilder, event: EffectPanicked) -> None:
    shutdown.note("effect-panicked", key=event.key, error=event.error)


def _durability_late(shutdown: RecordBuilder, event: DurabilityLate) -> None:
    longest_ns = max(event.waited_ns, shutdown.longest_wait_ns)
    shutdown.longest_wait_ns = longest_ns
    shutdown.tally("durability-late", waited=span(longest_ns))


def _storage_failed(shutdown: RecordBuilder, event: StorageFailed) -> None:
    shutdown.note("storage-failed", location=event.location, error=event.error)


def _storage_moved(shutdown: RecordBuilder, event: StorageMoved) -> None:
    shutdown.note("storage-moved", location=event.location, seq=event.first_seq)


def _bus_lost(shutdown: RecordBuilder, event: BusLost) -> None:
    shutdown.note("bus-lost", error=event.error)


def _signal_rejected(shutdown: RecordBuilder, event: SignalRejected) -> None:
    shutdown.tally("signal-rejected", reason=event.reason)


def _clock_stepped(shutdown: RecordBuilder, event: ClockStepped) -> None:
    sign = "+" if event.delta_ns > 0 else ""
    shutdown.note("clock-stepped", delta=f"{sign}{span(event.delta_ns)}")


def _settings_rejected(shutdown: RecordBuilder, event: SettingsRejected) -> None:
    shutdown.note("settings-rejected", error=event.error)


def _manifest_rejected(shutdown: RecordBuilder, event: ManifestRejected) -> None:
    shutdown.note("manifest-rejected", path=event.path, error=event.error)


def _schedule_read(shutdown: RecordBuilder, event: ScheduleRead) -> None:
    # Read a moment after the signal it says as much as before. That it went away says nothing: in logind's
    # delay ``shutdown -c`` clears the schedule, and the machine still goes down (systemd 252).
    if event.at_wall_ns:
        shutdown.schedule = event


#: What each event means beyond `events.record.progress`; the others mean nothing here.
MEANINGS: dict[type, Callable[[RecordBuilder, Any], None]] = {
    # --- the shutdown and its waves
    ShutdownDetected: _shutdown_detected,
    ShutdownBegan: _shutdown_began,
    DeadlineMoved: _deadline_moved,
    WaveEnded: _wave_ended,
    PodsEnded: _pods_ended,
    ShutdownCancelled: _shutdown_cancelled,
    StatusesSettled: _statuses_settled,
    TakeInventory: side_order_began("inventory"),
    AnnounceNode: side_order_began("announce"),
    DeliverStatuses: side_order_began("statuses"),
    FlushTraces: side_order_began("traces"),
    ReleaseLock: side_order_began("release"),
    OrderEnded: _order_ended,
    ReleaseRequested: _release_requested,
    # --- a Kubernetes node
    HandedOver: _handed_over,
    KubeletStopped: _kubelet_stopped,
    ApiRead: _api_read,
    RuntimeRead: _runtime_read,
    DeleteRefused: _delete_refused,
    VolumesUnmounted: _volumes_unmounted,
    DetachCertified: _detach_certified,
    LeftUndone: _left_undone,
    StopKubelet: side_order_began("kubelet"),
    StartKubelet: side_order_began("kubelet-start"),
    WithdrawPods: side_order_began("withdraw"),
    AwaitStatuses: side_order_began("await"),
    CheckMounts: side_order_began("mounts"),
    PublishCertificate: side_order_began("certificate"),
    # --- pods, hooks and containers
    PodPlanned: _pod_planned,
    HookStarted: _hook_began,
    HookEnded: _hook_ended,
    ContainerExited: _container_exited,
    AutopsyTaken: _autopsy_taken,
    PodEnded: _pod_ended,
    HurryRequested: _pod_hurried,
    # --- the daemon and the machine
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
}

#: By type tag, how far it brings the shutdown, then what is noted of it. Records of other types need not be
#: decoded.
RECORD_HANDLERS: dict[str, tuple[Callable[[RecordBuilder, Any], None], ...]] = dict(PROGRESS_HANDLERS)
for _kind, _handler in MEANINGS.items():
    RECORD_HANDLERS[_kind.__name__] = (*RECORD_HANDLERS.get(_kind.__name__, ()), _handler)

#: What the step that closes a shutdown says of it when it is closed already.
CLOSING_TYPES = (Resumed.__name__, StatusesSettled.__name__)

MARK_TYPES = {tag: None for tag, kind in TYPES.items() if issubclass(kind, Mark)}

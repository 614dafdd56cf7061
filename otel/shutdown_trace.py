"""The trace of a shutdown, made from its record.

The root ends with the outcome of the first order to release the lock, else with the shutdown's last event. If
the record breaks off, the root ends only when another boot (or userspace) has begun.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import Any

from ebbtide.events import decisions as d
from ebbtide.events import facts as f
from ebbtide.events.base import NS_PER_SECOND, Order, parse_order_key
from ebbtide.events.codec import RawRecord
from ebbtide.events.messages import plural
from ebbtide.events.record import shutdown_record as record
from ebbtide.events.record.fold import ShutdownFold
from ebbtide.events.segment import Header
from ebbtide.events.units import span
from ebbtide.events.values import ProcessReport, workload_name
from ebbtide.otel import attributes as at
from ebbtide.otel.span import (
    DELETE_ROLE,
    HOOK_ROLE,
    KILL_ROLE,
    POD_ROLE,
    REJECT_ROLE,
    ROOT_ROLE,
    STOP_ROLE,
    WAVE_ROLE,
    Attributes,
    Span,
    SpanEvent,
    SpanIds,
    boot_trace_id,
)
from ebbtide.otel.trace import (
    CUT,
    LENGTH_NS_MIN,
    EpisodeTrace,
    Failure,
    OpenOrder,
    Values,
    milliseconds,
    orders_of,
)

NEXT_BOOT = "next boot"

#: No order's outcome ends these.
CONTAINER_ROLES = (HOOK_ROLE, STOP_ROLE, KILL_ROLE)

#: Of pods in one attribute, because back ends bound its length.
NAMES_MAX = 64

#: By a pod's outcome, and by a hook's result.
POD_ERRORS: dict[str, at.Error] = {"killed": "killed", "failed": "survived-sigkill"}
HOOK_ERRORS: dict[str, at.Error] = {"failed": "hook-failed", "timed-out": "hook-timed-out"}


class ShutdownTrace(EpisodeTrace):
    fold: ShutdownFold
    root_role = ROOT_ROLE

    def __init__(
        self, first: RawRecord, number: int, header: Header, former: ShutdownTrace | None = None
    ) -> None:
        super().__init__(ShutdownFold(number, first, header, former=former.fold if former else None), first)
        self.began: Values = ()
        #: A pod's own orders, by UID.
        self.of_pods: dict[str, list[OpenOrder]] = {}
        #: The same, left open for the next shutdown; and those from the former one.
        self.left: dict[str, list[OpenOrder]] = {}
        self.carried = {} if former is None else former.left
        self.links = (former.link(former.root_id, "cancelled"),) if former and former.left else ()
        #: By role, the span of a lost order: the next one is a retry.
        self.lost: dict[str, bytes] = {}
        self.unfinished, self.missed = 0, False

    @property
    def moved(self) -> bool:
        """Another boot has found it."""
        starts = self.fold.processes
        return bool(starts) and starts[-1].boot_id != self.fold.boot_id

    @property
    def gone(self) -> bool:
        """This shutdown's boot, or userspace, is over."""
        return self.moved or any(start.seq == self.raw.cause for start in self.fold.processes)

    @property
    def cut_ns(self) -> int:
        """Now, or the end of the finished boot's record."""
        if not self.gone:
            return self.at_ns
        quiet_ns = self.fold.processes[-1].quiet_since_ns
        return self.fold.record.last_ns if quiet_ns is None else quiet_ns

    @property
    def asked_to_stop(self) -> bool:
        """A person ended the wait in this step, so no deadline was missed."""
        return self.fact.tag == "ReleaseRequested"

    def left_behind(self, pods: int) -> None:
        self.unfinished, self.missed = pods, pods > 0 and not self.asked_to_stop

    def open_pods(self) -> list[record.PodRecord]:
        """Their stop has begun, but they have no span."""
        pods = self.fold.pods.values()
        return [pod for pod in pods if pod.began_ns is not None and not self.made(POD_ROLE, pod.uid)]

    def open_wave(self, index: int) -> record.WaveRecord | None:
        wave = self.fold.waves[index] if 0 <= index < len(self.fold.waves) else None
        begun = wave is not None and wave.began_ns is not None
        return wave if begun and not self.made(WAVE_ROLE, str(index)) else None

    def wave_id(self, index: int) -> bytes:
        """The root's, before the wave's begin."""
        begun = self.made(WAVE_ROLE, str(index)) or self.open_wave(index) is not None
        return self.first_id(WAVE_ROLE, str(index)) if begun else self.root_id

    def labels(self, uids: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(self.fold.pod(uid).label for uid in uids[:NAMES_MAX])

    def workload(self, namespace: str, name: str) -> str:
        """Without random and counted parts."""
        return f"{namespace}/{workload_name(name, self.fold.record.node)}" if namespace else ""

    def root(self, outcome: str, ended_ns: int, *, cut: bool = False) -> None:
        if self.made(ROOT_ROLE):
            return
        shutdown = self.fold.finish()
        by, wave = shutdown.by, shutdown.last_wave
        fates: list[str] = [pod.fate for pod in shutdown.pods]
        attributes: Values = (
            (at.EPISODE, shutdown.id),
            *self.began,
            (at.OUTCOME, outcome),
            (at.LAST_WAVE, wave),
            (at.PODS, len(self.fold.planned)),
            *((name, fates.count(fate)) for fate, name in at.POD_COUNTS.items()),
            (at.UNFINISHED_PODS, self.unfinished),
            (at.TERMINATION_MODE, by.means),
            (at.HANDED_OVER, by.handed_over_ns is not None or None),
            (at.SAFE_TO_DETACH, None if by.certificate is None else by.certificate.safe),
            (at.CUT, cut or None),
        )
        failed: Failure | None = None
        if cut:
            failed = "cut-short", f"cut short {f'at wave {wave}' if wave >= 0 else 'before its first wave'}"
        elif self.missed:
            text = f"the budget was over with {plural(self.unfinished, 'pod')} left"
            failed = "deadline-missed", text
        self.span(
            ROOT_ROLE,
            "",
            0,
            attributes,
            ended_ns=ended_ns,
            parent=b"",
            failed=failed,
            events=self.notices(shutdown.notices),
            links=self.links,
        )

    def notices(
        self, found: tuple[record.Notice, ...] | list[record.Notice], uid: str = ""
    ) -> Iterator[SpanEvent]:
        for notice in found:
            if notice.pod == uid:
                yield self.event(notice.code.replace("-", "."), notice.at_ns, (at.REASON, notice.text))

    def close(self, outcome: str, ended_ns: int, *, gone: bool) -> None:
        shutdown = self.fold.record
        for pod in self.open_pods():
            pod_spans(self, pod, CUT, ended_ns)
        for wave in self.fold.waves:
            if self.open_wave(wave.index) is not None:
                wave_span(self, wave, CUT, ended_ns)
        if shutdown.pods_ended_ns is not None and not self.made("flush"):
            self.span("flush", "", shutdown.pods_ended_ns, CUT, ended_ns=ended_ns)
        if shutdown.cancelled_ns is not None:
            # The boot may end before the cancel is complete.
            reason: Values = ((at.REASON, shutdown.cancel_reason), *(CUT if gone else ()))
            self.span("cancel", "", shutdown.cancelled_ns, reason, ended_ns=ended_ns)
        fallback(self, CUT, ended_ns)
        self.cut_orders(ended_ns)
        # Last, because the root shows an exporter that the trace is whole.
        self.root(outcome, ended_ns, cut=gone and outcome not in ("complete", "cancelled"))
        self.over = True

    def abandon(self) -> None:
        outcome = "truncated" if self.fold.released_ns is None else "complete"
        self.close(outcome, self.fold.record.last_ns, gone=True)


# --- the shutdown


def shutdown_began(trace: ShutdownTrace, event: d.ShutdownBegan) -> None:
    trace.began = (
        (at.KIND, event.kind),
        (at.GRANT, milliseconds(event.grant_ns)),
        (at.REQUESTED, milliseconds(event.requested_ns)),
        (at.BUDGET, milliseconds(event.budget_ns)),
        (at.LOCK_HELD, event.lock_held),
    )


def release_ordered(trace: ShutdownTrace, event: d.ReleaseLock) -> None:
    """Pods that have not ended now are left."""
    if left := len(trace.open_pods()):
        trace.left_behind(left)
    trace.begin_order(event)


def shutdown_closed(trace: ShutdownTrace, event: d.EpisodeClosed) -> None:
    if event.followed:
        # The next shutdown waits for the same hooks and signals, with new spans that link to these.
        trace.left = {pod.uid: list(unended(trace, pod)) for pod in trace.open_pods()}
    if trace.gone:
        next_boot(trace, event.outcome)
    trace.close(event.outcome, trace.cut_ns, gone=trace.gone)


def unended(trace: ShutdownTrace, pod: record.PodRecord) -> Iterator[OpenOrder]:
    hooks = [hook.container for hook in pod.hooks if hook.ended_ns is not None]
    exited = [each.name for each in pod.containers if each.exited_ns is not None]
    for each in trace.of_pods.get(pod.uid, ()):
        role = each.order.span_role
        ended = hooks if role == HOOK_ROLE else exited
        if role in CONTAINER_ROLES and container_of(each) not in ended:
            again = OpenOrder(each.order, 0)
            again.links = (trace.link(trace.first_id(role, each.order.key), "continued"),)
            again.attributes[at.CONTINUED] = True
            yield again


def next_boot(trace: ShutdownTrace, outcome: str) -> None:
    """The time without a daemon is a separate trace: hours would hide the rest of this one."""
    shutdown, trace_id = trace.fold.record, boot_trace_id(trace.fact.hash)
    cut_wall_ns = trace.wall_ns(trace.cut_ns)
    attributes: Attributes = (
        (at.EPISODE, shutdown.id),
        (at.BOOT_ID, trace.fold.processes[-1].boot_id),
        (at.OUTCOME, outcome),
        (at.LAST_WAVE, shutdown.last_wave),
    )
    trace.finished.append(
        Span(
            trace_id,
            SpanIds(trace_id).of(NEXT_BOOT, ""),
            b"",
            NEXT_BOOT,
            cut_wall_ns,
            max(cut_wall_ns + LENGTH_NS_MIN, trace.wall_ns(trace.at_ns)),
            attributes,
            trace.fold.number,
            trace.raw.seq,
            links=(trace.link(trace.root_id, "shutdown"),),
        )
    )


def shutdown_resumed(trace: ShutdownTrace, event: d.Resumed) -> None:
    """The time between two processes of a shutdown is a span."""
    # Since the former process's last record: the moment of its death is unknown.
    quiet_ns = trace.fold.processes[-1].quiet_since_ns if trace.fold.processes else None
    if quiet_ns is not None and not trace.moved:
        links = (trace.link(trace.root_id, "shutdown"),)
        trace.span("resume", "", quiet_ns, ((at.ACTION, event.action),), links=links)


def actor_failed(trace: ShutdownTrace, event: d.ActorFailed) -> None:
    """No event reports the end of a failed actor's wave."""
    index = int(event.subject) if event.actor == "WaveActor" and event.subject.isdecimal() else -1
    if (wave := trace.open_wave(index)) is not None:
        wave_span(trace, wave, ((at.WAVE_OUTCOME, "failed"),))


def fallback(trace: ShutdownTrace, attributes: Values = (), ended_ns: int | None = None) -> None:
    began_ns = next((each.at_ns for each in trace.fold.notices if each.code == "fallback"), None)
    if began_ns is not None and not trace.made("fallback"):
        trace.span("fallback", "", began_ns, attributes, ended_ns=ended_ns)


def plan_made(trace: ShutdownTrace, event: d.PlanMade) -> None:
    trace.span("plan", "", trace.at_ns, ((at.WAVES, len(event.waves)), (at.PODS, event.pods)))


def pods_ended(trace: ShutdownTrace, event: d.PodsEnded) -> None:
    trace.left_behind(len(event.unfinished))


def statuses_settled(trace: ShutdownTrace, event: d.StatusesSettled) -> None:
    """After the last pod's end, the shutdown waits only for statuses."""
    began_ns, left = trace.fold.record.pods_ended_ns, len(event.missing)
    if began_ns is not None and not trace.made("flush"):
        text = f"{left} {'status' if left == 1 else 'statuses'} not delivered in time"
        failed: Failure | None = ("deadline-missed", text) if left else None
        trace.span("flush", "", began_ns, ((at.UNDELIVERED, left),), failed=failed)


# --- waves


def wave_ended(trace: ShutdownTrace, event: d.WaveEnded) -> None:
    wave = trace.open_wave(event.wave)
    if wave is None:
        return
    names = trace.labels(wave.stragglers)
    attributes: Values = (
        (at.WAVE_OUTCOME, event.outcome),
        (at.UNUSED, milliseconds(wave.unused_ns)),
        (at.STRAGGLERS, names),
        (at.WAVE_MOUNTED, trace.labels(wave.mounted)),
    )
    # A wave of 0 s does not wait, so it misses no deadline.
    if event.outcome != "overran" or not wave.period_ns or trace.asked_to_stop:
        wave_span(trace, wave, attributes)
        return
    # Three names: a back end shows this line in a list. The attributes have all.
    late = len(wave.stragglers)
    more = f" and {late - 3} more" if late > 3 else ""
    missed_by = f"{plural(late, 'pod')}: {', '.join(names[:3])}{more}"
    if not late:
        missed_by = f"the volumes of {plural(len(wave.mounted), 'pod')}"
    wave_span(trace, wave, attributes, failed=("deadline-missed", f"deadline missed by {missed_by}"))


def wave_span(
    trace: ShutdownTrace,
    wave: record.WaveRecord,
    attributes: Values,
    ended_ns: int | None = None,
    failed: Failure | None = None,
) -> None:
    key = str(wave.index)
    known: Values = (
        (at.WAVE, wave.index),
        (at.PRIORITY, wave.priority),
        (at.PERIOD, milliseconds(wave.period_ns or 0)),
        (at.WAVE_PODS, len(wave.pods)),
    )
    trace.span(
        WAVE_ROLE,
        key,
        wave.began_ns or 0,
        (*known, *attributes),
        ended_ns=ended_ns,
        subject=key,
        failed=failed,
    )


# --- pods


def pod_ended(trace: ShutdownTrace, event: d.PodEnded) -> None:
    pod = trace.fold.pods[event.uid]
    gone, begun = trace.gone, pod.began_ns is not None
    if gone and not begun:
        return
    fate: Values = ((at.POD_OUTCOME, event.outcome), (at.REASON, pod.reason), *(CUT if gone else ()))
    error = POD_ERRORS.get(event.outcome)
    # No deadline was missed after a power cut, or if a person ended the wait.
    if event.outcome == "unknown" and not gone and not trace.asked_to_stop:
        error = "deadline-missed"
    if not begun and event.uid not in trace.fold.planned:
        error = None
    pod_spans(trace, pod, fate, trace.cut_ns, (error, pod.reason) if error else None)


def pod_rejected(trace: ShutdownTrace, event: d.PodRejected) -> None:
    namespace, _, name = event.label.partition("/")
    names: Values = ((at.NAMESPACE, namespace), (at.POD_NAME, name), (at.POD_UID, event.uid))
    subject = trace.workload(namespace, name)
    trace.span(REJECT_ROLE, event.uid, trace.at_ns, (*names, (at.REASON, event.reason)), subject=subject)


def pod_spans(
    trace: ShutdownTrace,
    pod: record.PodRecord,
    fate: Values,
    ended_ns: int,
    failed: Failure | None = None,
) -> None:
    below = BelowPod(trace, pod, ended_ns)
    below.deletes()
    below.hooks()
    for container in pod.containers:
        below.stops(container)
    # No second span if the kubelet starts a pod again.
    if trace.made(POD_ROLE, pod.uid):
        return
    known: Values = (
        (at.WAVE, pod.wave if pod.wave >= 0 else None),
        (at.GRACE, milliseconds(pod.grace_ns)),
        (at.POD_PRIORITY, pod.priority),
        (at.ASKED, None if pod.wanted_grace_seconds is None else pod.wanted_grace_seconds * 1000),
        (at.LATE, pod.late or None),
        (at.POD_TERMINATION_MODE, pod.means),
    )
    trace.span(
        POD_ROLE,
        pod.uid,
        trace.at_ns if pod.began_ns is None else pod.began_ns,
        (*below.names, *known, *fate),
        ended_ns=ended_ns,
        parent=trace.wave_id(pod.wave),
        subject=below.subject,
        failed=failed,
        events=(*trace.notices(trace.fold.notices, pod.uid), *below.exits()),
    )


class BelowPod:
    """The spans below one pod. They end with the pod, at ``until_ns``, or before."""

    def __init__(self, trace: ShutdownTrace, pod: record.PodRecord, until_ns: int) -> None:
        self.trace, self.pod, self.until_ns = trace, pod, until_ns
        self.subject = trace.workload(pod.namespace, pod.name)
        name = pod.name if pod.namespace else None
        self.names: Values = ((at.NAMESPACE, pod.namespace), (at.POD_NAME, name), (at.POD_UID, pod.uid))
        carried = trace.carried.pop(pod.uid, ())
        for former in carried:
            former.began_ns = pod.began_ns or 0
        self._orders = [*carried, *trace.of_pods.pop(pod.uid, ())]

    def _span(
        self,
        role: str,
        container: str,
        began_ns: int,
        ended_ns: int | None,
        attributes: Values,
        order: OpenOrder | None = None,
        retried: bytes = b"",
        **more: Any,
    ) -> bytes:
        """``ended_ns`` None: no end on record. ``retried``: the span that this one repeats."""
        given = () if order is None else tuple(order.attributes.items())
        links = () if order is None else order.links
        values: dict[str, Any] = {
            "ended_ns": self.until_ns if ended_ns is None else ended_ns,
            "parent": self.trace.first_id(POD_ROLE, self.pod.uid),
            "subject": self.subject,
            "links": (*links, self.trace.link(retried, "retry")) if retried else links,
        }
        return self.trace.span(
            role,
            f"{self.pod.uid}/{container}" if order is None else order.order.key,
            began_ns,
            (*self.names, (at.CONTAINER, container), *given, *attributes, *(CUT if ended_ns is None else ())),
            **values | more,
        )

    def _of(self, role: str, container: str = "") -> list[OpenOrder]:
        what = (role, container)
        return [each for each in self._orders if (each.order.span_role, container_of(each)) == what]

    def deletes(self) -> None:
        """Only the calls: the pod's span shows the kubelet's work."""
        retried = b""
        for each in self._of(DELETE_ROLE):
            failed = late(each)
            retried = self._span(
                DELETE_ROLE, "", each.began_ns, each.ended_ns, (), each, retried, failed=failed
            )

    def hooks(self) -> None:
        orders = {container_of(each): each for each in self._orders if each.order.span_role == HOOK_ROLE}
        for hook in self.pod.hooks:
            order = orders.pop(hook.container, None)
            limit_ns = max(0, hook.until_ns - hook.began_ns)
            attributes: Values = (
                (at.HOOK_KIND, hook.kind),
                (at.HOOK_UNTIL, milliseconds(limit_ns)),
                (at.HOOK_RESULT, hook.result),
                (at.HOOK_EARLY, hook.early or None),
                (at.REASON, hook.reason),
            )
            error = HOOK_ERRORS.get(hook.result or "")
            failed = (error, f"preStop {hook.result}: {hook.reason}") if error else None
            began_ns = hook.began_ns if order is None else order.began_ns
            self._span(HOOK_ROLE, hook.container, began_ns, hook.ended_ns, attributes, order, failed=failed)
        for container, order in orders.items():
            self._span(HOOK_ROLE, container, order.began_ns, None, (), order)

    def stops(self, container: record.ContainerRecord) -> None:
        """From the stop signal, and from SIGKILL, to the exit. A second order retries the first, which ends
        without an outcome.
        """
        taken = [each for each in self.pod.autopsies if each.container == container.name]
        firsts = [autopsy.processes[0] for autopsy in taken if autopsy.processes]
        stop = b""
        for role in (STOP_ROLE, KILL_ROLE):
            orders, retried = self._of(role, container.name), b""
            for each, following in zip_longest(orders, orders[1:]):
                attributes, ended_ns = exit_of(container), container.exited_ns
                failed = self._failed(container, each)
                if following is not None and (ended_ns is None or ended_ns > following.began_ns):
                    attributes, failed, ended_ns = ((at.RESULT, "unknown"),), None, following.began_ns
                more: dict[str, Any] = {"failed": failed}
                if isinstance(each.order, d.SendSignal):
                    attributes = ((at.SIGNAL, each.order.signal), *attributes)
                    more["events"] = self._autopsies(taken)
                else:
                    # The first process got the stop signal, so its state explains the kill. A kill is below
                    # the stop that it ends.
                    attributes = (*(process_state(firsts[-1]) if firsts else ()), *attributes)
                    more |= {"parent": stop} if stop else {}
                retried = self._span(
                    role, container.name, each.began_ns, ended_ns, attributes, each, retried, **more
                )
                stop = retried if role == STOP_ROLE else stop

    def _failed(self, container: record.ContainerRecord, order: OpenOrder) -> Failure | None:
        if container.exited_ns is None:
            return ("survived-sigkill", self.pod.reason) if self.pod.outcome == "failed" else None
        if not record.was_killed(container) and container.exit_signal != "SIGKILL":
            return None
        signal = getattr(order.order, "signal", "it was sent")
        return "killed", f"ended by SIGKILL, {span(container.exited_ns - order.began_ns)} after {signal}"

    def _autopsies(self, taken: Sequence[record.AutopsyRecord]) -> Iterator[SpanEvent]:
        # Only the kernel's data: a process's last lines may be private, and others may run the back end.
        for each in taken:
            for process in each.processes:
                yield self.trace.event(
                    "autopsy",
                    each.at_ns,
                    (at.PID, process.pid),
                    (at.PARENT_PID, process.parent_pid),
                    (at.COMMAND, process.command),
                    *process_state(process),
                    (at.CAUGHT, process.signals_caught),
                    (at.CONNECTIONS, process.connections),
                )

    def exits(self) -> Iterator[SpanEvent]:
        """A container without our signal has no span, so its exit is an event of its pod."""
        for each in self.pod.containers:
            if each.exited_ns is not None and each.signalled_ns is None and each.killed_ns is None:
                named = (at.CONTAINER, each.name)
                yield self.trace.event("container.exited", each.exited_ns, named, *exit_of(each))


def container_of(each: OpenOrder) -> str:
    return getattr(each.order, "container", "")


def exit_of(container: record.ContainerRecord) -> Values:
    return ((at.EXIT_CODE, container.exit_code), (at.EXIT_SIGNAL, container.exit_signal))


def process_state(process: ProcessReport) -> Values:
    waits = (at.WAITING_IN, process.wait_channel)
    return ((at.STATE, process.state), waits, (at.IGNORED, process.signals_ignored))


# --- orders

#: An order's attributes, by type.
ORDERS: dict[str, Callable[[Any], Values]] = {
    "TakeInventory": lambda e: ((at.REFRESH, e.refresh),),
    "AnnounceNode": lambda e: ((at.READY, e.ready),),
    "DeliverStatuses": lambda e: ((at.STATUSES, len(e.statuses)),),
    "WithdrawPods": lambda e: ((at.ABOUT_PODS, len(e.uids)),),
    "AwaitStatuses": lambda e: ((at.ABOUT_PODS, len(e.uids)),),
    "AwaitUnmounts": lambda e: ((at.ABOUT_PODS, len(e.uids)),),
    "PublishCertificate": lambda e: ((at.SAFE_TO_DETACH, e.safe),),
    "DeletePod": lambda e: (
        (at.GRACE, milliseconds(e.grace_seconds * NS_PER_SECOND)),
        (at.AFTER_TAINT, e.after_taint),
    ),
}

#: Attributes from facts, for the span of their order.
ANSWERS: dict[str, Callable[[Any], Values]] = {
    "InventoryTaken": lambda e: ((at.FOUND, len(e.pods)), (at.SOURCE, e.source)),
    "StatusesSeen": lambda e: ((at.MISSING, len(e.missing)),),
    "MountsRead": lambda e: ((at.MOUNTED, len(e.mounted)),),
}


def ordered(trace: ShutdownTrace, event: Order) -> None:
    made = trace.begin_order(event, ORDERS.get(type(event).__name__, lambda e: ())(event))
    if uid := event.pod_uid:
        # The span is made at the pod's end.
        trace.of_pods.setdefault(uid, []).append(made)
        return
    if (before := trace.lost.pop(event.span_role, None)) is not None:
        made.links = (trace.link(before, "retry"),)
    wave = parse_order_key(event.key).subject if isinstance(event, d.AwaitUnmounts) else ""
    made.parent = trace.wave_id(int(wave)) if wave.isdecimal() else trace.root_id


def order_ended(trace: ShutdownTrace, event: f.OrderEnded) -> None:
    made = trace.orders.pop(event.key, None)
    if made is None:
        return
    role = made.order.span_role
    if role in CONTAINER_ROLES:
        # Its span ends with `HookEnded`, or with the container's exit.
        if event.exit_code is not None:
            made.attributes[at.EXIT_CODE] = event.exit_code
        return
    made.end(event, trace.at_ns)
    if role == DELETE_ROLE:
        return
    span_id = trace.order_span(made, failed=late(made))
    if isinstance(made.order, d.ReleaseLock):
        # The first release ends the root.
        fallback(trace)
        trace.root("complete", trace.at_ns)
    if event.result == "unknown" or (role == "inventory" and event.result != "done"):
        trace.lost[role] = span_id


def late(made: OpenOrder) -> Failure | None:
    if made.attributes.get(at.RESULT) != "timed-out":
        return None
    return "deadline-missed", str(made.attributes.get(at.REASON) or "not done in time")


def answered(trace: ShutdownTrace, event: Any) -> None:
    made = trace.orders.get(event.key)
    if made is not None:
        # A listing may come in parts.
        for name, value in ANSWERS[type(event).__name__](event):
            before = made.attributes.get(name)
            whole = before + value if isinstance(before, int) and isinstance(value, int) else value
            made.attributes[name] = whole


ShutdownTrace.handlers = {
    **dict.fromkeys(orders_of(d), ordered),
    **dict.fromkeys(ANSWERS, answered),
    "OrderEnded": order_ended,
    "ShutdownBegan": shutdown_began,
    "ReleaseLock": release_ordered,
    "EpisodeClosed": shutdown_closed,
    "Resumed": shutdown_resumed,
    "ActorFailed": actor_failed,
    "PlanMade": plan_made,
    "PodsEnded": pods_ended,
    "StatusesSettled": statuses_settled,
    "WaveEnded": wave_ended,
    "PodEnded": pod_ended,
    "PodRejected": pod_rejected,
}

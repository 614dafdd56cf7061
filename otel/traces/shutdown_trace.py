"""The shutdown as a whole and its node: the root span's begin and its one end, and the orders below it.

It ends with the durable order to release the lock, else with its last event. Where the record breaks off it
ends with the record; only another boot (or userspace) proves that, because a dead daemon may come back.

Then the orders for the node as a whole: listing the pods, announcing, delivering statuses, the release.

Last, a Kubernetes node's events: how its pods end, the kubelet's stop, deletes, mounts, statuses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ebbtide.events import decisions as d
from ebbtide.events import facts as f
from ebbtide.events.base import NS_PER_SECOND, Event, Order, parse_order_key
from ebbtide.otel import attributes as at
from ebbtide.otel.span import (
    HOOK_ROLE,
    KILL_ROLE,
    STOP_ROLE,
    Attributes,
    Span,
    SpanIds,
    boot_trace_id,
)
from ebbtide.otel.traces.pod_spans import begin_below_pod, container_outcome, wave_failed
from ebbtide.otel.traces.trace import (
    LENGTH_NS_MIN,
    CarriedSpan,
    DaemonStart,
    OpenSpan,
    Trace,
    counted,
    milliseconds,
)

NEXT_BOOT = "next boot"

#: Roles that continue with their pod in the next shutdown.
CONTINUED_ROLES = (HOOK_ROLE, STOP_ROLE, KILL_ROLE)


def shutdown_began(trace: Trace, event: d.ShutdownBegan) -> None:
    trace.version = event.projection_version
    trace.root.attributes.update(
        {
            at.KIND: event.kind,
            at.GRANT: milliseconds(event.grant_ns),
            at.REQUESTED: milliseconds(event.requested_ns),
            at.BUDGET: milliseconds(event.budget_ns),
            at.LOCK_HELD: event.lock_held,
        }
    )


# --- the end -----------------------------------------------------------------------------------


def shutdown_released(trace: Trace) -> None:
    """The first release ends the shutdown. Later work has spans of its own."""
    # If the fallback was first, some pods end in this very step: count them before the root is finished,
    # because nothing can change it afterwards.
    if trace.open_pods:
        trace.left_behind(len(trace.open_pods))
    _end_root(trace, "complete", trace.now_ns)
    fallback = trace.named.pop("fallback", None)
    if fallback is not None:
        trace.end(fallback)


def _end_root(trace: Trace, outcome: str, end_ns: int, *, cut: bool = False) -> None:
    if trace.root.over:
        return
    outcomes = list(trace.outcomes.values())
    counts: Attributes = tuple((name, outcomes.count(of)) for of, name in at.POD_COUNTS.items())
    attributes: Attributes = (
        (at.OUTCOME, outcome),
        (at.LAST_WAVE, trace.last_wave),
        (at.PODS, len(trace.pods)),
        *counts,
        (at.UNFINISHED_PODS, trace.unfinished),
    )
    if cut:
        where = f"at wave {trace.last_wave}" if trace.last_wave >= 0 else "before its first wave"
        trace.fail(trace.root, "cut-short", f"cut short {where}", (*attributes, (at.CUT, True)), end_ns)
    elif trace.missed:
        text = f"the budget was over with {counted(trace.unfinished, 'pod')} left"
        trace.fail(trace.root, "deadline-missed", text, attributes, end_ns)
    else:
        trace.end(trace.root, attributes, end_ns)


def shutdown_closed(trace: Trace, event: d.EpisodeClosed) -> None:
    """Open spans end here, or at the end of their boot's record."""
    if event.followed:
        # The next shutdown waits for the same hooks and signals, with new spans linked to these.
        trace.carried = {uid: _spans_to_continue(trace, pod) for uid, pod in trace.open_pods.items()}
    if trace.gone and trace.start is not None:
        _next_boot(trace, event.outcome, trace.start)
    close_trace(trace, event.outcome, trace.cut_ns, gone=trace.gone)


def close_trace(trace: Trace, outcome: str, end_ns: int, *, gone: bool) -> None:
    """Everything ends, the shutdown's own span last."""
    # The boot ended before the cancel was complete: cut it like the rest.
    cancel = trace.named.pop("cancel", None)
    if cancel is not None and not gone:
        trace.end(cancel)
    # The root last: it shows an exporter that the trace is whole.
    for span in list(trace.opened.values()):
        if span is not trace.root:
            trace.end(span, ((at.CUT, True),), end_ns)
    cut = gone and outcome not in ("complete", "cancelled")
    _end_root(trace, outcome, end_ns, cut=cut)
    trace.over = True


def _spans_to_continue(trace: Trace, pod: OpenSpan) -> list[CarriedSpan]:
    return [
        CarriedSpan(place, child.key, tuple(child.attributes.items()), trace.link(child.span_id, "continued"))
        for place, child in pod.children.items()
        if place[0] in CONTINUED_ROLES
    ]


def _next_boot(trace: Trace, outcome: str, start: DaemonStart) -> None:
    """The time without a daemon is a trace of its own: hours of it would hide the rest here."""
    trace_id = boot_trace_id(start.raw.hash)
    trace.finished.append(
        Span(
            trace_id,
            SpanIds(trace_id).of(NEXT_BOOT, ""),
            b"",
            NEXT_BOOT,
            start.cut_ns,
            max(start.cut_ns + LENGTH_NS_MIN, trace.now_ns),
            (
                (at.EPISODE, trace.root.attributes[at.EPISODE]),
                (at.BOOT_ID, start.boot_id),
                (at.OUTCOME, outcome),
                (at.LAST_WAVE, trace.last_wave),
            ),
            trace.episode,
            trace.raw.seq,
            links=(trace.link(trace.root.span_id, "shutdown"),),
        )
    )


# --- a start -----------------------------------------------------------------------------------


def daemon_started(trace: Trace, event: f.DaemonStarted) -> None:
    """Only now the end of the record before it is known."""
    moved = event.boot_id != trace.boot_id
    trace.start = DaemonStart(trace.raw, event.boot_id, trace.last_ns, moved=moved)


def end_daemon_start(trace: Trace) -> None:
    """A start in another boot ends the shutdown, also without an actor's event."""
    start, trace.start = trace.start, None
    if start is not None and start.moved and not trace.over:
        close_trace(trace, "complete" if trace.root.over else "truncated", start.cut_ns, gone=True)


def abandon_trace(trace: Trace) -> None:
    # Without a close: the journal lacks the part up to the next shutdown.
    close_trace(trace, "truncated", trace.last_ns, gone=True)


def shutdown_resumed(trace: Trace, event: d.Resumed) -> None:
    """The same shutdown continues in another process: the time between the two is a span."""
    if trace.start is None or trace.start.moved:
        return
    span = trace.begin("resume", "", trace.root.span_id, ((at.ACTION, event.action),))
    # From the former process's last record on: the moment of its death is unknown.
    span.start_ns = trace.start.cut_ns
    span.links.append(trace.link(trace.root.span_id, "shutdown"))
    trace.end(span)


# --- beside the waves --------------------------------------------------------------------------


def shutdown_cancelled(trace: Trace, event: d.ShutdownCancelled) -> None:
    trace.note("cancelled", ((at.REASON, event.reason),))
    if "cancel" not in trace.named:
        trace.named["cancel"] = trace.begin("cancel", "", trace.root.span_id, ((at.REASON, event.reason),))


def actor_failed(trace: Trace, event: d.ActorFailed) -> None:
    name = f"{event.actor}:{event.subject}" if event.subject else event.actor
    trace.note("actor.failed", ((at.ACTOR, name), (at.EXCEPTION, event.error)))
    if event.actor == "WaveActor":
        wave_failed(trace, event.subject)


def fallback_engaged(trace: Trace, event: d.FallbackEngaged) -> None:
    """One span from its first pod to the end of the shutdown, an event each time it takes over more."""
    fallback = trace.named.get("fallback")
    if fallback is None:
        fallback = trace.named["fallback"] = trace.begin("fallback", "", trace.root.span_id)
    what: Attributes = ((at.FALLBACK_PODS, len(event.pods)), (at.REASON, event.reason))
    fallback.note("fallback.engaged", trace.now_ns, what)


def deadline_moved(trace: Trace, event: d.DeadlineMoved) -> None:
    left_ns = max(0, event.deadline_ns - trace.raw.mono_ns)
    trace.note("deadline.moved", ((at.LEFT, milliseconds(left_ns)), (at.OVERTIME, event.overtime)))


# --- orders for the node as a whole ---------------------------------------------------------------
# Each is the span of one order, from its record to its outcome. If a daemon died before the outcome, the next
# one repeats the order: another span, linked to the first.


def begin_for_node(trace: Trace, order: Order, attributes: Attributes, parent: bytes | None = None) -> None:
    """Below the shutdown, or ``parent``. The next of its kind after a lost one is a retry."""
    role, key = order.span_role, order.key
    before = trace.lost.pop(role, b"")
    below = trace.root.span_id if parent is None else parent
    trace.orders[key] = trace.begin_again(role, key, below, (*attributes, (at.ORDER, key)), before)


def order_ended(trace: Trace, event: f.OrderEnded) -> None:
    span = trace.orders.pop(event.key, None)
    if span is None:
        container_outcome(trace, event)
        return
    if event.result == "unknown" or (span.name == "inventory" and event.result != "done"):
        trace.lost[span.name] = span.span_id
    attributes: Attributes = ((at.RESULT, event.result),)
    if event.reason:
        attributes = (*attributes, (at.REASON, event.reason))
    if event.result == "timed-out":
        trace.fail(span, "deadline-missed", event.reason or "not done in time", attributes)
    else:
        trace.end(span, attributes)


# --- inventory and plan ------------------------------------------------------------------------


def inventory_taken(trace: Trace, event: f.InventoryTaken) -> None:
    span = trace.orders.get(event.key)
    if span is None:
        return
    before = trace.listed.pop(event.key, 0)
    if event.part < event.parts:
        trace.listed[event.key] = before + len(event.pods)
    else:
        span.attributes.update({at.FOUND: before + len(event.pods), at.SOURCE: event.source})


def plan_made(trace: Trace, event: d.PlanMade) -> None:
    attributes: Attributes = ((at.WAVES, len(event.waves)), (at.PODS, event.pods))
    trace.point("plan", "", trace.root.span_id, attributes)


# --- node and statuses -------------------------------------------------------------------------


def pods_ended(trace: Trace, event: d.PodsEnded) -> None:
    """From here on the shutdown waits only for statuses."""
    trace.left_behind(len(event.unfinished))
    if "flush" not in trace.named:
        trace.named["flush"] = trace.begin("flush", "", trace.root.span_id)


def statuses_settled(trace: Trace, event: d.StatusesSettled) -> None:
    flush = trace.named.pop("flush", None)
    if flush is None:
        return
    attributes = ((at.UNDELIVERED, event.undelivered),)
    if event.undelivered:
        text = f"{counted(event.undelivered, 'status')} not delivered in time"
        trace.fail(flush, "deadline-missed", text, attributes)
    else:
        trace.end(flush, attributes)


def release_ordered(trace: Trace, event: d.ReleaseLock) -> None:
    # Its outcome may be lost with the machine: the shutdown's span does not wait for it.
    begin_for_node(trace, event, ())


# --- a Kubernetes node ----------------------------------------------------------------------------
# Mode process has none of this on record, so its traces stay the same.


# --- who ends the pods -------------------------------------------------------------------------


def termination_mode_chosen(trace: Trace, event: d.MeansChosen) -> None:
    trace.root.attributes[at.TERMINATION_MODE] = event.means
    trace.note("means.chosen", ((at.TERMINATION_MODE, event.means), (at.REASON, event.reason)))


def handed_over(trace: Trace, event: d.HandedOver) -> None:
    trace.root.attributes[at.HANDED_OVER] = True
    trace.note("handed.over", ((at.REASON, event.reason),))


def kubelet_read(trace: Trace, event: f.KubeletRead) -> None:
    if event.active is not None:
        _health(trace, "kubelet", answers=event.active and event.healthy is not False, error="")


def runtime_read(trace: Trace, event: f.RuntimeRead) -> None:
    _health(trace, "runtime", answers=event.reachable, error=event.error)


def api_read(trace: Trace, event: f.ApiRead) -> None:
    _health(trace, "api", answers=event.reachable, error=event.error)


def _health(trace: Trace, part: str, *, answers: bool, error: str) -> None:
    why: Attributes = ((at.REASON, error),) if error else ()
    trace.note("health", ((at.PART, part), (at.ANSWERS, answers), *why))


# --- pods --------------------------------------------------------------------------------------


def delete_ordered(trace: Trace, event: d.DeletePod) -> None:
    """The call alone: the kubelet's work is the pod's own span."""
    grace_ms = milliseconds(event.grace_seconds * NS_PER_SECOND)
    given: Attributes = ((at.GRACE, grace_ms), (at.AFTER_TAINT, event.after_taint), (at.ORDER, event.key))
    span = begin_below_pod(trace, event.span_role, event.uid, "", event.key)
    if span is not None:
        span.attributes.update(given)
        trace.orders[event.key] = span


def delete_refused(trace: Trace, event: d.DeleteRefused) -> None:
    pod = trace.open_pods.get(event.uid)
    if pod is not None:
        trace.undeleted[event.uid] = event.reason
        pod.note("delete.refused", trace.now_ns, ((at.REASON, event.reason),))


def unmounts_awaited(trace: Trace, event: d.AwaitUnmounts) -> None:
    """Below the wave that waits for it."""
    wave = parse_order_key(event.key).subject
    parent = trace.wave_id(int(wave)) if wave.isdecimal() else trace.root.span_id
    begin_for_node(trace, event, ((at.ABOUT_PODS, len(event.uids)),), parent)


# --- the end -----------------------------------------------------------------------------------


def statuses_seen(trace: Trace, event: f.StatusesSeen) -> None:
    span = trace.orders.get(event.key)
    if span is not None:
        span.attributes[at.MISSING] = len(event.missing)


def mounts_read(trace: Trace, event: f.MountsRead) -> None:
    span = trace.orders.get(event.key)
    if span is not None:
        span.attributes[at.MOUNTED] = len(event.mounted)


def detach_certified(trace: Trace, event: d.DetachCertified) -> None:
    trace.root.attributes[at.SAFE_TO_DETACH] = event.safe
    found: Attributes = ((at.STILL_RUNNING, len(event.running)), (at.MOUNTED, len(event.mounted)))
    trace.note("detach.certified", ((at.SAFE_TO_DETACH, event.safe), *found))


# --- plain orders and notes ----------------------------------------------------------------------


def _towards_zero(delta_ns: int) -> int:
    return milliseconds(abs(delta_ns)) * (-1 if delta_ns < 0 else 1)


#: The attributes of orders for the node as a whole.
ORDERS: dict[str, Callable[[Any], Attributes]] = {
    "TakeInventory": lambda e: ((at.REFRESH, e.refresh),),
    "AnnounceNode": lambda e: ((at.READY, e.ready),),
    "DeliverStatuses": lambda e: ((at.STATUSES, len(e.statuses)),),
    "FlushTraces": lambda e: (),
    "StopKubelet": lambda e: (),
    "WithdrawPods": lambda e: ((at.ABOUT_PODS, len(e.uids)),),
    "AwaitStatuses": lambda e: ((at.ABOUT_PODS, len(e.uids)),),
    "CheckMounts": lambda e: (),
    "PublishCertificate": lambda e: ((at.SAFE_TO_DETACH, e.safe),),
}

#: Events of the shutdown's own span: name and attributes.
NOTES: dict[str, tuple[str, Callable[[Any], Attributes]]] = {
    "HurryRequested": ("hurry", lambda e: ((at.ASKED_POD, e.pod), (at.ASKED_BY, e.asked_by))),
    "ReleaseRequested": ("release.asked", lambda e: ((at.ASKED_BY, e.asked_by),)),
    "DurabilityLate": (
        "durability.late",
        lambda e: ((at.ORDER, e.key), (at.BARRIER, e.barrier), (at.WAITED, milliseconds(e.waited_ns))),
    ),
    "StorageFailed": (
        "storage.failed",
        lambda e: ((at.LOCATION, e.location), (at.STORAGE_ERROR, e.error)),
    ),
    "StorageMoved": ("storage.moved", lambda e: ((at.LOCATION, e.location),)),
    "ClockStepped": ("clock.stepped", lambda e: ((at.DELTA, _towards_zero(e.delta_ns)),)),
    "LeftUndone": (
        "left.undone",
        lambda e: ((at.STILL_RUNNING, len(e.running)), (at.MISSING, len(e.without_status))),
    ),
}


def ordered(trace: Trace, event: Order) -> None:
    begin_for_node(trace, event, ORDERS[type(event).__name__](event))


def noted(trace: Trace, event: Event) -> None:
    name, attributes = NOTES[type(event).__name__]
    trace.note(name, attributes(event))

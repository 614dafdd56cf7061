"""The shutdown as a whole: its begin, what happened beside its waves, its one end.

It ends with the durable order to release the lock, or with its last word where there was no release. Where
the record breaks off it ends with the record, and only another boot (or userspace) can say that it did: a
daemon that died may come back.
"""

from __future__ import annotations

from events.decisions import (
    ActorFailed,
    DeadlineMoved,
    EpisodeClosed,
    FallbackEngaged,
    Resumed,
    ShutdownBegan,
    ShutdownCancelled,
)
from events.facts import (
    ClockStepped,
    DaemonStarted,
    DurabilityLate,
    HurryRequested,
    ReleaseRequested,
    StorageFailed,
    StorageMoved,
)
from otel import attributes as at
from otel.ids import HOOK, KILL, STOP, SpanIds, boot_trace_id
from otel.span import Attributes, Span
from otel.traces.pods import wave_failed
from otel.traces.spans import LENGTH_NS_MIN
from otel.traces.trace import Carried, Start, Trace, counted, milliseconds

NEXT_BOOT = "next boot"

#: Roles that go on with their pod in the next shutdown.
GO_ON = (HOOK, STOP, KILL)


def began(trace: Trace, event: ShutdownBegan) -> None:
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


def released(trace: Trace) -> None:
    """The first release ends the shutdown. What comes after it has spans of its own.

    Where the fallback was first, pods may be there whose last word follows in this very step.
    """
    if trace.open_pods:
        trace.left_behind(len(trace.open_pods))
    _end_root(trace, "complete", trace.now_ns)
    fallback = trace.named.pop("fallback", None)
    if fallback is not None:
        trace.end(fallback)


def _end_root(trace: Trace, outcome: str, end_ns: int, *, cut: bool = False) -> None:
    if trace.root.over:
        return
    counts: Attributes = tuple((name, _count(trace, of)) for of, name in at.POD_COUNTS.items())
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


def _count(trace: Trace, outcome: str) -> int:
    return sum(each == outcome for each in trace.outcomes.values())


def closed(trace: Trace, event: EpisodeClosed) -> None:
    """The last word. What is still open ends here, or where the record of its boot ended."""
    if event.followed:
        trace.carried = _left_on_their_way(trace)
    if trace.gone and trace.start is not None:
        _next_boot(trace, event.outcome, trace.start)
    close(trace, event.outcome, trace.cut_ns, gone=trace.gone)


def close(trace: Trace, outcome: str, end_ns: int, *, gone: bool) -> None:
    """Everything ends, the shutdown's own span last."""
    cancel = trace.named.pop("cancel", None)
    if cancel is not None and not gone:
        trace.end(cancel)
    for span in list(trace.opened.values()):
        if span is not trace.root:
            trace.end(span, ((at.CUT, True),), end_ns)
    cut = gone and outcome not in ("complete", "cancelled")
    _end_root(trace, outcome, end_ns, cut=cut)
    trace.over = True


def _left_on_their_way(trace: Trace) -> dict[str, list[Carried]]:
    return {
        uid: [
            Carried(place, child.key, tuple(child.attributes.items()), trace.link(child.span_id, "continued"))
            for place, child in pod.children.items()
            if place[0] in GO_ON
        ]
        for uid, pod in trace.open_pods.items()
    }


def _next_boot(trace: Trace, outcome: str, start: Start) -> None:
    """The time without us, in a trace of its own: hours of darkness would leave nothing to see here."""
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


def started(trace: Trace, event: DaemonStarted) -> None:
    """Where the record before it ends is known only now."""
    moved = event.boot_id != trace.boot_id
    trace.start = Start(trace.raw, event.boot_id, trace.last_ns, moved=moved)


def end_start(trace: Trace) -> None:
    """A start in another boot ends the shutdown, even where no actor is left to say so."""
    start, trace.start = trace.start, None
    if start is not None and start.moved and not trace.over:
        close(trace, "complete" if trace.root.over else "truncated", start.cut_ns, gone=True)


def abandon(trace: Trace) -> None:
    """Another shutdown is told of, and nothing closed this one: what is between is missing."""
    close(trace, "truncated", trace.last_ns, gone=True)


def resumed(trace: Trace, event: Resumed) -> None:
    """The same shutdown goes on in another process: the time between the two is a span."""
    if trace.start is None or trace.start.moved:
        return
    span = trace.begin("resume", "", trace.root.span_id, ((at.ACTION, event.action),))
    span.start_ns = trace.start.cut_ns
    span.links.append(trace.link(trace.root.span_id, "shutdown"))
    trace.end(span)


# --- beside the waves --------------------------------------------------------------------------


def cancelled(trace: Trace, event: ShutdownCancelled) -> None:
    trace.note("cancelled", ((at.REASON, event.reason),))
    if "cancel" not in trace.named:
        trace.named["cancel"] = trace.begin("cancel", "", trace.root.span_id, ((at.REASON, event.reason),))


def actor_failed(trace: Trace, event: ActorFailed) -> None:
    name = f"{event.actor}:{event.subject}" if event.subject else event.actor
    trace.note("actor.failed", ((at.ACTOR, name), (at.EXCEPTION, event.error)))
    if event.actor == "WaveActor":
        wave_failed(trace, event.subject)


def fallback_engaged(trace: Trace, event: FallbackEngaged) -> None:
    """One span from its first care to the end of the shutdown, an event each time it takes over more."""
    fallback = trace.named.get("fallback")
    if fallback is None:
        fallback = trace.named["fallback"] = trace.begin("fallback", "", trace.root.span_id)
    what: Attributes = ((at.FALLBACK_PODS, len(event.pods)), (at.REASON, event.reason))
    fallback.note("fallback.engaged", trace.now_ns, what)


def deadline_moved(trace: Trace, event: DeadlineMoved) -> None:
    left_ns = max(0, event.deadline_ns - trace.raw.mono_ns)
    trace.note("deadline.moved", ((at.LEFT, milliseconds(left_ns)), (at.OVERTIME, event.overtime)))


def hurried(trace: Trace, event: HurryRequested) -> None:
    trace.note("hurry", ((at.ASKED_POD, event.pod), (at.ASKED_BY, event.asked_by)))


def release_asked(trace: Trace, event: ReleaseRequested) -> None:
    trace.note("release.asked", ((at.ASKED_BY, event.asked_by),))


def durability_late(trace: Trace, event: DurabilityLate) -> None:
    waited = (at.WAITED, milliseconds(event.waited_ns))
    trace.note("durability.late", ((at.ORDER, event.key), (at.BARRIER, event.barrier), waited))


def storage_failed(trace: Trace, event: StorageFailed) -> None:
    trace.note("storage.failed", ((at.LOCATION, event.location), (at.STORAGE_ERROR, event.error)))


def storage_moved(trace: Trace, event: StorageMoved) -> None:
    trace.note("storage.moved", ((at.LOCATION, event.location),))


def clock_stepped(trace: Trace, event: ClockStepped) -> None:
    trace.note("clock.stepped", ((at.DELTA, _towards_zero(event.delta_ns)),))


def _towards_zero(ns: int) -> int:
    return milliseconds(ns) if ns >= 0 else -milliseconds(-ns)

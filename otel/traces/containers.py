"""Containers: hooks, the way from the stop signal to the exit, and what SIGKILL found.

A span that belongs to an order has the order's key, so that whoever carried it out could name it beforehand
(`otel.ids.order_span_id`).
"""

from __future__ import annotations

from events.decisions import HookEnded, HookStarted, KillContainer, RunHook, SendSignal
from events.facts import AutopsyTaken, ContainerExited, OrderEnded
from events.model import ProcessReport
from otel import attributes as at
from otel.ids import HOOK, KILL, STOP
from otel.span import Attributes
from otel.traces.pods import facts_of
from otel.traces.spans import Open
from otel.traces.trace import Trace, milliseconds, seconds

#: Results of a hook that are failures: it failed, or its deadline was missed.
FAILURES: dict[str, at.Error] = {"failed": "hook-failed", "timed-out": "hook-timed-out"}

#: What a runtime says of a container that SIGKILL ended: 128 + 9, or nothing.
KILLED_CODES = (None, 137)


def _children(trace: Trace, uid: str) -> dict[tuple[str, str], Open]:
    pod = trace.open_pods.get(uid)
    return {} if pod is None else pod.children


def begin_below_pod(trace: Trace, role: str, uid: str, container: str, key: str) -> Open | None:
    """Below its pod. The second of its kind for a container is a retry of the first, which ends unheard.

    ``container`` empty: it is about the pod as a whole.
    """
    pod = trace.open_pods.get(uid)
    if pod is None:
        return None
    before = pod.children.get((role, container))
    if before is not None:
        trace.end(before, ((at.RESULT, "unknown"),))
    attributes = facts_of(trace, uid).names
    if container:
        attributes = (*attributes, (at.CONTAINER, container))
    retried = b"" if before is None else before.span_id
    span = pod.children[(role, container)] = trace.begin_again(role, key, pod.span_id, attributes, retried)
    return span


# --- hooks -------------------------------------------------------------------------------------


def hook_started(trace: Trace, event: HookStarted) -> None:
    """The order, if it has one, follows at once and gives the span its key."""
    limit_ns = max(0, event.until_ns - trace.raw.mono_ns)
    trace.hook = ((at.HOOK_KIND, event.kind), (at.HOOK_UNTIL, milliseconds(limit_ns)))
    if event.kind not in ("exec", "httpGet"):
        _begin_hook(trace, event.uid, event.container, f"{event.uid}/{event.container}")


def hook_ordered(trace: Trace, event: RunHook) -> None:
    _begin_hook(trace, event.uid, event.container, event.key)


def _begin_hook(trace: Trace, uid: str, container: str, key: str) -> None:
    span = begin_below_pod(trace, HOOK, uid, container, key)
    if span is not None:
        span.attributes.update(trace.hook)


def hook_outcome(trace: Trace, event: OrderEnded) -> None:
    """The exit code stands in the order's outcome, which comes before the actor's word on it."""
    if event.exit_code is not None:
        trace.exit_codes[event.key] = event.exit_code


def hook_ended(trace: Trace, event: HookEnded) -> None:
    span = _children(trace, event.uid).pop((HOOK, event.container), None)
    if span is None:
        _skipped(trace, event)
        return
    code = trace.exit_codes.pop(span.key, None)
    known: Attributes = () if code is None else ((at.EXIT_CODE, code),)
    _end_hook(trace, span, event, known)


def _skipped(trace: Trace, event: HookEnded) -> None:
    """It never ran: switched off, or no grace was left for it."""
    span = begin_below_pod(trace, HOOK, event.uid, event.container, f"{event.uid}/{event.container}")
    if span is not None:
        _children(trace, event.uid).pop((HOOK, event.container), None)
        _end_hook(trace, span, event, ())


def _end_hook(trace: Trace, span: Open, event: HookEnded, known: Attributes) -> None:
    attributes: Attributes = ((at.HOOK_RESULT, event.result), *known)
    if event.early:
        attributes = (*attributes, (at.HOOK_EARLY, True))
    if event.reason:
        attributes = (*attributes, (at.REASON, event.reason))
    error = FAILURES.get(event.result)
    if error is None:
        trace.end(span, attributes)
    else:
        trace.fail(span, error, f"preStop {event.result}: {event.reason}", attributes)


# --- stop and SIGKILL --------------------------------------------------------------------------


def stop_ordered(trace: Trace, event: SendSignal) -> None:
    span = begin_below_pod(trace, STOP, event.uid, event.container, event.key)
    if span is not None:
        span.attributes[at.SIGNAL] = event.signal


def kill_ordered(trace: Trace, event: KillContainer) -> None:
    span = begin_below_pod(trace, KILL, event.uid, event.container, event.key)
    if span is None:
        return
    stop = _children(trace, event.uid).get((STOP, event.container))
    if stop is not None:
        span.parent_id = stop.span_id
    span.attributes.update(trace.findings.pop((event.uid, event.container), ()))


def autopsy_taken(trace: Trace, event: AutopsyTaken) -> None:
    """Each process becomes an event of the stop; the first one's state goes on to the kill as well.

    Its last lines stay in the journal: what a program wrote is not for every back end.
    """
    stop = _children(trace, event.uid).get((STOP, event.container))
    if stop is None:
        return
    for process in event.processes:
        stop.note("autopsy", trace.now_ns, _autopsy(process))
    for process in event.processes[:1]:
        trace.findings[(event.uid, event.container)] = _finding(process)


def _finding(process: ProcessReport) -> Attributes:
    found: Attributes = ((at.STATE, process.state),)
    if process.wait_channel:
        found = (*found, (at.WAITING_IN, process.wait_channel))
    if process.signals_ignored:
        found = (*found, (at.IGNORED, process.signals_ignored))
    return found


def _autopsy(process: ProcessReport) -> Attributes:
    return (
        (at.PID, process.pid),
        (at.PARENT_PID, process.parent_pid),
        (at.COMMAND, process.command),
        *_finding(process),
        (at.CAUGHT, process.signals_caught),
        (at.CONNECTIONS, process.connections),
    )


def exited(trace: Trace, event: ContainerExited) -> None:
    children = _children(trace, event.uid)
    how: Attributes = ()
    if event.exit_code is not None:
        how = (*how, (at.EXIT_CODE, event.exit_code))
    if event.signal:
        how = (*how, (at.EXIT_SIGNAL, event.signal))
    kill = children.pop((KILL, event.container), None)
    stop = children.pop((STOP, event.container), None)
    if kill is None and stop is None:
        _ended_by_kubelet(trace, event, how)
    killed = _killed(event, ordered=kill is not None)
    for span in (kill, stop):
        if span is None:
            continue
        if killed:
            trace.fail(span, "killed", _how_long(trace, span), how)
        else:
            trace.end(span, how)


def _ended_by_kubelet(trace: Trace, event: ContainerExited, how: Attributes) -> None:
    """Whom we have not signalled has no span for it: its end is an event of its pod."""
    pod = trace.open_pods.get(event.uid)
    if pod is not None and facts_of(trace, event.uid).by_kubelet:
        pod.note("container.exited", trace.now_ns, ((at.CONTAINER, event.container), *how))


def _killed(event: ContainerExited, *, ordered: bool) -> bool:
    """By our SIGKILL or by another's. A runtime may say it with a code, an adopted process says nothing."""
    if event.signal:
        return event.signal == "SIGKILL"
    return ordered and event.exit_code in KILLED_CODES


def _how_long(trace: Trace, span: Open) -> str:
    signal = span.attributes.get(at.SIGNAL, "it was sent")
    return f"ended by SIGKILL, {seconds(trace.now_ns - span.start_ns)} after {signal}"

"""Waves, pods and containers: their begins, their outcomes, and missed deadlines.

Below a pod: its hooks, the time from the stop signal to the exit, and SIGKILL. An order's span has the
order's key, so that its executor can name the span beforehand (`otel.span.span_id_of`).
"""

from __future__ import annotations

from ebbtide.events import decisions as d
from ebbtide.events.base import NS_PER_SECOND, parse_order_key
from ebbtide.events.facts import AutopsyTaken, ContainerExited, OrderEnded
from ebbtide.events.values import ProcessReport, workload_name
from ebbtide.otel import attributes as at
from ebbtide.otel.span import HOOK_ROLE, KILL_ROLE, STOP_ROLE, Attributes, AttributeValue
from ebbtide.otel.traces.trace import (
    SUBJECTS_FROM_VERSION,
    OpenSpan,
    PodFacts,
    Trace,
    counted,
    milliseconds,
    seconds_text,
)

#: Names in one attribute; the rest is counted.
NAMES_MAX = 64

#: Termination modes in which the kubelet ends a pod.
BY_KUBELET = ("api", "observe")

#: Outcomes of a pod that are always errors.
POD_ERRORS: dict[str, at.Error] = {"killed": "killed", "failed": "survived-sigkill"}


# --- waves -------------------------------------------------------------------------------------


def wave_started(trace: Trace, event: d.WaveStarted) -> None:
    wave = trace.begin(
        "wave",
        str(event.wave),
        trace.root.span_id,
        (
            (at.WAVE, event.wave),
            (at.PRIORITY, event.priority),
            (at.PERIOD, milliseconds(event.period_ns)),
            (at.WAVE_PODS, len(event.pods)),
        ),
    )
    wave.subject = str(event.wave)
    trace.waves[event.wave] = wave.span_id
    trace.open_waves[event.wave] = wave
    trace.last_wave = event.wave


def wave_ended(trace: Trace, event: d.WaveEnded) -> None:
    wave = trace.open_waves.pop(event.wave, None)
    if wave is None:
        return
    names = tuple(facts_of(trace, uid).label for uid in event.stragglers)
    attributes: Attributes = ((at.WAVE_OUTCOME, event.outcome), (at.UNUSED, milliseconds(event.unused_ns)))
    if names:
        attributes = (*attributes, (at.STRAGGLERS, names[:NAMES_MAX]))
    if event.mounted:
        mounted = tuple(facts_of(trace, uid).label for uid in event.mounted[:NAMES_MAX])
        attributes = (*attributes, (at.WAVE_MOUNTED, mounted))
    # A wave of 0 s is signalled without a wait: it misses no deadline.
    had_time = wave.attributes[at.PERIOD] != 0
    if event.outcome != "overran" or not had_time or trace.asked_to_stop:
        trace.end(wave, attributes)
        return
    # Three by name: a back end shows this line in its list. The attributes have all.
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    missed_by = f"{counted(len(names), 'pod')}: {shown}" if names else "nobody"
    if event.mounted and not names:
        missed_by = f"the volumes of {counted(len(event.mounted), 'pod')}"
    trace.fail(wave, "deadline-missed", f"deadline missed by {missed_by}", attributes)


def wave_failed(trace: Trace, subject: str) -> None:
    """Its actor has failed, so no event will report its end."""
    wave = trace.open_waves.pop(int(subject), None) if subject.isdecimal() else None
    if wave is not None:
        trace.end(wave, ((at.WAVE_OUTCOME, "failed"),))


# --- pods --------------------------------------------------------------------------------------


def pod_planned(trace: Trace, event: d.PodPlanned) -> None:
    pod = event.pod
    plan: list[tuple[str, AttributeValue]] = []
    if pod.priority is not None:
        plan.append((at.POD_PRIORITY, pod.priority))
    if pod.grace_seconds is not None:
        plan.append((at.ASKED, milliseconds(pod.grace_seconds * NS_PER_SECOND)))
    if event.late:
        plan.append((at.LATE, True))
    if event.means:
        plan.append((at.POD_TERMINATION_MODE, event.means))
    trace.pods[pod.uid] = PodFacts(
        pod.label,
        ((at.NAMESPACE, pod.namespace), (at.POD_NAME, pod.name), (at.POD_UID, pod.uid)),
        tuple(plan),
        by_kubelet=event.means in BY_KUBELET,
        workload=f"{pod.namespace}/{workload_name(pod.name, trace.node)}",
    )


def facts_of(trace: Trace, uid: str) -> PodFacts:
    """A pod without a plan has only its UID."""
    return trace.pods.get(uid) or PodFacts(uid, ((at.POD_UID, uid),), ())


def pod_stop_began(trace: Trace, event: d.PodStopBegan) -> None:
    # The fallback may repeat it in the same step, with a truer grace. The first record counts: it gave the
    # span its id and its parent, which another program may have already.
    if event.uid in trace.open_pods:
        return
    facts = facts_of(trace, event.uid)
    given: Attributes = ((at.WAVE, event.wave), (at.GRACE, milliseconds(event.grace_ns)))
    pod = trace.begin("pod", event.uid, trace.wave_id(event.wave), (*facts.names, *given, *facts.plan))
    pod.subject = facts.workload
    trace.open_pods[event.uid] = pod
    for former in trace.carried.pop(event.uid, ()):
        # The cancelled shutdown began this hook or stop, and this one waits for it.
        role, container = former.place
        again = trace.begin(role, former.key, pod.span_id, (*former.attributes, (at.CONTINUED, True)))
        again.links.append(former.link)
        again.subject = facts.workload
        pod.children[(role, container)] = again


def pod_ended(trace: Trace, event: d.PodEnded) -> None:
    trace.outcomes[event.uid] = event.outcome
    pod = trace.open_pods.pop(event.uid, None)
    fate: Attributes = ((at.POD_OUTCOME, event.outcome), (at.REASON, event.reason))
    if pod is None:
        # Spared by a cancel, found too late, or its wave never came. A power cut needs no span.
        if not trace.gone:
            facts = facts_of(trace, event.uid)
            attributes = (*facts.names, (at.WAVE, event.wave), *facts.plan)
            pod = trace.begin("pod", event.uid, trace.wave_id(event.wave), attributes)
            pod.subject = facts.workload
            error = _pod_error(trace, event) if event.uid in trace.pods else None
            _end_pod(trace, pod, error, _why(trace, event), fate)
        return
    if trace.gone:
        fate = (*fate, (at.CUT, True))
    # Open children of an ended pod end with it, unseen: a span outlives no parent.
    for child in pod.children.values():
        if event.outcome == "failed" and child.name in (STOP_ROLE, KILL_ROLE):
            trace.fail(child, "survived-sigkill", event.reason, ((at.CUT, True),))
        else:
            trace.end(child, ((at.CUT, True),), trace.cut_ns)
    _end_pod(trace, pod, _pod_error(trace, event), _why(trace, event), fate)


def _end_pod(trace: Trace, pod: OpenSpan, error: at.Error | None, reason: str, fate: Attributes) -> None:
    if error is None:
        trace.end(pod, fate, trace.cut_ns)
    else:
        trace.fail(pod, error, reason, fate)


def _why(trace: Trace, event: d.PodEnded) -> str:
    """Its reason with the cause first: a refused request comes before the rest."""
    if trace.version < SUBJECTS_FROM_VERSION:
        return event.reason
    # Like `events.record.causes`, from what is known until here.
    stops, parts = trace.refusals.get(event.uid, {}), event.reason.split("; ")
    cause = ""
    if refused := [why for why in stops.values() if why]:
        cause = f"the runtime refused the stop signal ({refused[0]})"
        if len(stops) == 1:  # of several it also says which of them it was
            parts = [part for part in parts if " did not reach " not in part]
    elif not stops and (why := trace.undeleted.get(event.uid)):
        cause = f"the API server did not take the delete ({why})"
    return "; ".join(part for part in (cause, *parts) if part)


def _pod_error(trace: Trace, event: d.PodEnded) -> at.Error | None:
    # No missed deadline after a power cut, or when people gave up the wait.
    if event.outcome == "unknown" and not trace.gone and not trace.asked_to_stop:
        return "deadline-missed"
    return POD_ERRORS.get(event.outcome)


def pod_rejected(trace: Trace, event: d.PodRejected) -> None:
    namespace, _, name = event.label.partition("/")
    trace.outcomes.setdefault(event.uid, "rejected")
    trace.point(
        "reject",
        event.uid,
        trace.root.span_id,
        ((at.NAMESPACE, namespace), (at.POD_NAME, name), (at.POD_UID, event.uid), (at.REASON, event.reason)),
        f"{namespace}/{workload_name(name, trace.node)}",
    )


# --- containers -----------------------------------------------------------------------------------

#: Results of a failed hook, or of a missed deadline.
HOOK_ERRORS: dict[str, at.Error] = {"failed": "hook-failed", "timed-out": "hook-timed-out"}

#: A runtime's exit codes after SIGKILL: 128 + 9, or none.
KILLED_CODES = (None, 137)


def _open_children(trace: Trace, uid: str) -> dict[tuple[str, str], OpenSpan]:
    pod = trace.open_pods.get(uid)
    return {} if pod is None else pod.children


def begin_below_pod(trace: Trace, role: str, uid: str, container: str, key: str) -> OpenSpan | None:
    """Below its pod. The second of its kind for a container is a retry of the first, which ends without an
    outcome.

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
    span.subject = pod.subject
    return span


# --- hooks -------------------------------------------------------------------------------------


def hook_started(trace: Trace, event: d.HookStarted) -> None:
    """The order, if there is one, follows at once and gives the span its key."""
    limit_ns = max(0, event.until_ns - trace.raw.mono_ns)
    trace.hook = ((at.HOOK_KIND, event.kind), (at.HOOK_UNTIL, milliseconds(limit_ns)))
    if event.kind not in ("exec", "httpGet"):
        _begin_hook(trace, event.uid, event.container, f"{event.uid}/{event.container}")


def hook_ordered(trace: Trace, event: d.RunHook) -> None:
    _begin_hook(trace, event.uid, event.container, event.key)


def _begin_hook(trace: Trace, uid: str, container: str, key: str) -> None:
    span = begin_below_pod(trace, HOOK_ROLE, uid, container, key)
    if span is not None:
        span.attributes.update(trace.hook)


def container_outcome(trace: Trace, event: OrderEnded) -> None:
    """The order's outcome has a hook's exit code, and comes before the actor's own event. It alone shows
    whether a stop signal was sent.
    """
    if event.result == "done":
        trace.unmet.pop(event.key, None)
    if event.exit_code is not None:
        trace.exit_codes[event.key] = event.exit_code
    key = parse_order_key(event.key)
    if key.what == STOP_ROLE and event.result in ("done", "failed") and key.subject in trace.open_pods:
        why = (event.reason or "no reason given") if event.result == "failed" else ""
        trace.refusals.setdefault(key.subject, {})[key.part] = why


def hook_ended(trace: Trace, event: d.HookEnded) -> None:
    role = (HOOK_ROLE, event.container)
    span = _open_children(trace, event.uid).pop(role, None)
    attributes: Attributes = ((at.HOOK_RESULT, event.result),)
    if span is None:
        # It never ran: switched off, or no grace was left for it.
        span = begin_below_pod(trace, HOOK_ROLE, event.uid, event.container, f"{event.uid}/{event.container}")
        if span is None:
            return
        _open_children(trace, event.uid).pop(role, None)
    elif (code := trace.exit_codes.pop(span.key, None)) is not None:
        attributes = (*attributes, (at.EXIT_CODE, code))
    if event.early:
        attributes = (*attributes, (at.HOOK_EARLY, True))
    if event.reason:
        attributes = (*attributes, (at.REASON, event.reason))
    error = HOOK_ERRORS.get(event.result)
    if error is None:
        trace.end(span, attributes)
    else:
        trace.fail(span, error, f"preStop {event.result}: {event.reason}", attributes)


# --- stop and SIGKILL --------------------------------------------------------------------------


def stop_ordered(trace: Trace, event: d.SendSignal) -> None:
    span = begin_below_pod(trace, STOP_ROLE, event.uid, event.container, event.key)
    if span is not None:
        span.attributes[at.SIGNAL] = event.signal
        trace.refusals.setdefault(event.uid, {}).setdefault(event.container, "")


def kill_ordered(trace: Trace, event: d.KillContainer) -> None:
    span = begin_below_pod(trace, KILL_ROLE, event.uid, event.container, event.key)
    if span is None:
        return
    trace.unmet[event.key] = None
    stop = _open_children(trace, event.uid).get((STOP_ROLE, event.container))
    # Below the stop that it ends: the stop's time before it was a wait without effect.
    if stop is not None:
        span.parent_id = stop.span_id
    span.attributes.update(trace.findings.pop((event.uid, event.container), ()))


def autopsy_taken(trace: Trace, event: AutopsyTaken) -> None:
    stop = _open_children(trace, event.uid).get((STOP_ROLE, event.container))
    if stop is None:
        return
    # Only the kernel's data of each process. Its last lines stay in the journal: they may be private, and
    # other people may run the back end.
    for process in event.processes:
        what: Attributes = (
            (at.PID, process.pid),
            (at.PARENT_PID, process.parent_pid),
            (at.COMMAND, process.command),
            *_process_state(process),
            (at.CAUGHT, process.signals_caught),
            (at.CONNECTIONS, process.connections),
        )
        stop.note("autopsy", trace.now_ns, what)
    # The stop signal goes to the container's first process: its state explains the kill.
    for process in event.processes[:1]:
        trace.findings[(event.uid, event.container)] = _process_state(process)


def _process_state(process: ProcessReport) -> Attributes:
    found: Attributes = ((at.STATE, process.state),)
    if process.wait_channel:
        found = (*found, (at.WAITING_IN, process.wait_channel))
    if process.signals_ignored:
        found = (*found, (at.IGNORED, process.signals_ignored))
    return found


def container_exited(trace: Trace, event: ContainerExited) -> None:
    children = _open_children(trace, event.uid)
    how: Attributes = ()
    if event.exit_code is not None:
        how = (*how, (at.EXIT_CODE, event.exit_code))
    if event.signal:
        how = (*how, (at.EXIT_SIGNAL, event.signal))
    kill = children.pop((KILL_ROLE, event.container), None)
    stop = children.pop((STOP_ROLE, event.container), None)
    pod = trace.open_pods.get(event.uid)
    if kill is None and stop is None and pod is not None and facts_of(trace, event.uid).by_kubelet:
        # A container without our signal has no span: its end is an event of its pod.
        pod.note("container.exited", trace.now_ns, ((at.CONTAINER, event.container), *how))
    # By our SIGKILL or by another's. A runtime may report a code; an adopted process has none.
    met = kill is not None and not (event.gone and kill.key in trace.unmet)
    ordered = met and event.exit_code in KILLED_CODES
    killed = event.signal == "SIGKILL" if event.signal else ordered
    for span in (kill, stop):
        if span is not None and killed:
            signal = span.attributes.get(at.SIGNAL, "it was sent")
            took = seconds_text(trace.now_ns - span.start_ns)
            trace.fail(span, "killed", f"ended by SIGKILL, {took} after {signal}", how)
        elif span is not None:
            trace.end(span, how)

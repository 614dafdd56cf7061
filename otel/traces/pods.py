"""Waves and pods: when each began, what became of it, and whether a deadline was missed."""

from __future__ import annotations

from events.decisions import PodEnded, PodPlanned, PodRejected, PodStopBegan, WaveEnded, WaveStarted
from otel import attributes as at
from otel.ids import KILL, STOP
from otel.span import Attributes, Value
from otel.traces.spans import Open
from otel.traces.trace import Carried, PodFacts, Trace, counted, milliseconds

#: Names in one attribute; the rest is counted.
NAMES_MAX = 64

MS_PER_SECOND = 1000

#: Means by which the kubelet ends a pod.
BY_KUBELET = ("api", "observe")

#: Outcomes of a pod that are errors whatever led to them.
ERRORS: dict[str, at.Error] = {"killed": "killed", "failed": "survived-sigkill"}


# --- waves -------------------------------------------------------------------------------------


def wave_started(trace: Trace, event: WaveStarted) -> None:
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
    trace.waves[event.wave] = wave.span_id
    trace.open_waves[event.wave] = wave
    trace.last_wave = event.wave


def wave_ended(trace: Trace, event: WaveEnded) -> None:
    """A wave of 0 s is signalled and not waited for: it misses nothing."""
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
    had_time = wave.attributes[at.PERIOD] != 0
    if event.outcome == "overran" and had_time and not trace.asked_to_stop:
        trace.fail(
            wave, "deadline-missed", f"deadline missed by {_count(names, len(event.mounted))}", attributes
        )
    else:
        trace.end(wave, attributes)


def wave_failed(trace: Trace, subject: str) -> None:
    """Its actor has failed: nobody will say how it ended."""
    wave = trace.open_waves.pop(int(subject), None) if subject.isdecimal() else None
    if wave is not None:
        trace.end(wave, ((at.WAVE_OUTCOME, "failed"),))


def _count(names: tuple[str, ...], mounted: int) -> str:
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    if names or not mounted:
        return f"{counted(len(names), 'pod')}: {shown}" if names else "nobody"
    return f"the volumes of {counted(mounted, 'pod')}"


# --- pods --------------------------------------------------------------------------------------


def pod_planned(trace: Trace, event: PodPlanned) -> None:
    pod = event.pod
    plan: list[tuple[str, Value]] = []
    if pod.priority is not None:
        plan.append((at.POD_PRIORITY, pod.priority))
    if pod.grace_seconds is not None:
        plan.append((at.ASKED, pod.grace_seconds * MS_PER_SECOND))
    if event.late:
        plan.append((at.LATE, True))
    if event.means:
        plan.append((at.POD_MEANS, event.means))
    trace.pods[pod.uid] = PodFacts(
        pod.label,
        ((at.NAMESPACE, pod.namespace), (at.POD_NAME, pod.name), (at.POD_UID, pod.uid)),
        tuple(plan),
        by_kubelet=event.means in BY_KUBELET,
    )


def facts_of(trace: Trace, uid: str) -> PodFacts:
    """A pod that was never planned has nothing but its UID."""
    return trace.pods.get(uid) or PodFacts(uid, ((at.POD_UID, uid),), ())


def stop_began(trace: Trace, event: PodStopBegan) -> None:
    """The fallback may say it once more in the same step, with a truer grace: the first word stands."""
    if event.uid in trace.open_pods:
        return
    facts = facts_of(trace, event.uid)
    given: Attributes = ((at.WAVE, event.wave), (at.GRACE, milliseconds(event.grace_ns)))
    pod = trace.begin("pod", event.uid, trace.wave_id(event.wave), (*facts.names, *given, *facts.plan))
    trace.open_pods[event.uid] = pod
    for former in trace.carried.pop(event.uid, ()):
        _continue(trace, pod, former)


def _continue(trace: Trace, pod: Open, former: Carried) -> None:
    """A hook or stop that the cancelled shutdown before began, and this one waits for."""
    role, container = former.place
    again = trace.begin(role, former.key, pod.span_id, (*former.attributes, (at.CONTINUED, True)))
    again.links.append(former.link)
    pod.children[(role, container)] = again


def pod_ended(trace: Trace, event: PodEnded) -> None:
    """What still runs of a pod that has its last word ends with it, unseen."""
    trace.outcomes[event.uid] = event.outcome
    pod = trace.open_pods.pop(event.uid, None)
    fate: Attributes = ((at.POD_OUTCOME, event.outcome), (at.REASON, event.reason))
    if pod is None:
        _never_begun(trace, event, fate)
        return
    if trace.gone:
        fate = (*fate, (at.CUT, True))
    _end_children(trace, pod, event)
    _end_pod(trace, pod, _error(trace, event), event.reason, fate)


def _end_pod(trace: Trace, pod: Open, error: at.Error | None, reason: str, fate: Attributes) -> None:
    if error is None:
        trace.end(pod, fate, trace.cut_ns)
    else:
        trace.fail(pod, error, reason, fate)


def _end_children(trace: Trace, pod: Open, event: PodEnded) -> None:
    for child in pod.children.values():
        if event.outcome == "failed" and child.name in (STOP, KILL):
            trace.fail(child, "survived-sigkill", event.reason, ((at.CUT, True),))
        else:
            trace.end(child, ((at.CUT, True),), trace.cut_ns)


def _error(trace: Trace, event: PodEnded) -> at.Error | None:
    """Killed, or there when the budget was over. What a power cut took, or people let go, missed nothing."""
    if event.outcome == "unknown" and not trace.gone and not trace.asked_to_stop:
        return "deadline-missed"
    return ERRORS.get(event.outcome)


def _never_begun(trace: Trace, event: PodEnded, fate: Attributes) -> None:
    """Spared by a cancel, found too late, or its wave never came. Of a power cut there is nothing to say."""
    if trace.gone:
        return
    facts = facts_of(trace, event.uid)
    attributes = (*facts.names, (at.WAVE, event.wave), *facts.plan)
    pod = trace.begin("pod", event.uid, trace.wave_id(event.wave), attributes)
    error = _error(trace, event) if event.uid in trace.pods else None
    _end_pod(trace, pod, error, event.reason, fate)


def rejected(trace: Trace, event: PodRejected) -> None:
    namespace, _, name = event.label.partition("/")
    trace.outcomes.setdefault(event.uid, "rejected")
    trace.point(
        "reject",
        event.uid,
        trace.root.span_id,
        ((at.NAMESPACE, namespace), (at.POD_NAME, name), (at.POD_UID, event.uid), (at.REASON, event.reason)),
    )

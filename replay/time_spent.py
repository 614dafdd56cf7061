"""Where the time of a shutdown or an outage went, like ``systemd-analyze``'s blame and critical-chain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Literal

import msgspec

from ebbtide.events.base import FrozenStruct
from ebbtide.events.record import shutdown_record
from ebbtide.events.record.outage_record import AttachmentRecord, OutageRecord, Phase, PhaseKind, Subject

# --- blame

# ``took``: a hook from its start to its result, a stop from the signal's order to the observed exit.
# ``alone``: its wave, or after the last wave the release, waited only for this: the time saved if it had
# ended together with the next slowest.

#: ``[begin, end)`` in nanoseconds since the signal.
Interval = tuple[int, int]


class Cost(FrozenStruct):
    """One part of a pod's stop (`shutdown_record.StopPart`). ``wave`` None: not in the plan."""

    wave: int | None
    pod: str
    uid: str
    outcome: shutdown_record.Fate | None
    container: str
    what: shutdown_record.StopPartKind
    text: str
    began_ns: int
    ended_ns: int
    seen: bool
    alone_ns: int

    @property
    def took_ns(self) -> int:
        return self.ended_ns - self.began_ns


def blame(shutdown: shutdown_record.ShutdownRecord, *, wave: int | None = None) -> list[Cost]:
    """The longest first; ties in the order of the inventory."""
    alone = _alone(shutdown)
    costs = [
        Cost(
            wave=pod.wave if pod.wave >= 0 else None,
            pod=pod.label,
            uid=pod.uid,
            outcome="goes-on" if pod.goes_on else pod.outcome,
            alone_ns=alone_ns,
            **part._asdict(),
        )
        for pod in shutdown.pods
        if wave is None or pod.wave == wave
        for part, alone_ns in _shares(list(shutdown_record.stop_parts(pod, shutdown)), alone.get(pod.uid, ()))
    ]
    return sorted(costs, key=lambda cost: (-cost.took_ns, -cost.alone_ns))


def _alone(shutdown: shutdown_record.ShutdownRecord) -> dict[str, list[Interval]]:
    """When each pod was the only one left, in its wave and after the last wave."""
    begun = [wave for wave in shutdown.waves if wave.began_ns is not None]
    stopped = [pod for pod in shutdown.pods if pod.began_ns is not None]
    # A wave waits for its own pods, the release for the rest.
    waits = []
    for wave in begun:
        uids = dict.fromkeys(wave.pods)  # there may be a thousand
        members = [pod for pod in stopped if pod.uid in uids]
        waits.append((members, wave.began_ns or 0, shutdown_record.wave_end_ns(wave, shutdown)))
    last_ns = max((shutdown_record.wave_end_ns(wave, shutdown) for wave in begun), default=0)
    drained_ns = shutdown.last_ns if shutdown.pods_ended_ns is None else shutdown.pods_ended_ns
    if last_ns < drained_ns:
        waits.append((stopped, last_ns, drained_ns))
    found: dict[str, list[Interval]] = {}
    for pods, began_ns, ended_ns in waits:
        ends = {pod.uid: min(shutdown_record.pod_end_ns(pod, shutdown), ended_ns) for pod in pods}
        last = max(ends, key=lambda each: ends[each], default="")
        # It was alone after the one before it ended. If two outlasted the wait, neither was.
        others_ns = max((end for uid, end in ends.items() if uid != last), default=began_ns)
        begin_ns = max(began_ns, others_ns)
        if last and begin_ns < ends[last]:
            found.setdefault(last, []).append((begin_ns, ends[last]))
    return found


def _shares(
    parts: Sequence[shutdown_record.StopPart], alone: Sequence[Interval]
) -> Iterator[tuple[shutdown_record.StopPart, int]]:
    """A moment counts for a part if no other part of the pod runs in it."""
    shares = [0] * len(parts)
    # Between two edges the same parts run.
    edges = sorted({edge: None for part in parts for edge in (part.began_ns, part.ended_ns)})
    for begin_ns, end_ns in pairwise(edges):
        running = [at for at, part in enumerate(parts) if part.began_ns <= begin_ns < part.ended_ns]
        if len(running) == 1:
            shares[running[0]] += sum(
                max(0, min(end_ns, last_ns) - max(begin_ns, first_ns)) for first_ns, last_ns in alone
            )
    return zip(parts, shares, strict=True)


class Waited(FrozenStruct):
    """A pod or a volume, and one wait. ``seen``: to its end."""

    what: Literal["pod", "volume"]
    name: str
    outcome: str
    text: str
    began_ns: int
    ended_ns: int
    seen: bool

    @property
    def took_ns(self) -> int:
        return self.ended_ns - self.began_ns


def subject_kind(subject: Subject) -> Literal["pod", "volume"]:
    return "volume" if isinstance(subject, AttachmentRecord) else "pod"


def waited(outage: OutageRecord) -> list[Waited]:
    """The longest first; ties in the order of the record."""
    found = [each for subject in outage.subjects for each in waits_of(outage, subject)]
    return sorted(found, key=lambda each: -each.took_ns)


def waits_of(outage: OutageRecord, subject: Subject) -> Iterator[Waited]:
    """In the order of time, without a gap; a wait that is over took time."""
    end_ns = outage.end_ns if subject.ended_ns is None else subject.ended_ns
    begins = [each.at_ns for each in subject.waits]
    for wait, (began_ns, until_ns) in zip(subject.waits, pairwise([*begins, end_ns]), strict=True):
        over = subject.ended_ns is not None or wait is not subject.waits[-1]
        if until_ns > began_ns or not over:
            yield Waited(
                what=subject_kind(subject),
                name=subject.label,
                outcome=subject.outcome,
                text=wait.reason,
                began_ns=began_ns,
                ended_ns=max(began_ns, until_ns),
                seen=over,
            )


# --- the critical chain

# Segments follow each other without a gap from the signal to the release's order. A wave contains the pod
# that ended last. A pod contains the parts that led to its end, from its exit back to the hook, or to the
# other container's exit, that it waited for.

SegmentKind = (
    PhaseKind
    | Literal[
        "inventory",
        "wave",
        "gap",
        "stragglers",
        "finishing",
        "statuses",
        "traces",
        "release",
        "unended",
        "pod",
        "hook",
        "stop",
        "killed",
        "several",
        "waiting",
        # An outage's, beside its phases.
        "volume",
    ]
)

#: Pods that are named if no single one was the last.
NAMES_MAX = 3


class Segment(msgspec.Struct, frozen=True, omit_defaults=True):
    """Times count from the signal. ``within`` fills it without a gap, or is empty."""

    what: SegmentKind
    began_ns: int
    ended_ns: int
    text: str
    wave: int = -1
    uid: str = ""
    within: tuple[Segment, ...] = ()

    @property
    def took_ns(self) -> int:
        return self.ended_ns - self.began_ns

    def leaves(self) -> Iterator[Segment]:
        if not self.within:
            yield self
        for each in self.within:
            yield from each.leaves()


class Away(msgspec.Struct, frozen=True):
    """No daemon ran, at most from one's last record to the next one's start."""

    began_ns: int
    ended_ns: int


class Chain(msgspec.Struct, frozen=True):
    """``segments`` in order; the first begins at 0, the last ends at ``total_ns``.

    ``released_ns``: the lock's release after that, if the process lived to record it.
    """

    total_ns: int
    segments: tuple[Segment, ...]
    daemon_away: tuple[Away, ...] = ()
    released_ns: int | None = None


def critical_chain(shutdown: shutdown_record.ShutdownRecord) -> Chain:
    """From the signal to the order of the lock's release, or to the end of a cancel, or of the record."""
    segments: list[Segment] = []
    at_ns = 0
    for segment in _stages(shutdown):
        if segment.began_ns > at_ns:
            segments.append(Segment("gap", at_ns, segment.began_ns, "between two waves"))
            at_ns = segment.began_ns
        if segment.ended_ns > at_ns:
            segments.append(segment)
            at_ns = segment.ended_ns
    away = tuple(
        Away(process.quiet_since_ns, process.at_ns)
        for process in shutdown.processes
        if process.at_ns is not None and process.quiet_since_ns is not None
    )
    # The chain ends with the order: a process seldom lives to record its outcome.
    released_ns = None
    for each in shutdown.beside:
        if each.what == "release" and each.result == "done" and each.began_ns == shutdown.ended_ns:
            released_ns = each.ended_ns if each.ended_ns is not None else released_ns
    return Chain(segments[-1].ended_ns if segments else 0, tuple(segments), away, released_ns)


def _stages(shutdown: shutdown_record.ShutdownRecord) -> Iterator[Segment]:
    """Each begins where the one before ends, or later."""
    begun = [wave for wave in shutdown.waves if wave.began_ns is not None]
    stops = [pod.began_ns for pod in shutdown.pods if pod.began_ns is not None]
    ends = (shutdown.cancelled_ns, shutdown.pods_ended_ns, shutdown.ended_ns)
    firsts = [*([begun[0].began_ns] if begun else []), *([min(stops)] if stops else []), *ends]
    at_ns = next((first_ns for first_ns in firsts if first_ns is not None), shutdown.last_ns)
    yield Segment("inventory", 0, at_ns, "pods listed and planned" if stops else "no pod was stopped")
    for wave in begun:
        began_ns, ended_ns = wave.began_ns or 0, shutdown_record.wave_end_ns(wave, shutdown)
        uids = dict.fromkeys(wave.pods)
        members = [pod for pod in shutdown.pods if pod.uid in uids]
        text = f"wave {wave.index}, priority {wave.priority}: {wave.outcome}"
        text += f", {len(wave.stragglers)} still running" if wave.stragglers else ""
        text += f", volumes of {len(wave.mounted)} still mounted" if wave.mounted else ""
        within = _held(members, shutdown, began_ns, ended_ns, volumes=any(pod.volumes for pod in members))
        yield Segment("wave", began_ns, ended_ns, text, wave.index, within=within)
        at_ns = max(at_ns, ended_ns)
    if shutdown.cancelled_ns is None:
        yield from _after_the_waves(shutdown, at_ns)
        return
    # After a cancel stops go on: a stop signal cannot be taken back.
    cancelled_ns = max(at_ns, shutdown.cancelled_ns)
    yield Segment("gap", at_ns, cancelled_ns, "until it was withdrawn")
    ended_ns = shutdown.last_ns if shutdown.ended_ns is None else shutdown.ended_ns
    within = _held(shutdown.pods, shutdown, cancelled_ns, ended_ns)
    yield Segment("finishing", cancelled_ns, ended_ns, f"withdrawn ({shutdown.cancel_reason})", within=within)


def _after_the_waves(shutdown: shutdown_record.ShutdownRecord, at_ns: int) -> Iterator[Segment]:
    if shutdown.pods_ended_ns is not None:
        within = _held(shutdown.pods, shutdown, at_ns, shutdown.pods_ended_ns)
        text = "stragglers, after the last wave" if shutdown.last_wave >= 0 else "pods, without a wave"
        yield Segment("stragglers", at_ns, shutdown.pods_ended_ns, text, within=within)
        at_ns = max(at_ns, shutdown.pods_ended_ns)
    # The release waits for statuses and trace, which go out at the same time; "settled" is both.
    settled_ns = delivered_ns = shutdown.statuses_settled_ns
    traced = any(order.what == "traces" for order in shutdown.beside)
    if settled_ns is not None and traced and not shutdown.undelivered:
        ends = (order.ended_ns for order in shutdown.beside if order.what in ("statuses", "await"))
        in_time = (end_ns for end_ns in ends if end_ns is not None and end_ns <= settled_ns)
        delivered_ns = max(in_time, default=shutdown.pods_ended_ns)
    text = f"pod statuses, {shutdown.undelivered} not delivered" if shutdown.undelivered else ""
    text = "the kubelet's final statuses" if shutdown.by.means == "observe" else text
    stages: list[tuple[SegmentKind, int | None, str]] = [
        ("statuses", delivered_ns, text or "pod statuses delivered"),
        ("traces", settled_ns, "trace sent"),
        ("release", shutdown.ended_ns, "release decided"),
    ]
    for what, until_ns, text in stages:
        if until_ns is not None:
            yield Segment(what, at_ns, until_ns, text)
            at_ns = max(at_ns, until_ns)
    if shutdown.ended_ns is None:
        yield Segment(
            "unended", at_ns, shutdown.last_ns, "the record ends; the machine went down then or later"
        )


def _held(
    pods: Sequence[shutdown_record.PodRecord],
    shutdown: shutdown_record.ShutdownRecord,
    began_ns: int,
    ended_ns: int,
    *,
    volumes: bool = False,
) -> tuple[Segment, ...]:
    """The last pod to end, with its parts; empty without a stop."""
    ends = {
        pod.uid: min(shutdown_record.pod_end_ns(pod, shutdown), ended_ns)
        for pod in pods
        if pod.began_ns is not None and pod.began_ns < ended_ns
    }
    last = max(ends, key=lambda uid: ends[uid], default=None)
    if last is None or ends[last] <= began_ns:
        return ()
    # If several had not ended when the time was over, none is the last.
    going_on = [
        pod
        for pod in pods
        if ends.get(pod.uid) == ends[last] and (pod.ended_ns is None or pod.ended_ns > ended_ns)
    ]
    if len(going_on) > 1:
        names = [each.label for each in going_on[:NAMES_MAX]]
        names += [f"{len(going_on) - NAMES_MAX} more"] if len(going_on) > NAMES_MAX else []
        text = f"{len(going_on)} pods had not ended: {', '.join(names)}"
        return (Segment("several", began_ns, ended_ns, text),)
    pod = going_on[0] if going_on else next(pod for pod in pods if pod.uid == last)
    last = pod.uid
    first_ns = min(max(began_ns, pod.began_ns or 0), ends[last])
    segments_to_end = tuple(
        _pod_segments(list(shutdown_record.stop_parts(pod, shutdown)), first_ns, ends[last])
    )[::-1]
    text = f"{pod.label}: {pod.fate}"
    held = Segment("pod", first_ns, ends[last], text, pod.wave, pod.uid, segments_to_end)
    before = Segment("waiting", began_ns, first_ns, "no pod was stopping")
    why = ", volumes were waited for" if volumes else ""
    after = Segment("waiting", ends[last], ended_ns, f"every pod had ended{why}")
    return tuple(segment for segment in (before, held, after) if segment.took_ns)


def _pod_segments(parts: Sequence[shutdown_record.StopPart], began_ns: int, at_ns: int) -> Iterator[Segment]:
    """From the end back to the begin."""
    container = ""
    while at_ns > began_ns:
        running = [part for part in parts if part.began_ns < at_ns <= part.ended_ns]
        if not running:
            ended = [part.ended_ns for part in parts if part.ended_ns < at_ns]
            first_ns = max(began_ns, max(ended, default=began_ns))
            yield Segment("waiting", first_ns, at_ns, "nothing on record")
        else:
            # A hook holds its container's signal, a main container a sidecar's. The same container's part
            # comes first, then the longest.
            part = min(
                running,
                key=lambda part: (part.ended_ns != at_ns, part.container != container, part.began_ns),
            )
            container, first_ns = part.container, max(began_ns, part.began_ns)
            yield Segment(part.what, first_ns, at_ns, f"{part.container}: {part.text}")
        at_ns = first_ns


def recovery_chain(outage: OutageRecord) -> Chain:
    """From its first record to its end, or to the record's end. A phase that waits for pods and volumes
    contains the last one.
    """
    segments = []
    for phase in outage.course:
        ended_ns = outage.end_ns if phase.ended_ns is None else phase.ended_ns
        if ended_ns > phase.began_ns:
            within = _last_subject(outage, phase, ended_ns)
            segments.append(Segment(phase.what, phase.began_ns, ended_ns, phase.text, within=within))
    return Chain(segments[-1].ended_ns if segments else 0, tuple(segments))


#: These wait for pods and volumes.
_OF_SUBJECTS = ("recovering", "following")


def _last_subject(outage: OutageRecord, phase: Phase, ended_ns: int) -> tuple[Segment, ...]:
    """Of the subjects that were open in the phase, the last to end."""
    if phase.what not in _OF_SUBJECTS:
        return ()
    ends = [
        (min(ended_ns, ended_ns if each.ended_ns is None else each.ended_ns), each)
        for each in outage.subjects
        if each.began_ns < ended_ns and (each.ended_ns is None or each.ended_ns > phase.began_ns)
    ]
    if not ends:
        return ()
    last_ns, last = max(ends, key=itemgetter(0))
    parts = [
        Segment("waiting", max(each.began_ns, phase.began_ns), min(each.ended_ns, last_ns), each.text)
        for each in waits_of(outage, last)
        if each.ended_ns > phase.began_ns and each.began_ns < last_ns
    ]
    text = f"{subject_kind(last)} {last.label}: {last.outcome}"
    first_ns = parts[0].began_ns if parts else phase.began_ns
    held = Segment(subject_kind(last), first_ns, last_ns, text, within=tuple(parts))
    rest = [
        Segment("waiting", phase.began_ns, first_ns, "what hangs was not listed yet"),
        held,
        Segment("waiting", last_ns, ended_ns, "nothing on record"),
    ]
    return tuple(each for each in rest if each.took_ns)

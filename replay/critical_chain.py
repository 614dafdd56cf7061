"""What a shutdown's time is made of, in the manner of ``systemd-analyze critical-chain``.

Segments follow each other without a gap from the signal to the release's order (the end that ``journal ls``
counts to), so that they add up to the total, exactly. Inside a wave stands the one pod that ended last, and
inside that the parts of its way down that led to its end: from the exit back to what the container had
waited for, a hook or another container's exit. A restart of the daemon is no segment: pods go on ending
while none runs. It is told beside them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from ebbtide.events.record.model import PodRecord, ShutdownRecord, WaveRecord
from ebbtide.events.record.stops import StopPart, pod_end_ns, stop_parts, wave_end_ns

SegmentKind = Literal[
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
]

#: So many are named of the pods that none is known to be the last of.
NAMES_MAX = 3


class Segment(NamedTuple):
    """From ``began_ns`` to ``ended_ns`` since the signal. ``within`` fills it without a gap, or is empty."""

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
        """The smallest segments, in order."""
        if not self.within:
            yield self
        for each in self.within:
            yield from each.leaves()


class Away(NamedTuple):
    """No daemon ran for at most this long: since the last record of the one, until the start of the next."""

    began_ns: int
    ended_ns: int


class Chain(NamedTuple):
    """``segments`` in order; the first begins at 0, the last ends at ``total_ns``.

    ``released_ns``: when the lock was given back after that, where the process lived to say so.
    """

    total_ns: int
    segments: tuple[Segment, ...]
    away: tuple[Away, ...]
    released_ns: int | None = None


def critical_chain(shutdown: ShutdownRecord) -> Chain:
    """From the signal to the order of the lock's release, or to the end of a cancel, or of the record."""
    segments = tuple(_segments(shutdown))
    away = tuple(
        Away(process.quiet_since_ns, process.at_ns)
        for process in shutdown.processes
        if process.at_ns is not None and process.quiet_since_ns is not None
    )
    # When the lock was let go, where the process lived to say so.
    done = [
        each
        for each in shutdown.beside
        if each.what == "release"
        and (each.result == "done" and each.began_ns == shutdown.ended_ns and each.ended_ns is not None)
    ]
    released_ns = done[-1].ended_ns if done and shutdown.ended_ns is not None else None
    return Chain(segments[-1].ended_ns if segments else 0, segments, away, released_ns)


def _segments(shutdown: ShutdownRecord) -> Iterator[Segment]:
    at_ns = 0
    for segment in _consecutive_segments(shutdown):
        if segment.began_ns > at_ns:
            yield Segment("gap", at_ns, segment.began_ns, "between two waves")
            at_ns = segment.began_ns
        yield from _from(segment, at_ns)
        at_ns = max(at_ns, segment.ended_ns)


def _from(segment: Segment, at_ns: int) -> Iterator[Segment]:
    """What of it lies behind a moment. Only a record that was edited has anything before."""
    if segment.ended_ns <= at_ns:
        return
    within = tuple(part for each in segment.within for part in _from(each, at_ns))
    yield segment._replace(began_ns=max(at_ns, segment.began_ns), within=within)


def _consecutive_segments(shutdown: ShutdownRecord) -> Iterator[Segment]:
    """What happened one after another. Each begins where the one before ended, or later."""
    begun = [wave for wave in shutdown.waves if wave.began_ns is not None]
    stops = [pod.began_ns for pod in shutdown.pods if pod.began_ns is not None]
    ends = (shutdown.cancelled_ns, shutdown.pods_ended_ns, shutdown.ended_ns)
    firsts = [*([begun[0].began_ns] if begun else []), *([min(stops)] if stops else []), *ends]
    at_ns = next((first_ns for first_ns in firsts if first_ns is not None), shutdown.last_ns)
    yield Segment("inventory", 0, at_ns, "pods listed and planned" if stops else "no pod was stopped")
    for wave in begun:
        yield _wave(wave, shutdown)
        at_ns = max(at_ns, wave_end_ns(wave, shutdown))
    yield from _end(shutdown, at_ns) if shutdown.cancelled_ns is None else _withdrawn(shutdown, at_ns)


def _wave(wave: WaveRecord, shutdown: ShutdownRecord) -> Segment:
    began_ns, ended_ns = wave.began_ns or 0, wave_end_ns(wave, shutdown)
    members = [pod for pod in shutdown.pods if pod.uid in wave.pods]
    left = f", {len(wave.stragglers)} still running" if wave.stragglers else ""
    left += f", volumes of {len(wave.mounted)} still mounted" if wave.mounted else ""
    text = f"wave {wave.index}, priority {wave.priority}: {wave.outcome}{left}"
    within = _held(members, shutdown, began_ns, ended_ns, volumes=any(pod.volumes for pod in members))
    return Segment("wave", began_ns, ended_ns, text, wave.index, within=within)


def _end(shutdown: ShutdownRecord, at_ns: int) -> Iterator[Segment]:
    """After the last wave."""
    left = f"pod statuses, {shutdown.undelivered} not delivered" if shutdown.undelivered else ""
    left = "the kubelet's final statuses" if shutdown.by.means == "observe" else left
    stages: list[tuple[SegmentKind, int | None, str]] = [
        ("statuses", _delivered_ns(shutdown), left or "pod statuses delivered"),
        ("traces", shutdown.statuses_settled_ns, "trace sent"),
        ("release", shutdown.ended_ns, "release decided"),
    ]
    if shutdown.pods_ended_ns is not None:
        within = _held(shutdown.pods, shutdown, at_ns, shutdown.pods_ended_ns)
        text = "stragglers, after the last wave" if shutdown.last_wave >= 0 else "pods, without a wave"
        yield Segment("stragglers", at_ns, shutdown.pods_ended_ns, text, within=within)
        at_ns = max(at_ns, shutdown.pods_ended_ns)
    for what, until_ns, text in stages:
        if until_ns is not None:
            yield Segment(what, at_ns, until_ns, text)
            at_ns = max(at_ns, until_ns)
    if shutdown.ended_ns is None:
        yield Segment("unended", at_ns, shutdown.last_ns, "the record ends")


def _delivered_ns(shutdown: ShutdownRecord) -> int | None:
    """When the last status was; the release waits for the trace beside them, perhaps for longer."""
    if shutdown.statuses_settled_ns is None or all(span.what != "traces" for span in shutdown.beside):
        return shutdown.statuses_settled_ns
    statuses = [span.ended_ns for span in shutdown.beside if span.what in ("statuses", "await")]
    ends = [end_ns for end_ns in statuses if end_ns is not None and end_ns <= shutdown.statuses_settled_ns]
    return shutdown.statuses_settled_ns if shutdown.undelivered else max(ends, default=shutdown.pods_ended_ns)


def _withdrawn(shutdown: ShutdownRecord, at_ns: int) -> Iterator[Segment]:
    """Pods whose stop had begun are finished also after a cancel."""
    cancelled_ns = max(at_ns, shutdown.cancelled_ns or 0)
    yield Segment("gap", at_ns, cancelled_ns, "until it was withdrawn")
    at_ns = cancelled_ns
    ended_ns = shutdown.last_ns if shutdown.ended_ns is None else shutdown.ended_ns
    within = _held(shutdown.pods, shutdown, at_ns, ended_ns)
    yield Segment("finishing", at_ns, ended_ns, f"withdrawn ({shutdown.cancel_reason})", within=within)


# --- who held it -------------------------------------------------------------------------------


def _held(
    pods: Sequence[PodRecord], shutdown: ShutdownRecord, began_ns: int, ended_ns: int, *, volumes: bool = False
) -> tuple[Segment, ...]:
    """The pod that ended last, and its way there; nothing where no pod was on its way down.

    Of several that had not ended at its end, none is known to be the last.
    """
    ends = {
        pod.uid: min(pod_end_ns(pod, shutdown), ended_ns)
        for pod in pods
        if pod.began_ns is not None and pod.began_ns < ended_ns
    }
    last = max(ends, key=lambda uid: ends[uid], default=None)
    if last is None or ends[last] <= began_ns:
        return ()
    going_on = [
        pod
        for pod in pods
        if ends.get(pod.uid) == ends[last] and (pod.ended_ns is None or pod.ended_ns > ended_ns)
    ]
    if len(going_on) > 1:
        return (Segment("several", began_ns, ended_ns, _not_ended(going_on)),)
    pod = going_on[0] if going_on else next(pod for pod in pods if pod.uid == last)
    last = pod.uid
    first_ns = min(max(began_ns, pod.began_ns or 0), ends[last])
    segments_to_end = tuple(_pod_segments(list(stop_parts(pod, shutdown)), first_ns, ends[last]))[::-1]
    text = f"{pod.label}: {pod.outcome or 'unknown'}"
    held = Segment("pod", first_ns, ends[last], text, pod.wave, pod.uid, segments_to_end)
    before = Segment("waiting", began_ns, first_ns, "nobody was on the way down")
    why = ", volumes were waited for" if volumes else ""
    after = Segment("waiting", ends[last], ended_ns, f"every pod had ended{why}")
    return tuple(segment for segment in (before, held, after) if segment.took_ns)


def _not_ended(pods: Sequence[PodRecord]) -> str:
    names = [pod.label for pod in pods[:NAMES_MAX]]
    more = [f"{len(pods) - NAMES_MAX} more"] if len(pods) > NAMES_MAX else []
    return f"{len(pods)} pods had not ended: {', '.join(names + more)}"


def _pod_segments(found: Sequence[StopPart], began_ns: int, at_ns: int) -> Iterator[Segment]:
    """From the end back to the begin: what ended just then, by preference in the same container."""
    container = ""
    while at_ns > began_ns:
        part = _before(found, at_ns, container)
        if part is None:
            ended = [part.ended_ns for part in found if part.ended_ns < at_ns]
            first_ns = max(began_ns, max(ended, default=began_ns))
            yield Segment("waiting", first_ns, at_ns, "nothing on record")
        else:
            container, first_ns = part.container, max(began_ns, part.began_ns)
            yield Segment(part.what, first_ns, at_ns, f"{part.container}: {part.text}")
        at_ns = first_ns


def _before(found: Sequence[StopPart], at_ns: int, container: str) -> StopPart | None:
    running = [part for part in found if part.began_ns < at_ns <= part.ended_ns]
    return min(
        running,
        key=lambda part: (part.ended_ns != at_ns, part.container != container, part.began_ns),
        default=None,
    )

"""A shutdown or outage for Perfetto's viewer: one track an actor and one a pod, an arrow from each cause.

A pure function of the shutdown and its lines. Times are the monotonic clock's, so the viewer's zero is the
boot, and a snapshot of the clocks lets it show wall time. A pod without an end on record is a slice without
one. On a track slices follow one another and never overlap: where they could, each has a track of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Literal, NamedTuple

from ebbtide.events.record.model import (
    BY_KUBELET_TEXTS,
    OrderRecord,
    PodRecord,
    ShutdownRecord,
    stop_began_ns,
)
from ebbtide.events.record.outages import AttachmentRecord, EpisodeRecord, OutageRecord, Subject
from ebbtide.events.units import span
from ebbtide.replay.outages import subject_kind, waits_of
from ebbtide.replay.timeline import Line

Notes = tuple[tuple[str, str | int], ...]


class Slice(NamedTuple):
    """``end_ns`` None: it has no end on record."""

    begin_ns: int
    end_ns: int | None
    name: str
    category: str
    notes: Notes = ()


class Mark(NamedTuple):
    """Something without a length: one record, with the numbers of those that it led to."""

    at_ns: int
    name: str
    category: str
    notes: Notes = ()
    seq: int = 0
    cause: int = 0
    effects: tuple[int, ...] = ()


class Trace:
    """Tracks get their numbers in the order in which they are made; events are kept until all are there."""

    def __init__(self, shutdown: EpisodeRecord) -> None:
        self._shutdown = shutdown
        self._tracks: list[bytes] = []
        #: Each with its time.
        self._events: list[tuple[int, bytes]] = []

    def track(self, name: str, parent: int = 0) -> int:
        """Its number, which is also its place among its siblings."""
        uuid = len(self._tracks) + 1
        self._tracks.append(track_descriptor(uuid, name, parent, uuid))
        return uuid

    def put(self, uuid: int, slices: Iterable[Slice], marks: Iterable[Mark] = ()) -> None:
        """One track's events. With marks there is one slice at most, and they may stand on its edges."""
        # Of one moment the viewer takes the events in the order of the file: a mark on the slice's begin must
        # come behind it, and one on its end before that, or it stands beside the slice that it is of.
        left = [*marks]
        for each in slices:
            self._add(each.begin_ns, "begin", uuid, each)
            for mark in left:
                self._add(mark.at_ns, "instant", uuid, mark)
            left = []
            if each.end_ns is not None:
                self._add(each.end_ns, "end", uuid)
        for mark in left:
            self._add(mark.at_ns, "instant", uuid, mark)

    def _add(self, at_ns: int, kind: EventType, uuid: int, what: Slice | Mark | None = None) -> None:
        # From one boot to the next only the wall clock measures. One that was set back gives a time before
        # the boot, which the format has no number for.
        time_ns = max(0, self._shutdown.started_mono_ns + at_ns)
        made = track_event(
            time_ns,
            kind,
            uuid,
            what.name if what else "",
            category=what.category if what else "",
            notes=what.notes if what else (),
            leads_to=what.effects if isinstance(what, Mark) else (),
            comes_from=(what.seq,) if isinstance(what, Mark) and what.cause else (),
        )
        self._events.append((time_ns, made))

    def parts(self) -> Iterator[bytes]:
        """In the order of time; what comes at one moment stays in the order of its track."""
        yield clock_snapshot(self._shutdown.started_mono_ns, self._shutdown.started_wall_ns)
        yield from self._tracks
        # By the time alone: the sort is stable, and to compare the bytes might put an end before its begin.
        yield from (data for _, data in sorted(self._events, key=itemgetter(0)))


def perfetto(told: EpisodeRecord, lines: Iterable[Line]) -> Iterator[bytes]:
    """The pieces of a trace file. ``lines`` are all of the shutdown's, or of the outage's."""
    return _outage(told, lines) if isinstance(told, OutageRecord) else _shutdown(told, lines)


def _shutdown(shutdown: ShutdownRecord, lines: Iterable[Line]) -> Iterator[bytes]:
    trace, marks = Trace(shutdown), _marks(lines)
    root = trace.track(f"{shutdown.kind} of {shutdown.node} ({shutdown.id})")
    notes: Notes = (
        ("outcome", shutdown.outcome),
        ("trace id", shutdown.trace_id),
        ("grant", span(shutdown.grant_ns)),
        ("budget", span(shutdown.budget_ns)),
        ("version", shutdown.version),
    )
    trace.put(root, [Slice(0, shutdown.ended_ns, "shutdown", "shutdown", notes)])
    waves = trace.track("waves", root)
    for wave in shutdown.waves:
        track = trace.track(f"wave {wave.index}, priority {wave.priority}", waves)
        if wave.began_ns is not None:
            period_ns = wave.planned_ns if wave.period_ns is None else wave.period_ns
            title = f"wave {wave.index}: {wave.outcome}"
            wave_notes = (("outcome", wave.outcome), ("period", span(period_ns)), ("pods", len(wave.pods)))
            trace.put(track, [Slice(wave.began_ns, wave.ended_ns, title, "wave", wave_notes)])
    beside = trace.track("beside the waves", root)
    for name, spans in _order_tracks(shutdown.beside):
        trace.put(trace.track(name, beside), spans)
    # A pod's decisions stand on its own track, beside what they led to; so its actor has none further down.
    parent = trace.track("pods", root)
    for pod in shutdown.pods:
        _pod(trace, parent, pod, marks.pop(f"HookActor:{pod.uid}", []))
    actors = trace.track("actors", root)
    for actor, of in marks.items():
        trace.put(trace.track(actor, actors), [], of)
    return trace.parts()


def _outage(outage: OutageRecord, lines: Iterable[Line]) -> Iterator[bytes]:
    """Its course, what was ordered for its Node, and a track for each pod and volume."""
    trace, marks = Trace(outage), _marks(lines)
    root = trace.track(f"outage of {outage.node} ({outage.id})")
    notes: Notes = (
        ("outcome", outage.outcome),
        ("trace id", outage.trace_id),
        ("why", outage.reason),
        ("proof", outage.proof),
        ("node uid", outage.node_uid),
        ("version", outage.version),
    )
    trace.put(root, [Slice(0, outage.ended_ns, "outage", "outage", notes)])
    course = (Slice(each.began_ns, each.ended_ns, each.text, each.what) for each in outage.course)
    trace.put(trace.track("what it waited for", root), course)
    orders = trace.track("orders", root)
    for order in outage.orders:
        result: Notes = (("reason", order.reason), ("key", order.key))
        made = Slice(order.began_ns, order.ended_ns, order.result or "open", "order", result)
        trace.put(trace.track(order.what, orders), [made])
    parent = trace.track("pods and volumes", root)
    for subject in outage.subjects:
        _subject(trace, outage, parent, subject, marks)
    actors = trace.track("actors", root)
    for actor, of in marks.items():
        trace.put(trace.track(actor, actors), [], of)
    return trace.parts()


def _subject(
    trace: Trace, outage: OutageRecord, parent: int, subject: Subject, marks: dict[str, list[Mark]]
) -> None:
    """A pod or a volume with what its actor decided, and below it what it waited for."""
    track = trace.track(f"{subject_kind(subject)} {subject.label}", parent)
    actor = (
        f"DetachActor:{subject.name}"
        if isinstance(subject, AttachmentRecord)
        else f"StuckPodActor:{subject.uid}"
    )
    whole = Slice(subject.began_ns, subject.ended_ns, subject.outcome, subject_kind(subject))
    trace.put(track, [whole], marks.pop(actor, []))
    waits = (
        Slice(each.began_ns, each.ended_ns if each.seen else None, each.reason, "wait")
        for each in waits_of(outage, subject)
    )
    trace.put(trace.track("waits for", track), waits)


def _marks(lines: Iterable[Line]) -> dict[str, list[Mark]]:
    """Each record by its actor, in their order."""
    kept = list(lines)
    effects: dict[int, list[int]] = {}
    for line in kept:
        if line.cause:
            effects.setdefault(line.cause, []).append(line.seq)
    known = {line.seq: None for line in kept}
    marks: dict[str, list[Mark]] = {}
    for line in kept:
        notes: Notes = (("seq", line.seq), ("cause", line.cause), ("what", line.text))
        notes += (("pod", line.pod),) if line.pod else ()
        # An arrow needs both of its ends; a cause in front of the signal is not in this file.
        cause = line.cause if line.cause in known else 0
        mark = Mark(
            line.since_ns, line.type, line.kind, notes, line.seq, cause, tuple(effects.get(line.seq, ()))
        )
        marks.setdefault(line.actor, []).append(mark)
    return marks


def _order_tracks(spans: Iterable[OrderRecord]) -> Iterator[tuple[str, list[Slice]]]:
    """Orders of one kind that were open at the same time stand below each other."""
    lanes: list[tuple[str, list[Slice]]] = []
    for each in spans:
        made = Slice(each.began_ns, each.ended_ns, each.result or "open", "order", (("reason", each.reason),))
        for name, lane in lanes:
            end_ns = lane[-1].end_ns
            if name == each.what and end_ns is not None and end_ns <= made.begin_ns:
                lane.append(made)
                break
        else:
            lanes.append((each.what, [made]))
    yield from lanes


def _pod(trace: Trace, parent: int, pod: PodRecord, marks: list[Mark]) -> None:
    """The pod with what its actor decided; below it what its containers' hooks and stops took."""
    # The stops of two containers overlap, and so do a hook and its neighbour's stop: a track for each.
    track = trace.track(pod.label, parent)
    fate = pod.outcome or "unknown"
    notes: Notes = (("why", pod.reason), ("uid", pod.uid), ("wave", pod.wave), ("grace s", pod.grace_seconds))
    whole = [] if pod.began_ns is None else [Slice(pod.began_ns, pod.ended_ns, fate, "pod", notes)]
    trace.put(track, whole, marks)
    for hook in pod.hooks:
        name = f"preStop {hook.kind} in {hook.container}"
        result: Notes = (("result", hook.result or "open"), ("reason", hook.reason), ("detail", hook.detail))
        trace.put(trace.track(name, track), [Slice(hook.began_ns, hook.ended_ns, name, "hook", result)])
    for each in pod.containers:
        began_ns = stop_began_ns(each)
        if began_ns is None:
            continue
        killed = [] if each.killed_ns is None else [Mark(each.killed_ns, "SIGKILL", "stop")]
        name = each.stop_signal if each.asked_ns is None else BY_KUBELET_TEXTS.get(pod.means, "deleted")
        stop = Slice(
            began_ns,
            each.exited_ns,
            name,
            "stop",
            (() if each.exit_code is None else (("exit code", each.exit_code),)),
        )
        trace.put(trace.track(f"container {each.name}", track), [stop], killed)


# The bytes of a Perfetto trace: as much protobuf as six kinds of messages need.
#
# Field numbers are those of Perfetto's ``trace_packet.proto`` and its neighbours; a test reads what is
# written here with their published descriptors.


EventType = Literal["begin", "end", "instant"]

_TYPES: dict[EventType, int] = {"begin": 1, "end": 2, "instant": 3}

#: Only one writer makes the file.
_SEQUENCE_ID = 1
#: ``SEQ_INCREMENTAL_STATE_CLEARED``: nothing that came before is referred to.
_CLEARED = 1

#: ``ClockSnapshot.BuiltinClocks``.
REALTIME, MONOTONIC, BOOTTIME = 1, 3, 6

#: ``TrackDescriptor.ChildTracksOrdering.EXPLICIT``, and tracks of one name that stay apart.
_EXPLICIT, _NO_MERGE = 3, 2

_VARINT, _FIXED64, _BYTES = 0, 1, 2


def _varint(value: int) -> bytes:
    """Negative numbers in two's complement of 64 bits, as protobuf has them."""
    value &= (1 << 64) - 1
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3 | _VARINT) + _varint(value)


def _fixed(field: int, value: int) -> bytes:
    return _varint(field << 3 | _FIXED64) + value.to_bytes(8, "little")


def _bytes(field: int, value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return _varint(field << 3 | _BYTES) + _varint(len(data)) + data


def _packet(*fields: bytes) -> bytes:
    return _bytes(1, b"".join((*fields, _number(10, _SEQUENCE_ID))))


def clock_snapshot(mono_ns: int, wall_ns: int) -> bytes:
    """The first packet: which moment of the trace's clock is which by the wall clock."""
    times = ((BOOTTIME, mono_ns), (MONOTONIC, mono_ns), (REALTIME, wall_ns))
    each = [_bytes(1, _number(1, clock) + _number(2, max(0, time_ns))) for clock, time_ns in times]
    return _packet(_bytes(6, b"".join(each) + _number(2, BOOTTIME)), _number(13, _CLEARED))


def track_descriptor(uuid: int, name: str, parent: int = 0, rank: int = 0) -> bytes:
    """A track below ``parent`` (0: at the top), its children in the order of their ranks."""
    fields = [_number(1, uuid), _bytes(2, name)]
    fields += [_number(5, parent), _number(12, rank)] if parent else []
    return _packet(_bytes(60, b"".join((*fields, _number(11, _EXPLICIT), _number(15, _NO_MERGE)))))


def track_event(
    time_ns: int,
    kind: EventType,
    uuid: int,
    name: str = "",
    *,
    category: str = "",
    notes: Iterable[tuple[str, str | int]] = (),
    leads_to: Iterable[int] = (),
    comes_from: Iterable[int] = (),
) -> bytes:
    """One event on a track. ``leads_to`` and ``comes_from`` number the arrows that begin and end here."""
    fields = [_number(9, _TYPES[kind]), _number(11, uuid)]
    fields += [_bytes(23, name)] if name else []
    fields += [_bytes(22, category)] if category else []
    fields += [
        _bytes(4, (_bytes(10, key) + (_bytes(6, value) if isinstance(value, str) else _number(4, value))))
        for key, value in notes
    ]
    fields += [_fixed(47, number) for number in leads_to]
    fields += [_fixed(48, number) for number in comes_from]
    return _packet(_number(8, max(0, time_ns)), _bytes(11, b"".join(fields)))

"""A shutdown for Perfetto's viewer: one track an actor and one a pod, with an arrow from each cause.

A pure function of the account and its lines. Times are the monotonic clock's, so the viewer's zero is the
boot, and a snapshot of the clocks lets it show wall time. A pod without an end on record is a slice without
one. On a track slices follow one another and never overlap: where they could, each has a track of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from replay import perfetto_wire as wire
from replay.account.model import Account, PodTold, SpanTold, WaveTold
from replay.account.parts import BY_KUBELET, stop_began_ns
from replay.account.words import span
from replay.timeline import Line

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


class Timed(NamedTuple):
    at_ns: int
    data: bytes


class Trace:
    """Tracks get their numbers in the order in which they are made; events are kept until all are there."""

    def __init__(self, account: Account) -> None:
        self._zero_ns = account.started_mono_ns
        self._tracks: list[bytes] = []
        self._events: list[Timed] = []

    def track(self, name: str, parent: int = 0) -> int:
        """Its number, which is also its place among its siblings."""
        uuid = len(self._tracks) + 1
        self._tracks.append(wire.track(uuid, name, parent, uuid))
        return uuid

    def put(self, uuid: int, slices: Iterable[Slice], marks: Iterable[Mark] = ()) -> None:
        """One track's events. With marks there is one slice at most, and they may stand on its edges."""
        at = [*marks]
        for each in slices:
            self._add(each.begin_ns, "begin", uuid, each)
            for mark in at:
                self._mark(uuid, mark)
            at = []
            if each.end_ns is not None:
                self._add(each.end_ns, "end", uuid)
        for mark in at:
            self._mark(uuid, mark)

    def _mark(self, uuid: int, mark: Mark) -> None:
        self._add(mark.at_ns, "instant", uuid, mark)

    def _add(self, at_ns: int, kind: wire.EventType, uuid: int, what: Slice | Mark | None = None) -> None:
        time_ns = max(0, self._zero_ns + at_ns)
        made = wire.event(
            time_ns,
            kind,
            uuid,
            what.name if what else "",
            category=what.category if what else "",
            notes=what.notes if what else (),
            leads_to=what.effects if isinstance(what, Mark) else (),
            comes_from=(what.seq,) if isinstance(what, Mark) and what.cause else (),
        )
        self._events.append(Timed(time_ns, made))

    def parts(self, account: Account) -> Iterator[bytes]:
        """In the order of time; what comes at one moment stays in the order of its track."""
        yield wire.clocks(account.started_mono_ns, account.started_wall_ns)
        yield from self._tracks
        yield from (each.data for each in sorted(self._events, key=lambda each: each.at_ns))


def perfetto(account: Account, lines: Iterable[Line]) -> Iterator[bytes]:
    """The pieces of a trace file. ``lines`` are all of the shutdown's."""
    trace, marks = Trace(account), _marks(lines)
    root = trace.track(f"{account.kind} of {account.node} ({account.id})")
    trace.put(root, [_whole(account)])
    waves = trace.track("waves", root)
    for wave in account.waves:
        trace.put(trace.track(f"wave {wave.index}, priority {wave.priority}", waves), _wave(wave))
    beside = trace.track("beside the waves", root)
    for name, spans in _lanes(account.beside):
        trace.put(trace.track(name, beside), spans)
    pods = trace.track("pods", root)
    for pod in account.pods:
        _pod(trace, pods, pod, marks.pop(f"HookActor:{pod.uid}", []))
    actors = trace.track("actors", root)
    for actor, of in marks.items():
        trace.put(trace.track(actor, actors), [], of)
    return trace.parts(account)


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
        cause = line.cause if line.cause in known else 0
        mark = Mark(
            line.since_ns, line.type, line.kind, notes, line.seq, cause, tuple(effects.get(line.seq, ()))
        )
        marks.setdefault(line.actor, []).append(mark)
    return marks


def _whole(account: Account) -> Slice:
    notes: Notes = (
        ("outcome", account.outcome),
        ("trace id", account.trace_id),
        ("grant", span(account.grant_ns)),
        ("budget", span(account.budget_ns)),
        ("version", account.version),
    )
    return Slice(0, account.ended_ns, "shutdown", "shutdown", notes)


def _wave(wave: WaveTold) -> list[Slice]:
    if wave.began_ns is None:
        return []
    period_ns = wave.planned_ns if wave.period_ns is None else wave.period_ns
    notes: Notes = (("outcome", wave.outcome), ("period", span(period_ns)), ("pods", len(wave.pods)))
    return [Slice(wave.began_ns, wave.ended_ns, f"wave {wave.index}: {wave.outcome}", "wave", notes)]


def _lanes(spans: Iterable[SpanTold]) -> Iterator[tuple[str, list[Slice]]]:
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


def _pod(trace: Trace, parent: int, pod: PodTold, marks: list[Mark]) -> None:
    """The pod with what its actor decided; below it what its containers' hooks and stops took."""
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
        name = each.stop_signal if each.asked_ns is None else BY_KUBELET.get(pod.means, "deleted")
        stop = Slice(began_ns, each.exited_ns, name, "stop", _exit(each.exit_code))
        trace.put(trace.track(f"container {each.name}", track), [stop], killed)


def _exit(code: int | None) -> Notes:
    return () if code is None else (("exit code", code),)

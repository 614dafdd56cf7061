"""Hand-written shutdown records, as the actors would decide them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from ebbtide.events import decisions as d
from ebbtide.events.base import NS_PER_SECOND, Event
from ebbtide.events.codec import FLAG_LAST, RawRecord, encode_event
from ebbtide.events.facts import ContainerExited, DaemonStarted, InventoryTaken, PrepareForShutdown, Tick
from ebbtide.events.segment import SHUTDOWN_LOGIC, Header, Identity, Link
from ebbtide.events.values import PlannedPod, Pod
from ebbtide.otel.projection import Projection
from ebbtide.otel.span import AttributeValue, Span

JOURNAL_ID = bytes(range(16))
WALL_NS = 1_700_000_000 * NS_PER_SECOND
MS = 1_000_000

#: Attribute value types, by their names in docs/attributes.md.
TYPES = {"string": str, "int": int, "int, ms": int, "bool": bool, "string[]": tuple}
PAGE = (Path(__file__).parents[2] / "docs" / "attributes.md").read_text()
#: Attribute name to type, from the page.
DOCUMENTED = {
    name: TYPES[kind]
    for names, kind in re.findall(r"^\* (`[^(]+`) \(([^;]+); ", PAGE, re.M)
    for name in re.findall("`([^`]+)`", names)
}


def documented(spans: list[Span]) -> list[Span]:
    """Returns the spans after checking their attributes against the page."""
    for span in spans:
        events = (pair for event in span.events for pair in event.attributes)
        links = (pair for link in span.links for pair in link.attributes)
        names = [name for name, _ in span.attributes]
        assert len(names) == len(dict.fromkeys(names)), f"{span.name} says something twice: {names}"
        for name, value in (*span.attributes, *events, *links):
            assert name in DOCUMENTED, f"{span.name} has {name}, which is not documented"
            assert type(value) is DOCUMENTED[name], f"{name} is {value!r}"
            assert not isinstance(value, int) or -(2**63) <= value < 2**63
    return spans


Step = tuple[Header, Sequence[RawRecord]]


def project(
    told: Iterable[Step], journal_id: bytes = JOURNAL_ID, projection: Projection | None = None
) -> list[Span]:
    into = projection or Projection()
    return documented([span for header, raws in told for span in into.feed(header, raws, journal_id)])


def steps(batches: Iterable[Step]) -> list[Step]:
    """The records one by one: the smallest batches."""
    found: list[Step] = []
    step: list[RawRecord] = []
    for header, records in batches:
        for raw in records:
            step.append(raw)
            if raw.flags & FLAG_LAST:
                found.append((header, step))
                step = []
    return found


class Teller:
    """``tell`` writes one step. ``episode`` is derived; ``mono_ns`` comes from ``after_ms``."""

    def __init__(self, boot: str = "boot-1") -> None:
        self.steps: list[tuple[Header, list[RawRecord]]] = []
        self.seq = 0
        self.episode = 0
        self.mono_ns = 5 * NS_PER_SECOND
        self.wall_ns = WALL_NS
        self.boot(boot)

    #: The event that opens an episode and the one that closes it; the writer's system.
    opens: type[Event] = d.ShutdownBegan
    closes: type[Event] = d.EpisodeClosed
    logic: str = SHUTDOWN_LOGIC

    def boot(self, boot: str, wall_ns: int | None = None) -> None:
        """Later records belong to this boot and a new segment."""
        self.wall_ns = self.wall_ns if wall_ns is None else wall_ns
        identity = Identity("node-1", "machine-1", boot, "1.2.3", self.logic)
        self.header = Header(JOURNAL_ID, 1, self.wall_ns, self.mono_ns, False, Link(), identity)

    def tell(self, fact: Event, *decisions: Event, after_ms: int = 0) -> None:
        self.mono_ns += after_ms * MS
        self.wall_ns += after_ms * MS
        first = self.seq + 1
        numbers = self._episodes((fact, *decisions), first)
        records = [
            self._record(event, number, 0 if event is fact else first)
            for event, number in zip((fact, *decisions), numbers, strict=True)
        ]
        records[-1] = records[-1]._replace(flags=FLAG_LAST)
        self.steps.append((self.header, records))

    def _episodes(self, events: Sequence[Event], first: int) -> list[int]:
        """Number steps like `System.trace`: the opening fact is its episode's first record, even after the
        previous one's closing.
        """
        numbers = []
        for event in events:
            if type(event) is self.opens and not self.episode:
                self.episode = first
            numbers.append(self.episode)
            if type(event) is self.closes:
                self.episode = 0
        if self.episode == first:
            numbers = [first, *(number or first for number in numbers[1:])]
        return numbers

    def _record(self, event: Event, episode: int, cause: int) -> RawRecord:
        self.seq += 1
        return RawRecord(
            self.seq,
            self.mono_ns,
            self.wall_ns,
            episode,
            cause,
            0,
            "edge",
            type(event).__name__,
            encode_event(event),
            hashlib.sha256(str(self.seq).encode()).digest(),
            0,
        )

    def spans(self) -> list[Span]:
        return project(self.steps)


def began(**changes: object) -> d.ShutdownBegan:
    values: dict[str, object] = {
        "kind": "poweroff",
        "grant_ns": 40 * NS_PER_SECOND,
        "requested_ns": 30 * NS_PER_SECOND,
        "budget_ns": 30 * NS_PER_SECOND,
        "deadline_ns": 35 * NS_PER_SECOND,
        "release_by_ns": 40 * NS_PER_SECOND,
        "lock_held": True,
    }
    return d.ShutdownBegan(**(values | changes))  # type: ignore[arg-type]


def signal() -> PrepareForShutdown:
    return PrepareForShutdown(active=True, kind="poweroff", grant_ns=40 * NS_PER_SECOND, lock_held=True)


def another(**changes: object) -> tuple[Event, ...]:
    """A signal during a cancelled shutdown: that one closes, the next begins."""
    detected = d.ShutdownDetected(kind="poweroff", grant_ns=40 * NS_PER_SECOND, lock_held=True)
    closed = d.EpisodeClosed(outcome="cancelled", last_wave=0, followed=True)
    return detected, closed, began(**changes)


def wave(index: int, *pods: Pod, period_seconds: int = 10) -> tuple[Event, ...]:
    period_ns = period_seconds * NS_PER_SECOND
    started = d.WaveStarted(
        wave=index,
        priority=0,
        period_ns=period_ns,
        deadline_ns=0,
        kill_by_ns=0,
        pods=tuple(PlannedPod(uid=each.uid, grace_seconds=period_seconds) for each in pods),
    )
    stops = (d.PodStopBegan(uid=each.uid, wave=index, grace_ns=period_ns, kill_by_ns=0) for each in pods)
    return (started, *stops)


def planned(*pods: Pod) -> tuple[Event, ...]:
    return (
        d.PlanMade(waves=(), pods=len(pods)),
        *(d.PodPlanned(wave=0, grace_seconds=10, pod=each) for each in pods),
    )


def going_down(*pods: Pod) -> Teller:
    """A shutdown in its first wave; these pods have a stop."""
    teller = Teller()
    teller.tell(signal(), began())
    listing = InventoryTaken(key="none", as_of_ns=1, source="process", pods=pods)
    teller.tell(listing, *planned(*pods), *wave(0, *pods), after_ms=1)
    return teller


def start(boot: str) -> DaemonStarted:
    return DaemonStarted(
        version="1.2.3", pid=1, mode="process", node="node-1", boot_id=boot, userspace_id=boot
    )


def exited(of: Pod, **changes: object) -> ContainerExited:
    values: dict[str, object] = {"uid": of.uid, "container": "main", "exit_code": 0}
    return ContainerExited(**(values | changes))  # type: ignore[arg-type]


RELEASE = d.ReleaseLock(key="LogindActor/release//0")
TICK = Tick()


def named(spans: list[Span], name: str) -> list[Span]:
    """By the first part of the name, without the workload."""
    return [span for span in spans if span.name == name or span.name.startswith(f"{name} ")]


def attributes(span: Span) -> dict[str, AttributeValue]:
    return dict(span.attributes)

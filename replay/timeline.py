"""A shutdown as one line for each record.

Nothing is executed, so any readable journal will do: another version's type shows its tag and its data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Literal, NamedTuple

import msgspec

from ebbtide.events import codec
from ebbtide.events.base import TYPES, Event, Fact, Mark, Order, Stamp, parse_order_key
from ebbtide.events.messages import DEBUG, NOTICE, Names
from ebbtide.events.outage_events import LastBootStated
from ebbtide.events.reader import Batch
from ebbtide.events.segment import Header

# Between boots only the wall clock counts; outside a shutdown the segment's anchor.


class When(NamedTuple):
    """``since_ns`` None: outside a shutdown."""

    since_ns: int | None
    wall_ns: int


class Signal(NamedTuple):
    """The first record of a shutdown, and its boot."""

    raw: codec.RawRecord
    boot_id: str

    def since_ns(self, header: Header, raw: codec.RawRecord) -> int:
        if header.identity.boot_id != self.boot_id:
            return raw.wall_ns - self.raw.wall_ns
        return raw.mono_ns - self.raw.mono_ns


class SignalClock:
    """Counts time from the current shutdown's first record."""

    def __init__(self) -> None:
        #: Of the last record's shutdown; None outside.
        self.signal: Signal | None = None

    def when(self, header: Header, raw: codec.RawRecord) -> When:
        """Call it in the records' order."""
        if not raw.episode:
            self.signal = None
            return When(None, header.wall_ns(raw.mono_ns))
        if self.signal is None or raw.episode not in (self.signal.raw.episode, self.signal.raw.seq):
            self.signal = Signal(raw, header.identity.boot_id)
        since_ns = self.signal.since_ns(header, raw)
        return When(since_ns, self.signal.raw.wall_ns + since_ns)


MomentScale = Literal["seq", "since_ns", "wall_ns"]


class Moment(NamedTuple):
    """A record's number, nanoseconds since the signal, or since 1970 UTC."""

    scale: MomentScale
    value: int

    def of(self, line: Line) -> int:
        place: int = getattr(line, self.scale)
        return place


class LineFilter(NamedTuple):
    """``actor``: as in `is_actor`; ``pod``: any of a pod's names. ``since`` and ``until`` are inclusive.
    Without ``all`` only the lines for people.
    """

    actor: str = ""
    pod: str = ""
    wave: int | None = None
    since: Moment | None = None
    until: Moment | None = None
    all: bool = True

    def takes(self, line: Line) -> bool:
        return (
            (self.all or line.brief)
            and (self.wave is None or line.wave == self.wave)
            and (not self.actor or is_actor(self.actor, line.actor, line.short))
            and (not self.pod or is_pod(self.pod, line.uid, line.pod))
            and (self.since is None or self.since.of(line) >= self.since.value)
            and (self.until is None or self.until.of(line) <= self.until.value)
        )


ALL_LINES = LineFilter()


def is_actor(wanted: str, actor: str, short: str) -> bool:
    """``HookActor`` and ``hook`` name all, ``HookActor:UID`` one."""
    name = actor.partition(":")[0]
    return wanted in (actor, name, short, name.removesuffix("Actor"), name.removesuffix("Actor").lower())


def is_pod(wanted: str, uid: str, label: str) -> bool:
    return bool(uid) and wanted in (uid, label, label.partition("/")[2])


LineKind = Literal["fact", "decision", "order", "mark", "unknown"]

SHORT_NAMES = {"ConfigReconciler": "config", "NodeStatusActor": "node"}

#: Of an order's key.
_KEYS = ("key", "target")

#: Its UID is the Node's.
_OF_NO_POD = ("NodeRead",)


class Line(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One record as text. ``since_ns``: since the signal; ``wall_ns``: the signal's wall time plus this.

    ``actor``: as recorded (``HookActor:UID``). ``pod``: namespace/name, or the UID of a pod without a known
    name; empty for a line about no single pod. ``level``: as in sd-daemon(3). ``data``: plain values.
    """

    seq: int
    wall_ns: int
    since_ns: int
    episode: int
    cause: int
    actor: str
    short: str
    kind: LineKind
    type: str
    uid: str
    pod: str
    container: str
    wave: int | None
    level: int
    text: str
    data: Any

    @property
    def brief(self) -> bool:
        """For people, not bookkeeping."""
        return self.level < DEBUG

    @property
    def bad(self) -> bool:
        return self.level < NOTICE


def timeline(batches: Iterable[Batch], episode: int, wanted: LineFilter = ALL_LINES) -> Iterator[Line]:
    """``episode``: the number of the shutdown's first record; ``batches`` begin before it."""
    timeline_lines = Timeline(episode, wanted)
    for batch in batches:
        yield from timeline_lines.lines(batch)


class Timeline:
    """For a growing journal. ``episode`` 0: none has begun, so it only learns names."""

    def __init__(self, episode: int, wanted: LineFilter = ALL_LINES) -> None:
        self.names = Names()
        self.episode, self._wanted = episode, wanted
        self._clock = SignalClock()
        self._last = 0

    def lines(self, batch: Batch) -> Iterator[Line]:
        for raw in batch.records:
            self._last = raw.episode or self._last
            if raw.tag == LastBootStated.__name__ and not raw.episode and self._last == self.episode:
                # It reports on the outage, after its end.
                raw = raw._replace(episode=self.episode)
            inside = bool(self.episode) and self.episode in (raw.episode, raw.seq)
            event = None
            if inside or raw.tag in codec.NAMING_EVENTS:
                with suppress(codec.UnknownType, codec.BadPayload):
                    event = codec.decode_event(raw.tag, raw.payload)
            if event is not None:
                event.introduce(self.names)
            if inside:
                line = self._line(raw, batch.header, event)
                if self._wanted.takes(line):
                    yield line

    @property
    def knows_pod(self) -> bool:
        """An event has named the wanted pod; true without one."""
        pod = self._wanted.pod
        return not pod or any(is_pod(pod, uid, label) for uid, label in self.names.labels.items())

    def _line(self, raw: codec.RawRecord, header: Header, event: Event | None) -> Line:
        since_ns, wall_ns = self._clock.when(header, raw)
        data = codec.plain_payload(raw.payload)
        uid, container = _subject(raw, event)
        wave = getattr(event, "wave", None)
        at = Stamp(raw.mono_ns, raw.wall_ns)
        if event is None:
            level = NOTICE
            text = f"{raw.tag} {one_line(data, self.names)}".rstrip()
        else:
            level = DEBUG if event.repeats else event.level
            text = event.text(self.names, at)
        return Line(
            seq=raw.seq,
            wall_ns=wall_ns,
            since_ns=since_ns or 0,
            episode=raw.episode,
            cause=raw.cause,
            actor=raw.actor,
            short=short_name(raw.actor),
            kind=kind_of(raw.tag),
            type=raw.tag,
            uid=uid,
            pod=self.names.of(uid) if uid else "",
            container=container,
            wave=wave if isinstance(wave, int) else self.names.waves.get(uid),
            level=level,
            text=text,
            data=data,
        )


def kind_of(tag: str) -> LineKind:
    known = TYPES.get(tag)
    if known is None:
        return "unknown"
    kinds: tuple[tuple[type[Event], LineKind], ...] = ((Fact, "fact"), (Order, "order"), (Mark, "mark"))
    return next((kind for base, kind in kinds if issubclass(known, base)), "decision")


def short_name(actor: str) -> str:
    """``logind``, ``wave``, ``hook``: without the subject."""
    name = actor.partition(":")[0]
    return SHORT_NAMES.get(name) or name.removesuffix("Actor").lower()


def actor_name(label: str, names: Names) -> str:
    """``hook:shop/web-0``, ``wave:0``, ``logind``."""
    subject = label.partition(":")[2]
    return f"{short_name(label)}:{names.of(subject)}" if subject else short_name(label)


def one_line(data: Any, names: Names) -> str:
    """With pods' names in place of UIDs."""
    if not isinstance(data, dict):
        return _value(data, names)
    return " ".join(f"{name}={_value(value, names)}" for name, value in data.items())


def _value(value: Any, names: Names) -> str:
    if isinstance(value, str):
        return named(value, names)
    if isinstance(value, list):
        return f"[{', '.join(_value(each, names) for each in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_value(key, names)}: {_value(of, names)}' for key, of in value.items())}}}"
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.hex() if isinstance(value, bytes) else str(value)


def named(text: str, names: Names) -> str:
    """A UID, or the subject in an order's key, by its pod's name."""
    return names.labels.get(text) or "/".join(names.of(part) for part in text.split("/"))


def _subject(raw: codec.RawRecord, event: Event | None) -> tuple[str, str]:
    """UID and container: the event's, else the order key's, else the actor's."""
    uid = "" if event is None or raw.tag in _OF_NO_POD else event.pod_uid
    container = str(getattr(event, "container", ""))
    for name in _KEYS:
        if not uid and raw.tag not in _OF_NO_POD:
            key = parse_order_key(str(getattr(event, name, "")))
            uid, container = key.subject, container or key.part
    # A pod's actor decides about its own pod only.
    if not uid and raw.actor.startswith("HookActor:"):
        uid = raw.actor.partition(":")[2]
    return uid, container


def sentence(line: Line) -> str:
    """With the pod as its subject. A type without a sentence uses the line's text."""
    text, kind = line.text, TYPES.get(line.type)
    if kind is not None:
        with suppress(msgspec.ValidationError):  # another version's fields
            text = msgspec.convert(line.data, kind).sentence(text, line.wave)
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '!', '?')) else '.'}"

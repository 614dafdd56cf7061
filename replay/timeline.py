"""A shutdown as one line a transition: when, who, which pod, and what, in words.

Nothing is executed again: a line is told from its record alone, and from the names that records before it
have introduced. So this works on any journal that can be read; a type of another version shows its tag and
its data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec

from events.base import TYPES, Event, Fact, Mark, Order
from events.codec import BadPayload, UnknownType, decode_event
from events.decisions import PodPlanned
from events.facts import OrderEnded
from events.frames import RawRecord
from events.history import Batch
from events.record import Stamp
from events.words import DEBUG, NOTICE, TELL, Names
from events.words.base import INTRODUCING, parse_key
from replay.clocks import SignalClock
from replay.timeline_wanted import EVERYTHING, Wanted

Kind = Literal["fact", "decision", "order", "mark", "unknown"]

#: Whoever writes records, by a short name.
SHORT_NAMES = {"ConfigReconciler": "config", "NodeStatusActor": "node"}

#: Where a payload names an order's key.
_KEYS = ("key", "target")


class Line(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One record, told. ``since_ns`` counts from the signal; ``wall_ns`` is the signal's wall time plus that.

    ``actor`` is the record's own (``HookActor:UID``), ``short`` its short name. ``pod`` is namespace/name, or
    the UID where no record has introduced it; empty, like ``uid``, for a line that is not about one pod.
    ``wave`` is that of the event, or of its pod; None for neither. ``level`` counts as sd-daemon(3) does
    (`events.words`): `brief` are the lines for people. ``data`` is the payload as plain values.
    """

    seq: int
    wall_ns: int
    since_ns: int
    episode: int
    cause: int
    actor: str
    short: str
    kind: Kind
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
        """Whether it matters to a person, or is bookkeeping."""
        return self.level < DEBUG

    @property
    def bad(self) -> bool:
        """Whether something did not go as it should."""
        return self.level < NOTICE


def timeline(batches: Iterable[Batch], episode: int, wanted: Wanted = EVERYTHING) -> Iterator[Line]:
    """The lines of the shutdown whose first record has this number, in their order.

    ``batches`` begin before it, so that pods' names are known. Nothing is kept but names.
    """
    told = Timeline(episode, wanted)
    for batch in batches:
        yield from told.lines(batch)


class Timeline:
    """The same for a journal that is still being written: a batch at a time.

    ``names`` are those of a reading that has been there before. ``episode`` 0: none has begun so far, and
    only names are learned.
    """

    def __init__(self, episode: int, wanted: Wanted = EVERYTHING, names: Names | None = None) -> None:
        self.names = names or Names()
        self.episode, self._wanted = episode, wanted
        self._clock = SignalClock()

    def lines(self, batch: Batch) -> Iterator[Line]:
        for raw in batch.records:
            inside = bool(self.episode) and self.episode in (raw.episode, raw.seq)
            event = _event(raw) if inside or raw.tag in INTRODUCING else None
            if event is not None:
                self.names.learn(event)
            line = self._line(raw, batch, event) if inside else None
            if line is not None and self._wanted.takes(line):
                yield line

    @property
    def knows_pod(self) -> bool:
        """Whether the pod that is wanted has been introduced so far; true where none is."""
        return not self._wanted.pod or self._wanted.names_pod(self.names.labels)

    def _line(self, raw: RawRecord, batch: Batch, event: Event | None) -> Line:
        since_ns, wall_ns = self._clock.when(batch.header, raw)
        data = _plain(raw)
        uid, container = _subject(raw, data)
        level, text = self._words(raw, event, data)
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
            wave=self._wave(uid, data),
            level=level,
            text=text,
            data=data,
        )

    def _words(self, raw: RawRecord, event: Event | None, data: Any) -> tuple[int, str]:
        teller = TELL.get(type(event)) if event is not None else None
        if teller is None:
            level = DEBUG if isinstance(event, Mark) else NOTICE
            return level, f"{raw.tag} {named(data, self.names)}".rstrip()
        said = teller(self.names, event, Stamp(raw.mono_ns, raw.wall_ns))
        return (DEBUG if _said_elsewhere(event) else said.level), said.text

    def _wave(self, uid: str, data: Any) -> int | None:
        wave = data.get("wave") if isinstance(data, dict) else None
        return wave if isinstance(wave, int) else self.names.waves.get(uid)


def _said_elsewhere(event: Event | None) -> bool:
    """The plan tells of its pods, and the end of a hook of the outcome of its order."""
    if isinstance(event, OrderEnded):
        return parse_key(event.key).what == "hook"
    return isinstance(event, PodPlanned) and not event.late


def kind_of(tag: str) -> Kind:
    """What kind of event a type tag stands for."""
    known = TYPES.get(tag)
    if known is None:
        return "unknown"
    kinds: tuple[tuple[type[Event], Kind], ...] = ((Fact, "fact"), (Order, "order"), (Mark, "mark"))
    return next((kind for base, kind in kinds if issubclass(known, base)), "decision")


def short_name(actor: str) -> str:
    """``logind``, ``wave``, ``hook``: the actor without its subject, for a narrow column."""
    name = actor.partition(":")[0]
    return SHORT_NAMES.get(name) or name.removesuffix("Actor").lower()


def actor_name(label: str, names: Names) -> str:
    """``hook:shop/web-0``, ``wave:0``, ``logind``: an actor as people write it."""
    subject = label.partition(":")[2]
    return f"{short_name(label)}:{names.of(subject)}" if subject else short_name(label)


def named(data: Any, names: Names) -> str:
    """Plain values in one line, with pods' names in the place of UIDs."""
    if not isinstance(data, dict):
        return _value(data, names)
    return " ".join(f"{name}={_value(value, names)}" for name, value in data.items())


def _value(value: Any, names: Names) -> str:
    if isinstance(value, str):
        label = names.labels.get(value)
        return label or "/".join(names.of(part) for part in value.split("/"))
    if isinstance(value, list):
        return f"[{', '.join(_value(each, names) for each in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_value(key, names)}: {_value(of, names)}' for key, of in value.items())}}}"
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.hex() if isinstance(value, bytes) else str(value)


def _event(raw: RawRecord) -> Event | None:
    """None for a type of another version, and for a payload that does not fit its type."""
    try:
        return decode_event(raw.tag, raw.payload)
    except (UnknownType, BadPayload):
        return None


def _plain(raw: RawRecord) -> Any:
    try:
        return msgspec.msgpack.decode(raw.payload)
    except (msgspec.DecodeError, ValueError):
        return raw.payload.hex()


def _subject(raw: RawRecord, data: Any) -> tuple[str, str]:
    """UID and container that a record is about: its own field, its pod, the key of its order, its actor."""
    fields = data if isinstance(data, dict) else {}
    pod, container = fields.get("pod"), fields.get("container")
    uid = fields.get("uid")
    if not isinstance(uid, str):
        uid = pod.get("uid") if isinstance(pod, dict) else None
    for name in _KEYS:
        if not uid and isinstance(fields.get(name), str):
            key = parse_key(fields[name])
            uid, container = key.uid, container or key.part
    if not uid and raw.actor.startswith("HookActor:"):
        uid = raw.actor.partition(":")[2]
    return (uid if isinstance(uid, str) else ""), (container if isinstance(container, str) else "")

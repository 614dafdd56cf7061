"""Records as people and scripts see them: one JSON object a line, or one line of text each.

Times are the segment's anchor plus the monotonic difference, so that a stepped wall clock shifts none.
Payloads are shown as they stand in the file: a field at its default is not there. Pods are shown by name,
learned from the records that introduce them; and a journal that is still being written can be followed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from ebbtide.events.base import NS_PER_SECOND, TYPES, Fact, Order
from ebbtide.events.catalog import Segment, Source, find_path
from ebbtide.events.codec import RawRecord
from ebbtide.events.reader import Batch, Scan
from ebbtide.events.segment import Header, Link
from ebbtide.text import visible

#: A line of text shows so much of a payload; ``-o json`` shows all.
DATA_CHARACTERS_MAX = 160

#: Control characters that JSON need not escape, and that a terminal obeys (in UTF-8).
_CONTROL = re.compile(rb"\x7f|\xc2[\x80-\x9f]")

#: What JSON has no form for is shown as Python writes it; only an edited journal holds such a thing.
_encoder = msgspec.json.Encoder(enc_hook=repr)


@lru_cache(maxsize=64)
def _to_the_second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def rfc3339(wall_ns: int) -> str:
    """UTC with nanoseconds."""
    seconds, rest = divmod(wall_ns, NS_PER_SECOND)
    return f"{_to_the_second(seconds)}.{rest:09d}Z"


def record_json_line(header: Header, raw: RawRecord) -> bytes:
    """The promised shape (interface.md), and the number of the shutdown's first record (null outside)."""
    document = {
        "seq": raw.seq,
        "time": rfc3339(header.wall_ns(raw.mono_ns)),
        "cause": raw.cause or None,
        "actor": raw.actor,
        "type": raw.tag,
        "data": payload_of(raw),
        "episode": raw.episode or None,
    }
    try:
        line = _encoder.encode(document)
    except (TypeError, ValueError):
        line = _encoder.encode(document | {"data": raw.payload.hex()})
    return _CONTROL.sub(lambda match: b"\\u%04x" % ord(match[0].decode()), line) + b"\n"


def _json_text(value: Any) -> str:
    try:
        return _encoder.encode(value).decode()
    except (TypeError, ValueError):
        return repr(value)


def record_text_line(
    header: Header, raw: RawRecord, labels: PodLabels, paint: Callable[[str, str], str]
) -> bytes:
    """``time seq <- cause type actor data``; what was decided is indented below its fact."""
    wall = rfc3339(header.wall_ns(raw.mono_ns))
    cause = f"<- {raw.cause}" if raw.cause else ""
    head = f"{wall[:10]} {wall[11:23]} {raw.seq:>6} {cause:<9}"
    tag = visible(raw.tag)
    name = f"  {tag:<18}" if raw.cause else f"{tag:<20}"
    actor = visible(labels.named(raw.actor))
    data = _data_text(labels, payload_of(raw))
    return (
        f"{paint('dim', head)} {paint(colour_of(raw.tag), name)} {actor:<24} {data}".rstrip().encode() + b"\n"
    )


def colour_of(tag: str) -> str:
    kind = TYPES.get(tag)
    if kind is None:
        return "plain"
    return "fact" if issubclass(kind, Fact) else "order" if issubclass(kind, Order) else "decision"


def _data_text(labels: PodLabels, data: Any) -> str:
    if not isinstance(data, dict):
        return visible(str(data))
    words = visible(labels.named(" ".join(f"{name}={_value_text(value)}" for name, value in data.items())))
    return words if len(words) <= DATA_CHARACTERS_MAX else words[: DATA_CHARACTERS_MAX - 1] + "…"


def _value_text(value: Any) -> str:
    return value if isinstance(value, str) and " " not in value else _json_text(value)


# Pods by name: which UID is whose, learned from the records that introduce them.


#: Events that introduce a pod by name, and where in their payload it stands.
INTRODUCTIONS = {"PodAppeared": "pod", "PodPlanned": "pod", "InventoryTaken": "pods", "PodRejected": ""}

#: UIDs as the API server and the manifest reader give them.
_UID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}")

_decode_payload = msgspec.msgpack.Decoder().decode


def payload_of(raw: RawRecord) -> Any:
    """A payload as plain values; hexadecimal digits where it cannot be read."""
    try:
        return _decode_payload(raw.payload)
    except (msgspec.DecodeError, ValueError):
        return raw.payload.hex()


def introduced_pods(raw: RawRecord) -> Iterator[tuple[str, str]]:
    """(UID, namespace/name) of each pod that a record introduces; nothing for most records."""
    where = INTRODUCTIONS.get(raw.tag)
    data = payload_of(raw) if where is not None else None
    if not isinstance(data, dict):
        return
    if not where:
        yield str(data.get("uid")), str(data.get("label"))
        return
    entries = data.get(where) or []
    for pod in entries if isinstance(entries, list) else [entries]:
        if isinstance(pod, dict):
            yield str(pod.get("uid")), f"{pod.get('namespace')}/{pod.get('name')}"


class PodLabels(dict[str, str]):
    """Names by UID, because people read names; and the UIDs of the one pod that is ``wanted``.

    ``wanted`` is namespace/name, a name, or a UID; a pod that was made anew has several UIDs.
    """

    def __init__(self, wanted: str = "") -> None:
        super().__init__()
        self.wanted = wanted
        self.uids: set[str] = set()
        self._needles: list[bytes] = []

    def learn(self, raw: RawRecord) -> None:
        for uid, label in introduced_pods(raw):
            self[uid] = label
            if self.wanted in (uid, label, label.partition("/")[2]) and uid not in self.uids:
                self.uids.add(uid)
                # As a value of its own, and as the subject in an order's key.
                self._needles += [msgspec.msgpack.encode(uid), f"/{uid}/".encode()]

    def concerns(self, raw: RawRecord) -> bool:
        """Whether a record names the wanted pod, or comes from its actor."""
        if raw.actor.partition(":")[2] in self.uids:
            return True
        return any(needle in raw.payload for needle in self._needles)

    def named(self, text: str) -> str:
        """``text`` with names in the place of UIDs."""
        return _UID.sub(lambda match: self.get(match[0], match[0]), text)


# Following a journal that is still being written: the same whole steps, as soon as they are there.
#
# Every look takes up behind the last good frame, so that it costs what is new. A frame that is cut short is
# one that is being written.


#: Soon enough for eyes, and seldom enough for an idle machine.
LOOK_SECONDS = 0.2


class JournalTail:
    """``new`` gives the whole steps that were written since the last call."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources
        self._end: Link | None = None
        self._open_step: list[RawRecord] = []

    def new(self) -> Iterator[Batch]:
        """Raises OSError where a location cannot be listed."""
        segments = find_path(self._sources).segments
        for index, segment in enumerate(segments):
            following = segments[index + 1].header if index + 1 < len(segments) else None
            limit = following.link if following is not None else None
            if self._end is None or segment.number >= self._end.segment:
                yield from self._steps(segment, limit)

    def _steps(self, segment: Segment, limit: Link | None) -> Iterator[Batch]:
        scan = Scan(segment, limit)
        if self._end is not None and segment.number == self._end.segment:
            scan.end = self._end
        for piece in scan.pieces():
            records = [*self._open_step, *piece.records[: piece.whole]]
            self._open_step = (
                piece.records[piece.whole :] if piece.whole else [*self._open_step, *piece.records]
            )
            if piece.whole:
                yield Batch(piece.header, records)
        self._end = scan.end


def follow_journal(sources: Sequence[Source]) -> Iterator[Batch | None]:
    """All there is, then what comes, for ever; None whenever everything so far has been given."""
    tail = JournalTail(sources)
    while True:
        yield from tail.new()
        yield None
        time.sleep(LOOK_SECONDS)

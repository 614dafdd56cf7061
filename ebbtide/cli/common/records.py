"""Records for people and scripts: one JSON object a line, or one line of text each.

Times are the segment's anchor plus the monotonic difference. Payloads are shown as stored, without fields at
their default.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from ebbtide.events.base import TYPES, Fact, Order
from ebbtide.events.catalog import Source, find_path
from ebbtide.events.codec import RawRecord, plain_payload
from ebbtide.events.messages import Names
from ebbtide.events.reader import Batch, Scan
from ebbtide.events.record.format import rfc3339, visible, visible_json
from ebbtide.events.segment import Header, Link

#: A line of text shows this much of a payload; ``-o json`` shows all.
DATA_CHARACTERS_MAX = 160

#: Values without a JSON form are shown in Python's form; only an edited journal has them.
_encoder = msgspec.json.Encoder(enc_hook=repr)

#: UIDs of the API server and of the manifest reader.
_UID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}")


def record_json_line(header: Header, raw: RawRecord) -> bytes:
    """The promised shape, and the number of the shutdown's first record (null outside)."""
    document = {
        "seq": raw.seq,
        "time": rfc3339(header.wall_ns(raw.mono_ns)),
        "cause": raw.cause or None,
        "actor": raw.actor,
        "type": raw.tag,
        "data": plain_payload(raw.payload),
        "episode": raw.episode or None,
    }
    try:
        line = _encoder.encode(document)
    except (TypeError, ValueError):
        # MessagePack allows keys that JSON does not.
        line = _encoder.encode(document | {"data": raw.payload.hex()})
    return visible_json(line.decode()).encode() + b"\n"


def record_text_line(header: Header, raw: RawRecord, names: Names, paint: Callable[[str, str], str]) -> bytes:
    """``time seq <- cause type actor data``; decisions are indented below their fact."""
    wall = rfc3339(header.wall_ns(raw.mono_ns))
    cause = f"<- {raw.cause}" if raw.cause else ""
    head = f"{wall[:10]} {wall[11:23]} {raw.seq:>6} {cause:<9}"
    tag = visible(raw.tag)
    name = f"  {tag:<18}" if raw.cause else f"{tag:<20}"
    actor = visible(_with_names(raw.actor, names))
    data = plain_payload(raw.payload)
    if isinstance(data, dict):
        text = " ".join(f"{field}={_value_text(value)}" for field, value in data.items())
        # Names before the cut: a cut UID would not be found, and names are shorter.
        text = visible(_with_names(text, names))
        text = text if len(text) <= DATA_CHARACTERS_MAX else f"{text[: DATA_CHARACTERS_MAX - 1]}…"
    else:
        text = visible(str(data))
    return (
        f"{paint('dim', head)} {paint(colour_of(raw.tag), name)} {actor:<24} {text}".rstrip().encode() + b"\n"
    )


def colour_of(tag: str) -> str:
    kind = TYPES.get(tag)
    if kind is None:
        return "plain"
    return "fact" if issubclass(kind, Fact) else "order" if issubclass(kind, Order) else "decision"


def _value_text(value: Any) -> str:
    if isinstance(value, str) and " " not in value:
        return value
    try:
        return _encoder.encode(value).decode()
    except (TypeError, ValueError):
        return repr(value)


def _with_names(text: str, names: Names) -> str:
    """Replaces each UID of an earlier record by its pod's name."""
    return _UID.sub(lambda match: names.of(match[0]), text)


# --- a journal that is still being written -----------------------------------------------------


#: Soon enough for eyes, and seldom enough for an idle machine.
LOOK_SECONDS = 0.2


def follow_journal(sources: Sequence[Source]) -> Iterator[Batch | None]:
    """All records, then new ones, without end; None whenever it has caught up.

    Whole steps, as in reading a finished journal. Raises OSError where a location cannot be listed.
    """
    end: Link | None = None
    open_step: list[RawRecord] = []
    while True:
        segments = find_path(sources).segments
        for index, segment in enumerate(segments):
            if end is not None and segment.number < end.segment:
                continue
            following = segments[index + 1].header if index + 1 < len(segments) else None
            # Without a next segment, a cut last frame may still be written.
            scan = Scan(segment, following.link if following is not None else None)
            if end is not None and segment.number == end.segment:
                # Behind the last good frame: a look costs only the new bytes.
                scan.end = end
            for piece in scan.pieces():
                # Show a step after its last record, when all its decisions are present.
                whole = [*open_step, *piece.records[: piece.whole]] if piece.whole else []
                open_step = piece.records[piece.whole :] if piece.whole else [*open_step, *piece.records]
                if whole:
                    yield Batch(piece.header, whole)
            end = scan.end
        yield None
        time.sleep(LOOK_SECONDS)

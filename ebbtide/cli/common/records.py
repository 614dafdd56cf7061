"""Records as people and scripts see them: one JSON object a line, or one line of text each.

Times are the segment's anchor plus the monotonic difference, so that a stepped wall clock shifts none.
Payloads are shown as they stand in the file: a field at its default is not there. A journal that is still
being written can be followed.
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

#: A line of text shows so much of a payload; ``-o json`` shows all.
DATA_CHARACTERS_MAX = 160

#: What JSON has no form for is shown as Python writes it; only an edited journal holds such a thing.
_encoder = msgspec.json.Encoder(enc_hook=repr)

#: UIDs as the API server and the manifest reader give them.
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
        # MessagePack allows keys that JSON does not. The bytes are then shown as they are: a reader of an
        # edited journal must see that something is there.
        line = _encoder.encode(document | {"data": raw.payload.hex()})
    return visible_json(line.decode()).encode() + b"\n"


def record_text_line(header: Header, raw: RawRecord, names: Names, paint: Callable[[str, str], str]) -> bytes:
    """``time seq <- cause type actor data``; what was decided is indented below its fact."""
    wall = rfc3339(header.wall_ns(raw.mono_ns))
    cause = f"<- {raw.cause}" if raw.cause else ""
    head = f"{wall[:10]} {wall[11:23]} {raw.seq:>6} {cause:<9}"
    tag = visible(raw.tag)
    name = f"  {tag:<18}" if raw.cause else f"{tag:<20}"
    actor = visible(_with_names(raw.actor, names))
    data = plain_payload(raw.payload)
    if isinstance(data, dict):
        text = " ".join(f"{field}={_value_text(value)}" for field, value in data.items())
        # Names first, then the cut: a UID that is cut in two would not be found, and names are shorter.
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
    """People read names: each UID that a record has introduced becomes its pod's."""
    return _UID.sub(lambda match: names.of(match[0]), text)


# --- a journal that is still being written -----------------------------------------------------


#: Soon enough for eyes, and seldom enough for an idle machine.
LOOK_SECONDS = 0.2


def follow_journal(sources: Sequence[Source]) -> Iterator[Batch | None]:
    """All there is, then what comes, for ever; None whenever everything so far has been given.

    The same whole steps as in a journal that is read at rest. Raises OSError where a location cannot be
    listed.
    """
    end: Link | None = None
    open_step: list[RawRecord] = []
    while True:
        segments = find_path(sources).segments
        for index, segment in enumerate(segments):
            if end is not None and segment.number < end.segment:
                continue
            following = segments[index + 1].header if index + 1 < len(segments) else None
            # The next segment says where this one ends. Without it the last frame may be cut short because it
            # is being written: no damage, so the next look takes it up again.
            scan = Scan(segment, following.link if following is not None else None)
            if end is not None and segment.number == end.segment:
                # Behind the last good frame: a look costs what is new, however long the journal is.
                scan.end = end
            for piece in scan.pieces():
                # A step is shown once its last record is there: until then nobody knows what was decided.
                whole = [*open_step, *piece.records[: piece.whole]] if piece.whole else []
                open_step = piece.records[piece.whole :] if piece.whole else [*open_step, *piece.records]
                if whole:
                    yield Batch(piece.header, whole)
            end = scan.end
        yield None
        time.sleep(LOOK_SECONDS)

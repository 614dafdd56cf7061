"""Records as people and scripts see them: one JSON object a line, or one line of text each.

Times are the segment's anchor plus the monotonic difference, so that a stepped wall clock shifts none.
Payloads are shown as they stand in the file: a field at its default is not there.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from ebbtide.cli.guard import Refused
from ebbtide.cli.labels import Labels, payload_of
from ebbtide.text import visible
from events.base import NS_PER_SECOND, TYPES, Fact, Order
from events.frames import RawRecord
from events.segment import Header

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


def json_line(header: Header, raw: RawRecord) -> bytes:
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


def _json(value: Any) -> str:
    try:
        return _encoder.encode(value).decode()
    except (TypeError, ValueError):
        return repr(value)


def text_line(header: Header, raw: RawRecord, labels: Labels, paint: Callable[[str, str], str]) -> bytes:
    """``time seq <- cause type actor data``; what was decided is indented below its fact."""
    wall = rfc3339(header.wall_ns(raw.mono_ns))
    cause = f"<- {raw.cause}" if raw.cause else ""
    head = f"{wall[:10]} {wall[11:23]} {raw.seq:>6} {cause:<9}"
    tag = visible(raw.tag)
    name = f"  {tag:<18}" if raw.cause else f"{tag:<20}"
    actor = visible(labels.named(raw.actor))
    data = _flat(labels, payload_of(raw))
    return (
        f"{paint('dim', head)} {paint(colour_of(raw.tag), name)} {actor:<24} {data}".rstrip().encode() + b"\n"
    )


def colour_of(tag: str) -> str:
    kind = TYPES.get(tag)
    if kind is None:
        return "plain"
    return "fact" if issubclass(kind, Fact) else "order" if issubclass(kind, Order) else "decision"


def _flat(labels: Labels, data: Any) -> str:
    if not isinstance(data, dict):
        return visible(str(data))
    words = visible(labels.named(" ".join(f"{name}={_brief(value)}" for name, value in data.items())))
    return words if len(words) <= DATA_CHARACTERS_MAX else words[: DATA_CHARACTERS_MAX - 1] + "…"


def _brief(value: Any) -> str:
    return value if isinstance(value, str) and " " not in value else _json(value)


# --- which records -----------------------------------------------------------------------------


class Since(NamedTuple):
    """From a record's number, or from a moment on the wall clock."""

    seq: int = 0
    wall_ns: int = -(2**63)


def parse_since(text: str, now_ns: int) -> Since:
    """A record's number, a duration back from now (``10m``), or an RFC 3339 time. Raises Refused."""
    if text.isascii() and text.isdecimal():
        return Since(seq=int(text))
    from ebbtide.config.durations import parse_duration

    try:
        back_ns = parse_duration(text)
    except ValueError:
        back_ns = None
    if back_ns is not None:
        if back_ns < 0:
            raise Refused(
                f"--since {text} would be in the future: write {text.lstrip('-')} for that long ago"
            )
        return Since(wall_ns=now_ns - back_ns)
    try:
        return Since(wall_ns=_moment_ns(text))
    except (ValueError, OverflowError):
        raise Refused(
            f"--since {text!r} is neither a record's number, nor a duration (10m), nor a time "
            "(2026-03-01T12:00:00Z)"
        ) from None


def _moment_ns(text: str) -> int:
    """Exact to the nanosecond (`datetime` keeps microseconds). Without a zone it is local time."""
    fraction = re.search(r"\.(\d{1,9})\d*", text)
    whole = datetime.fromisoformat(text.replace(fraction[0], "") if fraction else text)
    return int(whole.timestamp()) * NS_PER_SECOND + int(fraction[1].ljust(9, "0") if fraction else 0)


def known_actor(wanted: str) -> str:
    """``wanted``, if it names one that writes records. Raises Refused, naming those that there are."""
    from actors.logic.routes import BY_NAME
    from actors.logic.system import EDGE, SYSTEM
    from events.writer import JOURNAL_ACTOR

    names = (*BY_NAME, EDGE, SYSTEM, JOURNAL_ACTOR)
    if not any(is_actor(wanted.partition(":")[0], name) for name in names):
        raise Refused(f"no actor is called {wanted!r}: name one of {', '.join(names)}, or NAME:SUBJECT")
    return wanted


def is_actor(wanted: str, actor: str) -> bool:
    """``HookActor`` names all of them, ``HookActor:UID`` one; also without the word ``Actor``."""
    name = actor.partition(":")[0]
    return wanted in (actor, name, name.removesuffix("Actor"), name.removesuffix("Actor").lower())

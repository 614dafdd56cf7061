"""Values for people and programs: RFC 3339, foreign text, a result as JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from numbers import Real
from typing import Any

import msgspec

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.units import json_seconds

_BEYOND_ASCII = re.compile(r"[^\n -~]")


def visible(text: str) -> str:
    r"""On one line, with unprintable characters as ``\x1b``, ``\n``, ``\u202e``."""
    # A pod's process may have any name: escape sequences, line breaks that make one event look like two,
    # marks that reverse a line.
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def visible_json(text: str) -> str:
    r"""JSON text with the same meaning, with unprintable characters as ``\u009b``; line ends stay."""
    # JSON requires it only for the first 32 characters. A terminal obeys 33 more, and some reverse a line.
    return _BEYOND_ASCII.sub(lambda found: _json_escaped(found[0]), text)


def _json_escaped(each: str) -> str:
    units = each.encode("utf-16-be", "surrogatepass").hex(" ", 2).split()
    return each if each.isprintable() else "".join(f"\\u{unit}" for unit in units)


def document(kind: str, version: int, result: msgspec.Struct | None = None, /, **more: Any) -> dict[str, Any]:
    """A result as a JSON object."""
    fields = {} if result is None else json_values(result)
    return {"kind": kind, "version": version, **fields, **json_object(more)}


def json_values(value: Any, *, every: bool = False) -> Any:
    """Structs and plain values for JSON. The keys of mappings are data, and stay.

    Names of fields are in camel case. Times are in seconds or in RFC 3339: ``began_ns`` is ``beganSeconds``,
    ``started_wall_ns`` is ``started``; a begin and an end also give ``tookSeconds``. ``every``: also the
    defaults that a Struct leaves out in the journal.
    """
    if isinstance(value, msgspec.Struct):
        return json_object(struct_fields(value, every=every), every=every)
    if isinstance(value, dict):
        return {str(name): json_values(of, every=every) for name, of in value.items()}
    if isinstance(value, list | tuple):
        return [json_values(each, every=every) for each in value]
    if isinstance(value, bytes):
        return value.hex()
    # Only an edited record has values without a JSON form.
    return value if isinstance(value, str | Real | None) else repr(value)


def json_object(fields: Mapping[str, Any], *, every: bool = False) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, value in fields.items():
        if name == "wall_ns":
            name, value = "time", rfc3339(value)
        elif name.endswith("_wall_ns") and isinstance(value, int | None):
            name, value = name.removesuffix("_wall_ns"), None if value is None else rfc3339(value)
        elif name.endswith("_ns") and isinstance(value, int | None):
            name, value = f"{name.removesuffix('_ns')}_seconds", json_seconds(value)
        first, *rest = name.split("_")
        made[first + "".join(map(str.capitalize, rest))] = json_values(value, every=every)
    began_ns, ended_ns = fields.get("began_ns"), fields.get("ended_ns")
    if began_ns is not None and ended_ns is not None:
        made["tookSeconds"] = json_seconds(ended_ns - began_ns)
    return made


def struct_fields(value: msgspec.Struct, *, every: bool = False) -> dict[str, Any]:
    """Defaults are left out as in the journal, except with ``every``."""
    fields = {name: getattr(value, name) for name in value.__struct_fields__}
    if every or not type(value).__struct_config__.omit_defaults:
        return fields
    defaults = _defaults(type(value))
    return {name: of for name, of in fields.items() if name not in defaults or of != defaults[name]}


@lru_cache(maxsize=256)
def _defaults(kind: Any) -> dict[str, Any]:
    """The look-up is slow."""
    return {
        field.name: field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
        for field in msgspec.structs.fields(kind)
        if not field.required
    }


def rfc3339(wall_ns: int) -> str:
    """``2026-03-01T12:00:00.000000000Z``."""
    seconds, rest_ns = divmod(wall_ns, NS_PER_SECOND)
    return f"{_whole_second(seconds)}.{rest_ns:09d}Z"


def utc_text(wall_ns: int) -> str:
    """For people: ``2026-03-01 12:00:00.123 UTC``."""
    return time_text(rfc3339(wall_ns))


def time_text(time: str | None) -> str:
    """From an RFC 3339 time in UTC; empty for none."""
    return f"{time[:10]} {time[11:23]} UTC" if time else ""


# A listing prints the time of thousands of records within seconds.
@lru_cache(maxsize=64)
def _whole_second(seconds: int) -> str:
    """``2026-03-01T12:00:00``, without `time`, whose range depends on the platform."""
    # In years that begin in March, a month's length follows from its place.
    days, seconds = divmod(seconds, 86_400)
    hours, seconds = divmod(seconds, 3_600)
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month + 2) // 5 + 1
    year, month = era * 400 + year_of_era + month // 10, (month + 2) % 12 + 1
    return f"{year:04d}-{month:02d}-{day:02d}T{hours:02d}:{seconds // 60:02d}:{seconds % 60:02d}"

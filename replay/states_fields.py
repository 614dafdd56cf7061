"""An actor's state as a flat list of named values, to be printed, compared and watched.

A path names a value as the fields do: ``downs[main].phase``. Pods are named, rolls are told as who is open
and who has ended, and a field at its default is left out unless all are wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import msgspec

from actors.logic.actor import NEVER_NS
from actors.logic.roll import Roll
from events.base import NS_PER_SECOND
from events.model import Period, PlannedPod, Pod
from events.words.base import Names

#: Text, a number, a truth value, None, or a list of such.
Flat = str | int | bool | None | list[Any]

#: Ends of the names of fields that hold a moment of the monotonic clock; other ``_ns`` are durations.
MOMENTS = ("deadline_ns", "limit_ns", "at_ns", "by_ns", "since_ns", "until_ns", "begun_ns")

#: What names an element of a list, instead of its place.
_ELEMENT_NAMES = ("spec", "name", "uid")

#: Fields of such an element that its name, or its actor's, says already.
_SAID_ALREADY = (".spec.name", ".name", ".uid")

_PLAIN = (str, int, bool, type(None))

_NS_PER_MS = 1_000_000


def flatten(value: Any, names: Names, *, path: str = "", every: bool = False) -> dict[str, Flat]:
    """Path to value, in the order of the fields, of a state or of a part of it. ``every``: defaults too."""
    return dict(_walk(value, path, names, every))


def plain(value: Any, *, every: bool = False) -> Any:
    """The same as nested plain values, exactly as the state has them; UIDs stay, bytes are hexadecimal."""
    if isinstance(value, msgspec.Struct):
        return {name: plain(of, every=every) for name, of in _fields(value, every=every)}
    if isinstance(value, dict):
        return {str(key): plain(of, every=every) for key, of in value.items()}
    if isinstance(value, tuple | list):
        return [plain(each, every=every) for each in value]
    if isinstance(value, bytes):
        return value.hex()
    # What JSON has no form for stands in an edited record only.
    return value if isinstance(value, _PLAIN) else repr(value)


@lru_cache(maxsize=256)
def _fields_of(kind: type[msgspec.Struct]) -> tuple[tuple[str, bool, Any], ...]:
    """Name, whether it is required, and default; looking these up is slow, and no type changes."""
    return tuple(
        (
            field.name,
            field.required,
            field.default_factory() if field.default_factory is not msgspec.NODEFAULT else field.default,
        )
        for field in msgspec.structs.fields(kind)
    )


def field_names(kind: type[msgspec.Struct]) -> Iterator[str]:
    """In the order in which they are declared."""
    return (name for name, _, _ in _fields_of(kind))


def _fields(value: msgspec.Struct, *, every: bool) -> Iterator[tuple[str, Any]]:
    for name, required, default in _fields_of(type(value)):
        of = getattr(value, name)
        if every or required or of != default:
            yield name, of


def _walk(value: Any, path: str, names: Names, every: bool) -> Iterator[tuple[str, Flat]]:
    brief = _BRIEF.get(type(value))
    if brief is not None:
        yield from brief(value, path, names)
    elif isinstance(value, msgspec.Struct):
        for name, of in _fields(value, every=every):
            yield from _walk(of, f"{path}.{name}" if path else name, names, every)
    elif isinstance(value, dict):
        yield from _mapping(value, path, names, every)
    elif isinstance(value, tuple | list):
        yield from _sequence(value, path, names, every)
    else:
        yield path, _leaf(value, names)


def _mapping(value: dict[Any, Any], path: str, names: Names, every: bool) -> Iterator[tuple[str, Flat]]:
    """Pods by UID are a list of them: what is in them, their own actors show."""
    if value and all(isinstance(of, Pod) for of in value.values()):
        yield path, [pod.label for pod in value.values()]
    elif not value:
        yield path, []
    for key, of in () if not value or path.endswith("pods") else value.items():
        yield from _walk(of, f"{path}[{_named(str(key), names)}]", names, every)


def _sequence(value: Any, path: str, names: Names, every: bool) -> Iterator[tuple[str, Flat]]:
    nested = [each for each in value if isinstance(each, msgspec.Struct)]
    if not nested or type(nested[0]) in SHORT:
        yield path, [_element(each, names) for each in value]
        return
    for at, each in enumerate(value):
        element = f"{path}[{element_name(each, at)}]"
        said = tuple(f"{element}{name}" for name in _SAID_ALREADY)
        yield from (field for field in _walk(each, element, names, every) if every or field[0] not in said)


def _element(value: Any, names: Names) -> Any:
    short = SHORT.get(type(value))
    if short is not None:
        return short(value, names)
    if isinstance(value, tuple | list):
        return ", ".join(str(_leaf(each, names)) for each in value)
    return _leaf(value, names)


def element_name(value: Any, at: int) -> str:
    """How an element of a list is called in a path: by its own name, else by its place."""
    for name in _ELEMENT_NAMES:
        found = getattr(value, name, None)
        found = getattr(found, "name", found)
        if isinstance(found, str):
            return found
    return str(at)


def _leaf(value: Any, names: Names) -> Flat:
    if isinstance(value, str):
        return _named(value, names)
    return value.hex() if isinstance(value, bytes) else value


def _named(text: str, names: Names) -> str:
    """A UID, or the subject in an order's key, by its pod's name."""
    return names.labels.get(text) or "/".join(names.of(part) for part in text.split("/"))


def _pod(value: Pod, path: str, names: Names) -> Iterator[tuple[str, Flat]]:
    yield path, value.label


#: What is told of a roll.
ROLL_FIELDS = ("open", "ended")


def _roll(value: Roll, path: str, names: Names) -> Iterator[tuple[str, Flat]]:
    still_open = list(value.missing())
    gone = dict.fromkeys(still_open)
    yield f"{path}.open", [names.of(uid) for uid in still_open]
    yield f"{path}.ended", [names.of(uid) for uid in value.places if uid not in gone]


_BRIEF: dict[type, Callable[[Any, str, Names], Iterator[tuple[str, Flat]]]] = {Pod: _pod, Roll: _roll}


#: Elements of a list that are a word each.
SHORT: dict[type, Callable[[Any, Names], str]] = {
    Pod: lambda value, names: value.label,
    PlannedPod: lambda value, names: f"{names.of(value.uid)} {value.grace_seconds} s",
    Period: lambda value, names: f"{value.seconds} s from priority {value.priority}",
}


def worded(path: str, value: Flat, signal_ns: int | None) -> str:
    """A value for people: nanoseconds as seconds, moments as seconds since the signal where one is known."""
    if isinstance(value, list):
        words = list(map(str, value))
        return ("; " if any("," in each for each in words) else ", ").join(words) or "none"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if not isinstance(value, int) or not path.endswith("_ns"):
        return str(value) if value != "" else '""'
    if value >= NEVER_NS:
        return "never"
    if path.endswith(MOMENTS) and not value:
        return "none"
    if path.endswith(MOMENTS) and signal_ns is not None:
        return _seconds(value - signal_ns, sign="+")
    return _seconds(value)


def _seconds(ns: int, sign: str = "") -> str:
    """Cut to the millisecond, as everywhere, and without zeros that say nothing."""
    whole, rest = divmod(abs(ns) // _NS_PER_MS, NS_PER_SECOND // _NS_PER_MS)
    fraction = f".{rest:03d}".rstrip("0") if rest else ""
    return f"{'-' if ns < 0 else sign}{whole}{fraction} s"

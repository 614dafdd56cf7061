"""The first difference of a replay, printed: both sides, the causes, the state, and why, probably."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from ebbtide.replay.divergence import Explanation
from ebbtide.replay.replayer import STATEMENTS, Side, ValueChange
from ebbtide.text import visible

#: Of a value in a column, and of a line of data; ``-o json`` has all of it.
COLUMN_CHARACTERS_MAX, LINE_CHARACTERS_MAX = 48, 400

#: Parts of an envelope that are shown where they differ.
_SELDOM = ("mono_ns", "wall_ns", "last")

NO_STATE = "none: it is not there yet, or an edge has none"

Paint = Callable[[str, str], str]


def divergence_document(explained: Explanation) -> dict[str, Any]:
    """The divergence as ``replay verify -o json`` has it. A field at its default is null, or left out."""
    divergence = explained.divergence
    return {
        "seq": divergence.seq,
        "actor": explained.actor,
        "field": divergence.field,
        "expected": _side(divergence.expected),
        "produced": _side(divergence.produced),
        "differences": [_change(row, "expected", "produced") for row in explained.rows if row.differs],
        "causes": [_plain(cause._asdict()) for cause in explained.causes],
        "state": _plain(explained.before),
        "stateChanges": [_change(row, "before", "after") for row in explained.made],
        "reasons": [reason._asdict() for reason in explained.reasons],
    }


def divergence_lines(explained: Explanation, paint: Paint) -> Iterator[str]:
    """The same for people; ``paint(colour, text)`` emphasises what differs."""
    divergence = explained.divergence
    statement = divergence.field if divergence.field in STATEMENTS else f"{divergence.field} differs"
    yield f"record {divergence.seq} of {_named(explained)}: {visible(statement)}"
    yield ""
    yield from _columns(("recorded", "produced"), _envelope(explained), paint)
    yield ""
    yield "because of"
    for cause in explained.causes:
        head = f"{cause.seq:>8}  {visible(cause.type)} of {visible(cause.actor)}"
        yield f"{head}  {_cut(cause.data, LINE_CHARACTERS_MAX)}"
    yield ""
    yield f"state of {_named(explained)} before that step"
    before = explained.before
    yield f"  {_cut(before, LINE_CHARACTERS_MAX) if before is not None else NO_STATE}"
    if explained.made:
        yield ""
        yield "what the step makes of it"
        yield from _columns(("before", "after"), explained.made, paint)
    yield ""
    yield "why, probably"
    for reason in explained.reasons:
        yield f"  {visible(reason.sentence)}"


def _named(explained: Explanation) -> str:
    """The actor, and by name the pod that it is there for."""
    pod = explained.before.get("pod") if isinstance(explained.before, dict) else None
    name = f" ({pod.get('namespace')}/{pod.get('name')})" if isinstance(pod, dict) else ""
    return visible(f"{explained.actor}{name}")


def _envelope(explained: Explanation) -> Iterator[ValueChange]:
    """Both sides as rows: what stands around the event, then its fields."""
    recorded, produced = explained.divergence.expected, explained.divergence.produced
    for name in ("type", "actor", "cause", "episode"):
        yield ValueChange(name, getattr(recorded, name) or None, getattr(produced, name) or None)
    for name in _SELDOM:
        if produced.type and getattr(recorded, name) != getattr(produced, name):
            yield ValueChange(name, getattr(recorded, name), getattr(produced, name))
    yield from explained.rows


def _columns(titles: tuple[str, str], rows: Iterable[ValueChange], paint: Paint) -> Iterator[str]:
    cells = [(visible(row.path), _cell(row.left), _cell(row.right), row.differs) for row in rows]
    width = max((len(name) for name, *_ in cells), default=0)
    left = max([len(titles[0]), *(len(cell[1]) for cell in cells)])
    yield paint("dim", f"    {'':<{width}}  {titles[0]:<{left}}  {titles[1]}")
    for name, one, other, differs in cells:
        text = f"{name:<{width}}  {one:<{left}}  {other}"
        yield paint("differs", f"  > {text}") if differs else f"    {text}"


def _cell(value: Any) -> str:
    return "-" if value is None else _cut(value, COLUMN_CHARACTERS_MAX)


def _cut(value: Any, characters_max: int) -> str:
    text = visible(value if isinstance(value, str) else json.dumps(_plain(value), ensure_ascii=False))
    return text if len(text) <= characters_max else f"{text[: characters_max - 1]}…"


def _side(side: Side) -> dict[str, Any] | None:
    if not side.type:
        return None
    return {
        "type": side.type,
        "actor": side.actor,
        "cause": side.cause or None,
        "monoNs": side.mono_ns,
        "wallNs": side.wall_ns,
        "last": side.last,
        "data": _plain(side.data),
    }


def _change(row: ValueChange, left: str, right: str) -> dict[str, Any]:
    return {"field": row.path, left: _plain(row.left), right: _plain(row.right)}


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value, str_keys=True)

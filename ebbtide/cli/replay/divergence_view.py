"""The result of a verification, and an explained divergence, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from ebbtide.cli.common.guard import unreadable
from ebbtide.events.base import head_text
from ebbtide.events.record.format import visible
from ebbtide.events.recovery import Verdict
from ebbtide.replay.replayer import STATEMENTS, Side, ValueChange
from ebbtide.replay.verify import HIDES, NotedHead, Verification

if TYPE_CHECKING:
    from ebbtide.replay.divergence import Explanation


VERIFICATION_VERSION = 1
#: Differences stand out; column titles are dim.
COLUMN_CHARACTERS_MAX, LINE_CHARACTERS_MAX = 48, 400

DIVERGENCE_STYLES: dict[str, dict[str, Any]] = {
    "differs": {"fg": "red", "bold": True},
    "dim": {"dim": True},
}
NO_STATE = "none: it is not there yet, or an edge has none"
Paint = Callable[[str, str], str]


def head_of(verdict: Verdict) -> str:
    """The form for ``--head``."""
    return head_text(verdict.end.seq, verdict.head)


def why_silent(result: Verification) -> str:
    """Why the result does not cover the whole journal; a torn tail was never a part of it."""
    if result.failure is not None:
        return f"record {result.stopped_seq} cannot be executed: {unreadable(result.failure)}"
    return result.verdict.banner if result.verdict.state in HIDES else ""


def verification_document(
    result: Verification,
    explained: Explanation | None,
    seconds: float,
    noted: NotedHead | None = None,
    headless: str = "",
) -> dict[str, Any]:
    """The promised shape. ``reason``: a part of the journal could not be verified. ``headless``: the id of
    a shutdown without its begin on record. ``head``: the journal's. ``noted``: the result for the given
    head.
    """
    silent = why_silent(result)
    return {
        "kind": "Verification",
        "version": VERIFICATION_VERSION,
        "episodes": result.episodes,
        "events": result.events,
        "identical": result.identical,
        "seconds": round(seconds, 6),
        "divergence": None if explained is None else divergence_document(explained),
        "head": head_of(result.verdict) or None,
        **({"noted": noted.state(result.noted_seq, result.verdict)} if noted else {}),
        **({"reason": silent} if silent else {}),
        **({"headless": headless} if headless else {}),
    }


def divergence_document(explained: Explanation) -> dict[str, Any]:
    """The divergence in ``replay verify -o json``. A field at its default is null, or left out."""
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
    """The same for people; ``paint(colour, text)`` emphasises differences."""
    divergence = explained.divergence
    statement = divergence.field if divergence.field in STATEMENTS else f"{divergence.field} differs"
    yield f"record {divergence.seq} of {_named(explained)}: {visible(statement)}"
    yield ""
    # The event's envelope, then its fields. Times only where they differ: they mostly follow from the
    # facts, and would hide other differences.
    recorded, produced = divergence.expected, divergence.produced
    envelope = [
        ValueChange(name, getattr(recorded, name) or None, getattr(produced, name) or None)
        for name in ("type", "actor", "cause", "episode")
    ]
    envelope += [
        ValueChange(name, getattr(recorded, name), getattr(produced, name))
        for name in ("mono_ns", "wall_ns", "last")
        if produced.type and getattr(recorded, name) != getattr(produced, name)
    ]
    yield from _columns(("recorded", "produced"), [*envelope, *explained.rows], paint)
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
    """The actor, with its pod's name."""
    pod = explained.before.get("pod") if isinstance(explained.before, dict) else None
    name = f" ({pod.get('namespace')}/{pod.get('name')})" if isinstance(pod, dict) else ""
    return visible(f"{explained.actor}{name}")


def _columns(titles: tuple[str, str], rows: Iterable[ValueChange], paint: Paint) -> Iterator[str]:
    cells = [(visible(row.path), _cell(row.left), _cell(row.right), row.differs) for row in rows]
    width = max((len(name) for name, *_ in cells), default=0)
    left = max([len(titles[0]), *(len(cell[1]) for cell in cells)])
    yield paint("dim", f"    {'':<{width}}  {titles[0]:<{left}}  {titles[1]}".rstrip())
    for name, one, other, differs in cells:
        text = f"{name:<{width}}  {one:<{left}}  {other}"
        yield paint("differs", f"  > {text}".rstrip()) if differs else f"    {text}"


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

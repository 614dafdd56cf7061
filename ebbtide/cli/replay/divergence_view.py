"""The result of a verification, and an explained divergence, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ebbtide.cli.common.guard import unreadable
from ebbtide.events.base import head_text
from ebbtide.events.record.format import document, json_values, visible
from ebbtide.events.recovery import Verdict
from ebbtide.replay.replayer import NO_RECORD, STATEMENTS, ValueChange
from ebbtide.replay.verify import HIDES, NotedHead, Verification

if TYPE_CHECKING:
    from ebbtide.replay.divergence import Explanation


VERIFICATION_VERSION = 1
COLUMN_CHARACTERS_MAX, LINE_CHARACTERS_MAX = 48, 400

DIVERGENCE_STYLES: dict[str, dict[str, Any]] = {
    "differs": {"fg": "red", "bold": True},
    "dim": {"dim": True},
}
NO_STATE = "none: it is not there yet, or an edge has none"
Paint = Callable[[str, str], str]


def head_of(verdict: Verdict) -> str:
    """As for ``--head``."""
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
    """``head``: the journal's. Only where there are any: ``noted``, the result for the given head;
    ``reason``, why a part was not verified; ``headless``, the id of a shutdown without its begin on record.
    """
    remarks = {
        "noted": noted.state(result.noted_seq, result.verdict) if noted else "",
        "reason": why_silent(result),
        "headless": headless,
    }
    return document(
        "Verification",
        VERIFICATION_VERSION,
        **{name: text for name, text in remarks.items() if text},
        episodes=result.episodes,
        events=result.events,
        identical=result.identical,
        seconds=round(seconds, 6),
        divergence=explained,
        head=head_of(result.verdict) or None,
    )


def divergence_lines(explained: Explanation, paint: Paint) -> Iterator[str]:
    """``paint(colour, text)`` emphasises differences."""
    statement = explained.field if explained.field in STATEMENTS else f"{explained.field} differs"
    yield f"record {explained.seq} of {_named(explained)}: {visible(statement)}"
    yield ""
    # Times only where they differ: they mostly follow from the facts.
    recorded, produced = explained.expected or NO_RECORD, explained.produced or NO_RECORD
    envelope = [
        ValueChange(name, getattr(recorded, name) or None, getattr(produced, name) or None)
        for name in ("type", "actor", "cause", "episode")
    ]
    envelope += [
        ValueChange(name, getattr(recorded, name), getattr(produced, name))
        for name in ("mono_ns", "wall_ns", "last")
        if produced.type and getattr(recorded, name) != getattr(produced, name)
    ]
    yield from _columns(("recorded", "produced"), [*envelope, *explained.differences], paint)
    yield ""
    yield "because of"
    for cause in explained.causes:
        head = f"{cause.seq:>8}  {visible(cause.type)} of {visible(cause.actor)}"
        yield f"{head}  {_cut(cause.data, LINE_CHARACTERS_MAX)}"
    yield ""
    yield f"state of {_named(explained)} before that step"
    yield f"  {_cut(explained.state, LINE_CHARACTERS_MAX) if explained.state is not None else NO_STATE}"
    if explained.state_changes:
        yield ""
        yield "what the step makes of it"
        yield from _columns(("before", "after"), explained.state_changes, paint)
    yield ""
    yield "why, probably"
    for reason in explained.reasons:
        yield f"  {visible(reason.sentence)}"


def _named(explained: Explanation) -> str:
    """With its pod's name."""
    pod = explained.state.get("pod") if isinstance(explained.state, dict) else None
    name = f" ({pod.get('namespace')}/{pod.get('name')})" if isinstance(pod, dict) else ""
    return visible(f"{explained.actor}{name}")


def _columns(titles: tuple[str, str], rows: Iterable[ValueChange], paint: Paint) -> Iterator[str]:
    cells = [(visible(row.path), _cell(row.left), _cell(row.right), row.left != row.right) for row in rows]
    width = max((len(name) for name, *_ in cells), default=0)
    left = max([len(titles[0]), *(len(cell[1]) for cell in cells)])
    yield paint("dim", f"    {'':<{width}}  {titles[0]:<{left}}  {titles[1]}".rstrip())
    for name, one, other, differs in cells:
        text = f"{name:<{width}}  {one:<{left}}  {other}"
        yield paint("differs", f"  > {text}".rstrip()) if differs else f"    {text}"


def _cell(value: Any) -> str:
    return "-" if value is None else _cut(value, COLUMN_CHARACTERS_MAX)


def _cut(value: Any, characters_max: int) -> str:
    text = visible(value if isinstance(value, str) else json.dumps(json_values(value), ensure_ascii=False))
    return text if len(text) <= characters_max else f"{text[: characters_max - 1]}…"

"""How one event of a walk looks: what it was, what led to it, and what it changed in whom."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ebbtide.cli.events import rfc3339
from ebbtide.cli.replaying.timeline_show import BAD, GLYPHS, since
from ebbtide.text import visible
from events.base import NS_PER_SECOND
from replay.states_fields import Flat, plain, worded
from replay.stepping import Seen, Stepper
from replay.stepping_changes import FieldChange, Watch, field_changes
from replay.timeline import Line, actor_name, named

#: Changes of one event that a terminal shows; ``-o json`` has them all.
CHANGES_MAX = 40
#: A checkpoint of a thousand pods is a megabyte; ``-o json`` has all of it.
DATA_CHARACTERS_MAX = 1000
#: Elements of a list that came or went, by name.
ELEMENTS_MAX = 6

VIEW_VERSION = 1


def view(stepper: Stepper, watches: list[Watch]) -> Iterator[str]:
    """The lines for people, not cut to any width."""
    yield from map(visible, _lines(stepper, watches))


def _lines(stepper: Stepper, watches: list[Watch]) -> Iterator[str]:
    line = stepper.here.line
    first, last = stepper.step_bounds()
    place = f", {line.seq - first + 1} of {last - first + 1} in its step" if last > first else ""
    clock = rfc3339(line.wall_ns)
    yield (
        f"record {line.seq} of {stepper.first_seq}-{stepper.last_seq}{place}"
        f"   {since(line.since_ns)} s   {clock[:10]} {clock[11:23]} UTC"
    )
    yield told(line)
    data = named(line.data, stepper.names)
    cut = data if len(data) <= DATA_CHARACTERS_MAX else f"{data[:DATA_CHARACTERS_MAX]}…"
    yield f"  {line.type}{'  ' + cut if cut else ''}"
    yield from _causes(stepper)
    yield from _changes(stepper)
    yield from _watched(stepper, watches)


def told(line: Line) -> str:
    """``! hook  shop/stuck-0  main: SIGKILL``."""
    glyph = BAD if line.bad else GLYPHS[line.kind]
    wave = f"wave {line.wave}"
    told_already = line.wave is None or line.text.startswith(wave)
    parts = [line.short, "" if told_already else wave, line.pod, line.text]
    return f"{glyph} {'  '.join(part for part in parts if part)}"


def _causes(stepper: Stepper) -> Iterator[str]:
    answers, causes = stepper.here.point.answers, stepper.causes()
    if not causes and answers is None:
        return
    yield "because of"
    for seen in causes:
        yield f"  {seen.line.seq:>6} {told(seen.line)}"
    answers = (causes[-1] if causes else stepper.here).point.answers
    if answers is not None:
        yield f"  {answers.seq:>6} > {type(answers.order).__name__}, the order that this is the outcome of"


def _changes(stepper: Stepper) -> Iterator[str]:
    changes = list(field_changes(stepper.here.point.changes, stepper.names))
    yield "changed" if changes else "changed nobody"
    name = ""
    for change in changes[:CHANGES_MAX]:
        actor = actor_name(change.actor, stepper.names)
        yield f"  {'' if actor == name else actor:<24} {_arrow(stepper, change)}"
        name = actor
    if len(changes) > CHANGES_MAX:
        yield f"  and {len(changes) - CHANGES_MAX} fields more"


def _arrow(stepper: Stepper, change: FieldChange) -> str:
    path, before, after = change.path, change.before, change.after
    if isinstance(before, list) and isinstance(after, list):
        return f"{path}: {_came_and_went(before, after)}"
    signal_ns = _signal_ns(stepper.here)
    old, new = (_word(path, value, signal_ns) for value in (before, after))
    return f"{path}: {old} -> {new}"


def _word(path: str, value: Flat, signal_ns: int) -> str:
    return "-" if value is None else worded(path, value, signal_ns)


def _came_and_went(before: list[Any], after: list[Any]) -> str:
    old, now = (dict.fromkeys(map(str, each)) for each in (before, after))
    gone = [f"-{each}" for each in old if each not in now]
    new = [f"+{each}" for each in now if each not in old]
    shown = [*gone[:ELEMENTS_MAX], *new[:ELEMENTS_MAX]]
    more = len(gone) + len(new) - len(shown)
    return " ".join(shown) + (f" and {more} more" if more else "") or "in another order"


def _signal_ns(seen: Seen) -> int:
    """The signal on this event's monotonic clock."""
    return seen.point.raw.mono_ns - seen.line.since_ns


def _watched(stepper: Stepper, watches: list[Watch]) -> Iterator[str]:
    for watch in watches:
        changed = watch.changes(stepper.here, stepper.names)
        mark = "*" if changed else " "
        yield f"watching {mark} {' '.join(part for part in watch if part)}"


def document(stepper: Stepper) -> dict[str, Any]:
    """The same for scripts: one object an event."""
    line, point = stepper.here.line, stepper.here.point
    first, last = stepper.step_bounds()
    changes = field_changes(point.changes, stepper.names)
    return {
        "kind": "Step",
        "version": VIEW_VERSION,
        "seq": line.seq,
        "stepFirst": first,
        "stepLast": last,
        "time": rfc3339(line.wall_ns),
        "sinceSeconds": line.since_ns / NS_PER_SECOND,
        "actor": line.actor,
        "type": line.type,
        "pod": line.pod or None,
        "text": line.text,
        "data": plain(line.data),
        "causes": [seen.line.seq for seen in stepper.causes()],
        "answers": point.answers.seq if point.answers is not None else None,
        "changes": [
            {
                "actor": actor_name(change.actor, stepper.names),
                "field": change.path,
                "before": change.before,
                "after": change.after,
            }
            for change in changes
        ],
    }

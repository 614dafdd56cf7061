"""One line a transition, for the system log and a pipe: what an operator reads at default verbosity.

The sentences are those of `events.words`, told from events alone, so that a journal read later gives the same
lines; only records above the resume point are told, and once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ebbtide.lines.base import Line, Lines
from ebbtide.lines.forms import BAD_ONLY, FORMS, SPECIAL
from ebbtide.text import visible
from events.decisions import ShutdownBegan
from events.record import Record, Stamp
from events.words import WARNING, say


def tell(lines: Lines, records: Sequence[Record]) -> Iterator[Line]:
    """The lines of these records, each with its sd-daemon(3) level: never more than one line an entry."""
    return (line for record in records for line in told_of(lines, record))


def told_of(lines: Lines, record: Record) -> Iterator[Line]:
    """The lines of one record, mostly none or one."""
    if type(record.event) is ShutdownBegan:
        lines.began_ns = record.mono_ns
    yield from ((level, visible(line)) for level, line in _lines(lines, record))


def _lines(lines: Lines, record: Record) -> Iterator[Line]:
    event, at = record.event, Stamp(record.mono_ns, record.wall_ns)
    said = say(lines.names, event, at)
    if said is None:
        return
    special, form = SPECIAL.get(type(event)), FORMS.get(type(event))
    if special is not None:
        yield from special(lines, event, said)
    elif form is not None and (said.level <= WARNING or type(event) not in BAD_ONLY):
        yield said.level, form.format(text=said.text, since=lines.since(at), pod=_pod(lines, event))


def _pod(lines: Lines, event: object) -> str:
    """The name of the one pod that an event is about; empty for one about no pod, or many."""
    pod = getattr(event, "pod", None)
    return lines.names.of(getattr(event, "uid", "") or getattr(pod, "uid", ""))


__all__ = ["FORMS", "SPECIAL", "Line", "Lines", "tell", "told_of"]

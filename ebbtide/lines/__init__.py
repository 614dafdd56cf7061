"""One line a transition, for the system log and a pipe: what an operator reads at default verbosity.

Tables from event type to a function that words it. Everything is told from events alone, so that a
journal read later gives the same lines; only records above the resume point are told, and once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ebbtide.lines import node, shutdown
from ebbtide.lines.base import Line, Lines
from ebbtide.text import visible
from events.record import Record

TELL = {**node.TELL, **shutdown.TELL}


def tell(lines: Lines, records: Sequence[Record]) -> Iterator[Line]:
    """The lines of these records, each with its sd-daemon(3) level: never more than one line an entry."""
    for record in records:
        teller = TELL.get(type(record.event))
        if teller is not None:
            yield from ((level, visible(line)) for level, line in teller(lines, record.event, record))


__all__ = ["TELL", "Line", "Lines", "tell"]

"""The daemon's log: one line a transition, told once its record is written and its orders are out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

import trio

from ebbtide.lines import Lines, told_of
from ebbtide.surroundings import Report
from events.base import BARRIER_NS_MAX, NS_PER_SECOND
from events.record import Record

#: How long the log's lines wait for their records to be written: a little longer than the orders do.
LOG_SECONDS_MAX = 2 * BARRIER_NS_MAX / NS_PER_SECOND


Fields = Callable[[Record], Mapping[str, str]]


class Log:
    """``wait_written`` is the journal's; ``to`` takes the lines with their levels and their ``fields``."""

    def __init__(
        self, lines: Lines, wait_written: Callable[[int], Awaitable[bool]], to: Report, fields: Fields
    ) -> None:
        self._lines, self._wait_written, self._to, self._fields = lines, wait_written, to, fields
        self._untold: list[Record] = []
        self._told_of = trio.Event()

    def keep(self, records: Sequence[Record]) -> None:
        """An observer of steps."""
        self._untold += records
        self._told_of.set()

    async def run(self) -> None:
        """Tell what happened once it is on record and its orders are out: a hundred lines in the log must
        not stand between the signal and the first stop.
        """
        try:
            while True:
                await self._told_of.wait()
                with trio.move_on_after(LOG_SECONDS_MAX):
                    await self._wait_written(self._untold[-1].seq)
                await trio.lowlevel.checkpoint()  # the orders that waited for the same write go first
                self._tell_all()
        finally:
            self._tell_all()

    def _tell_all(self) -> None:
        records, self._untold, self._told_of = self._untold, [], trio.Event()
        for record in records:
            for level, line in told_of(self._lines, record):
                self._to(level, line, self._fields(record))

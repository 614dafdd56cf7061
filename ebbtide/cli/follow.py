"""Following a journal that is still being written: the same whole steps, as soon as they are there.

Every look takes up behind the last good frame, so that it costs what is new. A frame that is cut short is one
that is being written.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from events.catalog import Segment, find_path
from events.frames import RawRecord
from events.history import Batch
from events.scan import Scan
from events.segment import Link
from events.source import Source

#: Soon enough for eyes, and seldom enough for an idle machine.
LOOK_SECONDS = 0.2


class Tail:
    """``new`` gives the whole steps that were written since the last call."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources
        self._end: Link | None = None
        self._open_step: list[RawRecord] = []

    def new(self) -> Iterator[Batch]:
        """Raises OSError where a location cannot be listed."""
        segments = find_path(self._sources).segments
        for index, segment in enumerate(segments):
            following = segments[index + 1].header if index + 1 < len(segments) else None
            limit = following.link if following is not None else None
            if self._end is None or segment.number >= self._end.segment:
                yield from self._steps(segment, limit)

    def _steps(self, segment: Segment, limit: Link | None) -> Iterator[Batch]:
        scan = Scan(segment, limit)
        if self._end is not None and segment.number == self._end.segment:
            scan.end = self._end
        for piece in scan.pieces():
            records = [*self._open_step, *piece.records[: piece.whole]]
            self._open_step = (
                piece.records[piece.whole :] if piece.whole else [*self._open_step, *piece.records]
            )
            if piece.whole:
                yield Batch(piece.header, records)
        self._end = scan.end


def follow(sources: Sequence[Source]) -> Iterator[Batch | None]:
    """All there is, then what comes, for ever; None whenever everything so far has been given."""
    tail = Tail(sources)
    while True:
        yield from tail.new()
        yield None
        time.sleep(LOOK_SECONDS)

"""A part of a journal as a source of its own: the segments that a shutdown stands in, or all that count.

A part begins where nothing older is needed, and ends where the next segment goes on: what a process left
behind that place counts for nothing in the whole, and would look like damage in the part. Of a damaged
journal it is a part of what can be used, and says so (`events.stated`).
"""

from __future__ import annotations

from typing import NamedTuple

from events.catalog import Path, Segment
from events.history import History
from events.recovery import Finding
from events.source import StoredFile


class Piece(NamedTuple):
    """``size_bytes`` of a segment, from its begin."""

    segment: Segment
    size_bytes: int


class Excerpt:
    """`events.source.Source` over pieces. Reading touches nothing, and happens when it is asked for."""

    def __init__(self, location: str, pieces: list[Piece], stated: tuple[Finding, ...] = ()) -> None:
        self.location = location
        self.stated = stated
        self.pieces = {piece.segment.name: piece for piece in pieces}

    def files(self) -> list[StoredFile]:
        """By name; all that counts of each."""
        found = [
            StoredFile(name, piece.size_bytes, piece.segment.modified_ns)
            for name, piece in self.pieces.items()
        ]
        return sorted(found)

    def read(self, name: str, offset: int, size: int) -> bytes:
        piece = self.pieces[name]
        left = max(0, min(size, piece.size_bytes - offset))
        return piece.segment.source.read(name, offset, left) if left else b""


def whole(history: History) -> Excerpt:
    """Everything that belongs to the journal, damaged ends and what stands before a gap included."""
    path = history.path
    pieces = [Piece(segment, segment.size) for segment in (*path.older, *path.segments, *path.tail)]
    return Excerpt(_location(path), pieces, history.stated)


def around(history: History, first_seq: int, last_seq: int) -> Excerpt:
    """The segments of the records from one to another, from the last checkpoint before them on.

    ``history`` must have been read to its end: nothing behind what it found to be intact is in it. Raises
    events.history.Unread.
    """
    segments, verdict = history.segments, history.verdict
    starts = [_first_seq(segment) for segment in segments]
    fronts = [
        at
        for at, segment in enumerate(segments)
        if starts[at] <= first_seq and (segment.begins_with_checkpoint() or at == 0)
    ]
    front = fronts[-1] if fronts else 0
    back = max([at for at, start in enumerate(starts) if start <= last_seq], default=0)
    pieces = [Piece(segment, segment.size) for segment in segments[front : back + 1]]
    following = segments[back + 1].header if back + 1 < len(segments) else None
    if pieces and segments[back].number == verdict.end.segment:
        pieces[-1] = Piece(segments[back], verdict.end.offset)
    elif following is not None and pieces:
        pieces[-1] = Piece(segments[back], following.link.offset)
    return Excerpt(_location(history.path), pieces, verdict.findings)


def _first_seq(segment: Segment) -> int:
    assert segment.header is not None
    return segment.header.link.seq + 1


def _location(path: Path) -> str:
    return path.segments[0].source.location if path.segments else ""

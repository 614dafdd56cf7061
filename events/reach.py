"""Which copy counts where a move itself was cut short.

A segment that carries records over repeats what stands in the file that failed. A crash in the middle may
leave the copy shorter than the original; then the original counts, and the copy is judged like any other
file behind the end.
"""

from __future__ import annotations

from events.catalog import Path, Segment
from events.scan import Scan

SHORTER = "it carries less than the file that it was to replace"


def furthest(path: Path) -> Path:
    """The path without the carrying segments at its end that reach less far than what they carry on from."""
    copies = _copies(path.segments)
    if copies < 2:
        return path
    reached = [_reach(segment) for segment in path.segments[-copies:]]
    best = max(range(copies), key=lambda at: (reached[at], at))
    kept = len(path.segments) - copies + best + 1
    dropped = tuple(segment._replace(problem=SHORTER) for segment in path.segments[kept:])
    return path._replace(segments=path.segments[:kept], tail=(*dropped, *path.tail))


def _copies(segments: tuple[Segment, ...]) -> int:
    """How many segments at the end repeat each other: those that carry, and the one before them."""
    for count, segment in enumerate(reversed(segments), 1):
        if segment.header is None or not segment.header.carries:
            return count
    return len(segments)


def _reach(segment: Segment) -> int:
    """The number of the last record of a segment's last whole step, whatever links into it."""
    assert segment.header is not None
    seq, scan = segment.header.link.seq, Scan(segment, None)
    for piece in scan.pieces():
        if piece.whole:
            seq = piece.whole_end.seq
    return seq

"""Keeping the journal small: whole segments go, oldest first, and only as a whole.

What may go is a rule over sizes, ages and places; the rule is a pure function, so that every case of it can
be tested, and the removing is a loop around it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.catalog import Segment, Source, find_path, find_segments
from ebbtide.events.disk import Storage

#: Outside of an episode a segment that has grown by so much is sealed: a start reads the newest one again,
#: and 1 MiB of records takes it 50 ms.
SEGMENT_BYTES_MAX = 1024 * 1024
#: A month of idle days and a hundred shutdowns of a hundred pods fit.
TOTAL_BYTES_MAX = 64 * 1024 * 1024
AGE_NS_MAX = 90 * 24 * 3600 * NS_PER_SECOND
#: Above this even an undelivered status and an unexported span go: a full disk would take more.
HARD_BYTES_MAX = 256 * 1024 * 1024


class Limits(NamedTuple):
    """What a location may hold. Sizes in bytes, the age in nanoseconds since a segment was last written.

    ``whole_episodes``: what is left begins where none is open, so that each goes as a whole or stays.
    """

    total_bytes: int = TOTAL_BYTES_MAX
    age_ns: int = AGE_NS_MAX
    hard_bytes: int = HARD_BYTES_MAX
    whole_episodes: bool = False


LIMITS = Limits()
#: Of one node's outages, in the API server: a thousand nodes that all had some take a quarter of what etcd
#: has room for by default (2 GiB). An open one stays, whatever its size.
OUTAGE_LIMITS = Limits(total_bytes=512 * 1024, hard_bytes=1 << 62, whole_episodes=True)


class Held(NamedTuple):
    """A segment as the rule sees it."""

    size: int
    modified_ns: int
    #: The first record number that it may hold.
    seq_from: int
    #: Reading can begin here: its first record is a checkpoint.
    checkpoint: bool
    #: Of the journal that is being written, and on its path. Nobody needs any other.
    current: bool = True


def removable(held: Sequence[Held], now_wall_ns: int, keep_from_seq: int | None, limits: Limits) -> int:
    """How many segments go, of those given oldest first; the last one never goes.

    What is left begins with a checkpoint. Record ``keep_from_seq`` and all after it stay: the first record of
    an open episode or an undelivered status, or the first above a projection's cursor, whichever is least
    (None: nothing is needed). Above the hard cap they go all the same.
    """
    # Only as a whole up to a place where reading can begin: ``gone`` moves from checkpoint to checkpoint, and
    # a segment in between goes with the one before or stays with the one behind.
    gone, left_bytes = 0, sum(segment.size for segment in held)
    for upto in range(1, len(held)):
        # Reading begins at the first segment of the path that stays, not at a stray copy before it.
        front = next((segment for segment in held[upto:] if segment.current), None)
        loses = any(segment.current for segment in held[gone:upto])
        if loses and (front is None or not front.checkpoint):
            continue
        too_old = now_wall_ns - held[upto - 1].modified_ns > limits.age_ns
        needed = loses and front and keep_from_seq is not None and front.seq_from > keep_from_seq
        # What is needed stays up to the hard cap only: above it a full disk would take the journal of the
        # next shutdown, and that is worth more than a span that nobody fetched for months.
        if left_bytes <= limits.hard_bytes and (needed or not (too_old or left_bytes > limits.total_bytes)):
            break
        left_bytes -= sum(segment.size for segment in held[gone:upto])
        gone = upto
    return gone


async def trim(
    storages: Sequence[Storage],
    now_wall_ns: int,
    keep_from_seq: int | None,
    limits: Limits = LIMITS,
    on_removing: Callable[[str], None] = lambda name: None,
    on_removed: Callable[[str], None] = lambda name: None,
) -> list[str]:
    """Remove what may go, over all locations as one journal; the names. Raises OSError.

    The caller bounds it: a hung disk is a reason to leave old segments where they are. Where this fails or is
    given up, ``on_removed`` has been told what is gone, and ``on_removing`` of the one that may be.
    """
    if not storages:
        return []
    sources = [storage.source for storage in storages]
    segments, held = await storages[0].call(_survey, sources, limits.whole_episodes)
    gone = segments[: removable(held, now_wall_ns, keep_from_seq, limits)]
    by_location = {storage.location: storage for storage in storages}
    # The oldest first, each durable before the next: where this dies in between, what is left is still one
    # end of the journal without a hole.
    for segment in gone:
        on_removing(segment.name)
        await by_location[segment.source.location].remove(segment.name)
        on_removed(segment.name)
    return [segment.name for segment in gone]


def _survey(sources: Sequence[Source], whole_episodes: bool) -> tuple[list[Segment], list[Held]]:
    segments = find_segments(sources)
    path = {(segment.source.location, segment.name) for segment in find_path(sources).segments}
    held = []
    for segment in segments:
        current = (segment.source.location, segment.name) in path
        seq_from = segment.header.link.seq + 1 if segment.header else 0
        checkpoint = current and segment.begins_with_checkpoint(between_episodes=whole_episodes)
        held.append(Held(segment.size, segment.modified_ns, seq_from, checkpoint, current))
    return segments, held

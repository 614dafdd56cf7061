"""Keeping the journal small: remove whole segments, oldest first.

`removable`, a pure function over sizes, ages and places, chooses them; `trim` removes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.catalog import Segment, Source, find_path, find_segments
from ebbtide.events.disk import Storage

#: Outside of an episode, seal a segment of this size: a start reads the newest one again, 50 ms for 1 MiB.
SEGMENT_BYTES_MAX = 1024 * 1024
#: A month of idle days and a hundred shutdowns of a hundred pods fit.
TOTAL_BYTES_MAX = 64 * 1024 * 1024
AGE_NS_MAX = 90 * 24 * 3600 * NS_PER_SECOND
#: Above this even an undelivered status and an unexported span go: a full disk would take more.
HARD_BYTES_MAX = 256 * 1024 * 1024


class Limits(NamedTuple):
    """The bounds of a location: bytes, and nanoseconds since a segment's last write.

    ``whole_episodes``: the rest begins outside of an episode, so that each goes or stays as a whole.
    """

    total_bytes: int = TOTAL_BYTES_MAX
    age_ns: int = AGE_NS_MAX
    hard_bytes: int = HARD_BYTES_MAX
    whole_episodes: bool = False


LIMITS = Limits()
#: One node's outages in the API server: a thousand such nodes take a quarter of etcd's default space (2 GiB).
#: An open outage stays, whatever its size.
OUTAGE_LIMITS = Limits(total_bytes=512 * 1024, hard_bytes=1 << 62, whole_episodes=True)


class Held(NamedTuple):
    """A segment, for the rule."""

    size: int
    modified_ns: int
    #: The lowest record number that it may have.
    seq_from: int
    #: Its first record is a checkpoint, so reading can begin here.
    checkpoint: bool
    #: On the path of the current journal. Other segments are useless.
    current: bool = True


def removable(held: Sequence[Held], now_wall_ns: int, keep_from_seq: int | None, limits: Limits) -> int:
    """How many of these segments, oldest first, go; the last one never goes.

    The rest begins with a checkpoint. Record ``keep_from_seq`` and all later ones stay: the first record of
    an open episode or an undelivered status, or the first above a projection's cursor, whichever is least
    (None: none of them). Above the hard cap they go all the same.
    """
    # ``gone`` moves from checkpoint to checkpoint; a segment in between goes with the one before or stays
    # with the one behind.
    gone, left_bytes = 0, sum(segment.size for segment in held)
    for upto in range(1, len(held)):
        # Reading begins at the first segment of the path that stays, not at a stray copy before it.
        front = next((segment for segment in held[upto:] if segment.current), None)
        loses = any(segment.current for segment in held[gone:upto])
        if loses and (front is None or not front.checkpoint):
            continue
        too_old = now_wall_ns - held[upto - 1].modified_ns > limits.age_ns
        needed = loses and front and keep_from_seq is not None and front.seq_from > keep_from_seq
        # Needed records stay up to the hard cap: above it a full disk would take the next shutdown's journal,
        # which is worth more than an old unexported span.
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
    on_removed: Callable[[str], None] = lambda name: None,
) -> list[str]:
    """Remove segments over all locations as one journal; returns their names. Raises OSError.

    The caller bounds it: on a hung disk old segments may stay. ``on_removed`` gets each name after its
    removal.
    """
    if not storages:
        return []
    sources = [storage.source for storage in storages]
    segments, held = await storages[0].call(_survey, sources, limits.whole_episodes)
    gone = segments[: removable(held, now_wall_ns, keep_from_seq, limits)]
    by_location = {storage.location: storage for storage in storages}
    # The oldest first, each durable before the next: at any moment the rest is one end of the journal without
    # a hole.
    for segment in gone:
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

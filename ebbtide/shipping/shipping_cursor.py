"""Which segments are closed, what is on record of them beside the journal, and what retention keeps."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from ebbtide.events.catalog import Segment, Source, find_path, find_segments
from ebbtide.events.files import replace_file
from ebbtide.shipping.shipping_destination import Store


def closed_segments(sources: Sequence[Source]) -> list[Segment]:
    """Those that nobody will ever write to again, oldest first: a later one with a whole header is there.

    Of every journal in these locations the segments of its path; what failed beside it, or has no header that
    can be read, counts for nothing. Raises OSError.
    """
    # The writer begins a segment only behind a sync of the one before, or carries over what that lacks: what
    # is closed is durable.
    found = find_segments(sources)
    last = max((segment.number for segment in found if segment.header is not None), default=0)
    journals = dict.fromkeys(segment.journal for segment in found if segment.header is not None)
    paths = [find_path(sources, journal) for journal in journals]
    segments = [segment for path in paths for segment in (*path.older, *path.segments)]
    return sorted((each for each in segments if each.number < last), key=lambda each: each.number)


# --- what is on record -----------------------------------------------------------------------------

FILE_NAME, LOCK_NAME = "shipped.json", "shipped.lock"
FORMAT = 1
#: An entry has some 180 bytes, and the journal's hard cap leaves room for a few thousand segments.
CURSOR_BYTES_MAX = 4 * 1024 * 1024

#: ``stored``: the store took the bytes and verified their checksum. ``present``: something stood there under
#: that name already, and nobody has looked at its content. ``unfit``: it cannot be redacted, and stays here.
Outcome = Literal["stored", "present", "unfit"]


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one segment. ``sha256`` of the bytes that were offered; empty for an unfit one."""

    outcome: Outcome
    wall_ns: int
    sha256: str = ""
    reason: str = ""


class Shipped(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The cursor: it saves requests, and is evidence of nothing. The counts go on for the metrics.

    ``reason``: why the store has not taken what was offered last; empty where it has.
    """

    store: str
    format: int = FORMAT
    segments: dict[str, Entry] = {}
    stored: int = 0
    present: int = 0
    failed: int = 0
    #: Removed here before they were known to be in the store.
    lost: int = 0
    wall_ns: int = 0
    reason: str = ""


def load_shipped(directory: str | os.PathLike[str], store: Store) -> Shipped:
    """An empty one where there is none of this store: then everything is offered again. Raises nothing."""
    with suppress(OSError, ValueError, RecursionError), open(Path(directory) / FILE_NAME, "rb") as file:
        data = file.read(CURSOR_BYTES_MAX + 1)
        found = msgspec.json.decode(data, type=Shipped)
        if len(data) <= CURSOR_BYTES_MAX and (found.format, found.store) == (FORMAT, store.identity):
            return found
    return Shipped(store=store.identity)


def load_shipped_first(directories: Sequence[str | os.PathLike[str]], store: Store) -> Shipped:
    """The newest of those that are there: the journal may have moved and come back."""
    return max((load_shipped(each, store) for each in directories), key=lambda each: each.wall_ns)


def save_shipped(directory: str | os.PathLike[str], shipped: Shipped) -> None:
    """Durable when it returns. Raises OSError."""
    data = msgspec.json.format(msgspec.json.encode(shipped), indent=2) + b"\n"
    replace_file(Path(directory), FILE_NAME, data)


class Backlog(NamedTuple):
    """Closed segments of all journals that are not settled, as far as is known; ``keep_from_seq``: the first
    record of the journal that is written which is in one of them, else the first of its last segment.
    ``accounted``: all files that are there, and all segments that are settled.
    """

    names: frozenset[str]
    keep_from_seq: int
    accounted: frozenset[str]


def backlog(locations: Sequence[str], sources: Sequence[Source], journal_id: bytes, store: Store) -> Backlog:
    """For retention. Raises OSError."""
    known = load_shipped_first(locations, store).segments
    names = frozenset(each.name for each in closed_segments(sources) if each.name not in known)
    path = find_path(sources, journal_id.hex()).segments
    first = next((each for each in path if each.name in names), path[-1] if path else None)
    header = first.header if first is not None else None
    there = {file.name for source in sources for file in source.files()}
    return Backlog(names, header.link.seq + 1 if header is not None else 1, frozenset(there | known.keys()))

"""How far a journal's spans have been delivered: one small file beside the journal.

A lost cursor costs a repetition, never a span: each span has the same bytes again, and a back end keeps one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from ebbtide.events.files import read_own, replace_file

FILE_NAME = "traces.json"
LOCK_NAME = "traces.lock"
FORMAT = 1

#: A cursor has a few kilobytes.
CURSOR_BYTES_MAX = 256 * 1024


class Cursor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``seq``: every span that ended at or before this record is acknowledged, or was rejected.

    ``from_seq``: reading from this record on makes the other spans again.
    """

    format: int = FORMAT
    journal: str
    seq: int = 0
    from_seq: int = 1
    wall_ns: int = 0

    def of(self, journal: str, end_seq: int) -> bool:
        """Whether it fits a journal that ends at record ``end_seq``. A cursor ahead of the journal would skip
        later records.
        """
        return self.journal == journal and self.seq <= end_seq and self.from_seq <= end_seq + 1


def load(directory: str | os.PathLike[str]) -> Cursor | None:
    """None: there is no usable cursor, so everything is sent again. Raises OSError."""
    try:
        data = read_own(Path(directory) / FILE_NAME, CURSOR_BYTES_MAX + 1)
        cursor = msgspec.json.decode(data, type=Cursor)
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return None
    sound = cursor.format == FORMAT and cursor.seq >= 0 and cursor.from_seq >= 0
    return cursor if sound and len(data) <= CURSOR_BYTES_MAX else None


def load_first(directories: Sequence[str | os.PathLike[str]]) -> Cursor | None:
    """The newest by the clock: the journal may have moved and come back, or begun anew."""
    found = []
    for directory in directories:
        try:
            found.append(load(directory))
        except OSError:
            continue
    return max((each for each in found if each is not None), key=lambda each: each.wall_ns, default=None)


def save(directory: str | os.PathLike[str], cursor: Cursor) -> None:
    """Durable when it returns. Raises OSError."""
    data = msgspec.json.format(msgspec.json.encode(cursor), indent=2) + b"\n"
    replace_file(Path(directory) / FILE_NAME, data)


def keep_from(directories: Sequence[str | os.PathLike[str]], journal_id: bytes, end_seq: int) -> int:
    """The first record that export still needs, for retention. ``end_seq``: the last durable record."""
    found = load_first(directories)
    # Without a cursor of this journal all of it is needed.
    return found.from_seq if found is not None and found.of(journal_id.hex(), end_seq) else 1


def settled_seq(directories: Sequence[str | os.PathLike[str]], journal_id: Callable[[], bytes]) -> int:
    """The record up to which every span has arrived, for the metrics; 0: not known."""
    cursor = load_first(directories)
    return cursor.seq if cursor is not None and cursor.journal == journal_id().hex() else 0

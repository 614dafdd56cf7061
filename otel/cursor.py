"""The progress of the spans' delivery: one small file beside the journal.

A lost cursor costs a repetition, never a span: each span has the same bytes, so a back end keeps one.
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

#: A cursor has at most a few kilobytes.
CURSOR_BYTES_MAX = 256 * 1024


class Cursor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Every span that ended at or before record ``seq`` is acknowledged or rejected.

    A reader from record ``from_seq`` on makes the others again.
    """

    format: int = FORMAT
    journal: str
    seq: int = 0
    from_seq: int = 1
    wall_ns: int = 0

    def of(self, journal: str, end_seq: int) -> bool:
        """A cursor ahead of the journal, which ends at ``end_seq``, would skip later records."""
        return self.journal == journal and self.seq <= end_seq and self.from_seq <= end_seq + 1


def load(directory: str | os.PathLike[str]) -> Cursor | None:
    """None: without a usable cursor everything is sent again. Raises OSError."""
    try:
        data = read_own(Path(directory) / FILE_NAME, CURSOR_BYTES_MAX + 1)
        cursor = msgspec.json.decode(data, type=Cursor)
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return None
    sound = cursor.format == FORMAT and cursor.seq >= 0 and cursor.from_seq >= 0
    return cursor if sound and len(data) <= CURSOR_BYTES_MAX else None


def load_first(directories: Sequence[str | os.PathLike[str]]) -> Cursor | None:
    """The newest by the clock, because the journal may have moved and returned."""
    found = []
    for directory in directories:
        try:
            found.append(load(directory))
        except OSError:
            continue
    return max((each for each in found if each is not None), key=lambda each: each.wall_ns, default=None)


def save(directory: str | os.PathLike[str], cursor: Cursor) -> None:
    """Durably. Raises OSError."""
    data = msgspec.json.format(msgspec.json.encode(cursor), indent=2) + b"\n"
    replace_file(Path(directory) / FILE_NAME, data)


def keep_from(directories: Sequence[str | os.PathLike[str]], journal_id: bytes, end_seq: int) -> int:
    """For retention, the first record that export still needs. ``end_seq``: the last durable record."""
    found = load_first(directories)
    # Without a cursor of this journal, export needs all of it.
    return found.from_seq if found is not None and found.of(journal_id.hex(), end_seq) else 1


def settled_seq(directories: Sequence[str | os.PathLike[str]], journal_id: Callable[[], bytes]) -> int:
    """For the metrics, the record up to which every span has arrived; 0: unknown."""
    cursor = load_first(directories)
    return cursor.seq if cursor is not None and cursor.journal == journal_id().hex() else 0

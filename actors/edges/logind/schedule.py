"""A shutdown that somebody scheduled: when, of what kind, and who asked.

The property ``ScheduledShutdown`` announces no change and stays stale after a failed shutdown, so the file
that logind keeps is read. It is an early warning and evidence, never a trigger.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path

from actors.edges.logind.names import kind_of
from events.facts import ScheduleRead

FOLDER = "run/systemd/shutdown"
FILE = "scheduled"
FILE_BYTES_MAX = 64 * 1024
#: A wall message is for people; the journal keeps its beginning.
TEXT_CHARACTERS_MAX = 1024
#: Far beyond any schedule, and still an integer that every format holds.
USEC_MAX = 2**62 // 1000
#: ``shutdown`` with SYSTEMD_DRY_RUN: logind only says what it would do.
DRY = "dry-"

NONE = ScheduleRead()
ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|[0-7]{3}|.)")
SINGLE = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "s": " "}


def unescape(text: str) -> str:
    """logind escapes as C does. Bytes above ASCII come one by one and are put together again."""
    raw = ESCAPE.sub(lambda found: _escaped(found[1]), text)
    with contextlib.suppress(UnicodeError):
        return raw.encode("latin-1").decode()
    return raw


def _escaped(code: str) -> str:
    if code[0] == "x" and len(code) > 1:
        return chr(int(code[1:], 16))
    return chr(int(code, 8) & 0xFF) if len(code) == 3 else SINGLE.get(code, code)


def parse(text: str, now_ns: int) -> ScheduleRead:
    """The file's content at wall time ``now_ns``. A time of 0, past, or unreadable is no schedule."""
    fields = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    at_ns = _integer(fields.get("USEC"), USEC_MAX) * 1_000
    mode = fields.get("MODE", "")
    if at_ns <= now_ns or mode.startswith(DRY):
        return NONE
    return ScheduleRead(
        at_wall_ns=at_ns,
        kind=kind_of(mode),
        uid=_integer(fields["UID"], 2**32 - 1) if "UID" in fields else None,
        tty=_words(fields.get("TTY", "")),
        wall_message=_words(fields.get("WALL_MESSAGE", "")),
    )


def _words(text: str) -> str:
    return unescape(text.strip('"'))[:TEXT_CHARACTERS_MAX]


def _integer(text: str | None, largest: int) -> int:
    digits = (text or "").strip()
    return min(int(digits[:20]), largest) if digits.isascii() and digits.isdigit() else 0


class Schedule:
    """The file below ``root``, read when its folder changes."""

    def __init__(self, root: Path, wall_ns: Callable[[], int]) -> None:
        self.folder = root / FOLDER
        self._wall_ns = wall_ns

    def read(self) -> ScheduleRead:
        try:
            with open(self.folder / FILE, "rb") as file:
                text = file.read(FILE_BYTES_MAX).decode(errors="replace")
        except OSError:
            return NONE
        return parse(text, self._wall_ns())

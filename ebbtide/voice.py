"""Where the daemon's lines go: to the system journal with fields where it listens, else to standard error."""

from __future__ import annotations

import contextlib
import os
import select
import sys
from collections.abc import Mapping

from ebbtide import console
from ebbtide.journald import SystemJournal, is_connected

#: A pipe that has room takes this much at once (PIPE_BUF), so that a write never waits.
LINE_BYTES_MAX = 4095

SHOWN_ON_CONSOLE = frozenset(kind.__name__ for kind in console.SHOWN)


def tell_stderr(level: int, line: str) -> None:
    """The log's lines: with a level where the service manager reads them, plain elsewhere.

    Late in a shutdown the log's reader has gone, or does not read: the line is lost, the pods go first.
    """
    prefix = f"<{level}>" if "JOURNAL_STREAM" in os.environ else ""
    data = f"{prefix}{line}".encode(errors="replace")[:LINE_BYTES_MAX] + b"\n"
    with contextlib.suppress(OSError):
        if select.select([], [sys.stderr], [], 0)[1]:
            os.write(sys.stderr.fileno(), data)


class Voice:
    """``tell`` for remarks, ``report`` for what stands in the journal."""

    def __init__(self) -> None:
        connected = is_connected(os.environ.get("JOURNAL_STREAM", ""), sys.stderr.fileno())
        self._journal = SystemJournal() if connected else None

    def tell(self, level: int, line: str) -> None:
        self.report(level, line, {})

    def report(self, level: int, line: str, fields: Mapping[str, str]) -> None:
        """A unit's lines go to the journal with their fields, some to the console as well."""
        if self._journal is None or not self._journal.send(level, line, fields):
            tell_stderr(level, line)
        if self._journal is not None and fields.get("EVENT") in SHOWN_ON_CONSOLE:
            console.show(line)

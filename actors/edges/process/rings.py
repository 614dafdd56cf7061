"""The output of pods, bounded, without any part of the daemon in its way.

A pod writes to a plain file opened for appending, so neither the daemon's death nor its slowness reaches
it. What grows too large loses its oldest blocks: a hole is punched into the file's begin, which keeps the
newest lines and disturbs no writer. Where the file system cannot do that, the file is emptied; a writer
that appends goes on at the new end.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path

#: Kept of each container's output, and the size at which that is looked after.
KEEP_BYTES = 64 * 1024
TRIM_BYTES = 4 * KEEP_BYTES
#: How often sizes are looked at: one stat a container, so idle cost stays out of sight.
TRIM_SECONDS = 10
#: One line of an autopsy; longer ones are cut.
LINE_BYTES_MAX = 256

KEEP_SIZE_AND_PUNCH_HOLE = 0x01 | 0x02
BLOCK_BYTES = 4096


class Rings:
    """The output files of one state directory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._punch = _punch_hole

    def open(self, name: str) -> int:
        """A descriptor for a new process's output. Raises OSError."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(self._folder / name, flags, 0o600)

    def tail(self, name: str, lines: int) -> tuple[str, ...]:
        """The newest lines, each at most `LINE_BYTES_MAX` bytes; empty when there is no output."""
        if lines <= 0:
            return ()
        try:
            with open(self._folder / name, "rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - (lines + 1) * LINE_BYTES_MAX))
                found = file.read().replace(b"\0", b"").splitlines()[-lines:]
        except OSError:
            return ()
        return tuple(line[:LINE_BYTES_MAX].decode(errors="replace") for line in found)

    def trim(self) -> None:
        """Cut what has grown too large, as far as the file system lets us."""
        with suppress(OSError), os.scandir(self._folder) as entries:
            for entry in entries:
                self._look_after(entry)

    def _look_after(self, entry: os.DirEntry[str]) -> None:
        with suppress(OSError):
            # st_blocks counts what is really kept, in units of 512 bytes.
            if entry.stat().st_blocks * 512 > TRIM_BYTES:
                self._cut(entry.path)

    def remove(self, name: str) -> None:
        with suppress(OSError):
            os.unlink(self._folder / name)

    def _cut(self, path: str) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            end = (os.fstat(fd).st_size - KEEP_BYTES) // BLOCK_BYTES * BLOCK_BYTES
            if not self._punch(fd, end):
                os.ftruncate(fd, 0)
        finally:
            os.close(fd)


def _punch_hole(fd: int, length: int) -> bool:
    """Give the first ``length`` bytes back to the file system; they read as zeros from then on."""
    libc = ctypes.CDLL(None, use_errno=True)
    fallocate = libc.fallocate
    fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong)
    return bool(fallocate(fd, KEEP_SIZE_AND_PUNCH_HOLE, 0, length) == 0)

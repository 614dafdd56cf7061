"""Waits for a folder to change.

A missing folder is watched through its nearest ancestor, so a folder that returns is found again.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import trio

IN_CLOSE_WRITE, IN_MOVED_FROM, IN_MOVED_TO = 0x8, 0x40, 0x80
IN_ATTRIB, IN_CREATE, IN_DELETE, IN_DELETE_SELF, IN_MOVE_SELF = 0x4, 0x100, 0x200, 0x400, 0x800
IN_ONLYDIR = 0x0100_0000
CHANGE_MASK = (
    IN_CLOSE_WRITE | IN_MOVED_FROM | IN_MOVED_TO | IN_CREATE | IN_DELETE | IN_DELETE_SELF | IN_MOVE_SELF
    | IN_ONLYDIR
)  # fmt: skip
#: While a file is open, the kernel reports its deletion by IN_ATTRIB.
GONE_MASK = IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF
EVENT_HEADER = struct.Struct("iIII")
#: Some thousand events. The next call reads the rest.
READ_BYTES_MAX = 64 * 1024
#: A new file causes several events (temporary file, write, rename): wait for the last.
SETTLE_SECONDS = 0.01

_libc = ctypes.CDLL(None, use_errno=True)


class FolderWatch:
    """Without sub-folders. Raises OSError where there is no inotify."""

    def __init__(self, folders: Iterable[Path], mask: int = CHANGE_MASK) -> None:
        self._folders, self._mask = tuple(folders), mask
        self._watches: set[int] = set()
        self._fd = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        self._renew()

    def close(self) -> None:
        os.close(self._fd)

    async def changed(self) -> frozenset[str]:
        """Wait for a change since the last call; returns the names of changed entries."""
        names = await self.event()
        # Folders may have come or gone. Watch them before the caller looks, or it misses a change.
        self._renew()
        return names

    async def event(self) -> frozenset[str]:
        """`changed` without a call that a hung disk can block: it does not find a folder that returns."""
        await trio.lowlevel.wait_readable(self._fd)
        await trio.sleep(SETTLE_SECONDS)
        names, data, offset = set(), b"", 0
        with suppress(BlockingIOError):
            data = os.read(self._fd, READ_BYTES_MAX)
        while offset < len(data):
            _, _, _, length = EVENT_HEADER.unpack_from(data, offset)
            offset += EVENT_HEADER.size + length
            names.add(os.fsdecode(data[offset - length : offset].rstrip(b"\0")))
        return frozenset(names)

    def _renew(self) -> None:
        wanted = {self._watch_nearest(folder) for folder in self._folders}
        for stale in self._watches - wanted:
            # It fails, harmlessly, if the kernel has removed the watch.
            _libc.inotify_rm_watch(self._fd, stale)
        self._watches = wanted

    def _watch_nearest(self, folder: Path) -> int:
        below, missing = folder, False
        for parent in (folder, *folder.parents):
            watch = int(_libc.inotify_add_watch(self._fd, os.fsencode(parent), self._mask))
            if watch >= 0:
                # The folder was made between the two calls, without an event.
                return self._watch_nearest(folder) if missing and below.is_dir() else watch
            missing = ctypes.get_errno() == errno.ENOENT
            below = parent
        return -1

"""The source of pods: one manifest file, or a folder whose changes are followed.

Each change compares the folder with its former state, so a lost notification only delays. An unreadable file
may be half written: it is read again before it is rejected. All reading is in a thread, since disks hang and
files are large.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeVar, TypeVarTuple, Unpack

import trio

from ebbtide.actors.edges.linux.inotify import FolderWatch
from ebbtide.actors.edges.pod_spec import ProcessSpec
from ebbtide.events.values import Pod

#: Raises ValueError or OSError with one clear line.
LoadManifest = Callable[[Path], list[tuple[Pod, ProcessSpec]]]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

SUFFIXES = (".yaml", ".yml", ".json")
#: Longer than any editor or copy takes between two writes.
HALF_WRITTEN_SECONDS = 0.2

#: Without notifications a new manifest waits so long.
POLL_SECONDS = 2.0


class ManifestFound(NamedTuple):
    """A new or changed file: its pods, or why it cannot be used."""

    path: Path
    pods: list[tuple[Pod, ProcessSpec]]
    error: str = ""


class ManifestGone(NamedTuple):
    path: Path


ManifestChange = ManifestFound | ManifestGone
FileStamp = tuple[int, int, int]


class ManifestSource:
    def __init__(self, path: Path, load: LoadManifest) -> None:
        self._path = path
        self._load = load
        self._seen: dict[Path, FileStamp] = {}
        self._unreadable = ""

    async def changes(self) -> AsyncGenerator[list[ManifestChange], None]:
        """What exists, then each change; ends at once for a single file."""
        if not self._path.is_dir():
            yield [await self._read(self._path)]
            return
        try:
            watch: FolderWatch | PollingWatch = FolderWatch([self._path])
        except OSError:
            watch = PollingWatch()
        try:
            while True:
                yield await self._look()
                await watch.changed()
        finally:
            watch.close()

    async def _look(self) -> list[ManifestChange]:
        try:
            now = await _in_thread(self._stamps)
        except OSError as error:
            # An unreadable folder has not lost its manifests. Reported once.
            said, self._unreadable = self._unreadable, str(error)
            return [] if str(error) == said else [ManifestFound(self._path, [], str(error))]
        self._unreadable = ""
        gone: list[ManifestChange] = [ManifestGone(path) for path in self._seen if path not in now]
        changed = [path for path, stamp in now.items() if self._seen.get(path) != stamp]
        # First: a file that changes during the reading has another stamp at the next look.
        self._seen = now
        found = [await self._read(path) for path in changed]
        if any(item.error for item in found):
            await trio.sleep(HALF_WRITTEN_SECONDS)
        again = [await self._read(item.path) if item.error else item for item in found]
        return gone + [item for item in again if not item.error or os.path.exists(item.path)]

    def _stamps(self) -> dict[Path, FileStamp]:
        """Raises OSError."""
        now: dict[Path, FileStamp] = {}
        # By name, so that a folder is read the same way each time.
        for path in sorted(self._path.iterdir()) if self._path.is_dir() else ():
            if path.suffix in SUFFIXES and not path.name.startswith("."):
                with suppress(OSError):
                    stat = path.stat()
                    now[path] = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        return now

    async def _read(self, path: Path) -> ManifestFound:
        try:
            return ManifestFound(path, await _in_thread(self._load, path))
        except (ValueError, OSError) as error:
            return ManifestFound(path, [], str(error) or type(error).__name__)


async def _in_thread(function: Callable[[Unpack[Ts]], T], *args: *Ts) -> T:
    # Abandoned on a hung disk: the daemon must be able to leave.
    return await trio.to_thread.run_sync(function, *args, abandon_on_cancel=True)


class PollingWatch:
    """Where the system has no notifications left."""

    async def changed(self) -> None:
        await trio.sleep(POLL_SECONDS)

    def close(self) -> None:
        """Nothing is held."""

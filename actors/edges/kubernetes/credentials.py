"""Who we are at the API server, kept current: tokens and certificates rotate, and the server moves.

Files are compared by their places on the disk, in a thread, never on the way of a call: a disk that hangs
must not hold up a shutdown. What cannot be read for a moment (it is just being written) leaves the last
good access in force.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import trio

from actors.edges.kubernetes import plugin
from actors.edges.kubernetes.kubeconfig import Access, Unusable, in_cluster, read
from actors.edges.kubernetes.plugin import Granted

#: A file's identity and age; nothing where it cannot be had.
Mark = tuple[int, int, int, int] | None

#: Refusals come in bursts, and so do calls without a credential: a plugin is asked once for all of them.
PLUGIN_AGAIN_SECONDS = 5.0


class Credentials:
    """``kubeconfig`` None: those of the pod that we run in. ``access`` is None until the first `refresh`."""

    def __init__(self, kubeconfig: Path | None) -> None:
        self.access: Access | None = None
        self._read: Callable[[], Access] = in_cluster if kubeconfig is None else lambda: read(kubeconfig)
        self._base: Access | None = None
        self._marks: tuple[Mark, ...] = ()
        self._granted: Granted | None = None
        self._asked_at = -PLUGIN_AGAIN_SECONDS
        self._failed: Unusable | None = None
        self._one = trio.Lock()

    async def refresh(self, *, refused: bool = False) -> Access:
        """Read what has changed; ``refused``: the server no longer takes what we have. ``access`` stays the
        same object unless it changed. Raises Unusable; ``access`` is then the last good one, or None.
        """
        async with self._one:
            before = self._base
            # Abandoned with a disk that hangs: the daemon must be able to leave.
            base = self._base = await trio.to_thread.run_sync(
                self._look, before, refused, abandon_on_cancel=True
            )
            fresh = base if base.plugin is None else await self._granted_for(base, base != before, refused)
            if self.access is None or fresh != self.access:
                self.access = fresh
            return self.access

    def _look(self, before: Access | None, anew: bool) -> Access:
        marks = marks_of(before.files) if before is not None else ()
        if before is not None and marks == self._marks and not anew:
            return before
        base = self._read()
        # Marks are from before the reading: what changed in between is then seen the next time.
        self._marks = marks if before is not None and before.files == base.files else ()
        return base

    async def _granted_for(self, base: Access, changed: bool, refused: bool) -> Access:
        rested = trio.current_time() >= self._asked_at + PLUGIN_AGAIN_SECONDS
        granted = self._granted
        if changed or granted is None or not granted.holds() or (refused and rested):
            granted = self._granted = await self._ask(base, rested or changed)
        return granted.onto(base)

    async def _ask(self, base: Access, rested: bool) -> Granted:
        """One that failed is not run again and again, however often somebody needs what it did not give."""
        assert base.plugin is not None
        if self._failed is not None and not rested:
            raise self._failed
        self._asked_at, self._failed = trio.current_time(), None
        try:
            return await plugin.ask(base.plugin, base)
        except Unusable as error:
            self._failed = error
            raise


def marks_of(files: tuple[Path, ...]) -> tuple[Mark, ...]:
    """Through links: a rotated certificate is a link that points elsewhere."""
    return tuple(map(_mark, files))


def _mark(path: Path) -> Mark:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns

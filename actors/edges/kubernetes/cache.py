"""The pods of this node on disk, so that a start without the API server knows their priorities.

One file, replaced as a whole. It outlives a reboot: what the next boot delivers is checked against it. It
follows the watch at a distance: which pods there are matters at once, how they are can wait.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import trio

from actors.edges.kubernetes.calling import Known
from actors.edges.kubernetes.store import Store
from actors.edges.process.record import write_atomically

FILE_NAME = "pods.json"
FILE_VERSION = 1
#: 250 pods are 100 KiB; a file like this is not ours.
FILE_BYTES_MAX = 16 * 1024 * 1024
#: A pod that came or went is on disk so soon; pods mostly come and go together.
MEMBERSHIP_SECONDS = 0.5
#: Anything else: a container that was restarted, a phase, a resource version.
DETAIL_SECONDS = 10.0
#: What the last write of a daemon that ends may cost it.
LAST_SECONDS_MAX = 0.5

WARNING = 4


class _File(msgspec.Struct, rename="camel", kw_only=True):
    version: int
    node: str
    resource_version: str = ""
    pods: list[Known] = []


class Cache:
    """``pods.json`` in ``folder``, of one node's pods."""

    def __init__(self, folder: Path, node: str, tell: Callable[[int, str], None]) -> None:
        self.folder = folder
        self._path = folder / FILE_NAME
        self._node = node
        self._tell = tell
        self._failed = False

    def load(self) -> list[Known]:
        """Empty where there is nothing of use; for a thread."""
        try:
            with open(self._path, "rb") as file:
                found = msgspec.json.decode(file.read(FILE_BYTES_MAX), type=_File)
        except (OSError, ValueError, RecursionError):
            return []
        return found.pods if (found.version, found.node) == (FILE_VERSION, self._node) else []

    async def follow(self, store: Store) -> None:
        """Write what changes until cancelled, and then once more. Writes nothing before the first list."""
        written, membership = store.version, store.membership
        try:
            while True:
                await store.changed(written)
                await self._let_settle(store, membership)
                written, membership = store.version, store.membership
                await self._write(store)
        finally:
            if store.version != written:
                with trio.move_on_after(LAST_SECONDS_MAX, shield=True):
                    await self._write(store)

    @staticmethod
    async def _let_settle(store: Store, membership: int) -> None:
        """Changes come in bursts: one write for all of them."""
        until = trio.current_time() + DETAIL_SECONDS
        while True:
            await trio.sleep(MEMBERSHIP_SECONDS)
            seen, left = store.version, until - trio.current_time()
            if store.membership != membership or left <= 0:
                return
            with trio.move_on_after(left):
                await store.changed(seen)

    async def _write(self, store: Store) -> None:
        """A disk that hangs holds up this task alone."""
        file = _File(
            version=FILE_VERSION,
            node=self._node,
            resource_version=store.resource_version,
            pods=store.watched(),
        )
        data = msgspec.json.encode(file)
        try:
            await trio.to_thread.run_sync(self._store, data, abandon_on_cancel=True)
        except OSError as error:
            self._say(f"{self._path}: {error.strerror}; a start without the API server knows no priorities")
        else:
            self._failed = False

    def _store(self, data: bytes) -> None:
        os.makedirs(self._path.parent, mode=0o700, exist_ok=True)
        write_atomically(self._path, data, sync=True)

    def _say(self, line: str) -> None:
        if not self._failed:
            self._tell(WARNING, f"Kubernetes API: {line}")
        self._failed = True

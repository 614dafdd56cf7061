"""As what a pod was known when its final status was due, so that the next boot can tell whether it still is.

A status that could not be delivered waits in the journal, and the machine goes down. By the next boot the
warm watch has the pod as it is now, which says nothing: the kubelet may have started it again. So what was
known then is put beside the cache (`cache`) while the first try is made, and a later try may only write to a
pod in that very version. One of which nothing was kept is left alone.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec
import trio

from actors.edges.kubernetes.calling import Known
from actors.edges.process.record import write_atomically

FILE_NAME = "late.json"
FILE_VERSION = 1
#: A node has some hundred pods; the newest are kept.
PODS_MAX = 1024
FILE_BYTES_MAX = 1024 * 1024
#: Goes on beside the calls, and costs an order that failed no more.
KEEP_SECONDS_MAX = 1.0
WARNING = 4


class Then(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """``started_at``: the newest start of any container, RFC 3339."""

    resource_version: str
    started_at: str = ""


class _File(msgspec.Struct, rename="camel"):
    version: int
    pods: dict[str, Then] = {}


class Late:
    """``late.json`` in ``folder``, which outlives a reboot; None: kept as long as we live."""

    def __init__(self, folder: Path | None, tell: Callable[[int, str], None]) -> None:
        self._path = None if folder is None else folder / FILE_NAME
        self._tell = tell
        #: None: not read yet.
        self._pods: dict[str, Then] | None = None
        #: Of threads, not of tasks: one that a disk holds up goes on when its task has given it up.
        self._storing = threading.Lock()

    async def known(self) -> Mapping[str, Then]:
        """By the UID that the runtime knows; of this boot and of those before."""
        if self._pods is None:
            found = await self._load()
            # Two may have asked at the same time.
            self._pods = found if self._pods is None else self._pods
        return self._pods

    async def keep(self, uids: Iterable[str], find: Callable[[str], Known | None]) -> None:
        """As these pods are known now; those that are not known are forgotten. Bounded, and never raises."""
        now = {uid: find(uid) for uid in uids}
        with trio.move_on_after(KEEP_SECONDS_MAX):
            pods = dict(await self.known())
            for uid, pod in now.items():
                pods.pop(uid, None)
                if pod is not None and pod.resource_version:
                    pods[uid] = Then(pod.resource_version, pod.started_at)
            self._pods = dict(list(pods.items())[-PODS_MAX:])
            await self._store()

    async def _load(self) -> dict[str, Then]:
        if self._path is None:
            return {}
        return await trio.to_thread.run_sync(_read, self._path, abandon_on_cancel=True)

    async def _store(self) -> None:
        if self._path is None:
            return
        try:
            await trio.to_thread.run_sync(self._write, self._path, abandon_on_cancel=True)
        except OSError as error:
            line = f"{self._path}: {error.strerror}; statuses that are late are not delivered after a reboot"
            self._tell(WARNING, f"Kubernetes API: {line}")

    def _write(self, path: Path) -> None:
        """What is known by now, so that the last to write never writes what is older."""
        with self._storing:
            os.makedirs(path.parent, mode=0o700, exist_ok=True)
            data = msgspec.json.encode(_File(FILE_VERSION, self._pods or {}))
            write_atomically(path, data, sync=True)


def _read(path: Path) -> dict[str, Then]:
    try:
        with open(path, "rb") as file:
            found = msgspec.json.decode(file.read(FILE_BYTES_MAX), type=_File)
    except (OSError, ValueError, RecursionError):
        return {}
    return found.pods if found.version == FILE_VERSION else {}

"""A service manager's notify socket with a descriptor store."""

from __future__ import annotations

import array
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TypeVar

import trio

FDS_MAX = 16
MESSAGE_BYTES_MAX = 64 * 1024


class NotifyBed:
    """``said``: the messages in order; ``store``: kept descriptors by name."""

    def __init__(self, path: Path) -> None:
        self.address = str(path)
        self.said: list[dict[str, str]] = []
        self.store: dict[str, list[int]] = {}
        self.answers_barriers = True
        self._more = trio.Event()
        self._unanswered: list[int] = []

    async def serve(self, endpoint: trio.socket.SocketType) -> None:
        while True:
            data, ancillary, _, _ = await endpoint.recvmsg(MESSAGE_BYTES_MAX, socket.CMSG_SPACE(4 * FDS_MAX))
            descriptors = array.array("i")
            for _, _, passed in ancillary:
                descriptors.frombytes(passed)
            self._take(dict(line.split("=", 1) for line in data.decode().splitlines()), list(descriptors))

    def _take(self, message: dict[str, str], descriptors: list[int]) -> None:
        if "FDSTORE" in message:
            self.store.setdefault(message["FDNAME"], []).extend(descriptors)
        elif "FDSTOREREMOVE" in message:
            self._close(self.store.pop(message["FDNAME"], []))
        elif self.answers_barriers:
            self._close(descriptors)
        else:
            self._unanswered.extend(descriptors)
        self.said.append(message)
        self._more.set()
        self._more = trio.Event()

    def _close(self, descriptors: list[int]) -> None:
        for descriptor in descriptors:
            os.close(descriptor)

    def close(self) -> None:
        """The unit has stopped for good: empty the store."""
        for descriptors in (self._unanswered, *self.store.values()):
            self._close(descriptors)
        self.store.clear()

    async def wait(self, name: str) -> dict[str, str]:
        """Wait for the first message with this variable."""
        while not (found := [message for message in self.said if name in message]):
            await self._more.wait()
        return found[0]

    def pass_on(self, name: str) -> list[int]:
        """A restarted process inherits duplicates of the stored descriptors."""
        return [os.dup(descriptor) for descriptor in self.store.get(name, [])]


Bed = TypeVar("Bed", bound=NotifyBed)


@contextlib.asynccontextmanager
async def serving(bed: Bed) -> AsyncIterator[Bed]:
    with trio.socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as endpoint:
        await endpoint.bind(bed.address)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bed.serve, endpoint)
            try:
                yield bed
            finally:
                nursery.cancel_scope.cancel()
                bed.close()


@contextlib.contextmanager
def full_socket(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as endpoint:
        endpoint.bind(str(path))
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as stranger,
            contextlib.suppress(BlockingIOError),
        ):
            stranger.connect(str(path))
            while True:
                stranger.send(b"x")
        yield endpoint


def drain(endpoint: socket.socket) -> list[bytes]:
    found: list[bytes] = []
    with contextlib.suppress(BlockingIOError):
        while True:
            found.append(endpoint.recv(MESSAGE_BYTES_MAX))
    return found


def notify_bed(folder: Path) -> contextlib.AbstractAsyncContextManager[NotifyBed]:
    return serving(NotifyBed(folder / "notify"))

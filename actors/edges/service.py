"""The service manager: telling it how we are, and letting it keep the delay lock while we are away.

A lock that systemd keeps in its descriptor store survives our crash. The other side of that: logind waits
until *every* duplicate is closed, so at the release the store's copy must be gone, and known to be gone,
before ours is closed.
"""

from __future__ import annotations

import array
import contextlib
import os
import socket
from collections.abc import MutableMapping

import trio

FIRST_INHERITED = 3
LOCK_NAME = "ebbtide-lock"
LISTEN_VARIABLES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID")
#: systemd confirms in under a millisecond; a stuck one must not cost the machine its whole delay.
BARRIER_SECONDS_MAX = 1.0
SEND_SECONDS_MAX = 0.5
RETRY_SECONDS = 0.005


def inherited_fds(environ: MutableMapping[str, str] | None = None) -> dict[str, tuple[int, ...]]:
    """Descriptors that the service manager passed us, by name; they become close-on-exec.

    The variables are taken out of the environment: our children must not believe that they are meant.
    """
    environ = os.environ if environ is None else environ
    pid, count, names = (environ.get(name, "") for name in LISTEN_VARIABLES[:3])
    for name in LISTEN_VARIABLES:
        environ.pop(name, None)
    if pid != str(os.getpid()) or not count.isdigit():
        return {}
    return _by_name(int(count), names.split(":"))


def _by_name(count: int, names: list[str]) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for index in range(count):
        descriptor = FIRST_INHERITED + index
        name = names[index] if index < len(names) else "unknown"
        with contextlib.suppress(OSError):
            os.set_inheritable(descriptor, False)
            found[name] = (*found.get(name, ()), descriptor)
    return found


class ServiceManager:
    """The notify socket at ``address`` (a path, or ``@`` and an abstract name); empty: there is none."""

    def __init__(self, address: str) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address

    @classmethod
    def from_environment(cls) -> ServiceManager:
        """``NOTIFY_SOCKET``, taken out of the environment so that no child speaks in our name."""
        return cls(os.environ.pop("NOTIFY_SOCKET", ""))

    def __bool__(self) -> bool:
        return self._address[:1] in ("/", "\0")

    def notify(self, **variables: str | int) -> bool:
        """Say for example ``READY=1, STATUS="armed"``; whether it was sent. Never waits, never raises.

        A line break in a value would start another variable and becomes a space.
        """
        return self._send(variables, ())

    def _send(self, variables: dict[str, str | int], descriptors: tuple[int, ...]) -> bool:
        if not self:
            return False
        lines = (f"{name}={str(value).replace(chr(10), ' ')}" for name, value in variables.items())
        passed = (
            [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        )
        flags = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.sendmsg(["\n".join(lines).encode(errors="replace")], passed, flags, self._address)
        except OSError:
            return False
        return True

    async def _insist(self, variables: dict[str, str | int], descriptors: tuple[int, ...] = ()) -> bool:
        """Send, and try again while the socket is full; whether it was sent in time."""
        with trio.move_on_after(SEND_SECONDS_MAX):
            while self and not self._send(variables, descriptors):
                await trio.sleep(RETRY_SECONDS)
            return bool(self)
        return False

    async def store(self, name: str, descriptor: int) -> bool:
        """Let the service manager keep a duplicate; whether it was sent.

        ``FDPOLL=0``: while logind is down the lock polls an error, and would be thrown away.
        """
        return await self._insist({"FDSTORE": 1, "FDNAME": name, "FDPOLL": 0}, (descriptor,))

    async def remove(self, name: str) -> bool:
        """Take every descriptor of that name out of the store; whether that was *confirmed*."""
        return await self._insist({"FDSTOREREMOVE": 1, "FDNAME": name}) and await self.barrier()

    async def barrier(self) -> bool:
        """Wait until the service manager has worked through all that we sent before."""
        ours, theirs = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            try:
                sent = await self._insist({"BARRIER": 1}, (theirs,))
            finally:
                os.close(theirs)
            return sent and await _hung_up(ours)
        finally:
            os.close(ours)


async def _hung_up(descriptor: int) -> bool:
    """Whether the other end of the pipe was closed in time."""
    with trio.move_on_after(BARRIER_SECONDS_MAX):
        await trio.lowlevel.wait_readable(descriptor)
        return True
    return False

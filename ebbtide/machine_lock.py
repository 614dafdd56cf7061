"""One daemon protects a machine, whatever its folders: two would run the same hooks twice.

The lock is a listening socket with an abstract name in the host's network namespace, where a DaemonSet's pod
(``hostNetwork``) and the host's unit meet. It ends with its process. The name has the user and the bus's
socket: other users and other machines' buses have other locks.

A service manager starts the first daemon again within seconds, with its lock and its journal. So a waiting
daemon takes over later, and never in a shutdown.
"""

from __future__ import annotations

import os
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import trio

from ebbtide.actors.edges.linux.bus import BusError, ask_once, bus_socket
from ebbtide.actors.edges.logind_reading import read_preparing
from ebbtide.actors.edges.service_manager import ServiceManager
from ebbtide.actors.interfaces import Tell

#: A service manager pauses for at most 5 s (`supervisor`), and a start takes a second or two on a busy
#: machine.
TAKEOVER_SECONDS = 10
#: Between two looks while the name is free, or cannot be waited for.
LOOK_SECONDS = 1.0
CREDENTIALS = struct.Struct("3i")
COMMAND_CHARACTERS_MAX = 200

#: linux/netlink.h, sock_diag.h and unix_diag.h: the names and users of all listening Unix sockets.
NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, DUMP_REQUEST, TCP_LISTEN = 4, 20, 0x301, 10
UNIX_DIAG_NAME, UNIX_DIAG_UID, SHOW_NAME_AND_UID = 0, 7, 0x41
#: A request's size, an answer's before and in its attributes, and the kernel's largest part.
REQUEST_BYTES, DIAG_BYTES, UID_BYTES, ANSWER_BYTES_MAX = 40, 32, 8, 65536
LISTENERS = struct.pack(
    *("=IHHQBBHIIIQ", REQUEST_BYTES, SOCK_DIAG_BY_FAMILY, DUMP_REQUEST, 0),
    *(socket.AF_UNIX, 0, 0, 1 << TCP_LISTEN, 0, SHOW_NAME_AND_UID, 0),
)


class Holder(NamedTuple):
    """A process with the lock, or that waits for it. ``pid`` 0: unknown. ``command`` may be empty."""

    pid: int
    uid: int
    command: str

    @property
    def text(self) -> str:
        return f"process {self.pid}{f': {self.command}' if self.command else ''}"


def machine_lock_name(bus_address: str) -> str:
    """By the socket's file, which containers mount at other paths."""
    place = bus_address
    with suppress(OSError):
        found = os.stat(bus_socket(bus_address) or "")
        place = f"{found.st_dev:x}:{found.st_ino:x}"
    return f"\0ebbtide/{os.geteuid()}/{place}"


def take_machine_lock(name: str) -> socket.socket | None:
    """The lock, held until it is closed; None: another process has it."""
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        lock.bind(name)
    except OSError:
        lock.close()
        return None
    lock.listen()
    return lock


async def serve_waiting(lock: socket.socket, waiting: set[Holder]) -> None:
    """Keeps the connections of waiting daemons, which ``waiting`` lists."""
    lock.setblocking(False)
    async with trio.open_nursery() as nursery:
        while True:
            await trio.lowlevel.wait_readable(lock)
            with suppress(OSError):
                connected, _ = lock.accept()
                # Another user could take all descriptors.
                if (peer := peer_of(connected)).uid == os.geteuid():
                    nursery.start_soon(_keep, connected, peer, waiting)
                else:
                    connected.close()


async def _keep(connected: socket.socket, peer: Holder, waiting: set[Holder]) -> None:
    waiting.add(peer)
    with connected:
        await trio.lowlevel.wait_readable(connected)
    waiting.discard(peer)


def peer_of(connected: socket.socket) -> Holder:
    pid, uid, _ = CREDENTIALS.unpack(
        connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    )
    command = ""
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        command = " ".join(words).strip()[:COMMAND_CHARACTERS_MAX]
    return Holder(pid, uid, command)


def connect_to_holder(name: str) -> tuple[socket.socket, Holder] | None:
    """The holder, and a connection that ends with it; None: the lock is free. A holder whose queue is full
    takes no connection: it may hang, or another user fills the queue.
    """
    waiting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    waiting.setblocking(False)
    try:
        waiting.connect(name)
        return waiting, peer_of(waiting)
    except BlockingIOError:
        return waiting, Holder(0, listener_uid(name), "it takes no connection")
    except OSError:
        waiting.close()
        return None


def listener_uid(name: str) -> int:
    """The user who listens under this name, from the kernel. Unknown: this one, as a daemon that hangs still
    protects the machine.
    """
    wanted = struct.pack("=HH", 4 + len(name), UNIX_DIAG_NAME) + name.encode()
    with suppress(OSError), socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(LOOK_SECONDS)
        kernel.send(LISTENERS)
        while data := kernel.recv(ANSWER_BYTES_MAX):
            while data:
                size, kind = struct.unpack_from("=IH", data)
                if kind != SOCK_DIAG_BY_FAMILY:
                    return os.geteuid()
                # The name is the first attribute, and the user the last.
                length, which, uid = struct.unpack_from("=HHI", data, size - UID_BYTES)
                if data.startswith(wanted, DIAG_BYTES) and (length, which) == (UID_BYTES, UNIX_DIAG_UID):
                    return int(uid)
                data = data[(size + 3) & ~3 :]
    return os.geteuid()


def machine_holder(bus_address: str) -> Holder | None:
    """The daemon that protects this machine; None: no daemon of this user does."""
    if (found := connect_to_holder(machine_lock_name(bus_address))) is None:
        return None
    found[0].close()
    return found[1] if found[1].uid == os.geteuid() else None


async def lock_machine(bus_address: str, service: ServiceManager, tell: Tell) -> socket.socket | None:
    """Wait until no other daemon protects this machine; then keep the result open.

    None: another user's process has taken the name. It must not leave the machine unprotected.
    """
    name, told = machine_lock_name(bus_address), ""
    lock = take_machine_lock(name)
    if lock is not None:
        return lock
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_say_alive, service)
        while lock is None:
            if (found := connect_to_holder(name)) is not None:
                connected, holder = found
                with connected:
                    if holder.uid != os.geteuid():
                        tell(4, f"{holder.text}, uid {holder.uid}, has taken the machine's lock: ignoring it")
                        break
                    line = f"another Ebbtide protects this machine ({holder.text}): waiting for its end"
                    if line != told:
                        tell(4, told := line)
                    await service.notify_in_time(READY=1, STATUS=line)
                    # A holder never sends anything: readable means its end.
                    await trio.lowlevel.wait_readable(connected)
            if await _stays_free(name) and not await _goes_down(bus_address):
                lock = take_machine_lock(name)
                # A daemon listens at once, and has room.
                if lock is None and await _stays_free(name):
                    tell(4, "a process that takes no connection has the machine's lock: ignoring it")
                    break
        nursery.cancel_scope.cancel()
    if lock is not None:
        tell(4, "the other Ebbtide has ended: this one protects the machine now")
    return lock


async def _say_alive(service: ServiceManager) -> None:
    while every_seconds := service.life_seconds:
        await service.notify_in_time(WATCHDOG=1)
        await trio.sleep(every_seconds)


async def _stays_free(name: str) -> bool:
    for _ in range(int(TAKEOVER_SECONDS / LOOK_SECONDS)):
        await trio.sleep(LOOK_SECONDS)
        if (found := connect_to_holder(name)) is not None:
            found[0].close()
            return found[1].uid != os.geteuid()
    return True


async def _goes_down(bus_address: str) -> bool:
    """The other one has begun this shutdown: its hooks have run."""
    with trio.move_on_after(LOOK_SECONDS), suppress(BusError):
        return await ask_once(bus_address, read_preparing)
    return False

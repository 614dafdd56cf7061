"""What ``/proc`` says about processes, and which boot this is: pure parsers, and thin readers around them.

It takes neither a bus nor Trio, so whoever only reads a journal can have the boot's name from here.

A process is never named by its number alone: the number and the start time in clock ticks since boot
together are unique within a boot. Reading ``stat``, ``status`` and ``wchan`` never waits for the process
that is read; reading ``environ`` may (it takes the memory lock of a process that may hang), so only the
scanner of `actors.edges.linux.kill_tree` does that, away from the event loop.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """The kernel's random name for this boot, without dashes."""
    return BOOT_ID_FILE.read_text().strip().replace("-", "")


#: Larger than any stat or status file; environments are read up to their own limit.
READ_BYTES_MAX = 16 * 1024
#: A process's marks stand in front of what its manifest adds, so a longer environment hides nothing.
ENVIRON_BYTES_MAX = 256 * 1024

TCP_ESTABLISHED = "01"


class ProcessStat(NamedTuple):
    """Fields of ``/proc/PID/stat``. ``start_ticks`` since boot; ``state`` is one letter."""

    pid: int
    command: str
    state: str
    parent_pid: int
    group: int
    session: int
    start_ticks: int


class ProcessStatus(NamedTuple):
    """Fields of ``/proc/PID/status``: signal masks, and the pid in each nested pid namespace."""

    state: str
    blocked: int
    ignored: int
    caught: int
    namespace_pids: tuple[int, ...]


def parse_stat(text: str) -> ProcessStat:
    """The command may hold spaces and brackets, so it ends at the last bracket. Raises ValueError."""
    head, bracket, tail = text.rpartition(")")
    pid, opening, command = head.partition(" (")
    fields = tail.split()
    # Twenty: the start time is the last that is read.
    if not bracket or not opening or len(fields) < 20:
        raise ValueError("not the text of a stat file")
    return ProcessStat(
        int(pid), command, fields[0], int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19])
    )


def parse_status(text: str) -> ProcessStatus:
    """Raises ValueError when a mask is missing or no number."""
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    try:
        blocked, ignored, caught = (int(fields[name], 16) for name in ("SigBlk", "SigIgn", "SigCgt"))
    except KeyError as error:
        raise ValueError(f"no {error.args[0]} in the text of a status file") from None
    pids = tuple(int(pid) for pid in fields.get("NSpid", "").split())
    return ProcessStatus(fields.get("State", "?").strip(), blocked, ignored, caught, pids)


def parse_environ(data: bytes) -> dict[str, str]:
    """Name to value; of a name that stands twice the first counts. What is no assignment is left out."""
    found: dict[str, str] = {}
    for item in data.split(b"\0"):
        name, equals, value = item.partition(b"=")
        if equals and name:
            # The first, because our marks stand first: what a manifest says under the same name comes after
            # them.
            found.setdefault(os.fsdecode(name), os.fsdecode(value))
    return found


def parse_tcp(text: str) -> frozenset[int]:
    """Inodes of the established connections in ``/proc/PID/net/tcp`` or ``tcp6``; odd lines are left out."""
    rows = (line.split() for line in text.splitlines()[1:])
    return frozenset(
        int(row[9]) for row in rows if len(row) > 9 and row[3] == TCP_ESTABLISHED and row[9].isdecimal()
    )


def socket_inode(link: str) -> int | None:
    """The inode in a link such as ``socket:[123]``; None for what is no socket."""
    inside = link.removeprefix("socket:[").removesuffix("]")
    return int(inside) if inside.isascii() and inside.isdecimal() and inside != link else None


def read_bytes(path: str, limit: int = READ_BYTES_MAX) -> bytes | None:
    """The begin of a file of ``/proc``; None when it cannot be read (gone, or not ours)."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # Until the end: a file of ``/proc`` may give less than asked for and still have more.
        data = os.read(fd, limit)
        while data and len(data) < limit and (more := os.read(fd, limit - len(data))):
            data += more
        return data
    except OSError:
        return None
    finally:
        os.close(fd)


def read_stat(pid: int) -> ProcessStat | None:
    """None when there is no such process."""
    data = read_bytes(f"/proc/{pid}/stat")
    return parse_stat(data.decode(errors="replace")) if data else None


def read_status(pid: int) -> ProcessStatus | None:
    """None when there is no such process."""
    data = read_bytes(f"/proc/{pid}/status")
    return parse_status(data.decode(errors="replace")) if data else None


def read_tcp(pid: int) -> frozenset[int]:
    """Inodes of the established connections in the process's network."""
    texts = (read_bytes(f"/proc/{pid}/net/{name}", 1 << 20) or b"" for name in ("tcp", "tcp6"))
    return frozenset().union(*(parse_tcp(text.decode(errors="replace")) for text in texts))


def socket_inodes(pid: int) -> Iterator[int]:
    """The sockets that a process holds."""
    try:
        # Another user's process does not show what it holds, and then it counts as holding nothing.
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return
    for name in names:
        try:
            inode = socket_inode(os.readlink(f"/proc/{pid}/fd/{name}"))
        except OSError:
            continue
        if inode is not None:
            yield inode


def all_pids() -> list[int]:
    """Every process number in use."""
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def boot_id_with_dashes() -> str:
    """Changes with each boot. Empty where the kernel does not say."""
    return (read_bytes("/proc/sys/kernel/random/boot_id") or b"").decode().strip()


def is_same_process(pid: int, start_ticks: int) -> bool:
    """Is this number still the process that started then?"""
    stat = read_stat(pid)
    return stat is not None and stat.start_ticks == start_ticks

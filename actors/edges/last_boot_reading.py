"""Reads the end of the last boot once, from the machine's records, and keeps a sign of life for the next.

Each record has its own thread and bound: a hung disk or a huge log costs only that record (``unread``). Only
known words go on record.

An idle journal has no entries for months. So each minute the time of a file with the boot's id is set,
unsynced: a power cut loses some half a minute.
"""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import trio

from ebbtide.actors.interfaces import Edge, Effect, Outlet
from ebbtide.events import bounds
from ebbtide.events.base import NS_PER_SECOND, Order
from ebbtide.events.facts import LastBootRead
from ebbtide.events.values import CrashRecord, JournalEnd, WtmpEnd

ValueT = TypeVar("ValueT")

ALIVE_NAME = "alive"
ALIVE_BYTES_MAX = 64
#: Precise enough for a node's death, with 1440 changes of one inode a day.
ALIVE_SECONDS = 60.0

#: A daemon that is switched off is never armed.
UNARMED_SECONDS = 5.0

PSTORE, PSTORE_ARCHIVE = "sys/fs/pstore", "var/lib/systemd/pstore"
WTMP = "var/log/wtmp"
WATCHDOGS, BOOT_LOADER = "sys/class/watchdog", "proc/sys/kernel/bootloader_type"


#: Shows the machine's files also in a container that shares the node's processes.
INIT_ROOT = Path("/proc/1/root")


class Machine(NamedTuple):
    root: Path
    journalctl: tuple[str, ...] = ("journalctl",)


def this_machine() -> Machine:
    try:
        list(os.scandir(INIT_ROOT))
    except OSError:
        return Machine(Path("/"))
    return Machine(INIT_ROOT)


class LastBootEdge(Edge):
    """``ended_boot``: the last one; empty: unknown. ``boot_id``: the present one. Both without dashes.
    ``folder`` outlives a boot.
    """

    def __init__(self, folder: Path, boot_id: str, ended_boot: str, machine: Machine | None = None) -> None:
        self._folder, self._boot_id, self._ended_boot = folder, boot_id, ended_boot
        self._machine = machine
        self._armed = trio.Event()
        self.effects: Mapping[type[Order], Effect] = {}

    async def run(self, outlet: Outlet) -> None:
        with trio.move_on_after(UNARMED_SECONDS):
            await self._armed.wait()
        if self._ended_boot:
            machine = self._machine or this_machine()
            await outlet.put(await read_last_boot(machine, self._folder, self._ended_boot))
        while True:
            await _in_time(partial(show_alive, self._folder, self._boot_id), None)
            await trio.sleep(ALIVE_SECONDS)

    def prewarm(self) -> None:
        self._armed.set()


async def read_last_boot(machine: Machine, folder: Path, boot_id: str) -> LastBootRead:
    found: dict[str, Any] = {}

    async def read(name: str, work: Callable[[], ValueT], otherwise: ValueT) -> None:
        found[name] = await _in_time(work, otherwise)

    # Its time separates the boot's records from older ones.
    alive_ns = await _in_time(partial(alive_wall_ns, folder, boot_id), 0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(read, "crash", partial(read_crash, machine.root, alive_ns), "unread")
        nursery.start_soon(read, "wtmp", partial(read_wtmp, machine.root / WTMP, alive_ns), "unread")
        nursery.start_soon(read, "log", partial(read_journal, machine.journalctl, boot_id), UNREAD_LOG)
        nursery.start_soon(read, "watchdog", partial(reset_by_watchdog, machine.root / WATCHDOGS), False)
        nursery.start_soon(read, "kexec", partial(begun_by_kexec, machine.root / BOOT_LOADER), False)
    log: LogEnd = found.pop("log")
    return LastBootRead(
        boot_id=boot_id,
        journal=log.end,
        kernel_emergency=log.kernel_emergency,
        power_key=log.power_key,
        alive_wall_ns=max(alive_ns, log.last_wall_ns),
        **found,
    )


async def _in_time(work: Callable[[], ValueT], otherwise: ValueT) -> ValueT:
    """A failure means ``otherwise``."""
    with (
        trio.move_on_after(bounds.now.boot_source_seconds),
        suppress(OSError, ValueError, struct.error, subprocess.SubprocessError),
    ):
        return await trio.to_thread.run_sync(work, abandon_on_cancel=True)
    return otherwise


def alive_wall_ns(folder: Path, boot_id: str) -> int:
    """0: unknown. Raises OSError."""
    path = folder / ALIVE_NAME
    with suppress(FileNotFoundError), open(path, "rb") as file:
        if file.read(ALIVE_BYTES_MAX).decode("ascii", "replace").strip() == boot_id:
            return os.fstat(file.fileno()).st_mtime_ns
    return 0


def show_alive(folder: Path, boot_id: str) -> None:
    """Raises OSError."""
    path = folder / ALIVE_NAME
    if alive_wall_ns(folder, boot_id):
        os.utime(path)
        return
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # By rename: half an id would be another boot's.
    part = folder / f"{ALIVE_NAME}.part"
    part.write_text(f"{boot_id}\n", encoding="ascii")
    part.rename(path)


#: A store has a few dozen, an archive all crashes.
CRASH_FILES_MAX = 256
CRASH_HEAD_BYTES = 64
#: ``kmsg_dump_reason_str``, also from before Linux 5.8. The worst first.
CRASH_WORDS: Mapping[bytes, CrashRecord] = {
    b"Panic": "panic",
    b"Oops": "oops",
    b"Emergency": "emergency",
    b"Shutdown": "shutdown",
    b"Restart": "shutdown",
    b"Poweroff": "shutdown",
    b"Halt": "shutdown",
}
CONSOLE_PREFIX, CONSOLE_TAIL_BYTES = "console-ramoops", 16 * 1024
CONSOLE_WORDS: Mapping[bytes, CrashRecord] = {
    b"Kernel panic - not syncing": "panic",
    b"sysrq: Resetting": "emergency",
    b"reboot: Restarting system": "shutdown",
    b"reboot: Power down": "shutdown",
    b"reboot: System halted": "shutdown",
}
#: Records count seconds, and the last sign of life may not be on disk.
CRASH_SLACK_NS = 120 * NS_PER_SECOND


def read_crash(root: Path, alive_ns: int) -> CrashRecord:
    """The worst record since the last sign of life. Raises OSError."""
    found: set[CrashRecord] = set()
    for path in _crash_files(root, alive_ns - CRASH_SLACK_NS if alive_ns else 0):
        with suppress(FileNotFoundError):
            if path.name.startswith(CONSOLE_PREFIX):
                console = _tail(path, CONSOLE_TAIL_BYTES)
                found |= {word for each, word in CONSOLE_WORDS.items() if each in console}
            else:
                with open(path, "rb") as file:
                    # "Panic#1 Part1"
                    reason = file.read(CRASH_HEAD_BYTES).partition(b"#")[0]
                if reason in CRASH_WORDS:
                    found.add(CRASH_WORDS[reason])
    return next((word for word in CRASH_WORDS.values() if word in found), "none")


def _crash_files(root: Path, since_ns: int) -> list[Path]:
    """The newest first."""
    dated: list[tuple[int, Path]] = []
    folders = [root / PSTORE]
    archive = root / PSTORE_ARCHIVE
    # systemd has a folder per crash, newer releases folders below it.
    for name, inner, _ in os.walk(archive):
        folders.append(Path(name))
        if len(folders) > CRASH_FILES_MAX or len(Path(name).relative_to(archive).parts) >= 2:
            inner.clear()
    for folder in folders:
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith(("dmesg-", CONSOLE_PREFIX)):
                    at_ns = entry.stat(follow_symlinks=False).st_mtime_ns
                    # A store without a clock has 0, and is overwritten at each crash.
                    if at_ns >= since_ns or at_ns < NS_PER_SECOND:
                        dated.append((at_ns, Path(entry.path)))
    return [path for _, path in sorted(dated, reverse=True)[:CRASH_FILES_MAX]]


def _tail(path: Path, size: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - size))
        return file.read(size)


#: utmp(5): type, padding, process, line (32), id (4), user (32), and the time at a place that differs.
UTMP_RUN_LEVEL, UTMP_BOOT_TIME = 1, 2
UTMP_USER_AT = 44
SHUTDOWN_USER = b"shutdown".ljust(32, b"\0")
#: An entry's size, the time's place and format. Processors that also run 32-bit programs have 32-bit fields.
UTMP_NARROW, UTMP_WIDE = (384, 340, "<ii"), (400, 344, "<qq")
UTMP_FORMS = {"x86_64": UTMP_NARROW, "aarch64": UTMP_WIDE, "riscv64": UTMP_WIDE, "ppc64le": UTMP_NARROW}
WTMP_ENTRIES_MAX = 4096


def read_wtmp(path: Path, alive_ns: int, processor: str = "") -> WtmpEnd:
    """The first entry after the last sign of life: a shutdown, or another boot. ``absent``: also for an
    unknown format. Raises OSError.
    """
    form = UTMP_FORMS.get(processor or os.uname().machine)
    if form is None or not alive_ns:
        return "absent"
    size, seconds_at, width = form
    try:
        data = _tail(path, WTMP_ENTRIES_MAX * size)
    except FileNotFoundError:
        return "absent"
    for at in range(len(data) % size, len(data), size):
        (kind,) = struct.unpack_from("<h", data, at)
        is_shutdown = data[at + UTMP_USER_AT : at + UTMP_USER_AT + 32] == SHUTDOWN_USER
        if kind == UTMP_BOOT_TIME or (kind == UTMP_RUN_LEVEL and is_shutdown):
            seconds, microseconds = struct.unpack_from(width, data, at + seconds_at)
            if seconds * NS_PER_SECOND + microseconds * 1000 > alive_ns:
                return "shutdown" if is_shutdown else "no-shutdown"
    return "absent"


class LogEnd(NamedTuple):
    """``last_wall_ns`` 0: no entry."""

    end: JournalEnd = "absent"
    kernel_emergency: bool = False
    power_key: bool = False
    last_wall_ns: int = 0


UNREAD_LOG = LogEnd("unread")

#: Message ids (sd-messages(3)).
JOURNAL_STOP = "d93fb3c9c24d451a97cea615ce59c00b"
UNIT_STARTED = "39f53479d3a045ac8e11786248231fbf"
POWER_KEYS = ("b72ea4a2881545a0b50e200e55b9b06f", "3e0117101eb243c1b9a50db3494ab10b")
#: Reached once all units have stopped.
SHUTDOWN_UNIT = "shutdown.target"
#: Any local user may log any message id, but journald itself sets the fields with an underscore.
BY_SYSTEMD = ("_PID=1", "_UID=0")
BY_LOGIND = ("_SYSTEMD_UNIT=systemd-logind.service", "_UID=0")
BY_KERNEL, BY_JOURNALD = "kernel", "driver"
#: The kernel's emergencies that end a machine.
KERNEL_WORDS = ("Kernel panic", "soft lockup", "hard LOCKUP", "Fatal exception")
#: After its target a shutdown takes at most a minute and a half. A soft reboot may have reached it long
#: before.
END_US = 120_000_000
#: A power key begins a shutdown, which ends all pods.
POWER_KEY_US = 3600_000_000
LOG_ENTRIES_MAX = 64
FIELDS = "MESSAGE_ID,UNIT,MESSAGE,_TRANSPORT"


def read_journal(journalctl: Sequence[str], boot_id: str) -> LogEnd:
    """journalctl knows the formats. Raises OSError, ValueError."""
    try:
        last = next(iter(_entries(journalctl, 1, [[f"_BOOT_ID={boot_id}"]])), None)
        if last is None:
            return LogEnd()
        asked = [
            [*BY_SYSTEMD, f"MESSAGE_ID={UNIT_STARTED}", f"UNIT={SHUTDOWN_UNIT}"],
            *([*BY_LOGIND, f"MESSAGE_ID={key}"] for key in POWER_KEYS),
            [f"_TRANSPORT={BY_KERNEL}", "PRIORITY=0"],
        ]
        told = _entries(journalctl, LOG_ENTRIES_MAX, [[f"_BOOT_ID={boot_id}", *each] for each in asked])
    except FileNotFoundError:
        return LogEnd()  # in a container there is no such program
    end_us = _number(last, "__MONOTONIC_TIMESTAMP")
    near = [each for each in told if end_us - _number(each, "__MONOTONIC_TIMESTAMP") <= END_US]
    end: JournalEnd = "no-shutdown"
    if any(each.get("UNIT") == SHUTDOWN_UNIT for each in near):
        end = "shutdown"
    elif (last.get("_TRANSPORT"), last.get("MESSAGE_ID")) == (BY_JOURNALD, JOURNAL_STOP):
        end = "stopped"
    kernel = [str(each.get("MESSAGE")) for each in near if each.get("_TRANSPORT") == BY_KERNEL]
    keys = [each for each in told if each.get("MESSAGE_ID") in POWER_KEYS]
    return LogEnd(
        end,
        any(word in line for word in KERNEL_WORDS for line in kernel),
        any(end_us - _number(key, "__MONOTONIC_TIMESTAMP") <= POWER_KEY_US for key in keys),
        _number(last, "__REALTIME_TIMESTAMP") * 1000,
    )


def _entries(
    journalctl: Sequence[str], count: int, matches: Iterable[Sequence[str]]
) -> list[Mapping[str, object]]:
    """The last ``count`` that match one of the lists."""
    words: list[str] = []
    for each in matches:
        words += [*(["+"] if words else []), *each]
    argv = [
        *journalctl,
        *("--quiet", "--no-pager", "--output=json", f"--output-fields={FIELDS}", f"--lines={count}"),
        *words,
    ]
    # It needs its own bound: our thread may be abandoned.
    done = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=bounds.now.boot_log_seconds,
        check=False,
    )
    if done.returncode:
        raise ValueError(f"journalctl ended with {done.returncode}")
    return [msgspec.json.decode(line, type=dict[str, Any]) for line in done.stdout.splitlines()]


def _number(entry: Mapping[str, object], field: str) -> int:
    """The journal writes numbers as texts."""
    return int(str(entry.get(field, "0")))


#: ``WDIOF_CARDRESET`` in ``bootstatus``.
CARD_RESET = 0x20
#: Above four bits of its version; on x86 only.
KEXEC_LOADER = 0xD


def reset_by_watchdog(folder: Path) -> bool:
    """Raises OSError, ValueError."""
    said = [path / "bootstatus" for path in sorted(folder.iterdir())] if folder.is_dir() else []
    return any(int(path.read_text()) & CARD_RESET for path in said if path.exists())


def begun_by_kexec(path: Path) -> bool:
    """Raises OSError, ValueError."""
    return path.exists() and int(path.read_text()) >> 4 == KEXEC_LOADER

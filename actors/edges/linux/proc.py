"""Processes and the boot, from ``/proc``; a forecast of a stop signal's effect, and the autopsy of a process
before SIGKILL. Needs neither a bus nor Trio: readers of a journal use it.

Pid and start time (clock ticks since boot) are together unique in a boot. Read no file that waits for the
process: ``environ`` takes its memory lock, and it may hang.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from ebbtide.events.values import ProcessReport

BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Without dashes."""
    return BOOT_ID_FILE.read_text().strip().replace("-", "")


#: Larger than any stat or status file.
READ_BYTES_MAX = 16 * 1024

TCP_ESTABLISHED = "01"


class ProcessStat(NamedTuple):
    """``/proc/PID/stat``. ``state`` is one letter."""

    pid: int
    command: str
    state: str
    parent_pid: int
    group: int
    session: int
    start_ticks: int


class ProcessStatus(NamedTuple):
    """``/proc/PID/status``: signal masks, and the pid in each nested pid namespace."""

    state: str
    blocked: int
    ignored: int
    caught: int
    namespace_pids: tuple[int, ...]


def parse_stat(text: str) -> ProcessStat:
    """The command may contain brackets, so it ends at the last one. Raises ValueError."""
    head, bracket, tail = text.rpartition(")")
    pid, opening, command = head.partition(" (")
    fields = tail.split()
    # The start time is the twentieth.
    if not bracket or not opening or len(fields) < 20:
        raise ValueError("not the text of a stat file")
    return ProcessStat(
        int(pid), command, fields[0], int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19])
    )


def parse_status(text: str) -> ProcessStatus:
    """Raises ValueError."""
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    try:
        blocked, ignored, caught = (int(fields[name], 16) for name in ("SigBlk", "SigIgn", "SigCgt"))
    except KeyError as error:
        raise ValueError(f"no {error.args[0]} in the text of a status file") from None
    pids = tuple(int(pid) for pid in fields.get("NSpid", "").split())
    return ProcessStatus(fields.get("State", "?").strip(), blocked, ignored, caught, pids)


def parse_tcp(text: str) -> frozenset[int]:
    """Inodes of established connections. Skips malformed lines."""
    rows = (line.split() for line in text.splitlines()[1:])
    return frozenset(
        int(row[9]) for row in rows if len(row) > 9 and row[3] == TCP_ESTABLISHED and row[9].isdecimal()
    )


def socket_inode(link: str) -> int | None:
    """``link``: such as ``socket:[123]``."""
    inside = link.removeprefix("socket:[").removesuffix("]")
    return int(inside) if inside.isascii() and inside.isdecimal() and inside != link else None


def read_bytes(path: str, limit: int = READ_BYTES_MAX) -> bytes | None:
    """None: gone, or not ours."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # A file of ``/proc`` may return less than asked for and still have more.
        data = os.read(fd, limit)
        while data and len(data) < limit and (more := os.read(fd, limit - len(data))):
            data += more
        return data
    except OSError:
        return None
    finally:
        os.close(fd)


def read_stat(pid: int) -> ProcessStat | None:
    data = read_bytes(f"/proc/{pid}/stat")
    return parse_stat(data.decode(errors="replace")) if data else None


def read_status(pid: int) -> ProcessStatus | None:
    data = read_bytes(f"/proc/{pid}/status")
    return parse_status(data.decode(errors="replace")) if data else None


def read_tcp(pid: int) -> frozenset[int]:
    """In the process's network."""
    texts = (read_bytes(f"/proc/{pid}/net/{name}", 1 << 20) or b"" for name in ("tcp", "tcp6"))
    return frozenset().union(*(parse_tcp(text.decode(errors="replace")) for text in texts))


def socket_inodes(pid: int) -> Iterator[int]:
    try:
        # Another user's process does not show its sockets.
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


def cgroups_of(pid: int) -> str:
    """Empty: the process is gone."""
    return (read_bytes(f"/proc/{pid}/cgroup") or b"").decode(errors="replace")


#: With containerd, CRI-O and Docker.
CONTAINER_ID = re.compile("[0-9a-f]{64}")
WHOLE_CONTAINER_ID = re.compile(f"(?<![0-9a-f]){CONTAINER_ID.pattern}(?![0-9a-f])")


def container_ids(cgroups: str) -> frozenset[str]:
    """Only whole ids count: a part may be in another's name."""
    return frozenset(WHOLE_CONTAINER_ID.findall(cgroups))


def all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def boot_id_with_dashes() -> str:
    """Empty: the kernel does not have it."""
    return (read_bytes("/proc/sys/kernel/random/boot_id") or b"").decode().strip()


def is_same_process(pid: int, start_ticks: int) -> bool:
    stat = read_stat(pid)
    return stat is not None and stat.start_ticks == start_ticks


# Real-time signals (systemd stops by ``SIGRTMIN+3``) have no names in Python.
RT_MIN, RT_MAX = int(signal.SIGRTMIN), int(signal.SIGRTMAX)
#: On every machine but MIPS.
SIGNAL_NUMBER_MAX = 64

_NUMBER_BY_NAME: dict[str, int] = (
    {s.name: int(s) for s in signal.Signals if s.name not in ("SIGRTMIN", "SIGRTMAX")}
    | {"SIGCLD": int(signal.SIGCHLD), "SIGPOLL": int(signal.SIGIO), "SIGIOT": int(signal.SIGABRT)}
    | {f"SIGRTMAX-{RT_MAX - n}": n for n in range(RT_MIN, RT_MAX + 1)}
    | {f"SIGRTMIN+{n - RT_MIN}": n for n in range(RT_MIN, RT_MAX + 1)}
    | {"SIGRTMIN": RT_MIN, "SIGRTMAX": RT_MAX}
)

_NAME_BY_NUMBER: dict[int, str] = (
    {n: f"SIG{n}" for n in range(1, SIGNAL_NUMBER_MAX + 1)}
    | {n: f"SIGRTMIN+{n - RT_MIN}" for n in range(RT_MIN, RT_MAX + 1)}
    | {int(s): s.name for s in signal.Signals}
)


def signal_number(name: str) -> int:
    """``SIGTERM``, ``TERM``, ``sigterm``, ``SIGRTMIN+3`` or ``15``. Raises ValueError."""
    wanted = name.strip().upper()
    if wanted.isascii() and wanted.isdecimal() and 1 <= int(wanted[:3]) <= SIGNAL_NUMBER_MAX:
        return int(wanted)
    number = _NUMBER_BY_NAME.get(wanted, _NUMBER_BY_NAME.get(f"SIG{wanted}"))
    if number is None:
        raise ValueError(f"{name!r} is no signal; use a name such as SIGTERM or SIGRTMIN+3")
    return number


def signal_name(number: int) -> str:
    """``SIG<number>`` for an unknown one."""
    return _NAME_BY_NUMBER.get(number, f"SIG{number}")


def mask_names(mask: int) -> tuple[str, ...]:
    """Bit 0 is signal 1."""
    return tuple(_NAME_BY_NUMBER[n] for n in range(1, SIGNAL_NUMBER_MAX + 1) if mask >> (n - 1) & 1)


# By the masks of a container's first process. The kernel's default ends a process, but *not* the first of a
# pid namespace: the usual reason why a container needs its whole grace. The program may read a blocked signal
# in another way (signalfd, sigwait).

Verdict = Literal["ends", "handles", "ignores", "unclear"]

#: As stop signals these need a handler.
NOT_ENDING_BY_DEFAULT = (
    "SIGCHLD",
    "SIGCONT",
    "SIGURG",
    "SIGWINCH",
    "SIGSTOP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
)
NOT_ENDING_NUMBERS = frozenset(signal_number(name) for name in NOT_ENDING_BY_DEFAULT)
SIGKILL_NUMBER = signal_number("SIGKILL")

VERDICT_TEXT: dict[Verdict, str] = {
    "ends": "no handler: the kernel ends it",
    "handles": "the program handles it",
    "ignores": "it ignores the signal and will be killed when its grace is over",
    "unclear": "it blocks the signal: either it reads it in another way, or it will be killed",
}
FIRST_PROCESS_TEXT = (
    "first process of a pid namespace without a handler: the kernel drops the signal, and it will be killed "
    "when its grace is over; let an init process such as tini pass signals on, or add a handler"
)
NOT_ENDING_TEXT = "the signal's default does not end a process, and nothing handles it"


class SignalForecast(msgspec.Struct, frozen=True, kw_only=True):
    uid: str
    container: str
    pid: int
    signal: str
    verdict: Verdict
    why: str


def verdict_of(status: ProcessStatus, signal: str) -> tuple[Verdict, str]:
    """Raises ValueError."""
    number = signal_number(signal)
    bit = 1 << (number - 1)
    # SIGKILL cannot be blocked or caught.
    if number == SIGKILL_NUMBER:
        return "ends", VERDICT_TEXT["ends"]
    # Blocked proves least, so it comes last.
    if status.ignored & bit:
        return "ignores", VERDICT_TEXT["ignores"]
    if status.caught & bit:
        return "handles", VERDICT_TEXT["handles"]
    if status.blocked & bit:
        return "unclear", VERDICT_TEXT["unclear"]
    # The last is the number in the innermost namespace.
    if len(status.namespace_pids) > 1 and status.namespace_pids[-1] == 1:
        return "ignores", FIRST_PROCESS_TEXT
    return ("ignores", NOT_ENDING_TEXT) if number in NOT_ENDING_NUMBERS else ("ends", VERDICT_TEXT["ends"])


def forecast_signal(uid: str, container: str, pid: int, signal: str) -> SignalForecast | None:
    """None: no such process. Raises ValueError."""
    status = read_status(pid)
    if status is None:
        return None
    verdict, why = verdict_of(status, signal)
    return SignalForecast(uid=uid, container=container, pid=pid, signal=signal, verdict=verdict, why=why)


#: It bounds the record.
PROCESSES_MAX = 32

PROCESS_STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "uninterruptible",
    "T": "stopped",
    "t": "traced",
    "Z": "zombie",
    "I": "idle",
}


def process_report(
    stat: ProcessStat, status: ProcessStatus | None, wait_channel: str, connections: int
) -> ProcessReport:
    return ProcessReport(
        pid=stat.pid,
        parent_pid=stat.parent_pid,
        command=stat.command,
        state=PROCESS_STATES.get(stat.state, stat.state),
        wait_channel=wait_channel,
        signals_caught=mask_names(status.caught) if status else (),
        signals_ignored=mask_names(status.ignored) if status else (),
        connections=connections,
    )


def examine_processes(
    stats: Iterable[ProcessStat], deadline_ns: int, mono_ns: Callable[[], int] = time.monotonic_ns
) -> tuple[ProcessReport, ...]:
    """Until ``deadline_ns``: pods are more important than evidence. Parents before children."""
    reports: list[ProcessReport] = []
    established: frozenset[int] | None = None
    for stat in sorted(stats, key=lambda item: (item.start_ticks, item.pid))[:PROCESSES_MAX]:
        if reports and mono_ns() >= deadline_ns:
            break
        if established is None:
            established = read_tcp(stat.pid)
        # The number may be reused by now.
        fresh = read_stat(stat.pid)
        if fresh is None or fresh.start_ticks != stat.start_ticks:
            continue
        channel = (read_bytes(f"/proc/{stat.pid}/wchan") or b"").decode(errors="replace")
        connections = len(established.intersection(socket_inodes(stat.pid)))
        status = read_status(stat.pid)
        reports.append(process_report(fresh, status, "" if channel == "0" else channel, connections))
    return tuple(reports)

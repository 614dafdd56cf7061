"""Signals by name and number, and what a stop signal would do to a process: told from ``/proc`` before it
matters.

A manifest may ask for real-time signals (``SIGRTMIN+3`` is systemd's way to be asked to stop), which
Python's own enumeration does not name.

The kernel's masks of a container's first process say which signals it will not react to. Ignored is
ignored. Caught is the program's own business. Neither means the kernel's default, which ends a process, but
*not* the first process of a pid namespace: there a signal without a handler is dropped, the usual reason
why a container always needs its whole grace. Blocked and not caught may be read in another way (signalfd,
sigwait), or by nobody.
"""

from __future__ import annotations

import signal
from typing import Literal

import msgspec

from ebbtide.actors.edges.linux import proc

RT_MIN, RT_MAX = int(signal.SIGRTMIN), int(signal.SIGRTMAX)
#: Linux has as many on every machine but one (MIPS).
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
    """``SIGTERM``, ``TERM``, ``sigterm``, ``SIGRTMIN+3`` or ``15``. Raises ValueError for anything else."""
    wanted = name.strip().upper()
    if wanted.isascii() and wanted.isdecimal() and 1 <= int(wanted[:3]) <= SIGNAL_NUMBER_MAX:
        return int(wanted)
    number = _NUMBER_BY_NAME.get(wanted, _NUMBER_BY_NAME.get(f"SIG{wanted}"))
    if number is None:
        raise ValueError(f"{name!r} is no signal; use a name such as SIGTERM or SIGRTMIN+3")
    return number


def signal_name(number: int) -> str:
    """The name of a signal; ``SIG<number>`` for one without a name."""
    return _NAME_BY_NUMBER.get(number, f"SIG{number}")


def mask_names(mask: int) -> tuple[str, ...]:
    """The signals in a ``/proc`` mask, ascending. Bit 0 is signal 1."""
    return tuple(_NAME_BY_NUMBER[n] for n in range(1, SIGNAL_NUMBER_MAX + 1) if mask >> (n - 1) & 1)


Verdict = Literal["ends", "handles", "ignores", "unclear"]

#: Signals whose default does not end a process; as stop signals they do nothing unless they are caught.
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
    """What the stop signal would do to a container's first process."""

    uid: str
    container: str
    pid: int
    signal: str
    verdict: Verdict
    why: str


def verdict_of(status: proc.ProcessStatus, signal: str) -> tuple[Verdict, str]:
    """Pure. Raises ValueError when ``signal`` is none."""
    number = signal_number(signal)
    bit = 1 << (number - 1)
    # Before the masks: a process may claim to block or to catch it, and the kernel does not ask.
    if number == SIGKILL_NUMBER:
        return "ends", VERDICT_TEXT["ends"]
    # Ignored and caught exclude each other; blocked says least, and so is asked last.
    if status.ignored & bit:
        return "ignores", VERDICT_TEXT["ignores"]
    if status.caught & bit:
        return "handles", VERDICT_TEXT["handles"]
    if status.blocked & bit:
        return "unclear", VERDICT_TEXT["unclear"]
    # Its number in the innermost namespace, which is the last of the list.
    if len(status.namespace_pids) > 1 and status.namespace_pids[-1] == 1:
        return "ignores", FIRST_PROCESS_TEXT
    return ("ignores", NOT_ENDING_TEXT) if number in NOT_ENDING_NUMBERS else ("ends", VERDICT_TEXT["ends"])


def forecast_signal(uid: str, container: str, pid: int, signal: str) -> SignalForecast | None:
    """One container, from its first process; None when there is no such process. Raises ValueError."""
    status = proc.read_status(pid)
    if status is None:
        return None
    verdict, why = verdict_of(status, signal)
    return SignalForecast(uid=uid, container=container, pid=pid, signal=signal, verdict=verdict, why=why)

"""Which containers will not hear their stop signal: told from ``/proc`` before it matters.

The kernel's masks of the first process say it all. Ignored is ignored. Caught is the program's own
business. Neither means the kernel's default, which ends a process, but *not* the first process of a
pid namespace: there a signal without a handler is dropped, the usual reason why a container always needs
its whole grace. Blocked and not caught may be read in another way (signalfd, sigwait), or by nobody.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from actors.edges.process import proc
from actors.edges.process.signals import signal_number

Verdict = Literal["ends", "handles", "ignores", "unclear"]

#: Signals whose default does not end a process; as stop signals they do nothing unless they are caught.
HARMLESS = ("SIGCHLD", "SIGCONT", "SIGURG", "SIGWINCH", "SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU")
HARMLESS_NUMBERS = frozenset(signal_number(name) for name in HARMLESS)
KILL = signal_number("SIGKILL")

WHY: dict[Verdict, str] = {
    "ends": "no handler: the kernel ends it",
    "handles": "the program handles it",
    "ignores": "it ignores the signal and will be killed when its grace is over",
    "unclear": "it blocks the signal: either it reads it in another way, or it will be killed",
}
FIRST_WITHOUT_HANDLER = (
    "first process of a pid namespace without a handler: the kernel drops the signal, and it will be killed "
    "when its grace is over; let an init process such as tini pass signals on, or add a handler"
)
NOT_ENDING = "the signal's default does not end a process, and nothing handles it"


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """What the stop signal would do to a container's first process."""

    uid: str
    container: str
    pid: int
    signal: str
    verdict: Verdict
    why: str


def verdict_of(status: proc.Status, signal: str) -> tuple[Verdict, str]:
    """Pure. Raises ValueError when ``signal`` is none."""
    number = signal_number(signal)
    bit = 1 << (number - 1)
    if number == KILL:
        return "ends", WHY["ends"]
    if status.ignored & bit:
        return "ignores", WHY["ignores"]
    if status.caught & bit:
        return "handles", WHY["handles"]
    if status.blocked & bit:
        return "unclear", WHY["unclear"]
    if len(status.namespace_pids) > 1 and status.namespace_pids[-1] == 1:
        return "ignores", FIRST_WITHOUT_HANDLER
    return ("ignores", NOT_ENDING) if number in HARMLESS_NUMBERS else ("ends", WHY["ends"])


def forecast(uid: str, container: str, pid: int, signal: str) -> Forecast | None:
    """One container, from its first process; None when there is no such process. Raises ValueError."""
    status = proc.read_status(pid)
    if status is None:
        return None
    verdict, why = verdict_of(status, signal)
    return Forecast(uid=uid, container=container, pid=pid, signal=signal, verdict=verdict, why=why)

"""Signal names as manifests and ``/proc`` use them, in both directions.

A manifest may ask for real-time signals (``SIGRTMIN+3`` is systemd's way to be asked to stop), which
Python's own enumeration does not name.
"""

from __future__ import annotations

import signal

RT_MIN, RT_MAX = int(signal.SIGRTMIN), int(signal.SIGRTMAX)
SIGNAL_NUMBER_MAX = 64

_NUMBERS: dict[str, int] = (
    {s.name: int(s) for s in signal.Signals if s.name not in ("SIGRTMIN", "SIGRTMAX")}
    | {"SIGCLD": int(signal.SIGCHLD), "SIGPOLL": int(signal.SIGIO), "SIGIOT": int(signal.SIGABRT)}
    | {f"SIGRTMAX-{RT_MAX - n}": n for n in range(RT_MIN, RT_MAX + 1)}
    | {f"SIGRTMIN+{n - RT_MIN}": n for n in range(RT_MIN, RT_MAX + 1)}
    | {"SIGRTMIN": RT_MIN, "SIGRTMAX": RT_MAX}
)

_NAMES: dict[int, str] = (
    {n: f"SIG{n}" for n in range(1, SIGNAL_NUMBER_MAX + 1)}
    | {n: f"SIGRTMIN+{n - RT_MIN}" for n in range(RT_MIN, RT_MAX + 1)}
    | {int(s): s.name for s in signal.Signals}
)


def signal_number(name: str) -> int:
    """``SIGTERM``, ``TERM``, ``sigterm``, ``SIGRTMIN+3`` or ``15``. Raises ValueError for anything else."""
    wanted = name.strip().upper()
    if wanted.isascii() and wanted.isdecimal() and 1 <= int(wanted[:3]) <= SIGNAL_NUMBER_MAX:
        return int(wanted)
    number = _NUMBERS.get(wanted, _NUMBERS.get(f"SIG{wanted}"))
    if number is None:
        raise ValueError(f"{name!r} is no signal; use a name such as SIGTERM or SIGRTMIN+3")
    return number


def signal_name(number: int) -> str:
    """The name of a signal; ``SIG<number>`` for one without a name."""
    return _NAMES.get(number, f"SIG{number}")


def mask_names(mask: int) -> tuple[str, ...]:
    """The signals in a ``/proc`` mask, ascending. Bit 0 is signal 1."""
    return tuple(_NAMES[n] for n in range(1, SIGNAL_NUMBER_MAX + 1) if mask >> (n - 1) & 1)

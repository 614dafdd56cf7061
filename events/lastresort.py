"""Where the transitions of a shutdown go when no storage is left: the kernel's log and its pstore.

Neither is a journal: a line says what happened, so that somebody can still find out how far it came.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from events.decisions import (
    ActorFailed,
    EpisodeClosed,
    FallbackEngaged,
    PodEnded,
    PodsEnded,
    ReleaseLock,
    ShutdownBegan,
    ShutdownCancelled,
    ShutdownWithdrawn,
    WaveEnded,
    WaveStarted,
)
from events.record import Record

#: What a person would want to know of a shutdown; more would flood a log that is already in trouble.
TRANSITIONS = (
    ShutdownBegan,
    WaveStarted,
    PodEnded,
    WaveEnded,
    ShutdownCancelled,
    ShutdownWithdrawn,
    ActorFailed,
    FallbackEngaged,
    PodsEnded,
    ReleaseLock,
    EpisodeClosed,
)
#: A line of the kernel's log; a longer one would be cut or refused.
LINE_BYTES_MAX = 900

KERNEL_LOG = "/dev/kmsg"
PSTORE = "/dev/pmsg0"


def transition_line(record: Record) -> str | None:
    """The record as one line, or None when it is no transition."""
    event = record.event
    if not isinstance(event, TRANSITIONS):
        return None
    fields = " ".join(f"{name}={_short(getattr(event, name))}" for name in event.__struct_fields__)
    return f"ebbtide: {record.seq} {record.mono_ns} {type(event).__name__} {fields}"[:LINE_BYTES_MAX]


def _short(value: object) -> str:
    return (
        f"{len(value)}" if isinstance(value, tuple) else repr(value) if isinstance(value, str) else str(value)
    )


def last_resort(line: str) -> None:
    """Write a line wherever it may survive. Never raises: nobody is left to be told."""
    data = f"{line}\n".encode()
    if not _write(KERNEL_LOG, data):
        with suppress(OSError, ValueError):
            sys.stderr.write(f"{line}\n")
    _write(PSTORE, data)


def _write(path: str, data: bytes) -> bool:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.write(descriptor, data) > 0
    except OSError:
        return False
    finally:
        os.close(descriptor)

"""One daemon for one runtime folder: two would both run the same pods' hooks, whatever their journals are.

The claim is a lock on a file, so it goes with the process, however that ends.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

CLAIM_NAME = "daemon.lock"

#: A process id and a line break fit many times over.
OWNER_BYTES_MAX = 64


class RuntimeTaken(Exception):
    """Another daemon runs here; the text names it and says what to do."""


def claim(runtime: Path) -> int:
    """The descriptor that holds the claim; leave it open. Raises RuntimeTaken, OSError."""
    runtime.mkdir(mode=0o755, parents=True, exist_ok=True)
    descriptor = os.open(runtime / CLAIM_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.pread(descriptor, OWNER_BYTES_MAX, 0).decode("ascii", "replace").strip()
        os.close(descriptor)
        raise RuntimeTaken(
            f"ebbtide (process {owner}) runs with {runtime}: end it first, or name another with --runtime"
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def claimed_by(runtime: Path) -> str:
    """The process id of the daemon that runs here, as it wrote it; empty where none does. Changes nothing."""
    try:
        descriptor = os.open(runtime / CLAIM_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(descriptor, OWNER_BYTES_MAX, 0).decode("ascii", "replace").strip() or "unknown"
    finally:
        os.close(descriptor)
    return ""

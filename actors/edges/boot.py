"""This boot's name, for whoever needs no more than that: it takes neither a bus nor Trio."""

from __future__ import annotations

from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """The kernel's random name for this boot, without dashes."""
    return BOOT_ID.read_text().strip().replace("-", "")

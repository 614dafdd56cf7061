"""Where a simulated journal goes: a directory of its own, never into one that is there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ebbtide.cli.guard import Refused

#: As the daemon's own journal (`events.storage`).
FILE_MODE, DIRECTORY_MODE = 0o600, 0o700


def free(directory: Path) -> Path:
    """Raises Refused where something is there already: a journal is never written over, or mixed."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise Refused(f"{directory} is there already: name a new directory with --journal")
    return directory


def keep(directory: Path, files: Mapping[str, bytes]) -> None:
    """Write the segments. Raises OSError."""
    directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    for name, data in files.items():
        path = directory / name
        path.touch(mode=FILE_MODE)
        path.write_bytes(data)

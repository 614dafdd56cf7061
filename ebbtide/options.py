"""What a daemon needs to be told, apart from the shutdown's own configuration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

#: Promised to the outside (interface.md).
JOURNAL_PATH = Path("/var/lib/ebbtide/journal")
RUNTIME_PATH = Path("/run/ebbtide")


class RunOptions(NamedTuple):
    """``config``: files, later ones win. ``pods``: a manifest or a folder of them, for mode process.

    ``journal`` is the first location; the configuration may name others. ``runtime`` holds what goes
    with the boot: the control socket and the running pods' records. ``cri``: the container runtime's
    socket, for mode cri; None: where one is found.
    """

    config: Sequence[Path] = ()
    pods: Path | None = None
    journal: Path = JOURNAL_PATH
    runtime: Path = RUNTIME_PATH
    socket: Path | None = None
    #: Newest lines of a straggler's output in its autopsy; 0 keeps output out of the journal.
    capture_lines: int = 0
    mode: str = "process"
    cri: Path | None = None

    @property
    def control_socket(self) -> Path:
        return self.socket or self.runtime / "ebbtide.sock"

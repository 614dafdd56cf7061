"""The demo's stage: a folder of its own with the manifests, the configuration, and the journal."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

#: The port that ``web-0`` serves its hook on, as its manifest has it.
PORT = 47311

PACKAGE = files("ebbtide.demo")


class Stage(NamedTuple):
    """``root`` goes with the machine's temporary files; ``late`` is brought into ``pods`` in mid-shutdown."""

    root: Path
    pods: Path
    late: Path
    config: Path
    journal: Path
    runtime: Path


def set_stage(journal: Path | None) -> Stage:
    """Write everything into a fresh folder. Raises OSError.

    The pods' ``python3`` is the one that runs the demo.
    """
    root = Path(tempfile.mkdtemp(prefix="ebbtide-demo-"))
    stage = Stage(
        root,
        root / "pods",
        root / "late-0.yaml",
        root / "config.yaml",
        journal or root / "journal",
        root / "run",
    )
    stage.pods.mkdir()
    port = _free_port()
    for manifest in (PACKAGE / "pods").iterdir():
        text = manifest.read_text(encoding="utf-8").replace(str(PORT), str(port))
        (stage.pods / manifest.name).write_text(text, encoding="utf-8")
    for source, target in (("late/late-0.yaml", stage.late), ("config.yaml", stage.config)):
        target.write_text((PACKAGE / source).read_text(encoding="utf-8"), encoding="utf-8")
    os.environ["PATH"] = os.pathsep.join(
        (str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))
    )
    return stage


def bring_late_pod(stage: Stage) -> None:
    """A manifest appears in the watched folder."""
    os.rename(stage.late, stage.pods / stage.late.name)


def _free_port() -> int:
    """The manifest's own port, or any other where that one is taken."""
    for port in (PORT, 0):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            found: int = probe.getsockname()[1]
            return found
    return PORT

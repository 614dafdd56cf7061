"""The demo: ordinary pod manifests as local processes, a logind of its own, and one whole power-off.

Each pod under ``pods/`` shows one thing; a cluster would accept every one.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

#: For the hook, in the manifest of ``web-0``.
WEB_PORT = 47311

DEMO_FILES = files("ebbtide.demo")


class DemoFolder(NamedTuple):
    """``late`` is moved into ``pods`` in mid-shutdown."""

    root: Path
    pods: Path
    late: Path
    config: Path
    journal: Path
    runtime: Path


def make_demo_folder(journal: Path | None) -> DemoFolder:
    """Raises OSError."""
    root = Path(tempfile.mkdtemp(prefix="ebbtide-demo-"))
    pods, late, config = root / "pods", root / "late-0.yaml", root / "config.yaml"
    folder = DemoFolder(root, pods, late, config, journal or root / "journal", root / "run")
    folder.pods.mkdir()
    # Two demos may run at once: take a free port.
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for manifest in (DEMO_FILES / "pods").iterdir():
        text = manifest.read_text(encoding="utf-8").replace(str(WEB_PORT), str(port))
        (folder.pods / manifest.name).write_text(text, encoding="utf-8")
    for source, target in (("late/late-0.yaml", folder.late), ("config.yaml", folder.config)):
        target.write_text((DEMO_FILES / source).read_text(encoding="utf-8"), encoding="utf-8")
    # The pods' ``python3`` is the demo's.
    os.environ["PATH"] = os.pathsep.join(
        (str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))
    )
    return folder

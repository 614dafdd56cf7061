"""What a demo leaves while it lasts: a folder with manifests, configuration and journal, and whoever sees to
its end.

Apart from the demo itself, because its first line is to be on the screen before all that it runs is loaded.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple, NoReturn

#: The port that ``web-0`` serves its hook on, as its manifest has it.
WEB_PORT = 47311

DEMO_FILES = files("ebbtide.demo")


class DemoFolder(NamedTuple):
    """``root`` goes with the machine's temporary files; ``late`` is brought into ``pods`` in mid-shutdown."""

    root: Path
    pods: Path
    late: Path
    config: Path
    journal: Path
    runtime: Path


def make_demo_folder(journal: Path | None) -> DemoFolder:
    """Write everything into a fresh folder. Raises OSError.

    The pods' ``python3`` is the one that runs the demo.
    """
    root = Path(tempfile.mkdtemp(prefix="ebbtide-demo-"))
    pods, late, config = root / "pods", root / "late-0.yaml", root / "config.yaml"
    folder = DemoFolder(root, pods, late, config, journal or root / "journal", root / "run")
    folder.pods.mkdir()
    # The manifest's own port, or any other where that one is taken: two demos may run at once.
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", WEB_PORT))
        except OSError:
            probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for manifest in (DEMO_FILES / "pods").iterdir():
        text = manifest.read_text(encoding="utf-8").replace(str(WEB_PORT), str(port))
        (folder.pods / manifest.name).write_text(text, encoding="utf-8")
    for source, target in (("late/late-0.yaml", folder.late), ("config.yaml", folder.config)):
        target.write_text((DEMO_FILES / source).read_text(encoding="utf-8"), encoding="utf-8")
    os.environ["PATH"] = os.pathsep.join(
        (str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))
    )
    return folder


@contextmanager
def cleaned_up_if_killed(folder: DemoFolder) -> Iterator[None]:
    """Where this process is killed outright, a child of it ends the demo's pods and removes its folder; the
    journal stays where it stands elsewhere. To be entered while there are no threads.
    """
    # A pipe tells the child: its other end closes with this process, however that ends. A signal at its
    # parent's death would end the pods' first processes alone, and not what they have started.
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        os.close(write_end)
        _clean_up_after(read_end, folder)
    os.close(read_end)
    try:
        yield
    finally:
        # An end in order has seen to its pods.
        with suppress(OSError):
            os.write(write_end, b".")
        os.close(write_end)
        os.waitpid(child, 0)


def _clean_up_after(read_end: int, folder: DemoFolder) -> NoReturn:
    try:
        # Away from the terminal, whose Ctrl-C is for the demo, and from its pipes, whose readers wait for
        # their end.
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in range(3):
            os.dup2(nothing, standard)
        if not os.read(read_end, 1):
            # Only now, because a demo's first line waits for this process to be there.
            from ebbtide.demo.demo_run import kill_remaining
            from ebbtide.events.disk import RESERVE_NAME

            kill_remaining(folder)
            (folder.journal / RESERVE_NAME).unlink(missing_ok=True)
            shutil.rmtree(folder.root, ignore_errors=True)
    finally:
        os._exit(0)

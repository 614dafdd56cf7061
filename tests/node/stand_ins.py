"""Replacements for ``ebbtide``: an installation that can be removed at runtime, and a settable wall clock.

No namespace isolates the wall clock. The second one preloads its own clock (``clock.c``) for Python and every
library of the process.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.beds.inside import PROJECT
from tests.beds.rootfs import Unavailable
from tests.node.ebbtide import COMMAND

#: Isolated without site-packages: only the copy can be imported.
COPIED = "import sys; sys.path.insert(0, {folder!r}); import ebbtide.cli as cli; sys.exit(cli.main())"
STEP = struct.Struct("=q")
SOURCE = Path(__file__).with_name("clock.c")


class Installation:
    """A copy of the installation in ``folder``; hard links on the same disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(sysconfig.get_paths()["purelib"], folder, copy_function=_copy, symlinks=True)
        # An editable install holds outdated copies of the linked folders.
        shutil.rmtree(folder / "ebbtide", ignore_errors=True)
        shutil.copytree(PROJECT / "ebbtide", folder / "ebbtide")

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-I", "-S", "-c", COPIED.format(folder=str(self.folder))]

    def remove(self) -> None:
        shutil.rmtree(self.folder)


def _copy(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target


class Clock:
    """One program's wall clock. Raises Unavailable without a C compiler."""

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("cc")
        if compiler is None:
            raise Unavailable("a wall clock of its own needs a C compiler (Debian's gcc and libc6-dev)")
        self.library, self.file = folder / "clock.so", folder / "step"
        argv = [compiler, "-shared", "-fPIC", "-O1", "-o", str(self.library), str(SOURCE), "-ldl"]
        subprocess.run(argv, check=True)
        self.file.write_bytes(bytes(STEP.size))

    @property
    def command(self) -> list[str]:
        return ["env", f"LD_PRELOAD={self.library}", f"EBBTIDE_TEST_STEP={self.file}", *COMMAND]

    def step(self, by_ns: int) -> None:
        """Shift the clock against the machine's; negative: earlier."""
        with self.file.open("r+b") as file:
            file.write(STEP.pack(by_ns))

"""Programs built once from a Go module and kept outside the tree.

Cached by their inputs; builds run one at a time with low priority.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.beds.rootfs import Unavailable, cache_folder, keep

#: Older versions do not download the toolchain that a go.mod requires.
GO_MIN = (1, 21)
INPUTS = (".mod", ".sum", ".go")


class Module(NamedTuple):
    """``folder`` has go.mod and go.sum; ``flags`` apply to every build."""

    folder: Path
    flags: tuple[str, ...] = ()

    def key(self) -> str:
        paths = sorted(path for path in self.folder.iterdir() if path.suffix in INPUTS)
        inputs = [path.read_bytes() for path in paths] + [flag.encode() for flag in self.flags]
        return hashlib.sha256(b"\0".join(inputs)).hexdigest()[:16]


def built(module: Module, name: str, package: str) -> Path:
    """The binary, built if missing. Raises Unavailable: no Go, no module proxy, no checksum."""
    wanted = cache_folder() / "go" / module.key() / name
    # Only a complete binary has its name: its users do not wait for other builds.
    if not wanted.exists():
        with _alone(wanted.parent.parent):
            if not wanted.exists():
                _build(module, package, wanted)
    return wanted


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(module: Module, package: str, wanted: Path) -> None:
    if shutil.which("go") is None or _version() < GO_MIN:
        raise Unavailable(f"building {wanted.name} needs Go {'.'.join(map(str, GO_MIN))} or later")
    wanted.parent.mkdir(parents=True, exist_ok=True)
    part = wanted.with_suffix(".part")
    build = ["nice", "-n", "19", "go", "build", "-mod=readonly"]
    argv = [*build, *module.flags, "-o", str(part), package]
    print(f"building {wanted.name} (once; this can take some minutes)", file=sys.stderr, flush=True)
    environ = os.environ | {"GOFLAGS": "-buildvcs=false"}
    done = subprocess.run(argv, cwd=module.folder, env=environ, capture_output=True, text=True)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["failed"]
        raise Unavailable(f"building {wanted.name}: {said[-1]}")
    keep(part, wanted)


def _version() -> tuple[int, ...]:
    said = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True).stdout
    digits = said.strip().removeprefix("go").split(".")[:2]
    return tuple(int(each) for each in digits if each.isdecimal())

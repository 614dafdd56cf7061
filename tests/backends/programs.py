"""Jaeger, Tempo and a Collector, built from their Go modules once and kept outside the tree.

Each has a module of its own here (their graphs do not agree), with its sums committed. A binary is keyed by
them, so that a second run costs nothing; builds give way to everything else on the machine, one at a time.
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

from tests.beds.rootfs import Unavailable, cache_folder

HERE = Path(__file__).parent
BUILD_SECONDS_MAX = 1800
#: Their go.mod files ask for it; an older one would fetch it by itself from 1.21 on.
GO_MIN = (1, 21)


class Program(NamedTuple):
    """What is built of the module in folder ``name``."""

    package: str
    flags: tuple[str, ...] = ()


PROGRAMS = {
    "jaeger": Program("github.com/jaegertracing/jaeger/cmd/all-in-one"),
    # It reaches into the standard library, which newer linkers refuse.
    "tempo": Program(".", ("-ldflags=-checklinkname=0",)),
    "collector": Program("."),
}


def program(name: str) -> Path:
    """The binary, built if it is not there. Raises Unavailable: no Go, no module proxy, no checksum."""
    folder = HERE / name
    inputs = sorted(path for path in folder.iterdir() if path.suffix in (".mod", ".sum", ".go"))
    key = hashlib.sha256(b"\0".join(path.read_bytes() for path in inputs)).hexdigest()[:16]
    wanted = cache_folder() / "go" / key / name
    with _alone(wanted.parent.parent):
        if not wanted.exists():
            _build(name, wanted)
    return wanted


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(name: str, wanted: Path) -> None:
    if shutil.which("go") is None or _version() < GO_MIN:
        raise Unavailable(f"building {name} needs Go {'.'.join(map(str, GO_MIN))} or later")
    package, flags = PROGRAMS[name]
    wanted.parent.mkdir(parents=True, exist_ok=True)
    part = wanted.with_suffix(".part")
    argv = ["nice", "-n", "19", "go", "build", "-p", "2", "-mod=readonly", *flags, "-o", str(part), package]
    print(f"building {name} (once; this can take some minutes)", file=sys.stderr, flush=True)
    environ = os.environ | {"GOFLAGS": "-buildvcs=false"}
    try:
        done = subprocess.run(
            argv, cwd=HERE / name, env=environ, capture_output=True, text=True, timeout=BUILD_SECONDS_MAX
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"building {name} took more than {BUILD_SECONDS_MAX} s") from error
    if done.returncode:
        raise Unavailable(f"building {name}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")
    part.rename(wanted)


def _version() -> tuple[int, ...]:
    said = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True).stdout
    digits = said.strip().removeprefix("go").split(".")[:2]
    return tuple(int(each) for each in digits if each.isdecimal())

"""Jaeger, Tempo and a Collector, each in its own Go module: their dependencies conflict.

python -m tests.backends.programs [NAME…]     # builds them ahead of time, and says where they are
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

from tests.beds.golang import Module, built

HERE = Path(__file__).parent


class Program(NamedTuple):
    """The package built in folder ``name``."""

    package: str
    flags: tuple[str, ...] = ()


PROGRAMS = {
    "jaeger": Program("github.com/jaegertracing/jaeger/cmd/all-in-one"),
    # It uses standard library internals, which newer linkers refuse.
    "tempo": Program(".", ("-ldflags=-checklinkname=0",)),
    "collector": Program("."),
}


def program(name: str) -> Path:
    """The binary, built if missing. Raises tests.beds.rootfs.Unavailable."""
    package, flags = PROGRAMS[name]
    return built(Module(HERE / name, flags), name, package)


def main() -> None:
    for name in sys.argv[1:] or PROGRAMS:
        print(program(name), flush=True)


if __name__ == "__main__":
    main()

"""A measurement on a cluster as a command: its nodes, a folder of its own, its figures kept if asked."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.report import Figure, conclude, parser, say
from tests.beds.rootfs import Unavailable

NODES = 2000


def measured(name: str, command: str, text: str | None, measure: Callable[[Path, int], list[Figure]]) -> int:
    """The exit code: 1 when a figure is missed, 2 where there is no cluster to be had."""
    options = parser(text)
    options.add_argument("--nodes", type=int, default=NODES, help=f"default {NODES}")
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="ebbtide-fleet.") as folder:
        try:
            found = measure(Path(folder), arguments.nodes)
        except Unavailable as why:
            say(str(why))
            return 2
    return conclude(name, arguments, found, {"command": command})

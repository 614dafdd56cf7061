"""Ebbtide's daemon as a program of the node: a child of its first process, its files in the bed's folder."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import trio

from tests.node.bed import Bed
from tests.node.client import POLL_SECONDS
from tests.node.parts import Part

NAME = "ebbtide"
COMMAND = (sys.executable, "-c", "import sys, ebbtide.cli as cli; sys.exit(cli.main())")
ARMED_SECONDS_MAX = 20


class Daemon:
    """``journal`` is read from outside, also while it runs."""

    def __init__(self, bed: Bed, journal: Path, mode: str) -> None:
        self.bed, self.journal, self.mode = bed, journal, mode
        self.folder = bed.folder / NAME
        self.pods = self.folder / "pods"
        self.pods.mkdir(parents=True, exist_ok=True)

    def configure(self, **fields: Any) -> None:
        """By the configuration's own names."""
        kind = {"apiVersion": "ebbtide/v1alpha1", "kind": "EbbtideConfiguration"}
        (self.folder / "config.yaml").write_text(json.dumps(kind | fields))

    async def start(self) -> None:
        """Returns when it holds its lock."""
        paths = {
            "config": self.folder / "config.yaml",
            "journal": self.journal,
            "runtime": self.folder / "run",
        }
        words = [f"--{name}={path}" for name, path in paths.items()]
        if self.mode == "process":
            words.append(f"--pods={self.pods}")
        argv = [*COMMAND, "run", f"--mode={self.mode}", *words]
        await self.bed.start(Part(NAME, argv, {"DBUS_SYSTEM_BUS_ADDRESS": self.bed.logind.address}))
        with trio.move_on_after(ARMED_SECONDS_MAX):
            while not await self.bed.logind.ours():
                assert await self.exited() is None, self.bed.log(NAME)
                await trio.sleep(POLL_SECONDS)
            return
        raise AssertionError(f"it does not arm: {self.bed.log(NAME)[-3000:]}")

    async def exited(self) -> int | None:
        """Its exit code when it has gone, else None."""
        code: int | None = await self.bed.inside.do("exited", name=NAME)
        return code

    async def stop(self) -> None:
        await self.bed.stop(NAME)

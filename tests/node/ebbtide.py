"""Ebbtide's daemon as a child of the node's PID 1, with its files in the bed's folder.

Tests read its journal from outside during the run.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import trio

from ebbtide.actors.policy.termination_mode import NODE_MODES
from ebbtide.events.base import Event, Record
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.decisions import GrantAssessed
from ebbtide.events.facts import ApiRead, RuntimeRead
from ebbtide.events.reader import History
from tests.node.bed import Bed
from tests.node.identities import EBBTIDE, Client
from tests.node.parts import API, MANIFESTS, Member, Part
from tests.waiting import WATCHDOG_SECONDS, until

NAME = "ebbtide"
PROGRAM = "import sys, ebbtide.cli as cli; sys.exit(cli.main())"
COMMAND = (sys.executable, "-c", PROGRAM)

E = TypeVar("E", bound=Event)


def parts_of(member: Member) -> dict[str, Any]:
    """The configuration's part names, without the API server."""
    return {
        "nodeName": member.name,
        "criSocket": str(member.socket),
        "kubeletUnit": member.unit,
        "kubeletRoot": str(member.state / "kubelet"),
        "staticPodPath": str(member.state / MANIFESTS),
    }


class Daemon:
    """``journal`` is read from outside, also during the run. A node's modes act on ``member``.

    ``server``: its API server address, as ``client``; empty: none. ``program``: replaces the ``ebbtide``
    command.
    """

    #: Widens its bounds by this factor (`events.bounds`).
    bounds_factor = 1

    def __init__(
        self,
        bed: Bed,
        journal: Path,
        mode: str,
        member: Member | None = None,
        *,
        client: Client = EBBTIDE,
        server: str = API,
        program: Sequence[str] = COMMAND,
    ) -> None:
        self.bed, self.journal, self.mode, self.program = bed, journal, mode, program
        self.member = member or next(iter(bed.members.values()))
        self.client, self.server = client, server
        self.folder = bed.folder / NAME
        self.pods = self.folder / "pods"
        self.pods.mkdir(parents=True, exist_ok=True)
        self.keep_lock = False
        #: All locations of the journal, including paths that only the node has.
        self.locations: tuple[Path, ...] = (journal,)
        #: More of its environment.
        self.environ: dict[str, str] = {}
        #: As the node sees it.
        self.config = self.folder / "config.yaml"

    @property
    def is_of_node(self) -> bool:
        return self.mode in NODE_MODES

    def configure(self, **fields: Any) -> None:
        """Configuration by option names; the node's parts are added."""
        kind = {"apiVersion": "ebbtide/v1alpha1", "kind": "EbbtideConfiguration"}
        parts = {"node": self.node() | fields.pop("node", {})} if self.is_of_node else {}
        file = self.bed.place(self.config)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(kind | parts | fields))

    def node(self) -> dict[str, Any]:
        found = parts_of(self.member)
        if self.server:
            name = f"{NAME}-{self.member.name}"
            found["kubeconfig"] = str(self.bed.secrets.kubeconfig(self.client, self.server, name))
        return found

    async def start(self) -> None:
        """Returns when it holds its lock."""
        environ = {
            "DBUS_SYSTEM_BUS_ADDRESS": self.bed.logind.address,
            "EBBTIDE_DEBUG": "1",
            "EBBTIDE_BOUNDS_FACTOR": str(self.bounds_factor),
        }
        part = Part(NAME, self.argv(), environ | self.environ)
        around = self.bed.around.get(self.member.name)
        await self.bed.start(around(part) if around else part)
        await self.until(self.armed, "it does not arm")

    def argv(self) -> list[str]:
        paths = {"config": self.config, "journal": self.journal, "runtime": self.folder / "run"}
        words = [f"--{name}={path}" for name, path in paths.items()]
        if self.mode == "process":
            words.append(f"--pods={self.pods}")
        if self.keep_lock:
            words.append("--keep-lock")
        return [*self.program, "run", f"--mode={self.mode}", *words]

    async def until(self, holds: Callable[[], Any], otherwise: str) -> None:
        """Wait for ``holds`` (sync or async). Raises AssertionError with the daemon's log."""

        async def holds_or_exited() -> Any:
            answer = holds()
            if answer := await answer if hasattr(answer, "__await__") else answer:
                return answer
            assert await self.exited() is None, self.bed.log(NAME)
            return None

        def why() -> str:
            log = self.bed.log(NAME)
            # With hundreds of pods the log's end does not show the journal's location.
            about = "\n".join(line for line in log.splitlines() if "journal" in line)
            return f"{otherwise}: {about[:1000]}\n{log[-3000:]}"

        await until(holds_or_exited, why)

    async def armed(self) -> bool:
        return bool(await self.bed.logind.ours())

    async def start_ready(self, granted: bool = True) -> None:
        """Start and wait for a quiet state: the grant (unless logind cannot give it), and the mode's parts
        in reach.
        """
        earlier = len(self.records())
        await self.start()
        await self.until(lambda: self.is_ready(granted, earlier), "it does not get ready")

    def is_ready(self, granted: bool = True, earlier: int = 0) -> bool:
        """By the journal, without the first ``earlier`` records of a previous start."""
        needed: dict[type[Event], Callable[[Any], bool]] = {
            GrantAssessed: lambda each: each.sufficient or not granted
        }
        if self.is_of_node:
            needed[RuntimeRead] = lambda each: each.reachable
        if self.is_of_node and self.server:
            needed[ApiRead] = lambda each: each.reachable
        records = self.records()[earlier:]
        last = {type(record.event): record.event for record in records}
        return all(kind in last and holds(last[kind]) for kind, holds in needed.items())

    def records(self) -> list[Record]:
        found = [DirectorySource(each) for each in self.locations if each.is_dir()]
        return list(History(found).records()) if found else []

    def events(self, kind: type[E]) -> list[E]:
        return [record.event for record in self.records() if isinstance(record.event, kind)]

    async def exited(self) -> int | None:
        """The exit code, or None while it runs."""
        code: int | None = await self.bed.inside.do("exited", name=NAME)
        return code

    async def stop(self) -> None:
        """Kill it. A lock-keeping parent gets the order, so that it ends the daemon too."""
        await self.bed.stop(NAME, **({"signal_number": signal.SIGTERM} if self.keep_lock else {}))

    async def verify(self) -> dict[str, Any]:
        """The output of ``verify``. Raises AssertionError on a difference."""
        journals = [f"--journal={each}" for each in self.locations if each.is_dir()]
        argv = [*COMMAND, "replay", "verify", *journals, "-o", "json"]
        done = await trio.to_thread.run_sync(
            lambda: subprocess.run(argv, capture_output=True, text=True, timeout=WATCHDOG_SECONDS)
        )
        assert done.returncode == 0, done.stdout + done.stderr
        said: dict[str, Any] = json.loads(done.stdout)
        assert said["identical"], said
        return said

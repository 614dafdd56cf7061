"""The whole daemon in mode cri, with a real logind and a real containerd.

It runs in the logind bed's mount namespace and the pods' network, but in the machine's process namespace: a
node's daemon sees its containers' processes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TypeVar

from ebbtide.events.base import Event, Record
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.decisions import GrantAssessed
from ebbtide.events.reader import History
from tests.beds.containerd import Containerd
from tests.beds.logind import LogindBed, logind_bed
from tests.daemon.rig import EBBTIDE, configuration, replay
from tests.waiting import until

PROJECT = Path(__file__).parents[4]

E = TypeVar("E", bound=Event)


class DaemonRig:
    """``folder`` holds the configuration, the journal, the runtime files and the log."""

    def __init__(self, logind: LogindBed, bed: Containerd, folder: Path) -> None:
        self.logind, self.bed, self.folder = logind, bed, folder
        self.journal = folder / "journal"
        self.process: subprocess.Popen[bytes] | None = None

    def configure(self, periods: dict[int, int], **fields: Any) -> None:
        text = configuration(periods, **({"reserve": "1s", "journalFallbacks": []} | fields))
        (self.folder / "config.yaml").write_text(text)

    @property
    def argv(self) -> list[str]:
        paths = {
            "--cri": self.bed.socket,
            "--config": self.folder / "config.yaml",
            "--journal": self.journal,
            "--runtime": self.folder / "run",
        }
        enter = [*self.logind.enter, "nsenter", f"--net={self.bed.network}", "--"]
        return [
            *enter,
            *EBBTIDE,
            "run",
            "--mode",
            "cri",
            *(str(word) for pair in paths.items() for word in pair),
        ]

    def launch(self) -> None:
        with (self.folder / "log").open("ab") as log:
            # Start it through a program. A ``preexec_fn`` needs a real fork, and one of ten forks with gRPC's
            # handlers hung.
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *self.argv],
                env=os.environ | {"DBUS_SYSTEM_BUS_ADDRESS": self.logind.address},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=PROJECT,
            )

    async def start(self) -> None:
        """Start the daemon and wait until it is armed with the grant."""
        self.launch()
        await self.recorded(GrantAssessed, sufficient=True)

    async def kill(self) -> None:
        """SIGKILL, and gone."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process = None

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def records(self, *kinds: type[Event]) -> list[Record]:
        records = History([DirectorySource(self.journal)]).records()
        return [record for record in records if isinstance(record.event, kinds or Event)]

    def events(self, kind: type[E]) -> list[E]:
        return [record.event for record in self.records(kind) if isinstance(record.event, kind)]

    async def recorded(self, kind: type[E], **fields: Any) -> E:
        """Wait for such a record in the journal."""
        found: list[E] = []

        def holds() -> bool:
            found[:] = [
                event
                for event in (self.events(kind) if self.journal.is_dir() else [])
                if all(getattr(event, name) == value for name, value in fields.items())
            ]
            return bool(found)

        await until(holds, lambda: f"for {kind.__name__} {fields}; the log:\n{self.log()}")
        return found[-1]


@contextlib.asynccontextmanager
async def daemon_rig(bed: Containerd) -> AsyncIterator[DaemonRig]:
    """Run the daemon; afterwards replay its journal."""
    async with logind_bed() as logind:
        with tempfile.TemporaryDirectory(prefix="ebd-", dir="/tmp") as place:
            rig = DaemonRig(logind, bed, Path(place))
            try:
                yield rig
                if rig.process is not None:
                    await rig.kill()
                assert replay(rig.journal) > 0
            finally:
                if rig.process is not None:
                    await rig.kill()

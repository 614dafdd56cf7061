"""The whole daemon in mode cri, with a real logind and a real containerd.

It runs in the logind bed's mount namespace and the pods' network, but in the machine's process namespace: a
node's daemon sees its containers' processes.
"""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from ebbtide.events.decisions import GrantAssessed
from tests.beds.containerd import Containerd
from tests.beds.inside import PROJECT
from tests.beds.logind import LogindBed, logind_bed
from tests.daemon.rig import EBBTIDE, Rig, replay


class DaemonRig(Rig):
    """``folder`` holds the configuration, the journal, the runtime files and the log."""

    def __init__(self, bed: LogindBed, containerd: Containerd, folder: Path) -> None:
        self.bed, self.containerd, self.folder = bed, containerd, folder
        self.journal, self.fallback = folder / "journal", folder / "fallback"
        self.config, self.runtime = folder / "config.yaml", folder / "run"
        self.process = None

    @property
    def locations(self) -> list[Path]:
        return [path for path in (self.journal, self.fallback) if path.is_dir()]

    @property
    def argv(self) -> list[str]:
        paths = {
            "--cri": self.containerd.socket,
            "--config": self.config,
            "--journal": self.journal,
            "--runtime": self.runtime,
        }
        words = [str(word) for pair in paths.items() for word in pair]
        enter = [*self.bed.enter, "nsenter", f"--net={self.containerd.network}", "--"]
        return [*enter, *EBBTIDE, "run", "--mode", "cri", *words]

    async def start(self, until: str = "") -> None:
        """Start the daemon and wait until it is armed with the grant."""
        with (self.folder / "log").open("ab") as log:
            # Start it through a program. A ``preexec_fn`` needs a real fork, and one of ten forks with gRPC's
            # handlers hung.
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *self.argv],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=PROJECT,
            )
        await self.recorded(GrantAssessed, sufficient=True)

    async def kill(self) -> None:
        """SIGKILL, and gone."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@contextlib.asynccontextmanager
async def daemon_rig(containerd: Containerd) -> AsyncIterator[DaemonRig]:
    """Run the daemon; afterwards replay its journal."""
    async with logind_bed() as bed:
        with tempfile.TemporaryDirectory(prefix="ebd-", dir="/tmp") as place:
            rig = DaemonRig(bed, containerd, Path(place))
            try:
                yield rig
                await rig.kill()
                assert replay(rig.journal) > 0
            finally:
                await rig.kill()

"""A daemon's options, apart from the shutdown's own configuration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

#: Promised: units, scripts and a DaemonSet's mounts name them.
JOURNAL_PATH = Path("/var/lib/ebbtide/journal")
RUNTIME_PATH = Path("/run/ebbtide")

#: For a laptop, the demo and tests; every other mode is a Kubernetes node's.
PROCESS = "process"
#: As `actors.policy.termination_mode.NODE_MODES`: ``--help`` imports no policy.
MODES = ("auto", "api", "cri", "observe", PROCESS)


def control_socket(runtime: Path) -> Path:
    return runtime / "ebbtide.sock"


class RunOptions(NamedTuple):
    """``config``: files, later ones win. ``pods``: a manifest or a folder of them, for mode process.
    ``journal``: the first location; the configuration may name others. ``runtime``: files for this boot.
    ``cri`` (the runtime's socket), ``kubeconfig`` (a file, or ``in-cluster``) and ``node_name`` win over the
    configuration's.
    """

    config: Sequence[Path] = ()
    pods: Path | None = None
    journal: Path = JOURNAL_PATH
    runtime: Path = RUNTIME_PATH
    #: False: for a machine in a simulation.
    sockets: bool = True
    #: Newest lines of a straggler's output in its autopsy; 0 keeps none.
    capture_lines: int = 0
    mode: str = PROCESS
    cri: Path | None = None
    kubeconfig: str | None = None
    node_name: str | None = None

    @property
    def control_socket(self) -> Path:
        return control_socket(self.runtime)

    @property
    def of_node(self) -> bool:
        return self.mode != PROCESS

"""A started program has what its manifest gives it."""

from __future__ import annotations

import os
from pathlib import Path

from ebbtide.actors.edges.process.start import spawn


def test_every_variable_reaches_a_program_in_a_group(tmp_path: Path) -> None:
    """A POSIX shell drops names with a dot or a dash, which Kubernetes allows."""
    given = {"PATH": os.defpath, "PLAIN": "1", "a.b": "2", "c-d": "3 4"}
    with (tmp_path / "out").open("wb") as output:
        child = spawn(["env"], given, "", output.fileno(), group=str(tmp_path))
    os.waitid(os.P_PIDFD, child.pidfd, os.WEXITED)
    os.close(child.pidfd)
    assert (
        given.items()
        <= dict(line.split("=", 1) for line in (tmp_path / "out").read_text().splitlines()).items()
    )

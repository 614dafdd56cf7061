from __future__ import annotations

from pathlib import Path

import pytest

from ebbtide.config import load
from ebbtide.modes import edges_of_mode, find_node_parts
from ebbtide.options import RunOptions
from tests.commands import Run


def test_what_is_no_socket_is_refused(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line names the socket and the fix. Without a configured socket the edge tries the usual paths."""
    (tmp_path / "file").touch()
    monkeypatch.setattr("ebbtide.modes.SOCKETS", (tmp_path / "none.sock",))
    for words, problem in (
        (("--cri", tmp_path / "file"), "file is not a socket"),
        ((), f"no container runtime listens at {tmp_path / 'none.sock'}"),
    ):
        refused = run("run", "--mode", "cri", *words)
        assert (refused.code, refused.err.count("\n")) == (2, 1)
        assert problem in refused.err
        assert "--cri PATH" in refused.err


def test_a_runtime_that_is_named_may_come_later(tmp_path: Path) -> None:
    """A slow runtime must not leave a node unprotected."""
    options, loaded = RunOptions(runtime=tmp_path, mode="cri", cri=tmp_path / "later.sock"), load(())
    parts = find_node_parts(options, loaded.config.node)
    assert edges_of_mode(options, loaded, parts, lambda level, line: None).runtime.active() == []

"""Names of journals in the API server, before any request."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Run


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without a kubeconfig, outside a pod."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.mark.parametrize("words", [("journal", "show", "-f"), ("replay", "timeline", "-f")])
def test_what_is_read_once_is_not_followed(run: Run, home: Path, words: tuple[str, ...]) -> None:
    """It would wait forever."""
    asked = run(*words, "--journal", "configmaps:ebbtide/node-1")
    assert asked.code == 2
    assert "cannot be followed" in asked.err


@pytest.mark.parametrize("words", [("simulate",), ("run", "--mode", "process")])
def test_what_is_written_is_written_here(run: Run, home: Path, words: tuple[str, ...]) -> None:
    """A folder of that name would hide the journal."""
    asked = run(*words, "--journal", "configmaps:ns/n")
    assert (asked.code, asked.out, asked.err.count("\n")) == (2, "", 1)
    assert "name a directory of this machine" in asked.err
    assert not Path("configmaps:ns").exists()

"""Refusals of `outage run` before its start."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Run


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (None, "config is not a file: name a kubeconfig with --kubeconfig PATH"),
        ("{", "config: no kubeconfig: "),
        ("- 1", "config: no kubeconfig: "),
        ("apiVersion: v1\nkind: Config\n", "config: "),
    ],
)
def test_what_is_no_kubeconfig(run: Run, tmp_path: Path, text: str | None, line: str) -> None:
    """A file of an impossible type is refused without retries."""
    file = tmp_path / "config"
    if text is not None:
        file.write_text(text)
    ran = run("outage", "run", "--kubeconfig", file)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert line in ran.err

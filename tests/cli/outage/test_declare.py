"""What `outage declare` refuses before it asks anybody."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Run


@pytest.mark.parametrize("what", ["--off", "--alive"])
def test_who_prints_takes_nothing_away(run: Run, what: str, tmp_path: Path) -> None:
    """`--print` promises that nothing is written: with `--withdraw` that would be untrue."""
    words = ("outage", "declare", "worker", what, "--withdraw", "--print")
    ran = run(*words, "--kubeconfig", str(tmp_path / "none"))
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("ebbtide: --print writes nothing, and --withdraw takes away")

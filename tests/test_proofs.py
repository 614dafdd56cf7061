"""Which proofs a change needs; a run of some proofs."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

from tests import proofs
from tests.core_modules import ROOT

#: The proofs that run the tests with a mark. One of them is enough.
SELECTS = {
    "node": {"node"},
    "browser": {"browser"},
    "spark": {"spark"},
    "machine": {"parts", "packages"},
    "root": {"parts", "packages"},
    "backend": {"parts", "lake"},
    "proof": {"slow"},
}


def test_a_changed_test_needs_a_proof_that_runs_it() -> None:
    missing = []
    for path in sorted((ROOT / "tests").glob("**/test_*.py")):
        name, text = str(path.relative_to(ROOT)), path.read_text()
        marks = [mark for mark in SELECTS if f"pytest.mark.{mark}" in text]
        # A test on the node has the other marks for its needs.
        for mark in ["node"] if "node" in marks else marks:
            if not SELECTS[mark] & set(proofs.needed([name])):
                missing.append((name, mark))
    assert not missing


def test_a_failed_proof_is_written_down_and_the_next_one_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = {"first": "echo 1 failed; false", "second": "echo 2 passed"}
    made = {name: proofs.Proof(name, command, 1, "") for name, command in commands.items()}
    written: list[proofs.Result] = []
    monkeypatch.setattr(proofs, "PROOFS", made)
    monkeypatch.setattr(proofs, "write", written.append)
    monkeypatch.setattr(sys, "argv", ["proofs"])
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert proofs.main() == 1
    assert [(each.name, each.held, each.figure.partition(" (")[0]) for each in written] == [
        ("first", False, "1 failed"),
        ("second", True, "2 passed"),
    ]
    assert "first failed with exit code 1" in capsys.readouterr().out

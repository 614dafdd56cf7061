"""One outage on two real nodes: power cut, proof, recovery elsewhere, return."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.beds.skipping import or_skip
from tests.node.csi.programs import csi
from tests.outage_bed.actors import Controller
from tests.outage_bed.runs import run
from tests.outage_bed.scenarios import CONTROLLER

pytestmark = [pytest.mark.node, pytest.mark.backend, pytest.mark.gate]


def test_the_controller_recovers_a_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal replays, and no two nodes write one volume."""
    monkeypatch.setattr(Controller, "bounds_factor", 10)
    with or_skip():
        row = run("plain", CONTROLLER, csi(), tmp_path)
    assert row["broken"] == [], (tmp_path / "seen.txt").read_text()[-3000:]

"""``export parquet``: tables, accepted journals, refusals."""

from __future__ import annotations

import os
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from ebbtide.cli.common.guard import CORRUPT, TORN, guarded
from ebbtide.cli.common.saving import write_journal
from ebbtide.cli.export.export_files import write_tables
from ebbtide.replay.sim.simulate import Machine, SimulationRequest, plan_of
from tests.replay.sim import columns


def a_node(folder: Path, seed: int) -> Path:
    machine = Machine(plan_of(SimulationRequest(synthetic=4, calm=True), seed)).run()
    write_journal(folder / machine.plan.node, machine.journal.files())
    return folder / machine.plan.node


def rows(folder: Path, table: str) -> list[dict[str, Any]]:
    """A table as it is read back."""
    found: list[dict[str, Any]] = (
        import_module("pyarrow.parquet").read_table(folder / f"{table}.parquet").to_pylist()
    )
    return found


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_page_has_every_column() -> None:
    """The page's reference comes from the tables' list."""
    text = columns.PAGE.read_text()
    assert columns.page(text) == text


def test_the_next_boot_is_no_crash(tmp_path: Path) -> None:
    """A cancelled shutdown, unsettled by a power cut: no daemon crashed."""
    plan = plan_of(SimulationRequest(synthetic=20), 407)
    machine = Machine(plan._replace(faults=plan.faults._replace(again_after_ns=None))).run()
    write_journal(tmp_path / "node", machine.journal.files())
    write_tables([tmp_path / "node"], tmp_path / "tables")
    (row,) = rows(tmp_path / "tables", "shutdowns")
    assert (row["outcome"], row["daemons"]) == ("cancelled", 1)


def test_any_number_of_processes_writes_the_same_bytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """For folders, a packed and a torn journal: also the exit code and the output."""
    for seed in range(1, 12):
        a_node(tmp_path / "fleet", seed)
    hurt = max((tmp_path / "fleet" / "node-2").iterdir())
    hurt.write_bytes(hurt.read_bytes()[:-10])
    packed = tmp_path / "node-12.ebjz"
    pack = ("journal", "pack", "--journal", a_node(tmp_path / "apart", 12), "-o", packed)
    assert guarded([str(word) for word in pack]) == 0
    said = {}
    for jobs in ("1", "2"):
        capsys.readouterr()
        asked = ("export", "parquet", "--journal", tmp_path / "fleet", "--journal", packed)
        code = guarded([str(word) for word in (*asked, "-o", tmp_path / jobs, "--jobs", jobs)])
        said[jobs] = (
            code,
            capsys.readouterr().err.replace(str(tmp_path / jobs), ""),
            contents(tmp_path / jobs),
        )
    assert said["1"] == said["2"]
    assert said["1"][0] == TORN
    assert "of 12 journals" in said["1"][1]


@pytest.mark.parametrize(("damage", "code"), [("torn", TORN), ("corrupt", CORRUPT)])
def test_damage(tmp_path: Path, damage: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    """A damaged journal is used up to the damage; the worst verdict is the exit code."""
    hurt = a_node(tmp_path / "fleet", 1)
    a_node(tmp_path / "fleet", 2)
    first, *_, last = sorted(hurt.iterdir())
    victim = last if damage == "torn" else first
    data = victim.read_bytes()
    cut = data[:-10] if damage == "torn" else data[:5000] + b"!" + data[5001:]
    os.chmod(victim, 0o600)
    victim.write_bytes(cut)
    assert write_tables([tmp_path / "fleet"], tmp_path / "tables") == code
    assert (tmp_path / "tables" / "shutdowns.parquet").exists()
    assert damage in capsys.readouterr().err


# --- journals that are one, and journals that end


@pytest.mark.parametrize("named", ["a folder", "each"])
def test_copies_are_one_journal(tmp_path: Path, named: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A copied or split directory counts once."""
    fleet = tmp_path / "fleet"
    node = a_node(fleet, 1)
    shutil.copytree(node, fleet / "copy")
    (fleet / "moved").mkdir()
    other = a_node(fleet, 2)
    youngest = max(other.iterdir())
    youngest.rename(fleet / "moved" / youngest.name)
    places = [fleet] if named == "a folder" else [node, fleet / "copy", other, fleet / "moved"]
    assert write_tables(places, tmp_path / "tables") == 0
    assert [row["node"] for row in rows(tmp_path / "tables", "shutdowns")] == ["node-1", "node-2"]
    assert len({row["shutdown"] for row in rows(tmp_path / "tables", "shutdowns")}) == 2
    assert "of 2 journals" in capsys.readouterr().err

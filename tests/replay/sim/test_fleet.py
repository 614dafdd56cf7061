"""The ten questions of docs/questions.sql on 200 simulated nodes, against the truth."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from ebbtide.cli.export.export_files import write_tables
from ebbtide.replay.sim.simulate import Machine
from tests.replay.sim.questions import CHECKS, made, questions

NODES = 200


class Fleet(NamedTuple):
    """The model's machines, and the folder with their journals and tables."""

    machines: list[Machine]
    folder: Path


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    folder = tmp_path_factory.mktemp("fleet")
    machines = made(folder / "fleet", NODES)
    assert write_tables([folder / "fleet"], folder / "tables") == 0
    return Fleet(machines, folder)


def test_no_rule_of_its_own() -> None:
    """The tables' columns relate rows: no query splits a name."""
    assert [number for number, _, _ in questions()] == list(range(1, 11)) == list(CHECKS)
    assert [number for number, _, sql in questions() if "regexp" in sql] == []


@pytest.mark.proof
@pytest.mark.parametrize("number, sql", [(number, sql) for number, _, sql in questions()])
def test_a_question_is_answered(fleet: Fleet, number: int, sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's SQL, in DuckDB."""
    import duckdb

    monkeypatch.chdir(fleet.folder)
    CHECKS[number](fleet.machines, duckdb.sql(sql).to_arrow_table().to_pylist())

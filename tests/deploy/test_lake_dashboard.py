"""The lake dashboard: each query runs in DuckDB on a real lake and answers like docs/fleet.md."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from deltalake import DeltaTable

from ebbtide.cli.common.guard import guarded
from ebbtide.cli.common.saving import write_journal
from ebbtide.fleet.lake import WRITTEN
from tests.fleet.nodes import a_machine
from tests.replay.sim.questions import FILE, questions

# Imported late: at exit a process that has it prints a list of leaks.
if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection as Connection

ROOT = Path(__file__).parents[2]
DASHBOARD = ROOT / "deploy" / "grafana" / "ebbtide-lake.json"

SOURCE = ROOT / "deploy" / "grafana" / "ebbtide-lake-datasource.yaml"
BOARD = json.loads(DASHBOARD.read_text())
QUERIES = {panel["title"]: panel["targets"][0]["rawSql"] for panel in BOARD["panels"]}
ALWAYS = ("1970-01-01T00:00:00Z", "2100-01-01T00:00:00Z")
NODES = range(1, 21)


def as_grafana(sql: str, nodes: str = "select node from shutdowns", times: tuple[str, str] = ALWAYS) -> str:
    """Substitute variables and macro like Grafana and the plugin SDK."""
    sql = sql.replace("${node:sqlstring}", nodes)
    return re.sub(r"\$__timeFilter\((\w+)\)", rf"\1 >= '{times[0]}' AND \1 <= '{times[1]}'", sql)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty nodes' journals, their tables and their lake."""
    folder = tmp_path_factory.mktemp("lake")
    for seed in NODES:
        machine = a_machine(seed, 12, calm=False)
        write_journal(folder / "fleet" / machine.plan.node, machine.journal.files())
    for words in (("tables", "--to", folder / "tables"), ("ingest", "--lake", folder / "lake")):
        asked = ("fleet", words[0], "--journals", folder / "fleet", "--jobs", "1", *words[1:])
        assert guarded([str(word) for word in asked]) == 0
    return folder


@pytest.fixture
def lake(made: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    """DuckDB with the data source's views over the lake's tables, read by delta-rs."""
    monkeypatch.chdir(made)
    import duckdb

    connection = duckdb.connect()
    look_at(connection, made / "lake")
    yield connection
    connection.close()


def look_at(connection: Connection, lake: Path) -> None:
    for name in WRITTEN:
        # An empty table has no file.
        files = DeltaTable(lake / name).file_uris()
        empty = DeltaTable(lake / name).to_pyarrow_table()
        found = connection.read_parquet(files, union_by_name=True) if files else connection.from_arrow(empty)
        found.create_view(f"lake_{name}")
    for statement in views():
        connection.execute(statement)


def statements() -> list[str]:
    """The data source's statements on each connection."""
    (source,) = yaml.safe_load(SOURCE.read_text())["datasources"]
    return [each.strip() for each in source["jsonData"]["initSql"].split(";") if each.strip()]


def views() -> list[str]:
    """Its views over local tables: the lake extension is DuckDB's."""
    made = [each for each in statements() if each.startswith("create view")]
    return [re.sub(r"delta_scan\('s3://lake/ebbtide/(\w+)'\)", r"lake_\1", each) for each in made]


def rows(connection: Connection, sql: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = connection.sql(sql).to_arrow_table().to_pylist()
    return found


def chosen(sql: str) -> str:
    """Rows of the chosen time and nodes."""
    return re.sub(
        r"'(shutdowns|waves|pods|hooks|containers|notices)'",
        r"(select * from \1 where $__timeFilter(started) and node in (${node:sqlstring}))",
        FILE.sub(r"'\1'", sql),
    )


def test_it_asks_the_pages_questions() -> None:
    """A question that is changed there is changed here."""
    assert [number for number, _, _ in questions()] == list(range(1, 11))
    asked = {title: chosen(sql) for _, title, sql in questions()}
    assert {title: sql for title, sql in QUERIES.items() if title in asked} == asked


def test_the_data_source_has_every_table_that_is_asked() -> None:
    """Panels use only existing tables, and each is scanned at its path."""
    made = [each.split()[5] for each in views()]
    asked = {name for sql in QUERIES.values() for name in re.findall(r"from (\w+)", sql)}
    assert asked <= set(made) <= set(WRITTEN)
    (source,) = yaml.safe_load(SOURCE.read_text())["datasources"]
    assert {source["type"]} == {panel["datasource"]["type"] for panel in BOARD["panels"]}
    assert all("delta_scan" in each for each in statements() if each.startswith("create view"))


def test_it_answers_as_the_page_does(lake: Connection, made: Path, tmp_path: Path) -> None:
    """Each question has the tables' rows, and a choice filters. A killed ingest writes its ledger last."""
    for title, sql in QUERIES.items():
        assert bool(rows(lake, as_grafana(sql))) == (title != "Journals that are not whole"), title
    for number, _, sql in questions():
        assert rows(lake, as_grafana(chosen(sql))) == rows(lake, sql), number
    (count,) = rows(lake, as_grafana(QUERIES["Nodes"], "'node-1','node-2','nobody'"))
    assert count == {"nodes": 2}
    (count,) = rows(
        lake, as_grafana(QUERIES["Shutdowns"], times=("1970-01-01T00:00:00Z", "1971-01-01T00:00:00Z"))
    )
    assert count == {"shutdowns": 0}
    shutil.copytree(made / "lake", tmp_path / "lake")
    DeltaTable(tmp_path / "lake" / "shutdowns").delete("node = 'node-1'")
    import duckdb

    with duckdb.connect() as connection:
        look_at(connection, tmp_path / "lake")
        of_node = "where node = 'node-1'"
        assert rows(connection, f"select node from lake_pods {of_node}")
        assert rows(connection, f"select node from pods {of_node}") == []

"""The Spark data source without Spark; `tests/fleet_bed` uses a real cluster."""

from __future__ import annotations

import importlib
import zipfile
from pathlib import Path
from zipimport import zipimporter

import pytest

from ebbtide.fleet.fleet_journals import journals
from ebbtide.fleet.fleet_rows import ALL_TABLES, Options, options_of, parts, record_batches
from ebbtide.fleet.pool import forget_archives
from tests.fleet.conftest import Nodes
from tests.fleet.nodes import a_node, every_row, shipped


def test_spark_writes_the_names_of_options_in_lower_case() -> None:
    given = {"path": "p", "table": "pods", "partitionjournals": "7", "partitionmib": "8", "pushdown": "True"}
    assert options_of(given) == Options("p", "pods", 7, 8, True)
    assert options_of({"path": "p"}) == Options("p", "shutdowns", 200, 64, False)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"partitionjournal": "7"}, "no option 'partitionjournal': did you mean partitionJournals?"),
        ({"tabel": "pods"}, "no option 'tabel': did you mean table?"),
        ({"table": "pod"}, "no table 'pod': did you mean pods?"),
        ({"partitionmib": "0"}, "Expected `int` >= 1 - at `$.partitionMiB`"),
        ({"partitionmib": "all"}, "Expected `int`, got `str` - at `$.partitionMiB`"),
        ({"pushdown": "maybe"}, "Expected `bool`, got `str` - at `$.pushdown`"),
    ],
)
def test_a_wrong_option_is_named(given: dict[str, str], text: str) -> None:
    with pytest.raises(ValueError) as error:
        options_of({"path": "p", **given})
    assert text in str(error.value)


def test_a_filter_leaves_journals_unread(tmp_path: Path) -> None:
    """By node and time. A folder journal without a node name is always read."""
    for seed in (1, 2, 3):
        shipped(a_node(tmp_path / "nodes", seed), tmp_path / "store")
    unnamed = a_node(tmp_path / "store", 4).name
    options = Options(str(tmp_path / "store"), partition_journals=1)
    (found, rest) = parts(options, {"node-2"})
    assert unnamed in found[0].folder
    assert "node=node-2" in rest[0].folder
    assert len(parts(options, None, 1)) == 4
    far_ns = 1 << 62
    assert parts(options, None, far_ns) == [found]


def test_each_table_has_the_rows_of_one_pass(nodes: Nodes) -> None:
    refs = journals(str(nodes.hurt))
    expected = every_row(refs)
    for table in ALL_TABLES:
        assert [row for batch in record_batches(refs, table) for row in batch.to_pylist()] == expected[table]


def test_archives_are_not_read_again_for_each_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark invalidates all finders before each task; archived modules stay importable."""
    archive = tmp_path / "spark.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for name in ("first_of_archive", "second_of_archive"):
            file.writestr(f"{name}.py", f"name = {name!r}")
    monkeypatch.syspath_prepend(str(archive))
    importlib.import_module("first_of_archive")
    asked = []
    monkeypatch.setattr(zipimporter, "invalidate_caches", lambda finder: asked.append(finder.archive))
    forget_archives()
    importlib.invalidate_caches()
    assert asked == []
    assert importlib.import_module("second_of_archive").name == "second_of_archive"
    importlib.invalidate_caches()
    assert str(archive) in asked

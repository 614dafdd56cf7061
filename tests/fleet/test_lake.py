"""A fleet's tables as a lake: each row once, for any writers, repeats and kills."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from ebbtide.cli.common.guard import CORRUPT, WRONG
from ebbtide.fleet import lake as lakes
from ebbtide.fleet.fleet_journals import journals
from ebbtide.fleet.fleet_rows import schema, table_batches
from ebbtide.fleet.lake import LEDGERS, ROW, WRITTEN, Lake
from tests.commands import Run
from tests.fleet.conftest import ALIKE, Nodes
from tests.fleet.nodes import every_row, failing_rows

Tables = dict[str, list[dict[str, Any]]]


def whole(folder: Path) -> Tables:
    return every_row(journals(str(folder)), settled=True)


def ingest(folder: Path, lake: Path) -> dict[str, int]:
    made = Lake(str(lake))
    refs = made.new_of(journals(str(folder)))
    counts = dict.fromkeys(WRITTEN, 0)
    for new in made.add([table_batches(refs, settled=True)]):
        counts = {name: counts[name] + new[name] for name in WRITTEN}
    return counts


def there(lake: Path | str, **options: str) -> Tables:
    found: Tables = {}
    for name in WRITTEN:
        place = f"{lake}/{name}"
        is_there = DeltaTable.is_deltatable(place)
        table = DeltaTable(place, storage_options=options).to_pyarrow_dataset() if is_there else None
        found[name] = table.to_table().to_pylist() if table is not None else []
    return found


def ordered(tables: Tables, without: tuple[str, ...] = (ROW,)) -> Tables:
    """Sorted rows: a lake has no order."""
    return {
        name: sorted(({key: row[key] for key in row if key not in without} for row in rows), key=repr)
        for name, rows in tables.items()
    }


@pytest.fixture(scope="module")
def few(nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough nodes for a row in each table, a duplicate, and the two with a common ID prefix."""
    names = (f"node-{number}" for number in (*range(1, 5), 7, *ALIKE))
    return nodes.copied(tmp_path_factory.mktemp("few"), *names, "copy-of-node-7")


def test_the_same_rows_as_on_one_machine_and_none_twice(few: Path, tmp_path: Path) -> None:
    """Also for a duplicate journal and for the common ID prefix."""
    expected = whole(few)
    counts = ingest(few, tmp_path)
    assert counts == {name: len(rows) for name, rows in expected.items()}
    assert ordered(there(tmp_path)) == ordered(expected)
    assert Lake(str(tmp_path)).new_of(journals(str(few))) == []
    assert set(ingest(few, tmp_path).values()) == {0}
    assert ordered(there(tmp_path)) == ordered(expected)


def test_every_table_is_there(fleet_of_two: Path, tmp_path: Path) -> None:
    """Empty tables too, with columns: a reader names each."""
    ingest(fleet_of_two, tmp_path)
    for name in WRITTEN:
        names = [field.name for field in DeltaTable(str(tmp_path / name)).schema().fields]
        assert names == [*schema(name, lake=True).names, *([] if name == "journals" else [ROW])]
    assert there(tmp_path)["outages"] == []


class Killed(BaseException):
    """A killed process: no handler catches it."""


def killed_at(table: str, *, before: bool) -> Callable[..., int]:
    """In the place of `Lake._merge`."""
    merge = Lake._merge

    def dies(lake: Lake, name: str, *asked: Any, **more: Any) -> int:
        if name == table and before:
            raise Killed
        done = merge(lake, name, *asked, **more)
        if name == table:
            raise Killed
        return done

    return dies


@pytest.mark.parametrize(
    "table, before",
    [("pods", False), ("hooks", True), ("shutdowns", True), ("shutdowns", False), ("journals", True)],
)
def test_killed_at_a_table(
    few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, before: bool
) -> None:
    """The next ingest writes the rest once; the ledger never precedes the rows."""
    with monkeypatch.context() as patched:
        patched.setattr(Lake, "_merge", killed_at(table, before=before))
        with pytest.raises(Killed):
            ingest(few, tmp_path)
    left, expected = there(tmp_path), whole(few)
    if left[LEDGERS["shutdown"]]:
        told = [name for name in WRITTEN if name not in (*LEDGERS.values(), "journals")]
        assert [len(left[name]) for name in told] == [len(expected[name]) for name in told]
    ingest(few, tmp_path)
    assert ordered(there(tmp_path)) == ordered(expected)


def test_two_writers_at_once(fleet_of_two: Path, tmp_path: Path) -> None:
    """The second one finds the first one's rows and skips them."""
    with ThreadPoolExecutor(2) as pool:
        counts = list(pool.map(lambda _: ingest(fleet_of_two, tmp_path), range(2)))
    expected = whole(fleet_of_two)
    assert ordered(there(tmp_path)) == ordered(expected)
    for name in WRITTEN:
        assert sum(each[name] for each in counts) == len(expected[name])


def test_a_column_that_is_new_is_added(nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later version's column; older rows have null."""
    folders = [tmp_path / name for name in ("old", "new")]
    for folder, node in zip(folders, ("node-1", "node-2"), strict=True):
        nodes.copied(folder, node)
    lake = Lake(str(tmp_path / "lake"))
    old = [
        (name, batch.drop_columns(["reason"]) if name == "pods" else batch)
        for name, batch in table_batches(journals(str(folders[0])), settled=True)
    ]
    with monkeypatch.context() as patched:
        shape = schema("pods", lake=True)
        without = shape.remove(shape.get_field_index("reason"))
        patched.setattr(
            lakes, "schema", lambda name, **more: without if name == "pods" else schema(name, **more)
        )
        assert sum(new["pods"] for new in lake.add([old]))
    assert "reason" not in there(tmp_path / "lake")["pods"][0]
    ingest(folders[1], tmp_path / "lake")
    pods = there(tmp_path / "lake")["pods"]
    reasons = {node: [row["reason"] for row in pods if row["node"] == node] for node in ("node-1", "node-2")}
    assert set(reasons["node-1"]) == {None}
    assert None not in reasons["node-2"]


def parts(nodes: Nodes, count: int) -> list[tuple[Path, list[Path]]]:
    """Journals of several segments, and those of each."""
    found = [(node, sorted(node.glob("*.ebj"))) for node in sorted(nodes.folder.glob("node-*"))]
    return [each for each in found if len(each[1]) > 1][:count]


def test_what_is_over_for_good_does_not_change(nodes: Nodes, tmp_path: Path) -> None:
    """Later segments change only the number of events: the next boot closes it."""
    settled = 0
    for at, (node, segments) in enumerate(parts(nodes, 8)):
        later = {(row["journal_id"], row["shutdown"]): row for row in whole(node)["shutdowns"]}
        for count in range(1, len(segments)):
            folder = tmp_path / f"{at}-{count}"
            folder.mkdir()
            for segment in segments[:count]:
                shutil.copy(segment, folder)
            begun = whole(folder)
            for row in begun["shutdowns"]:
                settled += 1
                assert row | {"events": 0} == later[row["journal_id"], row["shutdown"]] | {"events": 0}
    assert settled > 3


def test_what_goes_on_is_waited_for(nodes: Nodes, tmp_path: Path) -> None:
    """With segments shipped one by one, each finished shutdown comes once."""
    (node, segments), *_ = parts(nodes, 1)
    folder = tmp_path / "node"
    folder.mkdir()
    counts = []
    for segment in segments:
        shutil.copy(segment, folder)
        counts.append(ingest(folder, tmp_path / "lake")["shutdowns"])
    expected = whole(node)
    assert sum(counts) == len(expected["shutdowns"])
    told = (ROW, "events", "location", "fingerprint")
    assert ordered(there(tmp_path / "lake"), told) == ordered(expected, told)


def test_what_has_changed_is_read_again(nodes: Nodes, tmp_path: Path) -> None:
    """Also with equal size: zeroes inside, and a good copy that replaces it."""
    folder = tmp_path / "node"
    shutil.copytree(nodes.folder / "node-3", folder)
    (segment, *_) = sorted(folder.iterdir())
    good = segment.read_bytes()
    ingest(folder, tmp_path / "lake")
    segment.write_bytes(good[:5000] + bytes(100) + good[5100:])
    ingest(folder, tmp_path / "lake")
    (journal,) = there(tmp_path / "lake")["journals"]
    assert (journal["state"], journal["error"]) == ("corrupt", "")
    segment.write_bytes(good)
    ingest(folder, tmp_path / "lake")
    expected = whole(folder)
    assert ordered(there(tmp_path / "lake")) == ordered(expected)
    assert expected["shutdowns"]


def test_a_journal_without_a_header_has_a_row(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its names' eight digits; after a repair by its full ID alone, also after a kill in between."""
    folder, lake = nodes.copied(tmp_path / "nodes", "node-1", "node-3"), tmp_path / "lake"
    good = {path: path.read_bytes() for path in (folder / "node-3").iterdir()}
    for path, data in good.items():
        path.write_bytes(bytes(200) + data[200:])
    for _ in range(2):
        ingest(folder, lake)
        assert ordered(there(lake)) == ordered(whole(folder))
    codes = {row["journal_id"]: row["exit_code"] for row in there(lake)["journals"]}
    assert {len(name): code for name, code in codes.items()} == {32: 0, 8: CORRUPT}
    for path, data in good.items():
        path.write_bytes(data)
    with monkeypatch.context() as patched:
        patched.setattr(Lake, "_merge", killed_at("journals", before=True))
        with pytest.raises(Killed):
            ingest(folder, lake)
    ingest(folder, lake)
    assert ordered(there(lake)) == ordered(whole(folder))
    assert {len(row["journal_id"]) for row in there(lake)["journals"]} == {32}


def test_the_ledger_never_names_what_is_not_there(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shutdown with an impossible table is in no table, until a version can make all."""
    nodes.copied(tmp_path / "nodes", "node-1", "node-2")
    with monkeypatch.context() as patched:
        failing_rows(patched, "pods")
        ingest(tmp_path / "nodes", tmp_path / "lake")
    begun = there(tmp_path / "lake")
    codes = {row["node"]: (row["exit_code"], row["error"]) for row in begun.pop("journals")}
    assert codes == {"node-1": (1, "pods: ZeroDivisionError: a new kind of row"), "node-2": (0, "")}
    assert {row["node"] for rows in begun.values() for row in rows} == {"node-2"}
    ingest(tmp_path / "nodes", tmp_path / "lake")
    assert ordered(there(tmp_path / "lake")) == ordered(whole(tmp_path / "nodes"))


def test_the_command(run: Run, nodes: Nodes, tmp_path: Path) -> None:
    """New rows by table; the exit code of the worst journal; then no new rows."""
    where = ("--journals", nodes.hurt, "--lake", tmp_path / "lake")
    asked = ("fleet", "ingest", *where, "--jobs", "1", "-o", "json")
    first, second = run(*asked), run(*asked)
    assert first.code == CORRUPT
    assert "corrupt" in first.err
    new = json.loads(first.out)["new"]
    assert new["journals"] == len(list(nodes.hurt.iterdir()))
    assert new["shutdowns"] == len(there(tmp_path / "lake")["shutdowns"]) > 0
    # A damaged journal may have been repaired.
    assert (json.loads(second.out)["read"], set(json.loads(second.out)["new"].values())) == (2, {0})
    assert second.code == CORRUPT


def test_the_ends_of_its_packages_do_not_abort_the_command() -> None:
    """The libraries unload while others' threads run: a command that has succeeded ends before that."""
    program = (
        "import atexit, os, sys; sys.modules['deltalake'] = sys; atexit.register(os.abort);"
        " from ebbtide.cli import main; main()"
    )
    ran = subprocess.run([sys.executable, "-c", program, "--version"], capture_output=True, check=False)
    assert (ran.returncode, ran.stdout[:8]) == (0, b"ebbtide ")


def test_a_lake_that_cannot_be_written(run: Run, fleet_of_two: Path, tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("mine")
    for place, line in (
        (tmp_path / "lake", str(tmp_path / "lake")),
        ("s3://lake?aws_secret_access_key=x", "holds credentials"),
    ):
        ran = run("fleet", "ingest", "--journals", fleet_of_two, "--lake", place, "--jobs", "1")
        assert (ran.code, ran.out, ran.err.count("\n")) == (WRONG, "", 1)
        assert line in ran.err

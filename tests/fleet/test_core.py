"""The portable core: journals by their names in any order, and what lies or cannot be read."""

from __future__ import annotations

import pickle
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from ebbtide import fleet
from ebbtide.cli.simulate import write_journal
from ebbtide.events.segment import parse_header
from ebbtide.replay.sim.simulate import Machine, SimulationRequest, plan_of


def a_node(folder: Path, seed: int) -> Path:
    machine = Machine(plan_of(SimulationRequest(synthetic=3, calm=True), seed)).run()
    write_journal(folder / machine.plan.node, machine.journal.files())
    return folder / machine.plan.node


def rows(url: str | Path, table: str) -> list[dict[str, Any]]:
    batches = fleet.record_batches(fleet.journals(str(url)), table)
    return [row for batch in batches for row in batch.to_pylist()]


def shipped(node: Path, root: Path, cluster: str = "c", name: str | None = None) -> list[Path]:
    """A journal as a node ships it."""
    made = []
    for segment in sorted(node.iterdir()):
        data = segment.read_bytes()
        header, _ = parse_header(data)
        folder = root / f"v1/cluster={cluster}/node={name or node.name}/journal={header.journal_id.hex()}"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{segment.stem}-{sha256(data).hexdigest()}.ebj"
        path.write_bytes(data)
        made.append(path)
    return made


def test_both_layouts_give_the_same_rows(tmp_path: Path) -> None:
    """A folder a journal, or as shipped: the rows of a table are the same."""
    for seed in (1, 2, 3):
        shipped(a_node(tmp_path / "folders", seed), tmp_path / "store")
    for table in ("shutdowns", "pods"):
        assert rows(tmp_path / "folders", table) == rows(tmp_path / "store", table) != []
    assert {row["state"] for row in rows(tmp_path / "store", "journals")} == {"intact"}
    assert {row["cluster"] for row in rows(tmp_path / "store", "journals")} == {"c"}


def test_the_order_of_a_listing_is_nothing(tmp_path: Path) -> None:
    """The plan is a function of what is there; a part of it is small, and can be sent."""
    import obstore

    for seed in (1, 2, 3):
        a_node(tmp_path, seed)
    url = fleet.store_url(str(tmp_path))
    listed = [info for chunk in obstore.list(fleet.store(url)) for info in chunk]
    refs = fleet.journals(str(tmp_path))
    assert fleet.plan(url, listed) == fleet.plan(url, listed[::-1]) == refs
    assert pickle.loads(pickle.dumps(refs)) == refs


def test_copies_count_once(tmp_path: Path) -> None:
    """Under two names, two clusters and in two layouts it is one journal, by its full id."""
    node = a_node(tmp_path, 1)
    shutil.copytree(node, tmp_path / "copy")
    shipped(node, tmp_path, "one")
    shipped(node, tmp_path, "two")
    assert len(fleet.journals(str(tmp_path))) == 1
    assert len(rows(tmp_path, "shutdowns")) == 1
    assert [row["state"] for row in rows(tmp_path, "journals")] == ["intact"]


def test_ids_that_begin_alike(tmp_path: Path) -> None:
    """Two journals whose ids have their first eight digits in common are two (seeds 70979 and 110352)."""
    for seed in (70979, 110352):
        a_node(tmp_path, seed)
    assert len(fleet.journals(str(tmp_path))) == 1
    assert {row["node"] for row in rows(tmp_path, "shutdowns")} == {"node-70979", "node-110352"}
    assert len({row["journal_id"] for row in rows(tmp_path, "pods")}) == 2
    assert len(rows(tmp_path, "journals")) == 2


@pytest.mark.parametrize("lie", ["bytes", "node"])
def test_a_name_that_lies_is_a_verdict(tmp_path: Path, lie: str) -> None:
    """Nothing of such an object is used, and the other journals are read."""
    node = a_node(tmp_path / "nodes", 1)
    shipped(a_node(tmp_path / "nodes", 2), tmp_path / "store")
    made = shipped(node, tmp_path / "store", name="other" if lie == "node" else None)
    if lie == "bytes":
        for path in made:
            path.write_bytes(path.read_bytes()[:-1] + b"!")
    states = {row["journal_id"]: row["state"] for row in rows(tmp_path / "store", "journals")}
    assert sorted(states.values()) == ["corrupt", "intact"]
    assert {row["node"] for row in rows(tmp_path / "store", "shutdowns")} == {"node-2"}


def test_torn_corrupt_and_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a row with its verdict; a store that does not give what it listed says nothing of a journal."""
    torn, corrupt, gone = (sorted(a_node(tmp_path, seed).iterdir()) for seed in (1, 2, 3))
    torn[-1].write_bytes(torn[-1].read_bytes()[:-10])
    data = corrupt[0].read_bytes()
    corrupt[0].write_bytes(data[:5000] + b"!" + data[5001:])
    refs = fleet.journals(str(tmp_path))
    for path in gone:
        path.unlink()
    found = [row for batch in fleet.record_batches(refs, "journals") for row in batch.to_pylist()]
    assert [(row["state"], row["exit_code"]) for row in found] == [("torn", 4), ("corrupt", 5), ("unread", 2)]
    assert "StoreFailed" in found[-1]["error"]
    list(fleet.record_batches(refs, "pods"))


@pytest.mark.parametrize("url", ["s3://key:secret@bucket/x", "s3://b/x?X-Amz-Signature=1", "az://b?sig=1"])
def test_credentials_in_a_url_are_refused(url: str) -> None:
    """In one line, which does not repeat them."""
    with pytest.raises(fleet.BadUrl, match="holds credentials: leave them out") as refused:
        fleet.journals(url)
    assert "secret" not in str(refused.value)


def test_verify_is_a_row_a_journal(tmp_path: Path) -> None:
    """Every decision as recorded."""
    for seed in (1, 2):
        a_node(tmp_path, seed)
    batches = fleet.map_journals(fleet.journals(str(tmp_path)), fleet.VERBS["verify"])
    assert [row["identical"] for batch in batches for row in batch.to_pylist()] == [True, True]

"""A stream's position in a store: nothing twice, and nothing missed that comes to light a little late."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ebbtide import fleet
from ebbtide.fleet import File, Ref
from ebbtide.fleet.streaming import LATE_NS, Position, grown, new_batches
from tests.fleet.nodes import a_node, damage

NOW = 1_800_000_000 * 10**9
SECOND = 10**9


def file(name: str, modified_ns: int = NOW, size: int = 100) -> File:
    return File(name, f"node=a/{name}", size, modified_ns)


def journal(*files: File) -> Ref:
    return Ref("s3://bucket", "node=a", files)


def names(found: dict[Ref, Ref | None]) -> list[tuple[str, str]]:
    """Of the objects at the end, and at the start."""
    return [
        ("".join(each.name for each in now.files), "".join(each.name for each in then.files) if then else "")
        for now, then in found.items()
    ]


def test_a_position_survives_the_checkpoint() -> None:
    """Also the first one, which holds nothing."""
    for position in (Position(), Position.of_all([journal(file("1"), file("2"))])):
        assert Position.parse(position.offset()) == position


def test_nothing_is_new_where_nothing_came() -> None:
    """And all is at the first look."""
    refs = [journal(file("1"), file("2"))]
    here = Position.of_all(refs)
    assert names(grown(refs, Position(), here)) == [("12", "")]
    assert grown(refs, here, here) == {}


def test_a_journal_with_a_new_object_is_told_with_what_it_was() -> None:
    """So that only what is new of it is handed out."""
    old, new = file("1"), file("2", NOW + SECOND)
    before = Position.of_all([journal(old)])
    refs = [journal(old, new)]
    assert names(grown(refs, before, Position.of_all(refs))) == [("12", "1")]


def test_an_object_that_comes_late_is_not_missed() -> None:
    """Dated in the same second as the newest, or up to five minutes before it."""
    newest = file("2", NOW)
    before = Position.of_all([journal(newest)])
    for late in (file("1", NOW), file("1", NOW - LATE_NS + SECOND)):
        refs = [journal(late, newest)]
        assert names(grown(refs, before, Position.of_all(refs))) == [("12", "2")]


def test_an_old_listing_turns_no_stream_back() -> None:
    """What a store had some time ago: nothing is handed out again when it lists all of it."""
    first, second = file("1"), file("2", NOW + SECOND)
    late = file("3", NOW + SECOND)
    refs = [journal(first, second, late)]
    reached = Position.of_all(refs)
    for stale in ([journal(first)], [journal(first, second)], []):
        assert Position.of_all(stale).or_later(reached) == reached
    newer = Position.of_all([journal(first, second, late, file("4", NOW + 2 * SECOND))])
    assert newer.or_later(reached) == newer


def test_a_batch_that_runs_again_is_the_same() -> None:
    """What came to light after it was planned waits for the next one."""
    first = [journal(file("1"))]
    here = Position.of_all(first)
    more = [journal(file("1"), file("2", NOW - SECOND), file("3", NOW + SECOND))]
    assert grown(more, Position(), here) == grown(first, Position(), here)


def test_a_checkpoint_holds_what_is_recent_alone() -> None:
    """However large the store is."""
    old = [file(str(number), NOW - LATE_NS) for number in range(1000)]
    assert len(Position.of_all([journal(*old, file("new"))]).recent) == 1


def new_rows(refs: list[Ref], before: list[Ref], table: str) -> list[dict[str, Any]]:
    return [row for batch in new_batches(refs, before, table) for row in batch.to_pylist()]


def test_what_was_handed_out_is_not_new(tmp_path: Path) -> None:
    """Of a journal only what was not settled at the look before; of ``journals`` a row each time."""
    a_node(tmp_path, 1)
    (ref,) = fleet.journals(str(tmp_path))
    settled = [
        row for _, batch in fleet.table_batches([ref], ("pods",), settled=True) for row in batch.to_pylist()
    ]
    assert new_rows([ref], [], "pods") == settled != []
    assert new_rows([ref], [ref], "pods") == []
    assert len(new_rows([ref], [ref], "journals")) == 1


def test_a_store_that_fails_leaves_no_gap(tmp_path: Path) -> None:
    """The batch fails, to be run again; a journal that is damaged stays so, and holds nothing up."""
    for seed in (1, 2):
        a_node(tmp_path, seed)
    damage(tmp_path / "node-2")
    refs = fleet.journals(str(tmp_path))
    assert {row["node"] for row in new_rows(refs, [], "shutdowns")} >= {"node-1"}
    last = max((tmp_path / "node-1").iterdir())
    last.write_bytes(last.read_bytes()[:-1])
    for before in ([], [refs[0]]):
        with pytest.raises(fleet.StoreFailed, match="has not the bytes that were listed"):
            new_rows(refs, before, "shutdowns")

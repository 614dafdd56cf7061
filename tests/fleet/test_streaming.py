"""A stream's position in a store: nothing twice, and nothing missed that comes to light a little late."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ebbtide import fleet
from ebbtide.fleet import File, Ref
from ebbtide.fleet.streaming import LATE_NS, Position, grown, new_batches
from tests.fleet.nodes import a_node

NOW = 1_800_000_000 * 10**9
SECOND = 10**9


def journal(**modified_ns: int) -> Ref:
    """Its objects, by when they came."""
    files = tuple(File(name, f"node=a/{name}", 100, at) for name, at in modified_ns.items())
    return Ref("s3://bucket", "node=a", files)


@pytest.mark.parametrize(
    ("before", "now", "found"),
    [
        (None, {"a": NOW}, [("a", "")]),
        ({"a": NOW}, {"a": NOW}, []),
        ({"a": NOW}, {"a": NOW, "b": NOW + SECOND}, [("ab", "a")]),
        # Late: dated in the same second as the newest, or up to five minutes before it.
        ({"b": NOW}, {"a": NOW, "b": NOW}, [("ab", "b")]),
        ({"b": NOW}, {"a": NOW - LATE_NS + SECOND, "b": NOW}, [("ab", "b")]),
        # An old listing turns no stream back.
        ({"a": NOW, "b": NOW + SECOND}, {"a": NOW}, []),
    ],
)
def test_what_is_new(
    before: dict[str, int] | None, now: dict[str, int], found: list[tuple[str, str]]
) -> None:
    """Of a journal with a new object: all its objects, and those that were handed out."""
    seen = Position() if before is None else Position.of_all([journal(**before)])
    assert Position.parse(seen.offset()) == seen
    refs = [journal(**now)]
    here = Position.of_all(refs).or_later(seen)
    assert [
        ("".join(each.name for each in ref.files), "".join(each.name for each in then.files) if then else "")
        for ref, then in grown(refs, seen, here).items()
    ] == found


def new_rows(refs: list[Ref], before: list[Ref], table: str) -> list[dict[str, Any]]:
    return [row for batch in new_batches(refs, before, table) for row in batch.to_pylist()]


def test_a_store_that_fails_leaves_no_gap(tmp_path: Path) -> None:
    """What was handed out is not new; a batch that cannot be read fails, to be run again."""
    node = a_node(tmp_path, 1)
    refs = fleet.journals(str(tmp_path))
    assert new_rows(refs, [], "pods") != []
    assert new_rows(refs, refs, "pods") == []
    last = max(node.iterdir())
    last.write_bytes(last.read_bytes()[:-1])
    with pytest.raises(fleet.StoreFailed, match="has not the bytes that were listed"):
        new_rows(refs, [], "shutdowns")

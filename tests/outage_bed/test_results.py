"""The bed's evaluation; `python -m tests.outage_bed` runs the bed."""

from __future__ import annotations

import pytest

from tests.outage_bed.work import foreign_writes

pytestmark = pytest.mark.proof


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        (["begin node-1 1", "beat node-1 2", "begin node-2 30", "beat node-2 31"], 0),
        (["begin node-1 1", "begin node-2 30", "beat node-1 30", "beat node-2 31", "beat node-1 31"], 2),
        (["begin node-1 1", "begin node-2 30", "begin node-1 60", "beat node-1 61"], 0),
        ([], 0),
    ],
)
def test_foreign_writes(lines: list[str], count: int) -> None:
    """A node writes after another one has started, without starting anew."""
    assert foreign_writes({"volume/log": lines}) == count

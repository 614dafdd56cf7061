"""What the bed makes of what it saw; the bed itself is run by `python -m tests.outage_bed`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.outage_bed.results import Results, comparison, page
from tests.outage_bed.scenarios import BOTH, CONTROLLER, HAND, NOBODY, SCENARIOS
from tests.outage_bed.work import foreign_writes


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
    """A node writes after another one has begun to, and has not begun anew."""
    assert foreign_writes({"volume/log": lines}) == count


def row(actor: str, ready: float, **more: Any) -> dict[str, Any]:
    seconds = {"NotReady": 14.0, "tainted": 14.5, "ready elsewhere": ready}
    head = {"scenario": "plain", "actor": actor, "broken": [], "kubernetes": "v1.34.4"}
    return head | {"seconds": seconds, "collector": 9.0} | more


def test_pairs_are_compared(tmp_path: Path) -> None:
    """Only whole ones; the last run outside of them stands in the table."""
    results = Results(tmp_path / "outages.jsonl")
    for pair, (one, two) in enumerate([(30.0, 31.0), (40.0, 43.0), (35.0, 40.0)]):
        results.write(row(HAND, one, pair=pair))
        results.write(row(CONTROLLER, two, pair=pair))
    results.write(row(HAND, 99.0, pair=3))
    results.write(row(CONTROLLER, 98.0, pair=3, broken=["two nodes wrote"]))
    results.write(row(HAND, 37.0))
    again = Results(tmp_path / "outages.jsonl")
    assert again.next_pair() == 4
    said = comparison(again).splitlines()[2:]
    assert said == [
        "| `plain` | 3 | hand | 14.5 | 9.0 | 35.0 | 30 40 35 |",
        "| `plain` | 3 | controller | 14.5 | 9.0 | 40.0 | 31 43 40 |",
        "| `plain` | 3 | difference | | | +3.0 | |",
    ]
    assert "| `plain` | hand | 14.0 | 14.5 | – | – | – | 37.0 | – | – | – | yes |" in page(again)


def test_each_course_says_what_it_is() -> None:
    for name, scenario in SCENARIOS.items():
        assert scenario.run.__doc__, name
        assert set(scenario.actors) <= {*BOTH, NOBODY}, name

"""What the bed makes of what it saw; the bed itself is run by `python -m tests.outage_bed`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.outage_bed.results import Results, comparison, page
from tests.outage_bed.scenarios import BOTH, CONTROLLER, HAND, NOBODY, SCENARIOS
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
    """A node writes after another one has begun to, and has not begun anew."""
    assert foreign_writes({"volume/log": lines}) == count


def row(actor: str, ready: float, **more: Any) -> dict[str, Any]:
    seconds = {"NotReady": 14.0, "tainted": 14.5, "ready elsewhere": ready}
    head = {"scenario": "plain", "actor": actor, "broken": [], "kubernetes": "v1.34.4"}
    return head | {"seconds": seconds, "collector": 9.0} | more


STORM: dict[str, Any] = {
    "nodes": 1000,
    "pods": 30000,
    "out": 100,
    "idle_percent": 0.94,
    "idle_mib": 86.2,
    "peak_mib": 90.1,
    "storm_mib": 99.0,
    "storm_peak_mib": 101.4,
    "requests_a_second": [19.8, 4.0, 0.5],
    "out_of_service": [3, 5, 5],
    "journals": 99,
}


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


def test_what_is_kept_stays(tmp_path: Path) -> None:
    """A machine that has run one course changes that one: the others, and the pairs of the page, stay."""
    kept = Results(tmp_path / "kept.jsonl")
    kept.keep(
        [row(HAND, 37.0), row(CONTROLLER, 38.0), row(HAND, 30.0, pair=0), row(CONTROLLER, 31.0, pair=0)]
    )
    former = page(kept, figures=STORM)
    kept.keep([row(CONTROLLER, 39.0, broken=["two nodes wrote"], records=300)])
    again = Results(tmp_path / "kept.jsonl")
    assert [each["seconds"]["ready elsewhere"] for each in again.all] == [37.0, 39.0, 30.0, 31.0]
    assert "records" not in again.all[1]
    alone = Results(tmp_path / "alone.jsonl")
    alone.keep(each for each in again.all if "pair" not in each)
    assert page(alone, former, STORM) == page(again, figures=STORM)
    assert "Broken: `plain` by controller: two nodes wrote" in page(alone, former)
    assert comparison(again) in page(alone, former)


def test_a_storm_beside_its_limits() -> None:
    """The worst of each ten seconds counts, and nodes that are not on record."""
    said = page(Results(Path("none")), figures=STORM)
    assert "| requests a second, the most in any 10 s of the storm | 20 | 19.8 |" in said
    assert "| nodes out of service at any moment | 5 | 5 |" in said
    assert "| nodes that died without an outage on record | 0 | 1 |" in said
    assert "watched for 30 s more" in said


def test_each_course_says_what_it_is() -> None:
    for name, scenario in SCENARIOS.items():
        assert scenario.run.__doc__, name
        assert set(scenario.actors) <= {*BOTH, NOBODY}, name

"""KEP-2000: what logind grants goes to the highest priority first (``cases/grants.yaml``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ebbtide.events.segment import SHUTDOWN_LOGIC
from tests.scripts.bench import Bench
from tests.scripts.parse import parse
from tests.scripts.verbs import run

GRANTS = yaml.safe_load((Path(__file__).parents[1] / "cases/grants.yaml").read_text())["cases"]


@pytest.mark.parametrize("case", GRANTS, ids=[case["name"].replace(" ", "-") for case in GRANTS])
def test_a_grant_that_is_too_small_is_shared_out(case: dict[str, Any]) -> None:
    """One pod in each wave, and the period that each wave gets."""
    if "by_priority_s" in case:
        periods = ",".join(f"{priority}:{seconds}" for priority, seconds in case["by_priority_s"].items())
        settings = f"periods={periods}"
    else:
        settings = f"total={case['total_s']}s critical={case['critical_s']}s"
    pods = "\n".join(f"  p{priority} p={priority} grace=3600" for priority in case["periods_s"])
    text = (
        f"start\nsettings {settings} raise=no\narmed grant={case['grant_s']}s\n"
        f"signal poweroff grant={case['grant_s']}s\ninventory\n{pods}\n"
    )
    bench = Bench(SHUTDOWN_LOGIC)
    lines = [line for block in parse(text) for command in block.commands for line in run(bench, command)]
    (plan,) = [line for line in lines if " PlanMade " in line]
    found = plan.partition("waves=[")[2].partition("]")[0]
    expected = {f"{priority}:{seconds}s" for priority, seconds in case["periods_s"].items()}
    assert {each.split()[0] for each in found.split(", ")} == expected

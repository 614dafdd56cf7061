"""What the runs came to: a JSON line a run, the last one of each scenario and actor holds, and a table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tests.outage_bed.scenarios import SCENARIOS

COLUMNS = (
    "NotReady",
    "tainted",
    "Terminating",
    "pods gone",
    "detached",
    "ready elsewhere",
    "back",
    "untainted",
)
HEADS = ("scenario", "by", *COLUMNS, "holds")


class Results:
    def __init__(self, file: Path) -> None:
        self.file = file
        lines = file.read_text().splitlines() if file.exists() else []
        self.all: list[dict[str, object]] = [json.loads(line) for line in lines]

    @property
    def rows(self) -> dict[tuple[str, str], dict[str, object]]:
        return {(str(each["scenario"]), str(each["actor"])): each for each in self.all}

    def has(self, name: str, actor: str) -> bool:
        return (name, actor) in self.rows

    def write(self, row: dict[str, object], told: Sequence[str]) -> None:
        """What was seen lies beside, in a file of the run's own."""
        self.all.append(row)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a") as file:
            file.write(json.dumps(row) + "\n")
        beside = self.file.with_suffix("")
        beside.mkdir(exist_ok=True)
        (beside / f"{row['scenario']}-{row['actor']}.txt").write_text("\n".join(told) + "\n")


def table(results: Results) -> str:
    """Seconds after the cut; in the order of the scenarios."""
    lines = [f"| {' | '.join(HEADS)} |", "|---" * len(HEADS) + "|"]
    for name, scenario in SCENARIOS.items():
        for actor in scenario.actors:
            if row := results.rows.get((name, actor)):
                seconds = row["seconds"]
                assert isinstance(seconds, dict)
                cells = [
                    name,
                    actor,
                    *(seconds.get(mark, "–") for mark in COLUMNS),
                    "no" if row["broken"] else "yes",
                ]
                lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)

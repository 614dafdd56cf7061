"""One run of a scenario: measurements and violations."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import trio

from tests.backends.backends import jaeger
from tests.backends.compare import assert_returned, shutdowns
from tests.beds.rootfs import leaves
from tests.node.csi.programs import Programs
from tests.node.ebbtide import COMMAND
from tests.node.programs import version
from tests.outage_bed.actors import Actor, Controller, Hand
from tests.outage_bed.scenarios import CONTROLLER, SCENARIOS, Scenario
from tests.outage_bed.stage import NotMade, Stage, stage

Row = dict[str, Any]
MESSAGE_CHARACTERS = 1000


def run(name: str, who: str, programs: Programs, kept: Path, moment_seconds: float | None = None) -> Row:
    """Returns its row; ``kept`` gets the observed changes, the controller's output and its journal.
    ``moment_seconds``: the cut's phase in the collector's round. Raises NotMade.
    """
    failures: list[BaseException] = []
    try:
        row: Row = trio.run(_run, name, who, programs, kept, moment_seconds)
        if (journal := kept / "journal").exists():
            row["broken"] += traced(journal)
        return row
    except* Exception as group:
        failures.extend(leaves(group))
    raise NotMade("; ".join(f"{type(each).__name__}: {each}"[:MESSAGE_CHARACTERS] for each in failures))


async def _run(name: str, who: str, programs: Programs, kept: Path, moment_seconds: float | None) -> Row:
    scenario, began = SCENARIOS[name], time.monotonic()
    broken: list[str] = []
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    actor: Actor = Controller(kept) if who == CONTROLLER else Hand()
    async with stage(programs, scenario.controllers, moment_seconds) as made:
        try:
            await scenario.run(made, actor)
        except AssertionError as error:
            broken.append(str(error)[:MESSAGE_CHARACTERS])
        told, breaches = await actor.end(made)
        broken += [*breaches, *judge(made, scenario)]
        row = measured(made) | told | {"metrics": await made.metrics()}
        (kept / "seen.txt").write_text("\n".join(made.told) + "\n")
    head = {"scenario": name, "actor": who, "broken": broken, "kubernetes": version()}
    return head | row | {"took": round(time.monotonic() - began)}


def traced(journal: Path) -> list[str]:
    """Empty if Jaeger returns each of the journal's outages, span by span as projected."""
    found = []
    with tempfile.TemporaryDirectory(prefix="ebbtide-jaeger.") as folder, jaeger(Path(folder)) as backend:
        for number, outage in enumerate(reversed(shutdowns(journal)), 1):
            argv = [*COMMAND, "export", "otlp", f"-{number}", f"--journal={journal}"]
            subprocess.run([*argv, f"--endpoint={backend.http}"], check=True, capture_output=True, text=True)
            try:
                assert_returned(backend, outage)
            except AssertionError as error:
                found.append(f"the trace of {outage.trace_id}: {error}"[:MESSAGE_CHARACTERS])
    return found


def judge(made: Stage, scenario: Scenario) -> list[str]:
    found = []
    if not scenario.damage:
        if count := made.foreign_writes():
            found.append(f"{count} lines were written by a node that had lost the volume")
        found += [f"{each.call} of {each.volume} at {each.node}: {each.why}" for each in made.violations()]
    return found


def measured(made: Stage) -> Row:
    """``collector``: the time of pods in Terminating, which is the phase of the collector's round."""
    seconds = made.seconds
    row: Row = {"seconds": dict(sorted(seconds.items(), key=lambda each: each[1]))}
    if {"Terminating", "pods gone"} <= seconds.keys():
        row["collector"] = round(seconds["pods gone"] - seconds["Terminating"], 1)
    return row | {"foreign_writes": made.foreign_writes(), "violations": len(made.violations())}

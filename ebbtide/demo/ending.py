"""How the demo ends: every pod's outcome and why, the autopsies, and where to look further."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ebbtide.cli.output import STYLES
from ebbtide.demo.chronicle import Chronicle, Row
from ebbtide.text import visible
from events.base import NS_PER_SECOND
from events.facts import AutopsyTaken
from events.model import ProcessReport

DEMO_VERSION = 1

MEANT_TO_END = ("SIGTERM", "SIGINT", "SIGQUIT", "SIGHUP")

#: Where to look further, with the option that names the journal added.
FURTHER = (
    ("what happened, line by line", "replay timeline"),
    ("where the time went", "replay blame"),
    ("one pod's story", "journal show --pod legacy-0"),
    ("a page for the browser", "replay report -o report.html"),
    ("every event, and what caused it", "journal show"),
    ("the shutdown in one line", "journal ls"),
    ("the same again, from its facts", "replay verify"),
)


def ending(told: Chronicle, trace_id: str, journal: Path, program: str) -> RenderableType:
    """The last page, for people."""
    parts: list[RenderableType] = [Text(), _pods(told.rows()), Text()]
    for autopsy in told.autopsies:
        parts += [*_autopsy(told, autopsy), Text()]
    parts += [Text(_total(told), style="bold"), Text(f"trace id {trace_id}"), Text()]
    return Group(*parts, Text("Look further:", style="bold"), *_further(journal, program))


def ending_json(told: Chronicle, trace_id: str, journal: Path) -> dict[str, Any]:
    """``kind: Demo``; seconds from the signal to the release."""
    return {
        "kind": "Demo",
        "version": DEMO_VERSION,
        "shutdown": told.kind,
        "seconds": told.took_ns / NS_PER_SECOND,
        "traceId": trace_id,
        "journal": str(journal),
        "pods": [
            {
                "pod": row.pod,
                "wave": row.wave,
                "graceSeconds": row.grace_seconds,
                "outcome": row.outcome,
                "seconds": row.took_ns / NS_PER_SECOND,
                "why": row.why,
            }
            for row in told.rows()
        ],
    }


def _pods(rows: list[Row]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("POD", "WAVE", "GRACE", "OUTCOME", "TOOK", "WHY"):
        right = heading in ("WAVE", "GRACE", "TOOK")
        table.add_column(heading, justify="right" if right else "left", no_wrap=heading != "WHY")
    for row in rows:
        outcome = Text(row.outcome, style=STYLES.get(row.outcome, ""))
        table.add_row(
            Text(visible(row.pod)),
            _number(row.wave),
            _grace(row),
            outcome,
            _took(row),
            Text(visible(row.why)),
        )
    return table


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _grace(row: Row) -> str:
    return "-" if row.grace_seconds is None else f"{row.grace_seconds} s"


def _took(row: Row) -> str:
    return "-" if row.wave is None else f"{row.took_ns / NS_PER_SECOND:.1f} s"


def _autopsy(told: Chronicle, autopsy: AutopsyTaken) -> Iterator[Text]:
    """What a straggler was doing, its processes as a tree."""
    name = f"{told.label(autopsy.uid)}, container {autopsy.container}"
    yield Text(f"Autopsy of {visible(name)}, just before SIGKILL:", style="bold")
    depths = _depths(autopsy.processes)
    for process in autopsy.processes:
        yield Text(f"  {'  ' * depths[process.pid]}{visible(_process(process))}")
    for line in autopsy.last_lines:
        yield Text(f"  its last words: {visible(line)}", style="italic")


def _depths(processes: tuple[ProcessReport, ...]) -> dict[int, int]:
    depths: dict[int, int] = {}
    for process in processes:
        depths[process.pid] = depths.get(process.parent_pid, -1) + 1
    return depths


def _process(process: ProcessReport) -> str:
    where = f" in {process.wait_channel}" if process.wait_channel else ""
    plural = "" if process.connections == 1 else "s"
    open_ = f", {process.connections} open connection{plural}" if process.connections else ""
    return f"{process.command} ({process.pid}) {process.state}{where}{open_}{_ignores(process)}"


def _ignores(process: ProcessReport) -> str:
    """The signals that are meant to end a program by name; of the others the number."""
    meant = [name for name in process.signals_ignored if name in MEANT_TO_END]
    others = len(process.signals_ignored) - len(meant)
    more = f" and {others} others" if others and meant else ""
    return f", ignores {' '.join(meant)}{more}" if meant else ""


def _total(told: Chronicle) -> str:
    counts = Counter(row.outcome for row in told.rows())
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    return f"The machine was let go after {told.took_ns / NS_PER_SECOND:.1f} s: {outcomes}."


def _further(journal: Path, program: str) -> Iterator[Text]:
    width = max(len(meaning) for meaning, _ in FURTHER)
    for meaning, command in FURTHER:
        whole = shlex.join((program, *command.split(), "--journal", str(journal)))
        line = Text.assemble(f"  {meaning:<{width}}  ", (whole, "cyan"))
        line.no_wrap, line.overflow = True, "ignore"
        yield line

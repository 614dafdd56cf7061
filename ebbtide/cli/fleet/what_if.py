"""``ebbtide fleet what-if``: what a new configuration would have done to all shutdowns of a fleet.

Nothing is kept of a shutdown for which nothing changes: memory grows with the workloads and nodes that are
touched, and the worst nights are bounded.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ebbtide.cli.common.guard import NOT_SO, Refused, worst
from ebbtide.cli.common.options import config_option, output_option
from ebbtide.cli.common.output import NarrowTable, pairs, show, show_json
from ebbtide.cli.fleet.common import (
    CODES,
    Engine,
    engine_options,
    journals_option,
    journals_text,
    plan,
    rows,
)
from ebbtide.cli.replay.what_if import CHANGE_FIELDS
from ebbtide.config import load_named
from ebbtide.events.record.format import plural, visible

if TYPE_CHECKING:
    from rich.console import RenderableType

EPILOG = """\b
Examples:
  ebbtide fleet what-if --journals ./fleet --config new.yaml
  ebbtide fleet what-if --journals s3://journals/v1 --config new.yaml --gate lost=0
  ebbtide fleet what-if --journals ./fleet --config new.yaml --gate lost=0 --gate perhaps-lost=3
  ebbtide fleet what-if --journals ./fleet --config new.yaml -o json | jq '.nights[].shutdown'

Each shutdown is decided anew as by 'replay what-if', which tells all of one that is named here. What the
record leaves open makes an interval: lost for certain on this evidence, and perhaps. A journal knows its
node, its pods and their priorities, and no node pool: pools are not told apart.
"""

#: A gate's names, and what of the report each bounds.
GATES = {"lost": "lost", "perhaps-lost": "perhapsLost", "not-asked": "notAskedCount"}
#: The worst ones: behind them the tables of workloads and nodes say more.
NIGHTS_MAX = 100
#: Of each table on a terminal.
ROWS_SHOWN_MAX = 20


class Gate(NamedTuple):
    """At most so many."""

    name: str
    most: int


class GateType(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # older versions of click have none
    """``NAME=N``."""

    name = "gate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Gate:
        name, equals, most = str(value).partition("=")
        if name not in GATES or not equals or not (most.isascii() and most.isdecimal() and len(most) < 10):
            self.fail(f"{value!r} is no gate: write NAME=N, with {', '.join(GATES)}", param, ctx)
        return Gate(name, int(most))


@click.command("what-if", epilog=EPILOG)
@journals_option
@config_option
@click.option(
    "--gate",
    "gates",
    type=GateType(),
    multiple=True,
    metavar="NAME=N",
    help="Exit code 1 where more than N pods are lost, or perhaps-lost, or more than N shutdowns and journals"
    " are not-asked; repeatable.",
)
@engine_options
@output_option("table", "json")
def what_if_command(
    url: str, configs: tuple[Path, ...], gates: tuple[Gate, ...], engine: Engine, output: str
) -> int:
    """Decide all shutdowns of a fleet again under another configuration: whom it saves, and whom it costs.

    By workload and node, with the worst nights, and whatever could not be asked by name. Exit code 1: a gate
    does not hold; else that of the worst journal.
    """
    import msgspec

    if not configs:
        raise Refused("say what is to be different: --config FILE")
    settings = msgspec.msgpack.encode(load_named(configs).settings)
    risk = Risk()
    for row in rows("what-if", plan(url, "what-if", engine), engine, settings=settings):
        risk.add(row)
    document = risk.document(configs)
    passed = [{"gate": f"{gate.name}={gate.most}", "found": document[GATES[gate.name]]} for gate in gates]
    for each, gate in zip(passed, gates, strict=True):
        each["holds"] = each["found"] <= gate.most
    if output == "json":
        show_json({**document, "gates": passed})
    else:
        for part in risk_tables(document, passed):
            show(part)
    return worst([*risk.codes, *(NOT_SO for each in passed if not each["holds"])])


# --- the sum of it -----------------------------------------------------------------------------

#: By how much a night costs.
_COUNTS = ("lost", "perhaps_lost", "saved", "perhaps_saved")


class Night(NamedTuple):
    """A shutdown, in the order of how bad it would be."""

    lost: int
    perhaps_lost: int
    started: datetime
    node: str
    shutdown: str
    row: dict[str, Any]

    @property
    def order(self) -> tuple[Any, ...]:
        return (-self.lost, -self.perhaps_lost, self.started, self.node, self.shutdown)


class Risk:
    """What all rows come to."""

    def __init__(self) -> None:
        self.codes: set[int] = set()
        self.counts = Counter[str]()
        #: By workload and priority, and by node: of each change how many.
        self.workloads: dict[tuple[str, int | None], Counter[str]] = {}
        self.nodes: dict[str, Counter[str]] = {}
        self.nights: list[Night] = []
        self.remarks: list[dict[str, Any]] = []

    def add(self, row: dict[str, Any]) -> None:
        if row["state"] is not None:
            self.codes.add(CODES[row["state"]])
        if row["error"] is not None:
            # Of a torn tail nothing was ever known that could be asked.
            self.counts["not-asked"] += row["state"] != "torn"
            self.remarks.append(row)
        if row["shutdown"] is None:
            self.counts["journals"] += 1
            return
        self.counts["shutdowns"] += 1
        if row["error"] is not None:
            return
        self.counts["asked"] += 1
        self.counts["nights"] += bool(row["lost"] or row["perhaps_lost"])
        self.counts["same"] += row["same"]
        for name in ("pods", *_COUNTS):
            self.counts[name] += row[name]
        for each in row["changed"]:
            change = each["change"]
            self.workloads.setdefault((each["workload"], each["priority"]), Counter())[change] += 1
            self.nodes.setdefault(row["node"], Counter())[change] += 1
        if row["lost"] or row["perhaps_lost"]:
            names = ("lost", "perhaps_lost", "started", "node", "shutdown")
            night = Night(**{name: row[name] for name in names}, row=row)
            self.nights = heapq.nsmallest(NIGHTS_MAX, [*self.nights, night], key=lambda each: each.order)

    def document(self, configs: Iterable[Path]) -> dict[str, Any]:
        counts = self.counts
        return {
            "kind": "FleetWhatIf",
            "version": WHAT_IF_VERSION,
            "changed": [f"the configuration {', '.join(map(str, configs))}"],
            "journals": counts["journals"],
            "shutdowns": counts["shutdowns"],
            "asked": counts["asked"],
            "same": counts["same"],
            "pods": counts["pods"],
            **{field: counts[change.replace("-", "_")] for change, field in CHANGE_FIELDS.items()},
            "workloads": [
                {"workload": name, "priority": priority, **_changes(found)}
                for (name, priority), found in _worst_first(self.workloads)
            ],
            "nodes": [{"node": name, **_changes(found)} for name, found in _worst_first(self.nodes)],
            "nightsCount": counts["nights"],
            "nights": [
                {
                    "node": each.node,
                    "shutdown": each.shutdown,
                    "started": each.started.isoformat().replace("+00:00", "Z"),
                    "journalId": each.row["journal_id"],
                    "location": each.row["location"],
                    "pods": [{"pod": of["pod"], "change": of["change"]} for of in each.row["changed"]],
                }
                for each in self.nights
            ],
            "notAskedCount": counts["not-asked"],
            "notAsked": [
                {
                    "node": row["node"],
                    "shutdown": row["shutdown"],
                    "state": row["state"],
                    "why": row["error"],
                    "journalId": row["journal_id"],
                    "location": row["location"],
                }
                for row in self.remarks
            ],
        }


WHAT_IF_VERSION = 1


def _changes(found: Counter[str]) -> dict[str, int]:
    return {field: found[change] for change, field in CHANGE_FIELDS.items()}


def _worst_first(found: dict[Any, Counter[str]]) -> list[tuple[Any, Counter[str]]]:
    """Then by name, whatever was seen first."""

    def order(item: tuple[Any, Counter[str]]) -> tuple[Any, ...]:
        counts = (-item[1][name.replace("_", "-")] for name in _COUNTS)
        return (*counts, repr(item[0]))

    return sorted(found.items(), key=order)


# --- tables ------------------------------------------------------------------------------------

_CHANGED = ("SAVED", "PERHAPS SAVED", "LOST", "PERHAPS LOST")


def risk_tables(document: dict[str, Any], gates: Iterable[dict[str, Any]]) -> Iterable[RenderableType]:
    """The sum, workloads, nodes, the worst nights, what could not be asked, the gates."""
    asked, shutdowns = document["asked"], plural(document["shutdowns"], "shutdown")
    yield f"{document['changed'][0]}: {asked} of {shutdowns} asked, of {journals_text(document['journals'])}"
    yield pairs(
        [
            ("pods", f"{document['pods']}, in {document['same']} of the shutdowns nothing happens otherwise"),
            ("saved", _interval(document["saved"], document["perhapsSaved"])),
            ("lost", _interval(document["lost"], document["perhapsLost"])),
            ("not asked", str(document["notAskedCount"])),
        ]
    )
    parts = (
        (
            document["workloads"],
            ("WORKLOAD", "PRIORITY", *_CHANGED),
            lambda each: (each["workload"], _text(each["priority"]), *_cells(each)),
        ),
        (document["nodes"], ("NODE", *_CHANGED), lambda each: (each["node"], *_cells(each))),
        (
            document["nights"],
            ("NODE", "WORST SHUTDOWN", "STARTED", "LOST", "PERHAPS LOST", "LOCATION"),
            _night_row,
        ),
        (
            document["notAsked"],
            ("NODE", "NOT ASKED", "STATE", "LOCATION", "WHY"),
            lambda each: tuple(
                _text(each[name]) for name in ("node", "shutdown", "state", "location", "why")
            ),
        ),
    )
    for found, headings, row in parts:
        if found:
            yield ""
            told = map(row, found[:ROWS_SHOWN_MAX])
            wraps = "WHY" if "WHY" in headings else ""
            yield NarrowTable(headings, told, right=("PRIORITY", *_CHANGED), wraps=wraps)
            if len(found) > ROWS_SHOWN_MAX:
                yield f"and {len(found) - ROWS_SHOWN_MAX} more, which -o json has"
    for each in gates:
        holds = "holds" if each["holds"] else f"does not hold: {each['found']}"
        yield visible(f"gate {each['gate']} {holds}")


def _text(value: Any) -> str:
    return "-" if value is None else str(value)


def _interval(certain: int, perhaps: int) -> str:
    return f"{certain} … {certain + perhaps}" if perhaps else str(certain)


def _cells(each: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(each[field]) for field in ("saved", "perhapsSaved", "lost", "perhapsLost"))


def _night_row(each: dict[str, Any]) -> tuple[str, ...]:
    fates = Counter(pod["change"] for pod in each["pods"])
    counts = (str(fates["lost"]), str(fates["perhaps-lost"]))
    return (each["node"], each["shutdown"], each["started"], *counts, each["location"])

"""``ebbtide fleet what-if``: what a new configuration would have done to all shutdowns of a fleet.

Nothing is kept of a shutdown for which nothing changes: memory grows with the workloads and nodes that are
touched, and the worst nights are bounded.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from os.path import relpath
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import click

from ebbtide import __version__
from ebbtide.actors.policy.grace_periods import effective_periods
from ebbtide.cli.common.guard import NOT_SO, WRONG, Refused, worst
from ebbtide.cli.common.output import NarrowTable, pairs, remark, show, show_json
from ebbtide.cli.common.saving import STDOUT, new_folder, refuse_existing, save, spare_journals
from ebbtide.cli.common.shared_options import config_option, output_option
from ebbtide.cli.fleet.fleet_common import (
    CODES,
    POOLS_EPILOG,
    Engine,
    Pools,
    answers,
    engine_options,
    journals_option,
    journals_text,
    plan,
    pools_option,
    rows,
)
from ebbtide.cli.replay.what_if_view import CHANGE_FIELDS
from ebbtide.config import load_named
from ebbtide.events.messages import plural
from ebbtide.events.record.format import visible

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ebbtide.events.values import Settings
    from ebbtide.fleet import Ref
    from ebbtide.fleet.reports import Key

EPILOG = (
    """\b
Examples:
  ebbtide fleet what-if --journals ./fleet --config new.yaml
  ebbtide fleet what-if --journals s3://journals/v1 --config new.yaml --gate lost=0
  ebbtide fleet what-if --journals ./fleet --config new.yaml --gate lost=0 --gate perhaps-lost=3
  ebbtide fleet what-if --journals ./fleet --config new.yaml --html risk.html --reports nights
  ebbtide fleet what-if --journals ./fleet --config new.yaml --pools pools.txt
  ebbtide fleet what-if --journals ./fleet --config new.yaml -o json | jq '.nights[].shutdown'

Each shutdown is decided anew as by 'replay what-if', which tells all of one that is named here. What the
record leaves open makes an interval: lost for certain on this evidence, and perhaps.
"""
    + POOLS_EPILOG
)

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
    " are not-asked, or nothing was asked; repeatable.",
)
@pools_option
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write it as one self-contained page as well, such as risk.html.",
)
@click.option(
    "--reports",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help=f"A new directory for the reports of the worst {NIGHTS_MAX} nights, to which the page links.",
)
@engine_options
@output_option("table", "json")
def what_if_command(
    url: str,
    configs: tuple[Path, ...],
    gates: tuple[Gate, ...],
    pools: Pools | None,
    html: Path | None,
    folder: Path | None,
    engine: Engine,
    output: str,
) -> int:
    """Decide all shutdowns of a fleet again under another configuration: whom it saves, and whom it costs.

    By pool, workload and node, with the worst nights, and whatever could not be asked by name. Exit code 1: a
    gate does not hold, which goes before the code of the worst journal.
    """
    import msgspec

    if not configs:
        raise Refused("say what is to be different: --config FILE")
    # Before a journal is read: what cannot be written in the end would have been in vain.
    if html is not None:
        refuse_unwritable(html)
    if folder is not None:
        refuse_existing(folder, "--reports")
    settings = load_named(configs).settings
    risk = Risk(pools)
    refs = plan(url, "what-if", engine)
    for row in rows("what-if", refs, engine, settings=msgspec.msgpack.encode(settings)):
        risk.add(row)
    names = write_reports(risk.nights, refs, folder, engine) if folder is not None else {}
    document = risk.document(configs, settings)
    for night in document["nights"]:
        name = names.get((night["journalId"], night["shutdown"]))
        night["report"] = None if folder is None or name is None else str(folder / name)
    document["gates"] = list[dict[str, Any]]()
    for gate in gates:
        found = document[GATES[gate.name]]
        # Of a fleet of which nothing could be asked nothing is known, and certainly not that no pod is lost.
        holds = found <= gate.most and document["asked"] > 0
        document["gates"].append({"gate": f"{gate.name}={gate.most}", "found": found, "holds": holds})
    if output == "json":
        show_json(document)
    else:
        for part in risk_tables(document):
            show(part)
    if html is not None:
        from ebbtide.replay.report.risk_page import risk_page

        # As a browser goes there from the page, wherever both are taken together.
        beside = "" if folder is None else relpath(folder, html.parent)
        links = {key: quote(f"{beside}/{name}") for key, name in names.items()}
        page = risk_page(document, links, __version__)
        save(html, [page.encode()], readable=False, example="risk.html", option="--html")
    missing = folder is not None and len(names) < len(risk.nights)
    # Whoever asks by a gate is told by its code, whichever journals are damaged: in a large fleet some are.
    if not all(gate["holds"] for gate in document["gates"]):
        return NOT_SO
    return worst([*risk.codes, *((WRONG,) if missing else ())])


def refuse_unwritable(html: Path) -> None:
    """Raises Refused."""
    if str(html) == STDOUT:
        raise Refused("--html needs a file, such as risk.html: the result itself goes to standard output")
    if not html.parent.is_dir():
        raise Refused(f"{html.parent} is no folder: make it first, or name another file with --html")
    spare_journals(html, "--html")


def write_reports(
    nights: Iterable[Night], refs: Sequence[Ref], folder: Path, engine: Engine
) -> dict[Key, str]:
    """The pages' names, of all that could be made: a link leads somewhere, or there is none."""
    from functools import partial

    from ebbtide.fleet.reports import refs_of, reports

    keys = [(night.row["journal_id"], night.shutdown) for night in nights]
    names: dict[Key, str] = {}
    whys = dict.fromkeys(keys, "it is not there any more")
    asked = refs_of(keys, refs)
    with new_folder(folder) as made:
        for found in answers(partial(reports, frozenset(keys)), asked, engine) if asked else ():
            for key, page, why in found:
                if why:
                    whys[key] = why
                    continue
                # By ids: a node's name may be anything. The id of the journal whole, as two may begin alike.
                names[key] = f"{key[0]}-{key[1].rpartition('-')[2]}.html"
                (made / names[key]).write_text(page, encoding="utf-8")
    for key in keys:
        if key not in names:
            remark(f"ebbtide: no report of shutdown {key[1]}: {whys[key]}")
    remark(f"wrote {folder}: {plural(len(names), 'report')}")
    return names


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

    def __init__(self, pools: Pools | None = None) -> None:
        self.codes: set[int] = set()
        self.counts = Counter[str]()
        #: By workload and priority, and by node: of each change how many.
        self.workloads: dict[tuple[str, int | None], Counter[str]] = {}
        #: A name is a node's in its cluster, which is empty where no path tells it.
        self.nodes: dict[tuple[str, str], Counter[str]] = {}
        #: Those in which anything was asked, with the number of shutdowns and pods.
        self.pools: dict[str | None, Counter[str]] = {}
        self._pools = pools
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
        if self._pools is not None:
            of_pool = self.pools.setdefault(self._pools.pool(row["node"]), Counter())
            of_pool.update(shutdowns=1, pods=row["pods"])
            of_pool.update(each["change"] for each in row["changed"])
        for each in row["changed"]:
            change = each["change"]
            self.workloads.setdefault((each["workload"], each["priority"]), Counter())[change] += 1
            self.nodes.setdefault((row["cluster"], row["node"]), Counter())[change] += 1
        if row["lost"] or row["perhaps_lost"]:
            names = ("lost", "perhaps_lost", "started", "node", "shutdown")
            night = Night(**{name: row[name] for name in names}, row=row)
            self.nights = heapq.nsmallest(NIGHTS_MAX, [*self.nights, night], key=lambda each: each.order)

    def document(self, configs: Iterable[Path], settings: Settings) -> dict[str, Any]:
        """All of it but the gates and where the nights' reports are."""
        counts = self.counts
        return {
            "kind": "FleetWhatIf",
            "version": WHAT_IF_VERSION,
            "changed": [f"the configuration {', '.join(map(str, configs))}"],
            "periods": [
                {"priority": each.priority, "seconds": each.seconds} for each in effective_periods(settings)
            ],
            "journals": counts["journals"],
            "shutdowns": counts["shutdowns"],
            "asked": counts["asked"],
            "same": counts["same"],
            "pods": counts["pods"],
            **{field: counts[change.replace("-", "_")] for change, field in CHANGE_FIELDS.items()},
            "pools": None
            if self._pools is None
            else [
                {"pool": name, "shutdowns": found["shutdowns"], "pods": found["pods"], **_changes(found)}
                for name, found in _worst_first(self.pools)
            ],
            "workloads": [
                {"workload": name, "priority": priority, **_changes(found)}
                for (name, priority), found in _worst_first(self.workloads)
            ],
            "nodes": [
                {"cluster": cluster or None, "node": name, **_changes(found)}
                for (cluster, name), found in _worst_first(self.nodes)
            ],
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


def risk_tables(document: Mapping[str, Any]) -> Iterable[RenderableType]:
    """The sum, pools, workloads, nodes, the worst nights, what could not be asked, the gates."""
    asked, shutdowns = document["asked"], plural(document["shutdowns"], "shutdown")
    yield f"{document['changed'][0]}: {asked} of {shutdowns} asked, of {journals_text(document['journals'])}"
    yield pairs(
        [
            (
                "pods",
                f"{document['pods']}; {document['same']} of the shutdowns stay the same, event for event",
            ),
            ("saved", _interval(document["saved"], document["perhapsSaved"])),
            ("lost", _interval(document["lost"], document["perhapsLost"])),
            ("not asked", str(document["notAskedCount"])),
        ]
    )
    reports = ("REPORT",) if any(night["report"] for night in document["nights"]) else ()
    clusters = any(each["cluster"] for each in document["nodes"])
    parts = (
        (
            document["pools"] or (),
            ("POOL", "SHUTDOWNS", "PODS", *_CHANGED),
            lambda each: (_text(each["pool"]), str(each["shutdowns"]), str(each["pods"]), *_cells(each)),
        ),
        (
            document["workloads"],
            ("WORKLOAD", "PRIORITY", *_CHANGED),
            lambda each: (each["workload"], _text(each["priority"]), *_cells(each)),
        ),
        (
            document["nodes"],
            ("CLUSTER", "NODE", *_CHANGED) if clusters else ("NODE", *_CHANGED),
            lambda each: (*((_text(each["cluster"]),) if clusters else ()), each["node"], *_cells(each)),
        ),
        (
            document["nights"],
            ("NODE", "WORST SHUTDOWN", "STARTED", "LOST", "PERHAPS LOST", "LOCATION", *reports),
            lambda each: (*_night_row(each), *(_text(each["report"]) for _ in reports)),
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
            yield NarrowTable(headings, told, right=("PRIORITY", "SHUTDOWNS", "PODS", *_CHANGED), wraps=wraps)
            if len(found) > ROWS_SHOWN_MAX:
                yield f"and {len(found) - ROWS_SHOWN_MAX} more, which -o json has"
    for each in document["gates"]:
        found = each["found"] if document["asked"] else "nothing was asked"
        holds = "holds" if each["holds"] else f"does not hold: {found}"
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

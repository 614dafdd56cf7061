"""What a new configuration would have done to all shutdowns of a fleet, added up; and the result as one page
without a script (``--html``).

A shutdown without a change is only counted: memory grows with the workloads and nodes that change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

from msgspec import Struct, field

from ebbtide import __version__
from ebbtide.actors.policy.grace_periods import effective_periods
from ebbtide.cli.common.guard import NOT_SO, worst
from ebbtide.cli.common.output import Heading, struct_cells
from ebbtide.cli.fleet.fleet_common import CODES, Engine, Pools, Problem, answers, planned_journals
from ebbtide.config import load_named
from ebbtide.events.record.format import rfc3339
from ebbtide.events.units import span_s
from ebbtide.replay.report.markup import (
    Markup,
    counted,
    escaped,
    grouped,
    join,
    page_head,
    section,
    table,
    tag,
)
from ebbtide.replay.report.page import filled, resource, whole_page

if TYPE_CHECKING:
    from ebbtide.fleet.fleet_verbs import Decided

#: By a gate's name.
GATES = {"lost": "lost", "perhaps-lost": "perhaps_lost", "not-asked": "not_asked_count"}


class Changes(Struct, kw_only=True, rename="camel"):
    """Pods with another outcome. ``expected``: the certain ones, and the chances of the others."""

    saved: Annotated[int, Heading("SAVED", right=True)] = 0
    perhaps_saved: Annotated[int, Heading("PERHAPS SAVED", right=True)] = 0
    lost: Annotated[int, Heading("LOST", right=True)] = 0
    perhaps_lost: Annotated[int, Heading("PERHAPS LOST", right=True)] = 0
    expected_saved: Annotated[float, Heading("EXPECTED SAVED", right=True)] = 0.0
    expected_lost: Annotated[float, Heading("EXPECTED LOST", right=True)] = 0.0

    def count(self, change: str, chance_percent: int) -> None:
        expected = "expected_saved" if change.endswith("saved") else "expected_lost"
        # Rounded: the sum must not depend on the order of reading.
        setattr(self, expected, round(getattr(self, expected) + chance_percent / 100, 2))
        name = change.replace("-", "_")
        setattr(self, name, getattr(self, name) + 1)


class PoolRisk(Changes, kw_only=True, rename="camel"):
    """``pool`` None: in no pool."""

    pool: Annotated[str | None, Heading("POOL")]
    shutdowns: Annotated[int, Heading("SHUTDOWNS", right=True)] = 0
    pods: Annotated[int, Heading("PODS", right=True)] = 0


class WorkloadRisk(Changes, kw_only=True, rename="camel"):
    workload: Annotated[str, Heading("WORKLOAD")]
    priority: Annotated[int | None, Heading("PRIORITY", right=True)]


class NodeRisk(Changes, kw_only=True, rename="camel"):
    """A node's name is unique in its cluster; None: no path names it."""

    cluster: Annotated[str | None, Heading("CLUSTER")]
    node: Annotated[str, Heading("NODE")]


class PodChange(Struct):
    pod: str
    change: str


class Night(Struct, kw_only=True, rename="camel"):
    """It would have lost a pod, or perhaps."""

    node: Annotated[str, Heading("NODE")]
    shutdown: Annotated[str, Heading("WORST SHUTDOWN")]
    started: Annotated[str, Heading("STARTED")]
    lost: Annotated[int, Heading("LOST", right=True)]
    perhaps_lost: Annotated[int, Heading("PERHAPS LOST", right=True)]
    journal_id: str
    location: Annotated[str, Heading("LOCATION")]
    pods: list[PodChange]

    @property
    def pods_text(self) -> str:
        shown = [f"{each.change.replace('-', ' ')}: {each.pod}" for each in self.pods[:PODS_MAX]]
        left = len(self.pods) - len(shown)
        return "; ".join(shown) + (f"; and {grouped(left)} more" if left else "")

    @property
    def order(self) -> tuple[Any, ...]:
        return (-self.lost, -self.perhaps_lost, self.started, self.node, self.shutdown)


class Gate(NamedTuple):
    name: str
    most: int


class GateVerdict(Struct):
    gate: Annotated[str, Heading("GATE")]
    found: Annotated[int, Heading("FOUND", right=True)]
    holds: Annotated[bool, Heading("HOLDS")]


class PeriodSeconds(Struct):
    priority: int
    seconds: int


RiskT = TypeVar("RiskT", PoolRisk, WorkloadRisk, NodeRisk)


class FleetWhatIf(Changes, kw_only=True, rename="camel", tag_field="kind", tag="FleetWhatIf"):
    """``asked``: shutdowns that were decided again; ``same`` of them without any change. ``pools``: None
    without ``--pools``.
    """

    version: int = 1
    changed: list[str]
    periods: list[PeriodSeconds]
    journals: int = 0
    shutdowns: int = 0
    asked: int = 0
    same: int = 0
    pods: int = 0
    pools: list[PoolRisk] | None = None
    workloads: list[WorkloadRisk] = field(default_factory=list)
    nodes: list[NodeRisk] = field(default_factory=list)
    nights: list[Night] = field(default_factory=list)
    not_asked_count: int = 0
    not_asked: list[Problem] = field(default_factory=list)
    gates: list[GateVerdict] = field(default_factory=list)


class _Sum:
    def __init__(self, found: FleetWhatIf, pools: Pools | None) -> None:
        self.found, self._pools = found, pools
        self.codes: set[int] = set()
        self._of_pools: dict[str | None, PoolRisk] = {}
        self._of_workloads: dict[tuple[str, int | None], WorkloadRisk] = {}
        self._of_nodes: dict[tuple[str, str], NodeRisk] = {}

    def add(self, answer: Decided) -> None:
        found = self.found
        self.codes.add(CODES[answer.state])
        if answer.error:
            # A torn tail may have no shutdown.
            found.not_asked_count += answer.state != "torn"
            found.not_asked.append(Problem.of(answer, answer.shutdown))
        if not answer.shutdown:
            found.journals += 1
            return
        found.shutdowns += 1
        if answer.error:
            return
        found.asked += 1
        found.same += answer.same
        found.pods += answer.pods
        sums: list[Changes] = [found]
        if self._pools is not None:
            pool = self._pools.pool(answer.node)
            of_pool = self._of_pools.setdefault(pool, PoolRisk(pool=pool))
            of_pool.shutdowns += 1
            of_pool.pods += answer.pods
            sums.append(of_pool)
        if answer.changed:
            cluster, node = answer.cluster, answer.node
            sums.append(
                self._of_nodes.setdefault((cluster, node), NodeRisk(cluster=cluster or None, node=node))
            )
        for pod in answer.changed:
            key = pod.workload, pod.priority
            of_workload = self._of_workloads.setdefault(key, WorkloadRisk(workload=key[0], priority=key[1]))
            for each in (*sums, of_workload):
                each.count(pod.change, pod.chance_percent)
        changes = [pod.change for pod in answer.changed]
        lost, perhaps_lost = changes.count("lost"), changes.count("perhaps-lost")
        if lost or perhaps_lost:
            night = Night(
                node=answer.node,
                shutdown=answer.shutdown,
                started=rfc3339(answer.started_wall_ns),
                lost=lost,
                perhaps_lost=perhaps_lost,
                journal_id=answer.journal_id,
                location=answer.location,
                pods=[PodChange(pod.pod, pod.change) for pod in answer.changed],
            )
            found.nights.append(night)

    def finish(self) -> None:
        self.found.pools = None if self._pools is None else _worst_first(self._of_pools)
        self.found.workloads = _worst_first(self._of_workloads)
        self.found.nodes = _worst_first(self._of_nodes)
        self.found.nights.sort(key=lambda each: each.order)


def _worst_first(found: dict[Any, RiskT]) -> list[RiskT]:
    """Then by name, in any order of reading."""

    def order(item: tuple[Any, RiskT]) -> tuple[Any, ...]:
        risk = item[1]
        return (-risk.lost, -risk.perhaps_lost, -risk.saved, -risk.perhaps_saved, repr(item[0]))

    return [risk for _, risk in sorted(found.items(), key=order)]


def decide_fleet(
    url: str, configs: Sequence[Path], gates: Iterable[Gate], pools: Pools | None, engine: Engine
) -> tuple[FleetWhatIf, int]:
    """The exit code: a gate's goes before the worst journal's, since a large fleet has damaged ones. Raises
    Refused.
    """
    settings = load_named(configs).settings
    refs = planned_journals(url, "what-if", engine)
    from ebbtide.fleet.fleet_verbs import ask_journals, what_if_verb

    found = FleetWhatIf(
        changed=[f"the configuration {', '.join(map(str, configs))}"],
        periods=[PeriodSeconds(each.priority, each.seconds) for each in effective_periods(settings)],
    )
    total = _Sum(found, pools)
    for part in answers(partial(ask_journals, what_if_verb(settings)), refs, engine):
        for answer in part:
            total.add(answer)
    total.finish()
    for gate in gates:
        count = getattr(found, GATES[gate.name])
        # If nothing was asked, a pod may be lost.
        holds = count <= gate.most and found.asked > 0
        found.gates.append(GateVerdict(f"{gate.name}={gate.most}", count, holds))
    return found, worst(total.codes) if all(each.holds for each in found.gates) else NOT_SO


#: A fleet may have a hundred thousand nodes, and no browser opens such a page.
LINES_MAX = 500
PODS_MAX = 6
#: As in risk.css, for paper.
PRINTED_MAX = 15


def risk_page(found: FleetWhatIf) -> str:
    same = "Nothing changes for any."
    no_pools = "No journal knows its node's pool: --pools FILE names them."
    no_gate = "No gate was set: --gate lost=0 makes the exit code 1 where a pod would be lost."
    all_asked = "Every shutdown of every journal was asked."
    no_night = "No shutdown would have lost a pod."
    sections = join(
        _section("gates", "Gates", found.gates, no_gate),
        _section("pools", "Node pools", found.pools or [], no_pools if found.pools is None else same),
        _section("workloads", "Workloads", found.workloads, same),
        _section("nodes", "Nodes", found.nodes, same),
        _section("nights", "Worst nights", found.nights, no_night),
        _section("not-asked", "Not asked", found.not_asked, all_asked),
    )
    footer = tag(
        "p",
        f"Made by Ebbtide {__version__}, which decided each shutdown of {counted(found.journals, 'journal')}"
        " again. What a record leaves open is “perhaps”. ",
        tag("code", "ebbtide replay what-if"),
        " explains a shutdown that is named here.",
    )
    style = resource("page.css") + resource("risk.css")
    return whole_page(
        headline(found), filled("risk.html", {"header": _header(found), "sections": sections}), footer, style
    )


def headline(found: FleetWhatIf) -> str:
    lost, saved = _interval(found.lost, found.perhaps_lost), _interval(found.saved, found.perhaps_saved)
    if not found.asked:
        return "No shutdown could be asked: the effect of this configuration is unknown."
    if found.lost or found.perhaps_lost:
        pods = "pod" if lost == "1" else "pods"
        return f"This configuration would have lost {lost} {pods}, and saved {saved}."
    if found.saved or found.perhaps_saved:
        return f"This configuration would have lost no pod, and saved {saved}."
    return "No pod would have ended otherwise under this configuration."


def _interval(certain: int, perhaps: int) -> str:
    if not perhaps:
        return grouped(certain) if certain else "none"
    return f"{grouped(certain)} to {grouped(certain + perhaps)}"


def _header(found: FleetWhatIf) -> Markup:
    failed = [gate for gate in found.gates if not gate.holds]
    bad, mixed = found.lost or failed, found.perhaps_lost or found.not_asked_count or not found.asked
    lede = ["No gate was set." if not found.gates else "Every gate holds."]
    if failed:
        lede = [
            f"Gates that do not hold: {', '.join(f'{each.gate} (found: {each.found})' for each in failed)}."
        ]
    if found.not_asked_count:
        unasked = counted(found.not_asked_count, "shutdown or journal", "shutdowns and journals")
        lede.append(f"{unasked} could not be asked.")
    periods = ", ".join(f"priority {each.priority}: {span_s(each.seconds)}" for each in found.periods)
    facts = [
        ("Changed", ", ".join(found.changed)),
        ("Periods", periods or "none"),
        ("Journals", grouped(found.journals)),
        ("Shutdowns", f"{grouped(found.asked)} of {grouped(found.shutdowns)} decided again"),
        ("Unchanged", grouped(found.same)),
        ("Pods", grouped(found.pods)),
    ]
    seal = "bad" if bad else "mixed" if mixed else "good"
    return page_head("Risk report of a fleet", seal, headline(found), " ".join(lede), facts)


def _section(name: str, title: str, rows: Sequence[Any], none: str) -> Markup:
    heading = Markup(f"{escaped(title)} {tag('small', grouped(len(rows)))}")
    if not rows:
        return section(name, heading, tag("p", none, class_="none"))
    shown = rows[:LINES_MAX]
    headings, cells = struct_cells(shown)
    names = [each.text.capitalize() for each in headings]
    if isinstance(shown[0], Night):
        names.append("Pods")
        cells = [[*row, night.pods_text] for row, night in zip(cells, shown, strict=True)]
    made = table(f"{title}, the worst first", tuple(names), [tuple(row) for row in cells])
    left = len(rows) - len(shown)
    more = tag("p", f"The worst {grouped(len(shown))} and {grouped(left)} more.", class_="help")
    paper = tag("p", f"Printed are the first {PRINTED_MAX}.", class_="paper")
    return section(name, heading, made, *[more] * bool(left), *[paper] * (len(shown) > PRINTED_MAX))

"""``ebbtide doctor``: what would keep the next shutdown from being graceful, each finding with its cure."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec
from msgspec import UNSET, UnsetType
from rich.table import Table
from rich.text import Text

from ebbtide.cli.common.guard import DONE, NOT_SO
from ebbtide.cli.common.output import STYLES, first_of_each, remark, show, show_json, table
from ebbtide.cli.common.shared_options import journal_option, node_options, output_option
from ebbtide.doctor.rules import Finding
from ebbtide.events.record.format import visible
from ebbtide.events.units import json_seconds, span, span_s
from ebbtide.node import LocalNode
from ebbtide.options import PROCESS, RunOptions

MILLISECOND = 1_000_000

EPILOG = """\b
Examples:
  sudo ebbtide doctor
  sudo ebbtide doctor --measure
  sudo ebbtide doctor --mode api --kubeconfig /etc/ebbtide/kubeconfig
  sudo ebbtide doctor -o json | jq '.findings[] | select(.level == "critical")'
"""


@click.command(epilog=EPILOG)
@click.option("--measure", is_flag=True, help="Time the calls of a shutdown; does the budget hold?")
@journal_option
@node_options
@output_option("table", "json")
def doctor(measure: bool, journal: Path, options: RunOptions, output: str) -> int:
    """Look for what would keep the next shutdown from being graceful, and say how to put it right.

    Only looks. --measure times syncs, logind, process starts and hook targets, and on a Kubernetes node the
    API server, the container runtime and the kubelet's unit; it ends nothing, runs no hook, and changes
    nothing at the API server (dry runs).

    Exit code 1: a finding stops a graceful shutdown, or the budget does not hold.
    """
    here = LocalNode(options._replace(journal=journal))
    found, findings = diagnose(here, measure=measure)
    if output == "json":
        show_json(found)
    else:
        print_findings(findings)
        if not isinstance(found.budget, UnsetType) and not isinstance(found.measurements, UnsetType):
            show_measured(found.budget, found.measurements)
        if found.node is not None:
            show(Text(visible(f"judged for mode {found.mode} of node {found.node}"), style="dim"))
    # On standard error, also beside JSON: whose configuration was judged decides what the findings are worth.
    if here.source:
        remark(f"judged {here.source}")
    return DONE if found.graceful else NOT_SO


class BudgetShown(msgspec.Struct, rename="camel"):
    """``slack_seconds`` is null when graceful shutdown is off."""

    holds: bool
    overhead_seconds: float
    slack_seconds: float | None


class MeasuredShown(msgspec.Struct, rename="camel"):
    what: str
    target: str
    samples: int
    median_ms: float
    worst_ms: float
    limit_ms: float
    verdict: str
    error: str | None


class Diagnosis(msgspec.Struct, rename="camel", tag_field="kind", tag="Diagnosis", kw_only=True):
    """``graceful`` false: a critical finding stops a graceful shutdown."""

    version: int = 1
    graceful: bool
    findings: list[Finding]
    mode: str
    node: str | None
    budget: BudgetShown | UnsetType = UNSET
    measurements: list[MeasuredShown] | UnsetType = UNSET


def diagnose(here: LocalNode, *, measure: bool) -> tuple[Diagnosis, list[Finding]]:
    # Late: half of a short command's time is imports.
    from ebbtide.doctor.gather import gather
    from ebbtide.doctor.rules import examine, judge_budget

    snapshot = gather(here, measure=measure)
    findings, node = examine(snapshot), snapshot.node
    found = Diagnosis(
        # Warnings alone do not fail it: a probe that is red on every cluster is not read for long.
        graceful=not any(finding.level == "critical" for finding in findings),
        findings=findings,
        mode=PROCESS if node is None else node.mode,
        node=None if node is None else node.name,
    )
    if measure:
        overhead_ns, slack_ns = budget = judge_budget(snapshot)
        found.budget = BudgetShown(budget.holds, overhead_ns / 1e9, json_seconds(slack_ns))
        found.measurements = [
            MeasuredShown(
                each.what,
                each.target,
                len(each.samples_ns),
                each.median_ns / MILLISECOND,
                each.worst_ns / MILLISECOND,
                each.limit_ns / MILLISECOND,
                each.verdict,
                each.error or None,
            )
            for each in snapshot.measured
        ]
    return found, findings


def show_measured(budget: BudgetShown, measured: list[MeasuredShown]) -> None:
    rows = []
    for each in measured:
        times = (round(ms * MILLISECOND) for ms in (each.median_ms, each.worst_ms, each.limit_ms))
        rows.append((each.what, each.target, *map(span, times), each.verdict))
    headings = ("MEASURED", "TARGET", "MEDIAN", "WORST", "LIMIT", "VERDICT")
    show(table(headings, rows, right=("MEDIAN", "WORST", "LIMIT")))
    verdict = "holds" if budget.holds else "does not hold"
    room = "" if budget.slack_seconds is None else f" of {span_s(budget.slack_seconds)} granted beside them"
    text = f"the budget {verdict}: beside the waves a shutdown needs {span_s(budget.overhead_seconds)}{room}"
    show(Text(text, style="green" if budget.holds else "red"))


def print_findings(
    findings: list[Finding], none: str = "ok: nothing stands in the way of a graceful shutdown"
) -> None:
    """Each finding with its cure below it, the gravest first; ``none``: the text without findings."""
    if not findings:
        show(Text(none, style="green"))
        return
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column()
    # Two columns, the cure below its finding: in one line with it, a narrow terminal would mix both.
    for each, alike in first_of_each(findings, lambda each: each.code):
        level = Text(each.level, style=STYLES.get(each.level, ""))
        grid.add_row(level, Text.assemble(f"{visible(each.message)} ", (f"[{each.code}]", "dim")))
        grid.add_row("", Text.assemble(("cure: ", "bold"), visible(each.cure)))
        if alike:
            grid.add_row("", Text(f"and {alike} more [{each.code}]: see them all with -o json", style="dim"))
    show(grid)

"""``ebbtide doctor``: what would keep the next shutdown from being graceful, each finding with its cure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from ebbtide.cli.common.guard import DONE, NOT_SO
from ebbtide.cli.common.output import STYLES, first_of_each, remark, show, show_json, table
from ebbtide.cli.common.shared_options import OF_NODE, output_option, run_options
from ebbtide.doctor.rules import Budget, Finding, Measured, Snapshot, examine, judge_budget
from ebbtide.events.base import NS_PER_MS
from ebbtide.events.record.format import document, visible
from ebbtide.events.units import json_seconds, span
from ebbtide.node import LocalNode
from ebbtide.options import PROCESS, RunOptions

EPILOG = """\b
Examples:
  sudo ebbtide doctor
  sudo ebbtide doctor --measure
  sudo ebbtide doctor --mode api --kubeconfig /etc/ebbtide/kubeconfig
  sudo ebbtide doctor -o json | jq '.findings[] | select(.level == "critical")'
"""


@click.command(epilog=EPILOG)
@click.option("--measure", is_flag=True, help="Time the calls of a shutdown; does the budget hold?")
@run_options("journal", *OF_NODE)
@output_option("table", "json")
def doctor(measure: bool, options: RunOptions, output: str) -> int:
    """Find what would make the next shutdown less graceful, each finding with its cure.

    Read-only. --measure times syncs, logind, process starts and hook targets, and on a Kubernetes node the
    API server, the container runtime and the kubelet's unit; it ends no pod, runs no hook, and its writes
    to the API server are dry runs.

    Exit code 1: a finding stops a graceful shutdown, or the budget does not hold.
    """
    here = LocalNode(options)
    # Late: half of a short command's time is imports.
    from ebbtide.doctor.gather import gather

    snapshot = gather(here, measure=measure)
    findings, node = examine(snapshot), snapshot.node
    if output == "json":
        show_json(diagnosis(snapshot, findings, measure=measure))
    else:
        print_findings(findings)
        if measure:
            show_measured(judge_budget(snapshot), snapshot.measured)
        if node is not None:
            show(Text(visible(f"judged for mode {node.mode} of node {node.name}"), style="dim"))
    # Also beside JSON: the findings depend on the judged configuration.
    if here.source:
        remark(f"judged {here.source}")
    return DONE if is_graceful(findings) else NOT_SO


def diagnosis(snapshot: Snapshot, findings: list[Finding], *, measure: bool) -> dict[str, Any]:
    """``slackSeconds`` is null when graceful shutdown is off."""
    node, more = snapshot.node, dict[str, Any]()
    if measure:
        overhead_ns, slack_ns = budget = judge_budget(snapshot)
        seconds = {"overheadSeconds": overhead_ns / 1e9, "slackSeconds": json_seconds(slack_ns)}
        more["budget"] = {"holds": budget.holds} | seconds
        more["measurements"] = [
            {
                "what": each.what,
                "target": each.target,
                "samples": len(each.samples_ns),
                "medianMs": each.median_ns / NS_PER_MS,
                "worstMs": each.worst_ns / NS_PER_MS,
                "limitMs": each.limit_ns / NS_PER_MS,
                "verdict": each.verdict,
                "error": each.error or None,
            }
            for each in snapshot.measured
        ]
    return document(
        "Diagnosis",
        1,
        graceful=is_graceful(findings),
        findings=findings,
        mode=PROCESS if node is None else node.mode,
        node=None if node is None else node.name,
        **more,
    )


def is_graceful(findings: list[Finding]) -> bool:
    """Warnings alone do not fail it: people ignore a probe that is red on every cluster."""
    return not any(finding.level == "critical" for finding in findings)


def show_measured(budget: Budget, measured: Sequence[Measured]) -> None:
    rows = []
    for each in measured:
        times = map(span, (each.median_ns, each.worst_ns, each.limit_ns))
        rows.append((each.what, each.target, *times, each.verdict))
    headings = ("MEASURED", "TARGET", "MEDIAN", "WORST", "LIMIT", "VERDICT")
    show(table(headings, rows, right=("MEDIAN", "WORST", "LIMIT")))
    verdict = "holds" if budget.holds else "does not hold"
    room = "" if budget.slack_ns is None else f" of {span(budget.slack_ns)} granted beside them"
    text = f"the budget {verdict}: beside the waves a shutdown needs {span(budget.overhead_ns)}{room}"
    show(Text(text, style="green" if budget.holds else "red"))


def print_findings(
    findings: list[Finding], none: str = "ok: nothing stands in the way of a graceful shutdown"
) -> None:
    """The gravest first; ``none``: the text without findings."""
    if not findings:
        show(Text(none, style="green"))
        return
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column()
    # The cure below its finding: on one line, a narrow terminal would mix both.
    for each, alike in first_of_each(findings, lambda each: each.code):
        level = Text(each.level, style=STYLES.get(each.level, ""))
        grid.add_row(level, Text.assemble(f"{visible(each.message)} ", (f"[{each.code}]", "dim")))
        grid.add_row("", Text.assemble(("cure: ", "bold"), visible(each.cure)))
        if alike:
            grid.add_row("", Text(f"and {alike} more [{each.code}]: see them all with -o json", style="dim"))
    show(grid)

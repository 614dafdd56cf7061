"""``ebbtide doctor``: what would keep the next shutdown from being graceful, each finding with its cure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ebbtide.cli.common.shared_options import (
    config_option,
    journal_option,
    node_options,
    output_option,
    run_options,
    runtime_option,
)
from ebbtide.options import PROCESS

if TYPE_CHECKING:
    from ebbtide.doctor.snapshot import Finding, Snapshot

DOCTOR_VERSION = 1
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
@config_option
@journal_option
@runtime_option
@node_options
@output_option("table", "json")
def doctor(
    measure: bool,
    configs: tuple[Path, ...],
    journal: Path,
    runtime: Path,
    mode: str | None,
    cri: Path | None,
    kubeconfig: str | None,
    node_name: str | None,
    output: str,
) -> int:
    """Look for what would keep the next shutdown from being graceful, and say how to put it right.

    Only looks. --measure times syncs, logind, process starts and hook targets, and on a Kubernetes node the
    API server, the container runtime and the kubelet's unit; it ends nothing, runs no hook, and changes
    nothing at the API server (dry runs).

    Exit code 1: a finding stops a graceful shutdown, or the budget does not hold.
    """
    from rich.text import Text

    from ebbtide.cli.common.guard import DONE, NOT_SO
    from ebbtide.cli.common.output import remark, show, show_json
    from ebbtide.doctor.gather import gather
    from ebbtide.doctor.rules import examine
    from ebbtide.events.record.format import visible
    from ebbtide.node import LocalNode

    options = run_options(
        mode,
        cri=cri,
        kubeconfig=kubeconfig,
        node_name=node_name,
        config=configs,
        journal=journal,
        runtime=runtime,
    )
    here = LocalNode(options)
    snapshot = gather(here, measure=measure)
    findings, node = examine(snapshot), snapshot.node
    # Warnings alone do not fail it: a probe that is red on every cluster is soon read by nobody.
    healthy = not any(finding.level == "critical" for finding in findings)
    if output == "json":
        told = document(findings, healthy) | {"mode": PROCESS if node is None else node.mode}
        show_json(told | (measured_document(snapshot) if measure else {}))
    else:
        print_findings(findings)
        if measure:
            print_measured(snapshot)
        if node is not None:
            show(Text(visible(f"judged for mode {node.mode} of node {node.name}"), style="dim"))
    # On standard error, also beside JSON: whose configuration was judged decides what the findings are worth.
    if here.source:
        remark(f"judged {here.source}")
    return DONE if healthy else NOT_SO


def document(findings: list[Finding], healthy: bool) -> dict[str, Any]:
    """``kind: Diagnosis``; ``graceful`` false: a critical finding stops a graceful shutdown."""
    return {
        "kind": "Diagnosis",
        "version": DOCTOR_VERSION,
        "graceful": healthy,
        "findings": [finding.document for finding in findings],
    }


def measured_document(snapshot: Snapshot) -> dict[str, Any]:
    """Further keys; ``slackSeconds`` is null when graceful shutdown is off."""
    from ebbtide.doctor.rules import judge_budget
    from ebbtide.events.units import json_seconds

    budget = judge_budget(snapshot)
    return {
        "budget": {
            "holds": budget.holds,
            "overheadSeconds": json_seconds(budget.overhead_ns),
            "slackSeconds": json_seconds(budget.slack_ns),
        },
        "measurements": [
            {
                "what": each.what,
                "target": each.target,
                "samples": len(each.samples_ns),
                "medianMs": each.median_ns / MILLISECOND,
                "worstMs": each.worst_ns / MILLISECOND,
                "limitMs": each.limit_ns / MILLISECOND,
                "verdict": each.verdict,
                "error": each.error or None,
            }
            for each in snapshot.measured
        ],
    }


def print_measured(snapshot: Snapshot) -> None:
    from rich.text import Text

    from ebbtide.cli.common.output import show, table
    from ebbtide.doctor.rules import judge_budget
    from ebbtide.events.units import span

    rows = [
        (each.what, each.target, *map(span, (each.median_ns, each.worst_ns, each.limit_ns)), each.verdict)
        for each in snapshot.measured
    ]
    headings = ("MEASURED", "TARGET", "MEDIAN", "WORST", "LIMIT", "VERDICT")
    show(table(headings, rows, right=("MEDIAN", "WORST", "LIMIT")))
    budget = judge_budget(snapshot)
    verdict = "holds" if budget.holds else "does not hold"
    room = "" if budget.slack_ns is None else f" of {span(budget.slack_ns)} granted beside them"
    text = f"the budget {verdict}: beside the waves a shutdown needs {span(budget.overhead_ns)}{room}"
    show(Text(text, style="green" if budget.holds else "red"))


def print_findings(
    findings: list[Finding], none: str = "ok: nothing stands in the way of a graceful shutdown"
) -> None:
    """Each finding with its cure below it, the gravest first; ``none``: what is said where there is none."""
    from rich.table import Table
    from rich.text import Text

    from ebbtide.cli.common.output import STYLES, first_of_each, show
    from ebbtide.events.record.format import visible

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

"""``ebbtide drill``: measure what a shutdown would need on the live node; does the budget hold?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ebbtide.cli.node_options import node_options, options_of, refuse_unfit
from ebbtide.cli.options import DURATION, config_option, journal_option, output_option, runtime_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actors.policy.plan import Plan
    from ebbtide.drill.budget import Budget
    from ebbtide.drill.measure import Measured

DRILL_VERSION = 1
MILLISECOND = 1_000_000

EPILOG = """\b
Examples:
  sudo ebbtide drill
  sudo ebbtide drill --mode cri --cri /run/containerd/containerd.sock
  sudo ebbtide drill -o json | jq '.measurements[] | select(.good | not)'
"""


@click.command(epilog=EPILOG)
@config_option
@journal_option
@runtime_option
@click.option("--grant", type=DURATION, metavar="DURATION", help="logind's limit; read from it if not given.")
@node_options
@output_option("table", "json")
def drill(
    configs: tuple[Path, ...],
    journal: Path,
    runtime: Path,
    grant: int | None,
    mode: str | None,
    cri: Path | None,
    kubeconfig: str | None,
    node_name: str | None,
    output: str,
) -> int:
    """Measure syncs, logind, process starts and hook targets, and on a Kubernetes node the API server, the
    container runtime and the kubelet's unit. Nothing is ended, no hook is run; what would change something
    at the API server is a dry run.

    Exit code 1: the budget does not hold, or something that a shutdown needs does not answer.
    """
    from ebbtide.cli.guard import DONE, NOT_SO
    from ebbtide.cli.output import remark, show_json
    from ebbtide.cli.sources import daemon_mode, grant_to_come, read_config
    from ebbtide.doctor.pods import look_at_pods
    from ebbtide.drill.budget import judge
    from ebbtide.drill.measure import measure
    from ebbtide.plan_view import build_plan

    loaded = read_config(configs)
    options = options_of(
        mode,
        cri=cri,
        kubeconfig=kubeconfig,
        node_name=node_name,
        config=configs,
        journal=journal,
        runtime=runtime,
    )
    pods = look_at_pods(options, loaded.options.node, daemon_mode(runtime))
    refuse_unfit(pods.seen, looked=pods.places is not None)
    settings = loaded.settings
    plan = build_plan(settings, pods.manifests, grant_to_come(grant, settings.raise_grant, runtime))
    measured = []
    for each in measure(journal, pods):
        remark(f"measured: {each.what} {each.target}")
        measured.append(each)
    budget = judge(plan, measured)
    if output == "json":
        show_json(document(plan, measured, budget) | {"mode": pods.mode})
    else:
        _tell(measured, budget)
    return DONE if budget.holds else NOT_SO


def document(plan: Plan, measured: Sequence[Measured], budget: Budget) -> dict[str, Any]:
    """``kind: Drill``; times in milliseconds, ``slackSeconds`` null when graceful shutdown is off."""
    return {
        "kind": "Drill",
        "version": DRILL_VERSION,
        "holds": budget.holds,
        "budgetSeconds": plan.budget_seconds,
        "overheadSeconds": budget.overhead_ns / 1000 / MILLISECOND,
        "slackSeconds": None if budget.slack_ns is None else budget.slack_ns / 1000 / MILLISECOND,
        "missing": list(budget.missing),
        "measurements": [
            {
                "what": each.what,
                "target": each.target,
                "samples": len(each.samples_ns),
                "medianMs": each.median_ns / MILLISECOND,
                "worstMs": each.worst_ns / MILLISECOND,
                "limitMs": each.limit_ns / MILLISECOND,
                "good": each.good,
                "error": each.error or None,
                "needed": each.needed,
            }
            for each in measured
        ],
    }


def _tell(measured: Sequence[Measured], budget: Budget) -> None:
    from rich.text import Text

    from ebbtide.cli.output import show, table
    from ebbtide.text import visible

    headings = ("MEASURED", "TARGET", "MEDIAN", "WORST", "LIMIT", "VERDICT")
    show(table(headings, map(_row, measured), right=("MEDIAN", "WORST", "LIMIT")))
    for each in measured:
        if each.error and not each.needed:
            show(Text(visible(f"not needed: {each.what} {each.target}: {each.error}"), style="dim"))
    for line in budget.missing:
        show(Text(visible(line), style="yellow"))
    verdict = "holds" if budget.holds else "does not hold"
    room = "" if budget.slack_ns is None else f" of {_ms(budget.slack_ns)} beside the waves"
    style = "green" if budget.holds else "red"
    show(Text(f"the budget {verdict}: a shutdown would need {_ms(budget.overhead_ns)}{room}", style=style))


def _row(each: Measured) -> tuple[str, ...]:
    if each.error:
        return each.what, each.target, "-", "-", _ms(each.limit_ns), "failed"
    verdict = "ok" if each.good else "slow"
    return each.what, each.target, _ms(each.median_ns), _ms(each.worst_ns), _ms(each.limit_ns), verdict


def _ms(duration_ns: int) -> str:
    return f"{duration_ns / MILLISECOND:.2f} ms"

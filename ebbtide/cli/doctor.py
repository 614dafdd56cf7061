"""``ebbtide doctor``: what would keep the next shutdown from being graceful, each finding with its cure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ebbtide.cli.options import config_option, journal_option, output_option, runtime_option, socket_option

if TYPE_CHECKING:
    from ebbtide.doctor.sight import Finding

DOCTOR_VERSION = 1

EPILOG = """\b
Examples:
  sudo ebbtide doctor
  sudo ebbtide doctor -o json | jq '.findings[] | select(.level == "critical")'
"""


@click.command(epilog=EPILOG)
@config_option
@journal_option
@runtime_option
@socket_option
@output_option("table", "json")
def doctor(configs: tuple[Path, ...], journal: Path, runtime: Path, socket: Path | None, output: str) -> int:
    """Look for what would keep the next shutdown from being graceful, and say how to put it right.

    Only looks. Exit code 1: a finding stops a graceful shutdown.
    """
    from ebbtide.cli.guard import DONE, NOT_SO
    from ebbtide.cli.output import show_json
    from ebbtide.doctor.gather import gather
    from ebbtide.doctor.rules import examine

    findings = examine(gather(configs, journal, runtime, socket or runtime / "ebbtide.sock"))
    healthy = not any(finding.level == "critical" for finding in findings)
    if output == "json":
        show_json(document(findings, healthy))
    else:
        _tell(findings)
    return DONE if healthy else NOT_SO


def document(findings: list[Finding], healthy: bool) -> dict[str, Any]:
    """``kind: Diagnosis``; ``graceful`` false: a critical finding stops a graceful shutdown."""
    return {
        "kind": "Diagnosis",
        "version": DOCTOR_VERSION,
        "graceful": healthy,
        "findings": [finding._asdict() for finding in findings],
    }


def _tell(findings: list[Finding]) -> None:
    from rich.table import Table
    from rich.text import Text

    from ebbtide.cli.output import STYLES, show
    from ebbtide.text import visible

    if not findings:
        show(Text("ok: nothing stands in the way of a graceful shutdown", style="green"))
        return
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column()
    for each in findings:
        level = Text(each.level, style=STYLES.get(each.level, ""))
        grid.add_row(level, Text.assemble(f"{visible(each.message)} ", (f"[{each.code}]", "dim")))
        grid.add_row("", Text.assemble(("cure: ", "bold"), visible(each.cure)))
    show(grid)

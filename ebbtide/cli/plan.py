"""``ebbtide plan``: waves, each pod's grace, and a reason for every cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from ebbtide.cli.options import DURATION, config_option, output_option, runtime_option

EPILOG = """\b
Examples:
  ebbtide plan --config config.yaml --pods pods/
  kubectl get pods -A -o yaml | ebbtide plan --pods -
  ebbtide plan --pods pods.yaml --grant 15s -o json
"""


@click.command(epilog=EPILOG)
@config_option
@click.option(
    "--pods",
    multiple=True,
    metavar="FILE|-",
    help="Pods: a Pod, a List, several documents, YAML or JSON, a folder; repeatable.  "
    "[default: those of the running daemon]",
)
@click.option("--grant", type=DURATION, metavar="DURATION", help="logind's limit; read from it if not given.")
@runtime_option
@output_option("table", "json", "yaml")
def plan(
    configs: tuple[Path, ...], pods: tuple[str, ...], grant: int | None, runtime: Path, output: str
) -> None:
    """Show what a shutdown now would do: waves, each pod's grace, what is cut short, warnings."""
    import msgspec

    from ebbtide.cli import output as out
    from ebbtide.cli.sources import grant_or_logind, read_config, read_pods
    from ebbtide.plan_view import build_plan, plan_json, plan_tables

    settings = read_config(configs).settings
    manifests = read_pods(pods, runtime, settings)
    known_ns = grant_or_logind(grant)
    made = build_plan(settings, manifests, known_ns)
    if made.enabled:
        missing = _missing(pods or manifests, runtime, known_ns)
        made = msgspec.structs.replace(made, warnings=(*made.warnings, *missing))
    listed = [manifest.pod for manifest in manifests]
    if output == "table":
        out.show(plan_tables(made, listed))
    else:
        out.show_document(plan_json(made, listed), output)


def _missing(found: Sequence[object], runtime: Path, grant_ns: int | None) -> Iterator[tuple[str, str]]:
    """What the plan could not know, so that an empty one is not taken for good news."""
    from ebbtide.cli.sources import daemon_answers

    if not found and not daemon_answers(runtime):
        yield (
            "no-pods",
            f"no daemon was found in {runtime}: no pod is planned; start it, or name pods with --pods",
        )
    if grant_ns is None:
        yield (
            "grant-unknown",
            "logind does not answer: the plan takes all for granted; say with --grant what is",
        )

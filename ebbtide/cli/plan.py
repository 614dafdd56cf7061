"""``ebbtide plan``: waves, each pod's grace, and a reason for every cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ebbtide.cli.options import DURATION, config_option, output_option, runtime_option
from ebbtide.cli.pooling import pooled_option

if TYPE_CHECKING:
    from ebbtide.cli.replaying.advise_fit import Past
    from events.model import Settings

EPILOG = """\b
Examples:
  ebbtide plan --config config.yaml --pods pods/
  kubectl get pods -A -o yaml | ebbtide plan --pods -
  ebbtide plan --pods pods.yaml --grant 15s -o json
  ebbtide plan --pods new.yaml --history ./fleet || echo "does not fit"


With --history the plan is held against what the workloads' recorded stops took: exit code 1 where a pod's
hooks and grace cannot fit its wave. Without a configuration the waves and the grant are then those of the
fleet: of the newest shutdown on record, and the smallest grant that a node had last.
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
@pooled_option("--history", "history")
@runtime_option
@output_option("table", "json", "yaml")
def plan(
    configs: tuple[Path, ...],
    pods: tuple[str, ...],
    grant: int | None,
    history: tuple[Path, ...],
    runtime: Path,
    output: str,
) -> int:
    """Show what a shutdown now would do: waves, each pod's grace, what is cut short, warnings."""
    import msgspec

    from ebbtide.cli import output as out
    from ebbtide.cli.sources import read_pods
    from ebbtide.plan_view import build_plan, plan_json, plan_tables

    past = _past(history)
    settings, known_ns = _given(configs, grant, past)
    manifests = read_pods(pods, runtime, settings)
    made = build_plan(settings, manifests, known_ns)
    if made.enabled:
        missing = _missing(pods or manifests, runtime, known_ns)
        made = msgspec.structs.replace(made, warnings=(*made.warnings, *missing))
    listed = [manifest.pod for manifest in manifests]
    document, shown, code = plan_json(made, listed), [plan_tables(made, listed)], 0
    if past is not None:
        from ebbtide.cli.replaying import advise_fit

        found = advise_fit.judge(made, listed, past, settings)
        document["history"] = advise_fit.fit_json(found, past)
        shown.append(advise_fit.fit_lines(found, past))
        code = advise_fit.exit_code(found, past)
    if output == "table":
        for each in shown:
            out.show(each)
    else:
        out.show_document(document, output)
    return code


def _past(history: tuple[Path, ...]) -> Past | None:
    if not history:
        return None
    from ebbtide.cli.replaying.advise_fit import read_past

    return read_past(history)


def _given(configs: tuple[Path, ...], grant: int | None, past: Past | None) -> tuple[Settings, int | None]:
    """Settings and grant: as named, else the fleet's, else this node's."""
    from ebbtide.cli.sources import grant_or_logind, read_config
    from ebbtide.config import default_paths

    if past is None:
        return read_config(configs).settings, grant_or_logind(grant)
    known = None if configs or default_paths() else past.settings()
    if known is None:
        return read_config(configs).settings, grant
    return known, past.grant_ns if grant is None else grant


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

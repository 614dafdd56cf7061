"""``ebbtide plan``: waves, each pod's grace, and a reason for every cut."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ebbtide.cli.node_options import node_options, options_of, refuse_unfit
from ebbtide.cli.options import DURATION, config_option, output_option, runtime_option
from ebbtide.cli.pooling import pooled_option

if TYPE_CHECKING:
    from ebbtide.cli.replaying.advise_fit import Past
    from ebbtide.doctor.seen import NodeSeen
    from ebbtide.manifests import Manifest
    from ebbtide.options import RunOptions
    from events.model import Settings

EPILOG = """\b
Examples:
  ebbtide plan --config config.yaml --pods pods/
  kubectl get pods -A -o yaml | ebbtide plan --pods -
  sudo ebbtide plan --mode auto                           # on a Kubernetes node
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
@node_options
@output_option("table", "json", "yaml")
def plan(
    configs: tuple[Path, ...],
    pods: tuple[str, ...],
    grant: int | None,
    history: tuple[Path, ...],
    runtime: Path,
    mode: str | None,
    cri: Path | None,
    kubeconfig: str | None,
    node_name: str | None,
    output: str,
) -> int:
    """Show what a shutdown now would do: waves, each pod's grace, what is cut short, warnings.

    Without --pods on a Kubernetes node: the pods that its runtime has, with what the API server knows of
    them, and who would end them.
    """
    import msgspec

    from ebbtide.cli import output as out
    from ebbtide.plan_view import build_plan, plan_json, plan_tables

    past = _past(history)
    settings, known_ns = _given(configs, grant, past)
    options = options_of(
        mode, cri=cri, kubeconfig=kubeconfig, node_name=node_name, config=configs, runtime=runtime
    )
    manifests, seen = _pods(pods, options, settings)
    made = build_plan(settings, manifests, known_ns)
    if made.enabled:
        missing = (*_missing_here(seen), *_missing(pods or manifests or seen, runtime, known_ns))
        made = msgspec.structs.replace(made, warnings=(*made.warnings, *missing))
    listed = [manifest.pod for manifest in manifests]
    document, shown, code = plan_json(made, listed), [plan_tables(made, listed)], 0
    if seen is not None:
        from ebbtide.plan_means import describe

        more, lines = describe(seen, listed, settings)
        document, shown = document | more, [*shown, *lines]
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


def _pods(
    named: tuple[str, ...], options: RunOptions, settings: Settings
) -> tuple[list[Manifest], NodeSeen | None]:
    """The named ones, or those that run here; of a node also what was seen of it. Raises Refused."""
    from ebbtide.cli.guard import Refused
    from ebbtide.cli.sources import daemon_mode, read_config, read_pods

    if named:
        if any((options.mode, options.cri, options.kubeconfig, options.node_name)):
            raise Refused("--pods are planned as they stand: leave out the options of a node, or --pods")
        return read_pods(named, settings), None
    from ebbtide.doctor.pods import look_at_pods

    section = read_config(options.config).options.node
    found = look_at_pods(options, section, daemon_mode(options.runtime))
    refuse_unfit(found.seen, looked=found.places is not None)
    return list(found.manifests), found.seen


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


def _missing_here(seen: NodeSeen | None) -> Iterator[tuple[str, str]]:
    """What of a Kubernetes node could not be asked."""
    if seen is None:
        return
    if seen.missing or seen.runtime.problem:
        why = f"packages are missing: {', '.join(seen.missing)}" if seen.missing else seen.runtime.problem
        yield "no-pods", f"the container runtime's pods are not known: {why}; see 'ebbtide doctor'"
    elif not seen.api.answers:
        yield (
            "priorities-unknown",
            "the API server does not answer: priorities are those of the daemon's cache and of manifests",
        )


def _missing(found: object, runtime: Path, grant_ns: int | None) -> Iterator[tuple[str, str]]:
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

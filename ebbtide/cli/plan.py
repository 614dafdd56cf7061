"""``ebbtide plan``: waves, each pod's grace, and a reason for every cut."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from ebbtide.cli.common.options import (
    DURATION,
    config_option,
    node_options,
    output_option,
    refuse_unfit,
    run_options,
    runtime_option,
)
from ebbtide.cli.common.pooling import pooled_option

if TYPE_CHECKING:
    from ebbtide.doctor.snapshot import NodeSnapshot


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
    from ebbtide.cli.common import output as out
    from ebbtide.cli.common.guard import Refused
    from ebbtide.config import default_paths, load_named
    from ebbtide.manifests import load_manifests
    from ebbtide.node import LocalNode
    from ebbtide.plan import build_plan, describe_termination, plan_json, plan_tables

    options = run_options(
        mode, cri=cri, kubeconfig=kubeconfig, node_name=node_name, config=configs, runtime=runtime
    )
    if pods and any((mode, cri, kubeconfig, node_name)):
        raise Refused("--pods are planned as they stand: leave out the options of a node, or --pods")
    node, past = LocalNode(options), None
    if history:
        from ebbtide.cli.replay.advise import (
            fit_exit_code,
            fit_json,
            fit_lines,
            judge_fit,
            read_fleet_history,
        )

        past = read_fleet_history(history)
    # Whose settings and grant: those that are named, else with a history the fleet's, else this node's.
    if past is None:
        settings, grant_ns, source = node.configuration.settings, node.grant_ns(grant), node.source
    else:
        known = None if configs or default_paths() else past.settings()
        settings, source = (load_named(configs).settings if known is None else known), ""
        grant_ns = past.grant_ns if known is not None and grant is None else grant
    if source:
        out.remark(f"planned {source}")
    seen = None
    if pods:
        manifests = load_manifests(pods, allow_zero_sleep=settings.gate("PodLifecycleSleepActionAllowZero"))
    else:
        manifests, seen = list(node.pods.manifests), node.pods.seen
        refuse_unfit(seen, looked=node.pods.parts is not None)
    made = build_plan(settings, manifests, grant_ns)
    if made.enabled:
        daemon_found = bool(pods or manifests or seen) or node.status.document is not None
        missing = _not_known(seen, runtime, daemon_found, grant_ns)
        made = msgspec.structs.replace(made, warnings=(*made.warnings, *missing))
    listed = [manifest.pod for manifest in manifests]
    document, shown, code = plan_json(made, listed), [plan_tables(made, listed)], 0
    if seen is not None:
        bus, _ = node.logind
        more, lines = describe_termination(seen, listed, settings, bus is not None and bus.kubelet_lock)
        document, shown = document | more, [*shown, *lines]
    if past is not None:
        found = judge_fit(made, listed, past, settings)
        document["history"] = fit_json(found, past)
        shown.append(fit_lines(found, past))
        code = fit_exit_code(found, past)
    if output == "table":
        for each in shown:
            out.show(each)
    else:
        out.show_document(document, output)
    return code


def _not_known(
    seen: NodeSnapshot | None, runtime: Path, daemon_found: bool, grant_ns: int | None
) -> Iterator[tuple[str, str]]:
    """What the plan could not know, as warnings, so that an empty one is not taken for good news."""
    if seen is not None and (seen.missing or seen.runtime.problem):
        why = f"packages are missing: {', '.join(seen.missing)}" if seen.missing else seen.runtime.problem
        yield "no-pods", f"the container runtime's pods are not known: {why}; see 'ebbtide doctor'"
    elif seen is not None and not seen.api.answers:
        yield (
            "priorities-unknown",
            "the API server does not answer: priorities are those of the daemon's cache and of manifests",
        )
    if not daemon_found:
        yield (
            "no-pods",
            f"no daemon was found in {runtime}: no pod is planned; start it, or name pods with --pods",
        )
    if grant_ns is None:
        yield (
            "grant-unknown",
            "logind does not answer: the plan assumes that everything is granted; name a limit with --grant",
        )

"""``ebbtide plan``: waves, each pod's grace, and a reason for every cut."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from ebbtide.cli.common.shared_options import (
    config_option,
    grant_option,
    node_options,
    output_option,
    pods_option,
    pooled_option,
    refuse_unfit,
    run_options,
    runtime_option,
)

EPILOG = """\b
Examples:
  ebbtide plan --config config.yaml --pods pods/
  kubectl get pods -A -o yaml | ebbtide plan --pods -
  sudo ebbtide plan --mode auto                           # on a Kubernetes node
  ebbtide plan --pods pods.yaml --grant 15s -o json
  ebbtide plan --pods new.yaml --history ./fleet || echo "does not fit"

With --history the plan is held against what the workloads' recorded stops took: exit code 1 where a pod's
hooks and grace cannot fit its wave. Without a configuration the waves and the grant are then those of the
fleet: of the newest shutdown on record, and the smallest grant that a node had last.
"""


@click.command(epilog=EPILOG)
@config_option
@pods_option("  [default: those of the running daemon]")
@grant_option
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
    """Show a shutdown now: waves, each pod's grace, cuts and warnings.

    Without --pods on a Kubernetes node: the runtime's pods with the API server's data, and who would end
    them.
    """
    from ebbtide.cli.common import output as out
    from ebbtide.cli.common.guard import Refused
    from ebbtide.config import default_paths, load_named
    from ebbtide.manifests import load_manifests
    from ebbtide.node import LocalNode
    from ebbtide.plan_view import build_plan, describe_termination, plan_json, plan_tables

    options = run_options(
        mode, cri=cri, kubeconfig=kubeconfig, node_name=node_name, config=configs, runtime=runtime
    )
    # Pods from files have no node: data from this node would belong to other pods.
    if pods and any((mode, cri, kubeconfig, node_name)):
        raise Refused("--pods are planned as they stand: leave out the options of a node, or --pods")
    # Reads each part of this node only on use: a plan for files does not read its pods.
    node, past = LocalNode(options), None
    if history:
        from ebbtide.cli.fleet_history import (
            fit_exit_code,
            fit_json,
            fit_lines,
            judge_fit,
            read_fleet_history,
        )

        past = read_fleet_history(history)
    # Settings and grant: named ones, else with a history the fleet's, else this node's.
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
        # Warn about missing data: an empty plan must not look like good news.
        unknown: list[tuple[str, str]] = []
        if seen is not None and (seen.missing or seen.runtime.problem):
            why = f"packages are missing: {', '.join(seen.missing)}" if seen.missing else seen.runtime.problem
            text = f"the container runtime's pods are not known: {why}; see 'ebbtide doctor'"
            unknown.append(("no-pods", text))
        elif seen is not None and not seen.api.answers:
            text = (
                "the API server does not answer: priorities are those of the daemon's cache and of manifests"
            )
            unknown.append(("priorities-unknown", text))
        if not (pods or manifests or seen) and node.status.document is None:
            text = f"no daemon was found in {runtime}: no pod is planned; start it, or name pods with --pods"
            unknown.append(("no-pods", text))
        if grant_ns is None:
            text = "logind does not answer: the plan assumes that everything is granted;"
            text += " name a limit with --grant"
            unknown.append(("grant-unknown", text))
        made = msgspec.structs.replace(made, warnings=(*made.warnings, *unknown))
    listed = [manifest.pod for manifest in manifests]
    # Collect everything before printing: after an error, standard output stays empty.
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

"""``ebbtide plan``: waves, each pod's grace, and a reason for every cut.

On a Kubernetes node also the means to end the pods, by the present answers: the daemon may choose differently
at the signal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from rich.text import Text

from ebbtide.actors.policy.grace_periods import priority_of
from ebbtide.actors.policy.planning import first_names, short_name
from ebbtide.cli.common.guard import Refused
from ebbtide.cli.common.output import Cell, first_of_each, remark, show, show_document, table
from ebbtide.cli.common.shared_options import OF_NODE, grant_option, output_option, pods_option, run_options
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.record.format import document, visible
from ebbtide.events.units import span, span_s
from ebbtide.events.values import Pod
from ebbtide.node import LocalNode, NodeTermination, ShutdownNow, plan_shutdown
from ebbtide.options import RunOptions

EPILOG = """\b
Examples:
  ebbtide plan --config config.yaml --pods pods/
  kubectl get pods -A -o json --field-selector spec.nodeName=NODE | ebbtide plan --pods -
  helm template . | ebbtide plan --pods -
  sudo ebbtide plan --mode auto                           # on a Kubernetes node
  ebbtide plan --pods pods.yaml --grant 15s -o json
"""


@click.command(epilog=EPILOG)
@pods_option("  [default: the running daemon's pods]")
@grant_option
@run_options(*OF_NODE)
@output_option("table", "json", "yaml")
def plan(pods: tuple[str, ...], grant: int | None, options: RunOptions, output: str) -> int:
    """Show a shutdown now: waves, each pod's grace, cuts and warnings.

    Without --pods on a Kubernetes node: the runtime's pods with the API server's data, and who would end
    them.
    """
    # Pods from files have no node: data from this node would belong to other pods.
    if pods and any((options.mode, options.cri, options.kubeconfig, options.node_name)):
        raise Refused(
            "pods from files have no node: leave out --mode, --cri, --kubeconfig and --node-name, or --pods"
        )
    node = LocalNode(options)
    if node.source:
        remark(f"planned {node.source}")
    seen = None if pods else node.pods.seen
    # Only a strict mode refuses a node whose parts were found.
    if seen is not None and seen.unfit and node.pods.parts is None:
        raise Refused(seen.unfit)
    now = plan_shutdown(node, pods, grant)
    if output == "table":
        show_plan(now)
        if now.termination is not None:
            show_termination(now.termination)
    else:
        show_document(plan_document(now), output)
    return 0


#: The fields that keep their names.
_OF_PLAN = (
    *("enabled", "requested_seconds", "grant_seconds"),
    *("budget_seconds", "reserve_seconds", "override_needed"),
)


def plan_document(now: ShutdownNow) -> dict[str, Any]:
    """``grantSeconds`` is null without the grant. From ``mode`` on: only of a Kubernetes node."""
    made, by, by_uid = now.plan, now.termination, {pod.uid: pod for pod in now.pods}

    def named(pod: Pod) -> dict[str, Any]:
        return {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid}

    def planned(uid: str, grace_seconds: int) -> dict[str, Any]:
        pod = by_uid[uid]
        return named(pod) | {"priority": priority_of(pod), "graceSeconds": grace_seconds}

    waves = [
        {
            "priority": wave.priority,
            "periodSeconds": wave.period_seconds,
            "pods": [planned(pod.uid, pod.grace_seconds) for pod in wave.pods],
        }
        for wave in made.waves
    ]
    fields = {name: getattr(made, name) for name in _OF_PLAN}
    fields |= {"waves": waves, "warnings": [{"code": code, "message": text} for code, text in made.warnings]}
    if by is not None:
        fields |= {"mode": by.mode, "node": by.node, "means": [each._asdict() for each in by.means]}
        fields["handover"] = list(map(named, by.handover))
    return document("Plan", 1, **fields)


def show_plan(now: ShutdownNow) -> None:
    made, by_uid = now.plan, {pod.uid: pod for pod in now.pods}
    if made.enabled:
        more = ", more is needed" if made.override_needed else ""
        show(
            f"requested {span_s(made.requested_seconds)}, granted {span_s(made.grant_seconds)}{more}, "
            f"budget {span_s(made.budget_seconds)}, reserve {span_s(made.reserve_seconds)}"
        )
    else:
        show("graceful shutdown is off")
    rows = list[Sequence[Cell]]()
    for number, wave in enumerate(made.waves):
        head = (str(number), str(wave.priority), span_s(wave.period_seconds))
        if not wave.pods:
            rows.append((*head, Text("no pods", style="dim"), "", ""))
        for planned in wave.pods:
            pod = by_uid[planned.uid]
            asks = "the wave" if pod.grace_seconds is None else span_s(pod.grace_seconds)
            gets_ns = min(planned.grace_seconds * NS_PER_SECOND, made.last_kill_ns)
            cut = pod.grace_seconds is not None and gets_ns < pod.grace_seconds * NS_PER_SECOND
            gets = Text(span(gets_ns), style="yellow" if cut else "")
            rows.append((*head, short_name(pod), asks, gets))
            head = ("", "", "")  # once a wave
    if rows:
        headings = ("WAVE", "PRIORITY", "PERIOD", "POD", "ASKS", "GETS")
        show(table(headings, rows, right=[each for each in headings if each != "POD"]))
    # A node has a hundred pods, often from one template.
    codes = [code for code, _ in made.warnings]
    together = sorted(made.warnings, key=lambda each: codes.index(each[0]))
    for (code, message), beyond in first_of_each(together, lambda each: each[0]):
        show(Text(visible(f"{code}: {message}"), style="yellow"))
        if beyond:
            show(Text(f"{code}: and {beyond} more like these: see them all with -o json", style="yellow"))


def show_termination(found: NodeTermination) -> None:
    by: dict[tuple[str, str], list[str]] = {}
    for kind, means, reason in found.means:
        # Kinds with the same reason share a line.
        reason = reason.replace(f"a shutdown of kind {kind}", f"mode {found.mode}")
        by.setdefault((means, reason), []).append(kind)
    for (means, reason), kinds in by.items():
        show(Text.assemble((f"{', '.join(kinds)}: ", "bold"), visible(f"by {means} ({reason})")))
    if found.handover and any(each.means == "api" for each in found.means):
        names = first_names([f"{pod.namespace}/{pod.name}" for pod in found.handover])
        show(Text(visible(f"by api, no delete ends these: over the runtime, last: {names}")))

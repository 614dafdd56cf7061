"""``ebbtide plan``: waves, each pod's grace, and a reason for every cut.

On a Kubernetes node also who would end the pods. The daemon's own table (`actors.policy.termination_mode`)
chooses that from the present answers: at the signal it may choose differently.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec
from rich.text import Text

from ebbtide.actors.policy.grace_periods import deletable, priority_of
from ebbtide.actors.policy.planning import Plan, PlanWarning, first_names, short_name
from ebbtide.actors.policy.termination_mode import NodeHealth, choose_mode
from ebbtide.cli.common.guard import Refused
from ebbtide.cli.common.output import Cell, first_of_each, remark, show, show_document, table
from ebbtide.cli.common.shared_options import (
    config_option,
    grant_option,
    node_options,
    output_option,
    pods_option,
    run_options,
    runtime_option,
)
from ebbtide.events.record.format import visible
from ebbtide.events.units import span_s
from ebbtide.events.values import Pod, Settings, ShutdownKind
from ebbtide.manifests import load_manifests, plan_of
from ebbtide.node import LocalNode
from ebbtide.options import RunOptions

if TYPE_CHECKING:
    from ebbtide.doctor.rules import NodeSnapshot

EPILOG = """\b
Examples:
  ebbtide plan --config config.yaml --pods pods/
  kubectl get pods -A -o yaml | ebbtide plan --pods -
  sudo ebbtide plan --mode auto                           # on a Kubernetes node
  ebbtide plan --pods pods.yaml --grant 15s -o json
"""

#: The usual kinds; halt goes with poweroff, kexec and soft-reboot with reboot, unless configured otherwise.
SHUTDOWN_KINDS: tuple[ShutdownKind, ...] = ("poweroff", "halt", "reboot", "kexec", "soft-reboot")


@click.command(epilog=EPILOG)
@config_option
@pods_option("  [default: those of the running daemon]")
@grant_option
@runtime_option
@node_options
@output_option("table", "json", "yaml")
def plan(
    configs: tuple[Path, ...],
    pods: tuple[str, ...],
    grant: int | None,
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
    options = run_options(
        mode, cri=cri, kubeconfig=kubeconfig, node_name=node_name, config=configs, runtime=runtime
    )
    # Pods from files have no node: data from this node would belong to other pods.
    if pods and any((mode, cri, kubeconfig, node_name)):
        raise Refused("--pods are planned as they stand: leave out the options of a node, or --pods")
    made, listed, means = plan_shutdown(options, pods, grant)
    document = plan_document(made, listed)
    if output == "table":
        show_plan(made, listed)
        show_termination(means)
    else:
        show_document(msgspec.to_builtins(document) | msgspec.to_builtins(means), output)
    return 0


# --- what would happen ---------------------------------------------------------------------------


class KindTermination(msgspec.Struct):
    """Who ends the pods in one kind of shutdown."""

    kind: str
    means: str
    reason: str


class PodName(msgspec.Struct):
    namespace: str
    name: str
    uid: str


class NodeTermination(msgspec.Struct, omit_defaults=True):
    """``handover``: under ``api``, pods that no delete ends. Empty for pods that are no Kubernetes node's."""

    mode: str = ""
    node: str = ""
    means: list[KindTermination] | None = None
    handover: list[PodName] | None = None


def plan_shutdown(
    options: RunOptions, files: Sequence[str], grant_ns: int | None
) -> tuple[Plan, list[Pod], NodeTermination]:
    """``files``: manifests in place of this node's pods."""
    # Reads each part of this node only on use: a plan for files does not read its pods.
    node, seen = LocalNode(options), None
    settings, grant_ns = node.configuration.settings, node.grant_ns(grant_ns)
    if node.source:
        remark(f"planned {node.source}")
    if files:
        zero = settings.gate("PodLifecycleSleepActionAllowZero")
        manifests = load_manifests(files, allow_zero_sleep=zero)
    else:
        manifests, seen = list(node.pods.manifests), node.pods.seen
        # Only a strict mode refuses a node whose parts were found.
        if seen is not None and seen.unfit and node.pods.parts is None:
            raise Refused(seen.unfit)
    made, pods = plan_of(settings, manifests, grant_ns), [manifest.pod for manifest in manifests]
    if made.enabled:
        no_daemon = not (files or manifests or seen) and node.status.document is None
        unknown = tuple(_unknown(seen, options.runtime if no_daemon else None, grant_ns))
        made = msgspec.structs.replace(made, warnings=(*made.warnings, *unknown))
    if seen is None:
        return made, pods, NodeTermination()
    bus, _ = node.logind
    return made, pods, node_termination(seen, pods, settings, bus is not None and bus.kubelet_lock)


def _unknown(
    seen: NodeSnapshot | None, without_daemon: Path | None, grant_ns: int | None
) -> Iterator[PlanWarning]:
    """Warnings about missing data: an empty plan must not look like good news."""
    if seen is not None and (seen.missing or seen.runtime.problem):
        why = f"packages are missing: {', '.join(seen.missing)}" if seen.missing else seen.runtime.problem
        yield "no-pods", f"the container runtime's pods are not known: {why}; see 'ebbtide doctor'"
    elif seen is not None and not seen.api.answers:
        text = "the API server does not answer: priorities are those of the daemon's cache and of manifests"
        yield "priorities-unknown", text
    if without_daemon is not None:
        text = (
            f"no daemon was found in {without_daemon}: no pod is planned; start it, or name pods with --pods"
        )
        yield "no-pods", text
    if grant_ns is None:
        text = (
            "logind does not answer: the plan assumes that everything is granted; name a limit with --grant"
        )
        yield "grant-unknown", text


def node_termination(
    seen: NodeSnapshot, pods: Sequence[Pod], settings: Settings, kubelet_lock: bool
) -> NodeTermination:
    health = NodeHealth(seen.kubelet.active, not seen.runtime.problem, seen.api.answers)
    means = [
        KindTermination(kind, *choose_mode(seen.mode, kind, settings.means, kubelet_lock, health))
        for kind in SHUTDOWN_KINDS
    ]
    # The runtime ends them after the last wave. Without the taint every DaemonSet recreates its pod.
    left = [pod for pod in pods if not deletable(pod, taints=seen.api.taint is not False)]
    return NodeTermination(
        seen.mode, seen.name, means, [PodName(pod.namespace, pod.name, pod.uid) for pod in left]
    )


# --- as JSON and as tables -----------------------------------------------------------------------


class PodInPlan(msgspec.Struct, rename="camel"):
    namespace: str
    name: str
    uid: str
    priority: int
    grace_seconds: int


class WaveInPlan(msgspec.Struct, rename="camel"):
    priority: int
    period_seconds: int
    pods: list[PodInPlan]


class WarningInPlan(msgspec.Struct):
    code: str
    message: str


class PlanDocument(msgspec.Struct, rename="camel", tag_field="kind", tag="Plan", kw_only=True):
    """The promised shape; ``grant_seconds`` is null without the grant."""

    version: int = 1
    enabled: bool
    requested_seconds: int
    grant_seconds: int | None
    budget_seconds: int
    reserve_seconds: int
    override_needed: bool
    waves: list[WaveInPlan]
    warnings: list[WarningInPlan]


def plan_document(made: Plan, pods: Sequence[Pod]) -> PlanDocument:
    by_uid = {pod.uid: pod for pod in pods}
    waves = []
    for wave in made.waves:
        planned = [(by_uid[each.uid], each.grace_seconds) for each in wave.pods]
        shown = [
            PodInPlan(pod.namespace, pod.name, pod.uid, priority_of(pod), grace) for pod, grace in planned
        ]
        waves.append(WaveInPlan(wave.priority, wave.period_seconds, shown))
    return PlanDocument(
        enabled=made.enabled,
        requested_seconds=made.requested_seconds,
        grant_seconds=made.grant_seconds,
        budget_seconds=made.budget_seconds,
        reserve_seconds=made.reserve_seconds,
        override_needed=made.override_needed,
        waves=waves,
        warnings=[WarningInPlan(*each) for each in made.warnings],
    )


def show_plan(made: Plan, pods: Sequence[Pod]) -> None:
    """A line of totals, a row for each pod, a line for each warning."""
    if made.enabled:
        more = ", more is needed" if made.override_needed else ""
        show(
            f"requested {span_s(made.requested_seconds)}, granted {span_s(made.grant_seconds)}{more}, "
            f"budget {span_s(made.budget_seconds)}, reserve {span_s(made.reserve_seconds)}"
        )
    else:
        show("graceful shutdown is off")
    by_uid, rows = {pod.uid: pod for pod in pods}, list[Sequence[Cell]]()
    for number, wave in enumerate(made.waves):
        head = (str(number), str(wave.priority), span_s(wave.period_seconds))
        if not wave.pods:
            rows.append((*head, Text("no pods", style="dim"), "", ""))
        for planned in wave.pods:
            pod = by_uid[planned.uid]
            asks = "the wave" if pod.grace_seconds is None else span_s(pod.grace_seconds)
            cut = pod.grace_seconds is not None and planned.grace_seconds < pod.grace_seconds
            gets = Text(span_s(planned.grace_seconds), style="yellow" if cut else "")
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
    """A line for each means with its kinds and reason, and one for the pods that are handed over."""
    by: dict[tuple[str, str], list[str]] = {}
    for each in found.means or ():
        # The line begins with the kinds: kinds with the same reason share a line.
        reason = each.reason.replace(f"a shutdown of kind {each.kind}", f"mode {found.mode}")
        by.setdefault((each.means, reason), []).append(each.kind)
    for (means, reason), kinds in by.items():
        show(Text.assemble((f"{', '.join(kinds)}: ", "bold"), visible(f"by {means} ({reason})")))
    if found.handover and any(each.means == "api" for each in found.means or ()):
        names = first_names([f"{each.namespace}/{each.name}" for each in found.handover])
        show(Text(visible(f"by api, no delete ends these: over the runtime, last: {names}")))

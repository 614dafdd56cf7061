"""What a configuration means for these pods, and on a node who would end them: as JSON and as tables.

The daemon's own table (`actors.policy.termination_mode`) chooses the means from the present answers: at the
signal it may choose differently.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ebbtide.actors.policy.grace_periods import effective_periods, priority_of
from ebbtide.actors.policy.planning import Plan, PlanWarning, make_plan, short_name
from ebbtide.actors.policy.termination_mode import NodeHealth, choose_mode, deletable
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.record.format import visible
from ebbtide.events.units import span_s
from ebbtide.events.values import Pod, Settings, ShutdownKind, TerminationMode
from ebbtide.manifests import Manifest

if TYPE_CHECKING:
    from ebbtide.doctor.snapshot import NodeSnapshot

#: Raised when the shape below changes.
PLAN_VERSION = 1


def build_plan(settings: Settings, manifests: Sequence[Manifest], grant_ns: int | None) -> Plan:
    """A shutdown now with these pods, without ended ones; ``grant_ns`` None without logind's limit."""
    return make_plan(
        effective_periods(settings),
        grant_ns,
        settings.reserve_seconds * NS_PER_SECOND,
        [manifest.pod for manifest in manifests if not manifest.finished],
        settings.budget,
        sleep_action=settings.gate("PodLifecycleSleepAction"),
    )


def plan_json(plan: Plan, pods: Sequence[Pod]) -> dict[str, Any]:
    """The promised shape; ``grantSeconds`` is null without the grant."""
    by_uid = {pod.uid: pod for pod in pods}
    return {
        "kind": "Plan",
        "version": PLAN_VERSION,
        "enabled": plan.enabled,
        "requestedSeconds": plan.requested_seconds,
        "grantSeconds": plan.grant_seconds,
        "budgetSeconds": plan.budget_seconds,
        "reserveSeconds": plan.reserve_seconds,
        "overrideNeeded": plan.override_needed,
        "waves": [
            {
                "priority": wave.priority,
                "periodSeconds": wave.period_seconds,
                "pods": [
                    {
                        "namespace": pod.namespace,
                        "name": pod.name,
                        "uid": pod.uid,
                        "priority": priority_of(pod),
                        "graceSeconds": planned.grace_seconds,
                    }
                    for planned in wave.pods
                    for pod in (by_uid[planned.uid],)
                ],
            }
            for wave in plan.waves
        ],
        "warnings": [{"code": code, "message": message} for code, message in plan.warnings],
    }


def plan_tables(plan: Plan, pods: Sequence[Pod]) -> RenderableType:
    """One line of totals, one row for each pod, one line for each warning."""
    by_uid = {pod.uid: pod for pod in pods}
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("WAVE", "PRIORITY", "PERIOD", "POD", "ASKS", "GETS"):
        table.add_column(heading, justify="left" if heading == "POD" else "right", no_wrap=heading != "POD")
    for number, wave in enumerate(plan.waves):
        head = (str(number), str(wave.priority), span_s(wave.period_seconds))
        if not wave.pods:
            table.add_row(*head, Text("no pods", style="dim"), "", "")
        for planned in wave.pods:
            pod = by_uid[planned.uid]
            asks = "the wave" if pod.grace_seconds is None else span_s(pod.grace_seconds)
            cut = pod.grace_seconds is not None and planned.grace_seconds < pod.grace_seconds
            gets = Text(span_s(planned.grace_seconds), style="yellow" if cut else "")
            table.add_row(*head, Text(visible(short_name(pod))), asks, gets)
            head = ("", "", "")  # said once a wave
    totals = "graceful shutdown is off"
    if plan.enabled:
        grant = span_s(plan.grant_seconds)
        more = ", more is needed" if plan.override_needed else ""
        totals = (
            f"requested {span_s(plan.requested_seconds)}, granted {grant}{more}, "
            f"budget {span_s(plan.budget_seconds)}, reserve {span_s(plan.reserve_seconds)}"
        )
    warnings = (Text(visible(line), style="yellow") for line in warning_lines(plan.warnings))
    return Group(Text(totals), *([table] if plan.waves else []), *warnings)


#: At most so many warnings of one code: a node has a hundred pods, often from one template.
ALIKE_MAX = 3


def warning_lines(warnings: Sequence[PlanWarning]) -> Iterator[str]:
    """Warnings for people: the first few of each code, by the order of their first one."""
    by_code: dict[str, list[str]] = {}
    for code, message in warnings:
        by_code.setdefault(code, []).append(message)
    for code, messages in by_code.items():
        for message in messages[:ALIKE_MAX]:
            yield f"{code}: {message}"
        more = len(messages) - ALIKE_MAX
        if more > 0:
            yield f"{code}: and {more} more like these: see them all with -o json"


# On a Kubernetes node also: who would end the pods, for each kind of shutdown.


#: The usual kinds; halt goes with poweroff, kexec and soft-reboot with reboot, unless configured otherwise.
SHUTDOWN_KINDS: tuple[ShutdownKind, ...] = ("poweroff", "halt", "reboot", "kexec", "soft-reboot")
#: Names in one line.
NAMES_MAX = 8


class ChosenTermination(NamedTuple):
    """For one kind of shutdown."""

    kind: ShutdownKind
    means: TerminationMode
    reason: str


def describe_termination(
    seen: NodeSnapshot, pods: Sequence[Pod], settings: Settings, kubelet_lock: bool
) -> tuple[dict[str, Any], list[Text]]:
    """More keys of the document, and lines."""
    chosen = termination_choices(seen, kubelet_lock, settings)
    left = left_behind(pods, seen.api.taint is not False)
    return termination_json(seen, chosen, left), termination_lines(seen, chosen, left)


def termination_choices(
    seen: NodeSnapshot, kubelet_lock: bool, settings: Settings
) -> list[ChosenTermination]:
    """In the order of `SHUTDOWN_KINDS`."""
    health = NodeHealth(seen.kubelet.active, not seen.runtime.problem, seen.api.answers)
    return [
        ChosenTermination(kind, *choose_mode(seen.mode, kind, settings.means, kubelet_lock, health))
        for kind in SHUTDOWN_KINDS
    ]


def left_behind(pods: Sequence[Pod], taint: bool) -> list[Pod]:
    """Under ``api``: pods that no delete ends; the runtime ends them after the last wave. Without the taint
    every DaemonSet recreates its pod.
    """
    return [pod for pod in pods if not deletable(pod, taints=taint)]


def termination_json(
    seen: NodeSnapshot, chosen: Sequence[ChosenTermination], left: Sequence[Pod]
) -> dict[str, Any]:
    """Keys beside the promised ones."""
    return {
        "mode": seen.mode,
        "node": seen.name,
        "means": [each._asdict() for each in chosen],
        "handover": [{"namespace": pod.namespace, "name": pod.name, "uid": pod.uid} for pod in left],
    }


def termination_lines(
    seen: NodeSnapshot, chosen: Sequence[ChosenTermination], left: Sequence[Pod]
) -> list[Text]:
    """A line for each means with its kinds and reason, and one for the pods that are handed over."""
    by: dict[tuple[TerminationMode, str], list[str]] = {}
    for each in chosen:
        # The line begins with the kinds: kinds with the same reason share a line.
        reason = each.reason.replace(f"a shutdown of kind {each.kind}", f"mode {seen.mode}")
        by.setdefault((each.means, reason), []).append(each.kind)
    lines = [
        Text.assemble((f"{', '.join(kinds)}: ", "bold"), visible(f"by {means} ({reason})"))
        for (means, reason), kinds in by.items()
    ]
    if left and any(each.means == "api" for each in chosen):
        names = ", ".join(short_name(pod) for pod in left[:NAMES_MAX])
        more = f" and {len(left) - NAMES_MAX} more" if len(left) > NAMES_MAX else ""
        lines.append(Text(visible(f"by api, no delete ends these: over the runtime, last: {names}{more}")))
    return lines

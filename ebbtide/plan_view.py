"""What a configuration does to these pods, and on a node who would end them: as JSON and as tables.

By what pods are ended is chosen by the table of the daemon (`actors.policy.termination_mode`) from what
answers now: at the signal it may be another.
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

#: Raised when the shape below changes in a way that a script would notice.
PLAN_VERSION = 1


def build_plan(settings: Settings, manifests: Sequence[Manifest], grant_ns: int | None) -> Plan:
    """What a shutdown now would do with these pods; ``grant_ns`` None where logind's limit is not known.

    Pods whose status says that they have ended are left out.
    """
    return make_plan(
        effective_periods(settings),
        grant_ns,
        settings.reserve_seconds * NS_PER_SECOND,
        [manifest.pod for manifest in manifests if not manifest.finished],
        settings.budget,
        sleep_action=settings.gate("PodLifecycleSleepAction"),
    )


def plan_json(plan: Plan, pods: Sequence[Pod]) -> dict[str, Any]:
    """The promised shape; ``grantSeconds`` is null where the grant is not known."""
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
    """One line of totals, one row a pod, one line a warning."""
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


#: Of one code so many are shown to people: a node has a hundred pods, often from one template.
ALIKE_MAX = 3


def warning_lines(warnings: Sequence[PlanWarning]) -> Iterator[str]:
    """For people: those of one code together, the first few of them, in the order of their first."""
    by_code: dict[str, list[str]] = {}
    for code, message in warnings:
        by_code.setdefault(code, []).append(message)
    for code, messages in by_code.items():
        for message in messages[:ALIKE_MAX]:
            yield f"{code}: {message}"
        more = len(messages) - ALIKE_MAX
        if more > 0:
            yield f"{code}: and {more} more like these: see them all with -o json"


# What ``ebbtide plan`` says on a Kubernetes node beside the waves: who would end the pods, by
# kind of shutdown.


#: The kinds that people ask for; halt goes with power-off, kexec and soft-reboot with reboot, unless the
#: configuration says otherwise.
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
    """As further keys of the document, and as lines."""
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
    """Under ``api``: those that no delete ends, which go over the runtime behind the last wave. Without the
    taint every DaemonSet makes its pod again.
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
    """One line for each means with its kinds and reason, and one for the pods that are handed over."""
    by: dict[tuple[TerminationMode, str], list[str]] = {}
    for each in chosen:
        # The kinds stand in front of the line: said once more in the reason, no two kinds would share one.
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

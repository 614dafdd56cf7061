"""``ebbtide plan``: what a configuration does to these pods, as JSON for scripts and as tables for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from actors.policy.explain import short_name
from actors.policy.grouping import priority_of
from actors.policy.periods import effective_periods
from actors.policy.plan import Plan, make_plan
from ebbtide.manifests.model import Manifest
from ebbtide.text import visible
from events.base import NS_PER_SECOND
from events.model import PlannedPod, Pod, Settings

#: Raised when the shape below changes in a way that a script would notice.
PLAN_VERSION = 1


def build_plan(settings: Settings, manifests: Sequence[Manifest], grant_ns: int | None) -> Plan:
    """What a shutdown now would do with these pods; ``grant_ns`` None where logind's limit is not known.

    Pods whose status says that they have ended are left out. The manifests' own notes come last.
    """
    going = [manifest for manifest in manifests if not manifest.finished]
    plan = make_plan(
        effective_periods(settings),
        grant_ns,
        settings.reserve_seconds * NS_PER_SECOND,
        [manifest.pod for manifest in going],
        settings.budget,
        sleep_action=settings.gate("PodLifecycleSleepAction"),
    )
    notes = tuple(note for manifest in going for note in manifest.notes) if plan.enabled else ()
    return msgspec.structs.replace(plan, warnings=plan.warnings + notes)


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
                "pods": [_pod_json(planned, by_uid[planned.uid]) for planned in wave.pods],
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
    for row in _rows(plan, by_uid):
        table.add_row(*row)
    warnings = [Text(visible(f"{code}: {message}"), style="yellow") for code, message in plan.warnings]
    return Group(Text(_totals(plan)), *([table] if plan.waves else []), *warnings)


def _rows(plan: Plan, by_uid: dict[str, Pod]) -> Iterator[tuple[str | Text, ...]]:
    for number, wave in enumerate(plan.waves):
        head = (str(number), str(wave.priority), f"{wave.period_seconds} s")
        if not wave.pods:
            yield (*head, Text("no pods", style="dim"), "", "")
        for index, planned in enumerate(wave.pods):
            pod = by_uid[planned.uid]
            asks = "the wave" if pod.grace_seconds is None else f"{pod.grace_seconds} s"
            cut = pod.grace_seconds is not None and planned.grace_seconds < pod.grace_seconds
            gets = Text(f"{planned.grace_seconds} s", style="yellow" if cut else "")
            yield (*(head if index == 0 else ("", "", "")), Text(visible(short_name(pod))), asks, gets)


def _totals(plan: Plan) -> str:
    if not plan.enabled:
        return "graceful shutdown is off"
    grant = "not known" if plan.grant_seconds is None else f"{plan.grant_seconds} s"
    more = ", more is needed" if plan.override_needed else ""
    return (
        f"requested {plan.requested_seconds} s, granted {grant}{more}, "
        f"budget {plan.budget_seconds} s, reserve {plan.reserve_seconds} s"
    )


def _pod_json(planned: PlannedPod, pod: Pod) -> dict[str, Any]:
    return {
        "namespace": pod.namespace,
        "name": pod.name,
        "uid": pod.uid,
        "priority": priority_of(pod),
        "graceSeconds": planned.grace_seconds,
    }

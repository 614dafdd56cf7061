"""``ebbtide plan --history``: do these pods fit into the waves of a fleet, by its recorded shutdowns?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text

from ebbtide.actors.policy.planning import Plan
from ebbtide.cli.common.guard import DONE, NOT_SO, worst
from ebbtide.cli.common.reading import JournalPool
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.messages import plural
from ebbtide.events.record.format import visible
from ebbtide.events.record.shutdown_record import ConfigurationRecord, ShutdownRecord
from ebbtide.events.units import json_seconds
from ebbtide.events.values import Pod, Settings
from ebbtide.replay.advise import (
    Stop,
    observed_stops,
)
from ebbtide.replay.fit import Fit, fit

#: The gate that a recorded configuration has.
SLEEP_GATE = "PodLifecycleSleepAction"


class FleetHistory(NamedTuple):
    """The records of a fleet's journals. ``configuration``: the newest. ``grant_ns``: the smallest present
    one.
    """

    stops: tuple[Stop, ...]
    shutdowns: int
    nodes: int
    configuration: ConfigurationRecord | None
    grant_ns: int | None
    code: int

    def settings(self) -> Settings | None:
        """The newest shutdown's; None without a shutdown with waves."""
        recorded = self.configuration
        if recorded is None:
            return None
        return Settings(
            by_pod_priority=recorded.periods,
            gates={} if recorded.sleep_action else {SLEEP_GATE: False},
            budget=recorded.budget,
            # Rounded up to whole seconds, as in a configuration: less reserve would cut fitting pods.
            reserve_seconds=-(-recorded.reserve_ns // NS_PER_SECOND),
        )


def read_fleet_history(folders: Sequence[Path]) -> FleetHistory:
    """Raises Refused where a place has no journal."""
    pool = JournalPool(folders)
    found: list[Stop] = []
    last: dict[tuple[str, str], ShutdownRecord] = {}
    newest: ShutdownRecord | None = None
    shutdowns = 0
    for shutdown in pool.shutdown_records():
        shutdowns += 1
        found += observed_stops((shutdown,))
        # Without waves graceful shutdown was off: no evidence for pods under the present settings.
        if shutdown.configuration.periods:
            # By machine too: two machines may have had one name.
            last[shutdown.node, shutdown.machine_id] = shutdown
            if newest is None or shutdown.started_wall_ns >= newest.started_wall_ns:
                newest = shutdown
    # The smallest grant fits every node. Each node's last one, because a grant may have been raised.
    grants = [shutdown.grant_ns for shutdown in last.values() if shutdown.grant_ns]
    configuration = newest.configuration if newest is not None else None
    return FleetHistory(
        tuple(found), shutdowns, len(last), configuration, min(grants, default=None), pool.code
    )


def judge_fit(plan: Plan, pods: Sequence[Pod], past: FleetHistory, settings: Settings) -> Fit:
    return fit(plan, pods, past.stops, sleep_action=settings.gate(SLEEP_GATE))


def fit_exit_code(found: Fit, past: FleetHistory) -> int:
    """1 where a pod does not fit: a gate for CI."""
    return worst((past.code, DONE if found.fits else NOT_SO))


def fit_json(found: Fit, past: FleetHistory) -> dict[str, Any]:
    """The plan's ``history``."""
    return {
        "shutdowns": past.shutdowns,
        "nodes": past.nodes,
        "stops": len(past.stops),
        "fits": found.fits,
        "unknown": [pod.label for pod in found.unknown],
        "findings": [
            {
                "code": each.code,
                "namespace": each.pod.namespace,
                "name": each.pod.name,
                "uid": each.pod.uid,
                "wave": each.wave,
                "priority": each.priority,
                "neededSeconds": json_seconds(each.needed_ns),
                "atLeast": each.at_least,
                "hasSeconds": json_seconds(each.has_ns),
                "message": each.message,
            }
            for each in found.misfits
        ],
    }


def fit_lines(found: Fit, past: FleetHistory) -> RenderableType:
    """The verdict in one line, then one a finding."""
    counted = ((len(past.stops), "stop"), (past.shutdowns, "shutdown"), (past.nodes, "node"))
    stops, shutdowns, nodes = (plural(*each) for each in counted)
    by = f"by {stops} in {shutdowns} of {nodes}"
    lines = [(f"fits, {by}", "green") if found.fits else (f"does not fit, {by}:", "red")]
    lines += [(f"{each.code}: {each.message}", "yellow") for each in found.misfits]
    if found.unknown:
        # Name pods without evidence: the verdict does not cover them.
        pods = ", ".join(pod.label for pod in found.unknown)
        lines.append((f"no record of {pods}", "dim"))
    return Group(*(Text(visible(text), style=style) for text, style in lines))

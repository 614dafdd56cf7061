"""``plan --history``: whether pods that are to come fit the waves of a fleet, by what its journals tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text

from actors.policy.plan import Plan
from ebbtide.cli.guard import DONE, NOT_SO, worst
from ebbtide.cli.pooling import Pool
from ebbtide.cli.replaying.told import seconds
from ebbtide.text import visible
from events.base import NS_PER_SECOND
from events.model import Pod, Settings
from replay.account.model import Account, ConfigurationTold
from replay.account.words import plural
from replay.advise.fitting import Fit, fit
from replay.advise.stops import Stop, stops

#: The gate that a configuration in the record knows of.
SLEEP_GATE = "PodLifecycleSleepAction"


class Past(NamedTuple):
    """What a fleet's journals tell. ``configuration`` is the newest; ``grant_ns`` the smallest of today's."""

    stops: tuple[Stop, ...]
    shutdowns: int
    nodes: int
    configuration: ConfigurationTold | None
    grant_ns: int | None
    code: int

    def settings(self) -> Settings | None:
        """As the newest shutdown had them; None where no shutdown had waves."""
        told = self.configuration
        if told is None:
            return None
        return Settings(
            by_pod_priority=told.periods,
            gates={} if told.sleep_action else {SLEEP_GATE: False},
            budget=told.budget,
            reserve_seconds=-(-told.reserve_ns // NS_PER_SECOND),
        )


def read_past(places: Sequence[Path]) -> Past:
    """Raises Refused where a place holds no journal."""
    pool = Pool(places)
    found: list[Stop] = []
    last: dict[tuple[str, str], Account] = {}
    newest: Account | None = None
    shutdowns = 0
    for account in pool.accounts():
        shutdowns += 1
        found += stops((account,))
        if account.configuration.periods:
            last[account.node, account.machine_id] = account
            newest = (
                account if newest is None or account.started_wall_ns >= newest.started_wall_ns else newest
            )
    grants = [account.grant_ns for account in last.values() if account.grant_ns]
    configuration = newest.configuration if newest is not None else None
    return Past(tuple(found), shutdowns, len(last), configuration, min(grants, default=None), pool.code)


def judge(plan: Plan, pods: Sequence[Pod], past: Past, settings: Settings) -> Fit:
    return fit(plan, pods, past.stops, sleep_action=settings.gate(SLEEP_GATE))


def exit_code(found: Fit, past: Past) -> int:
    """1 where something does not fit: a gate for CI."""
    return worst((past.code, DONE if found.fits else NOT_SO))


def fit_json(found: Fit, past: Past) -> dict[str, Any]:
    """What is added to the plan as ``history``."""
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
                "neededSeconds": seconds(each.needed_ns),
                "atLeast": each.at_least,
                "hasSeconds": seconds(each.has_ns),
                "message": each.message,
            }
            for each in found.misfits
        ],
    }


def fit_lines(found: Fit, past: Past) -> RenderableType:
    """The verdict in one line, then one a finding."""
    return Group(*(Text(visible(text), style=style) for text, style in _lines(found, past)))


def _lines(found: Fit, past: Past) -> Iterator[tuple[str, str]]:
    counted = ((len(past.stops), "stop"), (past.shutdowns, "shutdown"), (past.nodes, "node"))
    stops_seen, shutdowns, nodes = (plural(*each) for each in counted)
    by = f"by {stops_seen} in {shutdowns} of {nodes}"
    if found.fits:
        yield f"fits, {by}", "green"
    else:
        yield f"does not fit, {by}:", "red"
    for each in found.misfits:
        yield f"{each.code}: {each.message}", "yellow"
    if found.unknown:
        yield f"nothing is on record of {', '.join(pod.label for pod in found.unknown)}", "dim"

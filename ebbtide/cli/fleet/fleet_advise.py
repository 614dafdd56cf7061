"""``ebbtide fleet advise``: the periods that all nights of all nodes ask for; their evidence adds up."""

from __future__ import annotations

import sys
from collections import Counter
from functools import partial
from typing import Any, NamedTuple

import click

from ebbtide.cli.common.guard import NOT_SO, Refused, worst
from ebbtide.cli.common.output import remark, show_json
from ebbtide.cli.common.shared_options import output_option
from ebbtide.cli.fleet.fleet_common import (
    CODES,
    POOLS_EPILOG,
    Engine,
    Pools,
    Problem,
    answers,
    engine_options,
    journals_option,
    planned_journals,
    pools_option,
)
from ebbtide.cli.replay.replay_advise import ADVICE_VERSION, margin_option, show_advice
from ebbtide.events.record.format import document, json_values, visible
from ebbtide.events.values import Period
from ebbtide.replay.advise import Advice, Caution, Evidence, NoEvidence, Trial, tried_advice

EPILOG = (
    """\b
Examples:
  ebbtide fleet advise --journals ./fleet
  ebbtide fleet advise --journals s3://journals/v1/cluster=prod -o yaml > advice.yaml
  ebbtide fleet advise --journals ./fleet -o json | jq '.waves[] | {priority, seconds}'
  ebbtide fleet advise --journals ./fleet --pools pools.txt

The same advice as 'replay advise --journal FOLDER' gives for these journals. It is one configuration for all
nodes; with --pools also one for each pool, from its nodes' nights (in -o json: .pools[].configuration).
"""
    + POOLS_EPILOG
)


class FleetAdvice(NamedTuple):
    """``advice``: None without evidence. ``pools``: None without ``--pools``."""

    advice: Advice | None
    pools: dict[str | None, Advice | None] | None
    states: Counter[str]
    problems: list[Problem]

    def document(self) -> dict[str, Any]:
        pools = None if self.pools is None else self.pools.items()
        return document(
            "FleetAdvice",
            ADVICE_VERSION,
            self.advice,
            journals=dict(sorted(self.states.items())),
            notIntact=self.problems,
            pools=pools and [{"pool": name, **json_values(each)} for name, each in pools if each],
            poolsWithoutEvidence=pools and [name for name, each in pools if each is None],
        )


def advise_fleet(url: str, margin: int, pools: Pools | None, engine: Engine) -> FleetAdvice:
    """Reports unusable journals. Raises Refused."""
    refs = planned_journals(url, "advise", engine)
    from ebbtide.fleet.fleet_verbs import evidence_of, trial_by

    evidence: dict[str | None, Evidence] = {}
    nodes: dict[str | None, list[str]] = {}
    states, problems = Counter[str](), list[Problem]()
    for parts, used in answers(partial(evidence_of, by_node=pools is not None), refs, engine):
        for node, part in parts.items():
            pool = pools.pool(node) if pools else None
            evidence.setdefault(pool, Evidence()).merge(part)
            nodes.setdefault(pool, []).append(node)
        for each in used:
            states[each.state] += 1
            why = [each.error] if each.error else []
            if each.left_out:
                why.append(f"left out, since its begin is not on record: {', '.join(each.left_out)}")
            if why:
                problem = Problem.of(each, why="; ".join(why))
                problems.append(problem)
                remark(f"ebbtide: {each.node or each.journal_id} ({each.location}): {problem.why}")

    def conclusion(of: Evidence, own: frozenset[str] | None = None, prefix: str = "") -> Advice | None:
        def try_out(periods: tuple[Period, ...]) -> Trial:
            return sum(answers(partial(trial_by, periods=periods, nodes=own), refs, engine), Trial())

        try:
            return tried_advice(of, Caution(margin_percent=margin), try_out)
        except NoEvidence as error:
            remark(f"ebbtide: {prefix}no advice: {error}")
            return None

    if pools is None:
        return FleetAdvice(conclusion(evidence.get(None, Evidence())), None, states, problems)
    by_pool: dict[str | None, Advice | None] = {}
    everything = Evidence()
    for pool in sorted(evidence, key=lambda name: (name is None, name)):
        by_pool[pool] = conclusion(evidence[pool], frozenset(nodes[pool]), f"{_pool_text(pool)}: ")
        # Evidence may be large.
        everything.merge(evidence.pop(pool))
    return FleetAdvice(conclusion(everything), by_pool, states, problems)


@click.command("advise", epilog=EPILOG)
@journals_option
@margin_option
@pools_option
@engine_options
@output_option("table", "json", "yaml")
def advise_command(url: str, margin: int, pools: Pools | None, engine: Engine, output: str) -> int:
    """Advise the smallest periods with which every pod would have ended by itself, and a margin.

    From all shutdowns of all journals. With -o yaml only the configuration is printed, to be named after the
    present one. Exit code 1: no shutdown that stopped a pod is on record.
    """
    if output == "yaml" and pools is not None:
        raise Refused(
            "-o yaml prints one configuration, and --pools makes one for each pool: take a pool's"
            " from -o json with jq -r '.pools[] | select(.pool == \"NAME\").configuration'"
        )
    found = advise_fleet(url, margin, pools, engine)
    code = worst(map(CODES.__getitem__, found.states))
    if found.advice is None:
        return code or NOT_SO
    if output == "json":
        show_json(found.document())
    elif output == "yaml":
        sys.stdout.write(found.advice.configuration)
    elif found.pools is None:
        show_advice(found.advice)
    else:
        shown = [(pool, advice) for pool, advice in found.pools.items() if advice is not None]
        for at, (pool, advice) in enumerate(shown):
            sys.stdout.write("\n" * bool(at) + f"# {visible(_pool_text(pool))}\n")
            show_advice(advice)
    return code


def _pool_text(pool: str | None) -> str:
    return "nodes of no pool" if pool is None else f"pool {pool}"

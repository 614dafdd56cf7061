"""``ebbtide fleet advise``: the periods that all nights of all nodes ask for; their evidence adds up."""

from __future__ import annotations

import sys
from collections import Counter
from functools import partial
from typing import Any

import click

from ebbtide.cli.common.guard import NOT_SO, Refused, worst
from ebbtide.cli.common.output import remark, show_json
from ebbtide.cli.common.shared_options import output_option
from ebbtide.cli.fleet.fleet_common import (
    CODES,
    POOLS_EPILOG,
    Engine,
    Pools,
    answers,
    engine_options,
    journals_option,
    plan,
    pools_option,
)
from ebbtide.cli.replay.advice_view import ADVICE_VERSION
from ebbtide.cli.replay.replay_advise import margin_option, show_advice
from ebbtide.events.record.format import document, json_values, visible
from ebbtide.replay.advise import Advice, Caution, Evidence, NoEvidence, conclude

EPILOG = (
    """\b
Examples:
  ebbtide fleet advise --journals ./fleet
  ebbtide fleet advise --journals s3://journals/v1/cluster=prod -o yaml > advice.yaml
  ebbtide fleet advise --journals ./fleet -o json | jq '.waves[] | {priority, seconds}'
  ebbtide fleet advise --journals ./fleet --pools pools.txt

The same advice as 'replay advise --journal FOLDER' gives for these journals, in whatever order. It is
one configuration for all; with --pools it is one for each pool, from the nights of its nodes (in -o json:
.pools[].configuration).
"""
    + POOLS_EPILOG
)


@click.command("advise", epilog=EPILOG)
@journals_option
@margin_option
@pools_option
@engine_options
@output_option("table", "json", "yaml")
def advise_command(url: str, margin: int, pools: Pools | None, engine: Engine, output: str) -> int:
    """Advise the smallest periods with which every pod would have ended by itself, and a margin.

    From all shutdowns of all journals. With -o yaml only the configuration is printed, to be named after the
    one in force. Exit code 1: no shutdown that stopped a pod is on record.
    """
    if output == "yaml" and pools is not None:
        raise Refused(
            "one file is one configuration for all its nodes, and --pools makes one for each pool: take a"
            " pool's out of -o json, by jq -r '.pools[] | select(.pool == \"NAME\").configuration'"
        )
    refs = plan(url, "advise", engine)
    from ebbtide.fleet import evidence_of

    evidence: dict[str | None, Evidence] = {}
    states, remarks = Counter[str](), list[dict[str, Any]]()
    for parts, told in answers(partial(evidence_of, by_node=pools is not None), refs, engine):
        for node, part in parts.items():
            pool = pools.pool(node) if pools is not None else None
            evidence.setdefault(pool, Evidence()).merge(part)
        states.update(each["state"] for each in told)
        remarks += (each for each in told if each["state"] != "intact" or each["left_out"])
    for each in remarks:
        remark(f"ebbtide: {_said(each)}")
    code = worst(map(CODES.__getitem__, states))
    caution = Caution(margin_percent=margin)
    of_pools: dict[str | None, Advice] = {}
    without: list[str | None] = []
    everything = evidence.get(None, Evidence())
    if pools is not None:
        everything = Evidence()
        for pool in sorted(evidence, key=lambda name: (name is None, name)):
            try:
                of_pools[pool] = conclude(evidence[pool], caution)
            except NoEvidence as error:
                without.append(pool)
                remark(f"ebbtide: {_pool_text(pool)}: no advice: {error}")
            # What has been asked is not needed any more, and may be large.
            everything.merge(evidence.pop(pool))
    try:
        advice = conclude(everything, caution)
    except NoEvidence as error:
        remark(f"ebbtide: no advice: {error}")
        return code or NOT_SO
    if output == "json":
        by_pool = None
        if pools is not None:
            by_pool = [{"pool": name, **json_values(each)} for name, each in of_pools.items()]
        not_intact = [
            {
                "node": each["node"],
                "journalId": each["journal_id"],
                "state": each["state"],
                "why": _said(each),
                "location": each["location"],
            }
            for each in remarks
        ]
        more = {"journals": dict(sorted(states.items())), "notIntact": not_intact}
        pooled = {"pools": by_pool, "poolsWithoutEvidence": without if pools is not None else None}
        show_json(document("FleetAdvice", ADVICE_VERSION, advice, **more, **pooled))
    elif pools is None:
        if output == "yaml":
            sys.stdout.write(advice.configuration)
        else:
            show_advice(advice)
    else:
        for at, (pool, of_pool) in enumerate(of_pools.items()):
            heading = f"# {visible(_pool_text(pool))}\n"
            sys.stdout.write(f"\n{heading}" if at else heading)
            show_advice(of_pool)
    return code


def _pool_text(pool: str | None) -> str:
    return "nodes of no pool" if pool is None else f"pool {pool}"


def _said(each: dict[str, Any]) -> str:
    said = [each["error"]] if each["error"] else []
    if each["left_out"]:
        said.append(f"left out, since its begin is not on record: {', '.join(each['left_out'])}")
    return f"{each['node'] or each['journal_id']} ({each['location']}): {'; '.join(said)}"

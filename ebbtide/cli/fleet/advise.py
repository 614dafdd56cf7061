"""``ebbtide fleet advise``: the periods that all nights of all nodes ask for; their evidence adds up."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any

import click

from ebbtide.cli.common.guard import NOT_SO, worst
from ebbtide.cli.common.options import output_option
from ebbtide.cli.common.output import remark, show_json
from ebbtide.cli.fleet.common import (
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
from ebbtide.cli.replay.advise import margin_option, show_advice, what_adds_up
from ebbtide.events.record.format import visible
from ebbtide.replay.advise import Advice, Caution, Evidence, NoEvidence, conclude, configuration_to_paste

EPILOG = (
    """\b
Examples:
  ebbtide fleet advise --journals ./fleet
  ebbtide fleet advise --journals s3://journals/v1/cluster=prod -o yaml > advice.yaml
  ebbtide fleet advise --journals ./fleet -o json | jq '.waves[] | {priority, adviseSeconds}'
  ebbtide fleet advise --journals ./fleet --pools pools.txt

The same advice as 'replay advise --journal FOLDER' gives for these journals, in whatever order. Stops are
counted, not kept: there the JSON names each of them, here it says how many. It is one configuration for all;
with --pools it is one for each pool (with -o yaml a document each), from the nights of its nodes.
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
    everything = Evidence()
    for pool in sorted(evidence, key=lambda name: (name is None, name)):
        everything.merge(evidence[pool])
        if pools is not None:
            try:
                of_pools[pool] = conclude(evidence[pool], caution)
            except NoEvidence as error:
                remark(f"ebbtide: {_pool_text(pool)}: nothing can be advised: {error}")
    try:
        advice = conclude(everything, caution)
    except NoEvidence as error:
        remark(f"ebbtide: nothing can be advised: {error}")
        return code or NOT_SO
    if output == "json":
        show_json(fleet_advice_document(advice, None if pools is None else of_pools, states, remarks))
    elif pools is None:
        _show(advice, output)
    else:
        for at, (pool, of_pool) in enumerate(of_pools.items()):
            if at:
                sys.stdout.write("---\n" if output == "yaml" else "\n")
            sys.stdout.write(f"# {visible(_pool_text(pool))}\n")
            _show(of_pool, output)
    return code


def _show(advice: Advice, output: str) -> None:
    if output == "yaml":
        sys.stdout.write(configuration_to_paste(advice))
    else:
        show_advice(advice)


def _pool_text(pool: str | None) -> str:
    return "nodes of no pool" if pool is None else f"pool {pool}"


ADVICE_VERSION = 1


def fleet_advice_document(
    advice: Advice,
    pools: Mapping[str | None, Advice] | None,
    states: Counter[str],
    remarks: list[dict[str, Any]],
) -> dict[str, Any]:
    """As `advice_document`, with the number of what that names one by one."""
    return {
        "kind": "FleetAdvice",
        "version": ADVICE_VERSION,
        **_counted(advice),
        "pools": None
        if pools is None
        else [{"pool": name, **_counted(of_pool)} for name, of_pool in pools.items()],
        "journals": dict(sorted(states.items())),
        "notIntact": [
            {
                "node": each["node"],
                "journalId": each["journal_id"],
                "state": each["state"],
                "why": _said(each),
                "location": each["location"],
            }
            for each in remarks
        ],
    }


def _counted(advice: Advice) -> dict[str, Any]:
    return {
        "shutdowns": advice.shutdown_count,
        **what_adds_up(advice),
        "leftOut": [{"count": each.pods, "text": each.text} for each in advice.left_out],
        **{name: advice.counts.get(name, 0) for name in ("saved", "perhaps", "hopeless")},
    }


def _said(each: dict[str, Any]) -> str:
    said = [each["error"]] if each["error"] else []
    if each["left_out"]:
        said.append(f"left out, since its begin is not on record: {', '.join(each['left_out'])}")
    return f"{each['node'] or each['journal_id']} ({each['location']}): {'; '.join(said)}"

"""``ebbtide fleet advise``: the periods that all nights of all nodes ask for; their evidence adds up."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import click

from ebbtide.cli.common.guard import NOT_SO, worst
from ebbtide.cli.common.options import output_option
from ebbtide.cli.common.output import remark, show_json
from ebbtide.cli.fleet.common import CODES, Engine, answers, engine_options, journals_option, plan
from ebbtide.cli.replay.advise import margin_option, show_advice, what_adds_up
from ebbtide.replay.advise import Advice, Caution, Evidence, NoEvidence, conclude, configuration_to_paste

EPILOG = """\b
Examples:
  ebbtide fleet advise --journals ./fleet
  ebbtide fleet advise --journals s3://journals/v1/cluster=prod -o yaml > advice.yaml
  ebbtide fleet advise --journals ./fleet -o json | jq '.waves[] | {priority, adviseSeconds}'

The same advice as 'replay advise --journal FOLDER' gives for these journals, in whatever order. Stops are
counted, not kept: there the JSON names each of them, here it says how many. It is one configuration for all:
name the journals of one pool where pools have configurations of their own.
"""


@click.command("advise", epilog=EPILOG)
@journals_option
@margin_option
@engine_options
@output_option("table", "json", "yaml")
def advise_command(url: str, margin: int, engine: Engine, output: str) -> int:
    """Advise the smallest periods with which every pod would have ended by itself, and a margin.

    From all shutdowns of all journals. With -o yaml only the configuration is printed, to be named after the
    one in force. Exit code 1: no shutdown that stopped a pod is on record.
    """
    refs = plan(url, "advise", engine)
    from ebbtide.fleet import evidence_of

    evidence, states, remarks = Evidence(), Counter[str](), list[dict[str, Any]]()
    for part, told in answers(evidence_of, refs, engine):
        evidence.merge(part)
        states.update(each["state"] for each in told)
        remarks += (each for each in told if each["state"] != "intact" or each["left_out"])
    for each in remarks:
        remark(f"ebbtide: {_said(each)}")
    code = worst(map(CODES.__getitem__, states))
    try:
        advice = conclude(evidence, Caution(margin_percent=margin))
    except NoEvidence as error:
        remark(f"ebbtide: nothing can be advised: {error}")
        return code or NOT_SO
    if output == "json":
        show_json(fleet_advice_document(advice, states, remarks))
    elif output == "yaml":
        sys.stdout.write(configuration_to_paste(advice))
    else:
        show_advice(advice)
    return code


ADVICE_VERSION = 1


def fleet_advice_document(
    advice: Advice, states: Counter[str], remarks: list[dict[str, Any]]
) -> dict[str, Any]:
    """As `advice_document`, with the number of what that names one by one."""
    return {
        "kind": "FleetAdvice",
        "version": ADVICE_VERSION,
        "shutdowns": advice.shutdown_count,
        **what_adds_up(advice),
        "leftOut": [{"count": each.pods, "text": each.text} for each in advice.left_out],
        **{name: advice.counts.get(name, 0) for name in ("saved", "perhaps", "hopeless")},
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


def _said(each: dict[str, Any]) -> str:
    said = [each["error"]] if each["error"] else []
    if each["left_out"]:
        said.append(f"left out, since its begin is not on record: {', '.join(each['left_out'])}")
    return f"{each['node'] or each['journal_id']} ({each['location']}): {'; '.join(said)}"

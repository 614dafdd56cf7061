"""``ebbtide fleet verify``: is every journal of a fleet intact, and a function of its facts?"""

from __future__ import annotations

from collections import Counter
from typing import Any

import click

from ebbtide.cli.common.guard import PRECEDENCE, worst
from ebbtide.cli.common.output import NarrowTable, remark, show, show_json
from ebbtide.cli.common.shared_options import output_option
from ebbtide.cli.fleet.fleet_common import CODES, Engine, engine_options, journals_option, plan, rows

EPILOG = """\b
Examples:
  ebbtide fleet verify --journals ./fleet
  ebbtide fleet verify --journals s3://journals/v1/cluster=prod --jobs 8
  ebbtide fleet verify --journals s3://journals/v1 --engine spark
  ebbtide fleet verify --journals ./fleet -o json | jq '.notIdentical[].node'

STATE is identical where a journal is intact, and every decision in it as recorded. 'replay verify' tells more
of one that is named here, with the first difference explained.
"""


@click.command("verify", epilog=EPILOG)
@journals_option
@engine_options
@output_option("table", "json")
def verify_command(url: str, engine: Engine, output: str) -> int:
    """Execute every journal again, and compare every decision with the recorded one.

    A line a state, then every journal by name that is not intact and identical. The exit code is that of the
    worst journal.
    """
    journals, events = Counter[str](), Counter[str]()
    others, headless = list[dict[str, Any]](), list[dict[str, Any]]()
    for row in rows("verify", plan(url, "verify", engine), engine):
        state = state_of(row)
        journals[state] += 1
        events[state] += row["events"] or 0
        if row["headless"]:
            headless.append(
                {
                    "node": row["node"],
                    "journalId": row["journal_id"],
                    "shutdown": row["headless"],
                    "location": row["location"],
                }
            )
        if state != "identical":
            why = row["divergence"] if state == "diverged" else row["error"]
            others.append(
                {
                    "node": row["node"] or "",
                    "journalId": row["journal_id"],
                    "state": state,
                    "why": why or "",
                    "location": row["location"],
                }
            )
    for each in headless:
        remark(
            f"ebbtide: {each['node']} ({each['location']}): it begins in the middle of {each['shutdown']}: of"
            " it only what is here was compared"
        )
    # As for exit codes: what wins comes first.
    states = sorted(journals, key=lambda state: PRECEDENCE.index(CODES[state]))
    if output == "json":
        show_json(
            {
                "kind": "FleetVerification",
                "version": VERIFICATION_VERSION,
                "journals": journals.total(),
                "events": events.total(),
                "states": {state: journals[state] for state in states},
                "notIdentical": others,
                "headless": headless,
            }
        )
    else:
        told = ((state, str(journals[state]), str(events[state])) for state in states)
        show(NarrowTable(("STATE", "JOURNALS", "EVENTS"), told, right=("JOURNALS", "EVENTS")))
        if others:
            show("")
            headings = ("NODE", "STATE", "JOURNAL", "LOCATION", "WHY")
            names = ("node", "state", "journalId", "location", "why")
            show(NarrowTable(headings, ([each[name] for name in names] for each in others), wraps="WHY"))
    return worst(map(CODES.__getitem__, states))


VERIFICATION_VERSION = 1


def state_of(row: dict[str, Any]) -> str:
    """One word for a journal: the one that wins, as for exit codes."""
    found = [row["state"]]
    if row["divergence"]:
        found.append("diverged")
    state: str = min(found, key=lambda state: PRECEDENCE.index(CODES[state]))
    return "identical" if state == "intact" else state

"""``ebbtide fleet verify``: is every journal of a fleet intact, and a function of its facts?"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Annotated

import click
from msgspec import Struct

from ebbtide.cli.common.guard import PRECEDENCE, worst
from ebbtide.cli.common.output import Heading, remark, show, show_json, struct_table
from ebbtide.cli.common.shared_options import output_option
from ebbtide.cli.fleet import fleet_common

EPILOG = """\b
Examples:
  ebbtide fleet verify --journals ./fleet
  ebbtide fleet verify --journals s3://journals/v1/cluster=prod --jobs 8
  ebbtide fleet verify --journals s3://journals/v1 --engine spark
  ebbtide fleet verify --journals ./fleet -o json | jq '.notIdentical[].node'

STATE is identical where a journal is intact, and every decision in it as recorded. 'replay verify' explains
the first difference in a journal that is named here.
"""


class FleetVerification(Struct, kw_only=True, rename="camel", tag_field="kind", tag="FleetVerification"):
    """``states``: journals by state. ``headless``: shutdowns whose begin is in a removed segment, so that
    only the rest was compared.
    """

    version: int = 1
    journals: int = 0
    events: int = 0
    states: dict[str, int] = {}
    not_identical: list[fleet_common.Problem] = []
    headless: list[fleet_common.Problem] = []


class StateLine(Struct):
    state: Annotated[str, Heading("STATE")]
    journals: Annotated[int, Heading("JOURNALS", right=True)]


def verify_fleet(url: str, engine: fleet_common.Engine) -> FleetVerification:
    """Raises Refused."""
    refs = fleet_common.planned_journals(url, "verify", engine)
    from ebbtide.fleet.fleet_verbs import VERIFY, ask_journals

    found, states = FleetVerification(), Counter[str]()
    for answer in (
        each for part in fleet_common.answers(partial(ask_journals, VERIFY), refs, engine) for each in part
    ):
        state = "identical" if answer.state == "intact" else answer.state
        states[state] += 1
        found.events += answer.events
        problem = fleet_common.Problem.of(answer, answer.headless, state=state)
        if state != "identical":
            found.not_identical.append(problem)
        if answer.headless:
            found.headless.append(problem)
    found.journals = states.total()
    found.states = {
        state: states[state]
        for state in sorted(states, key=lambda each: PRECEDENCE.index(fleet_common.CODES[each]))
    }
    return found


@click.command("verify", epilog=EPILOG)
@fleet_common.journals_option
@fleet_common.engine_options
@output_option("table", "json")
def verify_command(url: str, engine: fleet_common.Engine, output: str) -> int:
    """Execute every journal again, and compare every decision with the recorded one.

    Prints a line for each state, then each journal that is not intact and identical. The exit code is the
    worst journal's.
    """
    found = verify_fleet(url, engine)
    for each in found.headless:
        remark(
            f"ebbtide: {each.node} ({each.location}): it begins in the middle of {each.shutdown}: only the"
            " rest was compared"
        )
    if output == "json":
        show_json(found)
    else:
        show(struct_table([StateLine(*each) for each in found.states.items()]))
        if found.not_identical:
            show("")
            show(struct_table(found.not_identical))
    return worst(map(fleet_common.CODES.__getitem__, found.states))

"""``ebbtide fleet what-if``: what a new configuration would have done to all shutdowns of a fleet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from ebbtide.cli.common.guard import Refused
from ebbtide.cli.common.output import pairs, show, show_json, struct_table
from ebbtide.cli.common.saving import STDOUT, save, spare_journals
from ebbtide.cli.common.shared_options import config_option, output_option
from ebbtide.cli.fleet.fleet_common import (
    POOLS_EPILOG,
    Engine,
    Pools,
    engine_options,
    journals_option,
    journals_text,
    pools_option,
)
from ebbtide.cli.fleet.fleet_risk import GATES, FleetWhatIf, Gate, decide_fleet, risk_page
from ebbtide.events.messages import plural
from ebbtide.events.record.format import visible

EPILOG = (
    """\b
Examples:
  ebbtide fleet what-if --journals ./fleet --config new.yaml
  ebbtide fleet what-if --journals s3://journals/v1 --config new.yaml --gate lost=0
  ebbtide fleet what-if --journals ./fleet --config new.yaml --gate lost=0 --gate perhaps-lost=3
  ebbtide fleet what-if --journals ./fleet --config new.yaml --html risk.html
  ebbtide fleet what-if --journals ./fleet --config new.yaml --pools pools.txt
  ebbtide fleet what-if --journals ./fleet --config new.yaml -o json | jq '.nights[].shutdown'

Each shutdown is decided again as by 'replay what-if', which explains a shutdown that is named here. Where
the record is not conclusive, a pod is perhaps lost or perhaps saved.
"""
    + POOLS_EPILOG
)

ROWS_SHOWN_MAX = 20


class GateType(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # older versions of click have none
    """``NAME=N``."""

    name = "gate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Gate:
        name, equals, most = str(value).partition("=")
        if name not in GATES or not equals or not (most.isascii() and most.isdecimal() and len(most) < 10):
            self.fail(f"{value!r} is no gate: write NAME=N, with {', '.join(GATES)}", param, ctx)
        return Gate(name, int(most))


@click.command("what-if", epilog=EPILOG)
@journals_option
@config_option
@click.option(
    "--gate",
    "gates",
    type=GateType(),
    multiple=True,
    metavar="NAME=N",
    help="NAME: lost, perhaps-lost or not-asked. Exit code 1 if there are more than N of them, or if no"
    " shutdown could be asked; repeatable.",
)
@pools_option
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also write one self-contained page, such as risk.html.",
)
@engine_options
@output_option("table", "json")
def what_if_command(
    url: str,
    configs: tuple[Path, ...],
    gates: tuple[Gate, ...],
    pools: Pools | None,
    html: Path | None,
    engine: Engine,
    output: str,
) -> int:
    """Decide all shutdowns of a fleet again under another configuration: whom it saves, and whom it costs.

    By pool, workload and node, with the worst nights, and the names of all that could not be asked. Exit code
    1: a gate does not hold, whatever the worst journal's code is.
    """
    if not configs:
        raise Refused("name the new configuration with --config FILE")
    if html is not None:
        # Before a journal is read.
        if str(html) == STDOUT:
            raise Refused("--html needs a file, such as risk.html: the result goes to standard output")
        spare_journals(html, "--html")
    found, code = decide_fleet(url, configs, gates, pools, engine)
    if output == "json":
        show_json(found)
    else:
        show_risk(found)
    if html is not None:
        save(html, [risk_page(found).encode()], readable=False, example="risk.html", option="--html")
    return code


def show_risk(found: FleetWhatIf) -> None:

    def interval(certain: int, perhaps: int, expected: float) -> str:
        return f"{certain} … {certain + perhaps}, {expected:.1f} expected" if perhaps else str(certain)

    shutdowns = plural(found.shutdowns, "shutdown")
    show(f"{found.changed[0]}: {found.asked} of {shutdowns} asked, of {journals_text(found.journals)}")
    same = f"{found.same} of the shutdowns stay the same, event for event"
    show(
        pairs(
            [
                ("pods", f"{found.pods}; {same}"),
                ("saved", interval(found.saved, found.perhaps_saved, found.expected_saved)),
                ("lost", interval(found.lost, found.perhaps_lost, found.expected_lost)),
                ("not asked", str(found.not_asked_count)),
            ]
        )
    )
    parts: tuple[Sequence[Struct], ...]
    parts = (found.pools or (), found.workloads, found.nodes, found.nights, found.not_asked)
    for rows in filter(None, parts):
        show("")
        show(struct_table(rows[:ROWS_SHOWN_MAX]))
        if len(rows) > ROWS_SHOWN_MAX:
            show(f"and {len(rows) - ROWS_SHOWN_MAX} more, which -o json has")
    for each in found.gates:
        count = each.found if found.asked else "nothing was asked"
        show(visible(f"gate {each.gate} {'holds' if each.holds else f'does not hold: {count}'}"))

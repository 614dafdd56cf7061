"""``ebbtide outage declare``: a person's statement that a node is off, or that it runs, as an annotation on
the Node.

"Off" names one machine, one boot and its last heartbeat: a running node voids it with its next renewal. So
the command watches for one before it writes. "Alive" names one machine and one boot. It endangers no data,
so it is written at once and without a question.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from ebbtide.cli.common.guard import DONE, Refused
from ebbtide.cli.common.output import remark, show_json
from ebbtide.cli.common.shared_options import DURATION, output_option
from ebbtide.cli.outage.declaration import (
    Statement,
    annotate,
    annotation,
    read_node,
    refuse_living,
    refuse_name,
    statement_of,
    statement_rows,
    user_name,
    whole_seconds,
    withdraw_statement,
    write_off,
)
from ebbtide.cli.outage.outage_common import (
    Cluster,
    Seen,
    ask_cluster,
    by_option,
    kubeconfig_option,
    node_argument,
)
from ebbtide.events.record.format import document
from ebbtide.events.units import short_span, span_s

DECLARATION_VERSION = 1
#: A reason is a sentence; every component reads the Node's object all the time.
REASON_CHARACTERS_MAX = 1000

EPILOG = """\b
Examples:
  ebbtide outage declare worker-2 --off --reason "pulled from the rack"
  ebbtide outage declare worker-2 --off --by ann@example.com --for 4h --yes
  ebbtide outage declare worker-2 --off --withdraw
  ebbtide outage declare worker-2 --alive --for 10m --reason "its database answers"
  ebbtide outage declare worker-2 --alive --withdraw


--off: be sure that the machine is off: if it runs, two nodes write the same data. The declaration names this
Node, this boot and its last heartbeat; a later heartbeat voids it. A running node is refused.

--alive: meanwhile no proof counts for this boot: it gets no taint, and it is not switched off.
"""


@click.command(epilog=EPILOG)
@node_argument
@click.option("--off", "is_off", is_flag=True, help="The machine is off: a proof.")
@click.option("--alive", "is_alive", is_flag=True, help="The node runs: contradicts every proof.")
@by_option
@click.option("--reason", default="", metavar="TEXT", help="For people: on the Node, and not on record.")
@click.option(
    "--for",
    "lasting_ns",
    type=DURATION,
    default="1h",
    show_default=True,
    metavar="DURATION",
    help="How long it counts; up to 168h.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--withdraw",
    is_flag=True,
    help="Take back that it is off (--off may be left out); with --alive, that it runs.",
)
@kubeconfig_option
@output_option("table", "json")
def declare(
    node: str,
    is_off: bool,
    is_alive: bool,
    by: str | None,
    reason: str,
    lasting_ns: int,
    yes: bool,
    withdraw: bool,
    kubeconfig: Path | None,
    output: str,
) -> int:
    """Declare that a machine is off, which is a proof, or that it runs, which contradicts every proof; with
    your name.
    """
    if (is_off and is_alive) or not (is_off or is_alive or withdraw):
        raise Refused(f"say what to declare: 'ebbtide outage declare {node} --off', --alive, or --withdraw")
    if withdraw:
        existed, tainted = ask_cluster(
            kubeconfig, lambda each: withdraw_statement(each, node, alive=is_alive)
        )
        return show_withdrawn(node, existed, tainted, output, alive=is_alive)
    seconds = whole_seconds(lasting_ns)
    if len(reason) > REASON_CHARACTERS_MAX:
        raise Refused(f"--reason has {len(reason)} characters: {REASON_CHARACTERS_MAX} at most")
    if is_alive:
        statement, tainted = declare_alive(kubeconfig, node, by, seconds, reason)
    else:
        statement, tainted = declare_off(kubeconfig, node, by, seconds, reason, yes=yes), False
    if output == "json":
        says = "alive" if is_alive else "off"
        show_json(document("Declaration", DECLARATION_VERSION, statement, node=node, says=says))
    elif is_alive:
        until = f"for {short_span(seconds)}, or until it boots"
        print(f"declared: {node} lives, says {statement.by}; {until}, nothing proves it off")
    else:
        follows = f"'ebbtide outage status {node}' shows what follows"
        print(f"declared: {node} is off, says {statement.by}; {follows}")
    if tainted:
        # The taint deletes its pods all the same.
        remark(
            "our taint is set already, and stays: its pods are started elsewhere, so stop every process that"
            " still writes there"
        )
    return DONE


def declare_off(
    access: Path | None, name: str, by: str | None, seconds: int, reason: str, *, yes: bool
) -> Statement:
    """Raises Refused."""
    from ebbtide.actors.edges.kubernetes.node_view import MISSED_RENEWALS, RENEWAL_FRACTION

    async def look(cluster: Cluster) -> tuple[Seen, str]:
        return await read_node(cluster, name), by or await user_name(cluster)

    seen, who = ask_cluster(access, look)
    looked_at = time.monotonic()
    refuse_living(seen)
    refuse_name(who, given=by is not None)
    statement = statement_of(seen, who, seconds, reason)
    for label, value in statement_rows(seen, statement):
        # On standard error: it is no part of the result.
        remark(f"  {label:<14}  {value}")
    if not yes:
        if not sys.stdin.isatty():
            raise Refused("standard input is no terminal: use --yes")
        if not click.confirm(f"{name} is off: declare it?", err=True):
            raise Refused("nothing was declared")
    # The longest time until a running node's renewal.
    wait_seconds = seen.lease_seconds * RENEWAL_FRACTION * MISSED_RENEWALS - (time.monotonic() - looked_at)
    if wait_seconds > 0:
        remark(f"looking for {span_s(wait_seconds)} whether it renews its lease")

    async def finish(cluster: Cluster) -> None:
        import trio

        await trio.sleep(max(0.0, wait_seconds))
        await write_off(cluster, name, seen, statement)

    ask_cluster(access, finish)
    return statement


def declare_alive(
    access: Path | None, name: str, by: str | None, seconds: int, reason: str
) -> tuple[Statement, bool]:
    """At once: a mistake costs time, and no data. Also whether our taint is set. Raises Refused."""

    async def work(cluster: Cluster) -> tuple[Statement, bool]:
        who = by or await user_name(cluster)
        refuse_name(who, given=by is not None)
        seen = await read_node(cluster, name, lease=False)
        statement = statement_of(seen, who, seconds, reason)
        await annotate(cluster, seen, annotation(statement, alive=True))
        return statement, seen.view.taint == "ours"

    return ask_cluster(access, work)


def show_withdrawn(node: str, existed: bool, tainted: bool, output: str, *, alive: bool) -> int:
    what = "alive" if alive else "off"
    if output == "json":
        show_json(document("Withdrawal", DECLARATION_VERSION, node=node, withdrawn=existed, says=what))
        return DONE
    print(f"withdrawn: {node} is no longer declared {what}" if existed else f"{node} is not declared {what}")
    if tainted and not alive:
        remark("the taint stands: it goes when the node is back")
    return DONE

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
from typing import TYPE_CHECKING, Any

import click

from ebbtide.cli.common.guard import DONE, Refused
from ebbtide.cli.common.output import remark, show_document, show_json
from ebbtide.cli.common.shared_options import DURATION, output_option
from ebbtide.cli.outage.declaration import (
    Seen,
    alive_statement_of,
    annotate,
    annotation,
    get_node,
    read_node,
    refuse_living,
    statement_of,
    user_name,
    withdraw_statement,
    write,
)
from ebbtide.cli.outage.outage_common import (
    Cluster,
    ago,
    ask_cluster,
    chosen_kubeconfig,
    kubeconfig_option,
    node_argument,
    ready_text,
)
from ebbtide.events.units import short_span, span_s

if TYPE_CHECKING:
    pass

DECLARATION_VERSION = 1
#: A reason is a sentence; every component reads the Node's object all the time.
REASON_CHARACTERS_MAX = 1000

EPILOG = """\b
Examples:
  ebbtide outage declare worker-2 --off --reason "pulled from the rack"
  ebbtide outage declare worker-2 --off --by ann@example.com --for 4h --yes
  ebbtide outage declare worker-2 --off --print > worker-2-is-off.yaml
  ebbtide outage declare worker-2 --off --withdraw
  ebbtide outage declare worker-2 --alive --for 10m --reason "its database answers"
  ebbtide outage declare worker-2 --alive --withdraw


--off: be sure that the machine is off: if it runs, two nodes write the same data. The declaration names this
Node, this boot and its last heartbeat; a later heartbeat voids it. A running node is refused.

--alive: meanwhile no proof counts for this boot: it gets no taint, and it is not switched off.
"""


def _show_what(seen: Seen, by: str, seconds: int, reason: str) -> None:
    """On standard error: it is no part of the result."""
    from ebbtide.actors.edges.kubernetes.node_view import project_node

    view = project_node(seen.node)
    heard = ago(seen.mark)
    rows = [
        ("node", f"{view.name}, {ready_text(seen.node.status.conditions)}"),
        ("UID", seen.uid),
        ("machine", view.system_uuid or "not said"),
        ("boot id", seen.boot),
        ("last heartbeat", f"{seen.mark}{f' ({heard}, by this clock)' if heard else ''}"),
        ("counts for", f"{short_span(seconds)}, from when the controller sees it"),
        ("by", by),
    ]
    rows += [("reason", reason)] if reason else []
    rows += [("replaces", f"what {view.declared.by or 'somebody'} said")] if view.declared else []
    for name, value in rows:
        remark(f"  {name:<14}  {value}")


@click.command(epilog=EPILOG)
@node_argument
@click.option("--off", "is_off", is_flag=True, help="The machine is off: a proof.")
@click.option(
    "--alive",
    "is_alive",
    is_flag=True,
    help="The node runs: contradicts every proof.",
)
@click.option(
    "--by", metavar="NAME", help="Who says so; it goes on record.  [default: your user name in the cluster]"
)
@click.option(
    "--reason",
    default="",
    metavar="TEXT",
    help="Why, for people. It stands on the Node, and goes on no record.",
)
@click.option(
    "--for",
    "lasting_ns",
    type=DURATION,
    default="1h",
    show_default=True,
    metavar="DURATION",
    help="How long that counts; up to 168h.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--withdraw",
    is_flag=True,
    help="Take back that it is off (--off may be left out); with --alive, that it runs.",
)
@click.option(
    "--print",
    "only_print",
    is_flag=True,
    help="Print the annotation, for a repository, and write nothing to the cluster.",
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
    only_print: bool,
    kubeconfig: str | None,
    output: str,
) -> int:
    """Declare that a machine is off, which is a proof, or that it runs, which contradicts every proof; with
    your name.
    """
    if (is_off and is_alive) or not (is_off or is_alive or withdraw):
        raise Refused(f"say what to declare: 'ebbtide outage declare {node} --off', --alive, or --withdraw")
    if withdraw and only_print:
        raise Refused(
            "--print writes nothing, and --withdraw takes away: leave one of them out, or take the annotation"
            " out of your repository"
        )
    access = chosen_kubeconfig(kubeconfig)
    if withdraw:
        done = ask_cluster(access, lambda each: withdraw_statement(each, node, alive=is_alive))
        return _say_withdrawn(node, *done, output, alive=is_alive)
    seconds = _seconds(lasting_ns)
    if len(reason) > REASON_CHARACTERS_MAX:
        raise Refused(f"--reason has {len(reason)} characters: {REASON_CHARACTERS_MAX} at most")
    if is_alive:
        return _declare_alive(access, node, by, seconds, reason, output, only_print=only_print)

    async def look(cluster: Cluster) -> tuple[Seen, str]:
        return await read_node(cluster, node), by or await user_name(cluster)

    seen, who = ask_cluster(access, look)
    looked_at = time.monotonic()
    refuse_living(seen)
    _refuse_name(who, given=by is not None)
    _show_what(seen, who, seconds, reason)
    if not (yes or only_print):
        if not sys.stdin.isatty():
            raise Refused("standard input is no terminal: use --yes")
        if not click.confirm(f"{node} is off: declare it?", err=True):
            raise Refused("nothing was declared")
    statement = statement_of(seen, who, seconds, reason)
    wait_seconds = _watch_seconds(seen) - (time.monotonic() - looked_at)
    if wait_seconds > 0:
        remark(f"looking for {span_s(wait_seconds)} whether it renews its lease")

    async def finish(cluster: Cluster) -> None:
        import trio

        await trio.sleep(max(0.0, wait_seconds))
        if only_print:
            refuse_living(await read_node(cluster, node), seen)
        else:
            await write(cluster, node, seen, statement)

    ask_cluster(access, finish)
    return _say_declared(node, statement, output, alive=False, only_print=only_print)


def _declare_alive(
    access: Path | None,
    name: str,
    by: str | None,
    seconds: int,
    reason: str,
    output: str,
    *,
    only_print: bool,
) -> int:
    """At once: a mistake costs time, and no data. It does not cover a later boot."""
    from ebbtide.actors.edges.kubernetes.node_view import project_node

    async def work(cluster: Cluster) -> tuple[dict[str, Any], bool]:
        who = by or await user_name(cluster)
        _refuse_name(who, given=by is not None)
        node = await get_node(cluster, name)
        statement = alive_statement_of(node, who, seconds, reason)
        if not only_print:
            await annotate(cluster, node, annotation(statement, alive=True))
        return statement, project_node(node).taint == "ours"

    statement, tainted = ask_cluster(access, work)
    code = _say_declared(name, statement, output, alive=True, only_print=only_print)
    if tainted:
        # Warn: the taint deletes its pods all the same.
        taken = "its pods are started elsewhere, so stop what still writes there"
        remark(f"our taint stands already, and is not taken away by that: {taken}")
    return code


def _say_declared(name: str, statement: dict[str, Any], output: str, *, alive: bool, only_print: bool) -> int:
    if only_print:
        meta = {"name": name, "annotations": annotation(statement, alive=alive)}
        made = {"apiVersion": "v1", "kind": "Node", "metadata": meta}
        show_document(made, "json" if output == "json" else "yaml")
    elif output == "json":
        said = {"kind": "Declaration", "version": DECLARATION_VERSION, "node": name, **statement}
        show_json(said | {"says": "alive" if alive else "off"})
    elif alive:
        until = f"for {short_span(statement['seconds'])}, or until it boots"
        print(f"declared: {name} lives, says {statement['by']}; {until}, nothing proves it off")
    else:
        what = f"{name} is off, says {statement['by']}"
        print(f"declared: {what}; 'ebbtide outage status {name}' tells what follows")
    return DONE


def _seconds(lasting_ns: int) -> int:
    """Raises Refused."""
    from ebbtide.actors.edges.kubernetes.node_view import DECLARED_SECONDS_MAX
    from ebbtide.events.base import NS_PER_SECOND

    seconds, rest_ns = divmod(lasting_ns, NS_PER_SECOND)
    if rest_ns or not 0 < seconds <= DECLARED_SECONDS_MAX:
        raise Refused("--for must be whole seconds, from 1s to 168h: what lasts longer is declared again")
    return seconds


def _refuse_name(who: str, *, given: bool) -> None:
    """Raises Refused."""
    from ebbtide.actors.edges.kubernetes.node_view import PERSON

    if not who:
        raise Refused("your name in the cluster cannot stand on record: say who you are with --by NAME")
    if given and not PERSON.fullmatch(who):
        raise Refused(f"--by {who!r}: up to 64 letters, digits and ._@+-, as in ann@example.com")


def _watch_seconds(seen: Seen) -> float:
    """The longest time until a running node's renewal."""
    from ebbtide.actors.edges.kubernetes.node_view import MISSED_RENEWALS, RENEWAL_FRACTION

    return seen.lease_seconds * RENEWAL_FRACTION * MISSED_RENEWALS


def _say_withdrawn(node: str, was_there: bool, tainted: bool, output: str, *, alive: bool) -> int:
    if output == "json":
        said = {"kind": "Withdrawal", "version": DECLARATION_VERSION, "node": node, "withdrawn": was_there}
        show_json(said | {"says": "alive" if alive else "off"})
        return DONE
    if alive:
        print(
            f"withdrawn: nobody says any more that {node} lives"
            if was_there
            else f"nobody says that {node} lives"
        )
        return DONE
    print(
        f"withdrawn: nothing is declared of {node} any more"
        if was_there
        else f"nothing is declared of {node}"
    )
    if tainted:
        remark("the taint stands: it goes when the node is back")
    return DONE

"""``ebbtide outage declare``: a person's statement that a node is off, or that it runs, as an annotation on
the Node.

"Off" names one machine, one boot and its last heartbeat. A running node voids it with its next renewal, so
the command first watches for one. "Alive" endangers no data, so it is written at once and without a question.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import click
import msgspec
import trio

from ebbtide.actors.edges.kubernetes.api_calls import MERGE_PATCH, Answer, node_path, rfc3339_now
from ebbtide.actors.edges.kubernetes.node_view import (
    ALIVE_ANNOTATION,
    DECLARED_ANNOTATION,
    DECLARED_SECONDS_MAX,
    MISSED_RENEWALS,
    PERSON,
    RENEWAL_FRACTION,
)
from ebbtide.cli.common.guard import DONE, Refused
from ebbtide.cli.common.output import remark, show_json
from ebbtide.cli.common.shared_options import DURATION, output_option
from ebbtide.cli.outage.outage_common import (
    HTTP_CONFLICT,
    Cluster,
    Seen,
    ago,
    alive_by,
    ask_cluster,
    by_option,
    decoded,
    kubeconfig_option,
    node_argument,
    refused,
    see_node,
)
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.record.format import document
from ebbtide.events.units import short_span, span_s

DECLARATION_VERSION = 1
#: A sentence; every component reads the Node's object all the time.
REASON_CHARACTERS_MAX = 1000
REVIEW_SELF = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
#: Other clients write to the Node too.
TRIES_MAX = 5

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


class Statement(msgspec.Struct, omit_defaults=True, kw_only=True):
    """``mark``: the last heartbeat, for "off". ``at`` distinguishes it from an expired one."""

    uid: str
    boot: str
    mark: str = ""
    by: str
    seconds: int
    at: str
    reason: str = ""


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
    help="Withdraw the statement that it is off; with --alive, that it runs.",
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
    says = "alive" if is_alive else "off"
    if withdraw:
        return _withdraw(kubeconfig, node, says, output)
    seconds, rest_ns = divmod(lasting_ns, NS_PER_SECOND)
    if rest_ns or not 0 < seconds <= DECLARED_SECONDS_MAX:
        raise Refused("--for must be whole seconds, from 1s to 168h: declare again for longer")
    if len(reason) > REASON_CHARACTERS_MAX:
        raise Refused(f"--reason has {len(reason)} characters: {REASON_CHARACTERS_MAX} at most")
    if is_alive:
        statement, tainted = _declare_alive(kubeconfig, node, by, seconds, reason)
    else:
        statement, tainted = _declare_off(kubeconfig, node, by, seconds, reason, yes=yes), False
    if output == "json":
        show_json(document("Declaration", DECLARATION_VERSION, statement, node=node, says=says))
    elif is_alive:
        until = f"for {short_span(seconds)}, or until it boots"
        print(f"declared: {node} is alive, by {statement.by}; {until}, no proof counts")
    else:
        follows = f"'ebbtide outage status {node}' shows what follows"
        print(f"declared: {node} is off, by {statement.by}; {follows}")
    if tainted:
        remark(
            "our taint is set already, and stays: its pods are started elsewhere, so stop every process that"
            " still writes there"
        )
    return DONE


def _declare_off(
    access: Path | None, name: str, by: str | None, seconds: int, reason: str, *, yes: bool
) -> Statement:
    """Raises Refused."""

    async def look(cluster: Cluster) -> tuple[Seen, str]:
        return await read_node(cluster, name), by or await user_name(cluster)

    seen, who = ask_cluster(access, look)
    looked_at = time.monotonic()
    refuse_living(seen)
    refuse_name(who, given=by is not None)
    statement = statement_of(seen, who, seconds, reason)
    view, heard = seen.view, ago(seen.mark)
    # Not part of the result: on standard error.
    for label, value in (
        ("node", f"{view.name}, {seen.ready}"),
        ("UID", view.uid),
        ("machine", view.system_uuid or "not in its status"),
        ("boot id", view.boot_id),
        ("last heartbeat", f"{seen.mark}{f' ({heard}, by this clock)' if heard else ''}"),
        ("counts for", f"{short_span(statement.seconds)}, from when the controller sees it"),
        ("by", statement.by),
        ("reason", statement.reason),
        ("replaces", f"the statement of {view.declared.by or 'an unknown person'}" if view.declared else ""),
    ):
        if value:
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
        await trio.sleep(max(0.0, wait_seconds))
        await write_off(cluster, name, seen, statement)

    ask_cluster(access, finish)
    return statement


def _declare_alive(
    access: Path | None, name: str, by: str | None, seconds: int, reason: str
) -> tuple[Statement, bool]:
    """At once: a mistake costs time, and no data. Also whether our taint is set. Raises Refused."""

    async def work(cluster: Cluster) -> tuple[Statement, bool]:
        who = by or await user_name(cluster)
        refuse_name(who, given=by is not None)
        seen = await read_node(cluster, name, lease=False)
        statement = statement_of(seen, who, seconds, reason)
        await _annotate(cluster, seen, ALIVE_ANNOTATION, statement)
        return statement, seen.view.taint == "ours"

    return ask_cluster(access, work)


def _withdraw(access: Path | None, node: str, says: str, output: str) -> int:
    """Raises Refused."""
    name = ALIVE_ANNOTATION if says == "alive" else DECLARED_ANNOTATION

    async def work(cluster: Cluster) -> tuple[bool, bool]:
        seen = await read_node(cluster, node, lease=False)
        existed = name in seen.node.metadata.annotations
        if existed:
            await _annotate(cluster, seen, name, None)
        return existed, seen.view.taint == "ours"

    existed, tainted = ask_cluster(access, work)
    if output == "json":
        show_json(document("Withdrawal", DECLARATION_VERSION, node=node, withdrawn=existed, says=says))
        return DONE
    print(f"withdrawn: {node} is no longer declared {says}" if existed else f"{node} is not declared {says}")
    if tainted and says == "off":
        remark("the taint stays: the controller removes it when the node is back")
    return DONE


async def read_node(cluster: Cluster, name: str, *, lease: bool = True) -> Seen:
    """Raises Refused."""
    seen = await see_node(cluster, name, lease=lease)
    if seen is None:
        raise Refused(f"there is no Node {name}: 'kubectl get nodes' lists them")
    return seen


def statement_of(seen: Seen, by: str, seconds: int, reason: str) -> Statement:
    """Raises Refused."""
    view = seen.view
    if not view.boot_id:
        raise Refused(
            f"{view.name} has no boot id in its status, and a statement has to name one: wait for its"
            " kubelet's status"
        )
    return Statement(
        uid=view.uid,
        boot=view.boot_id,
        mark=seen.mark,
        by=by,
        seconds=seconds,
        at=rfc3339_now(),
        reason=reason,
    )


async def user_name(cluster: Cluster) -> str:
    """Our name at the API server; empty if it does not fit the record."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = await cluster.call("POST", REVIEW_SELF, review)
    if not answer.ok:
        return ""
    status = decoded(answer, "ask who we are", dict[str, Any]).get("status") or {}
    name = str((status.get("userInfo") or {}).get("username") or "")
    return name if PERSON.fullmatch(name) else ""


def refuse_name(who: str, *, given: bool) -> None:
    """Raises Refused."""
    if not who:
        raise Refused("your name in the cluster does not fit the record: say who you are with --by NAME")
    if given and not PERSON.fullmatch(who):
        raise Refused(f"--by {who!r}: up to 64 letters, digits and ._@+-, as in ann@example.com")


def refuse_living(seen: Seen, before: Seen | None = None) -> None:
    """Raises Refused for a node that lives, for another one than ``before``, or where this boot is declared
    alive: that statement would win.
    """
    view, name = seen.view, seen.view.name
    none = "it is alive: nothing was declared"
    if before is not None and view.uid != before.view.uid:
        raise Refused(f"the Node {name} was deleted and made anew meanwhile: nothing was declared")
    if before is not None and view.boot_id != before.view.boot_id:
        raise Refused(f"{name} has booted meanwhile (boot id {view.boot_id}): {none}")
    if before is not None and seen.mark != before.mark:
        raise Refused(f"{name} renewed its lease {ago(seen.mark) or 'meanwhile'}: {none}")
    if before is not None and view.status_mark != before.view.status_mark:
        raise Refused(f"{name} reported its status meanwhile: {none}")
    if who := alive_by(view):
        raise Refused(
            f"{who} has declared {name} alive, so it cannot be declared off: ask them, then withdraw that"
            f" with 'ebbtide outage declare {name} --alive --withdraw'"
        )
    if seen.ready == "Ready":
        raise Refused(
            f"{name} is Ready: it is alive, or died less than a minute ago; declare it once it is Unknown"
        )
    if not seen.mark:
        raise Refused(
            f"{name} has no lease, or it was never renewed: a statement has to name its last heartbeat"
        )


async def write_off(cluster: Cluster, name: str, seen: Seen, statement: Statement) -> None:
    """Only if the Node did not change since the comparison. Raises Refused."""
    for _ in range(TRIES_MAX):
        now = await read_node(cluster, name)
        refuse_living(now, seen)
        version = now.node.metadata.resource_version
        if (await _annotate(cluster, now, DECLARED_ANNOTATION, statement, resourceVersion=version)).ok:
            return
    raise Refused(f"{name} was changed by others at each of {TRIES_MAX} tries: try again")


async def _annotate(
    cluster: Cluster, seen: Seen, name: str, statement: Statement | None, **meta: str
) -> Answer:
    """None: remove it. Only if the Node has the same UID and ``meta``. Raises Refused, but not for a
    conflict.
    """
    text = None if statement is None else msgspec.json.encode(statement).decode()
    body = {"metadata": {"uid": seen.view.uid, **meta, "annotations": {name: text}}}
    answer = await cluster.call("PATCH", node_path(seen.view.name), body, MERGE_PATCH)
    if not answer.ok and not (meta and answer.code == HTTP_CONFLICT):
        raise refused(answer, f"patch the Node {seen.view.name}")
    return answer

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
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ebbtide.cli.common.guard import DONE, Refused
from ebbtide.cli.common.output import remark, show_document, show_json
from ebbtide.cli.common.shared_options import DURATION, output_option
from ebbtide.cli.outage.outage_common import (
    HTTP_CONFLICT,
    Cluster,
    ago,
    alive_by,
    ask_cluster,
    chosen_kubeconfig,
    decoded,
    kubeconfig_option,
    node_argument,
    ready_text,
    refused,
)
from ebbtide.events.units import short_span, span_s

if TYPE_CHECKING:
    from ebbtide.actors.edges.kubernetes.api_calls import ApiNode

DECLARATION_VERSION = 1
REVIEW_SELF = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
#: A reason is a sentence; every component reads the Node's object all the time.
REASON_CHARACTERS_MAX = 1000
#: Other clients write to the Node too; each try compares it again.
TRIES_MAX = 5

EPILOG = """\b
Examples:
  ebbtide outage declare worker-2 --off --reason "pulled from the rack"
  ebbtide outage declare worker-2 --off --by ann@example.com --for 4h --yes
  ebbtide outage declare worker-2 --off --print > worker-2-is-off.yaml
  ebbtide outage declare worker-2 --off --withdraw
  ebbtide outage declare worker-2 --alive --for 10m --reason "its database answers"
  ebbtide outage declare worker-2 --alive --withdraw


--off: be sure that the machine is off: if it runs, two nodes write the same data. The statement names this
Node, this boot and its last heartbeat; any heartbeat after that voids it. A node that lives is refused.

--alive: as long as that stands, nothing proves this boot off: no taint is set, and nothing is switched off.
"""


class Seen(NamedTuple):
    """A node and its last heartbeats. ``mark``: the lease's renewTime."""

    node: ApiNode
    mark: str
    lease_seconds: int

    @property
    def uid(self) -> str:
        return self.node.metadata.uid

    @property
    def boot(self) -> str:
        return self.node.status.node_info.boot_id

    @property
    def status_mark(self) -> str:
        from ebbtide.actors.edges.kubernetes.api_calls import find_condition

        return str((find_condition(self.node.status.conditions, "Ready") or {}).get("lastHeartbeatTime"))


async def read_node(cluster: Cluster, name: str) -> Seen:
    """The present Node and lease. Raises Refused."""
    from ebbtide.actors.edges.kubernetes.node_view import ApiLease, lease_path, project_lease

    node = await _get_node(cluster, name)
    lease = await cluster.one(lease_path(name), ApiLease)
    view = project_lease(lease or ApiLease())
    return Seen(node, view.mark, view.seconds)


async def _user_name(cluster: Cluster) -> str:
    """Our name at the API server, if it fits a person's name; else empty."""
    from ebbtide.actors.edges.kubernetes.node_view import PERSON

    answer = await cluster.call(
        "POST", REVIEW_SELF, {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    )
    if not answer.ok:
        return ""
    name = (
        decoded(answer, "ask who we are", dict[str, Any])
        .get("status", {})
        .get("userInfo", {})
        .get("username", "")
    )
    return name if PERSON.fullmatch(str(name)) else ""


def refuse_living(seen: Seen, before: Seen | None = None) -> None:
    """Raises Refused for a node that must not be declared off; ``before``: an earlier reading."""
    name = seen.node.metadata.name
    if before is not None and seen.uid != before.uid:
        raise Refused(
            f"{name} was made anew meanwhile, with UID {seen.uid}: look again, and declare that one"
        )
    if before is not None and seen.boot != before.boot:
        raise Refused(f"{name} has booted meanwhile (boot id {seen.boot}): it lives, nothing is declared")
    if before is not None and seen.mark != before.mark:
        raise Refused(
            f"{name} renewed its lease {ago(seen.mark) or 'meanwhile'}: it lives, nothing is declared"
        )
    if before is not None and seen.status_mark != before.status_mark:
        raise Refused(f"{name} reported its status meanwhile: it lives, nothing is declared")
    _refuse_contradicted(seen)
    if ready_text(seen.node.status.conditions) == "Ready":
        raise Refused(
            f"{name} is Ready: it lives, or has died less than a minute ago; declare it when it is Unknown"
        )
    if not seen.boot:
        raise Refused(f"{name} has no boot id in its status: a statement has to name one")
    if not seen.mark:
        raise Refused(
            f"{name} has no lease, or it was never renewed: a statement has to name its last heartbeat"
        )


def _refuse_contradicted(seen: Seen) -> None:
    """Raises Refused where this boot is declared alive: that statement would win."""
    from ebbtide.actors.edges.kubernetes.node_view import project_node

    name = seen.node.metadata.name
    if who := alive_by(project_node(seen.node)):
        raise Refused(
            f"{who} has declared that {name} lives, and that wins: ask, then take it back with"
            f" 'ebbtide outage declare {name} --alive --withdraw'"
        )


def statement_of(seen: Seen, by: str, seconds: int, reason: str) -> dict[str, Any]:
    """The annotation's content; ``at`` distinguishes it from an expired one with the same words."""
    from ebbtide.actors.edges.kubernetes.api_calls import rfc3339_now

    said = {"uid": seen.uid, "boot": seen.boot, "mark": seen.mark, "by": by, "seconds": seconds}
    said |= {"at": rfc3339_now()}
    return said | ({"reason": reason} if reason else {})


def alive_statement_of(node: ApiNode, by: str, seconds: int, reason: str) -> dict[str, Any]:
    """The same for a running node. Raises Refused."""
    from ebbtide.actors.edges.kubernetes.api_calls import rfc3339_now

    boot = node.status.node_info.boot_id
    if not boot:
        raise Refused(f"{node.metadata.name} has no boot id in its status: it has never been heard of")
    said = {"uid": node.metadata.uid, "boot": boot, "by": by, "seconds": seconds, "at": rfc3339_now()}
    return said | ({"reason": reason} if reason else {})


def _annotation(statement: dict[str, Any] | None, *, alive: bool = False) -> dict[str, str | None]:
    import msgspec

    from ebbtide.actors.edges.kubernetes.node_view import ALIVE_ANNOTATION, DECLARED_ANNOTATION

    text = None if statement is None else msgspec.json.encode(statement).decode()
    return {ALIVE_ANNOTATION if alive else DECLARED_ANNOTATION: text}


async def _get_node(cluster: Cluster, name: str) -> ApiNode:
    """Raises Refused."""
    from ebbtide.actors.edges.kubernetes.api_calls import ApiNode, node_path

    node = await cluster.one(node_path(name), ApiNode)
    if node is None:
        raise Refused(f"there is no Node {name}: 'kubectl get nodes' lists them")
    return node


async def _annotate(cluster: Cluster, node: ApiNode, annotations: dict[str, str | None]) -> None:
    """Only if the Node has the same UID. Raises Refused."""
    from ebbtide.actors.edges.kubernetes.api_calls import MERGE_PATCH, node_path

    meta = node.metadata
    body = {"metadata": {"uid": meta.uid, "annotations": annotations}}
    answer = await cluster.call("PATCH", node_path(meta.name), body, MERGE_PATCH)
    if not answer.ok:
        raise refused(answer, f"patch the Node {meta.name}")


async def write(cluster: Cluster, name: str, seen: Seen, statement: dict[str, Any]) -> None:
    """Only if the Node did not change since the comparison. Raises Refused."""
    from ebbtide.actors.edges.kubernetes.api_calls import MERGE_PATCH, node_path

    for _ in range(TRIES_MAX):
        now = await read_node(cluster, name)
        refuse_living(now, seen)
        meta = {"uid": now.uid, "resourceVersion": now.node.metadata.resource_version}
        body = {"metadata": {**meta, "annotations": _annotation(statement)}}
        answer = await cluster.call("PATCH", node_path(name), body, MERGE_PATCH)
        if answer.ok:
            return
        if answer.code != HTTP_CONFLICT:
            raise refused(answer, f"patch the Node {name}")
    raise Refused(f"{name} was changed by others at each of {TRIES_MAX} tries: try again")


async def _withdraw(cluster: Cluster, name: str, *, alive: bool) -> tuple[bool, bool]:
    """Whether an annotation existed, and whether our taint is set. Raises Refused."""
    from ebbtide.actors.edges.kubernetes.node_view import project_node

    node = await _get_node(cluster, name)
    tainted = project_node(node).taint == "ours"
    nothing = _annotation(None, alive=alive)
    if not nothing.keys() & node.metadata.annotations.keys():
        return False, tainted
    await _annotate(cluster, node, nothing)
    return True, tainted


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
    help="The node runs, whoever says otherwise: contradicts every proof.",
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
    help="Print the annotation, for whoever applies it from a repository, and write nothing.",
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
        done = ask_cluster(access, lambda each: _withdraw(each, node, alive=is_alive))
        return _say_withdrawn(node, *done, output, alive=is_alive)
    seconds = _seconds(lasting_ns)
    if len(reason) > REASON_CHARACTERS_MAX:
        raise Refused(f"--reason has {len(reason)} characters: {REASON_CHARACTERS_MAX} at most")
    if is_alive:
        return _declare_alive(access, node, by, seconds, reason, output, only_print=only_print)

    async def look(cluster: Cluster) -> tuple[Seen, str]:
        return await read_node(cluster, node), by or await _user_name(cluster)

    seen, who = ask_cluster(access, look)
    looked_at = time.monotonic()
    refuse_living(seen)
    _refuse_name(who, given=by is not None)
    _show_what(seen, who, seconds, reason)
    if not (yes or only_print):
        if not sys.stdin.isatty():
            raise Refused("nobody is there to be asked: say --yes")
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
        who = by or await _user_name(cluster)
        _refuse_name(who, given=by is not None)
        node = await _get_node(cluster, name)
        statement = alive_statement_of(node, who, seconds, reason)
        if not only_print:
            await _annotate(cluster, node, _annotation(statement, alive=True))
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
        meta = {"name": name, "annotations": _annotation(statement, alive=alive)}
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

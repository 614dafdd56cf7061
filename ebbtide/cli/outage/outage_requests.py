"""``ebbtide outage pause`` and ``close``: what a person asks of the controller, on its Lease."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from ebbtide.actors.edges.kubernetes.api_calls import MERGE_PATCH, rfc3339_now
from ebbtide.actors.edges.kubernetes.leadership import LEASE
from ebbtide.actors.edges.kubernetes.lease_requests import (
    ALL,
    REQUESTS_ANNOTATION,
    REQUESTS_CHARACTERS_MAX,
    WHY_CHARACTERS_MAX,
    Request,
    Requests,
    read_requests,
)
from ebbtide.cli.common.guard import DONE, Refused
from ebbtide.cli.common.output import remark, show_json
from ebbtide.cli.common.shared_options import output_option
from ebbtide.cli.outage.outage_common import (
    HTTP_CONFLICT,
    NODE_NAME,
    Cluster,
    Seen,
    age_seconds,
    ask_cluster,
    by_option,
    kubeconfig_option,
    leader_path,
    namespace_option,
    node_argument,
    refused,
    see_node,
)
from ebbtide.cli.outage.outage_declare import TRIES_MAX, refuse_name, user_name
from ebbtide.events.record.format import document

REQUEST_VERSION = 1
#: By then each leader has read it.
CLOSE_SECONDS = 86400.0

PAUSE_EPILOG = """\b
Examples:
  ebbtide outage pause --why "the array is being moved"
  ebbtide outage pause worker-2 --why "its firmware is being updated"
  ebbtide outage pause worker-2 --withdraw
  ebbtide outage pause --withdraw


While it is paused, the controller sets no taint and switches no machine off. It goes on recording, and
removes its taints from nodes that are back. Needs get and patch of the controller's Lease.
"""

CLOSE_EPILOG = """\b
Examples:
  ebbtide outage close worker-2 --why "db was scaled down in the meantime"


The controller stops waiting for what hangs. The outage ends now if its node is back or its Node is gone, else
when that happens. If the node was proved off and runs, our taints are removed once it is Ready: check its
volumes first. Needs get and patch of the controller's Lease.
"""


@click.command(epilog=PAUSE_EPILOG)
@click.argument("node", type=NODE_NAME, required=False)
@click.option("--why", default="", metavar="TEXT", help="The reason, for other people: stored on the Lease.")
@by_option
@click.option("--withdraw", is_flag=True, help="End this pause.")
@kubeconfig_option
@namespace_option
@output_option("table", "json")
def pause(
    node: str | None,
    why: str,
    by: str | None,
    withdraw: bool,
    kubeconfig: Path | None,
    namespace: str,
    output: str,
) -> int:
    """Have the controller set no taint and switch no machine off, of one node or of all."""
    asked = None if withdraw else _request(kubeconfig, by, why)

    def change(found: Requests) -> Requests:
        kept = {name: each for name, each in found.pause.items() if name != (node or ALL)}
        added: dict[str, Request] = {} if asked is None else {node or ALL: asked}
        return Requests(pause=kept | added, close=found.close)

    left = ask_cluster(kubeconfig, lambda each: _change(each, namespace, change))
    if node and asked is not None:
        _find_node(kubeconfig, node, "the pause is for a later Node of that name")
    if output == "json":
        show_json(document("Pause", REQUEST_VERSION, node=node, paused=not withdraw))
        return DONE
    what = node or "every node"
    if asked is not None:
        print(f"paused: no taint and no power-off of {what}, by {asked.by}")
    elif still := left.paused(node or ALL) or ", ".join(left.pause):
        print(f"withdrawn; still paused: {still}")
    else:
        print(f"withdrawn: {what} is not paused")
    return DONE


@click.command(epilog=CLOSE_EPILOG)
@node_argument
@click.option("--why", required=True, metavar="TEXT", help="The reason, for the record.")
@by_option
@kubeconfig_option
@namespace_option
@output_option("table", "json")
def close(node: str, why: str, by: str | None, kubeconfig: Path | None, namespace: str, output: str) -> int:
    """Close a node's outage: stop waiting for what still hangs."""
    if not why.strip():
        raise Refused("--why is empty: name the reason, for the record")
    asked = _request(kubeconfig, by, why)

    def change(found: Requests) -> Requests:
        kept = {name: each for name, each in found.close.items() if age_seconds(each.at) < CLOSE_SECONDS}
        return Requests(pause=found.pause, close={**kept, node: asked})

    ask_cluster(kubeconfig, lambda each: _change(each, namespace, change))
    seen = _find_node(kubeconfig, node, "an outage of that name ends now")
    if output == "json":
        show_json(document("Close", REQUEST_VERSION, node=node, by=asked.by, why=why))
    else:
        print(f"asked: {asked.by} closes the outage; 'ebbtide outage status {node}' shows what follows")
    if seen is not None and seen.ready != "Ready":
        remark(f"{node} is {seen.ready}: its outage ends when it is back, or when its Node is deleted")
    return DONE


def _find_node(access: Path | None, node: str, without: str) -> Seen | None:
    """The request stays without a Node of this name, or the right to read it."""
    try:
        seen: Seen | None = ask_cluster(access, lambda each: see_node(each, node, lease=False))
    except Refused as refused:
        remark(f"{node} cannot be read: {refused}")
        return None
    if seen is None:
        remark(f"there is no Node {node}: {without}")
    return seen


def _request(access: Path | None, by: str | None, why: str) -> Request:
    """Raises Refused."""
    if len(why) > WHY_CHARACTERS_MAX:
        raise Refused(f"--why has {len(why)} characters: {WHY_CHARACTERS_MAX} at most")
    who = by or ask_cluster(access, user_name)
    refuse_name(who, given=by is not None)
    return Request(by=who, at=rfc3339_now(), why=why)


async def _change(cluster: Cluster, namespace: str, change: Any) -> Requests:
    """Compare and swap: the leader writes the Lease every two seconds. Raises Refused."""
    path = leader_path(namespace)
    for _ in range(TRIES_MAX):
        lease = await cluster.one(path, dict[str, Any])
        if lease is None:
            raise Refused(
                f"no controller has ever led in {namespace} (it has no Lease {LEASE}): name another with"
                " --namespace"
            )
        made: Requests = change(read_requests(lease))
        text = msgspec.json.encode(made).decode()
        if len(text) > REQUESTS_CHARACTERS_MAX:
            raise Refused("there are too many requests on the Lease: withdraw pauses of nodes that are gone")
        meta = {
            "resourceVersion": lease["metadata"]["resourceVersion"],
            "annotations": {REQUESTS_ANNOTATION: text if made.pause or made.close else None},
        }
        answer = await cluster.call("PATCH", path, {"metadata": meta}, MERGE_PATCH)
        if answer.ok:
            return made
        if answer.code != HTTP_CONFLICT:
            raise refused(answer, f"patch the Lease {LEASE}")
    raise Refused(f"the Lease was changed by others at each of {TRIES_MAX} tries: try again")

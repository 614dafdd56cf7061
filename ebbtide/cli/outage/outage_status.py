"""``ebbtide outage ls`` and ``status``: the open outages of all nodes, and one node's outage."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from ebbtide.actors.edges.kubernetes.api_calls import for_each
from ebbtide.cli.common.guard import DONE, NOT_SO, worst
from ebbtide.cli.common.output import pairs, remark, show, show_json
from ebbtide.cli.common.shared_options import output_option
from ebbtide.cli.outage.outage_common import (
    Cluster,
    ago,
    ask_cluster,
    kubeconfig_option,
    leader_of,
    namespace_option,
    node_argument,
    see_node,
)
from ebbtide.cli.outage.outage_summary import (
    Controller,
    Damaged,
    Found,
    NodeNow,
    OutageStatus,
    OutageSummary,
    controller_of,
    list_parts,
    newest_outage,
    outages_of,
    parts,
    stored_journals,
    summary_of,
)
from ebbtide.events.record.outage_record import OutageRecord

LS_EPILOG = """\b
Examples:
  ebbtide outage ls
  ebbtide outage ls --all -o json | jq -r '.outages[].outcome'


Begins with the controller that leads, and with why its record is behind the cluster. Read from its
journals; only --all reads those without an open outage. A journal that cannot be read to its end may hide
one: it is named, and the exit code is 4 (torn), 5 (corrupt) or 6 (written by another version).
"""


class OutageList(Struct, kw_only=True, rename="camel", tag_field="kind", tag="OutageList"):
    version: int = 1
    controller: Controller
    outages: list[OutageSummary]
    damaged_journals: list[Damaged]


async def led(
    cluster: Cluster, namespace: str, read: Callable[[], Awaitable[Found]]
) -> tuple[Found, Controller]:
    """Both at once: a leader is seen when it renews its Lease. Raises Refused."""
    both: tuple[Callable[[], Awaitable[Any]], ...] = (partial(leader_of, cluster, namespace), read)
    leading, found = await for_each(both, lambda each: each())
    return found, controller_of(leading, found.records)


async def read_outages(cluster: Cluster, namespace: str, *, closed: bool) -> Found:
    """Of all nodes. Raises Refused."""
    journals = await stored_journals(cluster, namespace)
    found = await outages_of(cluster, namespace, [each for each in journals if closed or not each.at_rest])
    records = [each for each in found.records if closed or summary_of(each).is_open]
    return found._replace(records=records, journals=len(journals))


@click.command(epilog=LS_EPILOG)
@click.option("--all", "closed", is_flag=True, help="Also show finished ones that are still stored.")
@kubeconfig_option
@namespace_option
@output_option("table", "json")
def ls(closed: bool, kubeconfig: Path | None, namespace: str, output: str) -> int:
    """List the outages of all nodes: what each waits for, its proof, and what still hangs."""
    found, controller = ask_cluster(
        kubeconfig,
        lambda each: led(each, namespace, lambda: read_outages(each, namespace, closed=closed)),
    )
    summaries = list(map(summary_of, found.records))
    if output == "json":
        show_json(OutageList(controller=controller, outages=summaries, damaged_journals=found.damaged))
        return found.code
    for part in list_parts(controller, found.records, time.time_ns()):
        show(part)
    for each in found.damaged:
        remark(each.line)
    if not found.journals:
        remark(
            f"no outage is on record in namespace {namespace}: if the controller is elsewhere, name that with"
            " --namespace"
        )
    elif not summaries and not found.damaged:
        remark("no outage is on record" if closed else "no outage is open")
    for summary in summaries:
        if summary.reminder:
            remark(summary.reminder)
    return found.code


STATUS_EPILOG = """\b
Examples:
  ebbtide outage status worker-2
  ebbtide outage status worker-2 -o json | jq .outage.waitsFor


Shows the newest outage of the node on record; the line "now" is the Node's present state at the API server.
Exit code 1: no outage of it is on record. A journal that cannot be read to its end may hide one: it is named,
and the exit code is 4 (torn), 5 (corrupt) or 6 (written by another version).
"""


async def look_at(
    cluster: Cluster, namespace: str, node: str
) -> tuple[OutageStatus, OutageRecord | None, int]:
    """The node, and its newest outage: of the Node with its UID, or of an earlier one with its name. Raises
    Refused.
    """
    seen = await see_node(cluster, node)
    now = NodeNow()
    if seen is not None:
        now = NodeNow(seen.view.uid, seen.ready, seen.view.taint, ago(seen.mark))
    found, controller = await led(
        cluster, namespace, lambda: newest_outage(cluster, namespace, node, now.uid)
    )
    record = found.records[0] if found.records else None
    status = OutageStatus(
        node=node,
        controller=controller,
        now=now,
        outage=None if record is None else summary_of(record),
        damaged_journals=found.damaged,
    )
    return status, record, worst([found.code, NOT_SO if record is None else DONE])


@click.command(epilog=STATUS_EPILOG)
@node_argument
@kubeconfig_option
@namespace_option
@output_option("table", "json")
def status(node: str, kubeconfig: Path | None, namespace: str, output: str) -> int:
    """Show one node's outage: the suspicion, its proof, and what everything waits for."""
    found, record, code = ask_cluster(kubeconfig, lambda each: look_at(each, namespace, node))
    if output == "json":
        show_json(found)
        return code
    if record is None:
        show(pairs([*found.controller.rows, ("node", node), ("now", found.now.text)]))
        if not found.damaged_journals:
            hint = (
                f"'ebbtide outage explain {node}' looks at what hangs now"
                if found.now.uid
                else "'kubectl get nodes' and 'ebbtide outage ls --all' list what there is and was"
            )
            remark(f"no outage of {node} is on record; {hint}")
    else:
        for each in parts(found, record, time.time_ns()):
            show(each)
        if found.outage is not None and found.outage.reminder:
            remark(found.outage.reminder)
    for damaged in found.damaged_journals:
        remark(damaged.line)
    return code

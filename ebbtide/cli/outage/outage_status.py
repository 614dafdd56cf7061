"""``ebbtide outage status``: one node's outage."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import click

from ebbtide.cli.common.guard import DONE, NOT_SO, worst
from ebbtide.cli.common.output import NarrowTable, pairs, remark, show, show_json
from ebbtide.cli.common.shared_options import output_option
from ebbtide.cli.outage.outage_common import (
    Cluster,
    ago,
    ask_cluster,
    chosen_kubeconfig,
    kubeconfig_option,
    namespace_option,
    node_argument,
    ready_text,
)
from ebbtide.cli.outage.outage_summary import (
    Found,
    OutageSummary,
    outages_of,
    since_text,
    stored_journals,
    summary_document,
    summary_of,
    waits_for,
)
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.messages import boot_end_text
from ebbtide.events.outage_events import BACK_UNDER
from ebbtide.events.record.format import utc_text
from ebbtide.events.record.outage_record import Subject
from ebbtide.events.units import short_span

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ebbtide.actors.edges.kubernetes.api_calls import ApiNode

STATUS_VERSION = 1

EPILOG = """\b
Examples:
  ebbtide outage status worker-2
  ebbtide outage status worker-2 -o json | jq .outage.waitsFor


The outage is the newest of that node on record; the line "now" is what the API server says of the Node.
Exit code 1: no outage of it is on record. A journal that cannot be read to its end may hide one: that is
said, and the exit code is 4 (torn), 5 (corrupt) or 6 (written by another version).
"""


class NodeNow(NamedTuple):
    """The live Node in words. ``taint``: none, ours or other."""

    uid: str = ""
    ready: str = "there is no Node of that name"
    taint: str = "none"
    heard: str = ""


async def node_now(cluster: Cluster, name: str) -> NodeNow:
    """Raises Refused."""
    from ebbtide.actors.edges.kubernetes.api_calls import ApiNode, node_path
    from ebbtide.actors.edges.kubernetes.node_view import ApiLease, lease_path, project_lease, project_node

    node: ApiNode | None = await cluster.one(node_path(name), ApiNode)
    if node is None:
        return NodeNow()
    lease = await cluster.one(lease_path(name), ApiLease)
    mark = project_lease(lease).mark if lease is not None else ""
    view = project_node(node)
    return NodeNow(view.uid, ready_text(node.status.conditions), view.taint, ago(mark))


async def newest_outage(
    cluster: Cluster, namespace: str, node: str, uid: str
) -> tuple[OutageSummary | None, Found]:
    """For the Node with this UID, or an earlier one with the name. Raises Refused."""
    journals = await stored_journals(cluster, namespace)
    mine = [each for each in journals if node in (each.node, each.node_uid) or uid == each.node_uid]
    found = await outages_of(cluster, namespace, mine)
    # An open outage first, else the latest one.
    newest = sorted(map(summary_of, found.records), key=lambda each: each.is_open)
    return (newest[-1] if newest else None), found


def now_text(now: NodeNow) -> str:
    """``Unknown; out-of-service taint: ours; last heartbeat 3min ago``."""
    taint = {"none": "none", "ours": "ours", "other": "another controller's"}[now.taint]
    parts = [now.ready]
    parts += [f"out-of-service taint: {taint}"] if now.uid else []
    parts += [f"last heartbeat {now.heard}"] if now.heard else []
    return "; ".join(parts)


def _until(summary: OutageSummary, now_wall_ns: int) -> str:
    until_ns = summary.proof_until_wall_ns
    if until_ns is None:
        return ""
    left = (until_ns - now_wall_ns) / NS_PER_SECOND
    return f", for {short_span(left)} more" if left > 0 else f", which counted until {short_span(-left)} ago"


def facts(summary: OutageSummary, now: NodeNow, now_wall_ns: int) -> Iterator[tuple[str, str]]:
    """Name and value, in the order of an outage's course."""
    record = summary.record
    yield "node", record.node
    yield "now", now_text(now)
    begun = f"{since_text(record, now_wall_ns)} ago ({utc_text(record.started_wall_ns)})"
    yield "outage", f"{record.outcome}, begun {begun}: {record.reason}"
    if summary.is_open:
        yield "phase", summary.phase
        yield "waits for", summary.waits
    yield "proved by", f"{summary.proof}{_until(summary, now_wall_ns)}" if summary.proof else "nobody"
    for each in summary.opposed:
        yield "contradicted", each
    for said in summary.refused:
        yield "not counted", f"{said.who}: {said.text}"
    if summary.brake:
        yield "storm brake", summary.brake
    if record.out_ns is not None:
        stands = "stands" if summary.tainted else "is gone again"
        yield "taint", f"{record.effect}, set after {short_span(record.out_ns / NS_PER_SECOND)}, {stands}"
    elif summary.is_open:
        yield "taint", "not set"
    if record.returned_ns is not None:
        yield "back", BACK_UNDER[record.same_boot]
    if (ended := record.last_boot) is not None:
        yield "last boot", boot_end_text(ended.ending, ended.why, ended.wave)
        if ended.journal_id:
            yield "its journal", ended.journal_id
        if ended.trace_id:
            yield "its trace", ended.trace_id
    for alarm in record.alarms:
        yield "alarm", alarm.text


def subject_rows(subjects: tuple[Subject, ...]) -> list[tuple[str, str, str]]:
    """Objects that hung, their outcome, and what they wait for."""
    return [(each.label, each.outcome, waits_for(each)) for each in subjects]


def source_rows(summary: OutageSummary, now_wall_ns: int) -> list[tuple[str, str, str]]:
    """Each source's last answer."""
    record = summary.record
    return [
        (
            who,
            said.reason,
            f"{short_span(max(0, now_wall_ns - record.started_wall_ns - said.at_ns) / NS_PER_SECOND)} ago",
        )
        for who, said in sorted(record.sources.items())
    ]


def parts(summary: OutageSummary, now: NodeNow, now_wall_ns: int) -> Iterator[RenderableType]:
    """The whole output."""
    record = summary.record
    yield pairs(facts(summary, now, now_wall_ns))
    for heading, rows in (
        (("SOURCE", "SAYS", "WHEN"), source_rows(summary, now_wall_ns)),
        (("POD", "IS", "WAITS FOR"), subject_rows(record.pods)),
        (("VOLUME", "IS", "WAITS FOR"), subject_rows(record.attachments)),
    ):
        if rows:
            yield ""
            yield NarrowTable(heading, rows)


@click.command(epilog=EPILOG)
@node_argument
@kubeconfig_option
@namespace_option
@output_option("table", "json")
def status(node: str, kubeconfig: str | None, namespace: str, output: str) -> int:
    """Show one node's outage: the suspicion, its proof, and what everything waits for."""

    async def look(cluster: Cluster) -> tuple[NodeNow, tuple[OutageSummary | None, Found]]:
        now = await node_now(cluster, node)
        return now, await newest_outage(cluster, namespace, node, now.uid)

    now, (summary, found) = ask_cluster(chosen_kubeconfig(kubeconfig), look)
    if output == "json":
        document = {"kind": "OutageStatus", "version": STATUS_VERSION, "node": node, "now": now._asdict()}
        document |= {"outage": None if summary is None else summary_document(summary)}
        show_json(document | {"damagedJournals": [each.document for each in found.damaged]})
    elif summary is None:
        show(pairs([("node", node), ("now", now_text(now))]))
        if not found.damaged:
            hint = (
                f"'ebbtide outage explain {node}' looks at what hangs now"
                if now.uid
                else "'kubectl get nodes' and 'ebbtide outage ls --all' list what there is and was"
            )
            remark(f"no outage of {node} is on record; {hint}")
    else:
        for each in parts(summary, now, time.time_ns()):
            show(each)
        if summary.reminder:
            remark(summary.reminder)
    if output != "json":
        for damaged in found.damaged:
            remark(damaged.line)
    return worst([found.code, NOT_SO if summary is None else DONE])

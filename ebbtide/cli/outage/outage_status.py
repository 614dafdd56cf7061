"""``ebbtide outage status``: one node's outage."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import click
from msgspec import Struct

from ebbtide.cli.common.guard import DONE, NOT_SO, worst
from ebbtide.cli.common.output import NarrowTable, pairs, remark, show, show_json, struct_table
from ebbtide.cli.common.shared_options import output_option
from ebbtide.cli.outage.outage_common import (
    Cluster,
    ago,
    ask_cluster,
    chosen_kubeconfig,
    kubeconfig_option,
    namespace_option,
    node_argument,
    see_node,
)
from ebbtide.cli.outage.outage_summary import (
    Damaged,
    OutageSummary,
    outages_of,
    since_text,
    stored_journals,
    summary_of,
)
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.messages import boot_end_text
from ebbtide.events.outage_events import BACK_UNDER
from ebbtide.events.record.format import utc_text
from ebbtide.events.record.outage_record import OutageRecord
from ebbtide.events.units import short_span

if TYPE_CHECKING:
    from rich.console import RenderableType

EPILOG = """\b
Examples:
  ebbtide outage status worker-2
  ebbtide outage status worker-2 -o json | jq .outage.waitsFor


Shows the newest outage of the node on record; the line "now" is the Node's present state at the API server.
Exit code 1: no outage of it is on record. A journal that cannot be read to its end may hide one: it is named,
and the exit code is 4 (torn), 5 (corrupt) or 6 (written by another version).
"""


class NodeNow(Struct, frozen=True):
    """The live Node in words. ``taint``: none, ours or other."""

    uid: str = ""
    ready: str = "there is no Node of that name"
    taint: str = "none"
    heard: str = ""

    @property
    def text(self) -> str:
        """``Unknown; out-of-service taint: ours; last heartbeat 3min ago``."""
        taint = {"none": "none", "ours": "ours", "other": "another controller's"}[self.taint]
        parts = [self.ready]
        parts += [f"out-of-service taint: {taint}"] if self.uid else []
        parts += [f"last heartbeat {self.heard}"] if self.heard else []
        return "; ".join(parts)


class OutageStatus(Struct, kw_only=True, rename="camel", tag_field="kind", tag="OutageStatus"):
    version: int = 1
    node: str
    now: NodeNow
    outage: OutageSummary | None
    damaged_journals: list[Damaged]


class Look(NamedTuple):
    status: OutageStatus
    record: OutageRecord | None
    code: int


async def look_at(cluster: Cluster, namespace: str, node: str) -> Look:
    """The node, and its newest outage: of the Node with its UID, or of an earlier one with its name. Raises
    Refused.
    """
    seen = await see_node(cluster, node)
    now = NodeNow()
    if seen is not None:
        now = NodeNow(seen.view.uid, seen.ready, seen.view.taint, ago(seen.mark))
    journals = await stored_journals(cluster, namespace)
    mine = [each for each in journals if node in (each.node, each.node_uid) or now.uid == each.node_uid]
    found = await outages_of(cluster, namespace, mine)
    # An open outage wins over a later one.
    records = sorted(found.records, key=lambda each: summary_of(each).is_open)
    record = records[-1] if records else None
    summary = None if record is None else summary_of(record)
    status = OutageStatus(node=node, now=now, outage=summary, damaged_journals=found.damaged)
    return Look(status, record, worst([found.code, NOT_SO if record is None else DONE]))


def facts(found: OutageSummary, record: OutageRecord, now_wall_ns: int) -> Iterator[tuple[str, str]]:
    """Name and value, in the order of an outage's course."""
    begun = f"{since_text(record.started_wall_ns, now_wall_ns)} ago ({utc_text(record.started_wall_ns)})"
    yield "outage", f"{record.outcome}, begun {begun}: {record.reason}"
    if found.is_open:
        yield "phase", found.phase
        yield "waits for", found.waits_for
    counts = f", counts until {found.proof_until[:19]}Z" if found.proof_until else ""
    yield "proved by", f"{found.proof}{counts}" if found.proof else "no source"
    for each in found.contradicted_by:
        yield "contradicted", each
    for said in found.not_counted:
        yield "not counted", f"{said.who}: {said.text}"
    if found.brake:
        yield "storm brake", found.brake
    if record.out_ns is not None:
        stands = "stands" if found.tainted else "is gone again"
        yield "taint", f"{record.effect}, set after {short_span(record.out_ns / NS_PER_SECOND)}, {stands}"
    elif found.is_open:
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


def source_rows(record: OutageRecord, now_wall_ns: int) -> Iterator[tuple[str, str, str]]:
    """Each source's last answer, with its age."""
    for who, said in sorted(record.sources.items()):
        yield who, said.reason, f"{since_text(record.started_wall_ns + said.at_ns, now_wall_ns)} ago"


def parts(found: OutageStatus, record: OutageRecord, now_wall_ns: int) -> Iterator[RenderableType]:
    """The whole output for a node with an outage."""
    outage = found.outage
    assert outage is not None
    node = (("node", record.node), ("now", found.now.text))
    yield pairs([*node, *facts(outage, record, now_wall_ns)])
    if record.sources:
        yield ""
        yield NarrowTable(("SOURCE", "SAYS", "WHEN"), source_rows(record, now_wall_ns))
    for rows in filter(None, (outage.pods, outage.volumes)):
        yield ""
        yield struct_table(rows)


@click.command(epilog=EPILOG)
@node_argument
@kubeconfig_option
@namespace_option
@output_option("table", "json")
def status(node: str, kubeconfig: str | None, namespace: str, output: str) -> int:
    """Show one node's outage: the suspicion, its proof, and what everything waits for."""
    found, record, code = ask_cluster(
        chosen_kubeconfig(kubeconfig), lambda each: look_at(each, namespace, node)
    )
    if output == "json":
        show_json(found)
        return code
    if record is None:
        show(pairs([("node", node), ("now", found.now.text)]))
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

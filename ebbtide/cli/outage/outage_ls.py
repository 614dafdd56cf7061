"""``ebbtide outage ls``: the open outages of all nodes."""

from __future__ import annotations

import time
from typing import Annotated

import click
from msgspec import Struct

from ebbtide.cli.common.output import Heading, remark, show, show_json, struct_table
from ebbtide.cli.common.shared_options import output_option
from ebbtide.cli.outage.outage_common import (
    Cluster,
    ask_cluster,
    chosen_kubeconfig,
    kubeconfig_option,
    namespace_option,
)
from ebbtide.cli.outage.outage_summary import (
    Damaged,
    Found,
    OutageSummary,
    outages_of,
    since_text,
    stored_journals,
    summary_of,
)
from ebbtide.events.messages import plural
from ebbtide.events.record.outage_record import OutageRecord

EPILOG = """\b
Examples:
  ebbtide outage ls
  ebbtide outage ls --all -o json | jq -r '.outages[].outcome'


Read from the controller's journals; only --all reads journals without an open outage. A journal that cannot
be read to its end may hide one: it is named, and the exit code is 4 (torn), 5 (corrupt) or 6 (written by
another version).
"""


class OutageList(Struct, kw_only=True, rename="camel", tag_field="kind", tag="OutageList"):
    version: int = 1
    outages: list[OutageSummary]
    damaged_journals: list[Damaged]


class OutageLine(Struct):
    node: Annotated[str, Heading("NODE")]
    since: Annotated[str, Heading("SINCE")]
    phase: Annotated[str, Heading("PHASE")]
    proof: Annotated[str, Heading("PROOF", spare=True)]
    taint: Annotated[str, Heading("TAINT", spare=True)]
    hangs: Annotated[str, Heading("HANGS")]
    waits_for: Annotated[str, Heading("WAITS FOR")]


def line_of(record: OutageRecord, now_wall_ns: int) -> OutageLine:
    found = summary_of(record)
    hangs = (
        plural(count, kind)
        for kind, subjects in (("pod", found.pods), ("volume", found.volumes))
        if (count := sum(each.ended is None for each in subjects))
    )
    waits = found.waits_for
    if found.contradicted_by and not found.proof:
        # The author of "alive" is the reason for a missing proof.
        waits = f"contradicted by {'; '.join(found.contradicted_by)}"
    return OutageLine(
        node=found.node,
        since=since_text(record.started_wall_ns, now_wall_ns),
        phase=found.phase,
        proof=found.proof,
        taint=found.effect if found.tainted else "",
        hangs=", ".join(hangs),
        waits_for=waits,
    )


async def read_outages(cluster: Cluster, namespace: str, *, closed: bool) -> Found:
    """Of all nodes. Raises Refused."""
    journals = await stored_journals(cluster, namespace)
    found = await outages_of(cluster, namespace, [each for each in journals if closed or not each.at_rest])
    records = [each for each in found.records if closed or summary_of(each).is_open]
    return found._replace(records=records, journals=len(journals))


@click.command(epilog=EPILOG)
@click.option("--all", "closed", is_flag=True, help="Also show finished ones that are still stored.")
@kubeconfig_option
@namespace_option
@output_option("table", "json")
def ls(closed: bool, kubeconfig: str | None, namespace: str, output: str) -> int:
    """List the outages of all nodes: what each waits for, its proof, and what still hangs."""
    found = ask_cluster(
        chosen_kubeconfig(kubeconfig), lambda each: read_outages(each, namespace, closed=closed)
    )
    summaries = list(map(summary_of, found.records))
    if output == "json":
        show_json(OutageList(outages=summaries, damaged_journals=found.damaged))
        return found.code
    for each in found.damaged:
        remark(each.line)
    if summaries:
        now_wall_ns = time.time_ns()
        show(struct_table([line_of(each, now_wall_ns) for each in found.records]))
    elif not found.journals:
        remark(
            f"no outage is on record in namespace {namespace}: if the controller is elsewhere, name that with"
            " --namespace; 'ebbtide outage doctor' checks whether one leads"
        )
    elif not found.damaged:
        remark("no outage is on record" if closed else "no outage is open")
    for summary in summaries:
        if summary.reminder:
            remark(summary.reminder)
    return found.code

"""``ebbtide outage ls``: the open outages of all nodes."""

from __future__ import annotations

import time

import click

from ebbtide.cli.common.output import NarrowTable, remark, show, show_json
from ebbtide.cli.common.shared_options import output_option
from ebbtide.cli.outage.outage_common import (
    Cluster,
    ask_cluster,
    chosen_kubeconfig,
    kubeconfig_option,
    namespace_option,
)
from ebbtide.cli.outage.outage_summary import (
    Found,
    OutageSummary,
    hangs_text,
    outages_of,
    since_text,
    stored_journals,
    summary_document,
    summary_of,
)

LIST_VERSION = 1
HEADINGS = ("NODE", "SINCE", "PHASE", "PROOF", "TAINT", "HANGS", "WAITS FOR")

EPILOG = """\b
Examples:
  ebbtide outage ls
  ebbtide outage ls --all -o json | jq -r '.outages[].outcome'


Read from the controller's journals. Those in which no outage is open are not read, but with --all. A journal
that cannot be read to its end may hide one: it is named, and the exit code is 4 (torn), 5 (corrupt) or 6
(written by another version).
"""


async def read_outages(cluster: Cluster, namespace: str, *, closed: bool) -> Found:
    """Of all nodes. Raises Refused."""
    journals = await stored_journals(cluster, namespace)
    found = await outages_of(cluster, namespace, [each for each in journals if closed or not each.at_rest])
    return found._replace(journals=len(journals))


def nothing_text(namespace: str, *, closed: bool, journals: int) -> str:
    """The text for no outage. Without a journal in the namespace the controller may be in another one."""
    if not journals:
        return (
            f"no outage is on record in namespace {namespace}: if the controller is elsewhere, name that with"
            " --namespace; 'ebbtide outage doctor' tells whether one leads"
        )
    return "no outage is on record" if closed else "no outage is open"


def waits_text(summary: OutageSummary) -> str:
    """The author of "alive", who is the reason for a missing proof."""
    if summary.opposed and not summary.proof:
        return f"contradicted by {'; '.join(summary.opposed)}"
    return summary.waits


def rows_of(summaries: list[OutageSummary], now_wall_ns: int) -> list[tuple[str, ...]]:
    """The cells for `HEADINGS`."""
    return [
        (
            each.record.node,
            since_text(each.record, now_wall_ns),
            each.phase,
            each.proof,
            each.record.effect if each.tainted else "",
            hangs_text(each),
            waits_text(each),
        )
        for each in summaries
    ]


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
    summaries = [each for each in map(summary_of, found.records) if closed or each.is_open]
    if output == "json":
        documents = [summary_document(each) for each in summaries]
        hidden = [each.document for each in found.damaged]
        show_json(
            {"kind": "OutageList", "version": LIST_VERSION, "outages": documents, "damagedJournals": hidden}
        )
        return found.code
    for each in found.damaged:
        remark(each.line)
    if not summaries:
        if not found.damaged:
            remark(nothing_text(namespace, closed=closed, journals=found.journals))
        return found.code
    show(NarrowTable(HEADINGS, rows_of(summaries, time.time_ns()), spare=("PROOF", "TAINT")))
    for summary in summaries:
        if summary.reminder:
            remark(summary.reminder)
    return found.code

"""``ebbtide outage ls``: the outages that are open, of all nodes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from ebbtide.cli.common.guard import DONE
from ebbtide.cli.common.options import output_option
from ebbtide.cli.common.output import NarrowTable, remark, show, show_json
from ebbtide.cli.outage.common import (
    Cluster,
    ask_cluster,
    chosen_kubeconfig,
    kubeconfig_option,
    namespace_option,
)
from ebbtide.cli.outage.summary import (
    OutageSummary,
    hangs_text,
    outages_of,
    since_text,
    stored_journals,
    summary_document,
    summary_of,
)

if TYPE_CHECKING:
    from ebbtide.actors.edges.kubernetes.config_maps import StoredJournal
    from ebbtide.events.record.outages import OutageRecord

LIST_VERSION = 1
HEADINGS = ("NODE", "SINCE", "PHASE", "PROOF", "TAINT", "HANGS", "WAITS FOR")

EPILOG = """\b
Examples:
  ebbtide outage ls
  ebbtide outage ls --all -o json | jq -r '.outages[].outcome'


Read from the controller's journals. Those in which no outage is open are not read, but with --all.
"""


async def read_summaries(cluster: Cluster, namespace: str, *, closed: bool) -> list[OutageSummary]:
    """Of all nodes, the oldest first. Raises Refused."""
    from ebbtide.actors.edges.kubernetes.calls import for_each

    async def one(journal: StoredJournal) -> list[OutageRecord]:
        return await outages_of(cluster, namespace, journal)

    journals = await stored_journals(cluster, namespace)
    found = await for_each([each for each in journals if closed or not each.at_rest], one)
    summaries = [summary_of(record) for records in found for record in records]
    shown = [each for each in summaries if closed or each.is_open]
    return sorted(shown, key=lambda each: (each.record.started_wall_ns, each.record.node))


def rows_of(summaries: list[OutageSummary], now_wall_ns: int) -> list[tuple[str, ...]]:
    """As under `HEADINGS`."""
    return [
        (
            each.record.node,
            since_text(each.record, now_wall_ns),
            each.phase,
            each.proof,
            each.record.effect if each.tainted else "",
            hangs_text(each),
            each.waits,
        )
        for each in summaries
    ]


@click.command(epilog=EPILOG)
@click.option("--all", "closed", is_flag=True, help="Those that are over as well, as far as they are kept.")
@kubeconfig_option
@namespace_option
@output_option("table", "json")
def ls(closed: bool, kubeconfig: str | None, namespace: str, output: str) -> int:
    """List the outages of all nodes: what each waits for, whose proof it has, and what still hangs."""
    summaries = ask_cluster(
        chosen_kubeconfig(kubeconfig), lambda each: read_summaries(each, namespace, closed=closed)
    )
    if output == "json":
        documents = [summary_document(each) for each in summaries]
        show_json({"kind": "OutageList", "version": LIST_VERSION, "outages": documents})
        return DONE
    if not summaries:
        remark("no outage is on record" if closed else "no outage is open")
        return DONE
    show(NarrowTable(HEADINGS, rows_of(summaries, time.time_ns()), spare=("PROOF", "TAINT")))
    for each in summaries:
        if each.reminder:
            remark(each.reminder)
    return DONE

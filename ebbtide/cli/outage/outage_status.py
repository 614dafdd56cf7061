"""``ebbtide outage ls`` and ``status``: the open outages of all nodes, and one node's outage.

``now_wall_ns`` is this machine's clock, only for display.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click
from msgspec import Struct
from rich.console import RenderableType

from ebbtide.actors.edges.kubernetes.api_calls import for_each
from ebbtide.actors.edges.kubernetes.config_maps import StoredJournal, list_journals, read_journals
from ebbtide.cli.common.guard import DONE, NOT_SO, Refused, worst
from ebbtide.cli.common.output import NarrowTable, outage_lines, pairs, remark, show, show_json
from ebbtide.cli.common.shared_options import output_option
from ebbtide.cli.outage.outage_common import (
    Cluster,
    Leading,
    ago,
    ask_cluster,
    kubeconfig_option,
    leader_of,
    namespace_option,
    node_argument,
    see_node,
)
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.catalog import Source
from ebbtide.events.messages import boot_end_text, plural
from ebbtide.events.outage_events import BACK_UNDER, LastBootStated
from ebbtide.events.reader import History
from ebbtide.events.record.episodes import outage_records
from ebbtide.events.record.format import rfc3339, utc_text
from ebbtide.events.record.outage_causes import outage_cause, outage_headline
from ebbtide.events.record.outage_record import OPEN, Alarm, OutageRecord, Statement, Subject
from ebbtide.events.recovery import Verdict
from ebbtide.events.units import short_span
from ebbtide.memory import WatchedSource


class SubjectSummary(Struct, frozen=True, rename="camel"):
    """``waits_for``: empty once it ended."""

    name: str
    outcome: str
    waits_for: str
    ended: str | None


class OutageSummary(Struct, kw_only=True, frozen=True, rename="camel"):
    """As in ``outage ls -o json``; times by the clock of the leader's machine.

    ``phase``: its stage, or its outcome. ``proof``: the author of the accepted statement, with
    ``proof_until``, or of the taint. ``sources``: each one's last answer. ``brake``: the storm brake's.
    ``reminder``: a person's next step.
    """

    id: str
    trace_id: str
    node: str
    node_uid: str
    boot_id: str
    started: str
    outcome: str
    headline: str
    cause: str = ""
    do: str = ""
    phase: str
    waits_for: str = ""
    reason: str
    proof: str
    proof_until: str | None = None
    contradicted_by: tuple[str, ...] = ()
    not_counted: tuple[Statement, ...] = ()
    sources: dict[str, str]
    brake: str
    tainted: bool = False
    out_of_service: str | None
    untainted: str | None
    returned: str | None
    same_boot: bool | None
    effect: str
    pods: tuple[SubjectSummary, ...]
    volumes: tuple[SubjectSummary, ...]
    reminder: str = ""
    last_boot: LastBootStated | None
    alarms: list[Alarm]

    @property
    def is_open(self) -> bool:
        return self.outcome == OPEN


def summary_of(record: OutageRecord) -> OutageSummary:
    def moment(at_ns: int | None) -> str | None:
        return None if at_ns is None else rfc3339(record.started_wall_ns + at_ns)

    def subject(each: Subject) -> SubjectSummary:
        waits = each.waits[-1].reason if each.ended_ns is None and each.waits else ""
        return SubjectSummary(each.label, each.outcome, waits, moment(each.ended_ns))

    is_open, cause = record.outcome == OPEN, outage_cause(record)
    accepted, opposed, refused = _in_force(record.statements if is_open else ())
    says_off = {who for who, said in record.sources.items() if said.reason == "off"}
    last = record.course[-1] if is_open and record.course else None
    return OutageSummary(
        id=record.id,
        trace_id=record.trace_id,
        node=record.node,
        node_uid=record.node_uid,
        boot_id=record.boot_id,
        started=rfc3339(record.started_wall_ns),
        outcome=record.outcome,
        headline=outage_headline(record),
        cause=cause.code if cause is not None else "",
        do=cause.do if cause is not None else "",
        phase=last.what if last is not None else record.outcome,
        waits_for=last.text if last is not None else "",
        reason=record.reason,
        proof=accepted.who if accepted is not None else record.proof,
        proof_until=moment(accepted.until_ns) if accepted is not None else None,
        contradicted_by=tuple(f"{who}: {said.text}" for who, said in opposed.items()),
        not_counted=tuple(said for who, said in refused.items() if who in says_off),
        sources={who: said.reason for who, said in sorted(record.sources.items())},
        brake=record.brake,
        tainted=is_open and record.out_ns is not None and record.untainted_ns is None,
        out_of_service=moment(record.out_ns),
        untainted=moment(record.untainted_ns),
        returned=moment(record.returned_ns),
        same_boot=record.same_boot if record.returned_ns is not None else None,
        effect=record.effect,
        pods=tuple(map(subject, record.pods)),
        volumes=tuple(map(subject, record.attachments)),
        reminder=_reminder(record) if is_open else "",
        last_boot=record.last_boot,
        alarms=record.alarms,
    )


def _in_force(
    statements: Iterable[Statement],
) -> tuple[Statement | None, dict[str, Statement], dict[str, Statement]]:
    """The accepted statement; contradictions and refused statements by their source."""
    accepted: Statement | None = None
    opposed: dict[str, Statement] = {}
    refused: dict[str, Statement] = {}
    for said in statements:
        match said.what:
            case "accepted":
                accepted = said
                refused.pop(said.who, None)
            case "voided":
                accepted = None
            case "refused":
                refused[said.who] = said
            case "contradicted":
                opposed[said.who] = said
            case "contradiction-ended":
                opposed.pop(said.who, None)
    return accepted, opposed, refused


def _reminder(record: OutageRecord) -> str:
    if record.recovered_ns is None or record.returned_ns is not None:
        return ""
    hung = f"{', '.join(record.unrecovered)} still hang" if record.unrecovered else "all that hung is over"
    taint = "the taint stays until it does"
    if record.untainted_ns is not None:
        taint = "our taint was removed by another client; only a new declaration sets it again"
    return f"{record.node} has not come back: {hung}, and {taint}. Start the machine, or delete the Node"


def since_text(started_wall_ns: int, now_wall_ns: int) -> str:
    return short_span(max(0, now_wall_ns - started_wall_ns) / NS_PER_SECOND)


HEADINGS = ("NODE", "SINCE", "PHASE", "PROOF", "TAINT", "HANGS", "CAUSE", "WAITS FOR")


def line_of(record: OutageRecord, now_wall_ns: int) -> tuple[str, ...]:
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
    since, taint = since_text(record.started_wall_ns, now_wall_ns), found.effect if found.tainted else ""
    return (found.node, since, found.phase, found.proof, taint, ", ".join(hangs), found.cause, waits)


class NodeNow(Struct, frozen=True):
    """``taint``: none, ours or other."""

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


class Controller(Struct, frozen=True):
    """``leader`` None: no right to read the Lease. ``stale``: why the record is behind the cluster, if the
    leader knows. ``paused``: by whom.
    """

    leader: str | None = ""
    stale: str = ""
    paused: str = ""

    @property
    def rows(self) -> list[tuple[str, str]]:
        leader = {None: "cannot be seen: you may not read its Lease", "": "none"}.get(
            self.leader, self.leader
        )
        return [("leader", str(leader)), ("paused", self.paused), ("stale", self.stale)]


NO_LEADER = "no controller leads, so no record is written: 'ebbtide outage doctor' names the cure"


def controller_of(leading: Leading, records: Collection[OutageRecord]) -> Controller:
    stale = f"{leading.blocked}; 'ebbtide outage doctor' names the cure" if leading.blocked else ""
    if leading.holder == "":
        stale = NO_LEADER
    elif leading.holder and not stale:
        # The holder is the replica's name and a nonce.
        earlier = [
            each.node
            for each in records
            if each.outcome == OPEN
            and each.leaders
            and each.leaders[-1].replica != leading.holder.rpartition("_")[0]
        ]
        stale = f"the new leader has not read these Nodes yet: {', '.join(earlier)}" if earlier else ""
    return Controller(leading.holder, stale, leading.paused())


class OutageStatus(Struct, kw_only=True, rename="camel", tag_field="kind", tag="OutageStatus"):
    version: int = 1
    controller: Controller = Controller()
    node: str
    now: NodeNow
    outage: OutageSummary | None
    damaged_journals: list[Damaged]


def facts(found: OutageSummary, record: OutageRecord, now_wall_ns: int) -> Iterator[tuple[str, str]]:
    """In the order of an outage's course."""
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
    yield "storm brake", found.brake
    if record.out_ns is not None:
        stands = "stands" if found.tainted else "is gone again"
        yield "taint", f"{record.effect}, set after {short_span(record.out_ns / NS_PER_SECOND)}, {stands}"
    elif found.is_open:
        yield "taint", "not set"
    if record.returned_ns is not None:
        yield "back", BACK_UNDER[bool(record.same_boot)]
    if (ended := record.last_boot) is not None:
        yield "last boot", boot_end_text(ended.ending, ended.why, ended.wave)
        yield "its journal", ended.journal_id
        yield "its trace", ended.trace_id
    for alarm in record.alarms:
        yield "alarm", alarm.text


def list_parts(
    controller: Controller, records: Sequence[OutageRecord], now_wall_ns: int
) -> Iterator[RenderableType]:
    yield pairs(controller.rows)
    if records:
        yield ""
        rows = [line_of(each, now_wall_ns) for each in records]
        yield NarrowTable(HEADINGS, rows, spare=("PROOF", "TAINT", "CAUSE"))
    if alarms := [(each.node, alarm.text) for each in records for alarm in each.alarms]:
        yield ""
        yield NarrowTable(("NODE", "ALARM"), alarms)


def parts(found: OutageStatus, record: OutageRecord, now_wall_ns: int) -> Iterator[RenderableType]:
    outage = found.outage
    assert outage is not None
    yield pairs(found.controller.rows)
    yield from outage_lines(record)
    yield ""
    node = (("node", record.node), ("now", found.now.text))
    yield pairs([*node, *facts(outage, record, now_wall_ns)])
    if record.sources:
        yield ""
        rows = [
            (who, said.reason, f"{since_text(record.started_wall_ns + said.at_ns, now_wall_ns)} ago")
            for who, said in sorted(record.sources.items())
        ]
        yield NarrowTable(("SOURCE", "SAYS", "WHEN"), rows)
    for heading, found_here in (("POD", outage.pods), ("VOLUME", outage.volumes)):
        if found_here:
            yield ""
            rows = [(each.name, each.outcome, each.waits_for) for each in found_here]
            yield NarrowTable((heading, "IS", "WAITS FOR"), rows)


async def stored_journals(cluster: Cluster, namespace: str) -> list[StoredJournal]:
    """Raises Refused."""
    try:
        return await list_journals(cluster.caller, namespace)
    except OSError as error:
        raise Refused(f"namespace {namespace}: {error.strerror or error}") from None


class Damaged(Struct, frozen=True, rename="camel"):
    """The damage may hide outages."""

    node: str
    node_uid: str
    state: str
    text: str

    @property
    def line(self) -> str:
        name = self.node or self.node_uid
        return f"{name}: {self.text}; 'ebbtide outage explain {name}' looks at what hangs now"


class Found(NamedTuple):
    """``records``: oldest first. ``journals``: their number."""

    records: list[OutageRecord]
    damaged: list[Damaged]
    code: int
    journals: int


async def outages_of(cluster: Cluster, namespace: str, journals: list[StoredJournal]) -> Found:
    """Raises Refused."""
    #: Oldest first, and the journal's verdict: a damaged part may hide the newest outage.
    found: dict[str, tuple[list[OutageRecord], Verdict]] = {}

    def take(node_uid: str, source: Source) -> None:
        history = History([WatchedSource(source)])
        found[node_uid] = [*outage_records(history)], history.verdict

    wanted = {each.node_uid for each in journals}
    try:
        if wanted:
            await read_journals(cluster.caller, namespace, wanted, take)
    except OSError as error:
        where = error.filename or f"namespace {namespace}"
        raise Refused(f"{where}: {error.strerror or error}") from None
    # A journal may have gone since it was listed.
    journals = [each for each in journals if each.node_uid in found]
    read = [found[each.node_uid] for each in journals]
    verdicts = [verdict for _, verdict in read]
    return Found(
        sorted(
            (record for records, _ in read for record in records),
            key=lambda each: (each.started_wall_ns, each.node),
        ),
        [
            Damaged(journal.node, journal.node_uid, verdict.state, verdict.banner)
            for journal, verdict in zip(journals, verdicts, strict=True)
            if verdict.state != "intact"
        ],
        worst(each.exit_code for each in verdicts),
        len(journals),
    )


async def newest_outage(cluster: Cluster, namespace: str, node: str, node_uid: str) -> Found:
    """Of the Node with this UID, or of an earlier one with its name; an open one wins over a later one.
    Raises Refused.
    """
    journals = await stored_journals(cluster, namespace)
    mine = [each for each in journals if node in (each.node, each.node_uid) or node_uid == each.node_uid]
    found = await outages_of(cluster, namespace, mine)
    return found._replace(records=sorted(found.records, key=lambda each: each.outcome == OPEN)[-1:])


LS_EPILOG = """\b
Examples:
  ebbtide outage ls
  ebbtide outage ls --all -o json | jq -r '.outages[].outcome'


The first line names the leading controller; more say why its record is behind the cluster, if it is. Read
from its journals; only --all reads those without an open outage. A journal that cannot be read to its end may
hide one: it is named, and the exit code is 4 (torn), 5 (corrupt) or 6 (written by another version).
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
    """Raises Refused."""
    journals = await stored_journals(cluster, namespace)
    found = await outages_of(cluster, namespace, [each for each in journals if closed or not each.at_rest])
    records = [each for each in found.records if closed or each.outcome == OPEN]
    return found._replace(records=records, journals=len(journals))


@click.command(epilog=LS_EPILOG)
@click.option("--all", "closed", is_flag=True, help="Also show finished ones that are still stored.")
@kubeconfig_option
@namespace_option
@output_option("table", "json")
def ls(closed: bool, kubeconfig: Path | None, namespace: str, output: str) -> int:
    """List the outages of all nodes: what each waits for, its proof, and what still hangs."""
    found, controller = ask_cluster(
        kubeconfig, lambda each: led(each, namespace, lambda: read_outages(each, namespace, closed=closed))
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
    """As `newest_outage`. Raises Refused."""
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

"""The summary of an outage from its record, as Structs and as tables, and the journals that have it.

``now_wall_ns`` is this machine's clock, only for display.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from ebbtide.cli.common.guard import Refused, worst
from ebbtide.cli.common.output import Heading, NarrowTable, outage_lines, pairs, struct_table
from ebbtide.cli.outage.outage_common import Cluster, Leading
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.messages import boot_end_text, plural
from ebbtide.events.outage_events import BACK_UNDER, LastBootStated
from ebbtide.events.record.episodes import outage_records
from ebbtide.events.record.format import rfc3339, utc_text
from ebbtide.events.record.outage_causes import outage_cause, outage_headline
from ebbtide.events.record.outage_record import OPEN, Alarm, OutageRecord, Statement, Subject
from ebbtide.events.units import short_span

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ebbtide.actors.edges.kubernetes.config_maps import StoredJournal
    from ebbtide.events.catalog import Source
    from ebbtide.events.recovery import Verdict

#: The word in the key of what is ordered of the storm brake.
PERMIT = "permit"


class SubjectSummary(Struct, frozen=True, rename="camel"):
    """A pod or volume that hung; ``waits_for``: empty once it ended."""

    name: str
    outcome: str
    waits_for: str
    ended: str | None


class OutageSummary(Struct, kw_only=True, frozen=True, rename="camel"):
    """An outage at the end of its record, as in ``outage ls -o json``; times by the clock of the leader's
    machine.

    ``phase``: its stage, or its outcome. ``proof``: the accepted statement's author, with ``proof_until``, or
    the taint's. ``sources``: each one's last answer. ``brake``: the storm brake's. ``reminder``: a person's
    next step.
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
        return SubjectSummary(each.label, each.outcome, waits_for(each), moment(each.ended_ns))

    summary = OutageSummary(
        id=record.id,
        trace_id=record.trace_id,
        node=record.node,
        node_uid=record.node_uid,
        boot_id=record.boot_id,
        started=rfc3339(record.started_wall_ns),
        outcome=record.outcome,
        headline=outage_headline(record),
        phase=record.outcome,
        reason=record.reason,
        proof=record.proof,
        sources={who: said.reason for who, said in sorted(record.sources.items())},
        brake=_brake(record),
        out_of_service=moment(record.out_ns),
        untainted=moment(record.untainted_ns),
        returned=moment(record.returned_ns),
        same_boot=record.same_boot if record.returned_ns is not None else None,
        effect=record.effect,
        pods=tuple(map(subject, record.pods)),
        volumes=tuple(map(subject, record.attachments)),
        last_boot=record.last_boot,
        alarms=record.alarms,
    )
    if (cause := outage_cause(record)) is not None:
        summary = replace(summary, cause=cause.code, do=cause.do)
    return _with_statements(summary, record) if summary.is_open else summary


def _with_statements(summary: OutageSummary, record: OutageRecord) -> OutageSummary:
    """Of an open outage: the statements in force, and its stage."""
    accepted: Statement | None = None
    opposed: dict[str, str] = {}
    refused: dict[str, Statement] = {}
    for said in record.statements:
        match said.what:
            case "accepted":
                accepted = said
                refused.pop(said.who, None)
            case "voided":
                accepted = None
            case "refused":
                refused[said.who] = said
            case "contradicted":
                opposed[said.who] = f"{said.who}: {said.text}"
            case "contradiction-ended":
                opposed.pop(said.who, None)
    says_off = {who for who, said in record.sources.items() if said.reason == "off"}
    until_ns = accepted.until_ns if accepted is not None else None
    last = record.course[-1] if record.course else None
    return replace(
        summary,
        phase=last.what if last is not None else OPEN,
        waits_for=last.text if last is not None else "",
        proof=accepted.who if accepted is not None else record.proof,
        proof_until=None if until_ns is None else rfc3339(record.started_wall_ns + until_ns),
        contradicted_by=tuple(opposed.values()),
        not_counted=tuple(said for who, said in refused.items() if who in says_off),
        tainted=record.out_ns is not None and record.untainted_ns is None,
        reminder=_reminder(record),
    )


def waits_for(subject: Subject) -> str:
    """Its last reason; empty: it has ended, or has none."""
    return subject.waits[-1].reason if subject.ended_ns is None and subject.waits else ""


def _brake(record: OutageRecord) -> str:
    last = next((each for each in reversed(record.orders) if each.what == PERMIT), None)
    if last is None:
        return ""
    if last.ended_ns is None:
        return "asked, and has not answered"
    return "grants it" if last.result == "done" else last.reason or last.result


def _reminder(record: OutageRecord) -> str:
    if record.recovered_ns is None or record.returned_ns is not None:
        return ""
    hung = f"{', '.join(record.unrecovered)} still hang" if record.unrecovered else "all that hung is over"
    taint = "the taint stays until it does"
    if record.untainted_ns is not None:
        taint = "our taint was removed by another client; only a new declaration sets it again"
    return f"{record.node} has not come back: {hung}, and {taint}. Start the machine, or delete the Node"


def since_text(started_wall_ns: int, now_wall_ns: int) -> str:
    """The age of its begin."""
    return short_span(max(0, now_wall_ns - started_wall_ns) / NS_PER_SECOND)


# --- as tables ---------------------------------------------------------------------------------


class OutageLine(Struct):
    node: Annotated[str, Heading("NODE")]
    since: Annotated[str, Heading("SINCE")]
    phase: Annotated[str, Heading("PHASE")]
    proof: Annotated[str, Heading("PROOF", spare=True)]
    taint: Annotated[str, Heading("TAINT", spare=True)]
    hangs: Annotated[str, Heading("HANGS")]
    cause: Annotated[str, Heading("CAUSE", spare=True)]
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
        cause=found.cause,
        waits_for=waits,
    )


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


class Controller(Struct, frozen=True):
    """``leader`` None: no right to read the Lease. ``stale``: why the record is behind the cluster; empty: as
    far as the leader knows, it is not. ``paused``: by whom, empty: it is not.
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


#: A record that no leader continues.
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


def source_rows(record: OutageRecord, now_wall_ns: int) -> Iterator[tuple[str, str, str]]:
    """Each source's last answer, with its age."""
    for who, said in sorted(record.sources.items()):
        yield who, said.reason, f"{since_text(record.started_wall_ns + said.at_ns, now_wall_ns)} ago"


def list_parts(
    controller: Controller, records: Sequence[OutageRecord], now_wall_ns: int
) -> Iterator[RenderableType]:
    """The whole output about all nodes."""
    yield pairs(controller.rows)
    if records:
        yield ""
        yield struct_table([line_of(each, now_wall_ns) for each in records])
    if alarms := [(each.node, alarm.text) for each in records for alarm in each.alarms]:
        yield ""
        yield NarrowTable(("NODE", "ALARM"), alarms)


def parts(found: OutageStatus, record: OutageRecord, now_wall_ns: int) -> Iterator[RenderableType]:
    """The whole output for a node with an outage."""
    outage = found.outage
    assert outage is not None
    yield pairs(found.controller.rows)
    yield from outage_lines(record)
    yield ""
    node = (("node", record.node), ("now", found.now.text))
    yield pairs([*node, *facts(outage, record, now_wall_ns)])
    if record.sources:
        yield ""
        yield NarrowTable(("SOURCE", "SAYS", "WHEN"), source_rows(record, now_wall_ns))
    for heading, found_here in (("POD", outage.pods), ("VOLUME", outage.volumes)):
        if found_here:
            yield ""
            rows = [(each.name, each.outcome, each.waits_for) for each in found_here]
            yield NarrowTable((heading, "IS", "WAITS FOR"), rows)


# --- reading -------------------------------------------------------------------------------------------


async def stored_journals(cluster: Cluster, namespace: str) -> list[StoredJournal]:
    """Raises Refused."""
    from ebbtide.actors.edges.kubernetes.config_maps import list_journals

    try:
        return await list_journals(cluster.caller, namespace)
    except OSError as error:
        raise Refused(f"namespace {namespace}: {error.strerror or error}") from None


def _read(source: Source) -> tuple[list[OutageRecord], Verdict]:
    """Oldest first, and what the journal is worth: what is damaged may hide the newest."""
    from ebbtide.events.reader import History

    history = History([source])
    return [*outage_records(history)], history.verdict


class Damaged(Struct, frozen=True, rename="camel"):
    """A journal that cannot be read to its end: the damage may hide outages."""

    node: str
    node_uid: str
    state: str
    text: str

    @property
    def line(self) -> str:
        name = self.node or self.node_uid
        return f"{name}: {self.text}; 'ebbtide outage explain {name}' looks at what hangs now"


class Found(NamedTuple):
    """Outages, oldest first; the damaged journals; the exit code; the number of ``journals``."""

    records: list[OutageRecord]
    damaged: list[Damaged]
    code: int
    journals: int


async def outages_of(cluster: Cluster, namespace: str, journals: list[StoredJournal]) -> Found:
    """Raises Refused."""
    from ebbtide.actors.edges.kubernetes.config_maps import read_journals

    found: dict[str, tuple[list[OutageRecord], Verdict]] = {}

    def take(node_uid: str, source: Source) -> None:
        found[node_uid] = _read(source)

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
    """The newest one of the Node with this UID, or of an earlier one with its name; an open one wins over a
    later one. Raises Refused.
    """
    journals = await stored_journals(cluster, namespace)
    mine = [each for each in journals if node in (each.node, each.node_uid) or node_uid == each.node_uid]
    found = await outages_of(cluster, namespace, mine)
    return found._replace(records=sorted(found.records, key=lambda each: each.outcome == OPEN)[-1:])

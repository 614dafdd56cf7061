"""How an outage stands, from its record alone: what `ls` and `status` tell, and the journals that they read.

Pure but for the reading. ``now_wall_ns`` is the clock of whoever asks; it is only ever shown.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, NamedTuple

from ebbtide.cli.common.guard import Refused, worst
from ebbtide.cli.outage.outage_common import Cluster
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.messages import plural
from ebbtide.events.outage_events import LastBootStated
from ebbtide.events.record.episodes import outage_records
from ebbtide.events.record.format import rfc3339
from ebbtide.events.record.outage_record import OPEN, AttachmentRecord, OutageRecord, Statement, Subject
from ebbtide.events.units import short_span, span_s

if TYPE_CHECKING:
    from ebbtide.actors.edges.kubernetes.config_maps import StoredJournal
    from ebbtide.events.catalog import Source
    from ebbtide.events.recovery import Verdict

#: Of one journal; it is read in parts of some MiB at most.
READ_SECONDS_MAX = 60.0
#: For each journal by itself the server looks through the pieces of all, so more of them than these come
#: sooner in one list of all.
SINGLY_MAX = 20
#: The word in the key of what is ordered of the storm brake.
PERMIT = "permit"


class Hanging(NamedTuple):
    """A pod or a volume that is not over, and what it waits for."""

    kind: str
    label: str
    waits: str


class OutageSummary(NamedTuple):
    """``phase``: the stage it is in, or its outcome. ``proof``: whose word counts, until when by the clock of
    the leader's machine, or whose the taint was set for. ``brake``: what the storm brake said last.
    """

    record: OutageRecord
    phase: str
    waits: str
    proof: str
    proof_until_wall_ns: int | None
    opposed: tuple[str, ...]
    refused: tuple[Statement, ...]
    brake: str
    tainted: bool
    hangs: tuple[Hanging, ...]
    reminder: str

    @property
    def is_open(self) -> bool:
        return self.record.outcome == OPEN


def summary_of(record: OutageRecord) -> OutageSummary:
    """How it stands at the end of its record."""
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
    # Who does not say so any more is not refused any more.
    says_off = {who for who, said in record.sources.items() if said.reason == "off"}
    refused = {who: said for who, said in refused.items() if who in says_off}
    is_open = record.outcome == OPEN
    last = record.course[-1] if record.course else None
    until_ns = accepted.until_ns if accepted is not None and is_open else None
    hangs = [
        Hanging(
            "volume" if isinstance(each, AttachmentRecord) else "pod",
            each.label,
            waits_for(each),
        )
        for each in record.subjects
        if each.ended_ns is None
    ]
    return OutageSummary(
        record=record,
        phase=last.what if is_open and last is not None else record.outcome,
        waits=last.text if is_open and last is not None else "",
        proof=accepted.who if accepted is not None and is_open else record.proof,
        proof_until_wall_ns=None if until_ns is None else record.started_wall_ns + until_ns,
        opposed=tuple(opposed.values()) if is_open else (),
        refused=tuple(refused.values()) if is_open else (),
        brake=_brake(record),
        tainted=record.out_ns is not None and record.untainted_ns is None and is_open,
        hangs=tuple(hangs),
        reminder=_reminder(record) if is_open else "",
    )


def waits_for(subject: Subject) -> str:
    """What was said last of why it still hangs; empty: it does not, or nobody has said."""
    return subject.waits[-1].reason if subject.ended_ns is None and subject.waits else ""


def _brake(record: OutageRecord) -> str:
    last = next((each for each in reversed(record.orders) if each.what == PERMIT), None)
    if last is None:
        return ""
    if last.ended_ns is None:
        return "asked, and has not answered"
    return "lets it" if last.result == "done" else last.reason or last.result


def _reminder(record: OutageRecord) -> str:
    """What a person has to do about an outage that does not end by itself."""
    if record.recovered_ns is None or record.returned_ns is not None:
        return ""
    hung = f"{', '.join(record.unrecovered)} still hang" if record.unrecovered else "all that hung is over"
    taint = "the taint stays until it does"
    if record.untainted_ns is not None:
        taint = "somebody else has taken our taint away; it is not set again in this outage"
    return f"{record.node} has not come back: {hung}, and {taint}. Start the machine, or delete the Node"


def hangs_text(summary: OutageSummary) -> str:
    """``2 pods, 1 volume``; empty for nothing."""
    counts = {kind: sum(each.kind == kind for each in summary.hangs) for kind in ("pod", "volume")}
    return ", ".join(plural(count, kind) for kind, count in counts.items() if count)


def since_text(record: OutageRecord, now_wall_ns: int) -> str:
    """How long ago it began."""
    return short_span(max(0, now_wall_ns - record.started_wall_ns) / NS_PER_SECOND)


def summary_document(summary: OutageSummary) -> dict[str, Any]:
    """In the words of `outage ls -o json`."""
    record = summary.record
    until_ns = summary.proof_until_wall_ns
    return {
        "id": record.id,
        "traceId": record.trace_id,
        "node": record.node,
        "nodeUid": record.node_uid,
        "bootId": record.boot_id,
        "started": rfc3339(record.started_wall_ns),
        "outcome": record.outcome,
        "phase": summary.phase,
        "waitsFor": summary.waits,
        "reason": record.reason,
        "proof": summary.proof,
        "proofUntil": None if until_ns is None else rfc3339(until_ns),
        "contradictedBy": list(summary.opposed),
        "notCounted": [{"who": each.who, "why": each.text} for each in summary.refused],
        "sources": [
            {"who": who, "says": said.reason, "at": _moment(record, said.at_ns)}
            for who, said in sorted(record.sources.items())
        ],
        "brake": summary.brake,
        "tainted": summary.tainted,
        "outOfService": _moment(record, record.out_ns),
        "untainted": _moment(record, record.untainted_ns),
        "returned": _moment(record, record.returned_ns),
        "sameBoot": record.same_boot if record.returned_ns is not None else None,
        "effect": record.effect,
        "hangs": [each._asdict() for each in summary.hangs],
        "pods": [_subject_document(record, each) for each in record.pods],
        "volumes": [_subject_document(record, each) for each in record.attachments],
        "reminder": summary.reminder,
        "lastBoot": None if record.last_boot is None else _boot_document(record.last_boot),
        "alarms": [{"code": each.code, "text": each.text} for each in record.alarms],
    }


def _moment(record: OutageRecord, at_ns: int | None) -> str | None:
    """By the clock of the leader's machine."""
    return None if at_ns is None else rfc3339(record.started_wall_ns + at_ns)


def _subject_document(record: OutageRecord, subject: Subject) -> dict[str, Any]:
    return {
        "name": subject.label,
        "outcome": subject.outcome,
        "waitsFor": waits_for(subject),
        "ended": _moment(record, subject.ended_ns),
    }


def _boot_document(ended: LastBootStated) -> dict[str, Any]:
    return {
        "bootId": ended.boot_id,
        "ending": ended.ending,
        "why": ended.why,
        "wave": ended.wave if ended.wave >= 0 else None,
        "alive": rfc3339(ended.alive_wall_ns) if ended.alive_wall_ns else None,
        "journal": ended.journal_id,
        "trace": ended.trace_id,
        "saidBy": ended.said_by,
    }


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


async def _outages_of(
    cluster: Cluster, namespace: str, journal: StoredJournal
) -> tuple[list[OutageRecord], Verdict]:
    """Of one journal. Raises Refused."""
    import trio

    from ebbtide.actors.edges.kubernetes.config_maps import ConfigMapStorage

    def refuse(level: int, line: str) -> None:
        # A controller would wait until somebody mends that.
        raise Refused(line)

    place = ConfigMapStorage(cluster.caller, namespace, journal.node_uid, "", refuse, journal.node)
    try:
        with trio.fail_after(READ_SECONDS_MAX):
            return await place.call(_read, place.source)
    except trio.TooSlowError:
        raise Refused(
            f"{place.location} could not be read in {span_s(READ_SECONDS_MAX)}: try again"
        ) from None


async def _outages_together(
    cluster: Cluster, namespace: str, wanted: Collection[str]
) -> dict[str, tuple[list[OutageRecord], Verdict]]:
    """Of those of the ``wanted`` journals that lie in one piece, by the Node's UID. Raises Refused."""
    from ebbtide.actors.edges.kubernetes.config_maps import read_journals

    found: dict[str, tuple[list[OutageRecord], Verdict]] = {}
    parted: set[str] = set()

    def take(node_uid: str, source: Source) -> None:
        if node_uid in found:
            parted.add(node_uid)
        elif node_uid in wanted:
            found[node_uid] = _read(source)

    try:
        await read_journals(cluster.caller, namespace, take)
    except OSError as error:
        raise Refused(f"namespace {namespace}: {error.strerror or error}") from None
    return {node_uid: read for node_uid, read in found.items() if node_uid not in parted}


class Damaged(NamedTuple):
    """A journal that cannot be read to its end: outages may be hidden behind the damage."""

    node: str
    node_uid: str
    verdict: Verdict

    @property
    def line(self) -> str:
        """For people, with what to do."""
        name = self.node or self.node_uid
        return f"{name}: {self.verdict.banner}; 'ebbtide outage explain {name}' looks at what hangs now"

    @property
    def document(self) -> dict[str, str]:
        """In the words of `-o json`."""
        verdict = self.verdict
        return {
            "node": self.node,
            "nodeUid": self.node_uid,
            "state": verdict.state,
            "text": verdict.banner,
        }


class Found(NamedTuple):
    """Outages, oldest first, and the journals that may hide more of them; of so many ``journals`` in all."""

    records: list[OutageRecord]
    damaged: list[Damaged]
    journals: int = 0

    @property
    def code(self) -> int:
        """The exit code: 0 where all journals could be read to their ends."""
        return worst([each.verdict.exit_code for each in self.damaged])


async def outages_of(cluster: Cluster, namespace: str, journals: list[StoredJournal]) -> Found:
    """Raises Refused."""
    from ebbtide.actors.edges.kubernetes.api_calls import for_each

    together: dict[str, tuple[list[OutageRecord], Verdict]] = {}
    if len(journals) > SINGLY_MAX:
        together = await _outages_together(cluster, namespace, {each.node_uid for each in journals})

    async def one(journal: StoredJournal) -> tuple[list[OutageRecord], Verdict]:
        found = together.get(journal.node_uid)
        return found if found is not None else await _outages_of(cluster, namespace, journal)

    read = await for_each(journals, one)
    return Found(
        sorted(
            (record for records, _ in read for record in records),
            key=lambda each: (each.started_wall_ns, each.node),
        ),
        [
            Damaged(journal.node, journal.node_uid, verdict)
            for journal, (_, verdict) in zip(journals, read, strict=True)
            if verdict.state != "intact"
        ],
    )

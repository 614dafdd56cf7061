"""An outage as one value, and the fold that makes it: what page, tables, chain and export of outages share.

All times are nanoseconds since the outage began, on the writing leader's monotonic clock, and by the wall
clock from a leader on one machine to one on another. None: it did not happen, or nobody recorded it.

``course`` is what the outage as a whole waited for, one stage after another without a gap: before the taint
what the OutageActor says, from then on what hangs, and the way back. ``waits`` of a pod and of an attachment
are the same for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

from msgspec.structs import replace

from ebbtide.events.base import Event, Stamp, episode_id, parse_order_key, shutdown_trace_id
from ebbtide.events.codec import BadPayload, RawRecord, decode_event
from ebbtide.events.decisions import ActorFailed
from ebbtide.events.facts import FAILED_RESULTS, OrderEnded
from ebbtide.events.messages import plural
from ebbtide.events.outage_events import (
    CHANGED,
    AttachmentLeft,
    Contradicted,
    ContradictionEnded,
    Detached,
    DetachForced,
    DetachWaits,
    Effect,
    EvidenceRead,
    LastBootStated,
    LeaderStarted,
    LostPodRead,
    NodeRead,
    NodeReturned,
    OutageAbandoned,
    OutageBegan,
    OutageClosed,
    OutageSettings,
    OutageWaits,
    OutOfService,
    PodLost,
    PodRecovered,
    PodWaits,
    PowerOff,
    PowerOffGivenUp,
    ProofAccepted,
    ProofRefused,
    ProofVoided,
    ProofWasWrong,
    ReadNode,
    RemoveTaint,
    RequestPermit,
    SetQuarantine,
    SetTaint,
    StoodAside,
    WorkRecovered,
    who_of,
)
from ebbtide.events.reader import History
from ebbtide.events.record.episodes import (
    OPEN,
    OutageEnd,
    OutageEpisodeBuilder,
    first_record,
    grouped_by_episode,
    is_outage_history,
)
from ebbtide.events.record.fold import shutdown_records
from ebbtide.events.record.shutdown_record import DamageRecord, RecordPart, ShutdownRecord, damage_of
from ebbtide.events.segment import Header, Identity

PhaseKind = Literal[
    "proof",
    "permit",
    "reading",
    "tainting",
    "powering",
    "aside",
    "recovering",
    "out",
    "quarantined",
    "untainting",
    "following",
    "abandoned",
]
StatementKind = Literal["accepted", "refused", "voided", "contradicted", "contradiction-ended"]


class Wait(RecordPart):
    """From ``at_ns`` on it waited for this, until the next one or its end."""

    at_ns: int
    reason: str


class Phase(RecordPart):
    """``ended_ns`` None: it goes on."""

    what: PhaseKind
    text: str
    began_ns: int
    ended_ns: int | None = None


class Statement(RecordPart):
    """What became of something that a source said; ``who`` as `OutOfService.proof` names it."""

    what: StatementKind
    at_ns: int
    who: str = ""
    text: str = ""
    until_ns: int | None = None


class LostPodRecord(RecordPart):
    """A pod that hung on the node. ``by`` is its successor's UID; its own: it runs on here."""

    uid: str
    namespace: str
    name: str
    owner: str = ""
    tolerates: bool = False
    finalizers: tuple[str, ...] = ()
    began_ns: int
    ended_ns: int | None = None
    by: str = ""
    node: str = ""
    waits: tuple[Wait, ...] = ()

    @property
    def label(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def outcome(self) -> str:
        """``recovered`` elsewhere, ``gone`` (nobody makes it again), ``spared``, or ``waiting``."""
        if self.ended_ns is None:
            return "waiting"
        return "gone" if not self.by else "spared" if self.by == self.uid else "recovered"


class AttachmentRecord(RecordPart):
    """A VolumeAttachment that was there."""

    name: str
    volume: str = ""
    driver: str = ""
    began_ns: int
    ended_ns: int | None = None
    before_taint: bool = False
    #: By the attach-detach controller's six-minute timer.
    forced: bool = False
    kept: bool = False
    waits: tuple[Wait, ...] = ()

    @property
    def label(self) -> str:
        return self.volume or self.name

    @property
    def outcome(self) -> str:
        """``detached``, ``forced`` (by the six-minute timer), ``kept`` (the node is back), ``waiting``."""
        if self.ended_ns is None:
            return "waiting"
        return "kept" if self.kept else "forced" if self.forced else "detached"


Subject = LostPodRecord | AttachmentRecord


class NodeOrderRecord(RecordPart):
    """An order about the Node, by the word in its key: permit, taint, quarantine, untaint, power-off."""

    what: str
    key: str
    seq: int
    began_ns: int
    ended_ns: int | None = None
    result: str = ""
    reason: str = ""


class LeaderRecord(RecordPart):
    """A process that wrote in this outage; the first one may have begun before it (``at_ns`` None)."""

    at_ns: int | None
    replica: str
    version: str


class Alarm(RecordPart):
    """What somebody has to look at. ``code`` is stable, ``text`` for people."""

    at_ns: int
    seq: int
    code: str
    text: str


class OutageRecord(RecordPart):
    """One outage. ``boot_id`` is the Node's, as it was on record when the outage began."""

    id: str
    trace_id: str
    journal_id: str
    first_seq: int
    last_seq: int
    node: str
    node_uid: str
    boot_id: str
    version: str
    logic: str = ""
    outcome: OutageEnd = OPEN
    started_wall_ns: int
    started_mono_ns: int
    ended_ns: int | None = None
    #: Where the record ends.
    last_ns: int = 0
    damage: DamageRecord | None = None
    settings: OutageSettings = OutageSettings()
    reason: str = ""
    #: Since when the taint stands; whose word it was.
    out_ns: int | None = None
    effect: Effect | Literal[""] = ""
    proof: str = ""
    recovered_ns: int | None = None
    returned_ns: int | None = None
    same_boot: bool | None = None
    #: Since when our taint is gone again.
    untainted_ns: int | None = None
    unrecovered: tuple[str, ...] = ()
    course: tuple[Phase, ...] = ()
    statements: tuple[Statement, ...] = ()
    pods: tuple[LostPodRecord, ...] = ()
    attachments: tuple[AttachmentRecord, ...] = ()
    orders: tuple[NodeOrderRecord, ...] = ()
    leaders: tuple[LeaderRecord, ...] = ()
    alarms: tuple[Alarm, ...] = ()
    #: What each source said last, and when: ``off``, ``on``, ``unknown`` and its error.
    sources: dict[str, Wait] = {}
    #: Why it was not graceful, where the node has said so.
    last_boot: LastBootStated | None = None

    @property
    def kind(self) -> Literal["outage"]:
        return "outage"

    @property
    def subjects(self) -> tuple[Subject, ...]:
        """Everything that hung."""
        return (*self.pods, *self.attachments)


# --- the fold ----------------------------------------------------------------------------------


def outage_records(history: History, *, boot_id: str | None = None) -> Iterator[OutageRecord]:
    """The outages of a history, oldest first; one that goes on comes last. Takes memory for one of them.

    A pure fold of what was recorded. ``boot_id`` (this machine's) says nothing of an outage. A journal of
    shutdowns has none.
    """
    if not is_outage_history(history):
        history.read()
        return
    outage: OutageBuilder | None = None
    leader: tuple[RawRecord, LeaderStarted] | None = None
    fact: RawRecord | None = None
    for batch in history.batches():
        for raw in grouped_by_episode(batch.records):
            if raw.cause == 0:
                fact = raw
            if raw.tag == LeaderStarted.__name__:
                started = _decoded(raw)
                leader = (raw, started) if isinstance(started, LeaderStarted) else None
            if raw.episode and (outage is None or raw.episode != outage.number):
                if outage is not None:
                    yield outage.record(history.journal_id)
                outage = OutageBuilder(raw.episode, first_record(raw, fact), batch.header)
                if leader is not None and leader[0].seq < raw.episode:
                    outage.led(leader[1], None)
            if outage is not None and raw.episode == outage.number:
                outage.add(raw, batch.header)
            elif outage is not None and not raw.episode and raw.tag in outage.late:
                outage.add_late(raw, batch.header)
    if outage is not None:
        yield outage.record(history.journal_id, damage_of(history.verdict, here=outage.outcome == OPEN))


#: Whatever a journal tells of.
EpisodeRecord = ShutdownRecord | OutageRecord


def records_of(history: History, *, boot_id: str | None = None) -> Iterator[EpisodeRecord]:
    """Its shutdowns, or its outages, by whose journal it is."""
    folds: dict[bool, Callable[..., Iterator[EpisodeRecord]]] = {
        False: shutdown_records,
        True: outage_records,
    }
    return folds[is_outage_history(history)](history, boot_id=boot_id)


def _decoded(raw: RawRecord) -> object:
    try:
        return decode_event(raw.tag, raw.payload)
    except BadPayload:
        return None


class OutageBuilder(OutageEpisodeBuilder):
    """An outage while it is being read, with everything that an `OutageRecord` says of it."""

    def __init__(self, number: int, first: RawRecord, header: Header) -> None:
        started = Stamp(first.mono_ns, first.wall_ns)
        super().__init__(number, started, header.identity.boot_id, first.hash)
        self.identity: Identity = header.identity
        self.fields: dict[str, Any] = {}
        #: Of the record that is being interpreted, by its leader's clock.
        self.mono_ns = first.mono_ns
        self.last_ns = 0
        self.course: list[Phase] = []
        self.statements: list[Statement] = []
        self.pods: dict[str, LostPodRecord] = {}
        self.attachments: dict[str, AttachmentRecord] = {}
        self.orders: dict[str, NodeOrderRecord] = {}
        self.leaders: list[LeaderRecord] = []
        self.alarms: list[Alarm] = []
        self.sources: dict[str, Wait] = {}

    def add(self, raw: RawRecord, header: Header) -> None:
        """One record of it; ``header`` is its segment's. What cannot be read says nothing."""
        self.turn_to(raw, header.identity.boot_id)
        self.last_seq, self.mono_ns = raw.seq, raw.mono_ns
        # Behind its end nothing is waited for: what comes in the same step says what the end led to.
        if self.ended_ns is None:
            self.last_ns = max(self.last_ns, self.point.at_ns)
        handlers = (self.handlers.get(raw.tag), _MEANINGS.get(raw.tag))
        event = _decoded(raw) if any(handlers) else None
        for handle in handlers if event is not None else ():
            if handle is not None:
                handle(self, event)

    def add_late(self, raw: RawRecord, header: Header) -> None:
        """One behind its end."""
        self.turn_to(raw, header.identity.boot_id)
        if (event := _decoded(raw)) is not None:
            self.handlers[raw.tag](self, event)
            _MEANINGS[raw.tag](self, event)

    def led(self, event: LeaderStarted, at_ns: int | None) -> None:
        self.leaders.append(LeaderRecord(at_ns=at_ns, replica=event.replica, version=event.version))
        self.fields["settings"] = event.settings

    def enter(self, what: PhaseKind, text: str) -> None:
        """What the whole outage waits for from now on."""
        at_ns = self.point.at_ns
        if self.course:
            last = self.course.pop()
            # Of stages of no time the last one counts: several are gone through in one step.
            if last.began_ns < at_ns:
                self.course.append(replace(last, ended_ns=at_ns))
        before = self.course[-1] if self.course else None
        if before is not None and (before.what, before.text) == (what, text):
            # What came in between took no time: it goes on.
            self.course[-1] = replace(before, ended_ns=None)
        else:
            self.course.append(Phase(what=what, text=text, began_ns=at_ns))

    @property
    def phase(self) -> PhaseKind | None:
        return self.course[-1].what if self.course else None

    def alarm(self, code: str, text: str) -> None:
        self.alarms.append(Alarm(at_ns=self.point.at_ns, seq=self.point.seq, code=code, text=text))

    def said(self, what: StatementKind, who: str, text: str = "", until_ns: int | None = None) -> None:
        at_ns = self.point.at_ns
        self.statements.append(Statement(what=what, at_ns=at_ns, who=who, text=text, until_ns=until_ns))

    def record(self, journal_id: bytes, damage: DamageRecord | None = None) -> OutageRecord:
        """The record as it stands."""
        course = [replace(each, ended_ns=each.ended_ns or self.ended_ns) for each in self.course]
        # The last one begins where all ends, unless it was waited for.
        course = [each for each in course if each.ended_ns != each.began_ns]
        return OutageRecord(
            id=episode_id(journal_id, self.number),
            trace_id=shutdown_trace_id(self.first_hash),
            journal_id=journal_id.hex(),
            first_seq=self.number,
            last_seq=self.last_seq,
            version=self.identity.code_version,
            logic=self.identity.logic,
            outcome=self.outcome,
            started_wall_ns=self.started.wall_ns,
            started_mono_ns=self.started.mono_ns,
            ended_ns=self.ended_ns,
            last_ns=self.last_ns,
            damage=damage,
            course=tuple(course),
            statements=tuple(self.statements),
            pods=tuple(self.pods.values()),
            attachments=tuple(self.attachments.values()),
            orders=tuple(self.orders.values()),
            leaders=tuple(self.leaders),
            alarms=tuple(self.alarms),
            sources=self.sources,
            # Of a journal whose begin is lost the header knows whose it is.
            **{
                "node": self.identity.node,
                "node_uid": self.identity.machine_id,
                "boot_id": "",
                **self.fields,
            },
        )


# --- what each event means ---------------------------------------------------------------------


def _leader_started(outage: OutageBuilder, event: LeaderStarted) -> None:
    outage.led(event, outage.point.at_ns)


def _began(outage: OutageBuilder, event: OutageBegan) -> None:
    outage.fields |= {
        "node": event.node,
        "node_uid": event.node_uid,
        "boot_id": event.boot_id,
        "reason": event.reason,
    }
    outage.enter("proof", "nothing is known of the machine yet")


#: While the outage is here, a reason to wait is one of those before the taint.
_BEFORE: tuple[PhaseKind | None, ...] = (None, "proof", "permit", "reading", "tainting", "powering", "aside")


def _waits(outage: OutageBuilder, event: OutageWaits) -> None:
    phase = outage.phase
    if phase in _BEFORE:
        brake = event.reason.startswith(BRAKE_SAYS)
        outage.enter("permit" if brake else "proof", event.reason)
    elif phase is not None:
        outage.enter(phase, event.reason)


#: How the OutageActor begins what the storm brake has said.
BRAKE_SAYS = "the storm brake: "

_ORDER_PHASES: dict[type[Event], tuple[PhaseKind, str]] = {
    RequestPermit: ("permit", "the storm brake is asked"),
    ReadNode: ("reading", "the Node is read again"),
    SetTaint: ("tainting", "the taint is stored, and written"),
    PowerOff: ("powering", "the machine is switched off"),
    SetQuarantine: ("quarantined", "volumes that the kubelet still uses are waited for"),
    RemoveTaint: ("untainting", "our taint is taken away"),
}


def _ordered(outage: OutageBuilder, event: Any) -> None:
    key = parse_order_key(event.key)
    point = outage.point
    outage.orders[event.key] = NodeOrderRecord(
        what=key.what, key=event.key, seq=point.seq, began_ns=point.at_ns
    )
    what, text = _ORDER_PHASES[type(event)]
    outage.enter(what, text)


#: What an order that failed leaves to wait for, by its kind.
_FAILED_TEXTS: dict[str, tuple[PhaseKind, str]] = {
    "taint": ("tainting", "the taint could not be written, and is tried again"),
    "untaint": ("untainting", "our taint could not be taken away, and that is tried again"),
    "quarantine": ("quarantined", "the quarantine could not be written, and is tried again"),
    "power-off": ("powering", "the machine could not be switched off"),
}


def _order_ended(outage: OutageBuilder, event: OrderEnded) -> None:
    order = outage.orders.get(event.key)
    if order is None or order.ended_ns is not None:
        return
    at_ns = outage.point.at_ns
    outage.orders[event.key] = replace(order, ended_ns=at_ns, result=event.result, reason=event.reason)
    if order.what == "untaint" and event.result == "done":
        outage.fields["untainted_ns"] = at_ns
        outage.enter("following", "what still hangs is waited for, and the node")
    elif event.result in FAILED_RESULTS and event.reason != CHANGED and order.what in _FAILED_TEXTS:
        # The same stage, with why it takes so long: it is tried again.
        what, text = _FAILED_TEXTS[order.what]
        outage.enter(what, f"{text}: {event.reason or event.result}")


def _out_of_service(outage: OutageBuilder, event: OutOfService) -> None:
    outage.fields |= {"out_ns": outage.point.at_ns, "effect": event.effect, "proof": event.proof}
    outage.enter("recovering", "what hangs is waited for")


def _recovered(outage: OutageBuilder, event: WorkRecovered) -> None:
    outage.fields["recovered_ns"] = outage.point.at_ns
    if event.unrecovered:
        outage.fields["unrecovered"] = event.unrecovered
    if outage.phase == "recovering":
        outage.enter("out", "the node has not come back")


def _node_read(outage: OutageBuilder, event: NodeRead) -> None:
    """Others may take our taint away, and so may an order whose outcome nobody has heard. One whose note is
    spoilt still stands.
    """
    if outage.fields.get("out_ns") is None:
        return
    if event.taint == "ours":
        outage.fields["untainted_ns"] = None
    elif event.taint == "none" and outage.fields.get("untainted_ns") is None:
        outage.fields["untainted_ns"] = outage.point.at_ns


def _returned(outage: OutageBuilder, event: NodeReturned) -> None:
    outage.fields |= {
        "returned_ns": outage.point.at_ns,
        "same_boot": None if event.doubt else event.same_boot,
    }


def _aside(outage: OutageBuilder, event: StoodAside) -> None:
    outage.enter("aside", "another controller's taint stands on the node")


def _closed(outage: OutageBuilder, event: OutageClosed) -> None:
    if event.unrecovered:
        outage.fields["unrecovered"] = event.unrecovered


def _abandoned(outage: OutageBuilder, event: OutageAbandoned) -> None:
    text = "the OutageActor has failed: nothing is decided until another leader starts"
    if outage.phase != "abandoned":
        outage.alarm(
            "abandoned", f"{text}; {'our taint stands' if event.tainted else 'it has no taint of ours'}"
        )
        outage.enter("abandoned", text)


def _proof_was_wrong(outage: OutageBuilder, event: ProofWasWrong) -> None:
    text = f"{event.proof} said that the machine was off, and it was not: {event.what}"
    outage.alarm("proof-wrong", f"{text}. Two nodes may have written the same data.")


def _actor_failed(outage: OutageBuilder, event: ActorFailed) -> None:
    subject = f" of {event.subject}" if event.subject else ""
    outage.alarm("actor-failed", f"{event.actor}{subject} has failed: {event.error}")


def _accepted(outage: OutageBuilder, event: ProofAccepted) -> None:
    # On this leader's clock, as the record's own stamp is: between the two lies how long it counts.
    until_ns = outage.point.at_ns + event.until_ns - outage.mono_ns
    outage.said("accepted", who_of(event), until_ns=until_ns)


def _refused(outage: OutageBuilder, event: ProofRefused) -> None:
    outage.said("refused", who_of(event), event.reason)


def _voided(outage: OutageBuilder, event: ProofVoided) -> None:
    outage.said("voided", "", event.reason)


def _contradicted(outage: OutageBuilder, event: Contradicted) -> None:
    outage.said("contradicted", who_of(event), event.what)


def _contradiction_ended(outage: OutageBuilder, event: ContradictionEnded) -> None:
    outage.said("contradiction-ended", who_of(event), event.reason)


def _power_off_given_up(outage: OutageBuilder, event: PowerOffGivenUp) -> None:
    times = plural(event.ordered, "order")
    outage.alarm(
        "power-off-given-up", f"the machine is not switched off any more, after {times}: {event.reason}"
    )


def _detach_forced(outage: OutageBuilder, event: DetachForced) -> None:
    outage.alarm(
        "six-minute-detach",
        f"volume {event.volume or event.name} was detached by the attach-detach controller's timer, before"
        " NodeUnstage and without the taint: if the node still writes, its data may be damaged",
    )


def _evidence(outage: OutageBuilder, event: EvidenceRead) -> None:
    # Who can only contradict proves nothing: it has taken that back.
    verdict = "nothing" if event.verdict == "off" and event.source in ("peer", "kubelet") else event.verdict
    said = f"{verdict}: {event.error}" if event.error else verdict
    outage.sources[who_of(event)] = Wait(at_ns=outage.point.at_ns, reason=said)


def _last_boot(outage: OutageBuilder, event: LastBootStated) -> None:
    # Whether it is about this outage, the summary's handler has said; told again it stays as it was.
    if outage.boots.told is event:
        outage.fields["last_boot"] = event


def _pod_lost(outage: OutageBuilder, event: PodLost) -> None:
    pod = event.pod
    outage.pods[pod.uid] = LostPodRecord(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        owner=pod.owner,
        tolerates=pod.tolerates,
        finalizers=pod.finalizers,
        began_ns=outage.point.at_ns,
    )


def _pod_read(outage: OutageBuilder, event: LostPodRead) -> None:
    if (pod := outage.pods.get(event.pod.uid)) is not None:
        outage.pods[pod.uid] = replace(pod, tolerates=event.pod.tolerates, finalizers=event.pod.finalizers)


def _pod_waits(outage: OutageBuilder, event: PodWaits) -> None:
    if (pod := outage.pods.get(event.uid)) is not None:
        wait = Wait(at_ns=outage.point.at_ns, reason=event.reason)
        outage.pods[pod.uid] = replace(pod, waits=(*pod.waits, wait))


def _pod_recovered(outage: OutageBuilder, event: PodRecovered) -> None:
    if (pod := outage.pods.get(event.uid)) is not None:
        at_ns = outage.point.at_ns
        outage.pods[pod.uid] = replace(pod, ended_ns=at_ns, by=event.by, node=event.node)


def _attachment_left(outage: OutageBuilder, event: AttachmentLeft) -> None:
    found = event.attachment
    outage.attachments[found.name] = AttachmentRecord(
        name=found.name, volume=found.volume, driver=found.driver, began_ns=outage.point.at_ns
    )


def _attachment_waits(outage: OutageBuilder, event: DetachWaits) -> None:
    if (found := outage.attachments.get(event.name)) is not None:
        wait = Wait(at_ns=outage.point.at_ns, reason=event.reason)
        outage.attachments[event.name] = replace(found, waits=(*found.waits, wait))


def _detached(outage: OutageBuilder, event: Detached) -> None:
    if (found := outage.attachments.get(event.name)) is not None:
        at_ns = outage.point.at_ns
        outage.attachments[event.name] = replace(
            found, ended_ns=at_ns, before_taint=event.before_taint, forced=event.forced, kept=event.kept
        )


_BY_TYPE: dict[type[Event], Callable[[OutageBuilder, Any], None]] = {
    LeaderStarted: _leader_started,
    OutageBegan: _began,
    OutageWaits: _waits,
    **dict.fromkeys(_ORDER_PHASES, _ordered),
    OrderEnded: _order_ended,
    OutOfService: _out_of_service,
    WorkRecovered: _recovered,
    NodeRead: _node_read,
    NodeReturned: _returned,
    StoodAside: _aside,
    OutageClosed: _closed,
    OutageAbandoned: _abandoned,
    ProofWasWrong: _proof_was_wrong,
    ActorFailed: _actor_failed,
    ProofAccepted: _accepted,
    ProofRefused: _refused,
    ProofVoided: _voided,
    Contradicted: _contradicted,
    ContradictionEnded: _contradiction_ended,
    PowerOffGivenUp: _power_off_given_up,
    DetachForced: _detach_forced,
    EvidenceRead: _evidence,
    LastBootStated: _last_boot,
    PodLost: _pod_lost,
    LostPodRead: _pod_read,
    PodWaits: _pod_waits,
    PodRecovered: _pod_recovered,
    AttachmentLeft: _attachment_left,
    DetachWaits: _attachment_waits,
    Detached: _detached,
}
_MEANINGS = {kind.__name__: meaning for kind, meaning in _BY_TYPE.items()}

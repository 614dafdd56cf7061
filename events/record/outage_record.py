"""An outage as one value, and the fold that makes it.

Times are nanoseconds since the outage began: on the writing leader's monotonic clock, by the wall clock
between leaders. None: it did not happen, or is not on record.
"""

from __future__ import annotations

from typing import Any, Literal

from ebbtide.events import outage_events as o
from ebbtide.events.base import Event, Order, parse_order_key
from ebbtide.events.codec import BadPayload, RawRecord, decode_event
from ebbtide.events.decisions import ActorFailed
from ebbtide.events.facts import FAILED_RESULTS, OrderEnded
from ebbtide.events.messages import plural
from ebbtide.events.record.fold import PARTS_MAX, EpisodeFold, begin_of_record, meaning
from ebbtide.events.record.shutdown_record import DamageRecord, EpisodePart, RecordPart
from ebbtide.events.segment import Header

#: A row on the outage's page counts so many (`fold.KEPT_MAX`), so a page has at most 10 000.
ROW_VALUES = 500
EARLIER = "several reasons, one after another"
#: In place of an outcome.
OPEN: Literal["open"] = "open"
OutageEnd = o.OutageOutcome | Literal["open"]
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
    """From ``at_ns`` until the next one, or the end."""

    at_ns: int
    reason: str


class Phase(RecordPart):
    """``ended_ns`` None: it continues."""

    what: PhaseKind
    text: str
    began_ns: int
    ended_ns: int | None = None


class Statement(RecordPart):
    """``who`` as in `OutOfService.proof`."""

    what: StatementKind
    at_ns: int
    who: str = ""
    text: str = ""
    until_ns: int | None = None


class LostPodRecord(RecordPart):
    """``by``: its successor's UID; its own UID: it still runs here."""

    uid: str
    namespace: str
    name: str
    owner: str = ""
    began_ns: int
    ended_ns: int | None = None
    by: str = ""
    node: str = ""
    waits: list[Wait] = []

    @property
    def label(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def outcome(self) -> str:
        """``gone``: no controller makes it again; ``spared``: it still runs here."""
        if self.ended_ns is None:
            return "waiting"
        return "gone" if not self.by else "spared" if self.by == self.uid else "recovered"


class AttachmentRecord(RecordPart):
    name: str
    volume: str = ""
    driver: str = ""
    began_ns: int
    ended_ns: int | None = None
    before_taint: bool = False
    #: As in `DetachForced`.
    forced: bool = False
    kept: bool = False
    waits: list[Wait] = []

    @property
    def label(self) -> str:
        return self.volume or self.name

    @property
    def outcome(self) -> str:
        """``forced``: without the taint; ``kept``: the node is back."""
        if self.ended_ns is None:
            return "waiting"
        return "kept" if self.kept else "forced" if self.forced else "detached"


Subject = LostPodRecord | AttachmentRecord


class LeaderRecord(RecordPart):
    """A process that wrote in this outage. ``at_ns`` None: it began before."""

    at_ns: int | None
    replica: str
    version: str


class Alarm(RecordPart):
    """A fault that needs a person. ``code`` is stable, ``text`` is for people."""

    at_ns: int
    seq: int
    code: str
    text: str


class OutageRecord(EpisodePart):
    """One outage. ``boot_id``: the Node's, at the outage's begin.

    ``course``: what it waited for, one stage after another, without a gap.
    """

    node_uid: str
    outcome: OutageEnd = OPEN
    settings: o.OutageSettings = o.OutageSettings()
    reason: str = ""
    #: When the taint was set.
    out_ns: int | None = None
    effect: o.Effect | Literal[""] = ""
    proof: str = ""
    recovered_ns: int | None = None
    returned_ns: int | None = None
    same_boot: bool | None = None
    untainted_ns: int | None = None
    unrecovered: tuple[str, ...] = ()
    course: tuple[Phase, ...] = ()
    statements: list[Statement] = []
    pods: tuple[LostPodRecord, ...] = ()
    attachments: tuple[AttachmentRecord, ...] = ()
    #: The storm brake's last answer.
    brake: str = ""
    leaders: list[LeaderRecord] = []
    alarms: list[Alarm] = []
    #: Each source's latest verdict, with its error.
    sources: dict[str, Wait] = {}
    #: The node's own report.
    last_boot: o.LastBootStated | None = None

    @property
    def kind(self) -> Literal["outage"]:
        return "outage"

    @property
    def end_ns(self) -> int:
        """The end of the record, if the outage is open."""
        return self.last_ns if self.ended_ns is None else self.ended_ns

    @property
    def subjects(self) -> tuple[Subject, ...]:
        return (*self.pods, *self.attachments)


# --- the fold


class OutageBoots:
    """Decides whether a Node's report on a boot is about the outage.

    The boot must have been on record when the outage began, or when the taint was ordered. After the outage's
    end another boot must have replaced it: a boot that was only unreachable may end at any later time.
    """

    def __init__(self) -> None:
        self._suspected: dict[str, None] = {}
        self._read: dict[str, None] = {}
        self.told: o.LastBootStated | None = None

    def gone(self, event: o.OutageBegan | o.SetTaint) -> None:
        self._suspected[event.boot_id] = None

    def read(self, event: o.NodeRead) -> None:
        self._read[event.boot_id] = None

    def tell(self, event: o.LastBootStated, *, over: bool) -> bool:
        """True: it is new, and about this outage."""
        replaced = any(boot != event.boot_id for boot in self._read)
        if event == self.told or event.boot_id not in self._suspected or (over and not replaced):
            return False
        self.told = event
        return True


class LeaderBefore:
    def __init__(self) -> None:
        self.seq = 0
        self.event: o.LeaderStarted | None = None

    def learn(self, raw: RawRecord) -> None:
        """Raises BadPayload."""
        if raw.tag == o.LeaderStarted.__name__:
            self.seq, self.event = raw.seq, None
            event = decode_event(raw.tag, raw.payload)
            assert isinstance(event, o.LeaderStarted)
            self.event = event


#: How the OutageActor begins its reasons.
BRAKE_SAYS = "the storm brake: "
PAUSED_SAYS, DRY_SAYS = "paused by a person", "dry run: "

#: The phases before the taint.
_BEFORE: tuple[PhaseKind | None, ...] = (None, "proof", "permit", "reading", "tainting", "powering", "aside")

_ORDER_PHASES: dict[type[Order], tuple[PhaseKind, str]] = {
    o.RequestPermit: ("permit", "the storm brake is asked"),
    o.ReadNode: ("reading", "the Node is read again"),
    o.SetTaint: ("tainting", "the taint is stored, and written"),
    o.PowerOff: ("powering", "the machine is switched off"),
    o.SetQuarantine: ("quarantined", "volumes that the kubelet still uses are waited for"),
    o.RemoveTaint: ("untainting", "our taint is taken away"),
}

_STATEMENTS: dict[type[Event], StatementKind] = {
    o.ProofRefused: "refused",
    o.ProofVoided: "voided",
    o.Contradicted: "contradicted",
    o.ContradictionEnded: "contradiction-ended",
}

#: The phase after a failed order.
_FAILED_TEXTS: dict[str, tuple[PhaseKind, str]] = {
    "taint": ("tainting", "the taint could not be written, and is tried again"),
    "untaint": ("untainting", "our taint could not be taken away, and that is tried again"),
    "quarantine": ("quarantined", "the quarantine could not be written, and is tried again"),
    "power-off": ("powering", "the machine could not be switched off"),
    "read": ("reading", "the Node could not be read, and is read again"),
}


class OutageFold(EpisodeFold):
    """`finish` completes ``record``."""

    record: OutageRecord
    late_tags = (o.LastBootStated.__name__,)

    def __init__(
        self,
        number: int,
        first: RawRecord,
        header: Header,
        before: LeaderBefore,
        former: OutageFold | None = None,
    ) -> None:
        identity = header.identity
        super().__init__(number, first, identity.boot_id)
        self.record = OutageRecord(
            **{**begin_of_record(number, first, header), "boot_id": ""},
            # For a journal that has lost its begin.
            node_uid=identity.machine_id,
        )
        #: The current record's time, on its leader's monotonic clock.
        self.mono_ns = first.mono_ns
        self.boots = OutageBoots()
        #: Of the Node as last read, by `IdentityKind`.
        self.identities: dict[str, str] = {}
        self.course: list[Phase] = []
        self.pods: dict[str, LostPodRecord] = {}
        self.attachments: dict[str, AttachmentRecord] = {}
        #: Open orders about the Node: the word in the key, by key.
        self.orders: dict[str, str] = {}
        if before.event is not None and before.seq < number:
            self.led(before.event, None)

    @property
    def goes_on(self) -> bool:
        return self.record.outcome == OPEN

    def take(self, raw: RawRecord, header: Header, fact: RawRecord | None) -> Event | None:
        late = not raw.episode and raw.tag in self.late_tags
        if raw.episode != self.number and not late:
            return None
        self.turn_to(raw, header.identity.boot_id)
        if not late:
            self.record.last_seq, self.mono_ns = raw.seq, raw.mono_ns
            # More records of the closing step are no part of the outage.
            if self.record.ended_ns is None:
                self.record.last_ns = max(self.record.last_ns, self.point.at_ns)
        event, handle = None, self.handlers.get(raw.tag)
        if handle is not None:
            try:
                event = self.decode(raw)
                handle(self, event)
            except BadPayload as error:
                self.unreadable = error
        return event

    def led(self, event: o.LeaderStarted, at_ns: int | None) -> None:
        self.record.leaders.append(LeaderRecord(at_ns=at_ns, replica=event.replica, version=event.version))
        self.record.settings = event.settings

    def enter(self, what: PhaseKind, text: str) -> None:
        at_ns = self.point.at_ns
        if self.course and self.course[-1].began_ns < at_ns:
            self.course[-1].ended_ns = at_ns
        elif self.course:
            # One step may pass several stages: only the last one takes time.
            self.course.pop()
        before = self.course[-1] if self.course else None
        if before is not None and (before.what, before.text) == (what, text):
            # The stage in between took no time.
            before.ended_ns = None
        else:
            self.course.append(Phase(what=what, text=text, began_ns=at_ns))

    @property
    def phase(self) -> PhaseKind | None:
        return self.course[-1].what if self.course else None

    def wait(self, subject: Subject, reason: str) -> None:
        subject.waits.append(Wait(at_ns=self.point.at_ns, reason=reason))
        if len(subject.waits) > PARTS_MAX:
            subject.waits[:2] = [Wait(at_ns=subject.waits[0].at_ns, reason=EARLIER)]

    def alarm(self, code: str, text: str) -> None:
        self.spend(ROW_VALUES)
        seq, at_ns, _ = self.point
        self.record.alarms.append(Alarm(at_ns=at_ns, seq=seq, code=code, text=text))

    def finish(self, boot_id: str | None = None, damage: DamageRecord | None = None) -> OutageRecord:
        record = self.record
        record.damage = damage
        for each in self.course:
            if each.ended_ns is None:
                each.ended_ns = record.ended_ns
        # A stage that begins at the outage's end took no time.
        record.course = tuple(each for each in self.course if each.ended_ns != each.began_ns)
        record.pods = tuple(self.pods.values())
        record.attachments = tuple(self.attachments.values())
        return record

    # --- what each event means

    @meaning(o.LeaderStarted)
    def leader_started(self, event: o.LeaderStarted) -> None:
        self.led(event, self.point.at_ns)

    @meaning(o.OutageBegan)
    def outage_began(self, event: o.OutageBegan) -> None:
        record = self.record
        record.node, record.node_uid, record.boot_id = event.node, event.node_uid, event.boot_id
        record.reason = event.reason
        self.boots.gone(event)
        self.enter("proof", "no source has reported on the machine yet")

    @meaning(o.OutageWaits)
    def outage_waits(self, event: o.OutageWaits) -> None:
        phase = self.phase
        if phase in _BEFORE:
            self.enter("permit" if event.reason.startswith(BRAKE_SAYS) else "proof", event.reason)
        elif phase is not None:
            self.enter(phase, event.reason)

    @meaning(*_ORDER_PHASES)
    def node_order_given(self, event: Order) -> None:
        if isinstance(event, o.SetTaint):
            self.boots.gone(event)
        elif isinstance(event, o.RequestPermit):
            self.record.brake = "asked, and has not answered"
        self.spend(ROW_VALUES)
        self.orders[event.key] = parse_order_key(event.key).what
        self.enter(*_ORDER_PHASES[type(event)])

    @meaning(OrderEnded)
    def node_order_ended(self, event: OrderEnded) -> None:
        ordered = self.orders.pop(event.key, "")
        if ordered == "permit":
            self.record.brake = "grants it" if event.result == "done" else event.reason or event.result
        elif ordered == "untaint" and event.result == "done":
            self.record.untainted_ns = self.point.at_ns
            self.enter("following", "what still hangs is waited for, and the node")
        elif event.result in FAILED_RESULTS and event.reason != o.CHANGED and ordered in _FAILED_TEXTS:
            what, text = _FAILED_TEXTS[ordered]
            self.enter(what, f"{text}: {event.reason or event.result}")

    @meaning(o.OutOfService)
    def out_of_service(self, event: o.OutOfService) -> None:
        record = self.record
        record.out_ns, record.effect, record.proof = self.point.at_ns, event.effect, event.proof
        self.enter("recovering", "what hangs is waited for")

    @meaning(o.WorkRecovered)
    def work_recovered(self, event: o.WorkRecovered) -> None:
        self.record.recovered_ns = self.point.at_ns
        self.record.unrecovered = event.unrecovered or self.record.unrecovered
        if self.phase == "recovering":
            self.enter("out", "the node has not come back")

    @meaning(o.NodeRead)
    def node_read(self, event: o.NodeRead) -> None:
        """Another program may remove our taint. A taint with a damaged note still counts as set."""
        self.boots.read(event)
        self.identities = {
            "systemUUID": event.system_uuid,
            "providerID": event.provider_id,
            "nodeUID": event.uid,
        }
        record = self.record
        if record.out_ns is None:
            return
        if event.taint == "ours":
            record.untainted_ns = None
        elif event.taint == "none" and record.untainted_ns is None:
            record.untainted_ns = self.point.at_ns

    @meaning(o.NodeReturned)
    def node_returned(self, event: o.NodeReturned) -> None:
        self.record.returned_ns = self.point.at_ns
        self.record.same_boot = event.same_boot

    @meaning(o.StoodAside)
    def stood_aside(self, event: o.StoodAside) -> None:
        self.enter("aside", "another controller's taint stands on the node")

    @meaning(o.OutageClosed)
    def outage_closed(self, event: o.OutageClosed) -> None:
        record = self.record
        record.outcome, record.ended_ns = event.outcome, self.point.at_ns
        record.unrecovered = event.unrecovered or record.unrecovered

    @meaning(o.OutageAbandoned)
    def outage_abandoned(self, event: o.OutageAbandoned) -> None:
        text = "the OutageActor has failed: no decisions until another leader starts"
        if self.phase != "abandoned":
            taint = "our taint is set" if event.tainted else "our taint is not set"
            self.alarm("abandoned", f"{text}; {taint}")
            self.enter("abandoned", text)

    @meaning(o.ProofWasWrong)
    def proof_was_wrong(self, event: o.ProofWasWrong) -> None:
        text = f"{event.proof} said that the machine was off, and it was not: {event.what}"
        self.alarm("proof-wrong", f"{text}. Two nodes may have written the same data.")

    @meaning(ActorFailed)
    def actor_failed(self, event: ActorFailed) -> None:
        subject = f" of {event.subject}" if event.subject else ""
        self.alarm("actor-failed", f"{event.actor}{subject} has failed: {event.error}")

    @meaning(o.PowerOffGivenUp)
    def power_off_given_up(self, event: o.PowerOffGivenUp) -> None:
        times = plural(event.ordered, "order")
        text = f"power-off given up after {times}: {event.reason}"
        self.alarm("power-off-given-up", text)

    @meaning(o.DetachForced)
    def detach_forced(self, event: o.DetachForced) -> None:
        text = o.forced_text(event.volume or event.name, sure=event.sure)
        self.alarm("six-minute-detach", text)

    @meaning(o.ProofAccepted)
    def proof_accepted(self, event: o.ProofAccepted) -> None:
        self.spend(ROW_VALUES)
        at_ns = self.point.at_ns
        # ``until_ns`` is on this leader's clock.
        until_ns = at_ns + event.until_ns - self.mono_ns
        said = Statement(what="accepted", at_ns=at_ns, who=o.who_of(event), until_ns=until_ns)
        self.record.statements.append(said)

    @meaning(*_STATEMENTS)
    def stated(self, event: Any) -> None:
        self.spend(ROW_VALUES)
        who = "" if isinstance(event, o.ProofVoided) else o.who_of(event)
        text = event.what if isinstance(event, o.Contradicted) else event.reason
        said = Statement(what=_STATEMENTS[type(event)], at_ns=self.point.at_ns, who=who, text=text)
        self.record.statements.append(said)

    @meaning(o.EvidenceRead)
    def evidence_read(self, event: o.EvidenceRead) -> None:
        # "off" from a peer or a kubelet is no proof: it only ends a contradiction.
        only_contradicts = event.source in ("peer", "kubelet")
        verdict = "nothing" if event.verdict == "off" and only_contradicts else event.verdict
        known = self.identities.get(event.identity_kind, "")
        strange = event.verdict != "unknown" and event.identity and known and event.identity != known
        reason = f"{verdict}, of another machine ({event.identity})" if strange else verdict
        reason = f"{reason}: {event.error}" if event.error else reason
        self.record.sources[o.who_of(event)] = Wait(at_ns=self.point.at_ns, reason=reason)

    @meaning(o.LastBootStated)
    def last_boot_stated(self, event: o.LastBootStated) -> None:
        if self.boots.tell(event, over=not self.goes_on):
            self.record.last_boot = event

    # --- pods and attachments

    @meaning(o.PodLost)
    def pod_lost(self, event: o.PodLost) -> None:
        self.spend(ROW_VALUES)
        pod = event.pod
        self.pods[pod.uid] = LostPodRecord(
            uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            owner=pod.owner,
            began_ns=self.point.at_ns,
        )

    @meaning(o.PodWaits)
    def pod_waits(self, event: o.PodWaits) -> None:
        if (pod := self.pods.get(event.uid)) is not None:
            self.wait(pod, event.reason)

    @meaning(o.PodRecovered)
    def pod_recovered(self, event: o.PodRecovered) -> None:
        if (pod := self.pods.get(event.uid)) is not None:
            pod.ended_ns, pod.by, pod.node = self.point.at_ns, event.by, event.node

    @meaning(o.AttachmentLeft)
    def attachment_left(self, event: o.AttachmentLeft) -> None:
        self.spend(ROW_VALUES)
        found = event.attachment
        self.attachments[found.name] = AttachmentRecord(
            name=found.name, volume=found.volume, driver=found.driver, began_ns=self.point.at_ns
        )

    @meaning(o.DetachWaits)
    def attachment_waits(self, event: o.DetachWaits) -> None:
        if (found := self.attachments.get(event.name)) is not None:
            self.wait(found, event.reason)

    @meaning(o.Detached)
    def detached(self, event: o.Detached) -> None:
        if (found := self.attachments.get(event.name)) is not None:
            found.ended_ns, found.before_taint = self.point.at_ns, event.before_taint
            found.forced, found.kept = event.forced, event.kept

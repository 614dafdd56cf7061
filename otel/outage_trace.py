"""The trace of an outage, made from its record.

The report on the node's last boot often comes after the outage's end. A finished span never changes, so the
report is another span, with a link to the shutdown's trace.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ebbtide.events import outage_events as o
from ebbtide.events.base import Order, parse_order_key
from ebbtide.events.codec import RawRecord
from ebbtide.events.facts import OrderEnded
from ebbtide.events.record.outage_record import AttachmentRecord, LeaderBefore, LostPodRecord, OutageFold
from ebbtide.events.segment import Header
from ebbtide.otel import attributes as at
from ebbtide.otel.span import POD_ROLE, ROOT_ROLE, SpanEvent, SpanLink, span_id_of
from ebbtide.otel.trace import CUT, EpisodeTrace, Failure, Values, orders_of

#: Another trace's. A redacted journal may have another text.
TRACE_ID = re.compile(r"[0-9a-f]{32}")

#: Orders whose failure is an error, except after a change of the Node, when the actor decides again.
WRITES = ("taint", "quarantine", "untaint", "power off")


class OutageTrace(EpisodeTrace):
    fold: OutageFold
    root_role = "outage"

    def __init__(self, first: RawRecord, number: int, header: Header) -> None:
        super().__init__(OutageFold(number, first, header, LeaderBefore()), first)
        self.return_boot = ""

    def abandon(self) -> None:
        self.close(CUT)

    def close(self, cut: Values = ()) -> None:
        """Ends all open spans, the root last."""
        outage = self.fold.finish()
        if outage.out_ns is None:
            self.span("suspicion", "", 0)
        if outage.returned_ns is not None:
            boot: Values = ((at.NODE_BOOT, self.return_boot), (at.SAME_BOOT, outage.same_boot))
            self.span("return", "", outage.returned_ns, boot)
        end_proofs(self, len(outage.statements), ())
        # Open waits have no observed end.
        for subject in outage.subjects:
            if subject.ended_ns is None:
                subject_span(self, subject, CUT)
        self.cut_orders()
        known: Values = (
            (at.EPISODE, outage.id),
            (at.NODE_BOOT, outage.boot_id),
            (at.REASON, outage.reason),
            (at.NODE_UID, outage.node_uid),
            (at.EFFECT, outage.effect),
            (at.TAINT_PROOF, outage.proof),
            (at.UNRECOVERED, outage.unrecovered),
            (at.OUTAGE_OUTCOME, outage.outcome),
            (at.LOST_PODS, len(outage.pods)),
            (at.ATTACHMENTS, len(outage.attachments)),
        )
        wrong = next((each.text for each in outage.alarms if each.code == "proof-wrong"), "")
        self.span(
            self.root_role,
            "",
            0,
            (*known, *cut),
            parent=b"",
            failed=("proof-wrong", wrong) if wrong else None,
            events=sorted(root_events(self), key=lambda event: event.time_ns),
        )
        self.over = True


def root_events(trace: OutageTrace) -> Iterator[SpanEvent]:
    """Waits, the fates of statements, leaders and alarms."""
    outage = trace.fold.record
    for phase in outage.course:
        yield trace.event("waits", phase.began_ns, (at.REASON, phase.text))
    for each in outage.statements:
        if each.what in ("refused", "contradicted", "contradiction-ended"):
            name = {"refused": "proof.refused"}.get(each.what, each.what.replace("-", "."))
            yield trace.event(name, each.at_ns, (at.WHO, each.who), (at.REASON, each.text))
    for leader in outage.leaders:
        if leader.at_ns is not None:
            yield trace.event("leader.started", leader.at_ns, (at.REPLICA, leader.replica))
    for alarm in outage.alarms:
        yield trace.event(alarm.code.replace("-", "."), alarm.at_ns, (at.REASON, alarm.text))


def last_boot_stated(trace: OutageTrace, event: o.LastBootStated) -> None:
    if trace.fold.record.last_boot != event or trace.made("last boot"):
        return
    attributes: Values = (
        (at.NODE_BOOT, event.boot_id),
        (at.ENDING, event.ending),
        (at.END_REASON, event.why),
        (at.WAVE, event.wave if event.wave >= 0 else None),
        (at.NODE_JOURNAL, event.journal_id),
    )
    links: tuple[SpanLink, ...] = ()
    if TRACE_ID.fullmatch(event.trace_id):
        shutdown = bytes.fromhex(event.trace_id)
        links = (SpanLink(shutdown, span_id_of(shutdown, ROOT_ROLE, ""), ((at.LINK, "shutdown"),)),)
    trace.span("last boot", "", trace.at_ns, attributes, links=links)


def out_of_service(trace: OutageTrace, event: o.OutOfService) -> None:
    if not trace.made("suspicion"):
        trace.span("suspicion", "", 0)


def returned(trace: OutageTrace, event: o.NodeReturned) -> None:
    trace.return_boot = event.boot_id


def proof_voided(trace: OutageTrace, event: o.ProofVoided) -> None:
    end_proofs(trace, len(trace.fold.record.statements) - 1, ((at.REASON, event.reason),))


def end_proofs(trace: OutageTrace, statements: int, attributes: Values) -> None:
    """A proof counts from its first statement; a later observation continues it."""
    since: dict[str, int] = {}
    for each in trace.fold.record.statements[:statements]:
        if each.what == "voided":
            since.clear()
        elif each.what == "accepted":
            since.setdefault(each.who, each.at_ns)
    for who, began_ns in since.items():
        trace.span("proof", who, began_ns, ((at.WHO, who), *attributes))


# --- orders


def ordered(trace: OutageTrace, event: Order) -> None:
    trace.begin_order(event, ((at.EFFECT, getattr(event, "effect", None)),))


def order_ended(trace: OutageTrace, event: OrderEnded) -> None:
    made = trace.orders.pop(event.key, None)
    if made is None:
        return
    made.end(event, trace.at_ns)
    failed = event.result in ("failed", "timed-out") and event.reason != o.CHANGED
    if failed and made.order.span_role in WRITES:
        text = f"{parse_order_key(event.key).what}: {event.reason or event.result}"
        trace.order_span(made, failed=("order-failed", text))
    else:
        trace.order_span(made)


def pod_recovered(trace: OutageTrace, event: o.PodRecovered) -> None:
    if (pod := trace.fold.pods.get(event.uid)) is not None:
        subject_span(trace, pod, ((at.LOST_OUTCOME, pod.outcome), (at.READY_ON, pod.node)))


def detached(trace: OutageTrace, event: o.Detached) -> None:
    if (found := trace.fold.attachments.get(event.name)) is not None:
        fate: Values = ((at.LOST_OUTCOME, found.outcome), (at.BEFORE_TAINT, found.before_taint))
        subject_span(trace, found, fate)


def subject_span(trace: OutageTrace, subject: LostPodRecord | AttachmentRecord, fate: Values) -> None:
    names: Values
    failed: Failure | None = None
    if isinstance(subject, LostPodRecord):
        role, key = POD_ROLE, subject.uid
        names = ((at.NAMESPACE, subject.namespace), (at.POD_NAME, subject.name), (at.POD_UID, subject.uid))
        names += ((at.OWNER, subject.owner),)
    else:
        role, key = "attachment", subject.name
        names = ((at.ATTACHMENT, subject.name), (at.PERSISTENT_VOLUME, subject.volume))
        names += ((at.DRIVER, subject.driver),)
        if subject.forced:
            text = "detached without the out-of-service taint, before NodeUnstage: its data may be damaged"
            failed = ("forced-detach", text)
    waits = (trace.event("waits", each.at_ns, (at.REASON, each.reason)) for each in subject.waits)
    trace.span(role, key, subject.began_ns, (*names, *fate), failed=failed, events=waits)


OutageTrace.handlers = {
    **dict.fromkeys(orders_of(o), ordered),
    "OrderEnded": order_ended,
    "LastBootStated": last_boot_stated,
    "OutOfService": out_of_service,
    "NodeReturned": returned,
    "ProofVoided": proof_voided,
    "PodRecovered": pod_recovered,
    "Detached": detached,
    "OutageClosed": lambda trace, event: trace.close(),
}

"""An outage as a trace: from the first suspicion to its end; below it the proofs and the waits.

A span is made when it ends, as in a shutdown's trace. The root is an error if a proof was wrong: the boot
that was proved off gave a sign of life after the taint. Other statements are events of the root.

The report on the node's last boot comes late, often after the outage's end. It is a span of its own, of no
time, with a link to the shutdown's trace: a finished span never changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ebbtide.events import outage_events as o
from ebbtide.events.base import Event, Order, episode_id, parse_order_key
from ebbtide.events.codec import RawRecord
from ebbtide.events.decisions import ActorFailed
from ebbtide.events.facts import OrderEnded
from ebbtide.events.record.outage_record import OutageBoots
from ebbtide.events.segment import Header
from ebbtide.otel import attributes as at
from ebbtide.otel.span import Attributes, SpanLink, span_id_of
from ebbtide.otel.traces.trace import ROOT as SHUTDOWN
from ebbtide.otel.traces.trace import EpisodeTrace, OpenSpan

ROOT = "outage"
SUSPICION, PROOF, POD, ATTACHMENT, RETURN = "suspicion", "proof", "pod", "attachment", "return"
LAST_BOOT = "last boot"

#: Another trace's, in hexadecimal. A redacted journal may have another text in its place.
TRACE_ID = re.compile(r"[0-9a-f]{32}")

#: Orders that change the cluster, or a machine: a failure is an error, except after a change of the Node,
#: when the actor decides anew.
WRITES = ("taint", "quarantine", "untaint", "power off")


class OutageTrace(EpisodeTrace):
    """``followed`` are the open spans of pods and attachments, by UID and by name."""

    def __init__(self, first: RawRecord, episode: int, header: Header) -> None:
        super().__init__(ROOT, first, episode, header)
        self.root.attributes[at.EPISODE] = episode_id(header.journal_id, episode)
        #: While the node is suspected, and not out of service.
        self.suspicion: OpenSpan | None = self.begin(SUSPICION, "", self.root.span_id)
        self.proofs: dict[str, OpenSpan] = {}
        self.orders: dict[str, OpenSpan] = {}
        self.followed: dict[str, OpenSpan] = {}
        self.returned: OpenSpan | None = None
        self.counts = {POD: 0, ATTACHMENT: 0}
        self.boots = OutageBoots()
        self.wrong = ""

    def end_suspicion(self) -> None:
        if self.suspicion is not None:
            self.end(self.suspicion)
            self.suspicion = None

    def step_ended(self) -> None:
        """A step's end means no change here."""

    def abandon(self) -> None:
        """The record has a gap, so the outcome is unknown."""
        close(self, "open", cut=True)


# --- the outage --------------------------------------------------------------------------------


def began(trace: OutageTrace, event: o.OutageBegan) -> None:
    trace.root.attributes.update(
        {at.NODE_BOOT: event.boot_id, at.REASON: event.reason, at.NODE_UID: event.node_uid}
    )
    trace.boots.gone(event)


def node_read(trace: OutageTrace, event: o.NodeRead) -> None:
    trace.boots.read(event)


def last_boot_stated(trace: OutageTrace, event: o.LastBootStated) -> None:
    if not trace.boots.tell(event, over=trace.over):
        return
    attributes: list[tuple[str, Any]] = [(at.NODE_BOOT, event.boot_id), (at.ENDING, event.ending)]
    attributes += [(at.END_REASON, event.why)] if event.why else []
    attributes += [(at.WAVE, event.wave)] if event.wave >= 0 else []
    attributes += [(at.NODE_JOURNAL, event.journal_id)] if event.journal_id else []
    span = trace.begin(LAST_BOOT, "", trace.root.span_id, tuple(attributes))
    if TRACE_ID.fullmatch(event.trace_id):
        shutdown = bytes.fromhex(event.trace_id)
        span.links.append(SpanLink(shutdown, span_id_of(shutdown, SHUTDOWN, ""), ((at.LINK, "shutdown"),)))
    trace.end(span)


def out_of_service(trace: OutageTrace, event: o.OutOfService) -> None:
    trace.root.attributes.update({at.EFFECT: event.effect, at.TAINT_PROOF: event.proof})
    trace.end_suspicion()


def returned(trace: OutageTrace, event: o.NodeReturned) -> None:
    if trace.returned is None:
        attributes: Attributes = ((at.NODE_BOOT, event.boot_id),)
        if not event.doubt:
            attributes += ((at.SAME_BOOT, event.same_boot),)
        trace.returned = trace.begin(RETURN, "", trace.root.span_id, attributes)


def proof_was_wrong(trace: OutageTrace, event: o.ProofWasWrong) -> None:
    trace.wrong = f"{event.proof} said that the machine was off, and it was not: {event.what}"
    trace.note("proof.wrong", ((at.WHO, event.proof), (at.REASON, event.what)))


def abandoned(trace: OutageTrace, event: o.OutageAbandoned) -> None:
    """Every reminder repeats it: once is enough."""
    if not any(each.name == "abandoned" for each in trace.root.events):
        trace.note("abandoned", ((at.TAINTED, event.tainted),))


def actor_failed(trace: OutageTrace, event: ActorFailed) -> None:
    name = f"{event.actor}:{event.subject}" if event.subject else event.actor
    trace.note("actor.failed", ((at.ACTOR, name), (at.EXCEPTION, event.error)))


def closed(trace: OutageTrace, event: o.OutageClosed) -> None:
    trace.root.attributes[at.UNRECOVERED] = event.unrecovered
    close(trace, event.outcome)


def close(trace: OutageTrace, outcome: str, *, cut: bool = False) -> None:
    """Ends all open spans, the outage's own last."""
    trace.end_suspicion()
    if trace.returned is not None:
        trace.end(trace.returned)
    for proof in trace.proofs.values():
        trace.end(proof)
    # Open waits have no observed end, and no order's outcome delays the root.
    for span in list(trace.opened.values()):
        if span is not trace.root:
            trace.end(span, ((at.CUT, True),))
    attributes: Attributes = (
        (at.OUTAGE_OUTCOME, outcome),
        (at.LOST_PODS, trace.counts[POD]),
        (at.ATTACHMENTS, trace.counts[ATTACHMENT]),
        *(((at.CUT, True),) if cut else ()),
    )
    if trace.wrong:
        trace.fail(trace.root, "proof-wrong", trace.wrong, attributes)
    else:
        trace.end(trace.root, attributes)
    trace.over = True


# --- proof -------------------------------------------------------------------------------------


def proof_accepted(trace: OutageTrace, event: o.ProofAccepted) -> None:
    """It counts from now on; a later observation continues it."""
    who = o.who_of(event)
    if who not in trace.proofs:
        trace.proofs[who] = trace.begin(PROOF, who, trace.root.span_id, ((at.WHO, who),))


def proof_voided(trace: OutageTrace, event: o.ProofVoided) -> None:
    for proof in trace.proofs.values():
        trace.end(proof, ((at.REASON, event.reason),))
    trace.proofs.clear()


# --- orders ------------------------------------------------------------------------------------


def ordered(trace: OutageTrace, event: Any) -> None:
    """From its record to its outcome, the wait for the API server included."""
    assert isinstance(event, Order)
    if isinstance(event, o.SetTaint):
        trace.boots.gone(event)
    attributes: list[tuple[str, Any]] = [(at.ORDER, event.key)]
    if effect := getattr(event, "effect", ""):
        attributes.append((at.EFFECT, effect))
    made = trace.begin(event.span_role, event.key, trace.root.span_id, tuple(attributes))
    trace.orders[event.key] = made


def order_ended(trace: OutageTrace, event: OrderEnded) -> None:
    span = trace.orders.pop(event.key, None)
    if span is None:
        return
    attributes: Attributes = ((at.RESULT, event.result),)
    attributes += ((at.REASON, event.reason),) if event.reason else ()
    if span.name in WRITES and event.result in ("failed", "timed-out") and event.reason != o.CHANGED:
        what = parse_order_key(event.key).what
        trace.fail(span, "order-failed", f"{what}: {event.reason or event.result}", attributes)
    else:
        trace.end(span, attributes)


# --- what hangs --------------------------------------------------------------------------------


def _follow(trace: OutageTrace, role: str, key: str, attributes: Attributes) -> None:
    trace.counts[role] += 1
    trace.followed[key] = trace.begin(role, key, trace.root.span_id, attributes)


def _note_wait(trace: OutageTrace, key: str, reason: str) -> None:
    if (span := trace.followed.get(key)) is not None:
        span.note("waits", trace.now_ns, ((at.REASON, reason),))


def pod_lost(trace: OutageTrace, event: o.PodLost) -> None:
    pod = event.pod
    names: Attributes = ((at.NAMESPACE, pod.namespace), (at.POD_NAME, pod.name), (at.POD_UID, pod.uid))
    _follow(trace, POD, pod.uid, (*names, (at.OWNER, pod.owner)))


def pod_waits(trace: OutageTrace, event: o.PodWaits) -> None:
    _note_wait(trace, event.uid, event.reason)


def pod_recovered(trace: OutageTrace, event: o.PodRecovered) -> None:
    if (span := trace.followed.pop(event.uid, None)) is not None:
        outcome = "gone" if not event.by else "spared" if event.by == event.uid else "recovered"
        attributes: Attributes = ((at.LOST_OUTCOME, outcome),)
        attributes += ((at.READY_ON, event.node),) if event.node else ()
        trace.end(span, attributes)


def attachment_left(trace: OutageTrace, event: o.AttachmentLeft) -> None:
    found = event.attachment
    names: Attributes = ((at.ATTACHMENT, found.name), (at.PERSISTENT_VOLUME, found.volume))
    _follow(trace, ATTACHMENT, found.name, (*names, (at.DRIVER, found.driver)))


def attachment_waits(trace: OutageTrace, event: o.DetachWaits) -> None:
    _note_wait(trace, event.name, event.reason)


def detached(trace: OutageTrace, event: o.Detached) -> None:
    span = trace.followed.pop(event.name, None)
    if span is None:
        return
    outcome = "kept" if event.kept else "forced" if event.forced else "detached"
    attributes: Attributes = ((at.LOST_OUTCOME, outcome), (at.BEFORE_TAINT, event.before_taint))
    if event.forced:
        text = "detached by the six-minute timer, before NodeUnstage: its data may be damaged"
        trace.fail(span, "forced-detach", text, attributes)
    else:
        trace.end(span, attributes)


#: Events that may come after the end and still make a span.
LATE = ("LastBootStated",)

#: Events of the outage's own span: name and attributes.
NOTES: dict[str, tuple[str, Callable[[Any], Attributes]]] = {
    "LeaderStarted": (
        "leader.started",
        lambda e: ((at.REPLICA, e.replica), (at.DRY_RUN, e.settings.dry_run)),
    ),
    "OutageWaits": ("waits", lambda e: ((at.REASON, e.reason),)),
    "WorkRecovered": ("work.recovered", lambda e: ()),
    "StoodAside": ("stood.aside", lambda e: ()),
    "PowerOffGivenUp": ("power.given.up", lambda e: ((at.REASON, e.reason),)),
    "ProofRefused": ("proof.refused", lambda e: ((at.WHO, o.who_of(e)), (at.REASON, e.reason))),
    "Contradicted": ("contradicted", lambda e: ((at.WHO, o.who_of(e)), (at.REASON, e.what))),
    "ContradictionEnded": (
        "contradiction.ended",
        lambda e: ((at.WHO, o.who_of(e)), (at.REASON, e.reason)),
    ),
    "DetachForced": (
        "detach.forced",
        lambda e: ((at.ATTACHMENT, e.name), (at.PERSISTENT_VOLUME, e.volume)),
    ),
}


def noted(trace: OutageTrace, event: Event) -> None:
    name, attributes = NOTES[type(event).__name__]
    trace.note(name, attributes(event))


HANDLERS: dict[str, Any] = {
    "OutageBegan": began,
    "NodeRead": node_read,
    "LastBootStated": last_boot_stated,
    "OutOfService": out_of_service,
    "NodeReturned": returned,
    "ProofWasWrong": proof_was_wrong,
    "OutageAbandoned": abandoned,
    "ActorFailed": actor_failed,
    "OutageClosed": closed,
    "ProofAccepted": proof_accepted,
    "ProofVoided": proof_voided,
    **dict.fromkeys(("RequestPermit", "SetTaint", "SetQuarantine", "RemoveTaint", "PowerOff"), ordered),
    "OrderEnded": order_ended,
    "PodLost": pod_lost,
    "PodWaits": pod_waits,
    "PodRecovered": pod_recovered,
    "AttachmentLeft": attachment_left,
    "DetachWaits": attachment_waits,
    "Detached": detached,
    **dict.fromkeys(NOTES, noted),
}

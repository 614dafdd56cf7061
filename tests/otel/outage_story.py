"""Hand-written outage records that cover each span and attribute of an outage's trace."""

from __future__ import annotations

from ebbtide.events import decisions as d
from ebbtide.events import facts as f
from ebbtide.events import outage_events as o
from ebbtide.events.base import NS_PER_SECOND, Event
from ebbtide.events.segment import OUTAGE_LOGIC
from tests.otel.records import TICK, Teller

DB = o.LostPod(uid="uid-db", namespace="shop", name="db-0", owner="StatefulSet/db", owner_uid="uid-set")
BARE = o.LostPod(uid="uid-bare", namespace="shop", name="bare")
CALM = o.LostPod(uid="uid-calm", namespace="shop", name="calm-0", owner="StatefulSet/calm", tolerates=True)
VOLUME = o.Attachment(name="csi-1", volume="pv-1", driver="example.test")
OTHER = o.Attachment(name="csi-2", volume="pv-2", driver="example.test")
PERMIT, TAINT, UNTAINT = "OutageActor/permit//1", "OutageActor/taint//2", "OutageActor/untaint//3"
AGAIN, QUARANTINE, OFF = "OutageActor/taint//4", "OutageActor/quarantine//5", "OutageActor/power-off//6"


#: The returned node's record of the boot that was proved off.
LAST_BOOT = o.LastBootStated(
    boot_id="b1",
    ending="cut-short",
    why="panic",
    wave=2,
    alive_wall_ns=NS_PER_SECOND,
    journal_id="a" * 32,
    trace_id="b" * 32,
    said_by="b2",
)


class OutageTeller(Teller):
    opens, closes, logic = o.OutageBegan, o.OutageClosed, OUTAGE_LOGIC


def done(key: str, result: str = "done", reason: str = "") -> f.OrderEnded:
    return f.OrderEnded(key=key, result=result, reason=reason)  # type: ignore[arg-type]  # words of a list


def suspected(*decisions: Event) -> OutageTeller:
    teller = OutageTeller("boot-of-the-leader")
    teller.tell(leader("a"))
    missed = o.HeartbeatMissed(silent_ns=15 * NS_PER_SECOND, mark="l1")
    why = "no renewal of the lease for 15 s"
    began = o.OutageBegan(node="node-1", node_uid="uid-node", boot_id="b1", reason=why)
    waits = o.OutageWaits(reason="no proof that the machine is off")
    teller.tell(missed, began, waits, *decisions, after_ms=15_000)
    return teller


def leader(replica: str) -> o.LeaderStarted:
    return o.LeaderStarted(version="1.2.3", replica=replica, node="node-1", node_uid="uid-node")


def taint(key: str) -> o.SetTaint:
    return o.SetTaint(
        key=key,
        node="node-1",
        node_uid="uid-node",
        boot_id="b1",
        resource_version="7",
        effect="NoExecute",
        ready="Unknown",
    )


def hanging(teller: OutageTeller) -> None:
    listed = o.WorkListed(key="list", pods=(DB, BARE, CALM), attachments=(VOLUME, OTHER))
    lost = [o.PodLost(pod=each) for each in (DB, BARE, CALM)]
    left = [o.AttachmentLeft(attachment=each) for each in (VOLUME, OTHER)]
    waits = o.PodWaits(uid=DB.uid, reason="the node is not out of service")
    also = o.DetachWaits(name=VOLUME.name, reason="the node is not out of service")
    teller.tell(listed, *lost, *left, waits, also, after_ms=40)


def recovered() -> OutageTeller:
    """Proved at the second try, out of service, all pods elsewhere, back under a new boot ID."""
    teller = suspected()
    hanging(teller)
    says = o.EvidenceRead(source="cloud", name="", verdict="off", begun_ns=0)
    refused = o.ProofRefused(source="cloud", name="", reason="it is about another machine")
    teller.tell(says, refused, after_ms=100)
    on = o.EvidenceRead(source="peer", name="node-2", verdict="on", begun_ns=0)
    teller.tell(on, o.Contradicted(source="peer", name="node-2", what="the node runs"), after_ms=100)
    ended = o.ContradictionEnded(source="peer", name="node-2", reason="it says so no longer")
    teller.tell(says, ended, after_ms=5_000)
    accepted = o.ProofAccepted(source="redfish", name="bmc-1", until_ns=90 * NS_PER_SECOND)
    teller.tell(says, accepted, o.RequestPermit(key=PERMIT, node="node-1"), after_ms=900)
    teller.tell(done(PERMIT), taint(TAINT), after_ms=3)
    teller.tell(done(TAINT, "failed", o.CHANGED), after_ms=20)
    teller.tell(says, accepted, taint(AGAIN), after_ms=10)
    teller.tell(done(AGAIN), o.OutOfService(effect="NoExecute", proof="redfish bmc-1"), after_ms=25)
    teller.tell(o.LostPodGone(uid=BARE.uid), o.PodRecovered(uid=BARE.uid), after_ms=9_000)
    teller.tell(o.LostPodGone(uid=DB.uid), o.PodWaits(uid=DB.uid, reason="not Ready"), after_ms=100)
    teller.tell(o.AttachmentGone(name=VOLUME.name), o.Detached(name=VOLUME.name), after_ms=2_000)
    by = o.PodRecovered(uid=DB.uid, by="uid-db-2", node="node-2")
    teller.tell(TICK, by, o.WorkRecovered(), after_ms=12_000)
    teller.tell(TICK, o.ProofVoided(reason="it was observed too long ago"), after_ms=60_000)
    read = o.NodeRead(uid="uid-node", boot_id="b2", ready="True", resource_version="9", taint="ours")
    back = o.NodeReturned(boot_id="b2", same_boot=False)
    untaint = o.RemoveTaint(key=UNTAINT, node="node-1", node_uid="uid-node")
    spared = o.PodRecovered(uid=CALM.uid, by=CALM.uid)
    kept = o.Detached(name=OTHER.name, kept=True)
    teller.tell(read, back, untaint, spared, kept, after_ms=120_000)
    teller.tell(done(UNTAINT), o.OutageClosed(outcome="recovered"), after_ms=18)
    teller.tell(LAST_BOOT, after_ms=30_000)
    return teller


def wrong() -> OutageTeller:
    """A failed power-off, a volume detached by timeout, a dying leader, a wrong proof."""
    teller = suspected(o.StoodAside())
    hanging(teller)
    off = o.PowerOff(
        key=OFF, node="node-1", node_uid="uid-node", boot_id="b1", system_uuid="u1", ready="Unknown"
    )
    teller.tell(TICK, off, after_ms=60_000)
    failed = done(OFF, "failed", "the controller does not answer")
    teller.tell(failed, o.PowerOffGivenUp(ordered=3, reason="the controller does not answer"), after_ms=900)
    forced = o.DetachForced(name=VOLUME.name, volume="pv-1")
    teller.tell(TICK, forced, after_ms=300_000)
    gone = o.Detached(name=VOLUME.name, before_taint=True, forced=True)
    teller.tell(o.AttachmentGone(name=VOLUME.name), gone, after_ms=700)
    teller.boot("boot-of-another-leader")
    teller.tell(leader("b"), after_ms=15_000)
    failure = d.ActorFailed(actor="StuckPodActor", subject=DB.uid, error="KeyError: 1")
    teller.tell(TICK, failure, o.OutageAbandoned(tainted=True), after_ms=1_000)
    teller.tell(TICK, o.OutOfService(effect="NoExecute", proof="declared alice", found=True), after_ms=10)
    alarm = o.ProofWasWrong(proof="declared alice", what="it reports its status")
    quarantine = o.SetQuarantine(key=QUARANTINE, node="node-1", node_uid="uid-node")
    beat = o.HeartbeatSeen(mark="s2", source="status")
    teller.tell(beat, alarm, o.NodeReturned(boot_id="b1", same_boot=True), quarantine, after_ms=5_000)
    teller.tell(done(QUARANTINE), after_ms=12)
    closed = o.OutageClosed(outcome="proof-wrong", unrecovered=("shop/db-0", "shop/bare"))
    teller.tell(TICK, closed, after_ms=30_000)
    return teller


def outages() -> tuple[OutageTeller, ...]:
    return recovered(), wrong()

"""Invariants of outages with false sources, partitions, returns, conflicts and dying leaders.

python -m tests.outage_world.test_outage_world FROM TO [crossed|blocked]     # seeds, with a summary
"""

from __future__ import annotations

import sys
from collections import Counter

import pytest
from msgspec.structs import replace

from ebbtide.actors.outage import DOWN, POWER_OFF_PAUSE_NS, POWER_OFFS_MAX
from ebbtide.actors.outage_proof import CONTRADICTION_NS, POWER
from ebbtide.actors.system import System, take_checkpoint
from ebbtide.events import outage_events as o
from ebbtide.events.base import NS_PER_SECOND, Fact, Record, Stamp
from ebbtide.events.decisions import ActorFailed
from ebbtide.events.facts import OrderEnded
from ebbtide.events.segment import OUTAGE_LOGIC
from ebbtide.replay.sim.sim_outage import MS, World, simulate_outage
from tests.conftest import Sample
from tests.outage_world.blocked import BlockedWorld
from tests.outage_world.crossed import CrossedWorld
from tests.outage_world.followed import FollowedWorld
from tests.outage_world.load import EVERY_WAY, Load, Stuck

SEEDS, ONE_OF = range(1000), 17
FOLLOWED = range(100)
OURS = ("u1", "n1", "node-1", "aws:///z/i-1")
#: In these the timer detaches the volume: a leader watches for long, or for seconds, or its journal is lost.
FORCED = (96, 3, 19)
#: Two leaders that die in turn, and requests in flight.
BACK_MS_MAX = 60_000
COUNTED = (
    "PowerOff",
    "PowerOffGivenUp",
    "DetachForced",
    "ProofWasWrong",
    "ProofVoided",
    "Contradicted",
    "NodeReturned",
    "WorkRecovered",
)


def objections(records: list[Record], proof: int, at: int) -> list[str]:
    """Recorded contradictions to the proof of the taint at ``at``, found without the actors."""
    said = records[proof].event
    assert isinstance(said, o.EvidenceRead)
    ours = said.identity in OURS
    found = [] if ours else ["no taint is ordered on the word about another machine"]
    if said.source == "declared":
        found += outlived(records[:at], said, records[at].mono_ns)
    running: dict[str, int] = {}
    boot = ""
    for place, record in enumerate(records[:at]):
        event = record.event
        if isinstance(event, o.NodeRead) and event.boot_id != boot:
            running.clear()  # that it has rebooted is known now
            boot = event.boot_id
            if place > proof:
                found.append("no taint is ordered on what was said of another boot")
        if isinstance(event, o.HeartbeatSeen | o.LeaderStarted) and record.mono_ns >= said.begun_ns:
            found.append("no taint is ordered on what was asked before a heartbeat, or by another leader")
        if isinstance(event, o.EvidenceRead) and event.identity in OURS:
            running.pop(event.source, None) if event.verdict == "off" else None
            if event.verdict == "on":
                running[event.source] = record.mono_ns
    if any(records[at].mono_ns - since_ns < CONTRADICTION_NS for since_ns in running.values()):
        found.append("no taint is ordered while anybody on record says that the node runs")
    return found


def outlived(records: list[Record], said: o.EvidenceRead, now_ns: int) -> list[str]:
    """A statement's expiry, from the first leader that read it."""
    found: list[str] = []
    told_ns = -1
    heard = False
    for record in records:
        event = record.event
        if isinstance(event, o.EvidenceRead) and (event.source, event.at) == ("declared", said.at):
            told_ns = record.mono_ns if told_ns < 0 else told_ns
        heard |= told_ns >= 0 and isinstance(event, o.HeartbeatSeen)
        if isinstance(event, o.LeaderStarted) and told_ns >= 0:
            told_ns = record.mono_ns  # that much is left of its time at most
    if heard:
        found.append("no taint is ordered on a person's word that the node has outlived")
    if now_ns - told_ns > said.valid_seconds * NS_PER_SECOND:
        found.append("no taint is ordered on a person's word whose time is over")
    return found


def check(world: World) -> list[str]:
    broken: list[str] = []
    records = world.store.records
    proofs: dict[int, int] = {}
    evidence: dict[str, int] = {}
    proof = -1
    true_proof = dry_run = true_at_write = False
    episodes: Counter[int] = Counter()
    removed = declared = False
    for at, record in enumerate(records):
        event = record.event
        if record.mono_ns <= world.twice * MS:
            true_at_write = true_proof
        if dry_run and isinstance(event, o.SetTaint | o.RemoveTaint | o.SetQuarantine | o.PowerOff):
            broken.append("a dry run orders no write")
        if isinstance(event, o.EvidenceRead) and event.verdict == "off":
            evidence[event.source] = at
        elif isinstance(event, o.ProofAccepted):
            proof = evidence[event.source]
            declared |= removed and event.source == "declared"
        elif isinstance(event, o.NodeRead):
            removed |= episodes[record.episode] > 0 and event.taint == "none"
        elif isinstance(event, o.SetTaint):
            proofs[at] = proof
            if proof < 0:
                broken.append("no taint is ordered without a proof")
                continue
            broken += objections(records, proof, at)
            said = records[proof].event
            assert isinstance(said, o.EvidenceRead)
            true_proof = world.truth[said.source, said.begun_ns]
            if event.ready == "True":
                broken.append("no taint is ordered for a node that is Ready")
        elif isinstance(event, o.ProofWasWrong) and true_proof:
            broken.append("nobody is blamed for a true proof")
        elif isinstance(event, o.LeaderStarted):
            dry_run = event.settings.dry_run
        elif isinstance(event, ActorFailed):
            broken.append(f"no actor fails: {event}")
        elif isinstance(event, o.OutageClosed):
            removed = declared = False
        elif isinstance(event, o.OutOfService):
            if episodes[record.episode] and not declared:
                broken.append("a node is put out of service once, and again after a hand and a declaration")
            episodes[record.episode] += 1
            removed = declared = False
    if world.taints - world.taints_lost > sum(episodes.values()) + 1:
        broken.append("no taint stands of which no record tells")
    stored = Counter(type(each.event) for store in world.stores for each in store.records)
    if world.taints > stored[o.SetTaint] or world.switched_off > stored[o.PowerOff]:
        broken.append("no write lands whose order is on no record")
    if world.twice >= 0 and true_at_write and world.timed_out < 0:
        broken.append(f"two nodes never write where the proof was true: {world.twice} ms")
    writes = world.leader is not None and world.leader.writes
    if writes and world.back_since >= 0 and world.now - world.back_since > BACK_MS_MAX:
        broken.append("a node that is back under another boot id does not keep our taint")
    quiet = world.leader is not None and not world.leader.suspects() and not world.leader.system.open_orders
    # Only the journal knew of a quarantine whose taint a person had removed.
    hands = world.hands if isinstance(world, CrossedWorld) else 0
    if quiet and (world.quarantined or world.taint == "ours") and not (hands and world.lost):
        broken.append("nothing of ours is left on a node without an outage")
    if world.blamed:
        broken.append("nobody is blamed for a boot of which nobody said that it was off")
    if world.killed_alive:
        broken.append("no machine is switched off that could have spoken")
    broken += held_in_vain(records)
    broken += switched_off(records)
    broken += timed_out(world)
    if not same_again(records):
        broken.append("the journal is a function of its facts")
    return broken


def crossed(world: CrossedWorld) -> list[str]:
    """Which machine each order was about, found without the actors."""
    broken = [*dict.fromkeys(world.pieces.broken if world.pieces is not None else ())]
    if world.others_off:
        broken.append("no other machine is switched off")
    seen = o.NodeRead(uid="", boot_id="", ready="", resource_version="")
    off: dict[str, o.EvidenceRead] = {}
    deleted = False
    proof = ""
    for record in world.store.records:
        event = record.event
        deleted |= isinstance(event, o.NodeDeleted)
        known = seen.system_uuid == "u1" and not seen.same_uuid_node
        if isinstance(event, o.NodeRead):
            seen = event
        elif isinstance(event, o.EvidenceRead) and event.verdict == "off":
            off[event.source] = event
        elif isinstance(event, o.ProofAccepted):
            proof = event.source
        elif isinstance(event, o.SetTaint | o.PowerOff) and deleted:
            broken.append("no order is about a Node that is gone")
        elif isinstance(event, o.PowerOff) and not ((known and event.system_uuid == "u1") or world.bound):
            broken.append("no machine is switched off that only its kubelet names")
        elif isinstance(event, o.SetTaint) and proof:
            if off[proof].identity_kind == "systemUUID" and not known:
                broken.append("no taint is ordered under a UUID that is no identity")
            if proof == "cloud" and seen.same_provider_node:
                broken.append("no taint is ordered under the providerID of two Nodes")
            if proof == "cloud-taint" and world.lives[off[proof].begun_ns] == event.boot_id:
                broken.append("no taint is ordered while the cloud only stops, or keeps the memory")
    return broken


def held_in_vain(records: list[Record]) -> list[str]:
    """Permits held from the answer to the return, the taint, or a new leader."""
    asked = read = switch = ""
    held = tainting = proved = False
    until_ns = 0
    for record in records:
        event = record.event
        if isinstance(event, o.PowerOff):
            switch, until_ns = event.key, record.mono_ns
        elif isinstance(event, OrderEnded) and event.key == switch:
            # It counts as out of service until the result is visible.
            until_ns, switch = record.mono_ns + POWER_OFF_PAUSE_NS + NS_PER_SECOND, ""
        if isinstance(event, o.RequestPermit):
            asked = event.key
        elif isinstance(event, o.ReadNode):
            read = event.key
        elif isinstance(event, OrderEnded) and event.result == "done":
            held, tainting = held or event.key == asked, tainting and event.key != read
        elif isinstance(event, o.ReturnPermit | o.LeaderStarted):
            held, asked = False, ""
        elif isinstance(event, o.SetTaint | o.OutOfService):
            tainting = True
        elif isinstance(event, o.ProofAccepted | o.ProofVoided):
            proved = isinstance(event, o.ProofAccepted)
        if record.last and held and not tainting and not proved and not switch and record.mono_ns > until_ns:
            return ["who is not proved to be off holds no permit that another node may wait for"]
    return []


def switched_off(records: list[Record]) -> list[str]:
    """Records that must precede a power-off, found without the actors."""
    broken: list[str] = []
    down_ns = alive_ns = again_ns = seconds = readings = ordered = 0
    running: dict[str, int] = {}
    asked = switch = ""
    permit = proved = False
    seen = o.NodeRead(uid="", boot_id="", ready="", resource_version="")
    for record in records:
        event = record.event
        match event:
            case o.LeaderStarted():
                alive_ns, seconds, readings = record.mono_ns, event.settings.power_off_seconds, 0
                permit, proved = False, False
                again_ns = record.mono_ns + POWER_OFF_PAUSE_NS if ordered or again_ns else 0
                switch = ""
            case o.NodeRead():
                if event.boot_id != seen.boot_id:
                    running.clear()
                if event.ready in DOWN and seen.ready not in DOWN:
                    down_ns = record.mono_ns
                seen = event
            case o.HeartbeatSeen():
                alive_ns = record.mono_ns
            case o.EvidenceRead() if event.source not in POWER and event.verdict == "on":
                running[event.source] = record.mono_ns
            case o.EvidenceRead() if event.verdict == "off":
                running.pop(event.source, None)
            case o.ProofAccepted() | o.ProofVoided():
                proved = isinstance(event, o.ProofAccepted)
            case o.RequestPermit():
                asked = event.key
            case o.ReturnPermit():
                permit = False
            case OrderEnded() if event.key == asked and event.result == "done":
                permit = True
            case OrderEnded() if event.key == switch:
                if event.reason == o.CHANGED or event.result == "cancelled":
                    ordered -= 1
                else:
                    again_ns = record.mono_ns + POWER_OFF_PAUSE_NS
                switch = ""
            case OrderEnded() if event.key.startswith("ProofActor/sources/"):
                readings += event.result == "done"
            case o.OutageClosed():
                ordered = 0  # the pause goes on
            case o.PowerOff():
                silent_ns = record.mono_ns - max(down_ns, alive_ns)
                if event.ready not in DOWN or not 0 < seconds * NS_PER_SECOND <= silent_ns:
                    broken.append("no machine is switched off before its time, or without being asked to")
                if any(record.mono_ns - since_ns < CONTRADICTION_NS for since_ns in running.values()):
                    broken.append("no machine is switched off of which anybody on record says that it lives")
                if proved or readings < 2 or record.mono_ns < again_ns:
                    broken.append("none is switched off that is proved to be off, or was not looked at since")
                if not permit:
                    broken.append("none is switched off without the storm brake's permit")
                switch, readings, ordered = event.key, 0, ordered + 1
                if ordered > POWER_OFFS_MAX:
                    broken.append("none is switched off more often than it may be")
    return broken


def timed_out(world: World) -> list[str]:
    """From the world's truth and the facts alone: each journal whose facts show the timer's detach has it in
    an outage, and no other journal is sure of one.
    """
    broken: list[str] = []
    for store in world.stores:
        told = [record for record in store.records if isinstance(record.event, o.DetachForced)]
        since_ns = world.timed_out * MS if world.timed_out >= 0 else sys.maxsize
        if any(isinstance(r.event, o.DetachForced) and r.event.sure and r.mono_ns < since_ns for r in told):
            broken.append("no detach is called forced that is not")
        if world.timed_out >= 0 and shows_detach(store.records) and not any(each.episode for each in told):
            broken.append("each forced detach that the facts show is an alarm of an outage")
    return broken


def shows_detach(records: list[Record]) -> bool:
    """The attachment goes from the facts, or is missing in the first list of a node that still uses it."""
    attached = listed = False
    node = o.NodeRead(uid="", boot_id="", ready="", resource_version="")
    for record in records:
        event = record.event
        here: tuple[o.Attachment, ...] | None = None
        if isinstance(event, o.NodeRead):
            node = event
        elif isinstance(event, o.SetTaint):
            # From its order on: which of both came first, nobody can see.
            node = replace(node, taint="ours")
        elif isinstance(event, o.WorkListed):
            here = event.attachments
        elif isinstance(event, o.AttachmentRead | o.AttachmentGone):
            here = (event.attachment,) if isinstance(event, o.AttachmentRead) else ()
        if here is None:
            continue
        stays = any(not each.deleting for each in here)
        unsafe = node.ready != "True" and bool(node.volumes_in_use) and node.taint == "none"
        if not stays and node.taint == "none" and (attached or (not listed and unsafe)):
            return True
        attached, listed = attached or stays, True
    return False


def same_again(records: list[Record]) -> bool:
    system, made = System(logic=OUTAGE_LOGIC), []
    for record in records:
        if isinstance(record.event, o.LeaderStarted):
            take_checkpoint(system)  # with which its segment begins
        if isinstance(record.event, Fact):
            made += system.step(record.event, Stamp(record.mono_ns, record.wall_ns))
    return made == records


def test_what_holds_in_every_seed(sample: Sample) -> None:
    """Some seeds have taints, false proofs, forced detaches, and dying leaders."""
    worlds = [World(seed).run() for seed in (*sample(SEEDS, ONE_OF), *FORCED)]
    assert [(world.seed, broken) for world in worlds if (broken := check(world))] == []
    assert sum(world.taints for world in worlds) > 5
    assert any(world.store.epoch > 2 for world in worlds)
    assert sum(world.timed_out >= 0 for world in worlds) >= len(FORCED)


def test_what_holds_where_nodes_name_other_machines(sample: Sample) -> None:
    """Also in clouds that stop early or hibernate, and for a Node that is deleted."""
    worlds = [CrossedWorld(seed) for seed in sample(SEEDS, ONE_OF)]
    assert [(world.seed, broken) for world in worlds if (broken := check(world.run()) + crossed(world))] == []
    assert {world.provider for world in worlds} == {"", "aws", "azure", "openstack"}
    assert sum(world.taints for world in worlds) > 5


def test_what_holds_while_the_journal_is_blocked(sample: Sample) -> None:
    """No order that changes the cluster overtakes its record, whoever dies."""
    worlds = [BlockedWorld(seed) for seed in sample(SEEDS, ONE_OF)]
    assert [(world.seed, broken) for world in worlds if (broken := check(world.run()) + crossed(world))] == []
    assert sum(world.waited for world in worlds) > 5
    assert sum(world.dropped for world in worlds) > 5


def test_the_advice_leads_out(sample: Sample) -> None:
    """Of an outage that is open after ten minutes of deaths, partitions, deletions and hands."""
    worlds = [FollowedWorld(seed) for seed in sample(FOLLOWED, ONE_OF)]
    assert [(world.seed, broken) for world in worlds if (broken := check(world.run()))] == []
    assert [(world.seed, world.steps) for world in worlds if not world.leads_out] == []
    assert any(world.began_open for world in worlds)


def test_what_is_written_down_replays() -> None:
    """As one journal with a segment per leader, with the same outages."""
    for seed in SEEDS[:20]:
        run = simulate_outage(seed, "0")
        records = run.world.store.records
        assert run.breaches == []
        assert [r.event for r in run.journal.records if isinstance(r.event, Fact)] == [
            r.event for r in records if isinstance(r.event, Fact)
        ]
        assert len(list(run.outage_records())) == sum(isinstance(r.event, o.OutageBegan) for r in records)


@pytest.mark.parametrize("stuck", EVERY_WAY)
def test_a_hundred_outages_ask_twenty_times_a_second(stuck: Stuck) -> None:
    """Without changes from the first minute on; with refused writes from the second."""
    load = Load(stuck, 10)
    assert max(load.per_second(minute) for minute in range(1 if stuck == "refused" else 0, 10)) <= 20


if __name__ == "__main__":
    seen: Counter[str] = Counter()
    for seed in range(int(sys.argv[1]), int(sys.argv[2])):
        made = {"crossed": CrossedWorld, "blocked": BlockedWorld}
        world = made.get(sys.argv[-1], World)(seed)
        world.run()
        for sentence in check(world) + (crossed(world) if isinstance(world, CrossedWorld) else []):
            print(seed, sentence, flush=True)
        seen["worlds"] += 1
        seen["taints"] += world.taints
        seen["written twice, after a false proof"] += world.twice >= 0
        seen["leaders"] += world.store.epoch
        seen["journals lost"] += world.lost
        seen["machines switched off"] += world.switched_off
        seen["pods deleted by force"] += world.by_hand >= 0
        seen["volumes detached by the timer"] += world.timed_out >= 0
        for record in world.store.records:
            name = type(record.event).__name__
            if name in COUNTED:
                seen[name] += 1
            elif isinstance(record.event, o.OutageClosed):
                seen[f"closed {record.event.outcome}"] += 1
            elif isinstance(record.event, o.ProofAccepted) and record.event.source == "declared":
                seen["words of a person accepted"] += 1
            elif isinstance(record.event, o.OutOfService) and record.event.found:
                seen["found after another leader"] += 1
    print(dict(seen))

"""Worlds in which a kubelet names another machine, a cloud stops or hibernates its instance, a Node is
deleted in mid-outage, a person removes our taint, and another client makes objects under the journal's names.

Drawn from streams of their own. On metal, `redfish` finds its system by the UUID that the Node names (or,
bound, by the Node's name): ``u1`` is this machine's, ``u9`` another one's, which is off half of the time. In
a cloud, the provider's controller sets its shutdown taint as its source says (docs/outage.md), and EC2's API
answers.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

import trio
from msgspec.structs import replace
from trio.testing import MockClock

from ebbtide.actors.edges.kubernetes.config_maps import ConfigMapStorage, Piece
from ebbtide.events import outage_events as o
from ebbtide.events.base import Fact, Record
from ebbtide.events.segment import segment_file_name
from ebbtide.replay.sim.scenario import Draws
from ebbtide.replay.sim.sim_outage import END_MS, MS, VOLUME, Leader, World
from tests.actors.edges.kubernetes.config_map_fake import ConfigMaps
from tests.actors.edges.kubernetes.test_config_maps_memory import JOURNAL_ID, UID, copied, forged, name

Provider = Literal["", "aws", "azure", "openstack"]
IDS: dict[Provider, str] = {
    "": "",
    "aws": "aws:///z/i-1",
    "azure": "azure:///1",
    "openstack": "openstack:///1",
}
#: nodeMonitorPeriod of the cloud's node lifecycle controller.
CLOUD_MS = 5_000
NO_NODE = "the node cannot be read: 404"


class Pieces:
    """The journal's objects, each with its records' numbers, and objects of a client that may read them. Its
    objects are younger than the journal, and none continues the last piece (`only-our-journals` prevents
    both).
    """

    def __init__(self, draws: Draws) -> None:
        self.draws, self.server = draws, ConfigMaps(draws.fork("server"))
        #: Written before another client's next object.
        self.unwritten, self.segment, self.end = b"", "", 0
        #: Why a leader's write or reading failed.
        self.broken = list[str]()

    def lead(self, number: int, records: Sequence[Record]) -> None:
        """A leader reads these records, and goes on."""
        self._write()
        self.place = ConfigMapStorage(self.server, "ebbtide", UID, f"r{number}")
        self.segment, self.end = segment_file_name(number, JOURNAL_ID), 0
        self._carried_out(self.place.acquire, "")
        source = self.place.source
        read = b"".join(source.read(each.name, 0, each.size) for each in source.files())
        if read != numbers_of(records):
            self.broken.append("a leader reads what the former ones have stored, and no more")

    def _write(self) -> None:
        if self.unwritten:
            self._carried_out(self.place.append, self.segment, self.end, self.unwritten)
        self.end, self.unwritten = self.end + len(self.unwritten), b""

    def _carried_out(self, do: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        try:
            trio.run(do, *arguments, clock=MockClock(autojump_threshold=0))
        except OSError as error:
            self.broken.append(f"objects of others fence no leader: {error}")

    def forge(self) -> None:
        self._write()
        draws, names = self.draws, sorted(self.server.objects)
        ours = [each for each in names if "evil" not in self.server.objects[each]["metadata"]["uid"]]
        if not ours:
            return
        last = int(names[-1].rpartition("-")[2])
        at = last + 1 + (draws.below(3) or draws.below(10**6))
        one, made_at = self.server.objects[draws.pick(ours)], "2026-01-01T00:00:01Z"
        data = b64decode(next(iter(one["binaryData"].values())))
        words = {"first": str(draws.below(2 * at))}
        match draws.below(4):
            case 0:
                made = forged(name(at), data, created=made_at, **words)
            case 1:
                made = copied(one, at, draws.pick([b"x", data]))
            case _:
                # Whole, behind no piece or behind one that has been continued.
                before = draws.pick([each for each in ours if each != ours[-1]] or [""])
                after = ""
                if before and draws.chance(1, 2):
                    after = self.server.objects[before]["metadata"]["annotations"]["ebbtide.dev/hash"]
                piece = Piece(at, int(words["first"]), "", self.segment, self.end, data, "evil", 0, after)
                words |= {"hash": piece.hashed().hash, "segment": self.segment, "offset": str(self.end)}
                made = forged(name(at), data, created=made_at, after=after, **words)
        made["metadata"]["creationTimestamp"] = made_at
        self.server.objects[name(at)] = made


def numbers_of(records: Sequence[Record]) -> bytes:
    return b"".join(record.seq.to_bytes(8) for record in records)


class CrossedWorld(World):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        pieces = Pieces(self.draws.fork("pieces"))
        self.pieces, self.lost_pieces = pieces if pieces.draws.chance(1, 2) else None, 0
        self.crossed = self.draws.fork("crossed")
        below = self.crossed.below
        providers: tuple[Provider, ...] = ("", "", "aws", "azure", "openstack")
        self.provider = providers[below(len(providers))]
        self.bound = not self.provider and below(5) == 0
        self.uuid, self.same_uuid, self.same_provider = "u1", "", ""
        self.other_is_off = below(2) == 0
        #: Other machines that our orders switched off.
        self.others_off = 0
        self.ordered_uuid = ""
        self.hands = 0
        #: By the time of the question about the cloud's taint, the boot that runs or keeps its memory.
        self.lives = dict[int, str]()
        self.deleted = False
        #: It keeps its memory while it is off.
        self.hibernated = False
        #: Until then it still runs, although the cloud reports that it stops.
        self.stops_at = -1
        #: The cloud's taint, and since when, with the heartbeats' marks then.
        self.cloud_off, self.cloud_at, self.cloud_marks = False, 0, ("", "")
        if self.provider:
            self.power_off_seconds = 0

    def run(self) -> World:
        below = self.crossed.below
        for chance, do, most in (
            (2, self._lie, 60_000),
            (2, self._cross, 60_000),
            (5, self._delete, END_MS // 2),
            (4, self._hand, END_MS // 2),
        ):
            if below(chance) == 0:
                self.after(1_000 + below(most), do)
        self.after(CLOUD_MS, self._cloud)
        if self.pieces is not None:
            self.after(1_000, self._forge)
        super().run()
        if self.pieces is not None:
            self.pieces.lead(0, self.store.records)
        return self

    # --- the journal's objects

    def _forge(self) -> None:
        assert self.pieces is not None
        self.pieces.forge()
        self.after(1_000 + self.pieces.draws.below(60_000), self._forge)

    def answer(self, records: Sequence[Record]) -> None:
        self.keep(records)
        super().answer(records)

    def keep(self, records: Sequence[Record]) -> None:
        if self.pieces is not None:
            self.pieces.unwritten += numbers_of(records)

    # --- who names which machine

    def _lie(self) -> None:
        """Its kubelet's credentials work while the machine runs, also when it is silent."""
        if self.machine.on and self.there and not self.deleted:
            self.uuid = "u9" if self.uuid == "u1" else "u1"
            self.note(f"the kubelet names the machine {self.uuid}")
            self._changed()
        self.after(5_000 + self.crossed.below(100_000), self._lie)

    def _cross(self) -> None:
        """Another Node names this machine, and perhaps stops that."""
        if self.crossed.chance(1, 3):
            self.same_provider = "" if self.same_provider else "node-2"
        else:
            self.same_uuid = "" if self.same_uuid else "node-2"
        self.note(f"other Nodes with this machine: {self.same_uuid or '-'} {self.same_provider or '-'}")
        self._changed()
        self.after(5_000 + self.crossed.below(100_000), self._cross)

    def _changed(self) -> None:
        if not self.deleted:
            self.version += 1
            self._tell(self.node_read())

    def node_read(self) -> o.NodeRead:
        return replace(
            super().node_read(),
            system_uuid=self.uuid,
            # The controller recorded this machine when it joined.
            first_uuid="" if self.uuid == "u1" else "u1",
            same_uuid_node=self.same_uuid,
            provider_id=IDS[self.provider],
            same_provider_node=self.same_provider if self.provider else "",
        )

    def settings(self) -> o.OutageSettings:
        return replace(super().settings(), bound=self.bound)

    def bmc(self, begun: int) -> o.EvidenceRead:
        said = super().bmc(begun)
        if self.bound:
            return replace(said, identity_kind="nodeName", identity="node-1")
        if self.uuid != "u9" and not self.same_uuid:
            return said
        # It may be the other machine's.
        verdict: o.Verdict = "off" if self.other_is_off else "on"
        if verdict == "off":
            self.truth["redfish", begun * MS] = False
        return replace(said, verdict=verdict if self.bmc_there else "unknown", identity=self.uuid)

    def switch_off(self) -> str:
        """Without a UUID a system that is looked for by it is not touched."""
        if self.bound or self.ordered_uuid == "u1":
            return super().switch_off()
        if not self.ordered_uuid:
            return "its UUID is not the Node's systemUUID"
        self.others_off += 1
        self.note("another machine was switched off")
        return ""

    def person_says(self, begun: int) -> o.EvidenceRead:
        said = super().person_says(begun)
        self.truth["declared", begun * MS] = self.memory_is_gone
        return said

    # --- the cloud

    @property
    def memory_is_gone(self) -> bool:
        """Of the boot that the Node shows."""
        machine = self.machine
        return machine.boot != self.boot or not (machine.on or self.hibernated)

    def _misfortune(self) -> None:
        if not self.provider or self.crossed.chance(1, 3):
            super()._misfortune()
            return
        self.alive_since = -1
        # Somebody stops the instance, or lets it hibernate: it runs on for a while.
        sleeps = self.crossed.chance(1, 2)
        self.note(f"the instance is asked to {'hibernate' if sleeps else 'stop'}")
        self.machine.kubelet = False
        self.stops_at = self.now + 1_000 + self.crossed.below(60_000)
        stops_at = self.stops_at

        def stopped() -> None:
            if self.stops_at == stops_at:
                self.machine.on, self.hibernated, self.off_since = False, sleeps, self.now
                self.machine.writes = self.machine.writes and sleeps
                self.note("it is hibernated" if sleeps else "it is stopped")

        self.after(self.stops_at - self.now, stopped)
        if self.crossed.chance(2, 3):
            self.after(20_000 + self.crossed.below(400_000), self._mended)

    def _mended(self) -> None:
        self.stops_at = -1
        if self.hibernated:
            self.hibernated, self.machine.on = False, True
            self.note("the hibernated instance went on where it was")
        super()._mended()

    def _cloud(self) -> None:
        """Set while the node is not Ready and the instance is shut down, removed when it is Ready."""
        machine, off = self.machine, not self.machine.on
        stopping = machine.on and self.stops_at > self.now
        shut = {
            "": False,
            "aws": off,
            "azure": off or stopping,
            # SUSPENDED is another state.
            "openstack": off and not self.hibernated,
        }[self.provider]
        if self.there and not self.deleted:
            if self.ready != "True" and shut and not self.cloud_off:
                self.cloud_off, self.cloud_at = True, self.now
                self.cloud_marks = f"l{self.lease}", f"s{self.status}"
                self._tell(self.taint_says(self.now))
            elif self.ready == "True" and self.cloud_off:
                self.cloud_off = False
                self._tell(self._stated("unknown", self.now))
        self.after(CLOUD_MS, self._cloud)

    def _stated(self, verdict: o.Verdict, begun: int, marks: tuple[str, str] = ("", "")) -> o.EvidenceRead:
        return o.EvidenceRead(
            source="cloud-taint",
            name="",
            verdict=verdict,
            begun_ns=begun * MS,
            identity_kind="nodeUID",
            identity="n1",
            mark=marks[0],
            status_mark=marks[1],
        )

    def taint_says(self, begun: int) -> o.EvidenceRead:
        """A leader that began later did not see it being set."""
        self.truth["cloud-taint", begun * MS] = self.memory_is_gone
        machine = self.machine
        self.lives[begun * MS] = f"b{machine.boot}" if machine.on or self.hibernated else ""
        leader = self.leader
        seen = isinstance(leader, CrossedLeader) and leader.began < self.cloud_at
        return self._stated("off", begun, self.cloud_marks if seen else ("", ""))

    def api_says(self, begun: int) -> o.EvidenceRead:
        machine = self.machine
        verdict: o.Verdict = "on" if machine.on or self.hibernated else "off"
        if machine.on and self.stops_at > self.now:
            verdict = "unknown"
        if verdict == "off":
            self.truth["cloud", begun * MS] = True
        return o.EvidenceRead(
            source="cloud",
            name="eu-west-1",
            verdict=verdict,
            begun_ns=begun * MS,
            identity_kind="providerID",
            identity=IDS[self.provider],
        )

    def sources(self, begun: int) -> list[Fact]:
        if not self.provider:
            return super().sources(begun)
        said: list[Fact] = [self.person_says(begun)] if self.said else []
        if self.provider == "aws":
            said.append(self.api_says(begun))
        if self.cloud_off and not self.deleted:
            said.append(self.taint_says(begun))
        return said

    # --- hands

    def _hand(self) -> None:
        if self.taint == "ours" and self.there:
            self.taint, self.back_since, self.quarantined = "none", -1, False
            self.hands += 1
            self.note("a person removed our taint")
            self._changed()
        self.after(20_000 + self.crossed.below(200_000), self._hand)

    def _delete(self) -> None:
        """An autoscaler, or a person. The kubelet gets 404; its work is followed no more in this world."""
        if self.there and (self.ready != "True" or self.crossed.chance(1, 4)):
            self.note("the Node was deleted")
            self.deleted, self.machine.reaches = True, False
            self.taint, self.quarantined, self.back_since = "none", False, -1
            self._tell(o.NodeDeleted())
        else:
            self.after(20_000 + self.crossed.below(100_000), self._delete)

    def _report(self) -> None:
        if not self.deleted:
            super()._report()

    def _monitor(self) -> None:
        if not self.deleted:
            super()._monitor()

    def _beat(self) -> None:
        if not self.deleted:
            super()._beat()

    def _pod_gone(self) -> None:
        """The detach is asked for under our taint, which a person may remove meanwhile."""
        if not self.deleted:
            super()._pod_gone()
            self.detaching = True
            self._tell(o.AttachmentRead(attachment=replace(VOLUME, deleting=True)))

    def _wait_for_unmount(self) -> None:
        if not self.deleted:
            super()._wait_for_unmount()

    def _detached(self) -> None:
        if not self.deleted:
            super()._detached()

    def replace_leader(self) -> Leader:
        if self.pieces is not None:
            if self.lost != self.lost_pieces:
                self.lost_pieces, self.pieces.unwritten = self.lost, b""
                self.pieces.server.objects.clear()
            self.pieces.lead(self.store.epoch + 1, self.store.records)
        return CrossedLeader(self)


class CrossedLeader(Leader):
    def __init__(self, world: CrossedWorld) -> None:
        self.crossed, self.began = world, world.now
        super().__init__(world)
        if world.cloud_off and not world.deleted:
            self.step(world.taint_says(world.now))

    def step(self, fact: Fact) -> None:
        if self.crossed.deleted and isinstance(fact, o.HeartbeatMissed | o.HeartbeatSeen | o.EvidenceRead):
            return
        if self.crossed.deleted and isinstance(fact, o.NodeRead):
            fact = o.NodeDeleted()
        super().step(fact)

    def _carry_out(self, order: Any) -> None:
        world = self.crossed
        if world.deleted and isinstance(order, o.SetTaint | o.RemoveTaint | o.SetQuarantine | o.PowerOff):
            self._waiting.pop(order.key, None)
            self._done(order, NO_NODE)
        elif (
            isinstance(order, o.PowerOff)
            and order.system_uuid
            and (world.same_uuid or order.system_uuid != world.uuid)
        ):
            # As the edge: it names another machine now, or not alone.
            self._waiting.pop(order.key, None)
            self._done(order, o.CHANGED)
        else:
            if isinstance(order, o.PowerOff):
                world.ordered_uuid = order.system_uuid
            super()._carry_out(order)

"""Outages in virtual time: a node with a pod and a volume fails, and another node starts the pod anew.

>>> run = simulate_outage(7, "1.0")
>>> run.world.happened, run.files()   # what was true, and the journal's segments by name

Kubernetes' controllers behave as measured: NotReady after the monitor's grace, the delete at once, the pod
collector every 20 s and only while the node is not Ready, the detach when the pod is gone. The controller
sees changes late and in order; its writes are compare-and-swaps that land late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from ebbtide.actors.system import System, as_checkpoint, restore
from ebbtide.events import outage_events as o
from ebbtide.events.base import Fact, Order, Record, Stamp
from ebbtide.events.decisions import CancelOrder
from ebbtide.events.facts import OrderEnded
from ebbtide.events.kinds import CSI_VOLUME
from ebbtide.events.reader import History
from ebbtide.events.record.episodes import outage_records
from ebbtide.events.record.outage_record import OutageRecord
from ebbtide.events.segment import OUTAGE_LOGIC, Identity
from ebbtide.events.units import span
from ebbtide.replay.sim.invariants import Breach
from ebbtide.replay.sim.loop import Agenda, Loop
from ebbtide.replay.sim.scenario import WALL_NS, Draws
from ebbtide.replay.sim.simulate import MemorySource, SimulatedJournal, random_bytes, replay_breaches

MS = 1_000_000
END_MS = 600_000
LEASE_MS, STATUS_MS, GRACE_MS, COLLECT_MS = 10_000, 30_000, 40_000, 20_000
TIMER_MS = 360_000
#: Within this time a node that runs and is reached renews its lease.
SPEAKS_MS = LEASE_MS + 10_000
POD = o.LostPod(
    uid="p1",
    namespace="d",
    name="db-0",
    owner="StatefulSet/db",
    owner_uid="w",
    same_name=True,
    volumes=("pv",),
)
#: The storm brake grants a permit in this cluster.
COUNTED = o.NodesCounted(
    key="", healthy=1, recovering=0, dead=0, ahead=0, max_nodes=5, max_share_percent=20, min_healthy=1
)
IN_USE = f"{CSI_VOLUME}csi.example.com^v"
VOLUME = o.Attachment(name="va", volume="pv", driver="csi.example.com", unique_name=IN_USE)


class Machine:
    """``writes``: the pod's process runs and reaches its volume."""

    def __init__(self) -> None:
        self.on, self.kubelet, self.reaches, self.boot, self.writes = True, True, True, 1, True


class Store:
    """The journal in the API server. ``epoch``: the leader that may append."""

    def __init__(self, epoch: int = 0) -> None:
        self.epoch, self.records = epoch, list[Record]()


class World:
    def __init__(self, seed: int) -> None:
        self.seed, self.draws = seed, Draws(seed)
        self.agenda = Agenda()
        #: Its system is the stored one: a leader acts only on stored records.
        self.loop = Loop(System(logic=OUTAGE_LOGIC), self.agenda, self, 0)
        #: Milliseconds, and a sentence.
        self.happened: list[tuple[int, str]] = []
        self.machine, self.store = Machine(), Store()
        #: The lost ones first.
        self.stores = [self.store]
        # The API server's objects.
        self.ready, self.version, self.taint, self.quarantined = "True", 1, "none", False
        self.boot, self.lease, self.status = 1, 0, 0
        #: The boots of our taint and of our note.
        self.off_boot, self.noted_boot = "", ""
        self.last_beat = 0
        self.pod, self.attached, self.elsewhere = "bound", True, False
        # How each source lies.
        self.bmc_lies = self._one_in(6)
        self.bmc_late = self.draws.below(30_000) if self._one_in(4) else 0
        self.bmc_wrong_machine = self._one_in(8)
        self.bmc_there = not self._one_in(5)
        self.peer_reaches = not self._one_in(3)
        self.peer_pause = 3_000 + self.draws.below(60_000)
        self.off_since = -1
        #: When two nodes first wrote to the volume; -1: never.
        self.twice = -1
        #: By source and time of the question: the machine was off.
        self.truth: dict[tuple[str, int], bool] = {}
        self.taints = 0
        #: Since then the node is Ready under another boot id with our taint; -1: it is not.
        self.back_since = -1
        self.leader: Leader | None = None
        #: The leader whose step is stored: a paused one acts once more.
        self.acting: Leader | None = None
        #: False alarms: `ProofWasWrong` about a boot that was never proved off.
        self.blamed = 0
        #: Separate streams keep the worlds of earlier seeds.
        self.dry, self.boots = self.draws.fork("dry run"), self.draws.fork("boots")
        self.power, self.person = self.draws.fork("power"), self.draws.fork("person")
        #: A person's declarations on the Node.
        self.word = self.draws.fork("word")
        self.said: dict[str, Any] = {}
        self.power_off_seconds = (0, 20, 60, 150)[self.power.below(4)]
        #: How the management controller obeys a power-off; ``stuck``: it obeys, and reports On.
        self.bmc_obeys = ("yes", "yes", "lies", "refuses", "late", "stuck")[self.power.below(6)]
        self.bmc_stuck = False
        self.switched_off = 0
        #: When a person force-deleted the pod, and when the timer detached its volume; -1: never.
        self.by_hand, self.timed_out = -1, -1
        self.in_use, self.detaching = True, False
        #: Of the journal, between two leaders.
        self.losses = self.draws.fork("journal")
        self.lost = self.taints_lost = 0
        #: The API server is away until then; there without a break since then.
        self.api, self.away_until, self.there_since = self.draws.fork("api"), 0, 0
        self.renewed_at = 0
        #: Since then the kubelet runs and reaches the API server; -1: it does not.
        self.alive_since, self.killed_alive = 0, 0

    @property
    def now(self) -> int:
        """In milliseconds."""
        return self.agenda.now_ns // MS

    def _one_in(self, number: int) -> bool:
        return self.draws.chance(1, number)

    def note(self, what: str) -> None:
        self.happened.append((self.now, what))

    def after(self, delay: int, do: Callable[[], None]) -> None:
        self.agenda.after(delay * MS, lambda: self._move(do))

    def _move(self, do: Callable[[], None]) -> None:
        do()
        if self.elsewhere and self.machine.writes and self.machine.on and self.twice < 0:
            self.twice = self.now
            self.note("two nodes wrote to the volume")

    def run(self) -> World:
        self.leader = self.replace_leader()
        self._beat()
        self._status()
        self._monitor()
        self._collect()
        self._peer()
        self.after(5_000 + self.draws.below(20_000), self._misfortune)
        if self.person.chance(1, 4):
            self.after(40_000 + self.person.below(150_000), self._delete_by_hand)
        if self.word.chance(1, 3):
            self.after(20_000 + self.word.below(200_000), self._declare)
        for _ in range(self.draws.below(4)):
            self.after(self.draws.below(END_MS), self._leader_dies)
        self.loop.run(END_MS * MS)
        return self

    def replace_leader(self) -> Leader:
        return Leader(self)

    def settings(self) -> o.OutageSettings:
        return o.OutageSettings(dry_run=self.dry.chance(1, 12), power_off_seconds=self.power_off_seconds)

    def answer(self, records: Sequence[Record]) -> None:
        assert self.acting is not None
        self.store.records += records
        wrong = any(isinstance(record.event, o.ProofWasWrong) for record in records)
        self.blamed += wrong and self.off_boot != f"b{self.machine.boot}"
        for record in records:
            if isinstance(record.event, Order):
                self.acting.begin(record.event)

    # --- the machine

    def _beat(self) -> None:
        machine = self.machine
        if machine.on and machine.kubelet and machine.reaches and self.there:
            self.lease += 1
            self.last_beat = self.renewed_at = self.now
            self._tell(o.HeartbeatSeen(mark=f"l{self.lease}"))
        self.after(LEASE_MS, self._beat)

    def _status(self) -> None:
        self._report()
        self.after(STATUS_MS if not self._one_in(3) else 1_000, self._status)

    def _report(self) -> None:
        machine = self.machine
        if machine.on and machine.kubelet and machine.reaches and self.there:
            self.status += 1
            changed = self.ready != "True" or self.boot != machine.boot
            if self.taint == "ours" and self.boot != machine.boot:
                self.back_since = self.now
            self.ready, self.boot = "True", machine.boot
            self.version += 1
            self._tell(
                self.node_read() if changed else o.HeartbeatSeen(mark=f"s{self.status}", source="status")
            )
            # The kubelet follows the API server's pods.
            if self.pod == "deleting":
                machine.writes = False
                self._pod_gone()
            elif self.pod == "gone":
                machine.writes = False
            elif self.attached:
                machine.writes = True
            self.in_use = machine.writes

    def _misfortune(self) -> None:
        machine = self.machine
        match self.draws.below(4):
            case 0 | 1:
                machine.on = machine.writes = False
                self.off_since = self.now
                self.note("the machine lost its power")
            case 2:
                machine.reaches = False
                self.note("the node was cut off from the API server, and ran on")
            case _:
                machine.kubelet = False
                self.note("the kubelet died, and the pods ran on")
        self.alive_since = -1
        if self.api.chance(1, 4):
            self.after(self.api.below(120_000), self._go_away)
        if not self._one_in(3):
            self.after(self.draws.below(400_000), self._mended)

    def _mended(self) -> None:
        machine = self.machine
        if not machine.on:
            machine.on, machine.boot = True, machine.boot + 1
            self.after(self.boots.below(5_000), self._report)
            self.note("the machine was started again")
        elif not (machine.kubelet and machine.reaches):
            self.note("the node was whole again, under the same boot")
        machine.kubelet = machine.reaches = True
        self.alive_since = self.now if self.alive_since < 0 else self.alive_since
        self.after(self.draws.below(5_000), self._misfortune if self._one_in(3) else lambda: None)

    # --- Kubernetes

    @property
    def there(self) -> bool:
        return self.now >= self.away_until

    def _go_away(self) -> None:
        """The node may come back unseen."""
        self.away_until = self.there_since = self.now + 5_000 + self.api.below(120_000)
        self.note(f"the API server was away for {span((self.away_until - self.now) * MS)}")
        # Kubernetes' monitor counts anew.
        self.last_beat = self.away_until
        if self.api.chance(1, 2):
            self.after(self.api.below(self.away_until - self.now), self._mended)

    def _monitor(self) -> None:
        if self.there and self.now - self.last_beat > GRACE_MS and self.ready == "True":
            self.ready = "Unknown"
            self.version += 1
            self._tell(self.node_read())
        if self.taint == "ours" and self.pod == "bound":
            self.pod = "deleting"
            self._tell(o.LostPodRead(pod=replace(POD, terminating=True)))
        self.after(1_000, self._monitor)

    def _collect(self) -> None:
        if self.taint == "ours" and self.ready != "True" and self.pod == "deleting":
            self._pod_gone()
        self.after(COLLECT_MS, self._collect)

    def _pod_gone(self) -> None:
        self.pod = "gone"
        self._tell(o.LostPodGone(uid="p1"))
        self.after(1_000 + self.draws.below(3_000), self._detached)

    def _delete_by_hand(self) -> None:
        """By force: the kubelet has not confirmed that the volume is free."""
        if self.ready != "True" and self.pod == "bound" and self.taint == "none":
            self.pod, self.by_hand = "gone", self.now
            self.note("a person deleted the pod by force")
            self._tell(o.LostPodGone(uid="p1"))
            self._wait_for_unmount()

    def _wait_for_unmount(self) -> None:
        if not self.in_use or self.taint == "ours":
            self._detach()
        elif self.ready != "True" and self.now - self.by_hand >= TIMER_MS:
            self.timed_out = self.now
            self.note("the six-minute timer detached the volume")
            self._detach()
        else:
            self.after(1_000, self._wait_for_unmount)

    def _detach(self) -> None:
        """Kubernetes deletes the VolumeAttachment first."""
        self.detaching = True
        self._tell(o.AttachmentRead(attachment=replace(VOLUME, deleting=True)))
        self.after(1_000 + self.person.below(3_000), self._detached)

    def _detached(self) -> None:
        self.attached = False
        self._tell(o.AttachmentGone(name="va"))
        self.after(5_000 + self.draws.below(9_000), self._moved)

    def _moved(self) -> None:
        self.elsewhere = True
        self._tell(
            o.ElsewhereRead(uid="p2", namespace="d", name="db-0", owner_uid="w", node="node-2", ready=True)
        )

    # --- what the controller reads

    def node_read(self) -> o.NodeRead:
        return o.NodeRead(
            uid="n1",
            boot_id=f"b{self.boot}",
            ready=self.ready,  # type: ignore[arg-type]  # one of its four words
            resource_version=str(self.version),
            system_uuid="u1",
            taint=self.taint,  # type: ignore[arg-type]  # one of its three words
            volumes_in_use=(IN_USE,) if self.in_use else (),
            lease_mark=f"l{self.lease}",
            status_mark=f"s{self.status}",
            taint_boot=self.noted_boot if self.taint == "ours" else "",
        )

    def _peer(self) -> None:
        if self.peer_reaches and self.leader and self.leader.suspects():
            verdict: o.Verdict = "on" if self.machine.on else "unknown"
            self._tell(self._answer("peer", "node-2", verdict, self.now, boot_id=f"b{self.machine.boot}"))
        self.after(self.peer_pause, self._peer)

    def _answer(
        self, source: o.Source, name: str, verdict: o.Verdict, begun: int, **more: Any
    ) -> o.EvidenceRead:
        """About this Node, unless ``more`` names another identity."""
        about = {"identity_kind": "nodeUID", "identity": "n1"} | more
        return o.EvidenceRead(source=source, name=name, verdict=verdict, begun_ns=begun * MS, **about)

    def bmc(self, begun: int) -> o.EvidenceRead:
        late = self.off_since >= 0 and self.now - self.off_since < self.bmc_late
        on = (self.machine.on and not self.bmc_lies) or late or self.bmc_stuck
        said: o.Verdict = "unknown" if not self.bmc_there else "on" if on else "off"
        identity = "u9" if self.bmc_wrong_machine else "u1"
        if said == "off":
            self.truth["redfish", begun * MS] = not self.machine.on
        return self._answer("redfish", "bmc", said, begun, identity_kind="systemUUID", identity=identity)

    def _declare(self) -> None:
        """`ebbtide outage declare` refuses a node that is not silent."""
        silent = self.now - max(self.last_beat, self.away_until) > SPEAKS_MS
        if self.there and silent and (not self.machine.on or self.word.chance(1, 4)):
            self.said = {
                "boot_id": f"b{self.boot}",
                "mark": f"l{self.lease}",
                "valid_seconds": (10, 60, 600)[self.word.below(3)],
                "at": str(self.now),
            }
            self.note(
                f"ann declared that the machine was off, and was {'wrong' if self.machine.on else 'right'}"
            )
            self._tell(self.person_says(self.now))
        self.after(20_000 + self.word.below(200_000), self._declare)

    def person_says(self, begun: int) -> o.EvidenceRead:
        self.truth["declared", begun * MS] = not self.machine.on
        return self._answer("declared", "ann", "off", begun, **self.said)

    def sources(self, begun: int) -> list[Fact]:
        said: list[Fact] = [self.bmc(begun)]
        return [*said, self.person_says(begun)] if self.said else said

    def switch_off(self) -> str:
        """Returns the management controller's error."""
        if not self.bmc_there or self.bmc_wrong_machine or self.bmc_obeys == "refuses":
            return "it cannot be done"
        if self.bmc_obeys == "lies":
            return ""
        machine = self.machine
        if machine.on:
            self.killed_alive += 0 <= self.alive_since < self.now - SPEAKS_MS
            machine.on = machine.writes = False
            self.off_since, self.alive_since = self.now, -1
            self.switched_off += 1
            self.note("the management controller switched the machine off")
            self.bmc_stuck = self.bmc_obeys == "stuck"
            if self.power.chance(1, 3):
                self.after(self.power.below(200_000), self._mended)
        return "no answer" if self.bmc_obeys == "late" else ""

    def _tell(self, fact: Fact) -> None:
        if self.leader:
            self.leader.hear(fact)

    def _leader_dies(self) -> None:
        """Or is paused. Its effects still land; its next append is refused."""
        if self.leader:
            paused = self._one_in(2)
            self.note(f"the leader {'was paused' if paused else 'died'}")
            self.leader.stop(paused=paused)
            self.leader = None
            self.after(1_000 + self.draws.below(15_000), self._elected)

    def _elected(self) -> None:
        if not self.there:
            self.after(self.away_until - self.now + 1, self._elected)
            return
        if self.losses.chance(1, 3 if self.taint == "ours" else 12):
            # The node may be back before the next leader looks.
            if self.losses.chance(1, 2):
                self._mended()
                self._report()
            self.lost, self.taints_lost = self.lost + 1, self.taints
            self.note("the journal was lost")
            self.store, self.loop.system = Store(self.store.epoch), System(logic=OUTAGE_LOGIC)
            self.stores.append(self.store)
        self.leader = self.replace_leader()


class Leader:
    """One process, with effects that take time."""

    def __init__(self, world: World) -> None:
        self.world, loop = world, world.loop
        world.store.epoch += 1
        self.epoch, self.alive = world.store.epoch, True
        loop.system = self.system = restore(as_checkpoint(loop.system), loop.system.next_seq)
        loop.awake, world.acting = True, self
        settings = world.settings()
        self.writes = not settings.dry_run
        if world.back_since >= 0:
            world.back_since = world.now
        left = list(self.system.open_orders.values())
        self._heard_at = self._began = world.now
        self._cancelled: dict[str, None] = {}
        self._waiting: dict[str, None] = {}
        self._read_version = 0
        replica = f"r{self.epoch}"
        self.step(
            o.LeaderStarted(version="0", replica=replica, node="node-1", node_uid="n1", settings=settings)
        )
        for opened in left:
            self.step(OrderEnded(key=opened.order.key, result="unknown"))
        self.step(world.node_read())
        world.after(15_000, self._missed)

    def suspects(self) -> bool:
        return self.system.episode > 0

    def stop(self, *, paused: bool) -> None:
        self.alive = self.world.loop.awake = False
        if paused:  # it takes one more step before it notices
            self.world.after(self.world.draws.below(5_000), self._wakes)

    def _wakes(self) -> None:
        self.alive = True
        self.step(self.world.node_read())

    def hear(self, fact: Fact) -> None:
        world = self.world
        at = max(world.now + world.draws.below(1_500), self._heard_at)
        self._heard_at = at
        world.after(at - world.now, lambda: self.step(fact))

    def _missed(self) -> None:
        world = self.world
        if self.alive and world.now - world.last_beat >= 15_000 and not self.suspects():
            self.step(o.HeartbeatMissed(silent_ns=15_000 * MS, mark=f"l{world.lease}"))
        if self.alive:
            world.after(1_000, self._missed)

    def step(self, fact: Fact) -> None:
        """The API server takes an append only from the newest leader."""
        if not self.alive or self.world.store.epoch != self.epoch:
            return
        if isinstance(fact, o.NodeRead):
            # The watch may be behind an answer.
            if int(fact.resource_version) < self._read_version:
                return
            self._read_version = int(fact.resource_version)
        self.world.loop.admit(fact)

    def begin(self, order: Order) -> None:
        """An order lands even if the process dies."""
        world = self.world
        if isinstance(order, o.PostOutageEvent):
            world.after(3, lambda: self._done(order))
            return
        delay = 3 + world.draws.below(60)
        if isinstance(order, CancelOrder):
            if order.target in self._waiting:
                self._cancelled[order.target] = None
            world.after(1, lambda: self.step(OrderEnded(key=order.key, result="done")))
            return
        self._waiting[order.key] = None
        if not isinstance(order, o.ReadSources | o.RequestPermit | o.ReturnPermit):
            delay += max(0, world.away_until - world.now)
        world.after(delay, lambda: self._carry_out(order))

    def _carry_out(self, order: Any) -> None:
        world = self.world
        self._waiting.pop(order.key, None)
        if order.key in self._cancelled:
            self.step(OrderEnded(key=order.key, result="cancelled"))
            return
        begun, delay, now = world.now, world.draws.below(400), world.node_read()
        as_ordered = (
            isinstance(order, o.SetTaint | o.PowerOff)
            and (now.boot_id, now.ready) == (order.boot_id, order.ready)
            and order.lease_mark in ("", now.lease_mark)
            and order.status_mark in ("", now.status_mark)
        )
        match order:
            case o.SetTaint():
                # Read and compare; the write names that version, and lands later.
                as_ordered &= now.resource_version == order.resource_version
                world.after(delay, lambda: self._taint(order, as_ordered=as_ordered))
            case o.PowerOff():
                silent = world.now - max(world.renewed_at, world.there_since, self._began)
                as_ordered &= silent * MS >= order.silent_ns
                world.after(
                    world.power.below(8_000),
                    lambda: self._done(order, world.switch_off() if as_ordered else o.CHANGED),
                )
            case o.RemoveTaint():
                world.after(delay, lambda: self._change(order, "none"))
            case o.SetQuarantine():
                world.after(delay, lambda: self._quarantine(order))
            case o.RequestPermit():
                world.after(delay, lambda: self._answer(order, replace(COUNTED, key=order.key)))
            case o.ReadNode():
                world.after(delay, lambda: self._answer(order, world.node_read()))
            case o.ListWork():
                world.after(delay, lambda: self._answer(order, self._work(order.key)))
            case o.ReadSources():
                world.after(
                    delay + world.draws.below(2_000),
                    lambda: self._answer(order, *world.sources(begun)),
                )
            case _:
                world.after(delay, lambda: self._done(order))

    def _answer(self, order: Order, *facts: Fact) -> None:
        for fact in facts:
            self.step(fact)
        self._done(order)

    def _done(self, order: Order, reason: str = "") -> None:
        self.step(OrderEnded(key=order.key, result="failed" if reason else "done", reason=reason))

    def _taint(self, order: o.SetTaint, *, as_ordered: bool) -> None:
        world = self.world
        if not as_ordered or str(world.version) != order.resource_version:
            self._done(order, o.CHANGED)
        else:
            world.taints += 1
            world.off_boot = order.boot_id
            world.noted_boot = order.boot_id
            self._change(order, "ours")

    def _change(self, order: Any, taint: str) -> None:
        world = self.world
        if taint == "none":
            world.back_since, world.quarantined = -1, False
        if world.taint != taint:
            world.taint = taint
            world.version += 1
        self.step(world.node_read())
        self._done(order)

    def _quarantine(self, order: o.SetQuarantine) -> None:
        self.world.quarantined = True
        self._done(order)

    def _work(self, key: str) -> o.WorkListed:
        world = self.world
        attachment = replace(VOLUME, deleting=world.detaching)
        pods = () if world.pod == "gone" else (replace(POD, terminating=world.pod == "deleting"),)
        return o.WorkListed(key=key, pods=pods, attachments=(attachment,) if world.attached else ())


class SimulatedOutage(NamedTuple):
    """Empty ``breaches``: its journal replays."""

    seed: int
    world: World
    journal: SimulatedJournal
    breaches: list[Breach]

    def files(self) -> dict[str, bytes]:
        """The journal's segments by name, in the order of writing."""
        return self.journal.files()

    def outage_records(self) -> Iterator[OutageRecord]:
        return outage_records(History([MemorySource(self.files())]))


def simulate_outage(seed: int, version: str) -> SimulatedOutage:
    """Raises events.codec.FrameTooLarge."""
    world = World(seed).run()
    journal = written(world.store.records, Draws(seed).fork("ids"), version)
    return SimulatedOutage(seed, world, journal, replay_breaches(journal))


def written(records: Iterable[Record], ids: Draws, version: str) -> SimulatedJournal:
    """The journal of these records' facts, one segment for each leader."""
    system, journal = System(logic=OUTAGE_LOGIC), SimulatedJournal(random_bytes(ids))
    for record in records:
        stamp = Stamp(record.mono_ns, WALL_NS + record.mono_ns)
        if isinstance(record.event, o.LeaderStarted):
            identity = Identity("node-1", "", record.event.replica, version)
            journal.begin(identity, system, stamp)
        if isinstance(record.event, Fact):
            journal.append(system.step(record.event, stamp))
    return journal

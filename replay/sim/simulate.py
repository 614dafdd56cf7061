"""From a request and a seed to a checked run.

>>> from ebbtide.replay.sim.simulate import SimulationRequest, simulate
>>> run = simulate(SimulationRequest(synthetic=30), seed=7)
>>> run.breaches, run.files()          # what did not hold, and the journal's segments by name
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, cast

from msgspec.structs import replace

from ebbtide.actors.config_reconciler import CONFIG, ConfigState
from ebbtide.actors.episode import EPISODE, EpisodeState
from ebbtide.actors.policy.grace_periods import effective_periods, requested_seconds
from ebbtide.actors.system import System, as_checkpoint, restore, take_checkpoint
from ebbtide.events import segment
from ebbtide.events.base import JOURNAL_ACTOR, NS_PER_SECOND, Fact, Record, Stamp
from ebbtide.events.base import NS_PER_MS as MS
from ebbtide.events.catalog import StoredFile
from ebbtide.events.decisions import PROJECTION_VERSION, Leave
from ebbtide.events.facts import ContainerExited, SettingsLoaded, StopRequested
from ebbtide.events.reader import History
from ebbtide.events.record.episodes import shutdown_records
from ebbtide.events.record.shutdown_record import ShutdownRecord
from ebbtide.events.values import Pod, Settings
from ebbtide.replay.replayer import Replayer
from ebbtide.replay.sim import scenario as drawing
from ebbtide.replay.sim.edges import ApiServerEdge, KubernetesEdge, LogindEdge, RuntimeEdge, SimulatedEdge
from ebbtide.replay.sim.invariants import Boot, BootView, Breach, breaches
from ebbtide.replay.sim.loop import Agenda, Effects, Loop, Outcome, Watching
from ebbtide.replay.sim.sim_node import SimulatedNode, WorldLog


class SimulatedJournal:
    """The real writer's bytes, without a disk, of several processes."""

    def __init__(self, journal_id: bytes) -> None:
        self.journal_id = journal_id
        self.records: list[Record] = []
        self._parts: dict[str, list[bytes]] = {}
        self._open: list[bytes] = []
        self._end, self._number = segment.Link(), 1
        self._chain: segment.Chain | None = None

    def begin(self, identity: segment.Identity, system: System, stamp: Stamp) -> Record:
        self._chain = segment.Chain(
            identity._replace(logic=system.logic),
            segment.WriterStart(self.journal_id, self._end, self._number),
        )
        self._open = self._parts[segment.segment_file_name(self._number, self.journal_id)] = []
        self._number += 1
        self._take(self._chain.begin_segment(stamp))
        mark = take_checkpoint(system)
        record = Record(
            seq=system.next_seq,
            mono_ns=stamp.mono_ns,
            wall_ns=stamp.wall_ns,
            episode=mark.episode,
            cause=0,
            actor=JOURNAL_ACTOR,
            last=True,
            event=mark,
        )
        system.next_seq += 1
        self.append((record,))
        return record

    def append(self, records: Sequence[Record]) -> None:
        """Whole steps. Raises ValueError for a gap, FrameTooLarge."""
        assert self._chain is not None, "a process begins with its segment"
        self.records += records
        durable_seq = self._end.seq
        self._take([self._chain.append(record, durable_seq) for record in records])

    def seal(self) -> None:
        """Write the trailer: a process ended in good order."""
        if self._chain is not None:
            self._take([self._chain.seal()])

    def _take(self, items: Iterable[segment.SegmentItem]) -> None:
        assert self._chain is not None
        self._open += [item.data for item in items]
        self._end = self._chain.end

    @property
    def head(self) -> bytes:
        """The chain hash of the last record or trailer."""
        return self._end.hash

    def files(self) -> dict[str, bytes]:
        """By name, in order."""
        return {name: b"".join(parts) for name, parts in self._parts.items()}

    def source(self) -> MemorySource:
        return MemorySource(self.files())


class MemorySource:
    """Segments in memory (`events.catalog.Source`)."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.location = "memory"
        self._files = files

    def files(self) -> list[StoredFile]:
        return [StoredFile(name, len(data), 0) for name, data in self._files.items()]

    def read(self, name: str, offset: int, size: int) -> bytes:
        return self._files[name][offset : offset + size]


class SimulatedDaemon:
    """One process. ``number``: in the whole run. ``system``: from the journal."""

    def __init__(
        self,
        number: int,
        plan: drawing.SimulationPlan,
        node: SimulatedNode,
        agenda: Agenda,
        system: System,
        draws: drawing.Draws,
    ) -> None:
        self.number, self._plan, self._node, self._agenda = number, plan, node, agenda
        self._system = system
        self.alive = True
        self.runtime = RuntimeEdge(self, node, draws.fork("runtime"))
        edges: list[SimulatedEdge] = [
            self.runtime,
            LogindEdge(self, node, draws.fork("bus")),
            ApiServerEdge(self, node, draws.fork("api")),
        ]
        self._cluster: KubernetesEdge | None = None
        if node.faults.mode:
            # Last, so that it has the orders that both edges to the API server carry out.
            self._cluster = KubernetesEdge(self, node, draws.fork("cluster"))
            edges.append(self._cluster)
        self._owners = {order: edge for edge in edges for order in edge.table}
        table = {order: edge.table[order] for order, edge in self._owners.items()}
        self.effects = Effects(agenda, draws.fork("effects"), table)
        self._redo = draws.fork("adopt")

    def report(self, delay_ns: int, fact: Fact) -> None:
        self._agenda.after(delay_ns, fact)

    def watch(self, script: Watching) -> None:
        for step in script if self.alive else ():
            if isinstance(step, Fact):
                self._agenda.after(0, step)
            elif isinstance(step, int):
                self._agenda.later(step, partial(self.watch, script))
                return

    def end_order(self, key: str, outcome: Outcome) -> None:
        self.effects.end(key, *outcome)

    def start(self, loop: Loop) -> None:
        plan, node = self._plan, self._node
        state = cast(EpisodeState, self._system.slots[(EPISODE.name, "")].state)
        same = (state.boot_id, state.userspace_id) == (node.boot_id, node.userspace_id)
        orders = [opened.order for opened in self._system.open_orders.values()]
        loop.awake = True
        mode = node.faults.mode or "simulate"
        loop.admit(node.daemon_started(self.number, plan.version, mode, plan.node))
        self.effects.adopt(
            orders,
            lambda order: self._owners[type(order)].adopt(order, self._redo),
            same_userspace=same,
        )
        self.runtime.look(node.exits_recorded)
        if self._cluster is not None:
            self._cluster.look()
        settings = replace(plan.settings, projection_version=PROJECTION_VERSION)
        self._agenda.after(0, SettingsLoaded(settings=settings, sources=plan.sources))

    def stopping(self) -> StopRequested:
        """SIGTERM when the machine goes down: the unit extends its time."""
        needed_ns = cast(ConfigState, self._system.slots[(CONFIG.name, "")].state).needed_ns
        self._node.extend_stop(needed_ns)
        return StopRequested(system_stopping=True, stop_time_ns=needed_ns)

    def die(self) -> None:
        self.alive = self.effects.alive = False
        self._node.logind.client_died(self.number)


#: The kubelet starts this long before the daemon.
KUBELET_BEFORE_NS = 50 * MS

#: A restart of logind.
LOGIND_GAP_NS = 80 * MS


class Booted(NamedTuple):
    """A finished boot. ``since_ns``: world time at monotonic 0."""

    node: SimulatedNode
    lives: list[SimulatedDaemon]
    records: list[Record]
    since_ns: int
    ended_ns: int


class Machine:
    """One run of a plan: call `run`, then read ``journal``, ``log`` and ``boots``."""

    def __init__(self, plan: drawing.SimulationPlan) -> None:
        self.plan = plan
        self._draws = drawing.Draws(plan.seed).fork("machine")
        # Other ids in each mode: with equal ids a seed's two journals would pass for copies of one.
        ids = self._draws.fork(f"ids {plan.faults.mode}".rstrip())
        self.journal = SimulatedJournal(random_bytes(ids))
        self.machine_id = random_bytes(ids).hex()
        self._boot_ids = [random_bytes(ids).hex() for _ in range(4)]
        self.log = WorldLog(self._world_ns)
        self.system = System()
        self.boots: list[Booted] = []
        self.lives: list[SimulatedDaemon] = []
        self.life: SimulatedDaemon | None = None
        self._agenda, self._since_ns = Agenda(drawing.UPTIME_NS), -drawing.UPTIME_NS

    def run(self) -> Machine:
        node = self._boot(drawing.UPTIME_NS, 0, self._first_boot)
        if node.is_down:
            soft = node.kind == "soft-reboot" and not node.powered_off
            self._boot(
                self._agenda.now_ns + drawing.OFF_NS if soft else drawing.NEXT_UPTIME_NS,
                drawing.OFF_NS,
                lambda _: self._agenda.now_ns + drawing.NEXT_BOOT_NS,
                soft,
            )
        return self

    def _world_ns(self) -> int:
        return self._since_ns + self._agenda.now_ns

    def _boot(
        self, uptime_ns: int, off_ns: int, begin: Callable[[SimulatedNode], int], soft: bool = False
    ) -> SimulatedNode:
        """A soft boot keeps clock and boot id."""
        self._since_ns = self._world_ns() + off_ns - uptime_ns
        self._agenda = Agenda(uptime_ns)
        self.log.boot += 1
        self.log.note("boot", detail="soft" if soft else "")
        boot_id = self.boots[-1].node.boot_id if soft else self._boot_ids[2 * len(self.boots)]
        ids = (boot_id, self._boot_ids[2 * len(self.boots) + 1])
        faults = self.plan.faults.afterwards() if self.boots else self.plan.faults
        settings = self.plan.settings
        node = SimulatedNode(self.log, self._agenda, faults, ids, settings, self._stop_unit, self._down)
        if faults.mode:
            self._agenda.put(uptime_ns - KUBELET_BEFORE_NS, node.come_up_as_node)
        self._node, first_record, first_life = node, len(self.journal.records), len(self.lives)
        self._loop = Loop(self.system, self._agenda, self, drawing.WALL_NS + self._since_ns)
        self._loop.awake = False
        starts_ns = uptime_ns
        if faults.first_start_after_ns is not None:
            starts_ns += drawing.SIGNAL_AFTER_NS + faults.first_start_after_ns
        self._agenda.put(starts_ns, self._start)
        self._loop.run(until_ns=begin(node))
        if not node.is_down:
            self.log.note("down", detail="no longer watched")
        records, lives = self.journal.records[first_record:], self.lives[first_life:]
        self.boots.append(Booted(node, lives, records, self._since_ns, self._world_ns()))
        return node

    def _first_boot(self, node: SimulatedNode) -> int:
        """Returns when the watching ends."""
        signal_ns = self._agenda.now_ns + drawing.SIGNAL_AFTER_NS
        for drawn in self.plan.pods:
            # A manifest's deletion counts from the signal.
            plan = drawn._replace(pod=drawn.pod.on_clock(signal_ns))
            node.pods.add(plan)
            if (deletion := plan.pod.deletion) is not None and self.plan.faults.mode:
                at_ns = max(self._agenda.now_ns, deletion.since_ns)
                delete = partial(node.kubelet.delete, plan.pod.uid, max(0, deletion.until_ns - at_ns))
                self._agenda.put(at_ns, delete)
                self._agenda.put(at_ns, partial(self.log.note, "drained", plan.pod.uid))
            if plan.appears_ns and self.plan.faults.mode:
                self._agenda.put(signal_ns + plan.appears_ns, partial(self._joins, node, plan.pod))
            elif plan.appears_ns:
                self._agenda.put(signal_ns + plan.appears_ns, partial(self._appears, plan.pod))
            else:
                node.come_up(plan.pod)
        self._agenda.put(signal_ns, lambda: node.logind.shutdown(self.plan.faults.kind))
        faults = self.plan.faults
        acts = (
            (faults.cancel_after_ns, node.logind.cancel),
            (faults.again_after_ns, lambda: node.logind.shutdown(faults.kind)),
            (faults.second_signal_after_ns, lambda: node.logind.restart(LOGIND_GAP_NS, True)),
            (faults.bus_lost_after_ns, node.logind.disconnect),
            (faults.crash_after_ns, self._crash),
            (faults.power_cut_after_ns, node.cut_power),
            (faults.api_lost_after_ns, lambda: node.api.set_reachable(False)),
            (faults.api_back_after_ns, lambda: node.api.set_reachable(True)),
            (faults.runtime_hangs_after_ns, node.runtime.hang),
            (faults.runtime_wakes_after_ns, node.runtime.wake),
            (faults.kubelet_hangs_after_ns, node.kubelet.hang),
            (faults.kubelet_wakes_after_ns, node.kubelet.wake),
            (faults.api_hangs_after_ns, node.api.hang),
            (faults.api_wakes_after_ns, node.api.wake),
        )
        for after_ns, act in acts:
            if after_ns is not None:
                self._agenda.put(signal_ns + after_ns, act)
        settings = self.plan.settings
        seconds = requested_seconds(effective_periods(settings)) + settings.reserve_seconds
        last_signal_ns = signal_ns + (self.plan.faults.again_after_ns or 0)
        return last_signal_ns + 2 * seconds * NS_PER_SECOND + drawing.AFTERMATH_NS

    def _joins(self, node: SimulatedNode, pod: Pod) -> None:
        if node.kubelet.hung:
            node.kubelet.waiting.append(partial(self._joins, node, pod))
        elif node.admit(pod) and self.life is not None:
            self.life.runtime.joined(pod)

    def _appears(self, pod: Pod) -> None:
        if self.life is not None:
            self.life.runtime.appeared(pod)

    def _down(self) -> None:
        self._bury("crash", "the machine is down")
        self._agenda.clear()

    def _start(self) -> None:
        node, number = self._node, len(self.lives) + 1
        if node.stopping or node.is_down:
            return
        self.log.note("daemon", life=number)
        if self.lives:
            self.system = self._loop.system = restore(as_checkpoint(self.system), self.system.next_seq)
        life = self.life = SimulatedDaemon(
            number, self.plan, node, self._agenda, self.system, self._draws.fork(f"life {number}")
        )
        self.lives.append(life)
        identity = segment.Identity(self.plan.node, self.machine_id, node.boot_id, self.plan.version)
        self.journal.begin(identity, self.system, self._loop.stamp)
        life.start(self._loop)
        self.log.note("ready", life=number)

    def answer(self, records: Sequence[Record]) -> None:
        self.journal.append(records)
        fact = records[0].event
        if isinstance(fact, ContainerExited):
            self._node.note_exit(fact.uid, fact.container)
        if self.life is not None:
            self.life.effects.hold(records)
        for record in records:
            if isinstance(record.event, Leave):
                self.journal.seal()
                self._node.logind.close(0)
                self._bury("left", record.event.reason)
                self._node.halt()

    def _crash(self) -> None:
        """The service manager restarts it."""
        if self._bury("crash", "by the plan"):
            self._agenda.later(self.plan.faults.restart_takes_ns, self._start)

    def _bury(self, what: str, detail: str) -> bool:
        """Forget the daemon. False: there was none."""
        life, self.life = self.life, None
        if life is None:
            return False
        self.log.note(what, detail=detail, life=life.number)
        self._loop.awake = False
        self._agenda.drop_facts()
        life.die()
        return True

    def _stop_unit(self) -> None:
        """SIGTERM, and SIGKILL at the end of the stop time."""
        if self.life is None:
            self._node.halt()
            return
        self._agenda.after(0, self.life.stopping())
        self._wait_for_unit(self._node)

    def _wait_for_unit(self, node: SimulatedNode) -> None:
        left_ns = node.stop_time_left_ns()
        if self.life is None:
            return
        if left_ns > 0:
            self._agenda.later(left_ns, lambda: self._wait_for_unit(node))
        elif self._bury("crash", "the unit's stop time is over"):
            node.halt()


def random_bytes(draws: drawing.Draws) -> bytes:
    return b"".join(draws.bits().to_bytes(8, "big") for _ in range(2))


def check_run(machine: Machine) -> list[Breach]:
    return [*replay_breaches(machine.journal), *breaches(boot_views(machine))]


def replay_breaches(journal: SimulatedJournal) -> list[Breach]:
    """Reads the written bytes back and re-executes them."""
    replayer, history = Replayer(), History([journal.source()])
    replayer.feed(history.raw())
    if history.verdict.state != "intact":
        return [Breach("the_journal_is_sound", history.verdict.banner)]
    divergence = replayer.finish()
    if divergence is None:
        return []
    difference = f"{divergence.field}: {divergence.expected} / {divergence.produced}"
    return [Breach("the_journal_replays", f"record {divergence.seq}: {difference}")]


def boot_views(machine: Machine) -> list[BootView]:
    journal: list[Record] = []
    found = []
    for index, booted in enumerate(machine.boots):
        journal = [*journal, *booted.records]
        node, faults = booted.node, booted.node.faults
        boot_of = Boot(
            number=index + 1,
            seen=[seen for seen in machine.log.seen if seen.boot == index + 1],
            records=booted.records,
            journal=journal,
            boxes=node.pods.every,
            offset_ns=booted.since_ns,
            settings=(machine.plan.settings,),
            preparing=node.logind.preparing,
            shown_ready=node.api.shown_ready,
            api_answers=faults.api == "works" and node.api.reachable,
            slow_ns=faults.runtime_takes_ns,
            mode=faults.mode,
            kubelet_stays=faults.kubelet in ("stays", "slow"),
            kubelet_lock=faults.kubelet_lock,
            hidden={box.uid: None for box in node.pods.boxes.values() if node.runtime.hides(box)},
        )
        found.append(BootView(boot_of))
    return found


SYNTHETIC_PODS = 30


class SimulationRequest(NamedTuple):
    """``pods`` None: draw ``synthetic`` pods. ``behaviour`` None: draw it with the node's faults; ``calm``:
    without faults.
    """

    settings: Settings = drawing.DEFAULT_SETTINGS
    sources: dict[str, str] = {}
    pods: tuple[Pod, ...] | None = None
    synthetic: int = SYNTHETIC_PODS
    behaviour: drawing.Behaviour | None = None
    calm: bool = False
    version: str = "0"
    #: Empty: no Kubernetes node.
    mode: drawing.NodeMode = ""


class Simulated(NamedTuple):
    """Empty ``breaches``: every invariant held, and the journal replays."""

    seed: int
    machine: Machine
    breaches: list[Breach]

    @property
    def journal(self) -> SimulatedJournal:
        return self.machine.journal

    def files(self) -> dict[str, bytes]:
        """The segments by name, in order."""
        return self.journal.files()

    def shutdown_records(self) -> Iterator[ShutdownRecord]:
        return shutdown_records(History([MemorySource(self.files())]))


def plan_of(wanted: SimulationRequest, seed: int) -> drawing.SimulationPlan:
    draws = drawing.Draws(seed)
    pods = (
        drawing.synthetic_pods(wanted.synthetic, draws.fork("synthetic"))
        if wanted.pods is None
        else wanted.pods
    )
    if wanted.mode:
        pods = drawing.pods_of_node(pods, draws.fork("of node")) if wanted.pods is None else pods
    behaves, fork = wanted.behaviour, draws.fork("behaviour")
    plans = drawing.draw_pod_plans(pods, fork) if behaves is None else behaves.plans(pods, fork)
    drawn = drawing.draw_faults(draws.fork("faults"), calm=wanted.calm)
    faults = drawn if behaves is None else behaves.faults
    if wanted.mode and behaves is None:
        faults = drawing.draw_node_faults(faults, wanted.mode, draws.fork("node faults"), calm=wanted.calm)
    elif wanted.mode:
        faults = faults._replace(mode=wanted.mode)
    return drawing.SimulationPlan(
        settings=wanted.settings,
        sources=wanted.sources,
        pods=plans,
        faults=faults,
        seed=seed,
        version=wanted.version,
        node=f"node-{seed}",
    )


def simulate(wanted: SimulationRequest, seed: int) -> Simulated:
    """Raises replay.sim.loop.RanAway, events.codec.FrameTooLarge."""
    machine = Machine(plan_of(wanted, seed)).run()
    return Simulated(seed, machine, check_run(machine))

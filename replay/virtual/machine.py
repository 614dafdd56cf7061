"""A whole run: boots, daemons and misfortunes of one modelled machine, and the journal that they leave.

The first boot has the shutdown in it. If the machine went down, a second one follows in which the daemon
looks back and says what the first one left; if it did not, the run ends when the node has come to rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from actors.logic.snapshot import as_checkpoint, restore
from actors.logic.system import System
from actors.policy.periods import effective_periods, requested_seconds
from events.base import Fact
from events.decisions import Leave
from events.facts import ContainerExited
from events.model import Pod
from events.record import Record
from events.segment import Identity
from replay.virtual.book import Book
from replay.virtual.draws import Draws
from replay.virtual.life import Life
from replay.virtual.loop import Agenda, Loop
from replay.virtual.node import Node
from replay.virtual.plan import (
    AFTERMATH_NS,
    NEXT_BOOT_NS,
    NEXT_UPTIME_NS,
    OFF_NS,
    SIGNAL_AFTER_NS,
    UPTIME_NS,
    WALL_NS,
    Plan,
)
from replay.virtual.trail import MS, NS_PER_SECOND, Trail

#: The kubelet is there before the daemon, and has its lock by then, if it takes one.
KUBELET_BEFORE_NS = 50 * MS

#: logind is away for so long when it is restarted.
LOGIND_GAP_NS = 80 * MS


class Booted(NamedTuple):
    """A boot that is over. ``since_ns`` is world time at which its monotonic clock was 0."""

    node: Node
    lives: list[Life]
    records: list[Record]
    since_ns: int
    ended_ns: int


class Machine:
    """One run of one plan: `run`, then ``book``, ``trail`` and ``boots`` say what happened."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._draws = Draws(plan.seed).fork("machine")
        ids = self._draws.fork("ids")
        self.book = Book(_bytes(ids))
        self.machine_id = _bytes(ids).hex()
        self._boot_ids = [_bytes(ids).hex() for _ in range(4)]
        self.trail = Trail(self._world_ns)
        self.system = System()
        self.boots: list[Booted] = []
        self.lives: list[Life] = []
        self.life: Life | None = None
        self._agenda, self._since_ns, self._ended_ns = Agenda(UPTIME_NS), -UPTIME_NS, 0

    def run(self) -> Machine:
        node = self._boot(UPTIME_NS, 0, self._first_boot)
        if node.is_down:
            soft = node.kind == "soft-reboot" and not node.powered_off
            self._boot(
                self._agenda.now_ns + OFF_NS if soft else NEXT_UPTIME_NS, OFF_NS, self._next_boot, soft
            )
        return self

    def _world_ns(self) -> int:
        return self._since_ns + self._agenda.now_ns

    # --- boots -----------------------------------------------------------------------------------

    def _boot(self, uptime_ns: int, off_ns: int, begin: Callable[[Node], int], soft: bool = False) -> Node:
        """One boot until it is down, or nothing more is to be watched; a soft one keeps clock and boot id."""
        self._since_ns = self._world_ns() + off_ns - uptime_ns
        self._agenda = Agenda(uptime_ns)
        self.trail.boot += 1
        self.trail.note("boot", detail="soft" if soft else "")
        boot_id = self.boots[-1].node.boot_id if soft else self._boot_ids[2 * len(self.boots)]
        ids = (boot_id, self._boot_ids[2 * len(self.boots) + 1])
        faults = self.plan.faults.afterwards() if self.boots else self.plan.faults
        settings = self.plan.settings
        node = Node(self.trail, self._agenda, faults, ids, settings, self._stop_unit, self._down)
        if faults.mode:
            self._agenda.put(uptime_ns - KUBELET_BEFORE_NS, node.come_up_as_node)
        self._node, first_record, first_life = node, len(self.book.records), len(self.lives)
        self._loop = Loop(self.system, self._agenda, self, WALL_NS + self._since_ns)
        self._loop.awake = False
        self._agenda.put(uptime_ns, self._start)
        self._loop.run(until_ns=begin(node))
        if not node.is_down:
            self.trail.note("down", detail="no longer watched")
        records, lives = self.book.records[first_record:], self.lives[first_life:]
        self.boots.append(Booted(node, lives, records, self._since_ns, self._world_ns()))
        return node

    def _first_boot(self, node: Node) -> int:
        """Pods run already; then what the plan has in store. Returns when the watching ends."""
        signal_ns = self._agenda.now_ns + SIGNAL_AFTER_NS
        for plan in self.plan.pods:
            node.pods.add(plan)
            if plan.appears_ns and self.plan.faults.mode:
                self._agenda.put(signal_ns + plan.appears_ns, partial(self._joins, node, plan.pod))
            elif plan.appears_ns:
                self._agenda.put(signal_ns + plan.appears_ns, partial(self._appears, node, plan.pod.uid))
            else:
                node.come_up(plan.pod)
        self._agenda.put(signal_ns, lambda: node.logind.shutdown(self.plan.faults.kind))
        for after_ns, act in self._acts(node):
            if after_ns is not None:
                self._agenda.put(signal_ns + after_ns, act)
        settings = self.plan.settings
        seconds = requested_seconds(effective_periods(settings)) + settings.reserve_seconds
        last_signal_ns = signal_ns + (self.plan.faults.again_after_ns or 0)
        return last_signal_ns + 2 * seconds * NS_PER_SECOND + AFTERMATH_NS

    def _joins(self, node: Node, pod: Pod) -> None:
        if node.admit(pod) and self.life is not None:
            self.life.runtime.joined(pod)

    def _appears(self, node: Node, uid: str) -> None:
        if self.life is not None:
            self.life.runtime.appeared(node.pods.plans[uid].pod)

    def _acts(self, node: Node) -> Sequence[tuple[int | None, Callable[[], object]]]:
        faults = self.plan.faults
        return (
            (faults.cancel_after_ns, lambda: self._cancel(node)),
            (faults.again_after_ns, lambda: node.logind.shutdown(faults.kind)),
            (faults.second_signal_after_ns, lambda: node.logind.restart(LOGIND_GAP_NS, True)),
            (faults.bus_lost_after_ns, node.logind.disconnect),
            (faults.crash_after_ns, self._crash),
            (faults.power_cut_after_ns, node.cut_power),
            (faults.api_lost_after_ns, lambda: node.api.turn(reachable=False)),
            (faults.api_back_after_ns, lambda: node.api.turn(reachable=True)),
        )

    @staticmethod
    def _cancel(node: Node) -> None:
        if not node.logind.acting:
            node.logind.withdraw("cancelled")

    def _next_boot(self, node: Node) -> int:
        return self._agenda.now_ns + NEXT_BOOT_NS

    def _down(self) -> None:
        """The machine is off: nothing that it still had in store happens."""
        self._bury("crash", "the machine is down")
        self._agenda.clear()

    # --- the service manager -----------------------------------------------------------------------

    def _start(self) -> None:
        """A daemon starts: it reads its journal, begins a segment, and says what it found."""
        node, number = self._node, len(self.lives) + 1
        if node.stopping or node.is_down:
            return
        self.trail.note("daemon", life=number)
        if self.lives:
            self.system = self._loop.system = restore(as_checkpoint(self.system), self.system.next_seq)
        life = self.life = Life(number, self.plan, node, self.system, self._draws.fork(f"life {number}"))
        self.lives.append(life)
        identity = Identity(self.plan.node, self.machine_id, node.boot_id, self.plan.version)
        self.book.begin(identity, self.system, self._loop.stamp)
        orders, same = life.open_orders()
        started, loaded = life.first_facts()
        self._loop.awake = True
        self._admit(started)
        life.adopt(orders, same_userspace=same)
        self._agenda.after(0, loaded)
        self.trail.note("ready", life=number)

    def _admit(self, fact: Fact) -> None:
        self._loop.admit(fact)

    def answer(self, records: Sequence[Record]) -> None:
        """A step was decided: it is written down, and its orders are on their way."""
        self.book.append(records)
        fact = records[0].event
        if isinstance(fact, ContainerExited):
            self._node.exits_told[fact.uid, fact.container] = None
        if self.life is not None:
            self.life.hear(records)
        for record in records:
            if isinstance(record.event, Leave):
                self._leave(record.event.reason)

    def _crash(self) -> None:
        """SIGKILL; the service manager starts it again."""
        if self._bury("crash", "by the plan"):
            self._agenda.later(self.plan.faults.restart_takes_ns, self._start)

    def _leave(self, reason: str) -> None:
        """The daemon ends in good order, because its unit is stopped."""
        self.book.seal()
        self._node.logind.close(0)
        self._bury("left", reason)
        self._node.halt()

    def _bury(self, what: str, detail: str) -> bool:
        """However it ended. False: there was none."""
        life, self.life = self.life, None
        if life is None:
            return False
        self.trail.note(what, detail=detail, life=life.number)
        self._loop.awake = False
        self._agenda.drop_facts()
        life.die()
        return True

    def _stop_unit(self) -> None:
        """SIGTERM, and SIGKILL when the time for it is over."""
        if self.life is None:
            self._node.halt()
            return
        self._agenda.after(0, self.life.stopping())
        self._wait_for_unit(self._node)

    def _wait_for_unit(self, node: Node) -> None:
        left_ns = node.stop_time_left_ns()
        if self.life is None:
            return
        if left_ns > 0:
            self._agenda.later(left_ns, lambda: self._wait_for_unit(node))
        elif self._bury("crash", "the unit's stop time is over"):
            node.halt()


def _bytes(draws: Draws) -> bytes:
    return b"".join(draws.bits().to_bytes(8, "big") for _ in range(2))

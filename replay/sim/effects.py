"""Effects as scripts: an order waits for its barrier, begins, and comes to its one outcome.

What an edge does for an order is written once, as a generator over the modelled node (`replay.sim.edges`):

    def _release(self, order, late):
        yield self._draw_ns(100, 3000)          # the time it takes
        self._node.logind.close(STORE)          # what it does, at one instant
        yield TOUCH                             # here the daemon may die
        self._node.logind.close(self._daemon.number)
        return Outcome()

A script knows no clock and no task. `Effects` runs scripts from the agenda in virtual time; the tests' world
runs the same ones as Trio's tasks under the real runner. `Effects` is that runner's counterpart and keeps its
rules: one actor's orders begin in the order in which it gave them, a `CancelOrder` overtakes, a cancelled
effect ends as its canceller said, and after a restart every open order is followed or ends unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from functools import partial
from typing import Any, NamedTuple

from ebbtide.events.base import BARRIER_NS_MAX, Fact, Order, Record
from ebbtide.events.decisions import CancelOrder
from ebbtide.events.facts import DurabilityLate, OrderEnded, Result
from ebbtide.replay.sim.loop import Agenda, Entry
from ebbtide.replay.sim.scenario import Draws


class Outcome(NamedTuple):
    """How an effect ended; becomes the order's one `OrderEnded`."""

    result: Result = "done"
    reason: str = ""
    exit_code: int | None = None


class Pause(Enum):
    """A wait without a time."""

    #: Between two touches of the node at one instant. Whoever runs the script in steps of a real scheduler
    #: may let time pass here, or let the daemon die; in virtual time nothing comes between.
    TOUCH = "touch"
    #: Nobody ever answers.
    FOREVER = "forever"


TOUCH, FOREVER = Pause.TOUCH, Pause.FOREVER


class Until(NamedTuple):
    """Wait until one calls the followers (one is added here), for ``timeout_ns`` at most."""

    followers: list[Callable[[], object]]
    timeout_ns: int


class EffectCancelled(Exception):
    """Thrown into a script that is cancelled: it ends what it has begun outside, and lets this pass."""


#: What a script yields: nanoseconds to wait, a wait of another kind, or a fact to report before it goes on.
Step = int | Until | Pause | Fact

#: What runs beside the orders.
Watching = Generator[Step, None, None]
Script = Generator[Step, None, Outcome]

#: Begins an effect. ``late``: its order is less durable than its barrier asks (it has waited long enough).
Begin = Callable[[Any, bool], Script]


#: What the disk takes, in microseconds: a write, and a sync that now and then takes longer than it may.
WRITE_US = (30, 250)
SYNC_US = (400, 6000)
SLOW_SYNC_US = (6000, 30_000)


class PendingEffect:
    """One effect on its way. ``entry``: when it goes on, unless it is cancelled."""

    __slots__ = ("begun", "entry", "order", "script", "since_ns", "verdict")

    def __init__(self, order: Order, now_ns: int) -> None:
        self.order = order
        self.since_ns = now_ns
        self.begun = False
        self.entry: Entry | None = None
        self.script: Script | None = None
        self.verdict: Result | None = None


class Effects:
    """All effects of one process. ``table`` says who carries out which order."""

    def __init__(self, agenda: Agenda, draws: Draws, table: Mapping[type[Order], Begin]) -> None:
        self._agenda = agenda
        self._draws = draws
        self._table = table
        self._open: dict[str, PendingEffect] = {}
        #: When each actor's last order passes: the next one does not overtake it.
        self._passes_ns: dict[str, int] = {}
        self.alive = True

    def hold(self, records: Sequence[Record]) -> None:
        """The orders of one step, each behind its barrier."""
        orders = [record.event for record in records if isinstance(record.event, Order)]
        if not orders:
            return
        written_ns = self._draws.between(*WRITE_US) * 1000
        slow = self._draws.chance(1, 60)
        synced_ns = written_ns + self._draws.between(*(SLOW_SYNC_US if slow else SYNC_US)) * 1000
        delays_ns = {"none": 0, "written": written_ns, "synced": synced_ns}
        now_ns = self._agenda.now_ns
        for order in orders:
            delay_ns = delays_ns[order.barrier]
            begins_ns = now_ns + min(delay_ns, BARRIER_NS_MAX)
            if not isinstance(order, CancelOrder):
                actor = order.key.partition("/")[0]
                begins_ns = max(begins_ns, self._passes_ns.get(actor, 0))
                self._passes_ns[actor] = begins_ns
            work = self._open[order.key] = PendingEffect(order, now_ns)
            if delay_ns > BARRIER_NS_MAX:
                late = DurabilityLate(key=order.key, barrier=order.barrier, waited_ns=BARRIER_NS_MAX)
                self._agenda.put(begins_ns, late)
            work.entry = self._agenda.put(begins_ns, partial(self._begin, work))

    def _begin(self, work: PendingEffect) -> None:
        if not self.alive:
            return
        order = work.order
        work.begun, work.since_ns, work.entry = True, self._agenda.now_ns, None
        if work.verdict is not None:
            self.end(order.key, work.verdict)
        elif isinstance(order, CancelOrder):
            target = self._open.get(order.target)
            if target is not None and not (order.waiting_only and target.begun):
                target.verdict = "timed-out" if order.timed_out else "cancelled"
                # One that still waits for its barrier ends as its canceller says when it comes to begin.
                if target.begun:
                    self._agenda.drop(target.entry)
                    target.entry = None
                    if target.script is not None:
                        with suppress(EffectCancelled):
                            target.script.throw(EffectCancelled)
                    self.end(order.target, target.verdict)
            self.end(order.key)
        elif type(order) in self._table:
            # Never late: what a slow disk does to the barriers is the tests' world's business.
            self._go_on(work, self._table[type(order)](order, False))
        else:
            self.end(order.key, "failed", f"no edge carries out {type(order).__name__}")

    def _go_on(self, work: PendingEffect, script: Script) -> None:
        """Up to the script's next wait, or to its end; unless it is over or its process has died before."""
        work.script, work.entry = script, None
        while self.alive and work.order.key in self._open:
            try:
                step = next(script)
            except StopIteration as stop:
                self.end(work.order.key, *stop.value)
                return
            if isinstance(step, Fact):
                self._agenda.after(0, step)
            elif isinstance(step, Until):
                step.followers.append(partial(self._wake, work, script))
                work.entry = self._agenda.after(step.timeout_ns, partial(self._go_on, work, script))
                return
            elif step is FOREVER:
                return
            elif isinstance(step, int):
                work.entry = self._agenda.after(step, partial(self._go_on, work, script))
                return

    def _wake(self, work: PendingEffect, script: Script) -> None:
        """What was waited for has come. Nobody waits (no entry) while the script itself brings it about."""
        if work.entry is not None:
            self._agenda.drop(work.entry)
            self._go_on(work, script)

    def end(self, key: str, result: Result = "done", reason: str = "", exit_code: int | None = None) -> None:
        """The one outcome of an order; a second one is none."""
        work = self._open.pop(key, None) if self.alive else None
        if work is None:
            return
        elapsed_ns = self._agenda.now_ns - work.since_ns
        ended = OrderEnded(key=key, result=result, reason=reason, elapsed_ns=elapsed_ns, exit_code=exit_code)
        self._agenda.after(0, ended)

    # --- after a restart ----------------------------------------------------------------------

    def adopt(
        self, orders: Iterable[Order], follow: Callable[[Order], Script | None], *, same_userspace: bool
    ) -> None:
        """What an earlier process left open. ``follow``: the script that follows an effect which still runs,
        or does it again; None when nobody can know how it ended.
        """
        for order in orders:
            work = self._open[order.key] = PendingEffect(order, self._agenda.now_ns)
            work.begun = True
            lasting = order.barrier == "synced" and not order.this_boot
            if not (same_userspace or lasting) or type(order) not in self._table:
                self.end(order.key, "unknown")
                continue
            script = follow(order)
            if script is None:
                self.end(order.key, "unknown", "its outcome was lost with the daemon")
            else:
                self._go_on(work, script)

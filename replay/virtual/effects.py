"""Effects in virtual time: an order waits for its barrier, begins, and comes to its one outcome.

The counterpart of `actors.runner.effects`, with its rules: one actor's orders begin in the order in which
it gave them, a `CancelOrder` overtakes, a cancelled effect ends as its canceller said, and after a restart
every open order is followed or ends unknown. What an effect does is the edges' business (`Carry`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from events.base import BARRIER_NS_MAX, Order
from events.decisions import CancelOrder
from events.facts import DurabilityLate, OrderEnded, Result
from events.record import Record
from replay.virtual.draws import Draws
from replay.virtual.loop import Agenda, Entry

#: What the disk takes, in microseconds: a write, and a sync that now and then takes longer than it may.
WRITE_US = (30, 250)
SYNC_US = (400, 6000)
SLOW_SYNC_US = (6000, 30_000)


class Work:
    """One effect on its way. ``stop`` ends what it has begun outside, when it is cancelled."""

    __slots__ = ("begun", "entry", "order", "since_ns", "stop", "verdict")

    def __init__(self, order: Order, now_ns: int) -> None:
        self.order = order
        self.since_ns = now_ns
        self.begun = False
        self.entry: Entry | None = None
        self.stop: Callable[[], object] | None = None
        self.verdict: Result | None = None


#: Begins an effect; it ends by `Effects.end`, now or later.
Carry = Callable[[Work], object]


class Effects:
    """All effects of one process. ``table`` says who carries out which order."""

    def __init__(self, agenda: Agenda, draws: Draws, table: Mapping[type[Order], Carry]) -> None:
        self._agenda = agenda
        self._draws = draws
        self._table = table
        self._open: dict[str, Work] = {}
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
        for order in orders:
            self._hold(order, delays_ns[order.barrier])

    def _hold(self, order: Order, delay_ns: int) -> None:
        now_ns, actor = self._agenda.now_ns, order.key.partition("/")[0]
        begins_ns = now_ns + min(delay_ns, BARRIER_NS_MAX)
        if not isinstance(order, CancelOrder):
            begins_ns = max(begins_ns, self._passes_ns.get(actor, 0))
            self._passes_ns[actor] = begins_ns
        work = self._open[order.key] = Work(order, now_ns)
        if delay_ns > BARRIER_NS_MAX:
            late = DurabilityLate(key=order.key, barrier=order.barrier, waited_ns=BARRIER_NS_MAX)
            self._agenda.put(begins_ns, late)
        work.entry = self._agenda.put(begins_ns, partial(self._begin, work))

    def _begin(self, work: Work) -> None:
        if not self.alive:
            return
        work.begun, work.since_ns, work.entry = True, self._agenda.now_ns, None
        if work.verdict is not None:
            self.end(work, work.verdict)
        elif isinstance(work.order, CancelOrder):
            self._cancel(work.order)
            self.end(work)
        elif type(work.order) in self._table:
            self._table[type(work.order)](work)
        else:
            self.end(work, "failed", f"no edge carries out {type(work.order).__name__}")

    def then(self, work: Work, delay_ns: int, do: Callable[[], object]) -> None:
        """The next moment of an effect, unless it is cancelled or its process dies before."""
        work.entry = self._agenda.after(delay_ns, partial(self._go_on, work, do))

    def _go_on(self, work: Work, do: Callable[[], object]) -> None:
        if self.alive and work.order.key in self._open:
            do()

    def end(
        self, work: Work, result: Result = "done", reason: str = "", exit_code: int | None = None
    ) -> None:
        """The one outcome; a second one is none."""
        if not self.alive or self._open.pop(work.order.key, None) is None:
            return
        elapsed_ns = self._agenda.now_ns - work.since_ns
        ended = OrderEnded(
            key=work.order.key, result=result, reason=reason, elapsed_ns=elapsed_ns, exit_code=exit_code
        )
        self._agenda.after(0, ended)

    def _cancel(self, order: CancelOrder) -> None:
        work = self._open.get(order.target)
        if work is None or (order.waiting_only and work.begun):
            return
        work.verdict = "timed-out" if order.timed_out else "cancelled"
        if work.begun:
            self._agenda.drop(work.entry)
            if work.stop is not None:
                work.stop()
            self.end(work, work.verdict)

    def again(self, work: Work) -> None:
        """Carry it out once more, from the start."""
        self._table[type(work.order)](work)

    # --- after a restart ----------------------------------------------------------------------

    def adopt(self, orders: Iterable[Order], follow: Callable[[Work], bool], *, same_userspace: bool) -> None:
        """What an earlier process left open: ``follow`` says whether its effect can be, or is done again."""
        for order in orders:
            work = self._open[order.key] = Work(order, self._agenda.now_ns)
            work.begun = True
            lasting = order.barrier == "synced" and not order.this_boot
            meant = (same_userspace or lasting) and type(order) in self._table
            if not meant:
                self.end(work, "unknown")
            elif not follow(work):
                self.end(work, "unknown", "its outcome was lost with the daemon")

"""What each recorded fact belonged to: an order, a container's way down, the release, or nothing but time.

A new run cannot play facts at their old times: an outcome belongs to its order, an exit to the stop signal
that asked for it. So each fact gets its cause and the delay after it; only what came from outside (the
signal, people, the bus, arriving pods) keeps its time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from events.base import NS_PER_SECOND, Event, Order
from events.decisions import (
    Arm,
    CancelOrder,
    KillContainer,
    PodPlanned,
    ReleaseLock,
    RemoveDropIn,
    RunHook,
    SendSignal,
    TakeAutopsy,
    WriteDropIn,
)
from events.facts import (
    AutopsyTaken,
    ContainerExited,
    DaemonStarted,
    DropInsRead,
    DurabilityLate,
    EffectPanicked,
    InventoryTaken,
    LogindRead,
    OrderEnded,
)
from replay.whatif.changes import Told
from replay.whatif.seen import Answer, At, Downtime, HookSeen, Seen, Whose
from replay.whatif.tape import Played, Tape

#: Reports about logind belong to the order that is carried out meanwhile, if there is one.
LOOKS: tuple[type[Order], ...] = (Arm, WriteDropIn, RemoveDropIn)

#: What a daemon reports within this of its start it may have found so.
FIRST_LOOK_NS = NS_PER_SECOND


def see(tape: Tape, facts: Sequence[Told]) -> Seen:
    """``facts`` are the record's as changed (`replay.whatif.changes`), the orders are the tape's."""
    eye = _Eye({told.seq: told for told in facts})
    for played in tape.events:
        eye.look(played)
    return eye.seen


class _Eye:
    def __init__(self, facts: dict[int, Told]) -> None:
        self.seen = Seen()
        self._facts = facts
        self._orders: dict[str, tuple[At, Order]] = {}
        #: Orders without an outcome, in their order.
        self._open: dict[str, Order] = {}
        #: The last order for an autopsy of each container.
        self._autopsies: dict[Whose, str] = {}
        self._last_ns = 0

    def look(self, played: Played) -> None:
        event = played.event
        if played.cause:
            if isinstance(event, Order):
                self._order(event, At(played.seq, played.mono_ns))
            elif isinstance(event, PodPlanned):
                self._planned(event, At(played.seq, played.mono_ns))
        elif played.seq in self._facts:
            self._fact(self._facts[played.seq])
        elif isinstance(event, OrderEnded):
            self.seen.silenced[event.key] = None
        self._last_ns = played.mono_ns

    # --- orders -------------------------------------------------------------------------------

    def _order(self, order: Order, at: At) -> None:
        self._orders[order.key] = (at, order)
        self._open[order.key] = order
        self.seen.answers.setdefault(order.key, [])
        self.seen.asked_ns.setdefault(order.key, at.mono_ns)
        if isinstance(order, TakeAutopsy):
            self._autopsies[order.uid, order.container] = order.key
        note = _ORDERS.get(type(order))
        if note is not None:
            note(self.seen, order, at)

    def _planned(self, event: PodPlanned, at: At) -> None:
        for each in event.pod.containers:
            seen = self.seen.container(event.pod.uid, each.name)
            seen.spec, seen.planned = seen.spec or each, seen.planned or at

    # --- facts --------------------------------------------------------------------------------

    def _fact(self, told: Told) -> None:
        belongs = _FACTS.get(type(told.event))
        if belongs is None or not belongs(self, told):
            self._outside(told)

    def _outside(self, told: Told) -> None:
        """What came after the release came because of it: the machine went down, or turned out not to."""
        if self.seen.released is not None:
            delay_ns = told.at_ns - self.seen.released.mono_ns
            self.seen.after_release.append(Answer(delay_ns, told))
            return
        if isinstance(told.event, DaemonStarted):
            self.seen.downtimes.append(Downtime(self._last_ns, told.at_ns, told.seq))
        self.seen.outside.append(told)

    def _answer(self, key: str, told: Told) -> bool:
        """False: its order stands before the shutdown."""
        if key not in self._orders:
            return False
        at, order = self._orders[key]
        lost = isinstance(told.event, OrderEnded) and told.event.result == "unknown"
        down = self.seen.downtimes[-1] if lost and self.seen.downtimes else None
        if down is not None and at.mono_ns <= down.begin_ns:
            answer = Answer(told.at_ns - down.end_ns, told, down.seq)
        else:
            answer = Answer(told.at_ns - at.mono_ns, told)
            slowest = self.seen.slowest_ns
            name = type(order).__name__
            slowest[name] = max(slowest.get(name, 0), answer.delay_ns)
        self.seen.answers[key].append(answer)
        return True

    def ended(self, told: Told) -> bool:
        assert isinstance(told.event, OrderEnded)
        key = told.event.key
        self._open.pop(key, None)
        self._refused(key, told.event)
        whose = self.seen.hook_keys.get(key)
        if whose is not None:
            hook = self.seen.container(*whose).hook
            assert hook is not None
            hook.ended = told
            if hook.lost and self.seen.downtimes:
                hook.alive_ns = self.seen.downtimes[-1].begin_ns
        return self._answer(key, told)

    def _refused(self, key: str, event: OrderEnded) -> None:
        _, order = self._orders.get(key, (None, None))
        if isinstance(order, SendSignal) and event.result == "failed":
            self.seen.container(order.uid, order.container).refused = True

    def keyed(self, told: Told) -> bool:
        assert isinstance(told.event, DurabilityLate | EffectPanicked)
        return self._answer(told.event.key, told)

    def listed(self, told: Told) -> bool:
        assert isinstance(told.event, InventoryTaken)
        if not self._answer(told.event.key, told):
            return False
        if told.event.part == 1:
            self.seen.listing = []
        self.seen.listing.append(self.seen.answers[told.event.key][-1])
        return True

    def looked(self, told: Told) -> bool:
        """Reported before the outcome of the order that is carried out."""
        key = next((key for key, order in self._open.items() if isinstance(order, LOOKS)), "")
        return self._answer(key, told)

    def autopsied(self, told: Told) -> bool:
        """Its order may have had its outcome already, at the same instant."""
        event = told.event
        assert isinstance(event, AutopsyTaken)
        return self._answer(self._autopsies.get((event.uid, event.container), ""), told)

    def exited(self, told: Told) -> bool:
        event = told.event
        assert isinstance(event, ContainerExited)
        seen = self.seen.container(event.uid, event.container)
        if seen.exited is not None:
            seen.exited_again.append(told)
            return True
        seen.exited = told
        down = self.seen.downtimes[-1] if self.seen.downtimes else None
        if down is not None and told.mono_ns - down.end_ns <= FIRST_LOOK_NS and seen.signalled is not None:
            gone_after_ns = down.begin_ns - seen.signalled.mono_ns
            seen.gone_after_ns = gone_after_ns if gone_after_ns >= 0 else None
        return True


def _release(seen: Seen, order: Any, at: At) -> None:
    seen.released = seen.released or at


def _hook(seen: Seen, order: RunHook, at: At) -> None:
    container = seen.container(order.uid, order.container)
    if container.hook is None:
        container.hook = HookSeen(at, order.key, order.timeout_ns)
        seen.hook_keys[order.key] = (order.uid, order.container)


def _signal(seen: Seen, order: SendSignal, at: At) -> None:
    container = seen.container(order.uid, order.container)
    container.signalled = container.signalled or at


def _kill(seen: Seen, order: KillContainer, at: At) -> None:
    container = seen.container(order.uid, order.container)
    container.killed = container.killed or at


def _cut(seen: Seen, order: CancelOrder, at: At) -> None:
    whose = seen.hook_keys.get(order.target)
    hook = seen.container(*whose).hook if whose is not None else None
    if hook is not None and hook.ended is None and hook.cut is None:
        hook.cut, hook.cut_timed_out = at, order.timed_out


_ORDERS: dict[type[Order], Callable[[Seen, Any, At], None]] = {
    ReleaseLock: _release,
    RunHook: _hook,
    SendSignal: _signal,
    KillContainer: _kill,
    CancelOrder: _cut,
}

#: False where the fact belongs to nothing in this shutdown: then it keeps its time.
_FACTS: dict[type[Event], Callable[[_Eye, Told], bool]] = {
    OrderEnded: _Eye.ended,
    DurabilityLate: _Eye.keyed,
    EffectPanicked: _Eye.keyed,
    InventoryTaken: _Eye.listed,
    LogindRead: _Eye.looked,
    DropInsRead: _Eye.looked,
    AutopsyTaken: _Eye.autopsied,
    ContainerExited: _Eye.exited,
}

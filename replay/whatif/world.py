"""The world of a new run: it answers every order as the record says the old one was answered.

Orders are matched by their stable key, without its ordinal where that has no twin. The outcome comes at the
recorded delay after the order. What came from outside comes at its recorded time, up to the new run's own
release: after that the machine is down. What came after the recorded release comes as long after the new one.

An order that was open when the record ended has its outcome just behind that, or after the slowest time of
its kind. One that hung longer than any other of its kind is a bet: in the grim run it hangs for ever.

What the record does not have is counted here (`replay.whatif.performing` states it), and kept out of the
pods' way where that can be: an order without a recorded twin (a delivery more, since there are other waves)
is done after the slowest time of its kind. What becomes of containers and hooks is decided in
`replay.whatif.way` and `replay.whatif.hooks`.

A restart in the record stays one: no daemon hears anything between the last record of the old process and
the start of the new one, whatever the settings. Drop the start (``--drop-event``) to see the run without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from events.base import Event, Fact, Order
from events.decisions import (
    CancelOrder,
    KillContainer,
    PodPlanned,
    ReleaseLock,
    RunHook,
    SendSignal,
    TakeAutopsy,
    TakeInventory,
)
from events.facts import ContainerExited, InventoryTaken, OrderEnded
from events.record import Record
from replay.virtual.loop import Entry
from replay.whatif.evidence import Evidence
from replay.whatif.hooks import HookRun
from replay.whatif.seen import Answer, ContainerSeen, Seen, Whose
from replay.whatif.stage import Stage
from replay.whatif.tape import Tape, up_to_next
from replay.whatif.way import MOMENT_NS, Common, Way

#: Orders that may have no recorded twin without anybody being misled: they move nothing that is measured.
BESIDE = (SendSignal, KillContainer, TakeAutopsy, CancelOrder)


class Recorded:
    """One run's world. ``invented``: outcomes that the record has not, by type of order.

    ``missed``: facts too late. ``first_kills``: pods that were not killed in the record and are now.
    """

    def __init__(self, tape: Tape, seen: Seen, stage: Stage, *, hopeful: bool) -> None:
        self.evidence = Evidence()
        self.invented: dict[str, int] = {}
        self._invented: dict[str, str] = {}
        self.missed = 0
        self.first_kills: dict[str, None] = {}
        self._tape, self._seen, self._stage = tape, seen, stage
        self._common = Common(stage, self.evidence, hopeful, tape.last_ns, self.first_kills)
        self._hooks: dict[str, HookRun] = {}
        self._released = False
        self._given: dict[str, None] = {}
        #: Recorded orders by their family: each is offered once, because what was given stays so.
        self._twins = {family: iter(keys) for family, keys in _families(seen.answers).items()}
        self._outside: list[Entry] = [stage.tell(told.at_ns, told.event, told) for told in seen.outside]
        self._ways: dict[Whose, Way] = {
            whose: Way(whose, container, self._common) for whose, container in seen.containers.items()
        }

    def answer(self, records: Sequence[Record]) -> None:
        for record in up_to_next(records, self._tape.first_seq):
            event = record.event
            note = _NOTES.get(type(event))
            if note is not None:
                note(self, event)
            if isinstance(event, Order):
                self._answer(event)

    def _answer(self, order: Order) -> None:
        """By its key; a hook's own outcome is the hook's business."""
        twin = self._twin(order.key)
        answers = self._seen.answers.get(twin, ())
        if not answers and twin not in self._seen.silenced:
            self._invent(order, self._open_ns(twin))
        for answer in answers:
            if not (order.key in self._hooks and isinstance(answer.told.event, OrderEnded)):
                self._play(order, answer)

    def _twin(self, key: str) -> str:
        """The recorded order of this key; else the next of its kind that this run has not given.

        The ordinals of an actor count all of its orders: with one less before it, a release has another.
        """
        self._given[key] = None
        if key in self._seen.answers:
            return key
        twins = self._twins.get(_family(key), iter(()))
        found = next((each for each in twins if each not in self._given), key)
        self._given[found] = None
        return found

    def _play(self, order: Order, answer: Answer) -> None:
        now_ns = self._stage.now_ns
        if not answer.restart:
            self._stage.tell(now_ns + answer.delay_ns, _keyed(answer.told.event, order.key), answer.told)
            return
        restarts = (down for down in self._seen.downtimes if down.seq == answer.restart)
        down = next((down for down in restarts if now_ns <= down.begin_ns), None)
        if down is not None:
            fact = _keyed(answer.told.event, order.key)
            self._stage.tell(down.end_ns + answer.delay_ns, fact, answer.told)
        else:
            self._invent(order)

    def _open_ns(self, twin: str) -> int:
        """So long the record shows that it had no outcome."""
        asked_ns = self._seen.asked_ns.get(twin)
        return 0 if asked_ns is None else self._tape.last_ns - asked_ns + MOMENT_NS

    def _invent(self, order: Order, open_ns: int = 0) -> None:
        name = type(order).__name__
        slowest_ns = self._seen.slowest_ns.get(name, 0)
        hangs = open_ns > slowest_ns + MOMENT_NS and not self._common.hopeful
        if order.key in self._hooks or hangs:
            return
        if not isinstance(order, BESIDE):
            self._invented[order.key] = name
        delay_ns = max(slowest_ns, open_ns)
        at_ns = self._stage.now_ns + delay_ns
        for answer in self._seen.listing if isinstance(order, TakeInventory) else ():
            assert isinstance(answer.told.event, InventoryTaken)
            self._stage.tell(at_ns, _keyed(answer.told.event, order.key))
        self._stage.tell(at_ns, OrderEnded(key=order.key, result="done", elapsed_ns=delay_ns))

    # --- notes --------------------------------------------------------------------------------

    def _way(self, uid: str, container: str) -> Way:
        whose = (uid, container)
        if whose not in self._ways:
            self._ways[whose] = Way(whose, ContainerSeen(), self._common)
        return self._ways[whose]

    def planned(self, event: PodPlanned) -> None:
        for spec in event.pod.containers:
            self._way(event.pod.uid, spec.name).planned(spec)

    def run_hook(self, order: RunHook) -> None:
        way = self._way(order.uid, order.container)
        self._hooks[order.key] = HookRun(order, way, self._common, self._seen.downtimes)

    def cancel(self, order: CancelOrder) -> None:
        if order.target in self._hooks:
            self._hooks[order.target].cut(order)

    def ended(self, event: OrderEnded) -> None:
        name = self._invented.get(event.key)
        if name is not None:
            self.invented[name] = self.invented.get(name, 0) + 1
        if event.key in self._hooks:
            self._hooks[event.key].ended(event)

    def signal(self, order: SendSignal) -> None:
        self._way(order.uid, order.container).signalled()

    def kill(self, order: KillContainer) -> None:
        self._way(order.uid, order.container).killed()

    def exited(self, event: ContainerExited) -> None:
        self._way(event.uid, event.container).gone()

    def release(self, order: ReleaseLock) -> None:
        """From here on the machine goes down: nobody outside has a say any more."""
        if self._released:
            return
        self._released = True
        now_ns, seen = self._stage.now_ns, self._seen
        for entry in self._outside:
            self.missed += entry.what is not None and entry.at_ns > now_ns
            self._stage.agenda.drop(entry)
        after = seen.after_release
        for answer in after:
            self._stage.tell(now_ns + answer.delay_ns, answer.told.event, answer.told)
        tail_ns = self._tape.last_ns - seen.released.mono_ns if seen.released is not None else 0
        self._stage.end(now_ns + max([tail_ns, *(answer.delay_ns for answer in after)]))


def _families(keys: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key in keys:
        found.setdefault(_family(key), []).append(key)
    return found


def _family(key: str) -> str:
    """An order's key without its ordinal."""
    return key.rpartition("/")[0]


def _keyed(fact: Fact, key: str) -> Fact:
    """The recorded answer as that of this order."""
    told = getattr(fact, "key", key)
    return fact if told == key else replace(fact, key=key)


_NOTES: dict[type[Event], Callable[[Recorded, Any], None]] = {
    PodPlanned: Recorded.planned,
    RunHook: Recorded.run_hook,
    CancelOrder: Recorded.cancel,
    OrderEnded: Recorded.ended,
    SendSignal: Recorded.signal,
    KillContainer: Recorded.kill,
    ContainerExited: Recorded.exited,
    ReleaseLock: Recorded.release,
}

"""The scripts' bench: one `System`, a manual clock, and the records.

A shadow system is restored from bytes before every step, so each script also proves restoring (design, "The
one rule").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from ebbtide.actors.actor import IGNORED, Handler
from ebbtide.actors.system import ACTOR_TYPE_BY_NAME, System, as_checkpoint, restore
from ebbtide.events.base import Checkpoint, Event, Order, Record, Stamp, StatesDigest
from ebbtide.events.decisions import ActorFailed
from ebbtide.events.facts import OrderEnded, Tick
from ebbtide.events.outage_events import RequestPermit
from ebbtide.events.segment import OUTAGE_LOGIC, SHUTDOWN_LOGIC
from ebbtide.replay.sim.sim_outage import COUNTED
from tests.handlers import handler_columns
from tests.scripts.show import BASE_NS

WALL_BASE_NS = 1_700_000_000_000_000_000

#: More ticks at one instant count as a storm: a wave's end may cause a few.
TICKS_AT_ONCE_MAX = 8

#: Orders that scripts answer by hand.
MANUAL = (
    *("RunHook", "TakeInventory", "Arm", "WriteDropIn", "RemoveDropIn"),
    *("SetTaint", "RemoveTaint", "ReadNode", "PowerOff"),
)


_CHECKPOINTS = msgspec.msgpack.Decoder(Checkpoint)


def _pack(system: System) -> bytes:
    return msgspec.msgpack.encode(as_checkpoint(system))


def logic_of(script: Path) -> str:
    return OUTAGE_LOGIC if script.stem.startswith("outage-") else SHUTDOWN_LOGIC


class Answer(NamedTuple):
    """What a step led to. ``state``: a checkpoint's bytes, which make the digests redundant."""

    records: list[Record]
    state: bytes
    deadline_ns: int | None


def answer(system: System, records: list[Record]) -> Answer:
    told = [each for each in records if type(each.event) is not StatesDigest]
    return Answer(told, _pack(system), system.next_deadline_ns())


class Step(NamedTuple):
    """``before``: the state of a new or restored system; empty if the last step's goes on.

    ``sabotaged``: the arguments of its `Saboteur`s.
    """

    fact: Event
    stamp: Stamp
    sabotaged: tuple[tuple[str, ...], ...]
    before: bytes
    next_seq: int
    answer: Answer


def same_again(steps: Iterable[Step]) -> bool:
    """Do all steps lead to the same with the logic that is loaded now?"""
    system = System()
    for step in steps:
        if step.before:
            system = restore(_CHECKPOINTS.decode(step.before), step.next_seq)
            system.checked = True
        with ExitStack() as stack:
            for words in step.sabotaged:
                stack.enter_context(Saboteur(*words))
            records = system.step(step.fact, step.stamp)
        if answer(system, records) != step.answer:
            return False
    return True


class Bench:
    """``auto`` orders end as ``done`` at once; such steps are not shown."""

    def __init__(self, logic: str = SHUTDOWN_LOGIC) -> None:
        self.system = System(logic=logic)
        #: The last packed system: only `feed` changes it.
        self._packed = (self.system, _pack(self.system))
        self.now_ns = BASE_NS
        self.orders: dict[str, Order] = {}
        self.records: list[Record] = []
        self.steps: list[Step] = []
        self.shown: list[Record] = []
        self.manual: tuple[str, ...] = MANUAL
        self.saboteurs: tuple[Saboteur, ...] = ()
        self.daemon_runs = True
        #: An edge's facts before an order's outcome; the records are its step's.
        self.finds: Callable[[Order, list[Record]], Event | None] = lambda order, records: None

    # --- facts

    def feed(self, fact: Event, *, hide_if_alone: bool = False) -> list[Record]:
        """Admit one fact, compare with the shadow, then answer automatic orders."""
        stamp = Stamp(self.now_ns, WALL_BASE_NS + self.now_ns)
        before = b"" if self.steps and self._packed[0] is self.system else _pack(self.system)
        sabotaged = tuple(each.words for each in self.saboteurs)
        shadow, next_seq = self.restored(), self.system.next_seq
        with ExitStack() as stack:
            for saboteur in self.saboteurs:
                stack.enter_context(saboteur)
            twin = shadow.step(fact, stamp)
            records = self.system.step(fact, stamp)
        assert records == twin, f"a restored system differs: {records} / {twin}"
        led_to = answer(self.system, records)
        self._packed = (self.system, led_to.state)
        self.steps.append(Step(fact, stamp, sabotaged, before, next_seq, led_to))
        assert _pack(shadow) == self._packed[1], f"a restored system is in another state after {records[0]}"
        self.records += records
        if len(records) > 1 or not hide_if_alone:
            self.shown += records
        self._note_failures(records)
        self._follow_orders(fact, records)
        return records

    def restored(self) -> System:
        of, packed = self._packed
        kept = _CHECKPOINTS.decode(packed if of is self.system else _pack(self.system))
        twin = restore(kept, self.system.next_seq)
        for place, slot in self.system.slots.items():  # nothing was written: what is due for a digest, stays
            if slot.noted is not slot.state:
                twin.slots[place].noted = slot.noted
        return twin

    def _follow_orders(self, fact: Event, records: list[Record]) -> None:
        if isinstance(fact, OrderEnded):
            self.orders.pop(fact.key, None)
        fresh = [record.event for record in records if isinstance(record.event, Order)]
        self.orders.update((order.key, order) for order in fresh)
        for order in fresh:
            if type(order).__name__ not in self.manual and self.daemon_runs:
                if isinstance(order, RequestPermit):
                    self.feed(replace(COUNTED, key=order.key), hide_if_alone=True)
                elif (found := self.finds(order, records)) is not None:
                    self.feed(found)
                self.feed(OrderEnded(key=order.key, result="done"), hide_if_alone=True)

    # --- time

    def advance(self, until_ns: int) -> None:
        """Advance time; each deadline gets its `Tick` at its time."""
        at_once = 0
        while (due_ns := self.system.next_deadline_ns()) is not None and due_ns <= until_ns:
            at_once = at_once + 1 if due_ns <= self.now_ns else 0
            assert at_once < TICKS_AT_ONCE_MAX, f"ticks make no progress at {self.now_ns}"
            self.now_ns = max(self.now_ns, due_ns)
            self.feed(Tick())
        self.now_ns = until_ns

    # --- orders

    def open_key(self, kind: type[Order]) -> str:
        """The newest open order of a kind, or empty."""
        return next((key for key, order in reversed(self.orders.items()) if type(order) is kind), "")

    # --- failures

    def _note_failures(self, records: list[Record]) -> None:
        """Sabotage is over once it has hit."""
        if any(isinstance(record.event, ActorFailed) for record in records):
            self.saboteurs = ()


class Saboteur:
    """Makes an actor's handlers raise during a step: all, or the one for ``event``. ``stuck``: they only
    leave the state as it is.

    ``actor`` is one pod's actor (``HookActor:web``) or a kind.
    """

    def __init__(self, actor: str, event: str = "", stuck: str = "") -> None:
        self.words = (actor, event, stuck)
        name, _, self._subject = actor.partition(":")
        self._kept = [
            (column, kind, handler)
            for column in handler_columns(ACTOR_TYPE_BY_NAME[name])
            for kind, handler in column.items()
            if event in ("", kind.__name__)
        ]
        assert self._kept, f"{name} has no handler for {event}"

    def __enter__(self) -> None:
        for column, kind, handler in self._kept:
            column[kind] = self._spoilt(handler)

    def __exit__(self, *failure: object) -> None:
        for column, kind, handler in self._kept:
            column[kind] = handler

    def _spoilt(self, handler: Handler) -> Handler:
        if self.words[-1]:
            return IGNORED

        def handle(state: Any, event: Any, now: int) -> Any:
            pod = getattr(state, "pod", None) or getattr(event, "pod", None)
            if self._subject in ("", getattr(pod, "uid", "")):
                raise RuntimeError("sabotaged")
            return handler(state, event, now)

        return handle

"""The system: all actors together, and the one function that moves them, `System.step`.

Theory of operation. A step is one fact and the closure of the decisions it leads to, breadth-first. An
event goes to its recipients in the order of registration; what they decide is appended and delivered in
turn, until nothing is left. Nothing here waits, reads a clock, or knows what day it is: ``run``,
``replay``, ``what-if`` and ``simulate`` all call this same function, and get the same records.

Two rules hold it together:

1. A state is replaced only when ``handle`` returns. When it raises, that is a decision too: `ActorFailed`.
2. A deadline is part of a state. The outside admits a `Tick` when `next_deadline` has come; who is due
   follows from the states.
"""

from __future__ import annotations

from typing import Any

from actors.logic.actor import NEVER_NS, ActorType
from actors.logic.deadlines import Deadlines
from actors.logic.digest import changed, note
from actors.logic.episode import EPISODE
from actors.logic.fallback import FALLBACK
from actors.logic.flags import LOGIC_FLAGS, STATES_DIGEST
from actors.logic.hook import HOOK
from actors.logic.routes import SINGLETONS, TO_SINGLETONS, TO_SUBJECTS, who_hears_outcome
from actors.logic.slot import NoProgress, Opened, Slot, hand_over
from actors.logic.wave import WAVE
from events.base import Event, Order
from events.decisions import ActorFailed, EpisodeClosed, PlanMade, PodsEnded, ShutdownBegan, WaveEnded
from events.facts import DaemonStarted, OrderEnded, Tick
from events.marks import StatesDigest
from events.record import Record, Stamp

#: ``(cause, actor, event, episode)``.
Trace = tuple[int, str, Event, int]

#: The actor of a fact, and of what the system decides for actors that it does not trust any more.
EDGE, SYSTEM = "edge", "system"

#: Starts in a row that came to nothing before a start goes straight to the fallback.
FAILED_STARTS_MAX = 2


class System:
    """All actors' states. ``slots`` are in the order of registration."""

    def __init__(self, next_seq: int = 1, flags: tuple[str, ...] = LOGIC_FLAGS) -> None:
        self.next_seq = next_seq
        #: The logic flags in force (`actors.logic.flags`).
        self.flags = flags
        self.episode = 0
        self.open_orders: dict[str, Opened] = {}
        self.slots: dict[tuple[str, str], Slot] = {}
        self._by_kind: dict[str, list[Slot]] = {}
        self._registered = 0
        self._deadlines = Deadlines()
        self._closing, self._planned, self._digest_at = False, False, 0
        for kind in SINGLETONS:
            self.register(kind, "")
        #: Who hears of an event and never goes.
        self._always = {kind: [self.slots[at] for at in places] for kind, places in TO_SINGLETONS.items()}

    # --- the one function ---------------------------------------------------------------------

    def step(self, fact: Event, stamp: Stamp) -> list[Record]:
        """One fact and everything decided because of it, as records; the last one is marked."""
        first = self.next_seq
        mono_ns, wall_ns = stamp
        trail = self.trace(fact, mono_ns)
        final = first + len(trail) - 1
        return [
            Record(
                seq=seq,
                mono_ns=mono_ns,
                wall_ns=wall_ns,
                episode=episode,
                cause=cause,
                actor=actor,
                last=seq == final,
                event=event,
            )
            for seq, (cause, actor, event, episode) in enumerate(trail, first)
        ]

    def trace(self, fact: Event, mono_ns: int) -> list[Trace]:
        """The same without envelopes: ``(cause, actor, event, episode)`` in sequence order."""
        first = self.next_seq
        self._admit(fact, mono_ns)
        trail: list[Trace] = [(0, EDGE, fact, self.episode)]
        for at, (_, _, event, _) in enumerate(trail):  # the trail grows while it is walked
            kind = type(event)
            if kind is EpisodeClosed:
                self._revive(fact, mono_ns)
            for slot in self._recipients(event, kind, mono_ns):
                for decision in self._handle(slot, event, kind, mono_ns):
                    if isinstance(decision, Order):
                        self.open_orders[decision.key] = Opened(first + len(trail), decision)
                    else:
                        self._note(decision, first, len(trail))
                    trail.append((first + at, slot.label, decision, self.episode))
                    if type(decision) is EpisodeClosed:
                        self.episode = 0
            if at == 0 and type(fact) is DaemonStarted:
                self._give_up_on(fact, mono_ns, trail)
        if self._digest_at or self._planned:
            self._digest(first, trail)
        if self.episode == first:
            trail = [(cause, actor, event, episode or first) for cause, actor, event, episode in trail]
            trail[0] = (0, EDGE, fact, first)
        self.next_seq = first + len(trail)
        if self._closing:
            self._drop_done()
        if not self.episode:
            self._revive(fact, mono_ns)
        return trail

    def _digest(self, first: int, trail: list[Trace]) -> None:
        """At a wave's end: what the actors' states are. A plan says by itself what it made of them."""
        at, self._digest_at = self._digest_at, 0
        if at and STATES_DIGEST in self.flags:
            _, _, end, episode = trail[at]
            made = changed(self.slots.values(), at_last=type(end) is PodsEnded)
            trail.append((first + at, SYSTEM, StatesDigest(actors=made), episode))
        if self._planned:
            note(self.slots.values())
            self._planned = False

    def _note(self, decision: Event, first: int, at: int) -> None:
        """What a decision means for the system itself. The fact that opens an episode is its first record."""
        kind = type(decision)
        if kind is ShutdownBegan:
            self.episode = first
        elif kind is EpisodeClosed:
            self._closing = True
        elif kind is WaveEnded or kind is PodsEnded:
            self._digest_at = at
        elif kind is PlanMade:
            self._planned = True

    def _admit(self, fact: Event, now_ns: int) -> None:
        if type(fact) is OrderEnded:
            self.open_orders.pop(fact.key, None)
        elif type(fact) is DaemonStarted:
            self._revive(fact, now_ns)

    def _handle(self, slot: Slot, event: Event, kind: type[Event], now_ns: int) -> Any:
        try:
            state, decisions = slot.kind.handlers[kind](slot.state, event, now_ns)
            # A deadline follows from the state; only a `Tick` has taken it away while the state stayed.
            if state is slot.state and kind is not Tick:
                return decisions
            deadline_ns = slot.kind.deadline(state)
            if kind is Tick and now_ns >= deadline_ns == slot.kind.deadline(slot.state):
                raise NoProgress
        except Exception as error:  # every failure of an actor's code is a decision (design, rule 7)
            return (self._fail(slot, event, now_ns, type(error).__name__),)
        slot.state = state
        if deadline_ns != slot.deadline_ns:
            self._deadlines.watch(slot, deadline_ns)
        return decisions

    def _fail(self, slot: Slot, event: Event, now_ns: int, error: str) -> ActorFailed:
        """Its own pod passes to the fallback; from an actor that begins and ends many, every pod does."""
        slot.failed = True
        slot.deadline_ns = NEVER_NS
        givers = self._by_kind.get(HOOK.name, []) if slot.kind in (WAVE, EPISODE) else [slot]
        handed = [hand_over(giver, event, now_ns) for giver in givers if giver is slot or not giver.failed]
        return ActorFailed(
            actor=slot.kind.name,
            subject=slot.subject,
            error=error,
            handover=tuple(each for each in handed if each is not None),
        )

    def _give_up_on(self, fact: DaemonStarted, now_ns: int, trail: list[Trace]) -> None:
        """Two starts that failed at the same place: whatever it is, it is not tried a third time.

        Not for a shutdown that this start has found closed or cancelled: there is nothing left to carry out.
        """
        over = not self.episode or fact.preparing is False or self.slots[(FALLBACK.name, "")].failed
        if fact.failed_starts < FAILED_STARTS_MAX or over:
            return
        pods = self._by_kind.get(HOOK.name, ())
        left = (slot for slot in pods if HOOK.handover(slot.state, fact, now_ns) is not None)
        for slot in (self.slots[(EPISODE.name, "")], *left):
            if not slot.failed:
                failed = self._fail(slot, fact, now_ns, "the last starts failed")
                trail.append((self.next_seq, SYSTEM, failed, self.episode))

    def watch(self, slot: Slot) -> None:
        """Take the deadline from a state that was restored."""
        self._deadlines.watch(slot, NEVER_NS if slot.failed else slot.kind.deadline(slot.state))

    # --- who hears of it ----------------------------------------------------------------------

    def _recipients(self, event: Event, kind: type[Event], now_ns: int) -> list[Slot]:
        if kind is OrderEnded:
            return self._owner(event.key)  # type: ignore[attr-defined]  # narrowed by the line above
        if kind is Tick:
            return self._deadlines.take(now_ns)
        found = [slot for slot in self._always.get(kind, ()) if not slot.failed]
        for name, subject_of, creates in TO_SUBJECTS.get(kind, ()):
            if subject_of is None:
                found += [slot for slot in self._by_kind.get(name, ()) if not slot.failed]
                continue
            subject = subject_of(event)
            slot = self.slots.get((name, subject))
            if slot is None and creates is not None:
                slot = self.register(creates, subject)
            if slot is not None and not slot.failed:
                found.append(slot)
        return found

    def _owner(self, key: str) -> list[Slot]:
        found = [self.slots.get(place) or self.slots.get((place[0], "")) for place in who_hears_outcome(key)]
        return [slot for slot in found if slot is not None and not slot.failed]

    def next_deadline_ns(self) -> int | None:
        """When the next `Tick` is due, in monotonic nanoseconds; None if nobody waits."""
        return self._deadlines.next_ns()

    # --- who there is -------------------------------------------------------------------------

    def register(self, kind: ActorType, subject: str) -> Slot:
        slot = Slot(kind, subject, self._registered)
        self._registered += 1
        self.slots[(kind.name, subject)] = slot
        self._by_kind.setdefault(kind.name, []).append(slot)
        return slot

    def _drop_done(self) -> None:
        """At an episode's end its waves and pods go, but not a pod that is still on its way down."""
        kept = [slot for slot in self.slots.values() if not slot.subject or not slot.is_done]
        self.slots = {(slot.kind.name, slot.subject): slot for slot in kept}
        self._by_kind = {}
        for slot in kept:
            self._by_kind.setdefault(slot.kind.name, []).append(slot)
        self._deadlines.keep(kept)
        self._closing = False

    def _revive(self, fact: Event, now_ns: int) -> None:
        """A failed singleton goes on with the next episode or process, and outside of a shutdown at once."""
        start = fact if type(fact) is DaemonStarted else None
        for slot in (self.slots[(kind.name, "")] for kind in SINGLETONS):
            state = slot.kind.afresh(slot.state, now_ns, self.episode > 0, start) if slot.failed else None
            if state is not None:
                slot.failed = False
                slot.state = state
                self.watch(slot)

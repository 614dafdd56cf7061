"""Where the system keeps what belongs to one actor, and to one open order."""

from __future__ import annotations

from typing import NamedTuple

from actors.logic.actor import NEVER_NS, ActorType, State
from events.base import Event, Order
from events.model import Handover


class Opened(NamedTuple):
    """An order without an outcome, and the number of its record."""

    seq: int
    order: Order


class NoProgress(Exception):
    """An actor whose deadline its own `Tick` leaves as it was: it would be due again at once, for ever."""


class Slot:
    """One actor in the system: where its state is kept, and its place in the order of registration."""

    __slots__ = ("deadline_ns", "failed", "index", "kind", "label", "noted", "state", "subject")

    def __init__(self, kind: ActorType, subject: str, index: int) -> None:
        self.kind = kind
        self.subject = subject
        self.index = index
        self.label = f"{kind.name}:{subject}" if subject else kind.name
        self.state: State = kind.state()
        #: The state that is on record, in a checkpoint or a digest; a fresh one needs no record.
        self.noted = self.state
        self.deadline_ns = NEVER_NS
        self.failed = False

    @property
    def is_done(self) -> bool:
        """May it be dropped at an episode's end?"""
        return self.failed or self.kind.done(self.state)


def hand_over(giver: Slot, event: Event, now_ns: int) -> Handover | None:
    """What a failed actor leaves to the fallback. If the bug is there: nothing, and no harm."""
    try:
        return giver.kind.handover(giver.state, event, now_ns)
    except Exception:  # it must not take the step, and with it the daemon, along
        return None

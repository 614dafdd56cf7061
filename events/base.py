"""What an event is: a fact, a decision, or an order, and how its name becomes a type tag.

A *fact* was learned from outside. A *decision* was derived from facts by an actor. An *order* is a
decision that asks an edge for an effect. The class name is the type tag in the journal, so a class is
never renamed; a new field needs a default that means "as before".
"""

from __future__ import annotations

from typing import ClassVar, Literal, TypeVar

import msgspec

NS_PER_SECOND = 1_000_000_000

#: Longest time an effect waits for its barrier before it starts all the same (design, rule 5).
BARRIER_NS_MAX = 20_000_000

#: What an order waits for. Effects that die with the boot need their order only *written* (a completed
#: ``write()`` survives our own death); effects that outlive the boot need it *synced*; one that changes
#: nothing, only looks, waits for nothing.
Barrier = Literal["none", "written", "synced"]

#: How far apart the first ordinals of two plans for the same pod are; a restart may use one up. The upper
#: half of each range belongs to plans of the fallback, which counts for itself.
ORDINALS_PER_PLAN = 1000

EventT = TypeVar("EventT", bound="type[Event]")

TYPES: dict[str, type[Event]] = {}


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Base of everything that stands in a journal. Times are integer nanoseconds, never floats."""


class Fact(Event, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Learned from outside."""


class Decision(Event, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Derived by an actor from the events before it."""


class Order(Decision, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A decision that asks an edge for one effect. It is answered by exactly one ``OrderEnded``.

    ``key`` is stable: made by `order_key` from actor, type, subject and ordinal, so that a replay, a
    what-if and a restarted daemon give the same order the same name.
    """

    barrier: ClassVar[Barrier] = "written"
    #: May the effect be repeated when it is not known whether it took place?
    idempotent: ClassVar[bool] = True
    #: Meant for the boot that it was given in: in another one it is not repeated, its outcome is unknown.
    this_boot: ClassVar[bool] = False

    key: str


class Mark(Event, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Neither fact nor decision: bookkeeping of the journal itself, such as a checkpoint."""


def register(cls: EventT) -> EventT:
    """Give an event class its type tag (its name). Raises ValueError when the tag is taken."""
    if cls.__name__ in TYPES:
        raise ValueError(f"event type {cls.__name__} is registered twice")
    TYPES[cls.__name__] = cls
    return cls


def order_key(actor: str, what: str, subject: str = "", ordinal: int = 0) -> str:
    """The stable name of an order: ``actor/what/subject/ordinal``."""
    return f"{actor}/{what}/{subject}/{ordinal}"

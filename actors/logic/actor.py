"""What an actor is: a state, a table of handlers, and the deadline that follows from the state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from events.base import Event
from events.facts import DaemonStarted
from events.model import Handover

#: A deadline that never comes: larger than any monotonic clock.
NEVER_NS = (1 << 62) - 1

#: What a handler returns: the next state, and decisions in the order in which they are recorded.
Result = tuple[Any, tuple[Event, ...] | list[Event]]
Handler = Callable[[Any, Any, int], Result]
Afresh = Callable[[Any, int, bool, DaemonStarted | None], "State | None"]


class State(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Base of actor states. Frozen: a handler that raises leaves the old state as it was."""


class ActorType(NamedTuple):
    """``deadline`` is when the actor wants a `Tick`; ``done``: it may be dropped at an episode's end.

    ``handover`` is the pod that a failed actor leaves to the fallback, None if it has none (any more), with
    what the event says that it failed at. ``afresh`` is the state with which it goes on after a failure: what
    it was told, without what it was doing; given the time, whether a shutdown is open, and the start of the
    process if that is the fact at hand. None: not yet.
    """

    name: str
    state: type[State]
    handlers: dict[type[Event], Handler]
    deadline: Callable[[Any], int]
    done: Callable[[Any], bool] = lambda state: True
    handover: Callable[[Any, Event, int], Handover | None] = lambda state, event, now: None
    afresh: Afresh = lambda state, now, in_episode, start: state

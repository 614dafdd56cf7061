"""Every event type in words: the one table behind the system log, the timeline and what else tells people.

A type that is not in the table was written by another version; whoever prints it shows its tag and its data.
"""

from __future__ import annotations

from events.base import Event
from events.record import Stamp
from events.words import kubernetes, node, shutdown
from events.words.base import DEBUG, ERROR, INFO, NOTICE, WARNING, Names, Said, Teller

TELL: dict[type[Event], Teller] = {**node.TELL, **shutdown.TELL, **kubernetes.TELL}


def say(names: Names, event: Event, at: Stamp) -> Said | None:
    """What happened, after ``names`` has learned from it; None for a type that has no words."""
    names.learn(event)
    teller = TELL.get(type(event))
    return None if teller is None else teller(names, event, at)


__all__ = ["DEBUG", "ERROR", "INFO", "NOTICE", "TELL", "WARNING", "Names", "Said", "Teller", "say"]

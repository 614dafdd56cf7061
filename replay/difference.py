"""Where two records differ: the first part that is not the same, by name.

Of two envelopes that is a part of the envelope, of two events a field. Of two digests or checkpoints, which
hold the states of all actors, it is the actor and the field of its state.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from actors.logic.digest import differing_field
from actors.logic.routes import BY_NAME
from events.marks import Checkpoint, StatesDigest


class Side(NamedTuple):
    """One side of a comparison: what a record says, its data as plain values. Type "" is "nothing".

    ``mono_ns`` and ``wall_ns`` are its stamps, ``last`` whether it ends its step.
    """

    cause: int
    actor: str
    type: str
    data: Any
    episode: int
    mono_ns: int = 0
    wall_ns: int = 0
    last: bool = False

    @property
    def stamps(self) -> tuple[int, int]:
        return self.mono_ns, self.wall_ns


NOTHING = Side(0, "", "", None, 0)


def first_difference(produced: Side, recorded: Side) -> str:
    """A part of the envelope, else a field of the event; ``actor field`` for a digest of states.

    ``time``: a decision carries its fact's stamps. ``last``: it ends the step, or does not.
    """
    for name in ("type", "actor", "cause", "episode"):
        if getattr(produced, name) != getattr(recorded, name):
            return name
    if produced.stamps != recorded.stamps:
        return "time"
    found = _data_field(produced, recorded)
    return found or ("last" if produced.last != recorded.last else "encoding")


def _data_field(produced: Side, recorded: Side) -> str:
    """The first field of the events that differs; "" where none does."""
    if not isinstance(recorded.data, dict) or not isinstance(produced.data, dict):
        return "data"
    if recorded.type == StatesDigest.__name__ and recorded.data != produced.data:
        return _digest_field(recorded.data.get("actors", {}), produced.data.get("actors", {}))
    names = [*recorded.data, *produced.data]
    return next((name for name in names if recorded.data.get(name) != produced.data.get(name)), "")


def _digest_field(recorded: Any, produced: Any) -> str:
    """The first actor whose digest differs, and its first field; of one that is in only one: the actor."""
    if not isinstance(recorded, dict) or not isinstance(produced, dict):
        return "actors"
    label = next((each for each in {**produced, **recorded} if recorded.get(each) != produced.get(each)), "")
    kept, made = recorded.get(label), produced.get(label)
    kind = BY_NAME.get(str(label).partition(":")[0])
    if kind is None or not isinstance(kept, bytes) or not isinstance(made, bytes):
        return f"actors {label}".rstrip()
    return f"{label} {differing_field(kind.state, kept, made)}".rstrip()


def checkpoint_field(recorded: Checkpoint, mine: Checkpoint) -> str:
    """The first actor whose state differs, and its first differing field."""
    for theirs, ours in zip(recorded.actors, mine.actors, strict=False):
        if theirs != ours:
            kept, made = msgspec.msgpack.decode(theirs.state), msgspec.msgpack.decode(ours.state)
            name = next((key for key in {**kept, **made} if kept.get(key) != made.get(key)), "identity")
            return f"{ours.actor}:{ours.subject} {name}".replace(": ", " ")
    return "actors" if len(recorded.actors) != len(mine.actors) else "open orders"

"""Where two records differ: the first part that is not the same, by name.

Of two envelopes that is a part of the envelope, of two events a field. Of two digests or checkpoints, which
hold the states of all actors, it is the actor and the field of its state.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from actors.logic.digest import differing_field
from actors.logic.routes import BY_NAME, SINGLETONS
from events.marks import ActorState, Checkpoint, StatesDigest
from replay.changes import same

_encode = msgspec.msgpack.Encoder().encode


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


def as_kept(mine: Checkpoint, recorded: Checkpoint) -> Checkpoint:
    """``mine`` without the singletons that whoever wrote did not have yet, as long as they know nothing.

    A version that brings an actor leaves the journals before it as they are: a default state is what a start
    from the recorded checkpoint gives that actor too.
    """
    there = {(kept.actor, kept.subject): None for kept in recorded.actors}
    actors = tuple(made for made in mine.actors if (made.actor, made.subject) in there or not _is_blank(made))
    return mine if len(actors) == len(mine.actors) else msgspec.structs.replace(mine, actors=actors)


def _is_blank(made: ActorState) -> bool:
    kind = BY_NAME[made.actor]
    return kind in SINGLETONS and not made.failed and bytes(made.state) == _encode(kind.state())


def alike(recorded: Checkpoint, mine: Checkpoint) -> bool:
    """The same values in the same order, whatever the form of a map's length.

    A struct of more than 15 fields is written with a longer head, also where most of them are left out: a
    state that has gained fields has other bytes, and says nothing else.
    """
    if len(recorded.actors) != len(mine.actors):
        return False
    same_states = all(
        (theirs.actor, theirs.subject, theirs.failed) == (ours.actor, ours.subject, ours.failed)
        and same(msgspec.msgpack.decode(theirs.state), msgspec.msgpack.decode(ours.state))
        for theirs, ours in zip(recorded.actors, mine.actors, strict=True)
    )
    return same_states and msgspec.structs.replace(recorded, actors=()) == msgspec.structs.replace(
        mine, actors=()
    )


def checkpoint_field(recorded: Checkpoint, mine: Checkpoint) -> str:
    """The first actor whose state differs, and its first differing field."""
    for theirs, ours in zip(recorded.actors, mine.actors, strict=False):
        kept, made = msgspec.msgpack.decode(theirs.state), msgspec.msgpack.decode(ours.state)
        labels = [(each.actor, each.subject, each.failed) for each in (theirs, ours)]
        if labels[0] != labels[1] or not same(kept, made):
            name = next((key for key in {**kept, **made} if kept.get(key) != made.get(key)), "identity")
            return f"{ours.actor}:{ours.subject} {name}".replace(": ", " ")
    return "actors" if len(recorded.actors) != len(mine.actors) else "open orders"

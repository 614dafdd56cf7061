"""The whole deterministic state to a `Checkpoint` and back.

A segment begins with one, so that arming and replay need no older segment. The order of registration is
kept, because ties between actors go by it.
"""

from __future__ import annotations

import msgspec

from actors.logic.routes import BY_NAME
from actors.logic.system import Slot, System
from events.codec import BadPayload
from events.marks import ActorState, Checkpoint, OpenOrder


def take(system: System) -> Checkpoint:
    """The state between two steps."""
    return Checkpoint(
        episode=system.episode,
        actors=tuple(map(_pack, system.slots.values())),
        open_orders=tuple(OpenOrder(key=key, seq=seq) for key, seq in system.open_orders.items()),
    )


def _pack(slot: Slot) -> ActorState:
    state = msgspec.Raw(msgspec.msgpack.encode(slot.state))
    return ActorState(actor=slot.kind.name, subject=slot.subject, state=state, failed=slot.failed)


def restore(checkpoint: Checkpoint, next_seq: int) -> System:
    """A system that goes on at ``next_seq``. Raises BadPayload on a state that this version cannot read."""
    system = System(next_seq)
    system.episode = checkpoint.episode
    system.open_orders = {order.key: order.seq for order in checkpoint.open_orders}
    for kept in checkpoint.actors:
        _unpack(system, kept)
    return system


def _unpack(system: System, kept: ActorState) -> None:
    kind = BY_NAME.get(kept.actor)
    if kind is None:
        raise BadPayload(f"the checkpoint has an actor {kept.actor!r} that this version does not know")
    slot = system.slots.get((kept.actor, kept.subject)) or system.register(kind, kept.subject)
    try:
        slot.state = msgspec.msgpack.decode(kept.state, type=kind.state)
    except msgspec.DecodeError as error:
        raise BadPayload(f"checkpoint of {kept.actor}: {error}") from error
    slot.failed = kept.failed
    system.watch(slot)

"""The whole deterministic state to a `Checkpoint` and back.

Each segment begins with one, so that a start and a replay need no older segment.
"""

from __future__ import annotations

import msgspec

from ebbtide.actors.sets import SETS
from ebbtide.actors.system import OpenedOrder, Slot, System, mark_recorded
from ebbtide.events.base import ActorState, Checkpoint, OpenOrder, Order
from ebbtide.events.codec import BadPayload, decode_event, encode_event


def take_checkpoint(system: System) -> Checkpoint:
    """The state between two steps, for the journal: the next digest covers what changes after it."""
    mark_recorded(system.slots.values())
    return as_checkpoint(system)


def as_checkpoint(system: System) -> Checkpoint:
    """The same without an effect on the next digest."""
    return Checkpoint(
        episode=system.episode,
        actors=tuple(map(_pack_actor, system.slots.values())),
        open_orders=tuple(map(_pack_order, system.open_orders.values())),
        logic=system.logic,
    )


def _pack_actor(slot: Slot) -> ActorState:
    state = msgspec.Raw(msgspec.msgpack.encode(slot.state))
    return ActorState(actor=slot.kind.name, subject=slot.subject, state=state, failed=slot.failed)


def _pack_order(opened: OpenedOrder) -> OpenOrder:
    raw = msgspec.Raw(encode_event(opened.order))
    return OpenOrder(seq=opened.seq, type=type(opened.order).__name__, order=raw)


def restore(checkpoint: Checkpoint, next_seq: int) -> System:
    """A system that goes on at ``next_seq``. Raises BadPayload on a state that this version cannot read."""
    if checkpoint.logic not in SETS:
        raise BadPayload(
            f"the checkpoint is of the logic {checkpoint.logic!r}, which this version does not know"
        )
    system = System(next_seq, checkpoint.logic)
    system.episode = checkpoint.episode
    for kept in checkpoint.open_orders:
        order = decode_event(kept.type, bytes(kept.order))
        if not isinstance(order, Order):
            raise BadPayload(f"the checkpoint has an open order {kept.type!r}, which is none")
        system.open_orders[order.key] = OpenedOrder(kept.seq, order)
    for actor in checkpoint.actors:
        # Without one of its actors a shutdown would forget pods: refuse the whole checkpoint.
        kind = system.actors.by_name.get(actor.actor)
        if kind is None:
            raise BadPayload(f"the checkpoint has an actor {actor.actor!r} that this version does not know")
        if actor.subject and kind in system.actors.singletons:
            raise BadPayload(f"the checkpoint has a second {actor.actor}, for {actor.subject!r}")
        # In the checkpoint's order: it decides ties between actors.
        slot = system.slots.get((actor.actor, actor.subject)) or system.register(kind, actor.subject)
        try:
            slot.state = msgspec.msgpack.decode(actor.state, type=kind.state)
        except (ValueError, msgspec.DecodeError, RecursionError) as error:  # ValueError: bad UTF-8
            raise BadPayload(f"checkpoint of {actor.actor}: {error}") from error
        slot.failed = actor.failed
        system.watch(slot)
    mark_recorded(system.slots.values())
    return system

"""A checkpoint restores the whole deterministic state, or reports why not."""

from __future__ import annotations

import msgspec
import pytest

from ebbtide.actors.system import System, restore, take_checkpoint
from ebbtide.events.base import CHECKPOINT_ITEMS_MAX, ActorState
from ebbtide.events.codec import BadPayload, decode_event
from tests.scripts.bench import Bench
from tests.scripts.parse import parse
from tests.scripts.verbs import run

SCRIPT = """
shutdown poweroff total=30s critical=10s
  web p=0 grace=20 app[exec] log*
  dns p=2000000000 grace=30
fail HookActor:web HurryRequested
hurry web
"""


def bench() -> Bench:
    made = Bench()
    for command in parse(SCRIPT)[0].commands:
        run(made, command)
    return made


def test_round_trip_keeps_everything() -> None:
    """States, failures, open orders, the episode and the order of registration come back."""
    system = bench().system
    twin = restore(take_checkpoint(system), system.next_seq)
    assert take_checkpoint(twin) == take_checkpoint(system)
    assert twin.episode == system.episode > 0
    assert twin.open_orders == system.open_orders
    assert list(twin.slots) == list(system.slots)
    assert twin.next_deadline_ns() == system.next_deadline_ns()
    assert twin.slots[("HookActor", "web")].failed


def test_a_fresh_system_has_nothing_open() -> None:
    """Before the first fact there is no episode, no order and no deadline."""
    checkpoint = take_checkpoint(System())
    assert checkpoint.episode == 0
    assert checkpoint.open_orders == ()
    assert System().next_deadline_ns() is None


@pytest.mark.parametrize(
    "actor, bad",
    [
        ("OracleActor", b"\x80"),
        ("NodeStatusActor", msgspec.msgpack.encode({"in_episode": "perhaps"})),
        ("EpisodeActor", b"\x81\xa7boot_id\xa2\xff\xfe"),
    ],
    ids=["actor", "type", "utf-8"],
)
def test_what_cannot_be_restored_is_named(actor: str, bad: bytes) -> None:
    """The error names an actor of a newer version and a state of a wrong type."""
    state = ActorState(actor=actor, subject="", state=msgspec.Raw(bad))
    checkpoint = msgspec.structs.replace(take_checkpoint(System()), actors=(state,))
    with pytest.raises(BadPayload) as refused:
        restore(checkpoint, 1)
    assert actor in str(refused.value)


@pytest.mark.parametrize("seconds", [(1 << 63) - 1, 20 * 10**9, -(1 << 63)])
def test_a_sleep_of_any_length_can_be_written_down(seconds: int) -> None:
    """The API server accepts any 63-bit preStop sleep with such a grace."""
    script = f"""
shutdown poweroff total=30s critical=10s
  web p=0 grace={abs(seconds)} app[sleep:{seconds}]
"""
    made = Bench()
    # The bench encodes and decodes each step's state.
    for command in parse(script)[0].commands:
        run(made, command)
    hook = made.system.slots[("HookActor", "web")]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(hook.state), type=type(hook.state)) == hook.state
    # It lasts as long as its pod may, or not at all.
    assert made.system.next_deadline_ns() is not None


@pytest.mark.parametrize(
    "actor, field, entry",
    [("FallbackActor", "pods", b"\xa1a\x80"), ("NodeStatusActor", "running", b"\xa1a")],
)
def test_a_state_of_too_many_entries_is_not_built(actor: str, field: str, entry: bytes) -> None:
    """Each of a million entries would take a hundred bytes: the count is refused first."""
    count = (CHECKPOINT_ITEMS_MAX + 1).to_bytes(4, "big")
    head = {"pods": b"\xdf", "running": b"\xdd"}[field]
    name = bytes([0xA0 + len(field)]) + field.encode()
    state = msgspec.Raw(b"\x81" + name + head + count + entry * (CHECKPOINT_ITEMS_MAX + 1))
    kept = ActorState(actor=actor, subject="", state=state)
    with pytest.raises(BadPayload, match="length <= 32768"):
        restore(msgspec.structs.replace(take_checkpoint(System()), actors=(kept,)), 1)


def test_there_is_one_of_each_singleton() -> None:
    """A made-up second one would only take room."""
    kept = ActorState(actor="FallbackActor", subject="b", state=msgspec.Raw(b"\x80"))
    with pytest.raises(BadPayload, match="a second FallbackActor"):
        restore(msgspec.structs.replace(take_checkpoint(System()), actors=(kept,)), 1)


@pytest.mark.parametrize("field", ["actors", "open_orders"])
def test_a_checkpoint_of_too_many_parts_is_not_read(field: str) -> None:
    """Each would be half a kilobyte."""
    count = CHECKPOINT_ITEMS_MAX + 1
    name = bytes([0xA0 + len(field)]) + field.encode()
    payload = b"\x82\xa7episode\x00" + name + b"\xdd" + count.to_bytes(4, "big") + b"\x80" * count
    with pytest.raises(BadPayload, match="length <= 32768"):
        decode_event("Checkpoint", payload)

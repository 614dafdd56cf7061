"""A checkpoint restores the whole deterministic state, or reports why not."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import fields, replace

from ebbtide.actors.episode import EpisodeState
from ebbtide.actors.hook import HOOK, PodState
from ebbtide.actors.system import (
    ACTOR_TYPE_BY_NAME,
    SYSTEM,
    Slot,
    System,
    changed_digests,
    differing_field,
    field_tag,
    mark_recorded,
    restore,
    state_digest,
    take_checkpoint,
)
from ebbtide.events.base import ITEMS_MAX, ActorState, Record, StatesDigest
from ebbtide.events.codec import BadPayload, decode_event
from ebbtide.events.decisions import PodsEnded, WaveEnded
from tests.replay import shutdown
from tests.scripts.bench import Bench
from tests.scripts.verbs import benches

SCRIPT = """
shutdown poweroff total=30s critical=10s
  web p=0 grace=20 app[exec] log*
  dns p=2000000000 grace=30
fail HookActor:web HurryRequested
hurry web
"""


def bench() -> Bench:
    (made,) = benches(SCRIPT)
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
    # The bench encodes and decodes each step's state.
    (made,) = benches(script)
    hook = made.system.slots[("HookActor", "web")]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(hook.state), type=type(hook.state)) == hook.state
    # It lasts as long as its pod may, or not at all.
    assert made.system.next_deadline_ns() is not None


@pytest.mark.parametrize(
    "actor, field, entry", [("FallbackActor", "pods", b"\xa1a\x80"), ("NodeStatusActor", "running", b"\xa1a")]
)
def test_a_state_of_too_many_entries_is_not_built(actor: str, field: str, entry: bytes) -> None:
    """Each of a million entries would take a hundred bytes: the count is refused first."""
    count = (ITEMS_MAX + 1).to_bytes(4, "big")
    head = {"pods": b"\xdf", "running": b"\xdd"}[field]
    name = bytes([0xA0 + len(field)]) + field.encode()
    state = msgspec.Raw(b"\x81" + name + head + count + entry * (ITEMS_MAX + 1))
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
    count = ITEMS_MAX + 1
    name = bytes([0xA0 + len(field)]) + field.encode()
    payload = b"\x82\xa7episode\x00" + name + b"\xdd" + count.to_bytes(4, "big") + b"\x80" * count
    with pytest.raises(BadPayload, match="length <= 32768"):
        decode_event("Checkpoint", payload)


# --- digests


def digests(records: list[Record]) -> list[Record]:
    return [record for record in records if isinstance(record.event, StatesDigest)]


def test_every_field_has_a_tag_of_its_own() -> None:
    """Two fields of one state with the same tag could be taken for each other: rename the newer one."""
    for kind in ACTOR_TYPE_BY_NAME.values():
        tags = [field_tag(field.name) for field in fields(kind.state)]
        assert len(dict.fromkeys(tags)) == len(tags), kind.name


def test_only_fields_that_changed_are_digested() -> None:
    """Four bytes each, so that a field that comes later, and stays at its default, changes no old digest."""
    assert state_digest(PodState(), PodState()) == b""
    assert len(state_digest(PodState(wave=3), PodState())) == 4
    assert len(state_digest(PodState(wave=3, begun_ns=1), PodState(wave=3))) == 4
    assert len(state_digest(PodState(), PodState(wave=3))) == 4


def test_an_equal_value_is_no_change_whichever_object_it_is() -> None:
    """A restored state is made of other objects than the one that was put away."""
    big = 10**18
    assert state_digest(PodState(begun_ns=big), PodState(begun_ns=int(str(big)))) == b""
    assert state_digest(EpisodeState(pods={}, waves=()), EpisodeState()) == b""


def test_the_first_differing_field_is_named() -> None:
    """In the order of the state; also where the field changed on one side only."""
    fresh = PodState()
    kept, made = PodState(wave=1, begun_ns=5, over=True), PodState(wave=1, begun_ns=6)
    assert differing_field(PodState, state_digest(kept, fresh), state_digest(made, fresh)) == "begun_ns"
    assert differing_field(PodState, b"", state_digest(PodState(over=True), fresh)) == "over"
    assert differing_field(PodState, state_digest(PodState(over=True), fresh), b"") == "over"
    assert differing_field(PodState, b"", b"") == ""


def test_only_what_changed_and_came_to_rest_is_digested() -> None:
    """A pod on its way down waits for its end, or for the end of all waiting."""
    over, begun, idle = (Slot(kind, str(at), at) for at, kind in enumerate([HOOK] * 3))
    mark_recorded((over, begun, idle))
    over.state, begun.state = PodState(begun_ns=1, over=True), PodState(begun_ns=1)
    assert list(changed_digests((over, begun, idle), at_last=False)) == [over.label]
    assert list(changed_digests((over, begun, idle), at_last=True)) == [begun.label]
    assert changed_digests((over, begun, idle), at_last=True) == {}


def test_each_waves_end_ends_its_step_with_a_digest() -> None:
    """It answers the decision that ended the wave, and is the last record of the step."""
    records = shutdown.write().records
    found = digests(records)
    ends = [record for record in records if isinstance(record.event, WaveEnded | PodsEnded)]
    assert len(found) == len([end for end in ends if isinstance(end.event, WaveEnded)]) == 4 - 1
    for record in found:
        assert (record.actor, record.last) == (SYSTEM, True)
        assert record.cause in [end.seq for end in ends]
        assert record.episode > 0


def test_every_pod_is_digested_once_it_is_over() -> None:
    """Between them the digests of a shutdown cover all of its pods and waves."""
    covered = {label for record in digests(shutdown.write().records) for label in record.event.actors}  # type: ignore[attr-defined]
    assert {f"HookActor:{pod.uid}" for pod in shutdown.pods()} <= covered
    assert {"WaveActor:0", "WaveActor:1", "WaveActor:2", "EpisodeActor"} <= covered


def test_a_checkpoint_starts_the_digests_anew() -> None:
    """A reader that begins at the checkpoint must expect the same bytes as one that has read all."""
    system = System()
    system.slots[("EpisodeActor", "")].state = replace(EpisodeState(), wave=2)
    twin = restore(take_checkpoint(system), system.next_seq)
    assert (
        changed_digests(system.slots.values(), at_last=True)
        == changed_digests(twin.slots.values(), at_last=True)
        == {}
    )

"""The digests at a wave's end: the changes in a few bytes, and the differing field's name."""

from __future__ import annotations

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
from ebbtide.events.base import Record, StatesDigest
from ebbtide.events.decisions import PodsEnded, WaveEnded
from tests.replay import shutdown


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

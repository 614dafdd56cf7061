"""A roll of pods: members and ended ones."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ebbtide.actors.wave import PodChecklist


@given(st.lists(st.text(max_size=3), unique=True, max_size=12), st.data())
def test_missing_and_ended_make_up_the_roll(uids: list[str], data: st.DataObject) -> None:
    """In any order; the open ones keep their order of arrival."""
    roll = PodChecklist.of(uids)
    marked = data.draw(st.lists(st.sampled_from(uids), unique=True) if uids else st.just([]))
    for uid in marked:
        roll = roll.mark(uid)
    left = [uid for uid in uids if uid not in marked]
    assert list(roll.missing()) == left
    assert roll.open_pods == len(left)
    assert all(roll.is_open(uid) == (uid in left) for uid in uids)


def test_joining_comes_last_and_is_open() -> None:
    roll = PodChecklist.of(["a", "b"]).mark("a").join("c")
    assert list(roll.missing()) == ["b", "c"]
    assert not roll.is_open("nobody")


def test_a_pod_that_has_begun_again_is_waited_for_again() -> None:
    """In its own place, repeatedly; other pods are unaffected."""
    roll = PodChecklist.of(["a", "b"]).mark("a").mark("b")
    for _ in range(2):
        roll = roll.join("a")
        assert list(roll.missing()) == ["a"]
        roll = roll.mark("a")
    assert roll.join("c").open_pods == 1

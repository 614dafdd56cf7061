"""A seed names the same world on every machine: the generator's numbers are fixed here."""

from __future__ import annotations

from ebbtide.replay.sim.scenario import Draws, mix


def test_sequence_is_the_published_one() -> None:
    """SplitMix64 from seed 1234567 gives the numbers of its reference implementation."""
    draws = Draws(1234567)
    assert [draws.bits() for _ in range(3)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


def test_fork_does_not_depend_on_draws() -> None:
    """A named stream is the same whether or not its parent was drawn from."""
    fresh, used = Draws(7), Draws(7)
    used.bits()
    assert fresh.fork("disk").bits() == used.fork("disk").bits()
    assert fresh.fork("disk").bits() != fresh.fork("pods").bits()


def test_ranges() -> None:
    """Every draw stays in its range, and every value of a small range comes."""
    draws = Draws(mix(3))
    assert {draws.between(2, 4) for _ in range(100)} == {2, 3, 4}
    assert {draws.weighted((1, "a"), (0, "b"), (1, "c")) for _ in range(100)} == {"a", "c"}


def test_shuffle_keeps_everything() -> None:
    """A shuffle is a permutation, and the same one for the same seed."""
    first, second = list(range(20)), list(range(20))
    Draws(5).shuffle(first)
    Draws(5).shuffle(second)
    assert first == second != sorted(first) == list(range(20))

"""A seed gives the same world on every machine: fixed generator numbers."""

from __future__ import annotations

from ebbtide.replay.sim.scenario import Draws


def test_sequence_is_the_published_one() -> None:
    """SplitMix64 from seed 1234567 equals its reference implementation."""
    draws = Draws(1234567)
    assert [draws.bits() for _ in range(3)] == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_fork_does_not_depend_on_draws() -> None:
    """A named stream does not depend on its parent's draws."""
    fresh, used = Draws(7), Draws(7)
    used.bits()
    assert fresh.fork("disk").bits() == used.fork("disk").bits()
    assert fresh.fork("disk").bits() != fresh.fork("pods").bits()

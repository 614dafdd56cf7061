"""The draws of `replay.virtual.draws`, and the one that only Trio's scheduler asks for."""

from __future__ import annotations

from replay.virtual import draws
from replay.virtual.draws import mix

__all__ = ["Draws", "mix"]


class Draws(draws.Draws):
    """One stream of draws, which can also give a fraction."""

    def random(self) -> float:
        """0.0 up to, but without, 1.0; only for Trio's scheduler."""
        return (self.bits() >> 11) / (1 << 53)

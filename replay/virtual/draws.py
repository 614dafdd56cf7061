"""Draws: integers from a generator of our own, so that a seed means the same world everywhere.

The standard library promises no sequence across its versions, and its helpers go through floats. This is
SplitMix64 (Steele, Lea and Flood, 2014): a counter in steps of the golden ratio, then a mixing function. Its
state is 64 bits, so a seed is one integer, and a stream is forked by mixing a name into it.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from typing import Self, TypeVar

T = TypeVar("T")

MASK = (1 << 64) - 1
GOLDEN_GAMMA = 0x9E3779B97F4A7C15
_MIX_A = 0xBF58476D1CE4E5B9
_MIX_B = 0x94D049BB133111EB

#: FNV-1a, to turn a stream's name into 64 bits.
_FNV_BASIS = 0xCBF29CE484222325
_FNV_PRIME = 0x100000001B3


def mix(value: int) -> int:
    """SplitMix64's finalizer: 64 bits in, 64 well-stirred bits out."""
    value = ((value ^ (value >> 30)) * _MIX_A) & MASK
    value = ((value ^ (value >> 27)) * _MIX_B) & MASK
    return value ^ (value >> 31)


def name_bits(name: str) -> int:
    """A name as 64 bits."""
    value = _FNV_BASIS
    for byte in name.encode():
        value = ((value ^ byte) * _FNV_PRIME) & MASK
    return value


class Draws:
    """One stream of draws. ``fork`` gives another one that does not disturb it."""

    def __init__(self, seed: int) -> None:
        self._seed = seed & MASK
        self._state = self._seed

    def fork(self, name: str) -> Self:
        """The stream of that name: the same, however much was drawn here before."""
        return type(self)(mix(self._seed ^ name_bits(name)))

    def bits(self) -> int:
        """64 random bits."""
        self._state = (self._state + GOLDEN_GAMMA) & MASK
        return mix(self._state)

    def below(self, bound: int) -> int:
        """0 to ``bound`` - 1. The bias of one multiplication is under bound / 2**64: nothing, here."""
        return (self.bits() * bound) >> 64

    def between(self, low: int, high: int) -> int:
        """``low`` to ``high``, both included."""
        return low + self.below(high - low + 1)

    def chance(self, times: int, of: int) -> bool:
        """True ``times`` times of ``of``."""
        return self.below(of) < times

    def pick(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

    def weighted(self, *table: tuple[int, T]) -> T:
        """One of the values; the number before it is its weight."""
        at = self.below(sum(weight for weight, _ in table))
        for weight, value in table:
            at -= weight
            if at < 0:
                return value
        raise AssertionError("the weights add up to less than their sum")

    def shuffle(self, items: MutableSequence[T]) -> None:
        """Fisher and Yates, in place. Trio's scheduler calls this one too, in the tests' world."""
        for at in range(len(items) - 1, 0, -1):
            other = self.below(at + 1)
            items[at], items[other] = items[other], items[at]

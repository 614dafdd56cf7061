"""How long to wait before the same bytes are sent again."""

from __future__ import annotations

import random
from collections.abc import Callable

from ebbtide.events.base import NS_PER_SECOND

BACKOFF_FIRST_NS = NS_PER_SECOND // 2
BACKOFF_FACTOR = 2
BACKOFF_NS_MAX = 30 * NS_PER_SECOND


class Backoff:
    """Counts failures in a row. ``draw`` gives a number from 0 to 1."""

    def __init__(self, draw: Callable[[], float] = random.random) -> None:
        self._draw = draw
        self.failures = 0

    def next_ns(self, after_ns: int | None = None) -> int:
        """The pause after one more failure: between half and all of the step, but never less than the server
        asked for.

        The jitter keeps a thousand nodes that lost their collector together from coming back together.
        """
        # The exponent is bounded by itself: two to the power of a week's failures takes long to compute.
        step_ns = min(BACKOFF_FIRST_NS * BACKOFF_FACTOR ** min(self.failures, 16), BACKOFF_NS_MAX)
        self.failures += 1
        pause_ns = int(step_ns * (1 + self._draw()) / 2)
        return max(pause_ns, after_ns or 0)

    def reset(self) -> None:
        self.failures = 0

"""What the log remembers from one line to the next."""

from __future__ import annotations

from collections.abc import Mapping

from events.record import Stamp
from events.words import Names
from events.words.base import elapsed

#: An sd-daemon(3) level and a text.
Line = tuple[int, str]


class Lines:
    """``names``, and when the shutdown began; one may go on from an earlier process."""

    def __init__(self, began_ns: int = 0, labels: Mapping[str, str] | None = None) -> None:
        self.names = Names(labels)
        self.began_ns = began_ns

    def since(self, at: Stamp) -> str:
        return elapsed(at.mono_ns - self.began_ns)

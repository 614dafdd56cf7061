"""How well the record supports what a new run says of each pod.

``observed``: the record shows it. ``bound``: the record gives a limit ("it needed more than 20 s"), and the
run went beyond it. ``assumed``: the record says nothing of it. A pod has the weakest of what was used for it,
in either of the two runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

Level = Literal["observed", "bound", "assumed"]

LEVELS: tuple[Level, ...] = ("observed", "bound", "assumed")


class Support(NamedTuple):
    """``why`` is a sentence for people; empty when observed."""

    level: Level = "observed"
    why: str = ""


class Evidence:
    """By pod; who is not in it is observed."""

    def __init__(self) -> None:
        self._found: dict[str, Support] = {}

    def weaken(self, uid: str, level: Level, why: str) -> None:
        """The first reason of a level stays."""
        known = self.of(uid)
        if LEVELS.index(level) > LEVELS.index(known.level):
            self._found[uid] = Support(level, why)

    def of(self, uid: str) -> Support:
        return self._found.get(uid, Support())


def weakest(found: Iterable[Support]) -> Support:
    return max(found, key=lambda each: LEVELS.index(each.level), default=Support())

"""Who brings a lost node's work back: nobody, a person by hand, or the controller."""

from __future__ import annotations

from typing import Protocol

from tests.outage_bed.stage import Stage


class Actor(Protocol):
    name: str

    async def begin(self, stage: Stage) -> None:
        """Before the cut."""

    async def cure(self, stage: Stage) -> None:
        """Returns when the node is out of service."""

    async def explains(self, stage: Stage, name: str) -> None:
        """What has that name is waited for, by its own account. Raises AssertionError."""

    async def clear(self, stage: Stage) -> None:
        """The node is back, and Ready: returns when it is in service."""

    async def end(self, stage: Stage) -> list[str]:
        """What did not hold of what is on record, a line each."""


class Hand:
    """A person who knows the moment at which the node is NotReady, and loses no time."""

    name = "hand"

    def __init__(self, effect: str = "NoExecute") -> None:
        self.effect = effect

    async def begin(self, stage: Stage) -> None:
        """A person needs no preparation."""

    async def cure(self, stage: Stage) -> None:
        await stage.not_ready()
        await stage.taint(self.effect)

    async def explains(self, stage: Stage, name: str) -> None:
        """A person writes nothing down."""

    async def clear(self, stage: Stage) -> None:
        await stage.is_back()
        await stage.taint("")

    async def end(self, stage: Stage) -> list[str]:
        return []

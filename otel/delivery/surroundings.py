"""What an exporter needs of the process that it runs in: somebody to tell, and where to wait for a disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar, TypeVarTuple, Unpack

import trio

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Voice(Protocol):
    """Whom the exporter tells what happened; must not block."""

    def log(self, level: int, text: str) -> None: ...

    def well(self, reason: str) -> None:
        """The back end answers, or why it does not: after its first answer, and whenever that changes."""


async def in_thread(work: Callable[[Unpack[Ts]], T], *args: *Ts) -> T:
    """A disk that hangs holds nobody who asks how far we are."""
    return await trio.to_thread.run_sync(work, *args, abandon_on_cancel=True)


def innermost(error: BaseException) -> BaseException:
    """The first error out of the groups of nurseries."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error

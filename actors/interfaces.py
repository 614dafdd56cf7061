"""The border between the core and its edges.

An effect is the work behind one order: a plain function (done when it returns: a signal) or a coroutine
function (a hook). It reports its findings through the `Outlet` *before* it returns an `Ending`. An effect
that raises is a bug: the runner ends its order as failed.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, Protocol

from ebbtide.events.base import Fact, Order
from ebbtide.events.facts import Result
from ebbtide.events.values import ShutdownKind


class Ending(NamedTuple):
    """Becomes the order's one `OrderEnded`."""

    result: Result = "done"
    reason: str = ""
    exit_code: int | None = None


# Runtimes, servers and libraries quote their input: a pod's arguments, a header, a token. So records get only
# known words of other programs.


def known_text(said: str, known: tuple[str, ...]) -> str:
    return ", ".join(each for each in known if each in said)


def error_text(error: BaseException) -> str:
    """One line for the record, about a group's first error. The text of our own errors, an import's and the
    system's; of any other error the type and the place.
    """
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if type(error).__module__.startswith("ebbtide.") or isinstance(error, ImportError):
        return " ".join(str(error).split()) or type(error).__name__
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    where = "" if last is None else f" at {last.tb_frame.f_code.co_name}, line {last.tb_lineno}"
    number = error.errno if isinstance(error, OSError) else None
    what = f": {os.strerror(number)}" if number else ""
    return f"{type(error).__name__}{what}{where}"


class Outlet(Protocol):
    async def put(self, *facts: Fact) -> None:
        """Admits them next to each other, in this order. Waits while the inbox's lane is full."""


class Clock(Protocol):
    def mono_ns(self) -> int: ...

    def wall_ns(self) -> int: ...


#: An order's key to its ``traceparent`` (W3C Trace Context); empty: none.
TraceContext = Callable[[str], str]
#: A line for the operator, with its level.
Tell = Callable[[int, str], None]
#: Levels as in sd-daemon(3).
WARNING, NOTICE = 4, 5


class StartState(NamedTuple):
    """logind's state before the daemon has a loop, for `DaemonStarted`. ``preparing`` None: no answer."""

    preparing: bool | None = None
    kind: ShutdownKind = "unknown"
    grant_ns: int = 0


Effect = Callable[[Any, Outlet], "Ending | Awaitable[Ending]"]


class Edge(Protocol):
    """A subclass omits the methods that it does not need."""

    effects: Mapping[type[Order], Effect]

    async def run(self, outlet: Outlet) -> None:
        """Reports facts until cancelled. Cancelling ends no pod's process."""
        return

    def prewarm(self) -> None:
        """Armed: import and open what a shutdown needs, while the disk answers. May be called again."""
        return

    def detach(self) -> None:
        """From now on a cancellation ends no process and releases no lock."""
        return

    async def adopt(self, order: Order, outlet: Outlet) -> Ending | None:
        """After a restart, follow an open order's effect to its end. None: unknown; the core repeats some
        orders.
        """
        return None

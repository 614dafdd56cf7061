"""logind on a laptop (`actors.simulated_logind`): without bus, root, or a power-off."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import trio

from ebbtide.actors.interfaces import Edge, Effect, Ending, Outlet, StartState
from ebbtide.actors.simulated_logind import InProgress, ShutdownSignal, SimulatedLogind
from ebbtide.events import decisions as d
from ebbtide.events.base import NS_PER_SECOND, Order
from ebbtide.events.facts import PrepareForShutdown
from ebbtide.events.values import ShutdownKind

EMBEDDED_OWNER = "embedded"
GRANT_SECONDS_DEFAULT = 5
HOLDER = 1


class NurseryTimer:
    """`actors.simulated_logind.Timer` in a nursery."""

    def __init__(self, nursery: trio.Nursery, now_ns: Callable[[], int]) -> None:
        self._nursery, self._now_ns = nursery, now_ns

    @property
    def now_ns(self) -> int:
        return self._now_ns()

    def later(self, after_ns: int, do: Callable[[], object]) -> Callable[[], object]:
        scope = trio.CancelScope()

        async def wait() -> None:
            with scope:
                await trio.sleep(max(0, after_ns) / NS_PER_SECOND)
                do()

        self._nursery.start_soon(wait)
        return scope.cancel


class Down(NamedTuple):
    """``released``, or ``timed_out`` with the lock still held."""

    kind: ShutdownKind
    timed_out: bool


class EmbeddedLogindEdge(Edge):
    """``grant_seconds``: the limit until a drop-in raises it."""

    def __init__(self, grant_seconds: int = GRANT_SECONDS_DEFAULT) -> None:
        self._commands, self._inbox = trio.open_memory_channel[ShutdownKind | None](1)
        # One queue: the machine is never down before the signal is admitted.
        self._events, self._outbox = trio.open_memory_channel[PrepareForShutdown | Down](math.inf)
        self._timer: NurseryTimer | None = None
        self._logind = SimulatedLogind(
            lambda what, **_: None,
            self,
            lambda kind: self._events.send_nowait(Down(kind, timed_out=self.lock_held)),
            grant_seconds * NS_PER_SECOND,
        )
        self._logind.owner = EMBEDDED_OWNER
        self._logind.subscribers[HOLDER] = self._hear
        #: Set when the machine would go down; see `down`.
        self.released = trio.Event()
        self.down: Down | None = None
        self.effects: Mapping[type[Order], Effect] = {
            d.Arm: self._arm,
            d.Disarm: self._give_back,
            d.ReleaseLock: self._give_back,
            d.WriteDropIn: lambda order, outlet: self._change(order.seconds * NS_PER_SECOND, outlet),
            d.RemoveDropIn: lambda order, outlet: self._change(None, outlet),
        }

    @property
    def lock_held(self) -> bool:
        return HOLDER in self._logind.holders

    async def begin(self, kind: ShutdownKind = "poweroff") -> None:
        """As ``systemctl KIND``. No second one begins while one runs."""
        await self._commands.send(kind)

    async def cancel(self) -> None:
        """No-op without a shutdown."""
        await self._commands.send(None)

    async def read_start_state(self) -> StartState:
        return StartState(preparing=False, grant_ns=self._logind.grant_ns)

    async def run(self, outlet: Outlet) -> None:
        async with trio.open_nursery() as nursery:
            self._timer = NurseryTimer(nursery, lambda: round(trio.current_time() * NS_PER_SECOND))
            nursery.start_soon(self._report_events, outlet)
            async for kind in self._inbox:
                if kind is None:
                    self._logind.cancel()
                else:
                    self._logind.shutdown(kind)

    async def _report_events(self, outlet: Outlet) -> None:
        async for event in self._outbox:
            if isinstance(event, Down):
                self.down = event
                self.released.set()
            else:
                await outlet.put(event)

    @property
    def now_ns(self) -> int:
        return self._running.now_ns

    def later(self, after_ns: int, do: Callable[[], object]) -> Callable[[], object]:
        return self._running.later(after_ns, do)

    @property
    def _running(self) -> NurseryTimer:
        assert self._timer is not None, "a shutdown is carried out by `run`"
        return self._timer

    def _hear(self, signal: object) -> None:
        if isinstance(signal, ShutdownSignal):
            self._events.send_nowait(self._logind.signal_fact(signal, HOLDER))

    async def _arm(self, order: d.Arm, outlet: Outlet) -> Ending:
        ending = Ending()
        try:
            if order.lock and not self.lock_held:
                self._logind.inhibit(HOLDER)
        except InProgress as error:
            ending = Ending("failed", str(error))
        await outlet.put(*self._logind.facts())
        return ending

    def _give_back(self, order: d.Disarm | d.ReleaseLock, outlet: Outlet) -> Ending:
        self._logind.close(HOLDER)
        return Ending()

    async def _change(self, ours_ns: int | None, outlet: Outlet) -> Ending:
        try:
            self._logind.set_drop_in(ours_ns)
        except InProgress as error:
            return Ending("failed", str(error))
        self._logind.reload()
        await outlet.put(*self._logind.facts())
        return Ending()

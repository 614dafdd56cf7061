"""The awake part of the edge cannot be imported, or fails: the daemon lives on, and says so."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import trio
import trio.testing

from ebbtide.actors.edges.cri.edge import AWAKE, CriEdge
from ebbtide.actors.interfaces import Ending
from ebbtide.events.base import Order
from ebbtide.events.decisions import KillContainer
from ebbtide.events.facts import RuntimeRead
from tests.actors.edges.process.process_bed import Outbox

KILL = KillContainer(key="k", uid="u", container="main")


class Awake:
    """In the place of `actors.edges.cri.runtime.Runtime`: fails when it is told to; its orders never end."""

    def __init__(self, *arguments: Any) -> None:
        self.end = trio.Event()

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery():
            Awake.last = self
            task_status.started()
            await self.end.wait()
            raise KeyError("what nobody\nthought of")

    async def carry_out(self, order: Order, outlet: Outbox) -> Ending:
        await trio.sleep_forever()
        raise AssertionError("it sleeps for ever")

    last: Awake


class Rig:
    """An edge that runs and is armed; ``said`` is what it tells an operator."""

    def __init__(self, folder: Path) -> None:
        self.outbox, self.said = Outbox(), list[str]()
        tell = lambda level, line: self.said.append(line)  # noqa: E731 - one line of a test
        self.edge = CriEdge("unix:///nowhere", folder, tell=tell)

    async def do(self, order: Order) -> Ending:
        ending = self.edge.effects[type(order)](order, self.outbox)
        assert not isinstance(ending, Ending)
        with trio.fail_after(20):
            return await ending

    def reads(self) -> list[bool]:
        return [fact.reachable for fact in self.outbox.of(RuntimeRead)]


@contextlib.asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Rig]:
    rig = Rig(folder)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.edge.run, rig.outbox)
        rig.edge.prewarm()
        yield rig
        nursery.cancel_scope.cancel()


async def test_what_cannot_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gRPC that cannot be loaded: the runtime is away, orders fail with the reason, and when the packages
    have come the edge works without a start of the daemon.
    """
    monkeypatch.setattr("ebbtide.actors.edges.cri.edge.RETRY_SECONDS", (0.05,))
    for name in [
        name for name in sys.modules if name == AWAKE or name.startswith("ebbtide.actors.edges.cri.client")
    ]:
        monkeypatch.delitem(sys.modules, name)
    with monkeypatch.context() as broken:
        broken.setitem(sys.modules, "grpc", None)
        async with running(tmp_path) as rig:
            (read,) = await rig.outbox.wait_for(RuntimeRead)
            assert not read.reachable
            assert read.error.startswith("the runtime's client does not work: import of grpc")
            assert await rig.do(KILL) == Ending("failed", read.error)
            await trio.sleep(0.2)
            assert rig.reads() == [False]
            assert rig.said == [f"container runtime: {read.error}; no pod can be stopped over CRI"]
            broken.undo()
            working = ModuleType(AWAKE)
            working.Runtime = Awake  # type: ignore[attr-defined]
            monkeypatch.setitem(sys.modules, AWAKE, working)
            with trio.move_on_after(1) as waited:
                while (await _ending_of(rig)) is not None:
                    await trio.sleep(0.05)
            assert not waited.cancelled_caught


async def _ending_of(rig: Rig) -> Ending | None:
    """None: the order is under way."""
    with trio.move_on_after(0.05):
        return await rig.do(KILL)
    return None


async def test_what_fails_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An order that is open ends with the reason, and so does one before the next attempt; each end of a
    runtime's part is a fact.
    """
    monkeypatch.setattr("ebbtide.actors.edges.cri.edge.RETRY_SECONDS", (0.3,))
    working = ModuleType(AWAKE)
    working.Runtime = Awake  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, AWAKE, working)
    async with running(tmp_path) as rig:
        for count in (1, 2):
            endings = list[Ending]()
            while await _ending_of(rig) is not None:
                await trio.sleep(0.02)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_keep, rig, endings)
                await trio.testing.wait_all_tasks_blocked(0.01)
                Awake.last.end.set()
            reason = rig.outbox.of(RuntimeRead)[0].error
            assert re.fullmatch(r"the runtime's client does not work: KeyError at run, line \d+", reason)
            assert endings == [Ending("failed", reason)]
            assert await rig.do(KILL) == Ending("failed", reason)
            assert rig.outbox.of(RuntimeRead) == [RuntimeRead(reachable=False, error=reason)] * count
            assert rig.said == [f"container runtime: {reason}; no pod can be stopped over CRI"] * count


async def _keep(rig: Rig, endings: list[Ending]) -> None:
    endings.append(await rig.do(KILL))

"""The edge without its awake part, without a socket, or with one that comes later: the daemon survives."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from ebbtide.actors.edges.cri.cri_edge import AWAKE, RETRY_SECONDS, CriEdge
from ebbtide.actors.interfaces import Ending, error_text
from ebbtide.config import load
from ebbtide.events.base import Order
from ebbtide.events.decisions import KillContainer
from ebbtide.events.facts import RuntimeRead
from ebbtide.modes import edges_of_mode, find_node_parts
from ebbtide.options import RunOptions
from tests.actors.edges.process.process_bed import Outbox

KILL = KillContainer(key="k", uid="u", container="main")


class Awake:
    """Replaces `cri_runtime.Runtime`: fails on request; its orders never end."""

    news: trio.MemorySendChannel[str]
    last: Awake

    def __init__(self, *arguments: Any) -> None:
        self.end = trio.Event()

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery():
            Awake.last = self
            task_status.started()
            Awake.news.send_nowait("runs")
            await self.end.wait()
            raise KeyError("what nobody\nthought of")

    async def carry_out(self, order: Order, outlet: Outbox) -> Ending:
        Awake.news.send_nowait("order")
        await trio.sleep_forever()
        raise AssertionError("it sleeps for ever")


class Rig:
    """A running, armed edge. ``said``: operator messages; ``news``: attempts."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.outbox, self.said = Outbox(), list[str]()
        tell = lambda level, line: self.said.append(line)  # noqa: E731 - one line of a test
        self.edge = CriEdge("unix:///nowhere", folder, tell=tell)
        Awake.news, self.news = trio.open_memory_channel[str](10)
        tries = partial(Awake.news.send_nowait, "tries")
        monkeypatch.setattr("ebbtide.actors.edges.cri.cri_edge.invalidate_caches", tries)
        monkeypatch.setattr("ebbtide.actors.edges.cri.cri_edge.error_text", self._text)
        self.working = ModuleType(AWAKE)
        self.working.Runtime = Awake  # type: ignore[attr-defined]

    async def do(self, order: Order) -> Ending:
        ending = self.edge.effects[type(order)](order, self.outbox)
        assert not isinstance(ending, Ending)
        return await ending

    def _text(self, error: BaseException) -> str:
        Awake.news.send_nowait("fails")
        return error_text(error)

    async def hears(self, *news: str) -> None:
        for each in news:
            assert await self.news.receive() == each
        await wait_all_tasks_blocked()


@contextlib.asynccontextmanager
async def running(rig: Rig) -> AsyncIterator[trio.Nursery]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.edge.run, rig.outbox)
        rig.edge.prewarm()
        yield nursery
        nursery.cancel_scope.cancel()


async def test_what_cannot_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mock_clock: MockClock
) -> None:
    """Without gRPC the runtime is away and orders fail with the reason. After the packages are installed, the
    edge works without a restart.
    """
    for name in [
        name
        for name in sys.modules
        if name == AWAKE or name.startswith("ebbtide.actors.edges.cri.cri_client")
    ]:
        monkeypatch.delitem(sys.modules, name)
    rig = Rig(tmp_path, monkeypatch)
    with monkeypatch.context() as broken:
        broken.setitem(sys.modules, "grpc", None)
        async with running(rig) as nursery:
            (read,) = await rig.outbox.wait_for(RuntimeRead)
            await rig.hears("tries", "fails")
            assert not read.reachable
            assert read.error.startswith("the runtime's client does not work: import of grpc")
            assert await rig.do(KILL) == Ending("failed", read.error)
            mock_clock.jump(RETRY_SECONDS)
            await rig.hears("tries", "fails")
            broken.undo()
            monkeypatch.setitem(sys.modules, AWAKE, rig.working)
            mock_clock.jump(RETRY_SECONDS)
            await rig.hears("tries", "runs")
            assert rig.outbox.facts == [read]
            assert rig.said == [f"container runtime: {read.error}; no pod can be stopped over CRI"]
            nursery.start_soon(rig.do, KILL)
            await rig.hears("order")


async def test_what_fails_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mock_clock: MockClock
) -> None:
    """Open orders, and orders before the next attempt, end with the reason. Each failure is a fact."""
    rig = Rig(tmp_path, monkeypatch)
    monkeypatch.setitem(sys.modules, AWAKE, rig.working)
    endings: list[Ending] = []

    async def keep() -> None:
        endings.append(await rig.do(KILL))

    async with running(rig) as nursery:
        for count in (1, 2):
            await rig.hears("tries", "runs")
            nursery.start_soon(keep)
            await rig.hears("order")
            Awake.last.end.set()
            await rig.hears("fails")
            reason = rig.outbox.of(RuntimeRead)[0].error
            assert re.fullmatch(r"the runtime's client does not work: KeyError at run, line \d+", reason)
            assert endings == [Ending("failed", reason)] * count
            assert await rig.do(KILL) == Ending("failed", reason)
            assert rig.outbox.of(RuntimeRead) == [RuntimeRead(reachable=False, error=reason)] * count
            assert rig.said == [f"container runtime: {reason}; no pod can be stopped over CRI"] * count
            mock_clock.jump(RETRY_SECONDS)


def test_a_runtime_that_is_named_may_come_later(tmp_path: Path) -> None:
    """A slow runtime must not leave a node unprotected."""
    options, loaded = RunOptions(runtime=tmp_path, mode="cri", cri=tmp_path / "later.sock"), load(())
    parts = find_node_parts(options, loaded.config.node)
    assert edges_of_mode(options, loaded, parts, lambda level, line: None).runtime.active() == []

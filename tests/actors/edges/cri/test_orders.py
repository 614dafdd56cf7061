"""Container orders with the mock clock: each container gets one stop signal, and an unknown outcome is
recorded as unknown.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import trio
from google.protobuf.message import Message
from msgspec.structs import replace

from ebbtide.actors.edges.cri import api_pb2 as api
from ebbtide.actors.edges.cri import cri_runtime
from ebbtide.actors.edges.cri.cri_client import (
    ON_RECORD_AS_AWAY,
    Lost,
    RuntimeReach,
    RuntimeRefused,
    method_of,
)
from ebbtide.actors.edges.cri.cri_pods import ContainerEntry, InventoryContainer, PodEntry, PodTable
from ebbtide.actors.edges.cri.cri_runtime import NOT_CONFIRMED, WHETHER_IT_RAN, ContainerEnds, ContainerOrders
from ebbtide.actors.edges.linux import proc
from ebbtide.actors.edges.linux.processes import ExitStatus
from ebbtide.actors.edges.pod_spec import ContainerSpec, ExecAction, HttpGetAction
from ebbtide.actors.interfaces import Ending
from ebbtide.events import bounds
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.decisions import KillContainer, RunHook, SendSignal
from ebbtide.events.units import bound_text
from tests.actors.edges.cri.conftest import kill, stop
from tests.actors.edges.process.process_bed import Outbox
from tests.actors.edges.process.test_hooks import serving
from tests.waiting import WATCHDOG_SECONDS

BOUNDS = bounds.Bounds()


class Runtime:
    """``says``: its answer to a stop; None means success. It may hang."""

    def __init__(self, says: Exception | None = None, *, hangs: bool = False, seconds: float = 0.01) -> None:
        self.says, self.hangs, self.seconds = says, hangs, seconds
        self.asked: list[str] = []

    async def call(self, request: Message, seconds: float, **more: Any) -> Any:
        name = method_of(request)
        self.asked.append(name)
        if self.hangs:
            await trio.sleep(seconds)
            raise Lost(f"{name}: no answer in {bound_text(seconds)}")
        if name == "StopContainer":
            await trio.sleep(self.seconds)
        if name != "Version" and self.says is not None:
            raise self.says
        return api.ExecSyncResponse(exit_code=3)

    repeat = call


class Rig:
    """One container, whose first process is real or elsewhere."""

    def __init__(self, runtime: Runtime, nursery: trio.Nursery, process: subprocess.Popen[bytes]) -> None:
        self.runtime, self.outbox, warm = runtime, Outbox(), trio.Event()
        self.table = table = PodTable()
        self.pod = table.pods["s"] = PodEntry("u", "ns", "p", "s", grace_seconds=30)
        self.entry = ContainerEntry(self.pod, "c", ContainerSpec(name="main", argv=(), stop_signal="SIGUSR1"))
        self.entry.pidfd = os.pidfd_open(process.pid)
        table.put(self.entry)
        client = cast(Any, runtime)
        self.reach = RuntimeReach(client, self.outbox, lambda level, line: None)
        self.reach.answering = True
        self.reach.known.set()
        warm.set()
        ends = ContainerEnds(client, table, nursery.start_soon, self.outbox, None)
        start, context = nursery.start_soon, lambda key: ""
        self.orders = ContainerOrders(client, self.reach, table, warm, start, context, ends.code_in_api)

    async def do(self, order: Any) -> Ending:
        return await self.orders.carry_out(order, self.outbox)

    async def hook(self, action: Any) -> Ending:
        self.entry.spec = replace(self.entry.spec, pre_stop=action)
        return await self.do(RunHook(key="h", uid="u", container="main", timeout_ns=20 * NS_PER_SECOND))


@asynccontextmanager
async def rig_of(
    runtime: Runtime, process: subprocess.Popen[bytes], *, elsewhere: bool = False
) -> AsyncIterator[Rig]:
    async with trio.open_nursery() as nursery:
        rig = Rig(runtime, nursery, process)
        if elsewhere:
            rig.entry.close()
        yield rig
        nursery.cancel_scope.cancel()
    rig.entry.finish(ExitStatus())


@pytest.mark.parametrize("runtime", [Runtime(), Runtime(hangs=True)], ids=["up", "hung"])
async def test_a_process_here_gets_its_images_signal(
    autojump_clock: trio.abc.Clock, process: subprocess.Popen[bytes], runtime: Runtime
) -> None:
    """The edge signals directly, whatever the runtime does."""
    async with rig_of(runtime, process) as rig:
        assert await rig.do(stop("u")) == Ending(reason="SIGUSR1 was sent, as its image asks")
        assert (trio.current_time(), runtime.asked, process.wait()) == (0, [], -signal.SIGUSR1)


@pytest.mark.parametrize(
    ("runtime", "ending"),
    [
        (Runtime(seconds=0.5), Ending()),
        (Runtime(seconds=30), Ending("timed-out", f"{NOT_CONFIRMED}: no answer in 2 s")),
        (Runtime(RuntimeRefused("no"), seconds=0.5), Ending("failed", "no")),
        (Runtime(Lost("Socket closed"), seconds=0.5), Ending("timed-out", f"{NOT_CONFIRMED}: Socket closed")),
        (Runtime(hangs=True), Ending("timed-out", f"{NOT_CONFIRMED}: no answer in 2 s")),
    ],
    ids=["ended", "goes on", "refused", "lost", "hung"],
)
async def test_a_process_elsewhere_is_stopped_by_the_runtime(
    autojump_clock: trio.abc.Clock, process: subprocess.Popen[bytes], runtime: Runtime, ending: Ending
) -> None:
    """Once: a second signal means "at once" to many programs."""
    async with rig_of(runtime, process, elsewhere=True) as rig:
        assert await rig.do(stop("u")) == ending
        assert trio.current_time() <= BOUNDS.stop_heard_seconds
        await trio.sleep(60)
        assert runtime.asked.count("StopContainer") == 1


@pytest.mark.parametrize("order", [stop("u"), kill("u")], ids=["stop", "kill"])
async def test_a_restarted_daemon_needs_no_runtime(
    process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, order: SendSignal | KillContainer
) -> None:
    """The runtime hangs since its start; only the former inventory names the container."""
    monkeypatch.setattr(bounds, "now", BOUNDS.widened(WATCHDOG_SECONDS))
    groups = {process.pid: f"0::/kubepods/cri-containerd-{'a' * 64}.scope\n"}
    monkeypatch.setattr(proc, "cgroups_of", lambda pid: groups.get(pid, "0::/\n"))
    async with rig_of(Runtime(hangs=True), process) as rig:
        rig.reach.answering = False
        rig.table.pods.clear()
        rig.table.restore([InventoryContainer(uid="u", container="main", id="a" * 64)])
        assert await rig.do(order) == Ending()
        number = signal.SIGKILL if isinstance(order, KillContainer) else signal.SIGTERM
        assert (rig.runtime.asked, process.wait()) == ([], -number)


@pytest.mark.parametrize("away", [False, True])
async def test_a_sigkill_without_an_answer(
    autojump_clock: trio.abc.Clock, process: subprocess.Popen[bytes], away: bool
) -> None:
    """The runtime may have it, unless none was sent."""
    async with rig_of(Runtime(hangs=True), process, elsewhere=True) as rig:
        rig.reach.answering = not away
        unanswered = Ending("timed-out", "StopContainer: no answer in 2 s")
        assert await rig.do(kill("u")) == (Ending("failed", ON_RECORD_AS_AWAY) if away else unanswered)


EXEC = ExecAction(argv=("bye",))


async def test_an_exec_hook(autojump_clock: trio.abc.Clock, process: subprocess.Popen[bytes]) -> None:
    """A runtime that is away starts no hook. A started hook is abandoned with it."""
    async with rig_of(Runtime(), process) as rig:
        assert await rig.hook(EXEC) == Ending("failed", "exit code 3", 3)
        rig.runtime.hangs = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.reach.doubt)
            assert await rig.hook(EXEC) == Ending("unknown", f"{WHETHER_IT_RAN}: {ON_RECORD_AS_AWAY}")
        assert await rig.hook(EXEC) == Ending("failed", f"it was not begun: {ON_RECORD_AS_AWAY}")
        assert rig.runtime.asked.count("ExecSync") == 2
    async with rig_of(Runtime(Lost("Socket closed")), process) as rig:
        assert await rig.hook(EXEC) == Ending("unknown", f"{WHETHER_IT_RAN}: Socket closed")


async def test_a_hook_of_a_pod_without_an_address(
    monkeypatch: pytest.MonkeyPatch, process: subprocess.Popen[bytes]
) -> None:
    """Its request may hold a secret: it goes to the node only where the pod shares the node's network."""
    monkeypatch.setattr(cri_runtime, "node_address", lambda: cri_runtime.LOOPBACK)
    async with rig_of(Runtime(), process) as rig, serving() as server:
        action = HttpGetAction(port=server.port, headers=(("Authorization", "secret"),))
        assert await rig.hook(action) == Ending("failed", "its address is not known")
        assert server.asked == []
        assert await rig.hook(replace(action, host=cri_runtime.LOOPBACK)) == Ending()
        rig.pod.host_network = True
        assert await rig.hook(action) == Ending()
        assert len(server.asked) == 2

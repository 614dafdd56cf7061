"""Stop signals: each container has one, from us or from its runtime, never both, and what is not known of one
is said.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from google.protobuf.message import Message

from ebbtide.actors.edges.cri import api_pb2 as api
from ebbtide.actors.edges.cri.cri_client import (
    CallFailed,
    Lost,
    RuntimeReach,
    RuntimeRefused,
    Unsent,
    method_of,
)
from ebbtide.actors.edges.cri.cri_pods import ContainerEntry, OperatorNotes, PodEntry
from ebbtide.actors.edges.cri.orders import (
    SENT_SECONDS,
    ContainerStops,
)
from ebbtide.actors.edges.linux.exits import ExitStatus
from ebbtide.actors.edges.pod_spec import ContainerSpec
from ebbtide.actors.interfaces import Ending
from ebbtide.events import bounds
from ebbtide.events.units import bound_text
from tests.actors.edges.process.process_bed import Outbox
from tests.waiting import WATCHDOG_SECONDS

BOUNDS = bounds.Bounds()

AWAY = Lost("the runtime is away for 500 ms")
DIRECT = "{} was sent to the first process: {}"
SAID = "container runtime: away; stop signals go to the containers' first processes"
NOT_KNOWN = "whether it was sent is not known: the runtime was given the stop"
POLL_SECONDS = 0.01


class Runtime:
    """Connected or not, reading or not; ``says`` is what it answers to one stop after the other, None an
    answer.
    """

    def __init__(
        self, *says: CallFailed | None, up: bool = True, hangs: bool = False, seconds: float = 0.01
    ) -> None:
        self.says, self.up, self.hangs, self.seconds = list(says), up, hangs, seconds
        self.asked = 0

    async def ready(self, seconds: float) -> None:
        for _ in range(round(seconds / POLL_SECONDS)):
            if self.up:
                return
            await trio.sleep(POLL_SECONDS)
        raise AWAY

    async def call(self, request: Message, seconds: float, **more: Any) -> Any:
        name = method_of(request)
        self.asked += name == "StopContainer"
        if self.hangs:
            await trio.sleep(seconds)
            raise Lost(f"{name}: no answer in {bound_text(seconds)}")
        if name == "Version":
            return api.VersionResponse()
        await trio.sleep(self.seconds)
        said = self.says.pop(0) if self.says else None
        if said is not None:
            raise said
        return api.StopContainerResponse()

    repeat = call


class Rig:
    """Stops of one container, whose first process is a real one. ``knows``: its stop signal, if we do."""

    def __init__(
        self, runtime: Runtime, nursery: trio.Nursery, process: subprocess.Popen[bytes], knows: str
    ) -> None:
        self.runtime, self.process, self.said = runtime, process, list[str]()
        self.entry = ContainerEntry(
            PodEntry("u", "ns", "p", "s"), "c", ContainerSpec(name="main", argv=("sleep",))
        )
        self.entry.pod.grace_seconds = 30
        self.entry.pidfd = os.pidfd_open(process.pid)
        self.entry.stop_signal = knows
        notes = OperatorNotes(lambda level, line: self.said.append(line))
        self.outbox = Outbox()
        self.reach = RuntimeReach(runtime, notes)
        self._stops = ContainerStops(runtime, self.reach, nursery.start_soon, notes)

    async def stop(self, name: str = "SIGTERM") -> Ending:
        return await self._stops.signal(self.entry, name, "", self.outbox)

    async def kill(self) -> Ending:
        return await self._stops.kill(self.entry, "")

    def ended_by(self) -> int:
        """Of the process; SIGKILL where nobody had sent anything before."""
        self.process.kill()
        return -self.process.wait()


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as made:
        yield made
        made.kill()


@asynccontextmanager
async def stopping(runtime: Runtime, process: subprocess.Popen[bytes], knows: str = "") -> AsyncIterator[Rig]:
    async with trio.open_nursery() as nursery:
        rig = Rig(runtime, nursery, process, knows)
        yield rig
        nursery.cancel_scope.cancel()
    rig.entry.finish(ExitStatus())


@pytest.mark.parametrize(
    "runtime", [Runtime(), Runtime(up=False), Runtime(hangs=True)], ids=["up", "away", "hung"]
)
async def test_a_signal_that_is_known(
    autojump_clock: trio.abc.Clock, process: subprocess.Popen[bytes], runtime: Runtime
) -> None:
    """It goes to the first process at once, whatever the runtime does, and the runtime is not asked."""
    async with stopping(runtime, process, knows="SIGTERM") as rig:
        began = trio.current_time()
        assert await rig.stop() == Ending()
        assert trio.current_time() == began
        assert (runtime.asked, rig.said, rig.process.wait()) == (0, [], -signal.SIGTERM)


@pytest.mark.parametrize(
    ("runtime", "why"),
    [(Runtime(up=False), str(AWAY)), (Runtime(hangs=True), "Version: no answer in 500 ms")],
    ids=["away", "hung"],
)
async def test_a_runtime_that_alone_knows_and_does_not_answer(
    autojump_clock: trio.abc.Clock, process: subprocess.Popen[bytes], runtime: Runtime, why: str
) -> None:
    """Half a second is left to it, which is given nothing; then the order's signal goes past it."""
    async with stopping(runtime, process) as rig:
        began = trio.current_time()
        assert await rig.stop("SIGUSR1") == Ending(reason=DIRECT.format("SIGUSR1", why))
        assert trio.current_time() - began == pytest.approx(BOUNDS.stop_direct_seconds)
        assert await rig.stop("SIGUSR1") == Ending(reason=DIRECT.format("SIGUSR1", why))
        assert (runtime.asked, rig.said, rig.process.wait()) == (0, [SAID], -signal.SIGUSR1)


async def test_a_runtime_that_is_soon_back(
    autojump_clock: trio.abc.Clock, process: subprocess.Popen[bytes]
) -> None:
    """Then it sends the signal, and nobody else does; what it had certainly not read is said again."""
    async with stopping(Runtime(Unsent("not initialized"), up=False), process) as rig:

        async def back() -> None:
            await trio.sleep(BOUNDS.stop_direct_seconds / 2)
            rig.runtime.up = True

        async with trio.open_nursery() as nursery:
            nursery.start_soon(back)
            assert await rig.stop() == Ending()
        assert (rig.runtime.asked, rig.said, rig.ended_by()) == (2, [], signal.SIGKILL)


async def test_a_call_that_may_have_been_heard(
    autojump_clock: trio.abc.Clock, process: subprocess.Popen[bytes]
) -> None:
    """It is not made again, and no signal goes beside it: two mean "at once" to many programs."""
    async with stopping(Runtime(Lost("Socket closed"), seconds=SENT_SECONDS / 2), process) as rig:
        ending = await rig.stop()
        await trio.sleep(60)
        assert ending == Ending("timed-out", f"{NOT_KNOWN}, and is not given it again: Socket closed")
        assert (rig.runtime.asked, rig.ended_by()) == (1, signal.SIGKILL)


async def test_a_runtime_that_refuses(
    autojump_clock: trio.abc.Clock, process: subprocess.Popen[bytes]
) -> None:
    """An answer is an answer: its error is the order's, and nothing goes past it."""
    async with stopping(Runtime(RuntimeRefused("no")), process) as rig:
        assert await rig.stop() == Ending("failed", "no")
        assert (rig.runtime.asked, rig.ended_by()) == (1, signal.SIGKILL)


async def test_a_container_without_a_process_here_and_a_runtime_that_hangs(
    autojump_clock: trio.abc.Clock, process: subprocess.Popen[bytes]
) -> None:
    """Nobody can say whether it got its signal, so nobody does."""
    async with stopping(Runtime(hangs=True), process) as rig:
        os.close(rig.entry.pidfd)
        rig.entry.pidfd = -1
        assert await rig.stop() == Ending("timed-out", f"{NOT_KNOWN}: Version: no answer in 2 s")
        assert rig.runtime.asked == 1


async def test_sigkill_asks_nobody(process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes to the first process, and its end is waited for."""
    monkeypatch.setattr(bounds, "now", BOUNDS.widened(WATCHDOG_SECONDS))
    async with stopping(Runtime(hangs=True), process) as rig:
        assert await rig.kill() == Ending()
        assert (rig.runtime.asked, rig.process.wait()) == (0, -signal.SIGKILL)

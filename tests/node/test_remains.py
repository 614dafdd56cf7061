"""However a node ends, nothing of it is left: no process, namespace, mount, control group or folder."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import trio

from tests.beds.inside import PROJECT
from tests.beds.skipping import or_skip
from tests.node import remains
from tests.node.bringing_up import need

pytestmark = [pytest.mark.node]
GONE_SECONDS_MAX = 20
UP_SECONDS_MAX = 60
#: Descriptors of process namespaces: while one is open, no other namespace gets its number.
PINS: list[int] = []


class Trace(NamedTuple):
    """By what a node is known when it is there: its first process, its process namespace, its name."""

    first: int
    namespace: str
    name: str

    def left(self) -> list[str]:
        """What there still is of it."""
        folders = [str(path) for path in (remains.BASE / self.name,) if path.exists()]
        mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if self.name in line]
        return [*self.members(), *map(str, remains.left(self.name)), *folders, *mounts]

    def members(self) -> list[str]:
        """Its processes: none can leave their namespace."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.readlink(process / "ns/pid") == self.namespace:
                    found.append(f"{process.name} {(process / 'comm').read_text().strip()}")
        return found

    async def gone(self) -> None:
        with trio.move_on_after(GONE_SECONDS_MAX):
            while self.left():
                await trio.sleep(0.02)
        assert self.left() == []


def node_of(holder: int) -> Trace | None:
    """The node that a process holds, once it has begun."""
    name = next((path.name for path in remains.trees()[0].glob(f"{remains.PREFIX}-{holder}-*")), None)
    for process in Path("/proc").glob("[0-9]*") if name else ():
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_text().split("\0")
            if "tests.node.inside" in words and name in words and words[0] == sys.executable:
                PINS.append(os.open(process / "ns/pid", os.O_RDONLY))
                return Trace(int(process.name), os.readlink(process / "ns/pid"), str(name))
    return None


@contextlib.contextmanager
def held() -> Iterator[subprocess.Popen[str]]:
    """A process that holds a node, as a person has it."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.node", "hold"],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


async def found(holder: int, holds: Callable[[Trace], bool] = lambda _: True) -> Trace:
    """The node of that process, once it ``holds``."""
    with trio.fail_after(UP_SECONDS_MAX):
        while (trace := node_of(holder)) is None:
            await trio.sleep(0.01)
        while not holds(trace):
            await trio.sleep(0.01)
    return trace


async def up(process: subprocess.Popen[str]) -> Trace:
    """Wait until the node is Ready."""
    assert process.stdout is not None
    with trio.fail_after(UP_SECONDS_MAX):
        said = await trio.to_thread.run_sync(process.stdout.read)
    assert "Ready" in said
    return await found(process.pid)


@pytest.fixture(autouse=True)
def _able() -> Iterator[None]:
    with or_skip():
        need()
    yield
    while PINS:
        os.close(PINS.pop())


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL], ids=lambda how: how.name)
async def test_holder_ended(how: signal.Signals) -> None:
    """Whether who holds the node is told to leave, interrupted or killed, the node is gone soon after."""
    with held() as process:
        trace = await up(process)
        assert {"containerd", "kubelet", "etcd"} <= {line.split()[1] for line in trace.members()}
        process.send_signal(how)
        await trace.gone()


async def test_interrupted_while_coming_up() -> None:
    """Interrupted when only some of its parts run, it takes those down again."""
    with held() as process:
        trace = await found(
            process.pid, lambda trace: any("kube-apiserver" in each for each in trace.members())
        )
        process.send_signal(signal.SIGINT)
        await trace.gone()


async def test_first_process_killed() -> None:
    """The death of the node's first process is the death of all; who holds it removes the rest."""
    with held() as process:
        trace = await up(process)
        os.kill(trace.first, signal.SIGKILL)
        with trio.fail_after(GONE_SECONDS_MAX):
            while trace.members():
                await trio.sleep(0.02)
        assert trace.left() != []
        process.terminate()
        await trace.gone()


async def test_swept() -> None:
    """What is left when both are killed at once is removed by the next node."""
    with held() as process:
        trace = await up(process)
        os.kill(process.pid, signal.SIGSTOP)
        os.kill(trace.first, signal.SIGKILL)
        process.kill()
    with trio.fail_after(GONE_SECONDS_MAX):
        while trace.members():
            await trio.sleep(0.02)
    remains.sweep()
    assert trace.left() == []

"""Leader election on a real API server, with the least rights, by processes that are stopped and killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from ebbtide.actors.edges.kubernetes.leadership import Leadership
from tests.actors.edges.kubernetes.rig import linked
from tests.actors.edges.kubernetes.rights import granted
from tests.node.bed import Bed
from tests.waiting import until

pytestmark = [pytest.mark.node]

NAMESPACE, NAME = "ebbtide-leader", "ebbtide-outage"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
GROUP = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
#: What it needs, and nothing else: kept by the tests that pass with it. A create cannot be limited by name.
RULES = [{**GROUP, "verbs": ["create"]}, {**GROUP, "verbs": ["get", "update"], "resourceNames": [NAME]}]
#: A fifth of what is usual.
TIMES = {"lease_seconds": 3.0, "renew_seconds": 2.0, "retry_seconds": 0.4}


@pytest.fixture
async def rights(api_bed: Bed) -> AsyncIterator[Path]:
    """As an account that may do what `RULES` say in one namespace; there is no Lease yet."""
    yield await granted(api_bed, NAMESPACE, RULES)
    for each in (await api_bed.api.get(LEASES))["items"]:
        await api_bed.api.delete(f"{LEASES}/{each['metadata']['name']}")


async def lease(bed: Bed) -> dict[str, Any]:
    return dict((await bed.api.get(f"{LEASES}/{NAME}"))["spec"])


class Process:
    """A replica in a process of its own: this module, run."""

    def __init__(self, process: trio.Process, name: str) -> None:
        self.process, self.name = process, name
        self.said: list[str] = []

    async def read(self) -> None:
        assert self.process.stdout is not None
        text = b""
        async for piece in self.process.stdout:
            *lines, text = (text + piece).split(b"\n")
            self.said += [line.decode() for line in lines]

    @property
    def leads(self) -> bool:
        terms = [line for line in self.said if line in ("leads", "ends")]
        return terms[-1:] == ["leads"]


@asynccontextmanager
async def processes(kubeconfig: Path, *names: str) -> AsyncIterator[list[Process]]:
    """They are killed at the end of the block, and so is what is added."""
    argv = [sys.executable, "-m", __name__, str(kubeconfig)]
    made = []
    async with trio.open_nursery() as nursery:
        try:
            for name in names:
                each = await trio.lowlevel.open_process([*argv, name], stdout=subprocess.PIPE)
                made.append(Process(each, name))
                nursery.start_soon(made[-1].read)
            yield made
        finally:
            with trio.CancelScope(shield=True):
                for one in made:
                    if one.process.poll() is None:
                        one.process.kill()
                    await one.process.wait()
        nursery.cancel_scope.cancel()


async def test_processes_that_are_stopped_killed_and_told_to_go(rights: Path, api_bed: Bed) -> None:
    """Of two that start at once one leads; the other goes on in time, whatever becomes of the first; and the
    one that was stopped knows it as soon as it goes on.
    """
    async with processes(rights, "one", "two") as both:
        first = await until(lambda: next((each for each in both if each.leads), None), "one leads")
        second = next(each for each in both if each is not first)
        await until(lambda: f"{first.name} leads, and this replica waits" in second.said, "it waits")
        assert (await lease(api_bed))["leaseTransitions"] == 0

        first.process.send_signal(signal.SIGSTOP)
        began = trio.current_time()
        await until(lambda: second.leads, "the next one leads")
        took = trio.current_time() - began
        print(f"stopped: the other one leads after {took:.1f} s")
        assert TIMES["renew_seconds"] < took <= TIMES["lease_seconds"] + 2
        await trio.sleep(2 * TIMES["lease_seconds"] - took)
        assert first.leads  # as far as it has said
        first.process.send_signal(signal.SIGCONT)
        await until(lambda: not first.leads, "the first one leads no longer")
        await until(lambda: f"{second.name} leads, and this replica waits" in first.said, "it waits")
        assert second.leads
        assert (await lease(api_bed))["leaseTransitions"] == 1

        second.process.kill()
        began = trio.current_time()
        await until(lambda: first.leads, "the next one leads")
        took = trio.current_time() - began
        print(f"killed: the other one leads after {took:.1f} s")
        assert took <= TIMES["lease_seconds"] + 2
        assert (await lease(api_bed))["leaseTransitions"] == 2

        async with processes(rights, "three") as (third,):
            await until(lambda: f"{first.name} leads, and this replica waits" in third.said, "it waits")
            first.process.terminate()
            began = trio.current_time()
            await until(lambda: third.leads, "the next one leads")
            took = trio.current_time() - began
            print(f"told to go: the other one leads after {took:.2f} s")
            assert took <= 2  # and not the 3 s of the Lease
            assert await first.process.wait() == 0
            assert not first.leads


async def _replica(kubeconfig: Path, name: str) -> None:
    """Says what it does, a line each, until SIGTERM."""

    async def lead() -> None:
        print("leads", flush=True)
        try:
            await trio.sleep_forever()
        finally:
            print("ends", flush=True)

    async with linked(kubeconfig) as link:
        with trio.open_signal_receiver(signal.SIGTERM) as signals:
            async with trio.open_nursery() as nursery:
                held = Leadership(
                    link, NAMESPACE, NAME, name, lambda level, line: print(line, flush=True), **TIMES
                )
                nursery.start_soon(held.run, lead)
                async for _ in signals:
                    break
                nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(_replica, Path(sys.argv[1]), sys.argv[2])

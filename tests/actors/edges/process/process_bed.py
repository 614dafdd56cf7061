"""A bed of real processes: one edge on its own state directory, and a final check for leftovers."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import trio

from ebbtide.actors.edges.linux import proc
from ebbtide.actors.edges.linux.processes import all_stats
from ebbtide.actors.edges.pod_spec import ContainerSpec, HookAction, ProcessSpec
from ebbtide.actors.edges.process import process_pods
from ebbtide.actors.edges.process.process_edge import ProcessEdge
from ebbtide.actors.interfaces import Ending
from ebbtide.events.base import Fact, Order
from ebbtide.events.decisions import KillContainer, RunHook, SendSignal, StartPod, TakeAutopsy, TakeInventory
from ebbtide.events.facts import ContainerExited, PodAppeared
from ebbtide.events.values import Container, Pod
from tests.waiting import WATCHDOG_SECONDS, until

SECOND = 1_000_000_000

FactT = TypeVar("FactT", bound=Fact)

Pods = list[tuple[Pod, ProcessSpec]]


class Outbox:
    def __init__(self) -> None:
        self.facts: list[Fact] = []
        self._news = trio.Event()

    async def put(self, *facts: Fact) -> None:
        self.facts.extend(facts)
        self._news.set()
        self._news = trio.Event()
        await trio.lowlevel.checkpoint()

    def of(self, kind: type[FactT]) -> list[FactT]:
        return [fact for fact in self.facts if isinstance(fact, kind)]

    async def wait_for(
        self, kind: type[FactT], count: int = 1, where: Callable[[FactT], Any] = lambda _: True, **fields: Any
    ) -> list[FactT]:
        """Wait for ``count`` facts of this kind with these fields."""
        with trio.fail_after(WATCHDOG_SECONDS):
            while True:
                found = [
                    fact
                    for fact in self.of(kind)
                    if where(fact) and all(getattr(fact, name) == value for name, value in fields.items())
                ]
                if len(found) >= count:
                    return found
                await self._news.wait()


def shell(script: str, name: str = "main", **fields: Any) -> ContainerSpec:
    return ContainerSpec(name=name, argv=("sh", "-c", script), **fields)


def python(script: str, name: str = "main", **fields: Any) -> ContainerSpec:
    return ContainerSpec(name=name, argv=(sys.executable, "-S", "-c", script), **fields)


def pod_of(
    uid: str, *containers: ContainerSpec, init: tuple[ContainerSpec, ...] = ()
) -> tuple[Pod, ProcessSpec]:
    spec = ProcessSpec(uid=uid, init=init, containers=containers)
    seen = tuple(
        Container(name=item.name, stop_signal=item.stop_signal, sidecar=item.sidecar) for item in spec.lasting
    )
    return Pod(uid=uid, namespace="test", name=uid, containers=seen), spec


class Bed:
    """A running edge, with shorthands for orders."""

    def __init__(self, folder: Path, edge: ProcessEdge, outbox: Outbox) -> None:
        self.folder = folder
        self.state_dir = folder / "state"
        self.edge = edge
        self.outbox = outbox

    async def order(self, order: Order) -> Ending:
        ending = self.edge.effects[type(order)](order, self.outbox)
        if isinstance(ending, Ending):
            return ending
        with trio.fail_after(WATCHDOG_SECONDS):
            return await ending

    async def start(self, uid: str) -> Ending:
        await self.outbox.wait_for(PodAppeared)
        return await self.order(StartPod(key=f"start/{uid}", uid=uid))

    async def signal(self, uid: str, container: str = "main", name: str = "SIGTERM") -> Ending:
        key = f"signal/{uid}/{container}/{name}"
        return await self.order(SendSignal(key=key, uid=uid, container=container, signal=name))

    async def kill(self, uid: str, container: str = "main") -> Ending:
        return await self.order(KillContainer(key=f"kill/{uid}/{container}", uid=uid, container=container))

    async def autopsy(self, uid: str, container: str = "main") -> Ending:
        return await self.order(TakeAutopsy(key=f"autopsy/{uid}", uid=uid, container=container))

    async def inventory(self) -> Ending:
        return await self.order(TakeInventory(key="inventory"))

    async def exited(self, uid: str, container: str = "main") -> ContainerExited:
        return (await self.outbox.wait_for(ContainerExited, uid=uid, container=container))[0]

    def hook(self, uid: str, container: str = "main", seconds: float = WATCHDOG_SECONDS) -> RunHook:
        timeout_ns = int(seconds * SECOND)
        return RunHook(key=f"hook/{uid}/{container}", uid=uid, container=container, timeout_ns=timeout_ns)

    async def known(self, uid: str) -> None:
        """Wait until the edge has found the pod again."""
        await until(lambda: any(pod.uid == uid for pod in self.edge.active()), f"{uid} is not found again")

    def path(self, name: str) -> Path:
        return self.folder / name

    async def shows(self, name: str) -> str:
        """Wait for a file that a test's program writes; returns its text."""
        path = self.path(name)
        await until(lambda: path.exists() and path.read_text().endswith("\n"), f"no {name}")
        return path.read_text().strip()

    def processes(self) -> list[proc.ProcessStat]:
        return ours(self.state_dir)


#: Set in the environment of a bed's processes: the bed's folder.
BED = "EBBTIDE_BED"


def ours(state_dir: Path) -> list[proc.ProcessStat]:
    """The processes of this state directory, with their descendants."""
    mark = f"{BED}={state_dir}\0".encode()
    return [
        stat
        for stat in all_stats()
        if stat.state not in "ZX" and mark in (proc.read_bytes(f"/proc/{stat.pid}/environ", 1 << 18) or b"")
    ]


def held_pids() -> set[int]:
    """Processes with an open pidfd of ours."""
    found = set()
    for name in os.listdir("/proc/self/fdinfo"):
        with suppress(OSError):
            lines = Path(f"/proc/self/fdinfo/{name}").read_text().splitlines()
            found.update(int(line.split()[1]) for line in lines if line.startswith("Pid:"))
    return found - {-1}


@asynccontextmanager
async def running(
    folder: Path,
    pods: Pods,
    *,
    use_cgroups: bool = False,
    capture_lines: int = 0,
    manifests: Path | None = None,
) -> AsyncGenerator[Bed, None]:
    """One daemon's edge; its processes outlive it."""
    path = manifests or folder / "pods.yaml"
    if manifests is None:
        path.touch()
    os.environ[BED] = str(folder / "state")
    if BED not in process_pods.INHERITED_VARIABLES:
        process_pods.INHERITED_VARIABLES += (BED,)
    edge = ProcessEdge(
        folder / "state",
        manifests=path,
        load=lambda _: pods,
        capture_lines=capture_lines,
        use_cgroups=use_cgroups,
    )
    outbox = Outbox()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(edge.run, outbox)
            yield Bed(folder, edge, outbox)
            edge.detach()
            nursery.cancel_scope.cancel()
    finally:
        edge.close()


@asynccontextmanager
async def bed_of(folder: Path, *pods: tuple[Pod, ProcessSpec], **options: Any) -> AsyncGenerator[Bed, None]:
    """A running edge; at the end no process may remain."""
    async with running(folder, list(pods), **options) as bed:
        for pod, _ in pods:
            assert await bed.start(pod.uid) == Ending()
        yield bed
        await nothing_left(bed)


async def nothing_left(bed: Bed) -> None:
    """All containers have ended and no process remains."""
    await until(lambda: not bed.edge.active(), lambda: f"these run: {bed.edge.active()}")
    await until(lambda: not bed.processes(), lambda: f"these are left: {bed.processes()}")


def hook_pod(uid: str, action: HookAction, **fields: Any) -> tuple[Pod, ProcessSpec]:
    return pod_of(uid, shell("exec sleep 1000", pre_stop=action, **fields))

"""One containerd for all tests of this folder; one edge per test."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import trio

from ebbtide.actors.edges.cri.cri_edge import CriEdge
from ebbtide.actors.edges.kubernetes.known_pods import KnownPod
from ebbtide.actors.interfaces import Ending
from ebbtide.events.base import NS_PER_SECOND, Order
from ebbtide.events.decisions import KillContainer, RunHook, SendSignal, TakeInventory
from ebbtide.events.facts import InventoryTaken
from ebbtide.events.values import Pod
from tests.actors.edges.cri.daemon_rig import DaemonRig, daemon_rig
from tests.actors.edges.cri.pods import Kubelet
from tests.actors.edges.process.process_bed import Outbox
from tests.beds import logind
from tests.beds.containerd import Containerd, containerd, missing
from tests.waiting import WATCHDOG_SECONDS

NEVER_NS = sys.maxsize


def stop(uid: str, container: str = "main") -> SendSignal:
    key = f"stop/{uid}/{container}"
    return SendSignal(key=key, uid=uid, container=container, signal="SIGTERM")


def kill(uid: str, container: str = "main") -> KillContainer:
    return KillContainer(key=f"kill/{uid}/{container}", uid=uid, container=container)


def take(key: str, *, refresh: bool = False, late: bool = False) -> TakeInventory:
    """``late``: announce pods that appear from now on."""
    return TakeInventory(key=key, refresh=refresh, late_until_ns=NEVER_NS if late else 0)


def known(name: str, *containers: str, **fields: object) -> KnownPod:
    made = {"uid": f"uid-{name}", "api_uid": f"uid-{name}", "namespace": "test", "name": name}
    return KnownPod(**(made | {"phase": "Running", "containers": containers or ("main",)} | fields))  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def bed() -> Iterator[Containerd]:
    why = missing()
    if why:
        pytest.skip(why)
    with containerd() as made:
        yield made


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as made:
        yield made
        made.kill()


@pytest.fixture
def kubelet(bed: Containerd) -> Iterator[Kubelet]:
    made = Kubelet(bed)
    yield made
    made.remove_all()
    made.close()


def hook(uid: str, seconds: float = WATCHDOG_SECONDS) -> RunHook:
    return RunHook(key=f"hook/{uid}", uid=uid, container="main", timeout_ns=int(seconds * NS_PER_SECOND))


class Rig:
    """A running, armed edge. ``said`` holds its operator messages."""

    def __init__(self, edge: CriEdge, outbox: Outbox, said: list[str]) -> None:
        self.edge, self.outbox, self.said = edge, outbox, said

    async def do(self, order: Order) -> Ending:
        ending = self.edge.effects[type(order)](order, self.outbox)
        if isinstance(ending, Ending):
            return ending
        return await ending

    async def inventory(self, key: str = "inventory", *, refresh: bool = True) -> tuple[Pod, ...]:
        """The pods as a shutdown receives them."""
        assert await self.do(TakeInventory(key=key, refresh=refresh)) == Ending()
        taken = [fact for fact in self.outbox.of(InventoryTaken) if fact.key == key]
        return tuple(pod for fact in taken for pod in fact.pods)


@contextlib.asynccontextmanager
async def rig_on(bed: Containerd, folder: Path) -> AsyncIterator[Rig]:
    """Run an edge on the bed's containerd. Leaving stops the daemon, not the containers."""
    outbox, said = Outbox(), list[str]()
    edge = CriEdge(f"unix://{bed.socket}", folder, tell=lambda level, line: said.append(line))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(edge.run, outbox)
        edge.prewarm()
        yield Rig(edge, outbox, said)
        edge.detach()
        nursery.cancel_scope.cancel()


class Told:
    """A `PodStore` whose content the test sets."""

    def __init__(self, *known: KnownPod) -> None:
        self.known = list(known)
        self.version = 1
        #: Why an inventory waits, and why the API server reported no pod.
        self.expecting, self.untold = False, ""
        self._news = trio.Event()

    def tell(self, *known: KnownPod) -> None:
        self.known = list(known)
        self.version += 1
        self._news.set()
        self._news = trio.Event()

    async def changed(self, since: int) -> None:
        while self.version == since:
            await self._news.wait()

    def find(self, uid: str) -> KnownPod | None:
        return next((each for each in self.known if uid and each.uid == uid), None)

    def find_named(self, namespace: str, name: str) -> KnownPod | None:
        return next((each for each in self.known if (each.namespace, each.name) == (namespace, name)), None)

    def has_number(self, namespace: str, name: str) -> bool:
        named = (each for each in self.known if (each.namespace, each.name) == (namespace, name))
        return not any(each.priority_assigned for each in named)

    def pods(self) -> list[KnownPod]:
        return list(self.known)

    def exit_code(self, uid: str, container: str) -> int | None:
        known = self.find(uid)
        return None if known is None else known.ended.get(container)


@pytest.fixture
async def rig(bed: Containerd) -> AsyncIterator[DaemonRig]:
    if reason := logind.missing():
        pytest.skip(reason)
    async with daemon_rig(bed) as made:
        yield made

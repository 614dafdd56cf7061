"""Small genuine journals to run commands on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ebbtide.actors.system import System, take_checkpoint
from ebbtide.events import facts as f
from ebbtide.events.base import NS_PER_SECOND, Event, Order, Record, Stamp
from ebbtide.events.decisions import ReleaseLock, SendSignal, TakeInventory
from ebbtide.events.segment import SHUTDOWN_LOGIC, Identity
from ebbtide.events.values import Period, Pod, Settings
from tests import journals
from tests.journals import checkpoint, segment, write_files

WALL_NS = 1_700_000_000 * NS_PER_SECOND
IDENTITY = Identity("node-1", "machine-1", "boot-1", "0.1")


def pod(name: str, priority: int = 0, grace_seconds: int = 30) -> Pod:
    uid = f"00000000-0000-4000-8000-{sum(name.encode()):012d}"
    return journals.pod(name, priority, grace=grace_seconds, uid=uid)


PODS = (pod("web-0"), pod("web-1", grace_seconds=90), pod("db-0", priority=1000))


class Node:
    """A real `System` fed with facts; its orders get friendly answers."""

    def __init__(self, pods: Sequence[Pod] = PODS) -> None:
        self.system = System()
        self.records: list[Record] = []
        self.pods = pods
        self.mono_ns = NS_PER_SECOND
        self.checkpoint()

    def checkpoint(self) -> None:
        at = Stamp(self.mono_ns, WALL_NS + self.mono_ns)
        self.records.append(checkpoint(self.system.next_seq, at, take_checkpoint(self.system)))
        self.system.next_seq += 1

    def feed(self, fact: Event) -> None:
        """One step, and the answers to its orders."""
        self.mono_ns += NS_PER_SECOND // 100
        step = self.system.step(fact, Stamp(self.mono_ns, WALL_NS + self.mono_ns))
        self.records += step
        for record in step:
            if isinstance(record.event, Order):
                self._answer(record.event)

    def _answer(self, order: Order) -> None:
        if isinstance(order, TakeInventory):
            self.feed(f.InventoryTaken(key=order.key, as_of_ns=0, source="test", pods=tuple(self.pods)))
        self.feed(f.OrderEnded(key=order.key, result="done"))
        if isinstance(order, SendSignal):
            self.feed(f.ContainerExited(uid=order.uid, container=order.container, exit_code=0))

    def start(self) -> None:
        """A daemon comes up and is armed."""
        self.feed(journals.started(version="0.1", pid=1))
        periods = (Period(priority=0, seconds=20), Period(priority=1000, seconds=10))
        self.feed(f.SettingsLoaded(settings=Settings(by_pod_priority=periods)))
        self.feed(f.LogindRead(owner=":1.1", grant_ns=60 * NS_PER_SECOND, preparing=False))
        for each in self.pods:
            self.feed(f.PodAppeared(pod=each))

    def shut_down(self, kind: str = "poweroff") -> None:
        """A whole shutdown, up to the release."""
        self.feed(
            f.PrepareForShutdown(active=True, kind=kind, grant_ns=60 * NS_PER_SECOND, lock_held=True)  # type: ignore[arg-type]
        )
        while not self.released and (due_ns := self.system.next_deadline_ns()) is not None:
            self.mono_ns = max(self.mono_ns, due_ns)
            self.feed(f.Tick())

    @property
    def released(self) -> bool:
        return any(isinstance(record.event, ReleaseLock) for record in self.records)

    def feed_clock(self, seconds: int) -> None:
        self.feed(f.ClockStepped(delta_ns=seconds * NS_PER_SECOND))

    def cancel(self) -> None:
        self.feed(f.PrepareForShutdown(active=False))


def write(
    folder: Path,
    records: Sequence[Record],
    *,
    sealed: bool = False,
    logic: str = SHUTDOWN_LOGIC,
    identity: Identity = IDENTITY,
) -> Path:
    """Write a journal of one segment; returns the file. The last frame marks all before it durable."""
    anchor = Stamp(NS_PER_SECOND, WALL_NS + NS_PER_SECOND)
    identity = identity._replace(logic=logic)
    files = segment(records, identity=identity, anchor=anchor, sealed=sealed)
    return write_files(folder, files) / next(iter(files))


def whole_shutdown(folder: Path) -> Path:
    """Write a journal of a start and one shutdown; returns the file."""
    node = Node()
    node.start()
    node.shut_down()
    return write(folder, node.records)

"""A journal of whole shutdowns, made by the real core in virtual time: every order answered at once.

Each pod gets its stop signal and exits; each wave's exits come together, as they do. Used where only the core
and the journal's bytes are measured, with no process, bus or disk in the way.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path

from ebbtide.actors.system import System, take_checkpoint
from ebbtide.events import facts
from ebbtide.events.base import NS_PER_SECOND, Checkpoint, Fact, Order, Record, Stamp
from ebbtide.events.decisions import SendSignal, TakeInventory
from ebbtide.events.segment import SHUTDOWN_LOGIC, Chain, Identity, Link, WriterStart, segment_file_name
from ebbtide.events.values import Container, Period, Pod, Settings

WAVES = 3
GRACE_SECONDS = 30
GRANT_NS = 600 * NS_PER_SECOND
STEP_NS = 10_000
EXIT_NS = 50_000_000
IDENTITY = Identity("node-1", "machine-1", "boot-1", "bench", SHUTDOWN_LOGIC)
START = WriterStart(bytes(range(16)), Link(), 1)


def pods(count: int) -> tuple[Pod, ...]:
    return tuple(
        Pod(
            uid=f"8f2d6c1e-3b7a-4d52-9a55-{at:012x}",
            namespace="default",
            name=f"web-{at}",
            priority=at % WAVES * 1000,
            grace_seconds=GRACE_SECONDS,
            containers=(Container(name="main"),),
        )
        for at in range(count)
    )


class Theatre:
    """Plays shutdowns; ``records`` has everything since the begin."""

    def __init__(self, count: int, projection_version: int = 1) -> None:
        self.system = System()
        self._projection_version = projection_version
        self.pods = pods(count)
        self.records: list[Record] = []
        self._now_ns = NS_PER_SECOND
        self._todo: deque[Fact] = deque()
        self._exits: list[Fact] = []

    def begin(self) -> None:
        periods = tuple(Period(priority=wave * 1000, seconds=GRACE_SECONDS) for wave in range(WAVES))
        started = facts.DaemonStarted(
            version="1",
            pid=1,
            mode="process",
            node="node-1",
            boot_id="boot-1",
            userspace_id="boot-1",
            preparing=False,
        )
        self.play(started)
        settings = Settings(by_pod_priority=periods, projection_version=self._projection_version)
        self.play(facts.SettingsLoaded(settings=settings))
        self.play(facts.LogindRead(owner=":1.1", grant_ns=GRANT_NS, preparing=False))

    def shut_down(self) -> None:
        """From the signal to the release, and back: the machine did not go down."""
        going = facts.PrepareForShutdown(active=True, kind="poweroff", grant_ns=GRANT_NS, lock_held=True)
        self.play(going)
        self.play(facts.PrepareForShutdown(active=False, grant_ns=GRANT_NS))

    def play(self, fact: Fact) -> None:
        """One fact, and what the world answers to what it leads to."""
        self._todo.append(fact)
        while self._todo or self._exits:
            if not self._todo:
                self._now_ns += EXIT_NS
                self._todo.extend(self._exits)
                self._exits = []
            self._step(self._todo.popleft())

    def _step(self, fact: Fact) -> None:
        self._now_ns += STEP_NS
        made = self.system.step(fact, Stamp(self._now_ns, self._now_ns))
        self.records += made
        for record in made:
            if isinstance(record.event, Order):
                self._answer(record.event)

    def _answer(self, order: Order) -> None:
        if isinstance(order, TakeInventory):
            self._todo.extend(self._inventory(order.key))
        elif isinstance(order, SendSignal):
            self._exits.append(facts.ContainerExited(uid=order.uid, container=order.container, exit_code=0))
        self._todo.append(facts.OrderEnded(key=order.key, result="done", elapsed_ns=STEP_NS))

    def _inventory(self, key: str) -> list[Fact]:
        parts = -(-len(self.pods) // facts.INVENTORY_PODS_MAX)
        return [
            facts.InventoryTaken(
                key=key,
                as_of_ns=self._now_ns,
                source="process",
                part=part + 1,
                parts=parts,
                pods=self.pods[part * facts.INVENTORY_PODS_MAX : (part + 1) * facts.INVENTORY_PODS_MAX],
            )
            for part in range(parts)
        ]


def lay_out(folder: Path, count: int, shutdowns: int, projection_version: int = 1) -> int:
    """A journal of so many shutdowns of so many pods; returns the number of its records."""
    theatre, chain = Theatre(count, projection_version), Chain(IDENTITY, START)
    theatre.records.append(_mark(take_checkpoint(theatre.system)))
    theatre.system.next_seq += 1
    theatre.begin()
    with (folder / segment_file_name(1, START.journal_id)).open("wb") as file:
        for item in chain.begin_segment(Stamp(0, 0)):
            file.write(item.data)
        for _ in range(shutdowns):
            theatre.shut_down()
            for record in theatre.records:
                file.write(chain.append(record, record.seq).data)
            theatre.records.clear()
    return chain.end.seq


def _mark(checkpoint: Checkpoint) -> Record:
    return Record(
        seq=1, mono_ns=0, wall_ns=0, episode=0, cause=0, actor="journal", last=True, event=checkpoint
    )

"""Finding the pods of the daemon's earlier life: by record first, then by their marks.

A recorded process is ours only if its number, its start time and the boot agree. A container that is
not recorded as started may run all the same: the daemon died between starting it and writing that down.
"""

from __future__ import annotations

from contextlib import suppress

import trio

from actors.edges.process.endings import End
from actors.edges.process.hooks import open_child
from actors.edges.process.record import ContainerRecord, PodRecord, Records
from actors.edges.process.scan import Process, Scanner
from actors.edges.process.start import Starter, exited
from actors.edges.process.sweep import Sweeper
from actors.edges.process.table import ContainerEntry, PodEntry, Table
from events.base import Fact
from events.facts import ContainerStarted

#: Nothing is urgent yet, and what is not found now is not found at all.
RECOVERY_SECONDS_MAX = 5.0


class Recovery:
    """Fills the table once."""

    def __init__(
        self, table: Table, records: Records, scanner: Scanner, starter: Starter, sweeper: Sweeper
    ) -> None:
        self._table = table
        self._records = records
        self._scanner = scanner
        self._starter = starter
        self._sweeper = sweeper
        self._lock = trio.Lock()
        self.done = False
        self._strays: dict[str, list[Process]] = {}

    async def once(self) -> list[Fact]:
        """What was learned; empty from the second call on."""
        async with self._lock:
            if self.done:
                return []
            facts = await self._recover()
            self.done = True
            return facts

    async def _recover(self) -> list[Fact]:
        records = self._records.load()
        look: list[Process] = []
        with suppress(OSError):
            look = [item for item in await self._scanner.look(RECOVERY_SECONDS_MAX) if item.mark is not None]
        facts = [fact for record in records for fact in self._revive(record, look)]
        for item in look:
            if item.mark is not None and item.mark.uid not in self._table.pods:
                self._strays.setdefault(item.mark.uid, []).append(item)
        return facts

    def claim(self, pod: PodEntry) -> list[Fact] | None:
        """A manifest names a pod whose record is lost altogether: is it up? Then it is ours again, as far
        as it is up; None when nothing of it runs.
        """
        look = self._strays.pop(pod.pod.uid, [])
        ages = {
            item.stat.start_ticks: item.mark.order
            for item in reversed(look)
            if item.mark is not None and item.mark.container in pod.containers
        }
        if not ages:
            return None
        # Hooks carry keys of their own; what is oldest was there before any hook.
        pod.order = ages[min(ages)]
        facts = []
        for entry in pod.containers.values():
            facts += self._from_marks(entry, look) or self._given_up(entry)
        return facts

    def _given_up(self, entry: ContainerEntry) -> list[Fact]:
        entry.finish(End())
        return [exited(entry)]

    def _revive(self, record: PodRecord, look: list[Process]) -> list[Fact]:
        pod = PodEntry(record.pod, record.spec)
        pod.order = record.order
        pod.stopping = record.stopping
        pod.recovered = True
        self._table.pods[record.pod.uid] = pod
        recorded = {item.name: item for item in record.containers}
        facts = []
        for name, entry in pod.containers.items():
            if name in recorded:
                facts += self._from_record(entry, recorded[name])
            else:
                facts += self._from_marks(entry, look)
        return facts

    def _from_record(self, entry: ContainerEntry, record: ContainerRecord) -> list[Fact]:
        entry.group = record.group
        if self._adopt(entry, record.pid, record.start_ticks):
            return []
        entry.pid, entry.start_ticks = record.pid, record.start_ticks
        self._sweeper.leftovers(entry.key, entry.group)
        return self._given_up(entry)

    def _from_marks(self, entry: ContainerEntry, look: list[Process]) -> list[Fact]:
        """Its first process leads a session and is the oldest of those that carry its marks."""
        ours = [item.stat for item in look if item.mark == (*entry.key, entry.pod.order)]
        leaders = [stat for stat in ours if stat.session == stat.pid]
        first = min(leaders, key=lambda stat: (stat.start_ticks, stat.pid), default=None)
        if first is None or not self._adopt(entry, first.pid, first.start_ticks):
            return []
        with suppress(OSError):
            self._starter.remember(entry.pod)
        return [ContainerStarted(uid=entry.key[0], container=entry.key[1], pid=entry.pid)]

    def _adopt(self, entry: ContainerEntry, pid: int, start_ticks: int) -> bool:
        child = open_child(pid, start_ticks)
        if child is None:
            return False
        entry.child = False
        entry.begin(*child)
        self._starter.follow(entry)
        return True

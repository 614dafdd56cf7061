"""A simulated disk with faults: a real location's protocol, in memory, under Trio's clock.

Written and durable bytes are separate. A power cut keeps or loses each unsynced sector in any order, and
perhaps the name of a file in an unsynced directory; a process's death loses no record. A fault names the
operation by number.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from typing import Literal, TypeVar, TypeVarTuple, Unpack

import trio

from ebbtide.events.catalog import StoredFile
from ebbtide.events.disk import JournalLocked, SegmentGone, disk_waits
from ebbtide.replay.sim.scenario import Draws

#: ``torn``: write a part, then fail. ``halt``: like `torn`, and the disk stays hung.
Fault = Literal["eio", "enospc", "torn", "hang", "halt"]

SECTOR_BYTES = 512

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class SimulatedFile:
    """The visible bytes, their durable part, and whether the name is durable."""

    def __init__(self, data: bytes = b"", *, name_durable: bool = False) -> None:
        self.data = bytearray(data)
        self.durable = bytes(data)
        self.name_durable = name_durable
        #: After a failed sync the kernel forgets dirty pages: later syncs do not help.
        self.poisoned = False

    def after_power_cut(self, draws: Draws) -> bytes:
        """The synced bytes, and a choice of the other sectors."""
        size = draws.between(len(self.durable), len(self.data))
        kept = bytearray(self.durable) + bytearray(size - len(self.durable))
        for start in range(0, size, SECTOR_BYTES):
            end = min(start + SECTOR_BYTES, size)
            if draws.chance(1, 2):
                kept[max(start, len(self.durable)) : end] = self.data[max(start, len(self.durable)) : end]
        return bytes(kept[:size])


class SimulatedDisk:
    """One location; storage and source at once."""

    waits = disk_waits()

    def __init__(
        self,
        location: str,
        draws: Draws,
        *,
        faults: Mapping[int, Fault] | None = None,
        capacity_bytes: int | None = None,
        latency_microseconds_max: int = 0,
    ) -> None:
        self.location = location
        self.files_by_name: dict[str, SimulatedFile] = {}
        self.reserved_bytes = 0
        self.operations = 0
        self.halted, self.moving = trio.Event(), trio.lowlevel.ParkingLot()
        self.holder = ""
        self._draws = draws
        self._faults = dict(faults or {})
        self._capacity_bytes = capacity_bytes
        self._latency_microseconds_max = latency_microseconds_max

    # --- reading

    @property
    def source(self) -> SimulatedDisk:
        return self

    def files(self) -> list[StoredFile]:
        return sorted(StoredFile(name, len(file.data), 0) for name, file in self.files_by_name.items())

    def read(self, name: str, offset: int, size: int) -> bytes:
        if name not in self.files_by_name:
            raise FileNotFoundError(errno.ENOENT, "no such file", name)
        return bytes(self.files_by_name[name].data[offset : offset + size])

    # --- writing

    async def acquire(self, program: str) -> None:
        await self.operation()
        if self.holder not in ("", program):
            raise JournalLocked(f"{self.holder} writes the journal in {self.location}")
        self.holder = program

    async def release(self) -> None:
        self.holder = ""

    async def create(self, name: str) -> SimulatedSegment:
        await self.operation()
        if name in self.files_by_name:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
        file = self.files_by_name[name] = SimulatedFile()
        await self.operation()
        file.name_durable = True
        return SimulatedSegment(self, file)

    async def sync_file(self, name: str) -> None:
        await SimulatedSegment(self, self.files_by_name[name]).sync()

    async def put(self, name: str, data: bytes) -> None:
        await self.operation()
        self.files_by_name[name] = SimulatedFile(data, name_durable=True)

    async def set_reserve(self, size_bytes: int) -> None:
        await self.operation()
        self.reserved_bytes = 0
        if self.room() < size_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.reserved_bytes = size_bytes

    async def remove(self, name: str) -> None:
        await self.operation()
        del self.files_by_name[name]

    async def call(self, function: Callable[[Unpack[Ts]], T], *args: *Ts) -> T:
        await self.operation()
        return function(*args)

    # --- what can happen to it

    def room(self) -> int:
        used = self.reserved_bytes + sum(len(file.data) for file in self.files_by_name.values())
        return max(0, self._capacity_bytes - used) if self._capacity_bytes is not None else 1 << 60

    def vanish(self) -> None:
        """Its folder is deleted."""
        self.files_by_name.clear()
        self.moving.unpark_all()

    def crash(self, *, power: bool) -> SimulatedDisk:
        """The disk for the next process: after a power cut, or only after our death."""
        survivor = SimulatedDisk(self.location, self._draws.fork("next"))
        survivor._capacity_bytes, survivor.reserved_bytes = self._capacity_bytes, self.reserved_bytes
        for name, file in self.files_by_name.items():
            if power and not file.name_durable and self._draws.chance(1, 2):
                continue
            data = file.after_power_cut(self._draws) if power else bytes(file.data)
            survivor.files_by_name[name] = SimulatedFile(data, name_durable=True)
            if not power:
                survivor.files_by_name[name].durable = file.durable
                survivor.files_by_name[name].name_durable = file.name_durable
        return survivor

    async def operation(self, file: SimulatedFile | None = None, data: bytes = b"") -> None:
        """Count an operation, take its time, apply its fault. Appends ``data`` to ``file``."""
        fault = self._faults.get(self.operations)
        self.operations += 1
        if self._latency_microseconds_max:
            await trio.sleep(self._draws.below(self._latency_microseconds_max + 1) / 1_000_000)
        else:
            await trio.lowlevel.checkpoint()
        if fault is None and len(data) <= self.room():
            if file is not None:
                file.data += data
            return
        await self._strike(fault or "enospc", file, data)

    async def _strike(self, fault: Fault, file: SimulatedFile | None, data: bytes) -> None:
        if file is not None and data and fault != "eio":
            fits = min(len(data), self.room())
            file.data += data[: fits if fault == "enospc" else self._draws.below(fits + 1)]
        if fault == "halt":
            self.halted.set()
        if fault in ("halt", "hang"):
            self._faults = dict.fromkeys(range(self.operations, self.operations + 10_000), "hang")
            await trio.sleep_forever()
        if file is not None and not data:
            file.poisoned = True
        code = errno.ENOSPC if fault == "enospc" else errno.EIO
        raise OSError(code, os.strerror(code))


class SimulatedSegment:
    def __init__(self, disk: SimulatedDisk, file: SimulatedFile) -> None:
        self._disk = disk
        self._file = file

    async def write(self, data: bytes) -> None:
        await self._disk.operation(self._file, data)

    async def watch(self) -> None:
        while True:
            self._look()
            await self._disk.moving.park()

    def _look(self) -> None:
        # By identity: two files may have the same bytes.
        if not any(each is self._file for each in self._disk.files_by_name.values()):
            raise SegmentGone

    async def sync(self) -> None:
        self._look()
        seen = bytes(self._file.data)
        await self._disk.operation(self._file)
        if not self._file.poisoned and len(seen) > len(self._file.durable):
            self._file.durable = seen

    async def close(self) -> None:
        await self._disk.operation()


# --- the machine's two journal locations: a disk, and a memory folder that ends with the boot

LOCATION = "/var/lib/ebbtide/journal"
FALLBACK = "/run/ebbtide/journal"

#: A healthy disk's maximum; a sync sometimes outlasts a barrier.
LATENCY_US_MAX = 4000
MEMORY_LATENCY_US_MAX = 50

#: How often each fault comes, when one comes.
FAULTS: tuple[tuple[int, Fault], ...] = ((3, "eio"), (2, "enospc"), (2, "torn"), (2, "hang"))


class Disks:
    def __init__(self, draws: Draws) -> None:
        self._draws = draws
        self._disk = self._slow(SimulatedDisk(LOCATION, draws.fork("disk")))
        self._memory = self._fresh_memory()

    @property
    def places(self) -> tuple[SimulatedDisk, SimulatedDisk]:
        return self._disk, self._memory

    def fault(self, which: int) -> str:
        """Make one of the next operations of the disk (rarely of memory) fail; returns which."""
        draws = self._draws.fork(f"fault {which}")
        place = draws.weighted((5, self._disk), (1, self._memory))
        fault = draws.weighted(*FAULTS)
        place._faults[place.operations + draws.between(0, 12)] = fault
        return f"{fault} on {place.location}"

    def daemon_died(self) -> None:
        """The next process finds all writes; a hung disk answers again."""
        self._disk = self._slow(self._disk.crash(power=False))
        self._memory = self._memory.crash(power=False)
        self._memory._latency_microseconds_max = MEMORY_LATENCY_US_MAX

    def machine_down(self, *, power_cut: bool, soft: bool) -> None:
        """Memory is lost except after a soft reboot; a clean end syncs everything."""
        if not power_cut:
            for file in self._disk.files_by_name.values():
                file.durable, file.name_durable = bytes(file.data), True
        self._disk = self._slow(self._disk.crash(power=True))
        if power_cut or not soft:
            self._memory = self._fresh_memory()

    def _slow(self, disk: SimulatedDisk) -> SimulatedDisk:
        disk._latency_microseconds_max = LATENCY_US_MAX
        return disk

    def _fresh_memory(self) -> SimulatedDisk:
        draws = self._draws.fork(f"memory {self._draws.bits()}")
        return SimulatedDisk(FALLBACK, draws, latency_microseconds_max=MEMORY_LATENCY_US_MAX)

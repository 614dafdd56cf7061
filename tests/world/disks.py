"""The machine's two journal locations: a disk, and a memory folder that ends with the boot."""

from __future__ import annotations

from ebbtide.replay.sim.scenario import Draws
from tests.world.disk import Fault, SimulatedDisk

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
        self._arm(place, draws.between(0, 12), fault)
        return f"{fault} on {place.location}"

    def fail_at(self, operation: int, fault: Fault) -> None:
        """Make this operation of the disk fail, counted from now."""
        self._arm(self._disk, operation, fault)

    @staticmethod
    def _arm(place: SimulatedDisk, after: int, fault: Fault) -> None:
        place._faults[place.operations + after] = fault

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

"""The simulated disk: durability, failures, and determinism by seed."""

from __future__ import annotations

import errno

import pytest
import trio
from trio.testing import MockClock

from ebbtide.replay.sim.scenario import Draws
from tests.world.disk import SECTOR_BYTES, SimulatedDisk


async def written(disk: SimulatedDisk, synced: bytes, unsynced: bytes) -> None:
    file = await disk.create("a")
    await file.write(synced)
    await file.sync()
    await file.write(unsynced)


async def test_our_own_death_takes_nothing_that_was_written() -> None:
    """The page cache belongs to the kernel."""
    disk = SimulatedDisk("main", Draws(1))
    await written(disk, b"durable", b" and not")
    survivor = disk.crash(power=False)
    assert survivor.read("a", 0, 100) == b"durable and not"
    assert survivor.crash(power=True).read("a", 0, 7) == b"durable"


async def test_a_power_cut_keeps_what_was_synced_and_any_of_the_rest() -> None:
    """Whole sectors in any order; many seeds give holes and short files."""
    seen = set()
    for seed in range(60):
        disk = SimulatedDisk("main", Draws(seed))
        await written(disk, b"s" * SECTOR_BYTES, b"u" * SECTOR_BYTES * 3)
        kept = disk.crash(power=True).read("a", 0, 1 << 20)
        assert kept[:SECTOR_BYTES] == b"s" * SECTOR_BYTES
        assert set(kept[SECTOR_BYTES:]) <= {0, ord("u")}
        seen.add((len(kept), 0 in kept and kept.endswith(b"u")))
    assert {hole for _, hole in seen} == {True, False}
    assert len({size for size, _ in seen}) > 10


@pytest.mark.parametrize(
    ("fault", "code"), [("eio", errno.EIO), ("torn", errno.EIO), ("enospc", errno.ENOSPC)]
)
async def test_a_fault_strikes_the_operation_that_it_names(fault: str, code: int) -> None:
    """Create is two operations, so the first write is the third."""
    disk = SimulatedDisk("main", Draws(3), faults={2: fault})  # type: ignore[dict-item]
    file = await disk.create("a")
    with pytest.raises(OSError) as raised:
        await file.write(b"abcdef")
    assert raised.value.errno == code
    assert b"abcdef".startswith(disk.read("a", 0, 10))


async def test_after_a_failed_sync_nothing_more_becomes_durable() -> None:
    """The kernel has forgotten the dirty pages, and a later sync reports success."""
    disk = SimulatedDisk("main", Draws(3), faults={3: "eio"})
    file = await disk.create("a")
    await file.write(b"lost")
    with pytest.raises(OSError, match="Input/output"):
        await file.sync()
    await file.sync()
    assert disk.files_by_name["a"].durable == b""


async def test_a_full_disk_takes_what_fits() -> None:
    """And gives the reserve back."""
    disk = SimulatedDisk("main", Draws(3), capacity_bytes=100)
    await disk.set_reserve(50)
    file = await disk.create("a")
    with pytest.raises(OSError, match="No space"):
        await file.write(b"x" * 60)
    assert len(disk.read("a", 0, 100)) == 50
    await disk.set_reserve(0)
    await file.write(b"x" * 50)
    with pytest.raises(OSError, match="No space"):
        await disk.set_reserve(1)


async def test_a_halted_disk_answers_nobody(autojump_clock: MockClock) -> None:
    """From that operation on each call hangs, and the test is notified."""
    disk = SimulatedDisk("main", Draws(3), faults={2: "halt"})
    file = await disk.create("a")
    for _ in range(2):
        with trio.move_on_after(1) as scope:
            await file.write(b"x")
        assert scope.cancelled_caught
    assert disk.halted.is_set()

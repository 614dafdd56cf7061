"""Writers on failing disks, crashing one after another.

The seed names a run. The second location ends with the boot, like `/run`. After every crash: no durable
record is lost, no journal is called corrupt, and each record keeps its chain hash.
"""

from __future__ import annotations

import os

import pytest
import trio
from trio.testing import MockClock

from ebbtide.events.base import Checkpoint
from ebbtide.events.codec import RawRecord
from ebbtide.events.reader import History
from ebbtide.events.recovery import Verdict
from ebbtide.replay.sim.scenario import Draws
from tests.events.making import OTHER_ID, running, stamp, step
from tests.world.disk import Fault, SimulatedDisk

#: More of them on demand: ``EBBTIDE_SEEDS=5000 pytest tests/events/test_writer_lives.py``.
SEEDS = int(os.environ.get("EBBTIDE_SEEDS", "60"))
LIVES, STEPS = 4, 12
OPERATIONS = 40
READS_OF_A_START = 20


class World:
    """Two locations, and the durable records of all lives."""

    def __init__(self, seed: int) -> None:
        self.draws = Draws(seed)
        self.main, self.other = self._disk("main"), self._disk("other")
        self.hashes: dict[int, bytes] = {}
        self.written_seq = self.durable_seq = 0

    def _disk(self, location: str) -> SimulatedDisk:
        return SimulatedDisk(location, self.draws.fork(location), latency_microseconds_max=3000)

    def read(self) -> tuple[list[RawRecord], Verdict]:
        history = History([self.main, self.other])
        return list(history.raw()), history.verdict

    def arm(self) -> None:
        """Faults for the next life: mostly of the first disk, sometimes fatal.

        The second location is readable when a life begins: a history only there, and unreadable, is a gap by
        design.
        """
        faults: list[Fault] = ["eio", "torn", "enospc", "hang"]
        for disk, times, first in ((self.main, 2, 0), (self.other, 1, READS_OF_A_START)):
            at = [first + self.draws.below(OPERATIONS) for _ in range(self.draws.below(times + 1))]
            disk._faults = {each: self.draws.pick(faults) for each in at}
        if self.draws.chance(1, 2):
            self.main._faults[self.draws.below(OPERATIONS)] = "halt"

    def crash(self) -> None:
        power = self.draws.chance(1, 2)
        self.main = self.main.crash(power=power)
        self.main._latency_microseconds_max = 3000
        self.other = self._disk("other") if power else self.other.crash(power=False)
        self.written_seq = self.durable_seq if power else self.written_seq


async def live(world: World, verdict: Verdict) -> None:
    """One process: appends, sometimes waits or rotates, and dies by draw."""
    world.arm()
    with trio.move_on_after(world.draws.between(1, 400) / 100):
        async with running([world.main, world.other], verdict.start(OTHER_ID)) as writer:
            begun = writer.last_seq
            for number in range(STEPS):
                if world.draws.chance(1, 6):
                    writer.begin_segment(stamp(writer.last_seq + 1), Checkpoint(episode=0))
                records = step(writer.last_seq + 1, synced=world.draws.chance(1, 3))
                hashes = writer.append(records)
                if number == 0:
                    world.hashes = {seq: made for seq, made in world.hashes.items() if seq < begun}
                world.hashes |= {record.seq: made for record, made in zip(records, hashes, strict=True)}
                with trio.move_on_after(world.draws.below(50) / 1000):
                    await writer.wait_written(writer.last_seq)
                    await writer.wait_synced(writer.last_seq)
                if not writer.lost:
                    world.written_seq = max(world.written_seq, writer.written_seq)
                if writer.location == "main":
                    world.durable_seq = max(world.durable_seq, writer.synced_seq)
            await trio.sleep(1)


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_nothing_promised_is_lost_over_many_lives(autojump_clock: MockClock, seed: int) -> None:
    """Written survives death, synced survives a power cut, damage is at most a tear."""
    world = World(seed)
    for _ in range(LIVES):
        _, verdict = world.read()
        await live(world, verdict)
        world.crash()
        raws, verdict = world.read()
        assert verdict.state in ("intact", "torn"), verdict.banner
        assert verdict.end.seq >= world.written_seq, verdict.banner
        assert [raw.seq for raw in raws] == list(range(1, len(raws) + 1))
        given = [(raw.hash, world.hashes.get(raw.seq, raw.hash)) for raw in raws]
        assert all(found == promised for found, promised in given)

"""After any end of a simulated machine, the next boot judges the last one by its records alone.

`tests.actors.policy.test_resume` tests the judgement.
"""

from __future__ import annotations

import os
from random import Random

import pytest
from msgspec.structs import replace

from ebbtide.events import decisions as d
from ebbtide.events.base import Record, Stamp
from ebbtide.events.codec import FLAG_LAST, decode_record
from ebbtide.events.facts import DaemonStarted, LastBootRead
from ebbtide.events.reader import History
from ebbtide.replay.replayer import Replayer
from ebbtide.replay.sim.simulate import SimulationRequest, simulate
from tests.journals import Memory

SEEDS = int(os.environ.get("EBBTIDE_SEEDS", "12"))
CUTS = 12


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whenever_it_goes_down(seed: int) -> None:
    """One record of the last shutdown's end, when it is asked about this boot."""
    random = Random(seed)
    files = simulate(SimulationRequest(synthetic=12), seed).files()
    raws = list(History([Memory(files)]).raw())
    ends = [at for at, raw in enumerate(raws) if raw.flags & FLAG_LAST]
    for cut in random.sample(ends, min(CUTS, len(ends))):
        outcome, wave, start, failed = "nothing", -1, None, False
        for record in map(decode_record, raws[: cut + 1]):
            match record.event:
                case DaemonStarted() as start:
                    pass
                case d.ShutdownBegan():
                    outcome, wave = "open", -1
                case d.WaveStarted(wave=wave):
                    pass
                case d.ReleaseLock() if outcome == "open":
                    outcome = "released"
                case d.ShutdownCancelled() | d.EpisodeClosed():
                    outcome = "nothing"
                case d.ActorFailed():
                    failed = True
        if start is None or failed:
            continue
        replayer = Replayer(goes_on=True)
        replayer.feed(raws[: cut + 1])
        system, last = replayer.system, raws[cut]
        system.next_seq = last.seq + 1
        other = replace(start, boot_id="other", userspace_id="other", preparing=False)
        system.step(other, Stamp(1, last.wall_ns))
        read = LastBootRead(boot_id=start.boot_id, alive_wall_ns=random.choice((0, 7)))
        assert not recorded(system.step(replace(read, boot_id="another"), Stamp(2, last.wall_ns)))
        (ended,) = recorded(system.step(read, Stamp(3, last.wall_ns)))
        assert not recorded(system.step(read, Stamp(4, last.wall_ns)))
        assert ended.recorded == (outcome != "nothing")
        assert ended.alive_wall_ns == read.alive_wall_ns
        if outcome == "released":
            assert ended.ending == "graceful"
        elif outcome == "open":
            assert (ended.ending, ended.wave) == ("cut-short" if wave >= 0 else "never-begun", wave)
        else:
            assert ended.ending in ("never-begun", "abrupt", "unknown")


def recorded(records: list[Record]) -> list[d.LastBootEnded]:
    return [record.event for record in records if isinstance(record.event, d.LastBootEnded)]

"""Wherever a simulated machine goes down, its next boot says how it ended as its records alone tell it."""

from __future__ import annotations

import os
from random import Random
from typing import get_args

import pytest
from msgspec.structs import replace

from ebbtide.events import decisions as d
from ebbtide.events.base import Record, Stamp
from ebbtide.events.codec import FLAG_LAST, decode_record
from ebbtide.events.facts import DaemonStarted, LastBootRead
from ebbtide.events.reader import History
from ebbtide.events.values import CrashRecord, JournalEnd, WtmpEnd
from ebbtide.replay.replayer import Replayer
from ebbtide.replay.sim.simulate import SimulationRequest, simulate
from tests.journals import Memory

SEEDS = int(os.environ.get("EBBTIDE_SEEDS", "12"))
CUTS = 12
TRUTH = (True, False)


class Told:
    """What the records of a journal say of how a boot stands, told by single events."""

    def __init__(self) -> None:
        self.outcome, self.wave, self.overtime = "nothing", -1, False
        self.armed = self.left = False
        #: None: this boot ended before anything was said of it.
        self.enabled: bool | None = None
        self.start: DaemonStarted | None = None
        self.failed = False

    def see(self, record: Record) -> None:
        match record.event:
            case DaemonStarted():
                self.start, self.armed, self.left = record.event, False, False
            case d.ConfigAdopted():
                self.enabled = record.event.enabled
            case d.Armed():
                self.armed = True
            case d.Disarmed():
                self.armed = False
            case d.Leave():
                self.left = True
            case d.ShutdownDetected():
                if not record.event.again:
                    self.overtime = record.event.overtime
            case d.ShutdownBegan():
                self.outcome, self.wave = "open", -1
            case d.WaveStarted():
                self.wave = record.event.wave
            case d.ReleaseLock():
                self.outcome = "released" if self.outcome == "open" else self.outcome
            case d.ShutdownCancelled() | d.EpisodeClosed():
                self.outcome = "nothing"
            case d.ActorFailed():
                self.failed = True


def drawn(random: Random, boot_id: str) -> LastBootRead:
    return LastBootRead(
        boot_id=boot_id,
        crash=random.choice(get_args(CrashRecord)),
        wtmp=random.choice(get_args(WtmpEnd)),
        journal=random.choice(get_args(JournalEnd)),
        kernel_emergency=random.random() < 0.2,
        power_key=random.choice(TRUTH),
        watchdog=random.random() < 0.2,
        kexec=random.random() < 0.2,
        alive_wall_ns=random.choice((0, 7)),
    )


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whenever_it_goes_down(seed: int) -> None:
    """The ending is that of the last shutdown on record; what is blamed on the node is on record as well; and
    it is said once, to the one who asks about this boot.
    """
    random = Random(seed)
    files = simulate(SimulationRequest(synthetic=12), seed).files()
    raws = list(History([Memory(files)]).raw())
    ends = [at for at, raw in enumerate(raws) if raw.flags & FLAG_LAST]
    for cut in random.sample(ends, min(CUTS, len(ends))):
        told = Told()
        for raw in raws[: cut + 1]:
            told.see(decode_record(raw))
        if told.start is None or told.failed:
            continue
        replayer = Replayer(goes_on=True)
        replayer.feed(raws[: cut + 1])
        system, last = replayer.system, raws[cut]
        system.next_seq = last.seq + 1
        other = replace(told.start, boot_id="other", userspace_id="other", preparing=False)
        system.step(other, Stamp(1, last.wall_ns))
        assert not said_in(system.step(drawn(random, "nobody's"), Stamp(2, last.wall_ns)))
        read = drawn(random, told.start.boot_id)
        (ended,) = said_in(system.step(read, Stamp(3, last.wall_ns)))
        assert not said_in(system.step(read, Stamp(4, last.wall_ns)))
        check(told, read, ended)


def said_in(records: tuple[Record, ...] | list[Record]) -> list[d.LastBootEnded]:
    return [record.event for record in records if isinstance(record.event, d.LastBootEnded)]


def check(told: Told, read: LastBootRead, ended: d.LastBootEnded) -> None:
    assert ended.recorded == (told.outcome != "nothing")
    assert ended.alive_wall_ns == read.alive_wall_ns
    if told.outcome == "released":
        assert ended.ending == "graceful"
    elif told.outcome == "open":
        assert (ended.ending, ended.wave) == ("cut-short" if told.wave >= 0 else "never-begun", told.wave)
    else:
        assert ended.ending in ("never-begun", "abrupt", "unknown")
        blamed = {
            "not-configured": told.enabled is False,
            "not-running": told.left,
            "not-armed": not told.armed,
        }
        assert blamed.get(ended.why, True)
        if "shutdown" in (read.wtmp, read.journal) and read.crash != "panic":
            first = next((why for why, holds in blamed.items() if holds), "bypassed")
            assert (ended.ending, ended.why) == ("never-begun", first)
        if ended.why == "bypassed":
            assert (told.armed, told.enabled, told.left) == (True, True, False)
    if told.overtime and told.outcome == "open" and ended.why not in ("panic", "watchdog"):
        assert ended.why == "bypassed"

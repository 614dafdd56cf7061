"""A month of idle journal: what a node's journal holds when nothing happened but the usual.

    python -m benchmarks.idle_month DIR [--days 30] [--megabytes-a-day 1]

A megabyte a day is the most that an idle day may write; here every day does. The facts are those of an idle
node: logind restarted, drop-ins changed, shutdowns scheduled and called off, the configuration reloaded.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import trio

from ebbtide.actors.system import System, take_checkpoint
from ebbtide.events.base import NS_PER_SECOND, Fact, Order, Record, Stamp
from ebbtide.events.disk import SEGMENT_BYTES_MAX, DirectoryStorage
from ebbtide.events.facts import (
    BusLost,
    DaemonStarted,
    DropInsRead,
    LogindRead,
    OrderEnded,
    ScheduleRead,
    SettingsLoaded,
)
from ebbtide.events.segment import SHUTDOWN_LOGIC, Link, WriterStart
from ebbtide.events.values import Period, Settings
from ebbtide.events.writer import Writer
from ebbtide.host import host_name, journal_identity

DAYS, MEGABYTES_A_DAY = 30, 1.0
MEGABYTE = 1_000_000
GRANT_NS = 600 * NS_PER_SECOND
#: Between two facts; longer than any backoff, so that a deadline in between is overdue.
GAP_NS = 60 * NS_PER_SECOND
BEGAN_WALL_NS = 1_700_000_000 * NS_PER_SECOND
JOURNAL_ID = bytes(range(16))


def day() -> Iterator[Fact]:
    """What comes and goes on an idle node, over and over."""
    read = LogindRead(owner=":1.7", grant_ns=GRANT_NS, preparing=False)
    while True:
        yield BusLost(error="logind left the bus")
        yield read
        yield DropInsRead(others_ns=GRANT_NS, others_path="/etc/systemd/logind.conf.d/10-site.conf")
        yield ScheduleRead(
            at_wall_ns=BEGAN_WALL_NS, kind="reboot", uid=0, tty="pts/0", wall_message="upgrade"
        )
        yield ScheduleRead()
        yield settings()


def settings() -> SettingsLoaded:
    periods = tuple(Period(priority=wave * 1000, seconds=30) for wave in range(3))
    return SettingsLoaded(settings=Settings(by_pod_priority=periods))


class Month:
    """Runs the real core on the facts and the real writer behind it."""

    def __init__(self, folder: Path) -> None:
        self.system = System()
        self.now_ns = GAP_NS
        self.bytes = 0
        storages = [DirectoryStorage(folder)]
        start = WriterStart(JOURNAL_ID, Link(), 1)
        self.writer = Writer(
            storages,
            journal_identity(host_name())._replace(logic=SHUTDOWN_LOGIC),
            start,
            on_failed=_fail,
            on_moved=_fail,
            on_lost=_fail,
            last_resort=_fail,
        )

    @property
    def stamp(self) -> Stamp:
        return Stamp(self.now_ns, BEGAN_WALL_NS + self.now_ns)

    def begin_segment(self) -> None:
        self.writer.begin_segment(self.stamp, take_checkpoint(self.system))
        self.system.next_seq += 1

    async def admit(self, fact: Fact) -> None:
        """One fact, and the outcome of every order that it leads to."""
        records = self._step(fact)
        while orders := [record.event for record in records if isinstance(record.event, Order)]:
            records = [
                record for order in orders for record in self._step(OrderEnded(key=order.key, result="done"))
            ]
        if self.writer.segment_bytes > SEGMENT_BYTES_MAX:
            self.begin_segment()
            await self.writer.wait_written(self.writer.last_seq)

    def _step(self, fact: Fact) -> list[Record]:
        self.now_ns += NS_PER_SECOND
        before = self.writer.segment_bytes
        records = self.system.step(fact, self.stamp)
        self.writer.append(records)
        self.bytes += self.writer.segment_bytes - before
        return records

    async def run(self, days: int, bytes_a_day: float) -> None:
        await self.writer.open()
        self.begin_segment()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.writer.run)
            await self.admit(_started())
            await self.admit(settings())
            facts = day()
            while self.bytes < days * bytes_a_day:
                self.now_ns += GAP_NS
                await self.admit(next(facts))
            await self.writer.close()


def _started() -> DaemonStarted:
    who = journal_identity(host_name())
    return DaemonStarted(
        version=who.code_version,
        pid=1,
        mode="process",
        node=who.node,
        boot_id=who.boot_id,
        userspace_id=who.boot_id,
        preparing=False,
    )


def _fail(*words: object) -> None:
    raise OSError(f"the journal cannot be written: {words}")


async def make(folder: Path, days: int = DAYS, megabytes_a_day: float = MEGABYTES_A_DAY) -> int:
    """Write it; returns the number of records."""
    month = Month(folder)
    await month.run(days, megabytes_a_day * MEGABYTE)
    return month.writer.last_seq


def main() -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("folder", type=Path, metavar="DIR", help="where the journal is made")
    options.add_argument("--days", type=int, default=DAYS, help=f"default {DAYS}")
    options.add_argument("--megabytes-a-day", type=float, default=MEGABYTES_A_DAY, help="default 1")
    arguments = options.parse_args()
    count = trio.run(make, arguments.folder, arguments.days, arguments.megabytes_a_day)
    print(f"{count} records of {arguments.days} idle days in {arguments.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""One run of the exporter's process: a job, the exporters that it takes, and the metrics at the end."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import trio

from events.catalog import find_path
from events.source import DirectorySource
from otel.delivery import cursor as cursors
from otel.delivery.control import Job
from otel.delivery.cursor import Cursor
from otel.delivery.exporter import Exporter
from otel.delivery.measures import send_metrics
from otel.delivery.senders import sender_for
from otel.delivery.signals import METRICS_METHOD, METRICS_PATH, TRACES, Signal, at, of_job
from otel.delivery.surroundings import Voice
from otel.delivery.tail import Tail

#: Metrics that do not arrive in that time are contained in the next ones.
MEASURE_SECONDS_MAX = 3.0

IN_MEMORY = ("tmpfs", "ramfs")

#: All of a journal that nobody writes any more is durable, or never will be.
ALL = 2**63


class LogOnly:
    """The voice of what goes beside the traces."""

    def __init__(self, voice: Voice) -> None:
        self.log = voice.log

    def well(self, reason: str) -> None:
        """Nobody waits for it."""


class Errand:
    """``exporters``: the traces' first. Raises BadDestination."""

    def __init__(self, job: Job, voice: Voice) -> None:
        self._job, self._voice = job, voice
        self._sources = [DirectorySource(path) for path in job.locations]
        self.directory = _directory(job.locations)
        self.signals = of_job(job.destination)
        self.exporters = [self._exporter(signal) for signal in self.signals]

    def _exporter(self, signal: Signal, journal: str = "") -> Exporter:
        """Whether the back end is well is asked of the traces alone: nobody waits for the rest."""
        job = self._job
        sender = sender_for(at(job.destination, signal.path), signal.method)
        voice = self._voice if signal is TRACES else LogOnly(self._voice)
        keep = partial(cursors.save, self.directory, name=signal.cursor)
        return Exporter(
            self._tail(journal), sender, signal.encode, voice, keep, project=signal.project, name=signal.name
        )

    def _tail(self, journal: str = "") -> Tail:
        return Tail(self._sources, journal, volatile=_volatile(self._job.locations))

    async def finish_former(self) -> str:
        """What was left of a journal that could not be gone on with, beside which another was begun: why the
        back end did not take it, or nothing. Its damage holds nobody up: it may be why it was left.
        """
        found = cursors.load_first(self._job.locations)
        if found is None or found.journal[:8] not in find_path(self._sources).others:
            return ""
        exporter = self._exporter(TRACES, found.journal)
        exporter.learn(ALL)
        exporter.leave()
        reason = await exporter.run(found)
        return reason if exporter.gave_up else ""

    async def run(self) -> bool:
        """Every signal to its end; whether all of it went."""
        reasons: list[str] = []

        async def follow(exporter: Exporter, cursor: Cursor | None) -> None:
            reasons.append(await exporter.run(cursor))

        async with trio.open_nursery() as nursery:
            for signal, exporter in zip(self.signals, self.exporters, strict=True):
                nursery.start_soon(follow, exporter, cursors.load_first(self._job.locations, signal.cursor))
        await self._measure()
        return not any(reasons)

    async def _measure(self) -> None:
        """The metrics as they stand now; the next exporter sends newer ones."""
        if "metrics" not in self._job.destination.signals:
            return
        with trio.move_on_after(MEASURE_SECONDS_MAX):
            sender = sender_for(at(self._job.destination, METRICS_PATH), METRICS_METHOD)
            try:
                reason = await send_metrics(sender, self._sources, self._tail(), self._job.metrics_prefix)
            except OSError as error:
                reason = f"the journal cannot be read: {error}"
            if reason:
                self._voice.log(4, f"metrics: {reason}")
            await sender.aclose()


def _directory(locations: Sequence[str]) -> str:
    """The first location that is there and can be written."""
    usable = (path for path in locations if os.access(path, os.W_OK))
    return next(usable, locations[0])


def _volatile(locations: Sequence[str]) -> tuple[str, ...]:
    """The fallbacks that go with the boot: what stands there only is not durable, whatever was synced."""
    mounts = []
    with suppress(OSError), open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as file:
        mounts = [line.split()[1:3] for line in file]
    return tuple(path for path in locations[1:] if _kind(os.path.realpath(path), mounts) in IN_MEMORY)


def _kind(path: str, mounts: Sequence[Sequence[str]]) -> str:
    """The file system that a path is on: that of the longest mount point before it, the last one of these."""
    found = [each for each in mounts if os.path.commonpath((path, each[0])) == each[0]]
    return max(reversed(found), key=lambda each: len(each[0]), default=("", ""))[1]

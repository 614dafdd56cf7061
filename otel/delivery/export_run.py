"""One run of the exporter's process: a job, the signals that it delivers, and the metrics at the end.

Traces are delivered always, log records and metrics where they are asked for. Traces and log records are
projections with a cursor each, delivered by the same exporter; metrics are sums, of which only the newest
matter: they are sent once, as they stand in what is durable of the journal, and nothing of them is kept or
tried again. The endpoint of one signal follows from that of the traces (OTLP specification, "Endpoint URLs
for OTLP/HTTP").
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

import msgspec
import trio

from ebbtide.events.catalog import DirectorySource, Source, find_path
from ebbtide.events.codec import BadPayload, UnknownType, decode_record
from ebbtide.otel.delivery import cursor as cursors
from ebbtide.otel.delivery.answers import Accepted, Answer
from ebbtide.otel.delivery.cursor import Cursor
from ebbtide.otel.delivery.destination import PATHS, TRACES_PATH, BadDestination, Destination, Job, SignalName
from ebbtide.otel.delivery.exporter import Exporter, ExporterLog, SignalProjection, Tail
from ebbtide.otel.delivery.exporters import sender_for
from ebbtide.otel.delivery.sender import BatchMaker, Sender
from ebbtide.otel.logs import Logs
from ebbtide.otel.meters import METERED, Meters, fold, kept_meters
from ebbtide.otel.metric_table import ReadContext
from ebbtide.otel.sdk import readable_spans
from ebbtide.otel.span import Resource
from ebbtide.otel.traces.projection import Projection, resource_of, with_given

#: Metrics that do not arrive in that time are contained in the next ones.
METRICS_SECONDS_MAX = 3.0

IN_MEMORY = ("tmpfs", "ramfs")

#: All of a journal that nobody writes any more is durable, or never will be.
SEQ_MAX = 2**63


class LogOnly:
    """For what goes beside the traces: whether the back end answers is asked of the traces alone."""

    def __init__(self, log: ExporterLog) -> None:
        self.log = log.log

    def well(self, reason: str) -> None:
        """Nobody waits for it."""


class ExportRun:
    """``exporters``: the traces' first. Raises BadDestination."""

    def __init__(self, job: Job, log: ExporterLog) -> None:
        self._job, self._log = job, log
        self._sources = [DirectorySource(path) for path in job.locations]
        #: Where the cursors are kept: the first location that is there and can be written.
        writable = (path for path in job.locations if os.access(path, os.W_OK))
        self.directory = next(writable, job.locations[0])
        self.signals = signals_of(job.destination)
        # All of them now, also what is sent at the very end: with an exporter its library is loaded.
        self.exporters = [self._exporter(signal) for signal in self.signals]
        self._metrics = None
        if "metrics" in job.destination.signals:
            import ebbtide.otel.sdk_beside  # noqa: F401

            self._metrics = self._sender(METRICS_PATH, "metrics")

    def _exporter(self, signal: Signal, journal: str = "") -> Exporter:
        """Whether the back end is well is asked of the traces alone: nobody waits for the rest."""
        sender = self._sender(signal.path, signal.name)
        log = self._log if signal is TRACES else LogOnly(self._log)
        keep = partial(cursors.save, self.directory, name=signal.cursor)
        return Exporter(
            self._tail(journal), sender, signal.readable, log, keep, project=signal.project, name=signal.name
        )

    def _sender(self, path: str, name: SignalName) -> Sender:
        return sender_for(destination_for(self._job.destination, path), name)

    def _tail(self, journal: str = "") -> Tail:
        return Tail(self._sources, journal, volatile=_volatile(self._job.locations))

    async def finish_former(self) -> str:
        """What was left of a journal that could not be gone on with, beside which another was begun: why the
        back end did not take it, or nothing. Its damage holds nobody up: it may be why it was left.
        """
        found = cursors.load_first(self._job.locations)
        # Of one whose headers are all damaged only the begin of its id is known.
        if found is None or not any(map(found.journal.startswith, find_path(self._sources).others)):
            return ""
        exporter = self._exporter(TRACES, found.journal)
        exporter.learn(SEQ_MAX)
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
        sender = self._metrics
        if sender is None:
            return not any(reasons)
        # Last, when everything that they count has been read. They change nothing in what is reported: those
        # of the next exporter contain them.
        with trio.move_on_after(METRICS_SECONDS_MAX):
            try:
                job = self._job
                reason = await send_metrics(
                    sender, self._sources, self._tail(), job.metrics_prefix, job.resource
                )
            except OSError as error:
                reason = f"the journal cannot be read: {error}"
            if reason:
                self._log.log(4, f"metrics: {reason}")
            await sender.aclose()
        return not any(reasons)


def _volatile(locations: Sequence[str]) -> tuple[str, ...]:
    """The fallbacks that go with the boot: what stands there only is not durable, whatever was synced."""
    # What cannot be read makes no location volatile: then spans may go out that a power cut takes from the
    # journal, and nobody waits for ever for spans that never become durable.
    mounts = []
    with suppress(OSError), open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as file:
        mounts = [line.split()[1:3] for line in file]
    found = []
    for location in locations[1:]:
        path = os.path.realpath(location)
        # The file system of the longest mount point before it, the last one of these.
        above = [each for each in mounts if os.path.commonpath((path, each[0])) == each[0]]
        if above and max(reversed(above), key=lambda each: len(each[0]))[1] in IN_MEMORY:
            found.append(location)
    return tuple(found)


# --- what can be delivered ------------------------------------------------------------------------


class Signal(NamedTuple):
    """``path`` over HTTP; ``cursor`` is the side file's name; ``readable`` gives the SDK's types."""

    name: SignalName
    path: str
    cursor: str
    project: Callable[[], SignalProjection]
    readable: BatchMaker


TRACES = Signal("traces", TRACES_PATH, cursors.FILE_NAME, Projection, readable_spans)

LOGS_PATH, METRICS_PATH = "/v1/logs", "/v1/metrics"


def logs_signal() -> Signal:
    """The SDK's part for them is loaded with it: most nodes send traces alone."""
    from ebbtide.otel.sdk_beside import readable_logs

    return Signal("logs", LOGS_PATH, cursors.LOGS_NAME, Logs, readable_logs)  # type: ignore[arg-type]


def signals_of(destination: Destination) -> tuple[Signal, ...]:
    """What an exporter follows the journal for, the traces first."""
    return (TRACES, *((logs_signal(),) if "logs" in destination.signals else ()))


def destination_for(destination: Destination, path: str) -> Destination:
    """The same back end for another signal, or that signal's own. Raises BadDestination where nobody can know
    its place.
    """
    if own := next((own for each, own in destination.beside.items() if PATHS[each] == path), None):
        return own
    if destination.exporter or destination.protocol == "grpc" or path == TRACES_PATH:
        return destination
    parts = urlsplit(destination.endpoint)
    if not parts.path.endswith(TRACES_PATH):
        raise BadDestination(
            f"{path} does not follow from {parts.path}: name the endpoint without a path of traces"
        )
    whole = urlunsplit(
        (parts.scheme, parts.netloc, parts.path.removesuffix(TRACES_PATH) + path, parts.query, "")
    )
    return msgspec.structs.replace(destination, endpoint=whole)


# --- the metrics, once ----------------------------------------------------------------------------

#: Records of one look; the sums that the daemon keeps leave few.
METRICS_READ_RECORDS = 4096


def meters_of(
    sources: Sequence[Source], tail: Tail, given: Mapping[str, str] = MappingProxyType({})
) -> tuple[Meters, Resource] | None:
    """What the daemon kept, and what became durable since; None for a journal without a segment."""
    tail.look()
    segments = find_path(sources).segments
    header = segments[-1].header if segments else None
    if header is None:
        return None
    # The daemon's sums reach further back than the journal does: retention has removed what they count. Of
    # what is behind them only what a power cut cannot take is added, because a counter never goes back.
    meters = kept_meters(sources, tail.journal_id)
    tail.from_seq = meters.seq + 1
    while batches := tail.read(METRICS_READ_RECORDS):
        for batch in batches:
            for raw in batch.records:
                if raw.tag in METERED:
                    with suppress(BadPayload, UnknownType):
                        fold(meters, (decode_record(raw),))
    return meters, with_given(resource_of(header, tail.journal_id), given)


async def send_metrics(
    sender: Sender, sources: Sequence[Source], tail: Tail, prefix: str, given: Mapping[str, str]
) -> str:
    """Why they did not arrive; nothing where they did."""
    found = meters_of(sources, tail, given)
    if found is None:
        return "there is no journal yet"
    from ebbtide.otel.sdk_beside import metrics_data

    meters, resource = found
    answer: Answer = await sender.send(metrics_data(meters, ReadContext(time.time_ns()), resource, prefix))
    return "" if isinstance(answer, Accepted) else answer.reason

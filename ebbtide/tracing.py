"""Traces, as the daemon sees them: where they go, and a process to start when there is something to send.

The exporter (`otel.delivery`) reads the journal by itself; nothing of a span passes through here. The
daemon starts it, tells it what is durable, asks it at the end of a shutdown whether all has arrived, and
starts it again when it is due. It never waits for it but in the one order that the core gives for that.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec
import trio

from ebbtide.actors.interfaces import Effect, Ending, Outlet, Tell
from ebbtide.config import Loaded
from ebbtide.events.base import NS_PER_SECOND, Order, Record
from ebbtide.events.decisions import PROJECTION_VERSION, FlushTraces, WaveStarted
from ebbtide.events.facts import DaemonStarted
from ebbtide.otel.delivery.cursor import FILE_NAME, LOGS_NAME, keep_from
from ebbtide.otel.delivery.destination import (
    BadDestination,
    DaemonRequest,
    Destination,
    ExporterReport,
    Given,
    Job,
    encode_line,
    resolve_all,
    resource_attributes,
)
from ebbtide.otel.span import hook_span_id, traceparent
from ebbtide.side_process import SideProcess, environment_of_children

#: After the first wave's begin the first signals go first. A tenth of a second has sent them all, and an
#: exporter that begins later may not have connected by the end of a short shutdown.
AFTER_WAVE_SECONDS = 0.1
#: How often the exporter hears how far the disk is.
DURABLE_SECONDS = 0.25

#: What an exporter that has just been started knows of its back end.
NOT_ANSWERED = "the back end has not answered"
#: Not for the exporter of OTLP, whose job says what these said. Another exporter reads its own.
OTLP_VARIABLES = ("OTEL_",)


class SyncedJournal(Protocol):
    """What is asked of the journal's writer."""

    @property
    def journal_id(self) -> bytes: ...

    @property
    def synced_seq(self) -> int: ...

    @property
    def away(self) -> bool: ...


class TracingEdge(SideProcess):
    """``locations``: where the journal may stand, the first one first."""

    def __init__(
        self,
        destination: Destination,
        locations: Sequence[str],
        journal: SyncedJournal,
        tell: Tell,
        metrics_prefix: str = "",
        resource: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__("ebbtide.otel.delivery", "traces", tell)
        self._job = Job(
            destination=destination,
            locations=tuple(locations),
            metrics_prefix=metrics_prefix,
            resource=dict(resource or {}),
        )
        self._journal = journal
        self._flushed: trio.Event | None = None
        self._flush_number, self._answer = 0, ""
        self._unwell = NOT_ANSWERED
        self.effects: Mapping[type[Order], Effect] = {FlushTraces: self._flush}

    # --- when it runs -------------------------------------------------------------------------

    def see(self, records: Sequence[Record]) -> None:
        """A start may have found spans of the last boot; a wave will make some."""
        for record in records:
            if isinstance(record.event, WaveStarted):
                self.want(AFTER_WAVE_SECONDS)
            elif isinstance(record.event, DaemonStarted):
                self.want()

    def keep_from(self) -> int:
        """The first record that is still needed. Reads a file."""
        names = (FILE_NAME, *((LOGS_NAME,) if "logs" in self._job.destination.signals else ()))
        return keep_from(self._job.locations, self._journal.journal_id, self._journal.synced_seq, names)

    def _environment(self) -> dict[str, str]:
        return environment_of_children(() if self._job.destination.exporter else OTLP_VARIABLES)

    # --- what is said -------------------------------------------------------------------------

    async def _send(self) -> None:
        """The job, and then how far the disk is."""
        # Each frame of the journal says what was durable when it was written, so of the last ones no later
        # one says it. Now and then is enough: at the end of a shutdown the flush brings the last word.
        await self._say(encode_line(self._job))
        sent_seq = 0
        while True:
            if self._synced_seq > sent_seq:
                sent_seq = self._synced_seq
                await self._say(encode_line(DaemonRequest(durable=sent_seq)))
            await trio.sleep(DURABLE_SECONDS)

    @property
    def _synced_seq(self) -> int:
        """What is synced in another location may go with the boot: only the exporter can tell."""
        return 0 if self._journal.away else self._journal.synced_seq

    def _hear(self, line: bytes) -> None:
        """One report of the exporter's."""
        try:
            report = msgspec.json.decode(line, type=ExporterReport)
        except ValueError:  # also what is not UTF-8
            return
        if report.well is not None:
            self._unwell = "" if report.well else report.text
        elif not report.flushed:
            self._tell(report.level, report.text)
        # The answer to an earlier flush, which nobody waits for any more, says nothing of this one.
        elif report.number == self._flush_number:
            self._end_flush(report.text)

    def _over(self) -> None:
        self._unwell = NOT_ANSWERED
        # Whoever waits for a flush would else wait out its time, and a shutdown with it.
        self._end_flush("the exporter has ended")

    def _end_flush(self, answer: str) -> None:
        self._answer = answer
        if self._flushed is not None:
            self._flushed.set()

    # --- the one order ------------------------------------------------------------------------

    async def _flush(self, order: FlushTraces, outlet: Outlet) -> Ending:
        """Whether all that has ended so far has arrived."""
        # Not waited for where nothing runs, nor for a back end that has not answered yet: what has not
        # arrived is sent later, and no shutdown takes longer for a collector that is down.
        if self._process is None or self._unwell:
            return Ending("failed", "no exporter runs" if self._process is None else self._unwell)
        self._flushed = trio.Event()
        self._flush_number += 1
        asked = DaemonRequest(durable=self._synced_seq, flush=True, number=self._flush_number)
        with trio.move_on_after(order.timeout_ns / NS_PER_SECOND):
            await self._say(encode_line(asked))
            await self._flushed.wait()
            return Ending("failed", self._answer) if self._answer else Ending()
        return Ending("timed-out", "the rest of the trace is sent later")

    def prewarm(self) -> None:
        """What is imported late is imported in another process."""

    def detach(self) -> None:
        """The exporter sees its pipe end, and has a few seconds of its own."""

    async def adopt(self, order: Order, outlet: Outlet) -> Ending | None:
        """A former daemon's exporter goes with its pipe; ours begins where its cursor stands."""
        return Ending("failed", "the daemon was restarted")


# What the composition root settles about traces: where they go, who waits for them, what hooks are told.


def destination_of(loaded: Loaded, environ: Mapping[str, str]) -> Destination | None:
    """Where spans go; None: nowhere. Raises BadDestination."""
    return resolve_all(environ, loaded.config.tracing.given)


def usable_destination(loaded: Loaded, tell: Tell) -> Destination | None:
    """The same for a daemon: a stray variable must not leave a node unprotected."""
    try:
        return destination_of(loaded, os.environ)
    except BadDestination as error:
        tell(3, f"traces are not exported: {error}")
        return None


def outage_destination(given: Given, environ: Mapping[str, str], tell: Tell) -> Destination | None:
    """The same for the controller of outages, by what its own configuration says."""
    try:
        return resolve_all(environ, given)
    except BadDestination as error:
        tell(3, f"traces are not exported: {error}")
        return None


def with_trace_flush(load: Callable[[], Loaded]) -> Callable[[], Loaded]:
    """Configurations that ask the end of a shutdown to wait for its trace, for a daemon that exports."""

    def read() -> Loaded:
        loaded = load()
        flush_ns = loaded.config.tracing.flush_ns
        return loaded._replace(settings=msgspec.structs.replace(loaded.settings, trace_flush_ns=flush_ns))

    return read


def usable_resource(environ: Mapping[str, str], tell: Tell) -> dict[str, str]:
    """What telemetry says of this node beside its names; a mistake in it is told, and keeps nothing else."""
    try:
        return resource_attributes(environ)
    except BadDestination as error:
        tell(3, f"the resource of traces is without what the environment says: {error}")
        return {}


def with_projection(load: Callable[[], Loaded], resource: Mapping[str, str]) -> Callable[[], Loaded]:
    """Configurations that put on record how this program makes spans, and of which node, whether or not
    anything is exported: a trace can be made of the journal at any time.
    """
    given = dict(resource)

    def read() -> Loaded:
        loaded = load()
        settings = msgspec.structs.replace(
            loaded.settings, projection_version=PROJECTION_VERSION, resource=given
        )
        return loaded._replace(settings=settings)

    return read


def hook_context(trace_id: str, order_key: str) -> str:
    """The ``traceparent`` under which a hook's own spans belong; empty outside of a shutdown."""
    trace = bytes.fromhex(trace_id)
    return traceparent(trace, hook_span_id(trace, order_key)) if trace else ""

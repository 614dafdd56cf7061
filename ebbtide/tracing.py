"""The daemon's side of traces: their destination, and the exporter's process.

The exporter (`otel.delivery`) reads the journal itself. The daemon starts it, reports the durable record,
asks at the end of a shutdown whether all spans have arrived, and restarts it when due. Only that one order
waits for it.
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

#: Delay after the first wave's begin, so that the first signals go first. With more, the exporter may not
#: connect before a short shutdown ends.
AFTER_WAVE_SECONDS = 0.1
#: How often the exporter receives the last durable record.
DURABLE_SECONDS = 0.25

#: A new exporter's knowledge of its back end.
NOT_ANSWERED = "the back end has not answered"
#: Variables that OTLP's exporter does not need: its job has their content. Other exporters read them.
OTLP_VARIABLES = ("OTEL_",)


class SyncedJournal(Protocol):
    """The part of the journal's writer that is used here."""

    @property
    def journal_id(self) -> bytes: ...

    @property
    def synced_seq(self) -> int: ...

    @property
    def away(self) -> bool: ...


class TracingEdge(SideProcess):
    """``locations``: possible places of the journal, the first one first."""

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
        """A start may have found spans of the last boot; a wave makes new ones."""
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

    # --- messages -----------------------------------------------------------------------------

    async def _send(self) -> None:
        """The job, then the durable record from time to time."""
        # Each frame of the journal has the durable record of its time, so the last frames lack it. An
        # update now and then is enough: the flush at the end of a shutdown has the last one.
        await self._say(encode_line(self._job))
        sent_seq = 0
        while True:
            if self._synced_seq > sent_seq:
                sent_seq = self._synced_seq
                await self._say(encode_line(DaemonRequest(durable=sent_seq)))
            await trio.sleep(DURABLE_SECONDS)

    @property
    def _synced_seq(self) -> int:
        """Records in another location may be lost with the boot: only the exporter decides."""
        return 0 if self._journal.away else self._journal.synced_seq

    def _hear(self, line: bytes) -> None:
        """One report of the exporter."""
        try:
            report = msgspec.json.decode(line, type=ExporterReport)
        except ValueError:  # also what is not UTF-8
            return
        if report.well is not None:
            self._unwell = "" if report.well else report.text
        elif not report.flushed:
            self._tell(report.level, report.text)
        # An answer to an earlier flush does not answer this one.
        elif report.number == self._flush_number:
            self._end_flush(report.text)

    def _over(self) -> None:
        self._unwell = NOT_ANSWERED
        # End the wait of a flush now: otherwise the shutdown would wait until its deadline.
        self._end_flush("the exporter has ended")

    def _end_flush(self, answer: str) -> None:
        self._answer = answer
        if self._flushed is not None:
            self._flushed.set()

    # --- the one order ------------------------------------------------------------------------

    async def _flush(self, order: FlushTraces, outlet: Outlet) -> Ending:
        """Whether the spans of everything that ended have arrived."""
        # Do not wait for an absent process or a back end without an answer so far: the exporter sends the
        # rest later, and a dead collector does not delay the shutdown.
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
        """No-op: the other process imports late code."""

    def detach(self) -> None:
        """The exporter sees the end of its pipe and has a few seconds left."""

    async def adopt(self, order: Order, outlet: Outlet) -> Ending | None:
        """A former daemon's exporter ends with its pipe; ours continues at its cursor."""
        return Ending("failed", "the daemon was restarted")


# For the daemon's assembly: the destination, the settings, the context of hooks.


def destination_of(loaded: Loaded, environ: Mapping[str, str]) -> Destination | None:
    """Where spans go; None: nowhere. Raises BadDestination."""
    return resolve_all(environ, loaded.config.tracing.given)


def usable_destination(loaded: Loaded, tell: Tell) -> Destination | None:
    """The same for a daemon: a wrong variable must not leave a node unprotected."""
    try:
        return destination_of(loaded, os.environ)
    except BadDestination as error:
        tell(3, f"traces are not exported: {error}")
        return None


def outage_destination(given: Given, environ: Mapping[str, str], tell: Tell) -> Destination | None:
    """The same for the controller of outages, from its own configuration."""
    try:
        return resolve_all(environ, given)
    except BadDestination as error:
        tell(3, f"traces are not exported: {error}")
        return None


def with_trace_flush(load: Callable[[], Loaded]) -> Callable[[], Loaded]:
    """Configurations with the trace's flush at the end of a shutdown, for a daemon that exports."""

    def read() -> Loaded:
        loaded = load()
        flush_ns = loaded.config.tracing.flush_ns
        return loaded._replace(settings=msgspec.structs.replace(loaded.settings, trace_flush_ns=flush_ns))

    return read


def usable_resource(environ: Mapping[str, str], tell: Tell) -> dict[str, str]:
    """The node's resource attributes from the environment; logs a mistake and then has none."""
    try:
        return resource_attributes(environ)
    except BadDestination as error:
        tell(3, f"the resource of traces is without what the environment says: {error}")
        return {}


def with_projection(load: Callable[[], Loaded], resource: Mapping[str, str]) -> Callable[[], Loaded]:
    """Configurations that record this program's version of spans and the node's attributes, whether or not
    it exports: a trace can be made from the journal at any time.
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
    """The ``traceparent`` for a hook's own spans; empty outside of a shutdown."""
    trace = bytes.fromhex(trace_id)
    return traceparent(trace, hook_span_id(trace, order_key)) if trace else ""

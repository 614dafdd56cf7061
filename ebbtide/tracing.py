"""Traces in the daemon: where they go, and when a follower sends them.

The daemon waits for the follower only at the end of a shutdown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
import trio

from ebbtide.actors.interfaces import Ending, Outlet, Tell
from ebbtide.config import Loaded
from ebbtide.events.base import NS_PER_SECOND, Order, Record
from ebbtide.events.decisions import PROJECTION_VERSION, FlushTraces, WaveStarted
from ebbtide.events.facts import DaemonStarted
from ebbtide.events.writer import Writer
from ebbtide.otel.cursor import keep_from
from ebbtide.otel.destination import (
    BadDestination,
    Destination,
    Given,
    from_environment,
    resolve,
    resource_attributes,
)
from ebbtide.otel.span import hook_span_id, traceparent
from ebbtide.side_process import OtlpJob, Report, Request, SideProcess, environment_of_children

#: After the first wave began: all first signals are sent by then. A later follower may not connect before a
#: short shutdown ends.
AFTER_WAVE_SECONDS = 0.1
DURABLE_SECONDS = 0.25

NOT_ANSWERED = "the back end has not answered"
#: The job has OTLP's values. Another exporter reads its own variables.
OTLP_VARIABLES = ("OTEL_",)


class TracingEdge(SideProcess):
    """``locations``: where the journal may be, the first one first."""

    def __init__(
        self,
        destination: Destination,
        locations: Sequence[str],
        journal: Writer,
        tell: Tell,
    ) -> None:
        super().__init__("traces", tell)
        self._job = OtlpJob(destination=destination, locations=tuple(locations))
        self._journal = journal
        self._flushed: trio.Event | None = None
        self._flush_number, self._answer = 0, ""
        self._unwell = NOT_ANSWERED
        self.effects = {FlushTraces: self._flush}

    def see(self, records: Sequence[Record]) -> None:
        """A start may find spans of the last boot; a wave will make some."""
        for record in records:
            if isinstance(record.event, WaveStarted):
                self.want(AFTER_WAVE_SECONDS)
            elif isinstance(record.event, DaemonStarted):
                self.want()

    def keep_from(self) -> int:
        """The first record that is still needed. Reads a file."""
        return keep_from(self._job.locations, self._journal.journal_id, self._journal.synced_seq)

    def _environment(self) -> dict[str, str]:
        return environment_of_children(OTLP_VARIABLES)

    async def _send(self) -> None:
        # The journal's frames show which records are durable, except the last ones.
        await self._write(self._job)
        sent_seq = 0
        while True:
            if self._synced_seq > sent_seq:
                sent_seq = self._synced_seq
                await self._write(Request(durable=sent_seq))
            await trio.sleep(DURABLE_SECONDS)

    @property
    def _synced_seq(self) -> int:
        """A sync in another location may not outlive the boot: the follower decides."""
        return 0 if self._journal.away else self._journal.synced_seq

    def _reported(self, report: Report) -> None:
        if report.well is not None:
            self._unwell = "" if report.well else report.text
        elif not report.flushed:
            self._tell(report.level, report.text)
        # Not an earlier flush's late answer.
        elif report.number == self._flush_number:
            self._end_flush(report.text)

    def _over(self) -> None:
        self._unwell = NOT_ANSWERED
        self._end_flush("the exporter has ended")

    def _end_flush(self, answer: str) -> None:
        self._answer = answer
        if self._flushed is not None:
            self._flushed.set()

    async def _flush(self, order: FlushTraces, outlet: Outlet) -> Ending:
        """Waits until all spans that have ended have arrived. The rest is sent later: no shutdown takes
        longer for a collector that is down.
        """
        if self._process is None or self._unwell:
            return Ending("failed", "no exporter runs" if self._process is None else self._unwell)
        self._flushed = trio.Event()
        self._flush_number += 1
        asked = Request(durable=self._synced_seq, flush=True, number=self._flush_number)
        with trio.move_on_after(order.timeout_ns / NS_PER_SECOND):
            await self._write(asked)
            await self._flushed.wait()
            return Ending("failed", self._answer) if self._answer else Ending()
        return Ending("timed-out", "the rest of the trace is sent later")

    async def adopt(self, order: Order, outlet: Outlet) -> Ending | None:
        """The former daemon's follower ends with its pipe."""
        return Ending("failed", "the daemon was restarted")


def usable_destination(given: Given, environ: Mapping[str, str], tell: Tell) -> Destination | None:
    """Where spans go; None: nowhere. Logs a mistake: a wrong variable must not leave a node unprotected."""
    try:
        return resolve(given, from_environment(environ))
    except BadDestination as error:
        tell(3, f"traces are not exported: {error}")
        return None


def usable_resource(environ: Mapping[str, str], tell: Tell) -> dict[str, str]:
    """Empty after a mistake, which it logs."""
    try:
        return resource_attributes(environ)
    except BadDestination as error:
        tell(3, f"the resource of traces is without what the environment says: {error}")
        return {}


def with_tracing(
    load: Callable[[], Loaded], resource: Mapping[str, str], *, exports: bool
) -> Callable[[], Loaded]:
    """Configurations with the version of spans and the node's attributes, for a later export too.
    ``exports``: a shutdown ends with a flush.
    """
    more = {"projection_version": PROJECTION_VERSION, "resource": dict(resource)}

    def read() -> Loaded:
        loaded = load()
        flush = {"trace_flush_ns": loaded.config.tracing.flush_ns} if exports else {}
        return loaded._replace(settings=msgspec.structs.replace(loaded.settings, **more, **flush))

    return read


def hook_context(trace_id: str, order_key: str) -> str:
    """The ``traceparent`` for a hook's own spans; empty outside of a shutdown."""
    trace = bytes.fromhex(trace_id)
    return traceparent(trace, hook_span_id(trace, order_key)) if trace else ""

"""Traces in the daemon: where they go, and when a follower sends them.

The daemon waits for the follower only in one order of the core: at the end of a shutdown.
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

#: After the begin of the first wave. All first signals are sent by then, and a later follower may not have
#: connected by the end of a short shutdown.
AFTER_WAVE_SECONDS = 0.1
#: How often the follower learns what is durable.
DURABLE_SECONDS = 0.25

NOT_ANSWERED = "the back end has not answered"
#: Not for OTLP: the job has their values. Another exporter reads its own.
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

    # --- when it runs -------------------------------------------------------------------------

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

    # --- messages -----------------------------------------------------------------------------

    async def _send(self) -> None:
        # The follower reads the same in the journal's frames, but not for the last ones.
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
        # Not the late answer to an earlier flush.
        elif report.number == self._flush_number:
            self._end_flush(report.text)

    def _over(self) -> None:
        self._unwell = NOT_ANSWERED
        self._end_flush("the exporter has ended")

    def _end_flush(self, answer: str) -> None:
        self._answer = answer
        if self._flushed is not None:
            self._flushed.set()

    # --- the one order ------------------------------------------------------------------------

    async def _flush(self, order: FlushTraces, outlet: Outlet) -> Ending:
        """Wait until all spans that have ended have arrived."""
        # No shutdown takes longer for a collector that is down. What has not arrived is sent later.
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


# --- for the composition root -----------------------------------------------------------------------


def usable_destination(given: Given, environ: Mapping[str, str], tell: Tell) -> Destination | None:
    """Where spans go; None: nowhere. Logs a mistake: a wrong variable must not leave a node unprotected."""
    try:
        return resolve(given, from_environment(environ))
    except BadDestination as error:
        tell(3, f"traces are not exported: {error}")
        return None


def usable_resource(environ: Mapping[str, str], tell: Tell) -> dict[str, str]:
    """The node's resource attributes from the environment; logs a mistake and then has none."""
    try:
        return resource_attributes(environ)
    except BadDestination as error:
        tell(3, f"the resource of traces is without what the environment says: {error}")
        return {}


def with_tracing(
    load: Callable[[], Loaded], resource: Mapping[str, str], *, exports: bool
) -> Callable[[], Loaded]:
    """Configurations that record this program's version of spans and the node's attributes, whether or not it
    exports. ``exports``: a shutdown ends with a flush.
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

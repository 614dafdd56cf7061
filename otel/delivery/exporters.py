"""An exporter of OpenTelemetry's SDK as somewhere to send to: OTLP over HTTP, OTLP over gRPC, or whatever
other one is installed here under the name that the environment gives.

An exporter of the SDK blocks, and answers "taken" or "failed". Here it runs in a thread of its own, for as
long as a request may take; who hears more than that (the sessions of OTLP) says it as one of the four answers
of `answers`. Of any other exporter the reason is what it logs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import entry_points
from typing import Any, NamedTuple, Protocol

import trio

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.units import span_s
from ebbtide.extras import install_command
from ebbtide.otel.delivery.answers import Accepted, Again, Answer, Rejected, mask_for, printable_line
from ebbtide.otel.delivery.destination import BadDestination, Destination, SignalName

#: Beyond the time of a request, for the libraries to notice by themselves that it is over.
SLACK_SECONDS = 0.1
#: Where exporters register themselves (entry points), by the name that stands in OTEL_TRACES_EXPORTER.
ENTRY_POINTS = "opentelemetry_traces_exporter"


class SdkExporter(Protocol):
    """What the SDK's exporters of all three signals have in common."""

    def export(self, batch: Any, /) -> Any:
        """The SDK's result: ``SUCCESS`` or ``FAILURE``."""

    def shutdown(self) -> None: ...


class Session(Protocol):
    """Hears what a server says to an exporter's request."""

    answer: Answer | None


class Made(NamedTuple):
    """An exporter, and who hears its server; None where nobody does."""

    exporter: SdkExporter
    session: Session | None


class ExporterSender:
    """One destination, one request at a time. ``make`` gives an exporter, and is called again after one that
    had to be left behind. Raises what ``make`` raises.
    """

    def __init__(self, make: Callable[[], Made], destination: Destination) -> None:
        self._make = make
        self._made: Made | None = self._new()
        self._timeout_seconds = destination.timeout_ns / NS_PER_SECOND
        self._mask = mask_for(destination.headers)

    async def send(self, batch: Any) -> Answer:
        """Until it is answered or its time is over; raises nothing but cancellation."""
        if self._made is None:
            try:
                self._made = self._new()
            except BadDestination as error:
                return Again(str(error))
        made, answered = self._made, False
        try:
            with trio.move_on_after(self._timeout_seconds + SLACK_SECONDS):
                answer = await trio.to_thread.run_sync(self._export, made, batch, abandon_on_cancel=True)
                answered = True
                return answer
            return Again(f"no answer within {span_s(self._timeout_seconds)}")
        finally:
            if not answered:
                # The thread may still be in it: its connection is cut, and the next request has another.
                # Nobody waits for that, because libraries may take their time.
                self._made = None
                threading.Thread(target=_shut_down, args=(made,), daemon=True).start()

    def _new(self) -> Made:
        # What a library says of the environment while it is made may hold somebody's header.
        with LastMessage():
            return self._make()

    def _export(self, made: Made, batch: Any) -> Answer:
        if made.session is not None:
            made.session.answer = None
        with LastMessage() as said:
            try:
                taken = made.exporter.export(batch).name == "SUCCESS"
            except Exception as error:
                return Again(self._reason(f"the exporter failed: {type(error).__name__}: {error}"))
        if made.session is not None:
            # Nothing was sent: too large, or a span that cannot be encoded. In halves either is found.
            return made.session.answer or Rejected(self._reason(said.text), too_large=True)
        return Accepted() if taken else Again(self._reason(said.text))

    def _reason(self, text: str) -> str:
        masked = self._mask(text.encode("utf-8", "replace")).decode("utf-8", "replace")
        return printable_line(masked) or "the exporter failed, and did not say why"

    async def aclose(self) -> None:
        """At once for OTLP; another exporter may take its time, which whoever waits bounds."""
        if self._made is not None:
            await trio.to_thread.run_sync(_shut_down, self._made, abandon_on_cancel=True)


def _shut_down(made: Made) -> None:
    with LastMessage(), suppress(Exception):
        made.exporter.shutdown()


class LastMessage(logging.Handler):
    """``text``: what was logged last in this thread; none of it goes to standard error."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._thread = threading.get_ident()
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread:
            with suppress(Exception):
                self.text = record.getMessage()

    def __enter__(self) -> LastMessage:
        logging.getLogger().addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger().removeHandler(self)


# --- which exporter -------------------------------------------------------------------------------


def sender_for(destination: Destination, signal: SignalName = "traces") -> ExporterSender:
    """Raises BadDestination: certificates that cannot be read, a library or an exporter that is not there."""
    if destination.exporter:
        return ExporterSender(lambda: Made(named_exporter(destination.exporter), None), destination)
    if destination.protocol == "grpc":
        try:
            from ebbtide.otel.delivery.otlp_grpc import GrpcExporter
        except ImportError as error:
            raise BadDestination(
                f"grpc needs the package grpcio: {install_command('grpc')}, or use http/protobuf"
            ) from error

        def make() -> Made:
            exporter = GrpcExporter(destination, signal)
            return Made(exporter, exporter)

        return ExporterSender(make, destination)
    from ebbtide.otel.delivery.otlp_http import HttpSession, http_exporter

    def make_http() -> Made:
        session = HttpSession(destination)
        return Made(http_exporter(destination, signal, session), session)

    return ExporterSender(make_http, destination)


def named_exporter(name: str) -> SdkExporter:
    """Of the SDK (``console``), or of whoever installed one. It reads its own variables. Raises
    BadDestination.
    """
    found = list(entry_points(group=ENTRY_POINTS, name=name))
    if not found:
        known = ", ".join(sorted({"otlp", "none", *(each.name for each in entry_points(group=ENTRY_POINTS))}))
        raise BadDestination(f"OTEL_TRACES_EXPORTER: no exporter {name} is installed: there are {known}")
    try:
        exporter: SdkExporter = found[0].load()()
    except Exception as error:
        what = printable_line(f"{type(error).__name__}: {error}")
        raise BadDestination(f"OTEL_TRACES_EXPORTER: the exporter {name} cannot be made: {what}") from error
    return exporter

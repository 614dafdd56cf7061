"""Sending the trace of any shutdown again, or writing it to a file: the spans are those of the first time.

Only what is known durable is told, as in the exporter: a trace that is sent must not change.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import trio

from ebbtide.cli.episodes import choose
from ebbtide.cli.guard import DONE, NOT_SO, Refused, worst
from ebbtide.cli.output import pairs, remark, show, show_json
from ebbtide.cli.reading import conclude, open_journal
from ebbtide.cli.saving import save
from ebbtide.config import default_paths, load
from events.base import NS_PER_SECOND
from events.episodes import Episode
from otel.delivery.courier import Courier, GaveUp, Loss
from otel.delivery.destination import (
    BadDestination,
    Destination,
    Given,
    checked_endpoint,
    from_environment,
    resolve,
)
from otel.delivery.senders import sender_for
from otel.encode import encode_json, encode_traces
from otel.projection import Projection, UnknownProjection
from otel.span import Resource, Span

EXPORT_VERSION = 1


class Told(NamedTuple):
    """One shutdown's spans, and the exit code of the journal's verdict."""

    episode: Episode
    spans: list[Span]
    resource: Resource
    code: int


def spans_of(journals: Sequence[Path], name: str) -> Told:
    """Raises Refused where there is no such shutdown, or this version cannot project it."""
    episode = choose(journals, name)
    history, projection = open_journal(journals), Projection()
    spans = [
        span
        for header, records in history.batches()
        for span in projection.feed(header, records, history.journal_id)
        if span.episode == episode.first_seq
    ]
    verdict = history.verdict
    try:
        resource = projection.resource(episode.first_seq)
    except UnknownProjection as error:
        raise Refused(str(error)) from None
    except KeyError:
        raise Refused(f"the journal no longer holds the begin of {episode.id}: it has no trace") from None
    durable = [span for span in spans if span.seq <= verdict.durable_seq]
    return Told(episode, durable, resource, conclude(verdict))


def write(journals: Sequence[Path], name: str, output: Path | None) -> int:
    """``otlp-json``: exit code 0, or that of the journal's verdict."""
    told = spans_of(journals, name)
    line = encode_json(told.spans, told.resource) + b"\n"
    save(output, (line,), readable=True, example="shutdown.json")
    return told.code


# --- sending -----------------------------------------------------------------------------------


def wanted(
    endpoint: str | None,
    protocol: Any,
    compression: Any,
    timeout_ns: int | None,
    files: tuple[Path | None, Path | None, Path | None],
) -> Given:
    """What the command line says. Raises Refused."""
    try:
        checked = None if endpoint is None else checked_endpoint(endpoint)
    except BadDestination as error:
        raise Refused(f"--endpoint: {error}") from None
    certificate, client_certificate, client_key = (None if path is None else str(path) for path in files)
    return Given(
        endpoint=checked,
        protocol=protocol,
        compression=compression,
        timeout_ns=timeout_ns,
        certificate=certificate,
        client_certificate=client_certificate,
        client_key=client_key,
    )


def _destination(said: Given, configs: Sequence[Path]) -> Destination:
    configured = load(configs or default_paths()).options.tracing.given
    try:
        destination = resolve(said, configured, from_environment(os.environ))
    except BadDestination as error:
        raise Refused(str(error)) from None
    if destination is None:
        raise Refused("no back end is known: name it with --endpoint, such as http://localhost:4318")
    return destination


class _Sent:
    """What became of the spans."""

    def __init__(self) -> None:
        self.accepted, self.rejected, self.reason = 0, 0, ""

    async def settled(self, spans: Sequence[Span]) -> None:
        self.accepted += len(spans)

    def lost(self, loss: Loss) -> None:
        self.rejected += loss.number
        self.reason = loss.reason

    def trouble(self, reason: str) -> None:
        if reason:
            remark(f"ebbtide: not yet: {reason}")


async def _deliver(told: Told, destination: Destination, sent: _Sent, give_up_ns: int) -> None:
    sender = sender_for(destination)
    courier = Courier(
        sender,
        encode_traces,
        settled=sent.settled,
        lost=sent.lost,
        trouble=sent.trouble,
        give_up_seconds=give_up_ns / NS_PER_SECOND,
    )
    try:
        await courier.deliver(told.spans, told.resource)
    except GaveUp as error:
        sent.reason = str(error)
    finally:
        await sender.aclose()


def send(
    journals: Sequence[Path], name: str, said: Given, configs: Sequence[Path], give_up_ns: int, output: str
) -> int:
    """Exit code 1 where not every span was taken. Raises Refused."""
    destination = _destination(said, configs)
    told, sent = spans_of(journals, name), _Sent()
    try:
        trio.run(_deliver, told, destination, sent, give_up_ns)
    except BadDestination as error:
        raise Refused(str(error)) from None
    document = _document(told, destination, sent)
    if output == "json":
        show_json(document)
    else:
        shown = ("episode", "traceId", "endpoint", "spans", "accepted", "rejected", "reason")
        show(pairs((key, str(document[key])) for key in shown if document[key] != ""))
    return worst((told.code, DONE if sent.accepted - sent.rejected == len(told.spans) else NOT_SO))


def _document(told: Told, destination: Destination, sent: _Sent) -> dict[str, Any]:
    return {
        "kind": "TraceExport",
        "version": EXPORT_VERSION,
        "episode": told.episode.id,
        "traceId": told.episode.trace_id,
        "endpoint": destination.endpoint,
        "protocol": destination.protocol,
        "spans": len(told.spans),
        "accepted": sent.accepted - sent.rejected,
        "rejected": sent.rejected,
        "reason": sent.reason,
    }

"""``ebbtide export otlp`` and ``otlp-json``: the trace of any shutdown, sent again or written to a file.

Only durable records are exported: a sent trace must not change.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
import trio

from ebbtide.cli.common import shared_options
from ebbtide.cli.common.guard import DONE, NOT_SO, WRONG, Refused, worst
from ebbtide.cli.common.output import pairs, remark, show, show_json
from ebbtide.cli.common.reading import conclude, open_journal
from ebbtide.cli.common.saving import file_option, save
from ebbtide.cli.common.selection import choose_episode, whole_verdict
from ebbtide.config import default_paths, load
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.messages import plural
from ebbtide.events.record.episodes import Episode
from ebbtide.events.record.format import visible_json
from ebbtide.otel.destination import (
    BadDestination,
    Destination,
    Given,
    checked_endpoint,
    from_environment,
    resolve,
)
from ebbtide.otel.otlp import encode_traces_json
from ebbtide.otel.otlp_sink import Delivered, EpisodeSpans, deliver, spans_of
from ebbtide.otel.span import Resource, Span

OTLP_EPILOG = """\b
Examples:
  ebbtide export otlp --endpoint http://localhost:4318
  ebbtide export otlp -2 --endpoint http://localhost:4317 --protocol grpc
  ebbtide export otlp 8f2d6c1e-1234 --journal /mnt/old/journal -o json | jq .traceId
  ebbtide export otlp --endpoint http://localhost:4318 --give-up 0s
  OTEL_EXPORTER_OTLP_HEADERS='authorization=Bearer%20…' ebbtide export otlp

Other settings come from the section tracing of the configuration, then from the standard variables
OTEL_EXPORTER_OTLP_*: headers, certificates, compression, the timeout of a request.
Sending a shutdown again is harmless: each span has the same id and bytes.
"""


@shared_options.episode_verb("otlp", OTLP_EPILOG, "table", "json")
@click.option(
    "--endpoint", default=None, metavar="URL", help="The back end; /v1/traces is added if it is missing."
)
@click.option(
    "--protocol", type=click.Choice(("http/protobuf", "grpc")), default=None, help="[default: http/protobuf]"
)
@click.option(
    "--give-up",
    type=shared_options.DURATION,
    default="20s",
    show_default=True,
    help="How long to try a back end that does not answer.",
)
@shared_options.config_option
def otlp(
    episode: str,
    endpoint: str | None,
    protocol: Any,
    give_up: int,
    configs: tuple[Path, ...],
    journals: tuple[Path, ...],
    output: str,
) -> int:
    """Send the trace of a shutdown to a tracing back end.

    EPISODE is last (the default), -1, -2, …, or an id. Exit code 1: the back end refused a part of it, with
    the printed reason.
    """
    destination = _find_destination(endpoint, protocol, configs)
    # An error comes before a long journal is read.
    shutdown, sent = (
        spans_of_shutdown(journals, episode),
        Delivered(lambda reason: remark(f"ebbtide: not yet: {reason}") if reason else None),
    )
    found = EpisodeSpans(shutdown.spans, shutdown.resource)
    try:
        trio.run(deliver, found, destination, sent, give_up / NS_PER_SECOND)
    except BadDestination as error:
        raise Refused(str(error)) from None
    # The back end may reject single spans of an accepted request.
    accepted = sent.accepted - sent.rejected
    document = {
        "kind": "TraceExport",
        "version": EXPORT_VERSION,
        "episode": shutdown.episode.id,
        "traceId": shutdown.episode.trace_id,
        "endpoint": destination.endpoint,
        "protocol": destination.protocol,
        "spans": len(shutdown.spans),
        "accepted": accepted,
        "rejected": sent.rejected,
        "reason": sent.reason,
    }
    if output == "json":
        show_json(document)
    else:
        shown = ("episode", "traceId", "endpoint", "spans", "accepted", "rejected", "reason")
        show(pairs((key, str(document[key])) for key in shown))
    return worst((shutdown.code, DONE if accepted == len(shutdown.spans) else NOT_SO))


OTLP_JSON_EPILOG = """\b
Examples:
  ebbtide export otlp-json -o shutdown.json
  ebbtide export otlp-json -2 | jq '.resourceSpans[].scopeSpans[].spans[].name'

Jaeger's upload takes the file as it is, and so does the Collector's otlpjsonfile receiver.
"""


@shared_options.episode_verb("otlp-json", OTLP_JSON_EPILOG)
@file_option("shutdown.json")
def otlp_json(episode: str, journals: tuple[Path, ...], output: Path | None) -> int:
    """Write the trace of a shutdown as OTLP's JSON, in one line.

    EPISODE is last (the default), -1, -2, …, or an id.
    """
    shutdown = spans_of_shutdown(journals, episode)
    line = visible_json(encode_traces_json(shutdown.spans, shutdown.resource).decode())
    save(output, (line.encode() + b"\n",), readable=True, example="shutdown.json")
    return shutdown.code


EXPORT_VERSION = 1


class ShutdownSpans(NamedTuple):
    """``code``: the journal's verdict."""

    episode: Episode
    spans: list[Span]
    resource: Resource
    code: int


def spans_of_shutdown(journals: Sequence[Path], name: str) -> ShutdownSpans:
    """Raises Refused where there is no such shutdown, or the journal no longer has its begin."""
    episode = choose_episode(journals, name)
    history = open_journal(journals)
    try:
        spans, resource = spans_of(history, episode.first_seq)
    except KeyError:
        code = conclude(whole_verdict(history)) or WRONG
        raise Refused(
            f"the journal no longer holds the begin of {episode.id}: it has no trace", code
        ) from None
    # A power cut may remove a record that is not durable: the trace would then change.
    verdict = history.verdict
    # The API server has stored each record of an outage, also in a copy.
    durable_seq = verdict.end.seq if history.of_outages else verdict.durable_seq
    durable = [span for span in spans if span.seq <= durable_seq]
    if len(durable) < len(spans):
        left = plural(len(spans) - len(durable), "span")
        remark(f"ebbtide: {left} left out: a power cut could still take their records")
    return ShutdownSpans(episode, durable, resource, conclude(verdict))


def _find_destination(endpoint: str | None, protocol: Any, configs: Sequence[Path]) -> Destination:
    """Options win over the configuration, which wins over the environment. Raises Refused."""
    try:
        checked = None if endpoint is None else checked_endpoint(endpoint)
    except BadDestination as error:
        raise Refused(f"--endpoint: {error}") from None
    configured = load(configs or default_paths()).config.tracing.given
    try:
        given = Given(endpoint=checked, protocol=protocol)
        destination = resolve(given, configured, from_environment(os.environ))
    except BadDestination as error:
        raise Refused(str(error)) from None
    if destination is None:
        raise Refused("no back end is known: name it with --endpoint, such as http://localhost:4318")
    return destination

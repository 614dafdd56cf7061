"""Compare a back end's trace span by span with the journal's projection."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan

from ebbtide.events.catalog import DirectorySource
from ebbtide.events.reader import History
from ebbtide.otel.projection import Projection
from ebbtide.otel.span import Resource, Span
from tests.backends.backends import Backend, Kept, Key
from tests.otel.delivery.spans import encode_traces

#: Attributes that Jaeger, and the Collector for a file, add to a span.
ADDED = ("otel.", "span.kind", "internal.", "w3c.", "@jaeger@", "log.file.")


class Shutdown(NamedTuple):
    """An episode's spans, and those in its own trace."""

    trace_id: str
    spans: list[Span]
    resource: Resource

    @property
    def own(self) -> list[Span]:
        return [span for span in self.spans if span.trace_id.hex() == self.trace_id]


def shutdowns(*journals: Path) -> list[Shutdown]:
    """A journal's projection, by episode."""
    history, projection = History([DirectorySource(path) for path in journals]), Projection()
    spans = [
        span
        for header, records in history.batches()
        for span in projection.feed(header, records, history.journal_id)
    ]
    found = []
    for episode in dict.fromkeys(span.episode for span in spans):
        of = [span for span in spans if span.episode == episode]
        trace_id = next(span.trace_id.hex() for span in of if span.name != "next boot")
        found.append(Shutdown(trace_id, of, projection.resource(episode)))
    return found


def wired(spans: Sequence[Span], resource: Resource) -> dict[Key, WireSpan]:
    request = ExportTraceServiceRequest.FromString(encode_traces(spans, resource))
    found = request.resource_spans[0].scope_spans[0].spans
    return {(span.trace_id, span.span_id): span for span in found}


def told(span: WireSpan) -> dict[str, Any]:
    """A span's content: back ends reorder attributes and events, and drop flags."""
    return {
        "name": span.name,
        "parent": span.parent_span_id,
        "start": span.start_time_unix_nano,
        "end": span.end_time_unix_nano,
        "attributes": _values(span.attributes),
        "events": sorted(
            (event.time_unix_nano, event.name, sorted(_values(event.attributes).items()))
            for event in span.events
        ),
        "links": [(link.trace_id, link.span_id) for link in span.links],
        "status": (span.status.code, span.status.message),
    }


def _values(attributes: Any) -> dict[str, str]:
    return {each.key: _text(_value(each.value)) for each in attributes if not each.key.startswith(ADDED)}


def _text(value: Any) -> str:
    """Equal for a list and for a back end's JSON of it, with any spacing."""
    if isinstance(value, str) and value.startswith("["):
        with contextlib.suppress(ValueError):
            value = json.loads(value)
    return json.dumps(value) if isinstance(value, list) else str(value)


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind) if kind else ""


def assert_returned(backend: Backend, shutdown: Shutdown) -> None:
    """The back end has each span of the trace, once it has as many."""
    assert_same(backend.wait(shutdown.trace_id, lambda kept: kept.count >= len(shutdown.own)), shutdown)


def assert_same(kept: Kept, shutdown: Shutdown) -> None:
    """Each span of the trace is there once, as projected, and no other."""
    expected = wired(shutdown.own, shutdown.resource)
    missing = [span.name for key, span in expected.items() if key not in kept.spans]
    foreign = [span.name for key, span in kept.spans.items() if key not in expected]
    assert (missing, foreign) == ([], []), (missing, foreign)
    for key, span in expected.items():
        assert told(kept.spans[key]) == told(span), span.name
    assert kept.count == len(expected)
    attributes = {name: value for name, value in shutdown.resource.attributes if isinstance(value, str)}
    for resource in kept.resources:
        assert attributes.items() <= resource.items()

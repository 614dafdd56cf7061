"""What the bed says of traces that are not what their journal comes to, on a real Jaeger."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from opentelemetry.sdk.trace import ReadableSpan

from ebbtide.otel.delivery.destination import Destination
from ebbtide.otel.delivery.otlp_sender import sender_for
from ebbtide.otel.sdk import readable_spans
from tests.backends import backends
from tests.backends.backends import Backend
from tests.backends.compare import shutdowns
from tests.backends.conftest import jaeger
from tests.outage_bed.traces import arrived, differs
from tests.replay import outages

__all__ = ["jaeger"]

pytestmark = pytest.mark.backend


async def send(backend: Backend, spans: list[ReadableSpan]) -> None:
    sender = sender_for(Destination(endpoint=f"{backend.http}/v1/traces", protocol="http/protobuf"))
    await sender.send(spans)
    await sender.close()


def test_what_has_not_arrived_and_what_is_not_the_journals(
    jaeger: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First nothing is there, then the whole, then a span more than the journal has."""
    monkeypatch.setattr(backends, "READ_SECONDS_MAX", 2)
    journal = Path(outages.GOLDEN)
    (outage,) = shutdowns(journal)
    (line,) = arrived(jaeger, journal)
    assert line.startswith(f"of trace {outage.trace_id} the controller has not sent ")
    assert "outage" in line
    assert differs(jaeger, journal) == []
    assert arrived(jaeger, journal) == []
    other = outage.own[0]._replace(span_id=bytes(8 * [7]), name="made up")
    trio.run(send, jaeger, readable_spans([other], outage.resource))
    jaeger.wait(outage.trace_id, lambda kept: "made up" in {span.name for span in kept.spans.values()})
    (line,) = differs(jaeger, journal)
    assert "made up" in line

"""The demo's shutdown in a tracing back end, with nothing but the standard variables."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import trio
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.backends.compare import shutdowns
from tests.otel.delivery.collector import Collector, collecting

COMMAND = (sys.executable, "-c", "from ebbtide.cli import main; main()", "demo", "--journal")
DEMO_SECONDS_MAX = 40


@pytest.mark.proof
async def test_the_demo_is_exported_while_it_runs(tmp_path: Path) -> None:
    """Live, and whole once it is over: the trace whose id it prints, each span as the projection has it."""
    collector, journal = Collector(), tmp_path / "journal"
    async with collecting(collector):
        environ = os.environ | {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint,
            "OTEL_RESOURCE_ATTRIBUTES": "k8s.cluster.name=blue",
        }
        with trio.fail_after(DEMO_SECONDS_MAX):
            done = await trio.run_process(
                [*COMMAND, str(journal)], env=environ, capture_stdout=True, capture_stderr=True
            )
        assert len(collector.got) > 1
        (shutdown,) = shutdowns(journal)
        wanted = {(span.trace_id, span.span_id) for span in shutdown.own}
        await collector.until(lambda: set(collector.spans) == wanted)
    assert shutdown.trace_id in done.stdout.decode()
    assert collector.changed == []
    names = {span.name for span in shutdown.own}
    assert {"shutdown", "wave 0", "pod shop/web", "hook shop/web httpGet", "export"} <= names
    # The cluster's name was recorded: the journal gives it to whoever reads it, in whatever environment.
    assert ("k8s.cluster.name", "blue") in shutdown.resource.attributes
    sent = ExportTraceServiceRequest.FromString(collector.got[0].body).resource_spans[0].resource
    assert [(each.key, each.value.string_value) for each in sent.attributes] == list(
        shutdown.resource.attributes
    )

"""What a reading command may import: nothing that writes a journal, draws a table or talks to anybody."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.bed import whole_shutdown

#: The edges (but for the name of the boot), the runner, YAML, tables, and the explanation that nobody needs.
UNWANTED = (
    "trio",
    "rich",
    "yaml",
    "jeepney",
    "h11",
    "asyncio",
    "zipfile",
    "ebbtide.actors.runner",
    "ebbtide.actors.edges.linux.bus",
    "ebbtide.events.disk",
    "ebbtide.events.writer",
    "ebbtide.daemon",
    "ebbtide.config",
    "ebbtide.replay.divergence",
    "ebbtide.replay.redact",
)


#: What an export of spans alone has no use for, and what the exporter has loaded before anything goes down.
BESIDE = {
    "opentelemetry.proto.collector.logs.v1.logs_service_pb2",
    "opentelemetry.proto.collector.metrics.v1.metrics_service_pb2",
}


#: Its process, once it has its job.
EXPORTER = """
from types import SimpleNamespace
from ebbtide.otel.delivery.destination import Destination, Job
from ebbtide.otel.delivery.export_run import ExportRun, LogOnly
place = Destination(endpoint="http://localhost:1/v1/traces", signals={signals})
ExportRun(Job(destination=place, locations=("/tmp",)), LogOnly(SimpleNamespace(log=print)))
"""


@pytest.mark.parametrize(
    "words", ["replay verify", "replay verify -o json", "journal ls -o json", "journal show"]
)
def test_a_reading_command_starts_lean(tmp_path: Path, words: str) -> None:
    """Most of the time of a short command is its start, and most of that is imports."""
    imported = imported_by(tmp_path, words)
    assert "ebbtide.events.reader" in imported
    assert not imported & set(UNWANTED)


def test_an_export_of_spans_loads_no_other_signals(tmp_path: Path) -> None:
    """The exporter does at its start, where it is to send them."""
    imported = imported_by(tmp_path, "export otlp-json")
    assert "ebbtide.otel.sdk" in imported
    assert not imported & BESIDE
    assert not modules_after(EXPORTER.format(signals="()")) & BESIDE
    assert modules_after(EXPORTER.format(signals="('logs', 'metrics')")) >= BESIDE


def imported_by(journal: Path, words: str) -> set[str]:
    whole_shutdown(journal)
    arguments = [*words.split(), "--journal", str(journal)]
    return modules_after(f"from ebbtide.cli.common.guard import guarded; assert guarded({arguments!r}) == 0")


def modules_after(code: str) -> set[str]:
    code += "\nimport sys; print('', *sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    return set(done.stdout.splitlines()[-1].split())

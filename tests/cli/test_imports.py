"""A reading command imports no writer, table or client."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.bed import whole_shutdown

#: The edges (except the boot's name), the runner, YAML, tables, and explanations.
UNWANTED = {
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
}

#: Modules that a span export alone does not need.
BESIDE = {
    "opentelemetry.proto.collector.logs.v1.logs_service_pb2",
    "opentelemetry.proto.collector.metrics.v1.metrics_service_pb2",
}


@pytest.mark.parametrize(
    "words, unwanted",
    [("replay verify -o json", UNWANTED), ("journal ls -o json", UNWANTED), ("export otlp-json", BESIDE)],
)
def test_a_reading_command_starts_lean(tmp_path: Path, words: str, unwanted: set[str]) -> None:
    """A short command mostly starts, and its start mostly imports."""
    whole_shutdown(tmp_path)
    arguments = [*words.split(), "--journal", str(tmp_path)]
    imported = modules_after(
        f"from ebbtide.cli.common.guard import guarded; assert guarded({arguments!r}) == 0"
    )
    assert "ebbtide.events.reader" in imported
    assert not imported & unwanted


def modules_after(code: str) -> set[str]:
    code += "\nimport sys; print('', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())

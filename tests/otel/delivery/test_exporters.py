"""Any other exporter of the SDK's kind: by its name, as a process, and when it fails."""

from __future__ import annotations

import json
import logging
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from benchmarks.episodes import lay_out
from ebbtide.follower import SEQ_MAX
from ebbtide.otel.delivery.cursor import load
from ebbtide.otel.delivery.destination import BadDestination, Destination
from ebbtide.otel.delivery.otlp_sender import NamedExporter, Sender, sender_for
from ebbtide.otel.delivery.sending import Accepted, Again
from ebbtide.side_process import EXIT_DONE, OtlpJob, Request, encode_line
from tests.backends.compare import shutdowns
from tests.otel.delivery.spans import batch
from tests.otel.delivery.test_follower_process import ARGV
from tests.waiting import WATCHDOG_SECONDS

NOWHERE = Destination(endpoint="", exporter="vendor", timeout_ns=500_000_000)

#: A distribution that somebody installed, with an exporter that writes names to a file.
VENDOR = """
import os
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

class Exporter(SpanExporter):
    def export(self, spans):
        with open(os.environ["VENDOR_FILE"], "a") as file:
            file.writelines(span.name + "\\n" for span in spans)
        return SpanExportResult.SUCCESS
"""


class Failing(SpanExporter):
    """Fails, and logs why; or hangs."""

    def __init__(self, words: str = "", error: Exception | None = None, hangs: bool = False) -> None:
        self.words, self.error, self.hangs = words, error, hangs

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if self.hangs:
            threading.Event().wait()
        if self.error is not None:
            raise self.error
        if self.words:
            logging.getLogger("vendor").error(self.words)
        return SpanExportResult.FAILURE


def named(exporter: SpanExporter) -> NamedExporter:
    made = NamedExporter("console")
    made._exporter = exporter
    return made


def installed(folder: Path) -> None:
    """As pip lays it out."""
    (folder / "vendor_exporter.py").write_text(VENDOR)
    info = folder / "vendor_exporter-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vendor-exporter\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[opentelemetry_traces_exporter]\n"
        "vendor = vendor_exporter:Exporter\n"
        "broken = vendor_exporter:Nothing\n"
    )


async def test_an_exporter_that_is_installed_is_found_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its entry point is that of the ecosystem; what it takes is acknowledged."""
    installed(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("VENDOR_FILE", str(tmp_path / "out"))
    sender = sender_for(NOWHERE)
    assert await sender.send(batch(2)) == Accepted()
    await sender.close()
    assert (tmp_path / "out").read_text() == "wave\nwave\n"
    with pytest.raises(BadDestination, match="the exporter broken cannot be made: AttributeError"):
        sender_for(Destination(endpoint="", exporter="broken"))


@pytest.mark.parametrize(
    "exporter, reason",
    [
        (Failing("quota is used up"), "quota is used up"),
        (Failing(), "the exporter failed, and gave no reason"),
        (Failing(error=ValueError("no\nsuch project")), "the exporter failed: ValueError: no such project"),
        (Failing(hangs=True), "no answer within 500 ms"),
    ],
)
async def test_a_failure_is_tried_again_with_the_exporters_own_reason(
    exporter: SpanExporter, reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its log is the reason, and goes nowhere else."""
    sender = Sender(NOWHERE, lambda: named(exporter))
    assert await sender.send(batch()) == Again(reason)
    assert capfd.readouterr().err == ""


def test_the_exporters_process_prints_to_the_log(tmp_path: Path) -> None:
    """``OTEL_TRACES_EXPORTER=console``: every span on standard error, beside which the reports stay whole."""
    lay_out(tmp_path, 2, 1)
    (shutdown,) = shutdowns(tmp_path)
    destination = Destination(endpoint="", exporter="console")
    job = encode_line(OtlpJob(destination=destination, locations=(str(tmp_path),)))
    # Its input stays open: once the daemon is gone, it gives up after some seconds.
    with (
        (tmp_path / "out").open("w+b") as out,
        (tmp_path / "err").open("w+b") as err,
        subprocess.Popen(ARGV, stdin=subprocess.PIPE, stdout=out, stderr=err) as process,
    ):
        assert process.stdin is not None
        process.stdin.write(job + encode_line(Request(durable=SEQ_MAX)))
        process.stdin.flush()
        assert process.wait(WATCHDOG_SECONDS) == EXIT_DONE
    decoder, text, names = json.JSONDecoder(), (tmp_path / "err").read_text().strip(), []
    while text:
        span, end = decoder.raw_decode(text)
        names.append(span["name"])
        text = text[end:].strip()
    assert names == [span.name for span in shutdown.spans]
    assert all(isinstance(json.loads(line), dict) for line in (tmp_path / "out").read_text().splitlines())
    # How far it came is saved for a second at most: a slow machine sends the rest again.
    assert load(tmp_path) is not None

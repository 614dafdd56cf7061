"""Any other exporter of the SDK's kind: by its name, as a process, and when it fails."""

from __future__ import annotations

import json
import logging
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from benchmarks.episodes import lay_out
from ebbtide.otel.delivery.answers import Accepted, Again, Answer
from ebbtide.otel.delivery.cursor import load
from ebbtide.otel.delivery.destination import (
    EXIT_DONE,
    BadDestination,
    DaemonRequest,
    Destination,
    Job,
    encode_line,
)
from ebbtide.otel.delivery.export_run import SEQ_MAX
from ebbtide.otel.delivery.exporters import ExporterSender, Made, sender_for
from tests.backends.compare import shutdowns
from tests.otel.delivery.spans import batch
from tests.otel.delivery.test_main import ARGV
from tests.waiting import WATCHDOG_SECONDS, until

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
    """Fails as it is told, and says so in its own log."""

    def __init__(self, words: str = "", error: Exception | None = None) -> None:
        self.words, self.error = words, error

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if self.error is not None:
            raise self.error
        if self.words:
            logging.getLogger("vendor").error(self.words)
        return SpanExportResult.FAILURE


class Hanging(SpanExporter):
    """Until it is shut down."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.over.wait()
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        self.over.set()


async def sent(exporter: SpanExporter) -> Answer:
    sender = ExporterSender(lambda: Made(exporter, None), NOWHERE)
    answer = await sender.send(batch())
    await sender.aclose()
    return answer


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
    await sender.aclose()
    assert (tmp_path / "out").read_text() == "wave\nwave\n"
    with pytest.raises(BadDestination, match="the exporter broken cannot be made: AttributeError"):
        sender_for(Destination(endpoint="", exporter="broken"))


@pytest.mark.parametrize(
    "exporter, reason",
    [
        (Failing("quota is used up"), "quota is used up"),
        (Failing(), "the exporter failed, and did not say why"),
        (Failing(error=ValueError("no\nsuch project")), "the exporter failed: ValueError: no such project"),
    ],
)
async def test_what_failed_is_sent_again_with_the_exporters_own_words(
    exporter: SpanExporter, reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """It knows no other failure; its log is the reason, and goes nowhere else."""
    assert await sent(exporter) == Again(reason)
    assert capfd.readouterr().err == ""


async def test_one_that_hangs_is_left_behind() -> None:
    """Its time is over as that of a request; the next one gets an exporter that was not shut down."""
    made = []

    def make() -> Made:
        made.append(Hanging())
        return Made(made[-1], None)

    sender = ExporterSender(make, NOWHERE)
    assert await sender.send(batch()) == Again("no answer within 500 ms")
    assert made[0].over.wait(WATCHDOG_SECONDS)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sender.send, batch())
        await until(lambda: len(made) == 2, "the second exporter")
        nursery.cancel_scope.cancel()
    assert made[1].over.wait(WATCHDOG_SECONDS)
    assert len(made) == 2


def test_the_exporters_process_prints_to_the_log(tmp_path: Path) -> None:
    """``OTEL_TRACES_EXPORTER=console``: every span on standard error, beside which the reports stay whole."""
    lay_out(tmp_path, 2, 1)
    (shutdown,) = shutdowns(tmp_path)
    destination = Destination(endpoint="", exporter="console")
    job = encode_line(Job(destination=destination, locations=(str(tmp_path),)))
    # Its input stays open: once the daemon is gone, it gives up after some seconds.
    with (
        (tmp_path / "out").open("w+b") as out,
        (tmp_path / "err").open("w+b") as err,
        subprocess.Popen(ARGV, stdin=subprocess.PIPE, stdout=out, stderr=err) as process,
    ):
        assert process.stdin is not None
        process.stdin.write(job + encode_line(DaemonRequest(durable=SEQ_MAX)))
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


async def test_what_a_library_says_of_the_environment_stays_unsaid(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It repeats a header that it cannot read, which may be somebody's secret."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "s3cret-word")
    sender = sender_for(Destination(endpoint="http://localhost:1/v1/traces"))
    assert isinstance(await sender.send(batch()), Again)
    await sender.aclose()
    assert capfd.readouterr() == ("", "")

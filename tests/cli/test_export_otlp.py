"""``ebbtide export otlp`` and ``otlp-json`` as a shell runs them, and the tracing configuration."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import trio

from benchmarks.episodes import lay_out
from ebbtide.cli import config as view
from ebbtide.config import ConfigError, Loaded, parse
from tests.backends.compare import shutdowns
from tests.commands import Ran, Run
from tests.otel.delivery.collector import Collector, Reply, collecting
from tests.otel.delivery.spans import encode_traces
from tests.otel.delivery.test_otlp_requests import PARTIAL

OWN = "apiVersion: ebbtide/v1alpha1\nkind: EbbtideConfiguration\n"
SECRET = "s3cret-word"
GOLDEN_OUTAGE = Path(__file__).parents[1] / "golden" / "outage-v1"
#: Less than the last frame of its first segment, the only one after the outage's end.
TORN_BYTES = 20


async def export(run: Run, journal: Path, *words: str) -> Ran:
    """In a thread: the collector serves meanwhile."""
    return await trio.to_thread.run_sync(lambda: run("export", *words, "--journal", journal))


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    lay_out(tmp_path, 5, 2)
    return tmp_path


async def test_a_shutdown_is_sent_and_told_of(run: Run, journal: Path) -> None:
    """The promised shape; the back end has exactly that shutdown's spans."""
    collector = Collector()
    async with collecting(collector):
        code, out, _ = await export(
            run, journal, "otlp", "-2", "--endpoint", collector.endpoint, "-o", "json"
        )
    first, _ = shutdowns(journal)
    assert code == 0
    assert json.loads(out) == {
        "kind": "TraceExport",
        "version": 1,
        "episode": json.loads(out)["episode"],
        "traceId": first.trace_id,
        "endpoint": f"{collector.endpoint}/v1/traces",
        "protocol": "http/protobuf",
        "spans": len(first.spans),
        "accepted": len(first.spans),
        "rejected": 0,
        "reason": "",
    }
    assert collector.got[0].body == encode_traces(first.spans, first.resource)


def test_spans_without_a_durable_record_are_named(run: Run) -> None:
    """The demo's disk never confirmed a record."""
    code, out, err = run("export", "otlp-json", "--journal", GOLDEN_OUTAGE.parent / "demo-v1", "-o", "-")
    assert (code, '"spanId"' in out) == (0, False)
    assert err == "ebbtide: 47 spans left out: a power cut could still take their records\n"


def test_a_copied_outage_has_its_whole_trace(run: Run, tmp_path: Path) -> None:
    """The API server had stored each record, so the last step counts although no later frame shows it."""
    segment = sorted(GOLDEN_OUTAGE.iterdir())[0]
    (tmp_path / segment.name).write_bytes(segment.read_bytes()[:-TORN_BYTES])
    _, out, _ = run("export", "otlp-json", "--journal", tmp_path, "-o", "-")
    (resource,) = json.loads(out)["resourceSpans"]
    assert resource["scopeSpans"][0]["spans"][-1]["name"] == "outage"


async def test_the_standard_environment_is_enough(
    run: Run, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Headers too, which should not be on a command line."""
    collector = Collector()
    async with collecting(collector):
        variables = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint,
            "OTEL_EXPORTER_OTLP_HEADERS": f"authorization={SECRET}",
        }
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        code, out, err = await export(run, journal, "otlp")
    assert code == 0
    assert collector.got[0].headers["authorization"] == SECRET
    assert SECRET not in out + err


REFUSALS = [
    (Reply(401, b"who \x1b[2J are you", (("content-type", "text/plain"),)), "HTTP 401: who �[2J are you"),
    (Reply(body=PARTIAL), "our words"),
]


@pytest.mark.parametrize("reply, reason", REFUSALS)
async def test_a_refusal_is_exit_code_1_with_the_servers_reason(
    run: Run, journal: Path, reply: Reply, reason: str
) -> None:
    """All or part refused; control characters do not reach the terminal."""
    collector = Collector(lambda got: reply)
    async with collecting(collector):
        code, out, _ = await export(run, journal, "otlp", "--endpoint", collector.endpoint)
    assert code == 1
    assert reason in out


WRONG = [
    ((), "", "name it with --endpoint"),
    (("--endpoint", f"ftp://{SECRET}"), "", "--endpoint: it must be a URL"),
    (("--endpoint", "http://localhost"), "CLIENT_KEY", "belong together"),
    (("--endpoint", "https://localhost"), "CERTIFICATE", "certificates cannot be used"),
]


@pytest.mark.parametrize("words, file, message", WRONG)
def test_a_wrong_request_is_one_line(
    run: Run, journal: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], file: str, message: str
) -> None:
    """Exit code 2 with the fix, and no request."""
    if file:
        monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{file}", __file__)
    code, out, err = run("export", "otlp", "--journal", journal, *words)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert SECRET not in err


# --- the configuration


def loaded(text: str) -> Loaded:
    return parse([("a.yaml", (OWN + text).encode())])


FULL = f"""
tracing:
  endpoint: https://collector:4318
  protocol: http/protobuf
  headers: {{Authorization: {SECRET}}}
  certificate: /ca.pem
  timeout: 3s
  compression: gzip
  flush: 300ms
"""


def test_no_view_of_the_configuration_shows_a_header() -> None:
    """Not in the table, the JSON, the YAML, or the value's representation."""
    config = loaded(FULL)
    shown = (view.configuration_yaml(config), json.dumps(view.configuration_json(config)), repr(config))
    assert all(SECRET not in text for text in shown)
    assert "Authorization: (hidden)" in shown[0]
    with pytest.raises(ConfigError, match="placeholder"):
        parse([("b.yaml", shown[0].encode())])


BAD = [
    (f"endpoint: http://me:{SECRET}@c", "tracing.endpoint"),
    ("endpoint: localhost:4318", "http://localhost:4318"),
    ("protocol: http/json", "http/protobuf or grpc"),
    ("endpont: http://c", "did you mean endpoint"),
    (f"headers: {{'a: Bearer {SECRET}': x}}", "its value apart"),
    (f"headers: {SECRET}", "tracing.headers must be a mapping"),
    (f"headers: [{SECRET}]", "tracing.headers must be a mapping"),
    (f"headers: {{'a: {SECRET}'}}", "must be a word"),
    (f"headers: {{{SECRET}}}", "must be a word"),
    (f"headers: {{a: [{SECRET}]}}", "must be a word"),
    (f"protocol: grpc\n  headers: {{x-bin: {SECRET}}}", "tracing.headers: the header x-bin cannot"),
    ("timeout: 0s", "from 1ms"),
    ("flush: 2m", "to 1m0s"),
    ("compression: zstd", "none or gzip"),
    ("certificate: ca.pem", "absolute path"),
    ("clientKey: /k.pem", "belong together"),
]


@pytest.mark.parametrize("line, message", BAD)
def test_a_bad_section_is_refused_without_its_secrets(line: str, message: str) -> None:
    """One line with the field and the fix."""
    with pytest.raises(ConfigError, match=message) as caught:
        loaded(f"tracing:\n  {line}\n")
    assert SECRET not in str(caught.value)

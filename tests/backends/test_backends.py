"""Real back ends return each trace as projected, by any protocol."""

from __future__ import annotations

import random
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
import trio
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan

from benchmarks.episodes import lay_out
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.decisions import PROJECTION_VERSION
from ebbtide.events.reader import History
from ebbtide.events.record.episodes import shutdown_records
from ebbtide.otel import attributes as at
from ebbtide.otel.destination import Destination
from ebbtide.otel.otlp import sender_for
from ebbtide.otel.sending import Accepted
from ebbtide.otel.span import Resource, Span
from ebbtide.replay.time_spent import critical_chain
from tests.backends.backends import Backend, Collector, Key
from tests.backends.compare import Shutdown, assert_returned, assert_same, shutdowns
from tests.daemon.rig import EBBTIDE

pytestmark = pytest.mark.backend

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "tests" / "golden" / "demo-v1"
PODS = 110
TIMES = 10


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("journal")
    lay_out(folder, PODS, 6, PROJECTION_VERSION)
    return folder


@pytest.fixture(scope="module")
def episodes(journal: Path) -> list[Shutdown]:
    return shutdowns(journal)


@pytest.fixture(params=["jaeger", "tempo"])
def backend(request: pytest.FixtureRequest) -> Backend:
    found: Backend = request.getfixturevalue(request.param)
    return found


def destination(backend: Backend, protocol: str, compression: str = "none") -> Destination:
    endpoint = f"{backend.http}/v1/traces" if protocol == "http/protobuf" else backend.grpc
    return Destination(endpoint=endpoint, protocol=protocol, compression=compression)  # type: ignore[arg-type]


async def deliver(
    backend: Backend, requests: list[list[Span]], resource: Resource, protocol: str, compression: str = "none"
) -> None:
    sender = sender_for(destination(backend, protocol, compression))
    for spans in requests:
        assert await sender.send(spans, resource) == Accepted()
    await sender.close()


@pytest.mark.gate
@pytest.mark.parametrize("number, protocol", list(enumerate(("http/protobuf", "grpc"))))
def test_a_trace_comes_back_as_it_is(
    backend: Backend, episodes: list[Shutdown], number: int, protocol: str
) -> None:
    """Over each protocol: names, times, attributes, events, links and status."""
    shutdown = episodes[number]
    trio.run(deliver, backend, [shutdown.own], shutdown.resource, protocol, ("none", "gzip")[number])
    assert_returned(backend, shutdown)


def test_ten_exports_are_one(backend: Backend, episodes: list[Shutdown]) -> None:
    """Other batches, orders and protocols: one export's count."""
    shutdown, chance = episodes[4], random.Random(7)
    for attempt in range(TIMES):
        spans = list(shutdown.own)
        chance.shuffle(spans)
        size = chance.randint(1, len(spans))
        requests = [spans[at : at + size] for at in range(0, len(spans), size)]
        trio.run(deliver, backend, requests, shutdown.resource, ("http/protobuf", "grpc")[attempt % 2])
    kept = backend.wait(shutdown.trace_id, lambda kept: len(kept.spans) >= len(shutdown.own))
    assert_same(kept, shutdown)


@pytest.mark.parametrize("real", [True, False])
def test_the_critical_path_is_seen_by_eye(
    backend: Backend, journal: Path, episodes: list[Shutdown], real: bool
) -> None:
    """Jaeger's waterfall and ``replay critical-chain`` agree to the nanosecond; read back from Tempo too."""
    folder = DEMO if real else journal
    shutdown = (shutdowns(DEMO) if real else episodes)[0]
    account = next(shutdown_records(History([DirectorySource(folder)])))
    trio.run(deliver, backend, [shutdown.own], shutdown.resource, "http/protobuf")
    kept = backend.wait(shutdown.trace_id, lambda kept: kept.count >= len(shutdown.own))
    path = critical_path(kept.spans)
    seen: Counter[str] = Counter()
    for section in path:
        uid = next(
            (each.value.string_value for each in section.span.attributes if each.key == at.POD_UID), ""
        )
        seen[uid] += section.ended_ns - section.began_ns
    said: Counter[str] = Counter()
    for segment in critical_chain(account).segments:
        for within in segment.within:
            said[within.uid] += within.took_ns
    assert seen.keys() - {""} == said.keys() - {""} != set()
    assert {uid: ns for uid, ns in seen.items() if uid} == {uid: ns for uid, ns in said.items() if uid}
    if not real:  # the demo's journal began with names that say no workload
        names = {section.span.name for section in path}
        assert names <= {"stop default/web SIGTERM", "shutdown", "deliver", "flush", "release"}
        assert "stop default/web SIGTERM" in names


def test_the_collector_reads_our_json_file(
    collector: Collector, journal: Path, episodes: list[Shutdown], tmp_path: Path
) -> None:
    """The Collector's file receiver reads ``ebbtide export otlp-json`` unchanged."""
    out = tmp_path / "shutdown.json"
    words = ["export", "otlp-json", "-2", "--journal", str(journal), "-o", str(out)]
    argv = [*EBBTIDE, *words]
    subprocess.run(argv, check=True, capture_output=True)
    out.rename(collector.files / "shutdown.json")
    shutdown = episodes[-2]
    kept = collector.wait(shutdown.trace_id, lambda kept: len(kept.spans) >= len(shutdown.own))
    assert_same(kept._replace(count=len(kept.spans)), shutdown)


# --- the critical path in Jaeger's user interface: back from the root's end, by the span that ended last


class Section(NamedTuple):
    """The exclusive part of a span, in wall-clock nanoseconds."""

    span: WireSpan
    began_ns: int
    ended_ns: int


def critical_path(spans: Mapping[Key, WireSpan]) -> list[Section]:
    """From the root's begin to its end."""
    (root,) = (span for span in spans.values() if not span.parent_span_id)
    children: dict[bytes, list[WireSpan]] = {}
    for span in spans.values():
        children.setdefault(span.parent_span_id, []).append(span)
    found: list[Section] = []
    _back_from(root, root.end_time_unix_nano, children, found)
    return found[::-1]


def _back_from(
    span: WireSpan, at_ns: int, children: Mapping[bytes, list[WireSpan]], found: list[Section]
) -> None:
    """The span's and its children's parts of the path before that time; the last first."""
    while True:
        before = [
            each
            for each in children.get(span.span_id, ())
            if each.end_time_unix_nano <= at_ns and each.start_time_unix_nano >= span.start_time_unix_nano
        ]
        last = max(before, key=lambda each: each.end_time_unix_nano, default=None)
        began_ns = span.start_time_unix_nano if last is None else last.end_time_unix_nano
        if began_ns < at_ns:
            found.append(Section(span, began_ns, at_ns))
        if last is None:
            return
        _back_from(last, last.end_time_unix_nano, children, found)
        at_ns = last.start_time_unix_nano
        if at_ns <= span.start_time_unix_nano:
            return

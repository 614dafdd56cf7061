"""From the journal's bytes to OTLP's: reading, verifying, projecting and encoding, as an exporter does it.

Two journals: twenty shutdowns of 1 000 pods (the rate), and one of 110 pods, the kubelet's default limit (the
time until the last span of an ordinary node could be sent). Reading from the disk's cache is part of it.

    python -m benchmarks.traces --rounds 5
"""

from __future__ import annotations

import sys
import tempfile
import time
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

from benchmarks import episodes
from benchmarks.report import Figure, conclude, median, parser, say
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.reader import History
from ebbtide.otel.otlp import readable_spans
from ebbtide.otel.projection import Projection

SPANS_PER_SECOND = 20_000
ORDINARY_PODS, ORDINARY_MS = 110, 100
LARGE_PODS, LARGE_SHUTDOWNS = 1000, 20
#: Spans in one request; the SDKs' default.
REQUEST_SPANS = 512


class Made(NamedTuple):
    spans: int
    bytes: int
    seconds: float


def export(folder: Path) -> Made:
    """A whole journal as requests, by the processor time of this process: nobody else's load is in it."""
    began = time.process_time()
    history, projection = History([DirectorySource(folder)]), Projection()
    spans = size = 0
    for header, records in history.batches():
        ended = projection.feed(header, records, history.journal_id)
        spans += len(ended)
        for episode, group in groupby(ended, key=lambda span: span.episode):
            of_one, resource = list(group), projection.resource(episode)
            for first in range(0, len(of_one), REQUEST_SPANS):
                batch = readable_spans(of_one[first : first + REQUEST_SPANS], resource)
                size += len(encode_spans(batch).SerializeToString())
    return Made(spans, size, time.process_time() - began)


def measure(folder: Path, rounds: int) -> list[Figure]:
    large, ordinary = folder / "large", folder / "ordinary"
    large.mkdir()
    ordinary.mkdir()
    episodes.lay_out(large, LARGE_PODS, LARGE_SHUTDOWNS)
    episodes.lay_out(ordinary, ORDINARY_PODS, 1)
    rates, times_ms = [], []
    for _ in range(rounds):
        made = export(large)
        rates.append(made.spans / made.seconds)
        one = export(ordinary)
        times_ms.append(one.seconds * 1000)
        say(f"{rates[-1]:.0f} spans/s; {one.spans} spans in {times_ms[-1]:.1f} ms")
    assert one.spans > 2 * ORDINARY_PODS, one
    per_span = f"{made.spans} spans, {made.bytes // made.spans} bytes each"
    return [
        Figure("journal to OTLP bytes", median(rates), SPANS_PER_SECOND, "spans/s", per_span, at_least=True),
        Figure(
            f"a shutdown of {ORDINARY_PODS} pods, journal to OTLP bytes",
            median(times_ms),
            ORDINARY_MS,
            "ms",
            f"{one.spans} spans",
        ),
    ]


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=5, help="exports of each journal (default 5)")
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="ebbtide-bench.") as folder:
        figures = measure(Path(folder), arguments.rounds)
    return conclude("traces", arguments, figures, {"rounds": arguments.rounds})


if __name__ == "__main__":
    sys.exit(main())

"""Draws docs/trace.svg: the trace of a real shutdown as a real Jaeger gives it back.

    python docs/tools/picture_trace.py          # sends the demo's golden journal to Jaeger, draws its answer
    python docs/tools/picture_trace.py --check  # exits 1 if the picture is not what that gives

Needs the programs of the back ends' tests (Go, once): `tests.backends`.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import trio  # noqa: E402
from opentelemetry.proto.trace.v1.trace_pb2 import Span  # noqa: E402

from ebbtide.otel.delivery.destination import Destination  # noqa: E402
from ebbtide.otel.delivery.otlp_sender import sender_for  # noqa: E402
from ebbtide.otel.sdk import readable_spans  # noqa: E402
from tests.backends import backends  # noqa: E402
from tests.backends.compare import Shutdown, shutdowns  # noqa: E402

JOURNAL = ROOT / "tests" / "golden" / "demo-v1"
PICTURE = ROOT / "docs" / "trace.svg"

WIDTH, NAMES, ROW, TOP, MARGIN = 1100, 300, 17, 46, 14
COLORS = {
    "shutdown": "#3b4252",
    "wave": "#5e81ac",
    "pod": "#4b7f3a",
    "hook": "#b08500",
    "stop": "#7da36c",
    "kill": "#a33d3d",
}
OTHER, ERROR = "#8a94a6", "#a33d3d"
SUBJECTS = ("ebbtide.wave.index", "k8s.pod.name", "k8s.container.name", "ebbtide.hook.kind")
ABOVE = {"pod": SUBJECTS[:1], "hook": SUBJECTS[:2], "stop": SUBJECTS[:2], "kill": SUBJECTS[:2]}
NS_PER_SECOND = 1_000_000_000
ERROR_CODE = 2


def from_jaeger(shutdown: Shutdown) -> list[Span]:
    """The shutdown's own trace, sent over OTLP and read back from the query API."""

    async def send(endpoint: str) -> None:
        sender = sender_for(Destination(endpoint=endpoint))
        await sender.send(readable_spans(shutdown.own, shutdown.resource))
        await sender.close()

    with tempfile.TemporaryDirectory() as folder, backends.jaeger(Path(folder)) as jaeger:
        trio.run(send, f"{jaeger.http}/v1/traces")
        kept = jaeger.wait(shutdown.trace_id, lambda kept: len(kept.spans) == len(shutdown.own))
    return list(kept.spans.values())


def tree(spans: list[Span], parent: bytes = b"", depth: int = 0) -> Iterator[tuple[int, Span]]:
    """Children below their parents, by their begin; of those that begin together by their ids."""
    children = [span for span in spans if span.parent_span_id == parent]
    for span in sorted(children, key=lambda each: (each.start_time_unix_nano, each.span_id)):
        yield depth, span
        yield from tree(spans, span.span_id, depth + 1)


def subject(span: Span) -> str:
    values: dict[str, Any] = {each.key: each.value for each in span.attributes}
    names = [name for name in SUBJECTS if name in values and name not in ABOVE.get(span.name, ())]
    found = (values[name].string_value or str(values[name].int_value) for name in names)
    return " ".join(found)


def rows(spans: list[Span]) -> Iterator[str]:
    ordered = list(tree(spans))
    root = ordered[0][1]
    end_ns = max(span.end_time_unix_nano for _, span in ordered)
    scale = (WIDTH - NAMES - 2 * MARGIN) / (end_ns - root.start_time_unix_nano)
    for at, (depth, span) in enumerate(ordered):
        y = TOP + at * ROW
        failed = span.status.code == ERROR_CODE
        x = NAMES + (span.start_time_unix_nano - root.start_time_unix_nano) * scale
        width = max(1.5, (span.end_time_unix_nano - span.start_time_unix_nano) * scale)
        color = COLORS.get(span.name, OTHER)
        edge = f' stroke="{ERROR}" stroke-width="1.6"' if failed else ""
        label = escape(f"{span.name} {subject(span)}".rstrip())
        yield f'<text x="{MARGIN + depth * 14}" y="{y + 11}">{label}</text>'
        title = f"<title>{escape(span.status.message)}</title>" if failed else ""
        yield (
            f'<rect x="{x:.1f}" y="{y + 2}" width="{width:.1f}" height="{ROW - 5}" rx="2" '
            f'fill="{color}"{edge}>{title}</rect>'
        )
        if failed and span.name == "pod":
            why = escape(span.status.message)
            yield f'<text class="why" x="{x + width + 6:.1f}" y="{y + 11}">{why}</text>'


def grid(spans: list[Span]) -> Iterator[str]:
    """A line a second."""
    begin_ns = min(span.start_time_unix_nano for span in spans)
    end_ns = max(span.end_time_unix_nano for span in spans)
    scale = (WIDTH - NAMES - 2 * MARGIN) / (end_ns - begin_ns)
    bottom = TOP + len(spans) * ROW
    for second in range((end_ns - begin_ns) // NS_PER_SECOND + 1):
        x = NAMES + second * NS_PER_SECOND * scale
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 8}" y2="{bottom}"/>'
        yield f'<text class="axis" x="{x:.1f}" y="{TOP - 13}">{second} s</text>'


def draw(shutdown: Shutdown, spans: list[Span]) -> str:
    height = TOP + len(spans) * ROW + MARGIN
    title = f"Trace {shutdown.trace_id}, as Jaeger has it: {len(spans)} spans"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{title}</title>",
        "<style>text{font:11px sans-serif;fill:#2e3440}.axis{fill:#6b7280;text-anchor:middle}"
        ".why{fill:#a33d3d}line{stroke:#e5e7eb}</style>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="{MARGIN}" y="{MARGIN + 6}" font-weight="bold">{title}</text>',
        *grid(spans),
        *rows(spans),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def picture() -> str:
    (shutdown,) = shutdowns(JOURNAL)
    return draw(shutdown, from_jaeger(shutdown))


def main() -> int:
    made = picture()
    if "--check" in sys.argv[1:]:
        return int(not PICTURE.exists() or PICTURE.read_text() != made)
    PICTURE.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())

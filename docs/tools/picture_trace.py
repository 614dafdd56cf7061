"""Draws docs/trace.svg: the trace of a real shutdown, as a back end's waterfall shows it.

python docs/tools/picture_trace.py          # draws the demo's golden journal
python docs/tools/picture_trace.py --check  # exits 1 if the picture is not current
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from ebbtide.otel import attributes as at  # noqa: E402
from ebbtide.otel.span import Span  # noqa: E402
from tests.backends.compare import shutdowns  # noqa: E402

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
#: By role, what its row names. A row below a pod does not repeat the pod.
SUBJECTS = {
    "wave": (at.WAVE,),
    "pod": (at.POD_NAME,),
    "reject": (at.POD_NAME,),
    "hook": (at.CONTAINER, at.HOOK_KIND),
    "stop": (at.CONTAINER,),
    "kill": (at.CONTAINER,),
}
NS_PER_SECOND = 1_000_000_000


def tree(spans: Sequence[Span], parent: bytes = b"", depth: int = 0) -> Iterator[tuple[int, Span]]:
    """Children below their parents, by their begin; of those that begin together by their ids."""
    children = [span for span in spans if span.parent_id == parent]
    for span in sorted(children, key=lambda each: (each.start_ns, each.span_id)):
        yield depth, span
        yield from tree(spans, span.span_id, depth + 1)


def rows(spans: Sequence[Span]) -> Iterator[str]:
    ordered = list(tree(spans))
    root = ordered[0][1]
    end_ns = max(span.end_ns for span in spans)
    scale = (WIDTH - NAMES - 2 * MARGIN) / (end_ns - root.start_ns)
    for number, (depth, span) in enumerate(ordered):
        y = TOP + number * ROW
        role, values = span.name.partition(" ")[0], dict(span.attributes)
        subjects = [str(values[name]) for name in SUBJECTS.get(role, ())]
        failed = span.status == "error"
        x = NAMES + (span.start_ns - root.start_ns) * scale
        width = max(1.5, (span.end_ns - span.start_ns) * scale)
        color = COLORS.get(role, OTHER)
        edge = f' stroke="{ERROR}" stroke-width="1.6"' if failed else ""
        label = escape(" ".join((role, *subjects)) if subjects else span.name)
        yield f'<text x="{MARGIN + depth * 14}" y="{y + 11}">{label}</text>'
        title = f"<title>{escape(span.status_text)}</title>" if failed else ""
        yield (
            f'<rect x="{x:.1f}" y="{y + 2}" width="{width:.1f}" height="{ROW - 5}" rx="2" '
            f'fill="{color}"{edge}>{title}</rect>'
        )
        if failed and role == "pod":
            why = escape(span.status_text)
            yield f'<text class="why" x="{x + width + 6:.1f}" y="{y + 11}">{why}</text>'


def grid(spans: Sequence[Span]) -> Iterator[str]:
    """A line a second."""
    begin_ns, end_ns = min(span.start_ns for span in spans), max(span.end_ns for span in spans)
    scale = (WIDTH - NAMES - 2 * MARGIN) / (end_ns - begin_ns)
    bottom = TOP + len(spans) * ROW
    for second in range((end_ns - begin_ns) // NS_PER_SECOND + 1):
        x = NAMES + second * NS_PER_SECOND * scale
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 8}" y2="{bottom}"/>'
        yield f'<text class="axis" x="{x:.1f}" y="{TOP - 13}">{second} s</text>'


def picture() -> str:
    (shutdown,) = shutdowns(JOURNAL)
    spans = shutdown.own
    height = TOP + len(spans) * ROW + MARGIN
    title = f"Trace {shutdown.trace_id}: {len(spans)} spans"
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


def main() -> int:
    made = picture()
    if "--check" in sys.argv[1:]:
        return int(not PICTURE.exists() or PICTURE.read_text() != made)
    PICTURE.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())

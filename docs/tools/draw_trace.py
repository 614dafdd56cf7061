"""Draws the example of docs/traces.md: the waterfall of a real shutdown, from a golden journal of the demo.

python docs/tools/draw_trace.py          # puts it between its marks in docs/traces.md
python docs/tools/draw_trace.py --check  # exits 1 if it is not current
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from ebbtide.events.catalog import DirectorySource  # noqa: E402
from ebbtide.events.reader import History  # noqa: E402
from ebbtide.otel import attributes as at  # noqa: E402
from ebbtide.otel.span import Span  # noqa: E402
from ebbtide.otel.traces.projection import Projection  # noqa: E402

JOURNAL = ROOT / "tests" / "golden" / "demo-v1"
PAGE = ROOT / "docs" / "traces.md"
BEGIN, END = "<!-- waterfall: made by docs/tools/draw_trace.py -->", "<!-- end of waterfall -->"

LABEL, BAR = 34, 48
NS_PER_MS = 1_000_000

#: What tells spans of one name apart, in this order.
SUBJECTS = (at.WAVE, at.POD_NAME, at.CONTAINER, at.HOOK_KIND, at.SIGNAL, at.STATUSES)
#: Spans whose parents say that already.
KNOWN_ABOVE = {"pod": (at.WAVE,), "hook": (at.POD_NAME,), "stop": (at.POD_NAME,), "kill": (at.POD_NAME,)}


def spans_of(journal: Path) -> list[Span]:
    history, projection = History([DirectorySource(journal)]), Projection()
    return [
        span
        for header, records in history.batches()
        for span in projection.feed(header, records, history.journal_id)
    ]


def waterfall(spans: list[Span]) -> Iterator[str]:
    """A line a span, children below their parents in the order of their begin."""
    root = next(span for span in spans if not span.parent_id and span.name == "shutdown")
    yield f"{'span':<{LABEL}} {'begins':>8} {'takes':>8}"
    for depth, span in _tree(spans, root, 0):
        label = f"{'  ' * depth}{span.name} {_subject(span)}".rstrip()
        begins = (span.start_ns - root.start_ns) // NS_PER_MS
        takes = (span.end_ns - span.start_ns) // NS_PER_MS
        mark = "✘" if span.status == "error" else " "
        times = f"{_seconds(begins):>8} {_seconds(takes):>8}"
        yield f"{label:<{LABEL}} {times} {mark} {_bar(span, root)}".rstrip()
    yield ""
    for _, span in _tree(spans, root, 0):
        if span.status == "error":
            yield f"✘ {span.name} {_subject(span)}: {span.status_text}"


def _tree(spans: list[Span], parent: Span, depth: int) -> Iterator[tuple[int, Span]]:
    yield depth, parent
    children = [span for span in spans if span.parent_id == parent.span_id]
    for child in sorted(children, key=lambda span: (span.start_ns, span.seq)):
        yield from _tree(spans, child, depth + 1)


def _subject(span: Span) -> str:
    values = dict(span.attributes)
    names = [name for name in SUBJECTS if name in values and name not in KNOWN_ABOVE.get(span.name, ())]
    return " ".join(str(values[name]) for name in names)


def _seconds(ms: int) -> str:
    return f"{ms / 1000:.3f} s"


def _bar(span: Span, root: Span) -> str:
    whole = root.end_ns - root.start_ns
    first = min(BAR - 1, (span.start_ns - root.start_ns) * BAR // whole)
    last = min(BAR, max(first + 1, -(-(span.end_ns - root.start_ns) * BAR // whole)))
    return " " * first + "█" * (last - first)


def page() -> str:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    drawn = "\n".join(waterfall(spans_of(JOURNAL)))
    return f"{before}{BEGIN}\n\n```\n{drawn}\n```\n\n{END}{after}"


def main() -> int:
    if "--check" not in sys.argv:
        PAGE.write_text(page())
        return 0
    if PAGE.read_text() != page():
        print("docs/traces.md is not current: run python docs/tools/draw_trace.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

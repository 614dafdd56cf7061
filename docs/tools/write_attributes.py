"""Writes docs/attributes.md from the one table of attributes, `otel.attributes`.

python docs/tools/write_attributes.py          # writes docs/attributes.md
python docs/tools/write_attributes.py --check  # exits 1 if it is not current
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from ebbtide.events.decisions import PROJECTION_VERSION  # noqa: E402
from ebbtide.otel.attributes import PREFIX, SCHEMA_URL, TABLE, Attribute  # noqa: E402

PAGE = ROOT / "docs" / "attributes.md"

INTRODUCTION = f"""\
# Attributes of a shutdown's trace

Made by `docs/tools/write_attributes.py` from `otel/attributes.py`; a test checks that no span has another
attribute. [traces.md](traces.md) explains the spans. OpenTelemetry's names follow the semantic conventions of
<{SCHEMA_URL}>; Ebbtide's own begin with `{PREFIX}`. This is projection version {PROJECTION_VERSION}: the
version at a shutdown's begin makes its spans for ever.

Names in quotes are span events. "any" is any span.
"""

HEADING = ("| attribute | type | on | meaning |", "|---|---|---|---|")


def page() -> str:
    rows = TABLE.values()
    ours = [row for row in rows if row.name.startswith(PREFIX)]
    theirs = [row for row in rows if not row.name.startswith(PREFIX)]
    lines = [INTRODUCTION, "## By the semantic conventions", "", *_table(theirs)]
    lines += ["", "## Ebbtide's own", "", *_table(ours)]
    return "\n".join(lines) + "\n"


def _table(rows: Iterable[Attribute]) -> Iterator[str]:
    yield from HEADING
    for row in rows:
        kind = f"{row.type}, {row.unit}" if row.unit else row.type
        yield f"| `{row.name}` | {kind} | {row.where} | {row.meaning} |"


def main() -> int:
    if "--check" not in sys.argv:
        PAGE.write_text(page())
        return 0
    current = PAGE.exists() and PAGE.read_text() == page()
    if not current:
        print("docs/attributes.md is not current: run python docs/tools/write_attributes.py", file=sys.stderr)
    return 0 if current else 1


if __name__ == "__main__":
    sys.exit(main())

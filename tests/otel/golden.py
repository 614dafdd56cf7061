"""The OTLP bytes of golden journals, so that a change of one attribute is seen in review.

    python -m tests.otel.golden          # writes tests/golden/otlp-v1; read the difference first
    python -m tests.otel.golden --show   # the protobuf's SHA-256, for a comparison between processes

The JSON is indented for eyes; the protobuf is what a collector gets. A journal's name is its folder's.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

from events.history import History
from events.storage import DirectorySource
from otel.encode import encode_json, encode_traces
from otel.projection import Projection
from otel.span import Resource, Span

GOLDEN = Path(__file__).parent.parent / "golden"
JOURNALS = ("shutdown-v1",)
FOLDER = GOLDEN / "otlp-v1"


def export(journal: Path) -> tuple[list[Span], Resource]:
    """All spans of a journal with one shutdown."""
    history, projection = History([DirectorySource(journal)]), Projection()
    spans = [
        span
        for header, records in history.batches()
        for span in projection.feed(header, records, history.journal_id)
    ]
    return spans, projection.resource(spans[0].episode)


def files() -> dict[Path, bytes]:
    """What belongs in the folder."""
    found: dict[Path, bytes] = {}
    for name in JOURNALS:
        spans, resource = export(GOLDEN / name)
        found[FOLDER / f"{name}.pb"] = encode_traces(spans, resource)
        readable = json.dumps(json.loads(encode_json(spans, resource)), indent=1, ensure_ascii=False)
        found[FOLDER / f"{name}.json"] = readable.encode() + b"\n"
    return found


def main() -> None:
    if "--show" in sys.argv:
        print(*(hashlib.sha256(data).hexdigest() for data in files().values()))
        return
    FOLDER.mkdir(exist_ok=True)
    for path, data in files().items():
        path.write_bytes(data)


if __name__ == "__main__":
    main()

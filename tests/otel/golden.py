"""The OTLP exports of golden journals: a review sees each changed attribute.

    python -m tests.otel.golden          # writes tests/golden/otlp-v1; read the difference first
    python -m tests.otel.golden --show   # their SHA-256, for a comparison between processes

The JSON is indented; it is the same request as the protobuf (tests/otel/test_otlp.py).
"""

from __future__ import annotations

import hashlib
import json
import sys
from itertools import groupby
from pathlib import Path

from ebbtide.events.catalog import DirectorySource
from ebbtide.events.reader import History
from ebbtide.otel.sdk import encode_traces_json
from ebbtide.otel.traces.projection import Projection
from tests.otel.records import project

GOLDEN = Path(__file__).parent.parent / "golden"
FOLDER = GOLDEN / "otlp-v1"
JOURNALS = ("shutdown-v1", "cancelled-v1", "demo-v1", "node-v1/api", "node-v1/cri", "outage-v1")


def exports(journal: Path) -> list[bytes]:
    """One for each shutdown or outage of a journal."""
    history, projection = History([DirectorySource(journal)]), Projection()
    spans = project(history.batches(), history.journal_id, projection)
    return [
        encode_traces_json(list(group), projection.resource(episode))
        for episode, group in groupby(spans, key=lambda span: span.episode)
    ]


def files() -> dict[Path, bytes]:
    found: dict[Path, bytes] = {}
    for name in JOURNALS:
        for number, data in enumerate(exports(GOLDEN / name), 1):
            readable = json.dumps(json.loads(data), indent=1, ensure_ascii=False)
            found[FOLDER / f"{name.replace('/', '-')}-{number}.json"] = readable.encode() + b"\n"
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

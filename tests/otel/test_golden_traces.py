"""The OTLP exports of golden journals, in any process: a review sees each changed attribute.

    python -m tests.otel.test_golden_traces          # writes tests/golden/otlp-v1; read the difference first
    python -m tests.otel.test_golden_traces --show   # their SHA-256, for a comparison between processes

The JSON is indented; it is the same request as the protobuf (tests/otel/delivery/test_otlp_requests.py).
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from itertools import groupby
from pathlib import Path

import pytest

from ebbtide.events.catalog import DirectorySource
from ebbtide.events.reader import History
from ebbtide.otel.otlp import encode_traces_json
from ebbtide.otel.projection import Projection
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


FILES = files()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_bytes_of_a_golden_journal_are_those_that_were_reviewed(path: Path) -> None:
    """A necessary change raises the projection's version."""
    assert FILES[path] == path.read_bytes()


def test_no_process_makes_other_bytes() -> None:
    """Another hash seed, time zone or locale gives the same bytes."""
    shown = subprocess.run(
        [sys.executable, "-m", "tests.otel.test_golden_traces", "--show"],
        cwd=GOLDEN.parents[1],
        env={**os.environ, "PYTHONHASHSEED": "2", "TZ": "Pacific/Auckland", "LC_ALL": "C"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert shown.split() == [hashlib.sha256(data).hexdigest() for data in FILES.values()]


def main() -> None:
    if "--show" in sys.argv:
        print(*(hashlib.sha256(data).hexdigest() for data in FILES.values()))
        return
    FOLDER.mkdir(exist_ok=True)
    for path, data in FILES.items():
        path.write_bytes(data)


if __name__ == "__main__":
    main()

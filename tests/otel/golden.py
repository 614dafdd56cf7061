"""The OTLP bytes of golden journals, so that a change of one attribute is seen in review.

    python -m tests.otel.golden          # writes tests/golden/otlp-v1; read the difference first
    python -m tests.otel.golden --show   # the protobuf's SHA-256, for a comparison between processes

The JSON is indented for eyes; the protobuf is what a collector gets. ``shutdown-v1`` is the golden journal of
that name, ``everything`` is `tests.otel.story`, one request for each of its shutdowns, ``node`` is
`tests.otel.node_story`; ``-names`` are the same under projection version 2.
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
from ebbtide.otel.span import Resource, Span
from ebbtide.otel.traces.projection import Projection
from tests.otel.node_story import node
from tests.otel.outage_story import outages, recovered, wrong
from tests.otel.records import JOURNAL_ID, Teller
from tests.otel.story import everything
from tests.otel.wire import encode_traces

GOLDEN = Path(__file__).parent.parent / "golden"
FOLDER = GOLDEN / "otlp-v1"

#: Recorded with the configuration since version 2.
CLUSTER = {"k8s.cluster.name": "blue"}

Shutdowns = list[tuple[list[Span], Resource]]


def of_journal(journal: Path) -> Shutdowns:
    """The spans of each shutdown, or outage, of a journal, with what they have in common."""
    history, projection = History([DirectorySource(journal)]), Projection()
    spans = [
        span
        for header, records in history.batches()
        for span in projection.feed(header, records, history.journal_id)
    ]
    return _by_shutdown(spans, projection)


def of_story(teller: Teller | None = None) -> Shutdowns:
    """By default that of everything."""
    projection = Projection()
    steps = (teller or everything()).steps
    return _by_shutdown([span for step in steps for span in projection.feed(*step, JOURNAL_ID)], projection)


def of_stories() -> Shutdowns:
    """Together they have every span and every attribute."""
    return [*of_story(), *of_story(node()), *of_outages()]


def of_outages() -> Shutdowns:
    """Together they have every span and every attribute of an outage."""
    return [each for teller in outages() for each in of_story(teller)]


def _by_shutdown(spans: list[Span], projection: Projection) -> Shutdowns:
    grouped = groupby(spans, key=lambda span: span.episode)
    return [(list(group), projection.resource(episode)) for episode, group in grouped]


def files() -> dict[Path, bytes]:
    """What belongs in the folder."""
    found: dict[Path, bytes] = {}
    told = {
        "shutdown-v1": of_journal(GOLDEN / "shutdown-v1"),
        "everything": of_story(),
        "node": of_story(node()),
        "everything-names": of_story(everything().under(2, CLUSTER)),
        "node-names": of_story(node().under(2, CLUSTER)),
        "outage-recovered": of_story(recovered()),
        "outage-wrong": of_story(wrong()),
    }
    for name, shutdowns in told.items():
        for number, (spans, resource) in enumerate(shutdowns, 1):
            stem = name if len(shutdowns) == 1 else f"{name}-{number}"
            found[FOLDER / f"{stem}.pb"] = encode_traces(spans, resource)
            readable = json.dumps(
                json.loads(encode_traces_json(spans, resource)), indent=1, ensure_ascii=False
            )
            found[FOLDER / f"{stem}.json"] = readable.encode() + b"\n"
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

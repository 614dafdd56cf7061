"""Where ``ebbtide metrics`` gets its meters from, and how it prints them."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from ebbtide.cli.guard import DONE, Refused
from ebbtide.cli.output import show_json
from ebbtide.cli.reading import conclude, open_journal
from ebbtide.control import ControlError, ask
from ebbtide.text import visible
from events.codec import BadPayload, UnknownType
from events.frames import decode
from otel.metrics.catalog import CATALOG, KUBELET_PREFIX, Metric, name_of
from otel.metrics.fold import METERED, fold
from otel.metrics.reading import Around
from otel.metrics.state import BOUNDS_SECONDS, Histogram, Meters
from otel.metrics.text import exposition, seconds

METRICS_VERSION = 1


def show_metrics(journals: Sequence[Path], socket: Path, output: str, *, kubelet_names: bool) -> int:
    """Exit code of the journal's verdict. Raises Refused where no daemon answers and no journal is named."""
    code, meters, around = of_journal(journals) if journals else of_daemon(socket)
    prefix = KUBELET_PREFIX if kubelet_names else ""
    if output == "json":
        show_json(document(meters, around, prefix))
    else:
        sys.stdout.write(exposition(meters, around, prefix))
    return code


def of_daemon(socket: Path) -> tuple[int, Meters, Around]:
    try:
        answer = ask("metrics", socket)
    except ControlError as error:
        raise Refused(f"{visible(str(error))}; or name a journal with --journal") from None
    # JSON has only texts as keys.
    return DONE, msgspec.convert(answer["meters"], Meters, strict=False), Around(**answer["around"])


def of_journal(journals: Sequence[Path]) -> tuple[int, Meters, Around]:
    """What this version cannot read of a journal is not counted: reading works on anything."""
    history, meters = open_journal(journals), Meters()
    for raw in history.raw():
        if raw.tag in METERED:
            with suppress(BadPayload, UnknownType):
                fold(meters, (decode(raw),))
    return conclude(history.verdict), meters, Around(now_wall_ns=time.time_ns(), live=False)


def document(meters: Meters, around: Around, prefix: str) -> dict[str, Any]:
    """``kind: Metrics``: values as numbers of seconds or counts; a histogram's buckets are cumulative."""
    return {
        "kind": "Metrics",
        "version": METRICS_VERSION,
        "metrics": [_metric(metric, meters, around, prefix) for metric in CATALOG],
    }


def _metric(metric: Metric, meters: Meters, around: Around, prefix: str) -> dict[str, Any]:
    samples = [
        {"labels": dict(sample.labels), **_value(sample.value, sample.seconds)}
        for sample in metric.read(meters, around)
    ]
    return {
        "name": name_of(metric, prefix),
        "type": metric.kind,
        "help": metric.help,
        "samples": samples,
    }


def _value(value: int | Histogram, in_seconds: bool) -> dict[str, Any]:
    if isinstance(value, int):
        return {"value": float(seconds(value)) if in_seconds else value}
    total, buckets = 0, {}
    for bound, count in zip((*map(str, BOUNDS_SECONDS), "+Inf"), value.counts, strict=True):
        total += count
        buckets[bound] = total
    return {"buckets": buckets, "sum": float(seconds(value.sum_ns)), "count": total}

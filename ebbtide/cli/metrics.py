"""``ebbtide metrics``: the metrics of the running daemon, without a scrape."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from ebbtide.cli.common.output import show_json
from ebbtide.cli.common.shared_options import output_option, runtime_option
from ebbtide.control import ask
from ebbtide.options import control_socket
from ebbtide.otel.meters import BOUNDS_SECONDS, Histogram, Meters
from ebbtide.otel.metric_table import (
    CATALOG,
    ReadContext,
    ShippingState,
    exact_seconds,
    exposition,
)

EPILOG = """\b
Examples:
  ebbtide metrics
  ebbtide metrics -o json | jq .metrics
"""


@click.command(epilog=EPILOG)
@runtime_option
@output_option("prometheus", "json")
def metrics(runtime: Path, output: str) -> None:
    """Print the metrics as Prometheus's text, or as JSON."""
    meters, around = meters_of_daemon(control_socket(runtime))
    if output == "json":
        show_json(metrics_document(meters, around))
    else:
        sys.stdout.write(exposition(meters, around))


METRICS_VERSION = 1


def meters_of_daemon(socket: Path) -> tuple[Meters, ReadContext]:
    """Raises ControlError where no daemon answers."""
    answer = ask("metrics", socket)
    around = answer["around"]
    shipping = msgspec.convert(around.pop("shipping"), ShippingState | None)
    # JSON keys are texts.
    meters = msgspec.convert(answer["meters"], Meters, strict=False)
    return meters, ReadContext(**around, shipping=shipping)


def metrics_document(meters: Meters, around: ReadContext) -> dict[str, Any]:
    """``kind: Metrics``: numbers of seconds, or counts; a histogram's buckets are cumulative."""
    return {
        "kind": "Metrics",
        "version": METRICS_VERSION,
        "metrics": [
            {
                "name": metric.name,
                "type": metric.kind,
                "help": metric.help,
                "samples": [
                    {"labels": dict(sample.labels), **_sample_value(sample.value, metric.seconds)}
                    for sample in metric.read(meters, around)
                ],
            }
            for metric in CATALOG
        ],
    }


def _sample_value(value: int | Histogram, in_seconds: bool) -> dict[str, Any]:
    if isinstance(value, int):
        return {"value": float(exact_seconds(value)) if in_seconds else value}
    # Cumulative, the same numbers as in Prometheus' text.
    total, buckets = 0, {}
    for bound, count in zip((*map(str, BOUNDS_SECONDS), "+Inf"), value.counts, strict=True):
        total += count
        buckets[bound] = total
    return {"buckets": buckets, "sum": float(exact_seconds(value.sum_ns)), "count": total}

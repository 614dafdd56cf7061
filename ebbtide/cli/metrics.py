"""``ebbtide metrics``: the metrics of the running daemon, or of a journal, without a scrape."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import msgspec

from ebbtide.cli.common.guard import DONE, Refused
from ebbtide.cli.common.options import output_option, runtime_option, socket_option
from ebbtide.cli.common.output import show_json
from ebbtide.cli.common.reading import conclude, open_journal
from ebbtide.control import ControlError, ask
from ebbtide.events.codec import BadPayload, UnknownType, decode_record
from ebbtide.options import control_socket
from ebbtide.otel.meters import BOUNDS_SECONDS, METERED, Histogram, Meters, fold
from ebbtide.otel.metrics import (
    CATALOG,
    KUBELET_PREFIX,
    Metric,
    ReadContext,
    exact_seconds,
    exposition,
    metric_name,
)
from ebbtide.text import visible

EPILOG = """\b
Examples:
  ebbtide metrics
  ebbtide metrics --journal /mnt/old/journal
  ebbtide metrics -o json | jq .metrics
"""


@click.command(epilog=EPILOG)
@click.option(
    "--journal",
    "journals",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Fold this journal instead of asking the daemon; repeatable, where a failing disk made it move.",
)
@click.option(
    "--kubelet-names", is_flag=True, help="kubelet_ before the names of KEP-2712's and KEP-3960's metrics."
)
@runtime_option
@socket_option
@output_option("prometheus", "json")
def metrics(
    journals: tuple[Path, ...], kubelet_names: bool, runtime: Path, socket: Path | None, output: str
) -> int:
    """Print the metrics as Prometheus's text, or as JSON.

    A journal alone does not know how the node stands: it has no armed, no lock and no pods at risk.
    """
    return show_metrics(journals, control_socket(runtime, socket), output, kubelet_names=kubelet_names)


METRICS_VERSION = 1


def show_metrics(journals: Sequence[Path], socket: Path, output: str, *, kubelet_names: bool) -> int:
    """Exit code of the journal's verdict. Raises Refused where no daemon answers and no journal is named."""
    code, meters, around = meters_of_journal(journals) if journals else meters_of_daemon(socket)
    prefix = KUBELET_PREFIX if kubelet_names else ""
    if output == "json":
        show_json(metrics_document(meters, around, prefix))
    else:
        sys.stdout.write(exposition(meters, around, prefix))
    return code


def meters_of_daemon(socket: Path) -> tuple[int, Meters, ReadContext]:
    try:
        answer = ask("metrics", socket)
    except ControlError as error:
        raise Refused(f"{visible(str(error))}; or name a journal with --journal") from None
    # JSON has only texts as keys.
    return DONE, msgspec.convert(answer["meters"], Meters, strict=False), ReadContext(**answer["around"])


def meters_of_journal(journals: Sequence[Path]) -> tuple[int, Meters, ReadContext]:
    """What this version cannot read of a journal is not counted: reading works on anything."""
    history, meters = open_journal(journals), Meters()
    for raw in history.raw():
        if raw.tag in METERED:
            with suppress(BadPayload, UnknownType):
                fold(meters, (decode_record(raw),))
    return conclude(history.verdict), meters, ReadContext(now_wall_ns=time.time_ns(), live=False)


def metrics_document(meters: Meters, around: ReadContext, prefix: str) -> dict[str, Any]:
    """``kind: Metrics``: values as numbers of seconds or counts; a histogram's buckets are cumulative."""
    return {
        "kind": "Metrics",
        "version": METRICS_VERSION,
        "metrics": [_metric_document(metric, meters, around, prefix) for metric in CATALOG],
    }


def _metric_document(metric: Metric, meters: Meters, around: ReadContext, prefix: str) -> dict[str, Any]:
    samples = [
        {"labels": dict(sample.labels), **_sample_value(sample.value, sample.seconds)}
        for sample in metric.read(meters, around)
    ]
    return {
        "name": metric_name(metric, prefix),
        "type": metric.kind,
        "help": metric.help,
        "samples": samples,
    }


def _sample_value(value: int | Histogram, in_seconds: bool) -> dict[str, Any]:
    if isinstance(value, int):
        return {"value": float(exact_seconds(value)) if in_seconds else value}
    total, buckets = 0, {}
    for bound, count in zip((*map(str, BOUNDS_SECONDS), "+Inf"), value.counts, strict=True):
        total += count
        buckets[bound] = total
    return {"buckets": buckets, "sum": float(exact_seconds(value.sum_ns)), "count": total}

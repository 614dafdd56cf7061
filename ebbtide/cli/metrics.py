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

from ebbtide.actors.edges.linux.proc import boot_id
from ebbtide.cli.common.guard import DONE
from ebbtide.cli.common.output import show_json
from ebbtide.cli.common.reading import conclude, open_journal
from ebbtide.cli.common.shared_options import output_option, paths_option, runtime_option
from ebbtide.control import ask
from ebbtide.events.codec import BadPayload, UnknownType, decode_record
from ebbtide.events.record.episodes import GOING_ON, episodes
from ebbtide.events.record.format import document
from ebbtide.options import control_socket
from ebbtide.otel import metric_table

EPILOG = """\b
Examples:
  ebbtide metrics
  ebbtide metrics --journal /mnt/old/journal
  ebbtide metrics -o json | jq .metrics
"""


@click.command(epilog=EPILOG)
@paths_option("Count this journal instead of asking the daemon; repeatable if a failing disk made it move.")
@runtime_option
@output_option("prometheus", "json")
def metrics(journals: tuple[Path, ...], runtime: Path, output: str) -> int:
    """Print the metrics as Prometheus's text, or as JSON.

    A journal has no metrics of the present node (armed, lock, pods at risk). The controller serves the
    metrics of outages, so a journal of outages has none here.
    """
    code = DONE
    if journals:
        code, meters, around = meters_of_journal(journals)
    else:
        meters, around = meters_of_daemon(control_socket(runtime))
    if output == "json":
        show_json(metrics_document(meters, around))
    else:
        sys.stdout.write(metric_table.exposition(meters, around))
    return code


METRICS_VERSION = 1


def meters_of_daemon(socket: Path) -> tuple[metric_table.Meters, metric_table.ReadContext]:
    """Raises ControlError where no daemon answers."""
    answer = ask("metrics", socket)
    around = answer["around"]
    shipping = msgspec.convert(around.pop("shipping"), metric_table.ShippingState | None)
    # JSON keys are texts.
    meters = msgspec.convert(answer["meters"], metric_table.Meters, strict=False)
    return meters, metric_table.ReadContext(**around, shipping=shipping)


def meters_of_journal(journals: Sequence[Path]) -> tuple[int, metric_table.Meters, metric_table.ReadContext]:
    """Without records that this version cannot read. Shutdowns count as in ``journal ls``: without the
    daemon, the end of the last one may be unknown.
    """
    history, meters = open_journal(journals), metric_table.Meters()
    for raw in history.raw():
        if raw.tag in metric_table.METERED:
            with suppress(BadPayload, UnknownType):
                metric_table.fold(meters, (decode_record(raw),))
    meters.counts.pop("ebbtide_shutdowns_total", None)
    with suppress(BadPayload, UnknownType):
        for each in () if history.of_outages else episodes(open_journal(journals), boot_id=boot_id()):
            over = each.outcome not in GOING_ON
            if over:
                meters.count("ebbtide_shutdowns_total", each.kind, each.outcome)
            meters.last = metric_table.LastShutdown(
                kind=each.kind,
                start_wall_ns=each.started_wall_ns,
                end_wall_ns=each.ended_wall_ns or 0,
                outcome=each.outcome if over else "",
            )
            if each.first_seq == meters.episode and over:
                metric_table.count_pods(meters)
    meters.causes = metric_table.last_causes(open_journal(journals))
    return conclude(history.verdict), meters, metric_table.ReadContext(now_wall_ns=time.time_ns(), live=False)


def metrics_document(meters: metric_table.Meters, around: metric_table.ReadContext) -> dict[str, Any]:
    """Numbers of seconds, or counts; a histogram's buckets are cumulative."""
    found = [
        {
            "name": metric.name,
            "type": metric.kind,
            "help": metric.help,
            "samples": [
                {"labels": dict(sample.labels), **_sample_value(sample.value, metric.seconds)}
                for sample in metric.read(meters, around)
            ],
        }
        for metric in metric_table.CATALOG
    ]
    return document("Metrics", METRICS_VERSION, metrics=found)


def _sample_value(value: int | metric_table.Histogram, in_seconds: bool) -> dict[str, Any]:
    if isinstance(value, int):
        return {"value": float(metric_table.exact_seconds(value)) if in_seconds else value}
    buckets, seconds = value.cumulative(), float(metric_table.exact_seconds(value.sum_ns))
    return {"buckets": buckets, "sum": seconds, "count": buckets[metric_table.REST]}

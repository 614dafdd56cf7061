"""The metrics as OTLP: the same table, as a collector takes it.

Sums are cumulative from the first record that was folded, so a collector sees a restart of the daemon, or a
reboot, as what it is for them: nothing. This imports protobuf; the daemon never does.
"""

from __future__ import annotations

from typing import NamedTuple

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from otel.attributes import SCHEMA_URL
from otel.encode import key_values
from otel.metrics.catalog import CATALOG, Metric, name_of
from otel.metrics.reading import NS_PER_SECOND, Around, Sample
from otel.metrics.state import BOUNDS_SECONDS, Histogram, Meters
from otel.span import Resource

#: The instrumentation scope.
SCOPE = "ebbtide.metrics"

_CUMULATIVE = pb.AGGREGATION_TEMPORALITY_CUMULATIVE


class Times(NamedTuple):
    """Since when a sum counts (0 for what is of a moment), and when it was read; wall clock."""

    begun_ns: int
    read_ns: int


def encode_metrics(meters: Meters, around: Around, resource: Resource, prefix: str = "") -> bytes:
    """The bytes of an ``ExportMetricsServiceRequest``. ``around.now_wall_ns`` is when they were read."""
    request = ExportMetricsServiceRequest()
    of_resource = request.resource_metrics.add(schema_url=SCHEMA_URL)
    of_resource.resource.attributes.extend(key_values(resource.attributes))
    of_scope = of_resource.scope_metrics.add(schema_url=SCHEMA_URL)
    of_scope.scope.name, of_scope.scope.version = SCOPE, str(resource.version)
    times = Times(meters.begun_wall_ns, around.now_wall_ns)
    for metric in CATALOG:
        samples = tuple(metric.read(meters, around))
        if samples:
            made = of_scope.metrics.add(name=name_of(metric, prefix), description=metric.help)
            _fill(made, metric, samples, times)
    data: bytes = request.SerializeToString(deterministic=True)
    return data


def _fill(made: pb.Metric, metric: Metric, samples: tuple[Sample, ...], times: Times) -> None:
    made.unit = "s" if "_seconds" in metric.name else "1"
    if metric.kind == "histogram":
        made.histogram.aggregation_temporality = _CUMULATIVE
        for sample in samples:
            made.histogram.data_points.append(_histogram(sample, times))
        return
    if metric.kind == "counter":
        made.sum.aggregation_temporality, made.sum.is_monotonic = _CUMULATIVE, True
    points = made.sum.data_points if metric.kind == "counter" else made.gauge.data_points
    at = times if metric.kind == "counter" else Times(0, times.read_ns)
    for sample in samples:
        points.append(_number(sample, at))


def _number(sample: Sample, times: Times) -> pb.NumberDataPoint:
    assert isinstance(sample.value, int)
    point = pb.NumberDataPoint(
        attributes=key_values(sample.labels),
        start_time_unix_nano=times.begun_ns,
        time_unix_nano=times.read_ns,
    )
    if sample.seconds:
        point.as_double = sample.value / NS_PER_SECOND
    else:
        point.as_int = sample.value
    return point


def _histogram(sample: Sample, times: Times) -> pb.HistogramDataPoint:
    assert isinstance(sample.value, Histogram)
    return pb.HistogramDataPoint(
        attributes=key_values(sample.labels),
        bucket_counts=sample.value.counts,
        explicit_bounds=BOUNDS_SECONDS,
        count=sum(sample.value.counts),
        sum=sample.value.sum_ns / NS_PER_SECOND,
        start_time_unix_nano=times.begun_ns,
        time_unix_nano=times.read_ns,
    )

"""The same metrics as OTLP: read back with the protobuf library, they are what the text says."""

from __future__ import annotations

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb
from prometheus_client.parser import text_string_to_metric_families

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.reader import History
from ebbtide.otel.meters import BOUNDS_SECONDS, Meters, fold
from ebbtide.otel.metrics import CATALOG, ReadContext, exposition
from ebbtide.otel.otlp import encode_metrics
from ebbtide.otel.span import Resource
from tests.journals import SHUTDOWN

AROUND = ReadContext(1_700_000_100 * NS_PER_SECOND, 1, 2, False, False, 3, NS_PER_SECOND)
RESOURCE = Resource((("service.name", "ebbtide"),), 1)


def meters() -> Meters:
    made = Meters()
    fold(made, History([DirectorySource(SHUTDOWN)]).records())
    made.answers, made.pods_by_means = {"api": False}, {"cri": {"graceful": 1}}  # it was no Kubernetes node
    return made


def decoded() -> dict[str, pb.Metric]:
    request = ExportMetricsServiceRequest.FromString(encode_metrics(meters(), AROUND, RESOURCE))
    (of_resource,) = request.resource_metrics
    (of_scope,) = of_resource.scope_metrics
    assert of_resource.resource.attributes[0].value.string_value == "ebbtide"
    return {metric.name: metric for metric in of_scope.metrics}


def key(labels: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels.items()))


def labels_of(point: pb.NumberDataPoint | pb.HistogramDataPoint) -> tuple[tuple[str, str], ...]:
    return key({each.key: each.value.string_value for each in point.attributes})


def test_values_are_those_of_the_text() -> None:
    """Every sample of the text stands in the request with the same labels and the same value."""
    found = decoded()
    for family in text_string_to_metric_families(exposition(meters(), AROUND)):
        metric = found.get(family.name) or found[f"{family.name}_total"]
        if family.type == "histogram":
            continue
        points = metric.sum.data_points if family.type == "counter" else metric.gauge.data_points
        values = {labels_of(point): point.as_double or point.as_int for point in points}
        assert values == {key(sample.labels): sample.value for sample in family.samples}


def test_histograms_have_their_buckets() -> None:
    """As many counts as bounds and one, together the count, with the exact sum."""
    metric = decoded()["ebbtide_pod_stop_duration_seconds"]
    (point,) = (
        each for each in metric.histogram.data_points if labels_of(each) == (("outcome", "graceful"),)
    )
    assert tuple(point.explicit_bounds) == BOUNDS_SECONDS
    assert len(point.bucket_counts) == len(BOUNDS_SECONDS) + 1
    assert (sum(point.bucket_counts), point.count, point.sum) == (4, 4, 3.707)


def test_sums_begin_with_the_journal() -> None:
    """Counters are cumulative since the first record, whoever sends them; a gauge is of a moment."""
    found, begun_ns = decoded(), meters().begun_wall_ns
    counter = found["ebbtide_pods_total"].sum
    assert counter.is_monotonic
    assert {point.start_time_unix_nano for point in counter.data_points} == {begun_ns}
    (armed,) = found["ebbtide_armed"].gauge.data_points
    assert (armed.start_time_unix_nano, armed.time_unix_nano) == (0, AROUND.now_wall_ns)


def test_the_bytes_are_always_the_same() -> None:
    """The same meters give the same request, and every metric of the table is in it."""
    assert encode_metrics(meters(), AROUND, RESOURCE) == encode_metrics(meters(), AROUND, RESOURCE)
    assert list(decoded()) == [metric.name for metric in CATALOG]

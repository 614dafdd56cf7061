"""The metrics as Prometheus's text format 0.0.4, for a scrape or for node_exporter's textfile collector."""

from __future__ import annotations

from collections.abc import Iterator

from otel.metrics.catalog import CATALOG, Metric, name_of
from otel.metrics.reading import NS_PER_SECOND, Around, Labels, Sample
from otel.metrics.state import BOUNDS_SECONDS, Histogram, Meters

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def exposition(meters: Meters, around: Around, prefix: str = "") -> str:
    """All metrics. ``prefix`` stands before the names that a KEP gave (``kubelet_``)."""
    return "".join(line + "\n" for metric in CATALOG for line in _metric(metric, meters, around, prefix))


def _metric(metric: Metric, meters: Meters, around: Around, prefix: str) -> Iterator[str]:
    samples = tuple(metric.read(meters, around))
    if not samples:
        return
    name = name_of(metric, prefix)
    yield f"# HELP {name} {metric.help}"
    yield f"# TYPE {name} {metric.kind}"
    for sample in samples:
        yield from _sample(name, sample)


def _sample(name: str, sample: Sample) -> Iterator[str]:
    if isinstance(sample.value, Histogram):
        yield from _histogram(name, sample.labels, sample.value)
    else:
        text = seconds(sample.value) if sample.seconds else str(sample.value)
        yield f"{name}{_labels(sample.labels)} {text}"


def _histogram(name: str, labels: Labels, value: Histogram) -> Iterator[str]:
    total = 0
    for bound, count in zip((*map(str, BOUNDS_SECONDS), "+Inf"), value.counts, strict=True):
        total += count
        yield f"{name}_bucket{_labels((*labels, ('le', bound)))} {total}"
    yield f"{name}_sum{_labels(labels)} {seconds(value.sum_ns)}"
    yield f"{name}_count{_labels(labels)} {total}"


def _labels(labels: Labels) -> str:
    inner = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels)
    return f"{{{inner}}}" if inner else ""


def seconds(value_ns: int) -> str:
    """Exact, without a float: 1.5, 0.000000001, 20."""
    whole, rest = divmod(value_ns, NS_PER_SECOND)
    return f"{whole}.{rest:09d}".rstrip("0").rstrip(".") if rest else str(whole)

"""Every metric in one table: its name, kind, help and value; and Prometheus' text format.

KEP-2712 and KEP-3960 give their names; a prefix adds the kubelet's, so that existing dashboards keep working.
All other names have our prefix.

First the readers of values from the meters (`otel.meters`) and from their context; then the table; then text
format 0.0.4, for a scrape or for node_exporter's textfile collector. `otel.sdk_beside` has OTLP.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.decisions import EpisodeOutcome, PodOutcome
from ebbtide.events.values import BootEnding, ShutdownKind
from ebbtide.otel.meters import BOUNDS_SECONDS, Histogram, Meters

# --- how a value is found -------------------------------------------------------------------------


Labels = tuple[tuple[str, str], ...]


#: The outcomes of finished shutdowns.
OUTCOMES_OVER = tuple(outcome for outcome in get_args(EpisodeOutcome) if outcome != "running")


class Sample(NamedTuple):
    """One value. A time stays an integer of nanoseconds until the output."""

    labels: Labels
    value: int | Histogram
    #: ``value`` is nanoseconds, shown as seconds.
    seconds: bool = False


class ShippingState(msgspec.Struct, frozen=True, kw_only=True):
    """The fate of closed segments: ``stored`` by the store; ``present`` there under their name; ``failed``
    requests; ``lost``, since the daemon's start: removed here before they were known to be there. How many
    are ``pending``, the last write of the oldest one (0: none), and why it is not stored (empty: no obstacle
    yet).
    """

    stored: int = 0
    present: int = 0
    failed: int = 0
    lost: int = 0
    pending: int = 0
    oldest_wall_ns: int = 0
    reason: str = ""


class ReadContext(NamedTuple):
    """Values outside of the journal: the time of reading, the writer's and the exporter's state.

    ``at_risk`` None: the node's pods are unknown. ``export_pending`` None: no export. ``shipping`` None: no
    shipping, or no attempt yet.
    """

    now_wall_ns: int
    at_risk: int | None = None
    journal_unsynced: int = 0
    journal_lost: bool = False
    journal_away: bool = False
    export_pending: int | None = None
    export_behind_ns: int = 0
    shipping: ShippingState | None = None
    #: Whether a daemon answers.
    live: bool = True


#: Takes its table's meters (`Meters`) and the context.
SampleReader = Callable[[Any, ReadContext], Iterable[Sample]]


def read_value(pick: Callable[[Meters, ReadContext], int | None], *, seconds: bool = False) -> SampleReader:
    """One value without labels; no sample for an unknown value."""

    def read(meters: Meters, around: ReadContext) -> tuple[Sample, ...]:
        value = pick(meters, around)
        return () if value is None else (Sample((), value, seconds),)

    return read


def read_counts(pick: Callable[[Meters], dict[str, int]], name: str, values: Sequence[str]) -> SampleReader:
    # All values, also uncounted ones: a counter that begins with 1 shows no increase, and an alert on a
    # node's first killed pod would stay silent.
    return lambda meters, around: [Sample(((name, value),), pick(meters).get(value, 0)) for value in values]


def read_rows(pick: Callable[[Meters], dict[str, dict[str, int]]], *names: str) -> SampleReader:
    def read(meters: Meters, around: ReadContext) -> Iterator[Sample]:
        for first, row in pick(meters).items():
            for second, count in row.items():
                yield Sample(tuple(zip(names, (first, second), strict=True)), count)

    return read


def read_histograms(pick: Callable[[Meters], dict[str, Histogram]], name: str) -> SampleReader:
    return lambda meters, around: [Sample(((name, key),), each) for key, each in pick(meters).items()]


def read_shutdowns(meters: Meters, around: ReadContext) -> Iterator[Sample]:
    """All kinds and outcomes, also uncounted ones."""
    for kind in get_args(ShutdownKind):
        for outcome in OUTCOMES_OVER:
            labels = (("kind", kind), ("outcome", outcome))
            yield Sample(labels, meters.shutdowns.get(kind, {}).get(outcome, 0))


def read_fates(meters: Meters, around: ReadContext) -> Iterator[Sample]:
    for each in meters.last.fates:
        labels = (
            ("wave", each.wave),
            ("priority", each.priority),
            ("outcome", each.outcome),
            ("cause", each.cause),
        )
        yield Sample(labels, each.pods)


def read_answers(meters: Meters, around: ReadContext) -> Iterator[Sample]:
    """Known answers: only a running daemon has them."""
    for part, answers in meters.node.answers.items() if around.live else ():
        yield Sample((("part", part),), int(answers))


def read_shipped(meters: Meters, around: ReadContext) -> Iterator[Sample]:
    if around.shipping is not None:
        yield Sample((("outcome", "stored"),), around.shipping.stored)
        yield Sample((("outcome", "present"),), around.shipping.present)
        yield Sample((("outcome", "lost"),), around.shipping.lost)


def shipping_behind_ns(around: ReadContext) -> int | None:
    if around.shipping is None:
        return None
    # The clock may have been set back since.
    oldest_wall_ns = around.shipping.oldest_wall_ns or around.now_wall_ns
    return max(0, around.now_wall_ns - oldest_wall_ns)


def read_last_shutdown(meters: Meters, around: ReadContext) -> Iterator[Sample]:
    if meters.last.start_wall_ns:
        outcome = meters.last.outcome or "running"
        yield Sample((("kind", meters.last.kind), ("outcome", outcome)), 1)


# --- the table ------------------------------------------------------------------------------------

#: The prefix of the kubelet's own metrics.
KUBELET_PREFIX = "kubelet_"

Kind = Literal["gauge", "counter", "histogram"]


class Metric(NamedTuple):
    """``kep``: a KEP's name, with the user's prefix."""

    name: str
    kind: Kind
    help: str
    read: SampleReader
    kep: bool = False


def metric_name(metric: Metric, prefix: str) -> str:
    """Its name to the outside."""
    return prefix + metric.name if metric.kep else metric.name


CATALOG: tuple[Metric, ...] = (
    Metric(
        "graceful_shutdown_start_time_seconds",
        "gauge",
        "Unix time at which the last graceful shutdown began, 0 if there was none (KEP-2712).",
        read_value(lambda meters, _: meters.last.start_wall_ns, seconds=True),
        kep=True,
    ),
    Metric(
        "graceful_shutdown_end_time_seconds",
        "gauge",
        "Unix time at which the last graceful shutdown ended, 0 while it runs (KEP-2712).",
        read_value(lambda meters, _: meters.last.end_wall_ns, seconds=True),
        kep=True,
    ),
    Metric(
        "sleep_action_terminated_early_total",
        "counter",
        "Sleep hooks that ended before their time (KEP-3960).",
        read_value(lambda meters, _: meters.sleeps_early),
        kep=True,
    ),
    Metric(
        "ebbtide_enabled",
        "gauge",
        "1 if the configuration asks for graceful shutdowns.",
        read_value(lambda meters, _: int(meters.node.enabled)),
    ),
    Metric(
        "ebbtide_armed",
        "gauge",
        "1 if the next shutdown will be held back: the lock is held and the signal is trusted.",
        read_value(lambda meters, around: int(meters.node.armed) if around.live else None),
    ),
    Metric(
        "ebbtide_lock_held",
        "gauge",
        "1 if logind's delay lock is held.",
        read_value(lambda meters, around: int(meters.node.lock_held) if around.live else None),
    ),
    Metric(
        "ebbtide_grant_seconds",
        "gauge",
        "What logind allows: InhibitDelayMaxUSec.",
        read_value(lambda meters, _: meters.node.grant_ns, seconds=True),
    ),
    Metric(
        "ebbtide_requested_seconds",
        "gauge",
        "The sum of the configured periods.",
        read_value(lambda meters, _: meters.node.requested_ns, seconds=True),
    ),
    Metric(
        "ebbtide_reserve_seconds",
        "gauge",
        "What is asked of logind on top of the periods.",
        read_value(lambda meters, _: meters.node.reserve_ns, seconds=True),
    ),
    Metric(
        "ebbtide_grant_sufficient",
        "gauge",
        "1 if the grant covers the periods and the reserve.",
        read_value(lambda meters, _: int(meters.node.sufficient)),
    ),
    Metric(
        "ebbtide_pods_at_risk",
        "gauge",
        "Pods that would be killed if the machine went down now, as earlier shutdowns saw their workloads.",
        read_value(lambda _, around: around.at_risk),
    ),
    Metric(
        "ebbtide_seconds_since_last_graceful_shutdown",
        "gauge",
        "Age of the last shutdown whose lock was released in order.",
        read_value(
            lambda meters, around: (
                max(0, around.now_wall_ns - meters.last_graceful_wall_ns)
                if meters.last_graceful_wall_ns
                else None
            ),
            seconds=True,
        ),
    ),
    Metric(
        "ebbtide_last_shutdown",
        "gauge",
        "1, labelled with the kind and the outcome of the running or the last shutdown.",
        read_last_shutdown,
    ),
    Metric(
        "ebbtide_last_shutdown_start_time_seconds",
        "gauge",
        "Unix time at which the running or the last shutdown began, 0 if there was none.",
        read_value(lambda meters, _: meters.last.start_wall_ns, seconds=True),
    ),
    Metric(
        "ebbtide_last_shutdown_pods",
        "gauge",
        "Pods of the last shutdown by wave, outcome and cause (of a kill: hook, period, or its own grace).",
        read_fates,
    ),
    Metric(
        "ebbtide_shutdowns_total",
        "counter",
        "Shutdowns that are over, by kind and outcome.",
        read_shutdowns,
    ),
    Metric(
        "ebbtide_pods_total",
        "counter",
        "Pods of all shutdowns by their outcome.",
        read_counts(lambda meters: meters.pods, "outcome", get_args(PodOutcome)),
    ),
    Metric(
        "ebbtide_hooks_total",
        "counter",
        "PreStop hooks by kind and result.",
        read_rows(lambda meters: meters.hooks, "kind", "result"),
    ),
    Metric(
        "ebbtide_pod_stop_duration_seconds",
        "histogram",
        "From the begin of a pod's stop to its end, by outcome.",
        read_histograms(lambda meters: meters.stop_times, "outcome"),
    ),
    Metric(
        "ebbtide_hook_duration_seconds",
        "histogram",
        "How long preStop hooks took, by kind.",
        read_histograms(lambda meters: meters.hook_times, "kind"),
    ),
    Metric(
        "ebbtide_answers",
        "gauge",
        "1 if this part of the node answers: kubelet (it runs), runtime, api (the API server).",
        read_answers,
    ),
    Metric(
        "ebbtide_kubelet_lock",
        "gauge",
        "1 if a kubelet holds a delay lock of its own, for its own graceful shutdown.",
        read_value(lambda meters, around: int(meters.node.kubelet_lock) if around.live else None),
    ),
    Metric(
        "ebbtide_pods_by_means_total",
        "counter",
        "Pods of a Kubernetes node by the means that ended them (api, cri, observe) and their outcome.",
        read_rows(lambda meters: meters.pods_by_means, "means", "outcome"),
    ),
    Metric(
        "ebbtide_handovers_total",
        "counter",
        "Shutdowns that were handed over from the API to the container runtime.",
        read_value(lambda meters, _: meters.handovers),
    ),
    Metric(
        "ebbtide_deletes_refused_total",
        "counter",
        "Deletes of pods that the API server did not take in time.",
        read_value(lambda meters, _: meters.refused_deletes),
    ),
    Metric(
        "ebbtide_certificates_total",
        "counter",
        "Certificates of a node that goes down, by whether its volumes were safe to detach.",
        read_counts(lambda meters: meters.certificates, "verdict", ("safe", "unsafe")),
    ),
    Metric(
        "ebbtide_boots_ended_total",
        "counter",
        "Boots of this node, by how they ended for its pods, as the next one found.",
        read_counts(lambda meters: meters.boots_ended, "ending", get_args(BootEnding)),
    ),
    Metric(
        "ebbtide_daemon_starts_total",
        "counter",
        "Starts of the daemon that the journal knows of.",
        read_value(lambda meters, _: meters.starts),
    ),
    Metric(
        "ebbtide_journal_storage_failures_total",
        "counter",
        "Writes and syncs of the journal that failed.",
        read_value(lambda meters, _: meters.storage_failures),
    ),
    Metric(
        "ebbtide_journal_late_total",
        "counter",
        "Effects that started before their order was durable, because the disk did not answer.",
        read_value(lambda meters, _: meters.late_durability),
    ),
    Metric(
        "ebbtide_journal_unsynced_records",
        "gauge",
        "Records that a power cut would lose now.",
        read_value(lambda _, around: around.journal_unsynced),
    ),
    Metric(
        "ebbtide_journal_lost",
        "gauge",
        "1 if no location is left to write the journal to.",
        read_value(lambda _, around: int(around.journal_lost)),
    ),
    Metric(
        "ebbtide_journal_away",
        "gauge",
        "1 if the journal is not at its first location.",
        read_value(lambda _, around: int(around.journal_away)),
    ),
    Metric(
        "ebbtide_actor_failures_total",
        "counter",
        "Actors that failed and whose pods passed to the fallback.",
        read_value(lambda meters, _: meters.actor_failures),
    ),
    Metric(
        "ebbtide_export_pending_shutdowns",
        "gauge",
        "Shutdowns of whose trace a collector has not acknowledged everything yet.",
        read_value(lambda _, around: around.export_pending),
    ),
    Metric(
        "ebbtide_export_behind_seconds",
        "gauge",
        "Age of the oldest shutdown of whose trace something is not acknowledged yet.",
        read_value(
            lambda _, around: None if around.export_pending is None else around.export_behind_ns, seconds=True
        ),
    ),
    Metric(
        "ebbtide_shipping_segments_total",
        "counter",
        "Closed segments: stored; present under their name, content not verified; lost, removed here before.",
        read_shipped,
    ),
    Metric(
        "ebbtide_shipping_failures_total",
        "counter",
        "Requests that the object store refused or did not answer.",
        read_value(lambda _, around: None if around.shipping is None else around.shipping.failed),
    ),
    Metric(
        "ebbtide_shipping_pending_segments",
        "gauge",
        "Closed segments that were not in the object store when it was last tried.",
        read_value(lambda _, around: None if around.shipping is None else around.shipping.pending),
    ),
    Metric(
        "ebbtide_shipping_behind_seconds",
        "gauge",
        "Time since the oldest of them was last written.",
        read_value(lambda _, around: shipping_behind_ns(around), seconds=True),
    ),
)


# --- text format 0.0.4 ----------------------------------------------------------------------------

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def exposition(meters: Meters, around: ReadContext, prefix: str = "") -> str:
    """All metrics. ``prefix`` is for the KEPs' names (``kubelet_``)."""
    return exposition_of(CATALOG, meters, around, prefix)


def exposition_of(catalog: Sequence[Metric], meters: Any, around: ReadContext, prefix: str = "") -> str:
    """The same for any table; ``meters`` is for its readers."""
    lines: list[str] = []
    for metric in catalog:
        samples = tuple(metric.read(meters, around))
        name = metric_name(metric, prefix)
        # Leave out a metric without a sample: its help alone would look like a zero.
        if samples:
            lines += (f"# HELP {name} {metric.help}", f"# TYPE {name} {metric.kind}")
        for labels, value, seconds in samples:
            if isinstance(value, Histogram):
                # Cumulative here, but not in the meters: there one bucket changes at a time, so their sum is
                # consistent.
                total = 0
                for bound, count in zip((*map(str, BOUNDS_SECONDS), "+Inf"), value.counts, strict=True):
                    total += count
                    lines.append(f"{name}_bucket{_labels_text((*labels, ('le', bound)))} {total}")
                lines.append(f"{name}_sum{_labels_text(labels)} {exact_seconds(value.sum_ns)}")
                lines.append(f"{name}_count{_labels_text(labels)} {total}")
            else:
                lines.append(f"{name}{_labels_text(labels)} {exact_seconds(value) if seconds else value}")
    return "".join(f"{line}\n" for line in lines)


def _labels_text(labels: Labels) -> str:
    inner = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels)
    return f"{{{inner}}}" if inner else ""


def exact_seconds(value_ns: int) -> str:
    """Exact, without a float: 1.5, 0.000000001, 20."""
    whole, rest = divmod(value_ns, NS_PER_SECOND)
    return f"{whole}.{rest:09d}".rstrip("0").rstrip(".") if rest else str(whole)

"""Every metric in one table: its name, kind, help and value; and Prometheus' text format.

KEP-2712 and KEP-3960 give their names; a prefix adds the kubelet's, so that existing dashboards keep working.
All other names have our prefix.

First the readers of values from the meters (`otel.meters`) and from their context; then the table; then text
format 0.0.4, for a scrape or for node_exporter's textfile collector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from operator import attrgetter
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from ebbtide.events import decisions as d
from ebbtide.events import facts as f
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.values import BootEnding, ShutdownKind
from ebbtide.otel.meters import BOUNDS_SECONDS, LAST_PODS, PODS, TALLIED, Histogram, Meters

# --- how a value is found -------------------------------------------------------------------------


Labels = tuple[tuple[str, str], ...]


#: The outcomes of finished shutdowns.
OUTCOMES_OVER = tuple(outcome for outcome in get_args(d.EpisodeOutcome) if outcome != "running")


class Sample(NamedTuple):
    """One value. A time stays an integer of nanoseconds until the output."""

    labels: Labels
    value: int | Histogram


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

    Not ``live``: a journal alone knows no present state of the node. ``at_risk`` None: the node's pods are
    unknown. ``export_pending`` None: no export. ``shipping`` None: no shipping, or no attempt yet.
    """

    now_wall_ns: int
    live: bool = True
    at_risk: int | None = None
    journal_unsynced: int = 0
    journal_lost: bool = False
    journal_away: bool = False
    export_pending: int | None = None
    export_behind_ns: int = 0
    shipping: ShippingState | None = None


#: Takes its table's meters (`Meters`) and the context.
SampleReader = Callable[[Any, ReadContext], Iterable[Sample]]


def value_of(path: str) -> SampleReader:
    """One value of the meters, by its name."""
    read, of_node = attrgetter(path), path.startswith("node.")
    return lambda meters, around: [Sample((), int(read(meters)))] if around.live or not of_node else []


def value_around(path: str) -> SampleReader:
    """One value of the context, by its name; no sample for an unknown value."""
    of, _, name = path.rpartition(".")

    def read(_: Any, around: ReadContext) -> list[Sample]:
        holder = getattr(around, of) if of else around
        value = None if holder is None else getattr(holder, name)
        return [] if value is None or not around.live else [Sample((), int(value))]

    return read


def counted(name: str, labels: Mapping[str, Sequence[str]]) -> SampleReader:
    """``labels``: with the values that have a sample from the start; () where only counted ones have."""

    # A counter that begins with 1 shows no increase, and an alert on a node's first killed pod would stay
    # silent.
    def read(meters: Meters, around: ReadContext) -> Iterator[Sample]:
        counts = dict.fromkeys(map(",".join, product(*labels.values())), 0) | meters.counts.get(name, {})
        for values, count in counts.items():
            yield Sample(tuple(zip(labels, values.split(","), strict=False)), count)

    return read


def read_histograms(pick: Callable[[Meters], dict[str, Histogram]], name: str) -> SampleReader:
    return lambda meters, around: [Sample(((name, key),), each) for key, each in pick(meters).items()]


def read_answers(meters: Meters, around: ReadContext) -> Iterator[Sample]:
    for part, answers in meters.node.answers.items() if around.live else ():
        yield Sample((("part", part),), int(answers))


def read_shipped(meters: Meters, around: ReadContext) -> Iterator[Sample]:
    if around.shipping is not None:
        yield Sample((("outcome", "stored"),), around.shipping.stored)
        yield Sample((("outcome", "present"),), around.shipping.present)
        yield Sample((("outcome", "lost"),), around.shipping.lost)


def read_shipping_age(meters: Meters, around: ReadContext) -> Iterator[Sample]:
    if around.shipping is not None:
        # The clock may have been set back since.
        yield Sample((), max(0, around.now_wall_ns - (around.shipping.oldest_wall_ns or around.now_wall_ns)))


def read_age(meters: Meters, around: ReadContext) -> Iterator[Sample]:
    if meters.last_graceful_wall_ns:
        yield Sample((), max(0, around.now_wall_ns - meters.last_graceful_wall_ns))


def read_last_shutdown(meters: Meters, around: ReadContext) -> Iterator[Sample]:
    if meters.last.start_wall_ns:
        outcome = meters.last.outcome or "running"
        yield Sample((("kind", meters.last.kind), ("outcome", outcome)), 1)


# --- the table ------------------------------------------------------------------------------------

#: The prefix of the kubelet's own metrics.
KUBELET_PREFIX = "kubelet_"


class Metric(NamedTuple):
    """The end of a name says its kind and its unit."""

    name: str
    help: str
    read: SampleReader

    @property
    def kind(self) -> Literal["gauge", "counter", "histogram"]:
        if self.name.endswith("_total"):
            return "counter"
        return "histogram" if self.name.endswith("_duration_seconds") else "gauge"

    @property
    def seconds(self) -> bool:
        """Its values are nanoseconds, shown as seconds."""
        return "_seconds" in self.name


def metric_name(metric: Metric, prefix: str) -> str:
    """Its name to the outside: a KEP's name has the user's prefix."""
    return metric.name if metric.name.startswith("ebbtide_") else prefix + metric.name


#: Of one value each: its name, where the value is in the meters, and the help.
_OF_METERS = (
    (
        "graceful_shutdown_start_time_seconds",
        "last.start_wall_ns",
        "Unix time at which the last graceful shutdown began, 0 if there was none (KEP-2712).",
    ),
    (
        "graceful_shutdown_end_time_seconds",
        "last.end_wall_ns",
        "Unix time at which the last graceful shutdown ended, 0 while it runs (KEP-2712).",
    ),
    ("ebbtide_enabled", "node.enabled", "1 if the configuration asks for graceful shutdowns."),
    (
        "ebbtide_armed",
        "node.armed",
        "1 if the next shutdown will be held back: the lock is held and the signal is trusted.",
    ),
    ("ebbtide_lock_held", "node.lock_held", "1 if logind's delay lock is held."),
    ("ebbtide_grant_seconds", "node.grant_ns", "What logind allows: InhibitDelayMaxUSec."),
    ("ebbtide_requested_seconds", "node.requested_ns", "The sum of the configured periods."),
    ("ebbtide_reserve_seconds", "node.reserve_ns", "What is asked of logind on top of the periods."),
    ("ebbtide_grant_sufficient", "node.sufficient", "1 if the grant covers the periods and the reserve."),
    (
        "ebbtide_last_shutdown_start_time_seconds",
        "last.start_wall_ns",
        "Unix time at which the running or the last shutdown began, 0 if there was none.",
    ),
    (
        "ebbtide_kubelet_lock",
        "node.kubelet_lock",
        "1 if a kubelet holds a delay lock of its own, for its own graceful shutdown.",
    ),
)
#: The same of the context.
_OF_CONTEXT = (
    (
        "ebbtide_pods_at_risk",
        "at_risk",
        "Pods that would be killed if the machine went down now, as earlier shutdowns saw their workloads.",
    ),
    ("ebbtide_journal_unsynced_records", "journal_unsynced", "Records that a power cut would lose now."),
    ("ebbtide_journal_lost", "journal_lost", "1 if no location is left to write the journal to."),
    ("ebbtide_journal_away", "journal_away", "1 if the journal is not at its first location."),
    (
        "ebbtide_export_pending_shutdowns",
        "export_pending",
        "Shutdowns of whose trace a collector has not acknowledged everything yet.",
    ),
    (
        "ebbtide_shipping_failures_total",
        "shipping.failed",
        "Requests that the object store refused or did not answer.",
    ),
    (
        "ebbtide_shipping_pending_segments",
        "shipping.pending",
        "Closed segments that were not in the object store when it was last tried.",
    ),
)
#: Of counts: the labels with the values that always have a sample.
_COUNTED: tuple[tuple[str, Mapping[str, Sequence[str]], str], ...] = (
    ("sleep_action_terminated_early_total", {}, "Sleep hooks that ended before their time (KEP-3960)."),
    (
        LAST_PODS,
        {"wave": (), "priority": (), "outcome": (), "cause": ()},
        "Pods of the last shutdown by wave, outcome and cause (of a kill: hook, period, or its own grace).",
    ),
    (
        "ebbtide_shutdowns_total",
        {"kind": get_args(ShutdownKind), "outcome": OUTCOMES_OVER},
        "Shutdowns that are over, by kind and outcome.",
    ),
    (PODS, {"outcome": get_args(d.PodOutcome)}, "Pods of all shutdowns by their outcome."),
    ("ebbtide_hooks_total", {"kind": (), "result": ()}, "PreStop hooks by kind and result."),
    (
        "ebbtide_pods_by_means_total",
        {"means": (), "outcome": ()},
        "Pods of a Kubernetes node by the means that ended them (api, cri, observe) and their outcome.",
    ),
    (
        "ebbtide_certificates_total",
        {"verdict": ("safe", "unsafe")},
        "Certificates of a node that goes down, by whether its volumes were safe to detach.",
    ),
    (
        "ebbtide_boots_ended_total",
        {"ending": get_args(BootEnding)},
        "Boots of this node, by how they ended for its pods, as the next one found.",
    ),
    (
        TALLIED[d.HandedOver],
        {},
        "Shutdowns that were handed over from the API to the container runtime.",
    ),
    (TALLIED[d.DeleteRefused], {}, "Deletes of pods that the API server did not take in time."),
    (TALLIED[f.DaemonStarted], {}, "Starts of the daemon that the journal knows of."),
    (TALLIED[f.StorageFailed], {}, "Writes and syncs of the journal that failed."),
    (
        TALLIED[f.DurabilityLate],
        {},
        "Effects that started before their order was durable, because the disk did not answer.",
    ),
    (TALLIED[d.ActorFailed], {}, "Actors that failed and whose pods passed to the fallback."),
)

CATALOG: tuple[Metric, ...] = (
    *(Metric(name, text, value_of(path)) for name, path, text in _OF_METERS),
    *(Metric(name, text, value_around(path)) for name, path, text in _OF_CONTEXT),
    *(Metric(name, text, counted(name, labels)) for name, labels, text in _COUNTED),
    Metric(
        "ebbtide_seconds_since_last_graceful_shutdown",
        "Age of the last shutdown whose lock was released in order.",
        read_age,
    ),
    Metric(
        "ebbtide_last_shutdown",
        "1, labelled with the kind and the outcome of the running or the last shutdown.",
        read_last_shutdown,
    ),
    Metric(
        "ebbtide_pod_stop_duration_seconds",
        "From the begin of a pod's stop to its end, by outcome.",
        read_histograms(lambda meters: meters.stop_times, "outcome"),
    ),
    Metric(
        "ebbtide_hook_duration_seconds",
        "How long preStop hooks took, by kind.",
        read_histograms(lambda meters: meters.hook_times, "kind"),
    ),
    Metric(
        "ebbtide_answers",
        "1 if this part of the node answers: kubelet (it runs), runtime, api (the API server).",
        read_answers,
    ),
    Metric(
        "ebbtide_export_behind_seconds",
        "Age of the oldest shutdown of whose trace something is not acknowledged yet.",
        lambda _, around: [] if around.export_pending is None else [Sample((), around.export_behind_ns)],
    ),
    Metric(
        "ebbtide_shipping_segments_total",
        "Closed segments: stored; present under their name, content not verified; lost, removed here before.",
        read_shipped,
    ),
    Metric(
        "ebbtide_shipping_behind_seconds",
        "Time since the oldest of them was last written.",
        read_shipping_age,
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
        for labels, value in samples:
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
                lines.append(
                    f"{name}{_labels_text(labels)} {exact_seconds(value) if metric.seconds else value}"
                )
    return "".join(f"{line}\n" for line in lines)


def _labels_text(labels: Labels) -> str:
    inner = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels)
    return f"{{{inner}}}" if inner else ""


def exact_seconds(value_ns: int) -> str:
    """Exact, without a float: 1.5, 0.000000001, 20."""
    whole, rest = divmod(value_ns, NS_PER_SECOND)
    return f"{whole}.{rest:09d}".rstrip("0").rstrip(".") if rest else str(whole)

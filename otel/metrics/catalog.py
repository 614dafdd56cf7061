"""Every metric, in one table: its name, kind, unit, labels, what it says, and where its value is.

The names of KEP-2712 and KEP-3960 stand as the KEPs write them; ``prefix`` puts the kubelet's before them, so
that existing dashboards go on working. Everything else is ours, under one prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple

from otel.metrics.state import Histogram, Meters

NS_PER_SECOND = 1_000_000_000

#: What the kubelet puts before the names of its own metrics.
KUBELET_PREFIX = "kubelet_"

Kind = Literal["gauge", "counter", "histogram"]
Labels = tuple[tuple[str, str], ...]


class Sample(NamedTuple):
    """One value. A time stays an integer of nanoseconds until it is written down."""

    labels: Labels
    value: int | Histogram
    #: ``value`` is nanoseconds, shown as seconds.
    seconds: bool = False


class Around(NamedTuple):
    """What is not in the journal: the moment of the question, the writer's and the exporter's state.

    ``at_risk`` None: the pods of this node are not known. ``export_pending`` None: nothing is exported.
    """

    now_wall_ns: int
    at_risk: int | None = None
    journal_unsynced: int = 0
    journal_lost: bool = False
    journal_away: bool = False
    export_pending: int | None = None
    export_behind_ns: int = 0


Read = Callable[[Meters, Around], Iterable[Sample]]


class Metric(NamedTuple):
    """``kep``: named by a KEP, so the prefix is the user's choice."""

    name: str
    kind: Kind
    help: str
    read: Read
    kep: bool = False


def _plain(pick: Callable[[Meters], int], *, seconds: bool = False) -> Read:
    return lambda meters, around: (Sample((), pick(meters), seconds),)


def _around(pick: Callable[[Around], int], *, seconds: bool = False) -> Read:
    return lambda meters, around: (Sample((), pick(around), seconds),)


def _rows(pick: Callable[[Meters], dict[str, dict[str, int]]], *names: str) -> Read:
    def read(meters: Meters, around: Around) -> Iterator[Sample]:
        for first, row in pick(meters).items():
            for second, count in row.items():
                yield Sample(tuple(zip(names, (first, second), strict=True)), count)

    return read


def _histograms(pick: Callable[[Meters], dict[str, Histogram]], name: str) -> Read:
    return lambda meters, around: [Sample(((name, key),), each) for key, each in pick(meters).items()]


def _pods(meters: Meters, around: Around) -> Iterator[Sample]:
    for outcome, count in meters.pods.items():
        yield Sample((("outcome", outcome),), count)


def _since(meters: Meters, around: Around) -> Iterator[Sample]:
    """Nothing where there was none: an age that is not known is no age of zero."""
    if meters.last_graceful_wall_ns:
        yield Sample((), max(0, around.now_wall_ns - meters.last_graceful_wall_ns), True)


def _last(meters: Meters, around: Around) -> Iterator[Sample]:
    if meters.last.start_wall_ns:
        outcome = meters.last.outcome or "running"
        yield Sample((("kind", meters.last.kind), ("outcome", outcome)), 1)


def _at_risk(meters: Meters, around: Around) -> Iterator[Sample]:
    if around.at_risk is not None:
        yield Sample((), around.at_risk)


def _pending(meters: Meters, around: Around) -> Iterator[Sample]:
    if around.export_pending is not None:
        yield Sample((), around.export_pending)


def _behind(meters: Meters, around: Around) -> Iterator[Sample]:
    if around.export_pending is not None:
        yield Sample((), around.export_behind_ns, True)


CATALOG: tuple[Metric, ...] = (
    Metric(
        "graceful_shutdown_start_time_seconds",
        "gauge",
        "Unix time at which the last graceful shutdown began, 0 if there was none (KEP-2712).",
        _plain(lambda meters: meters.last.start_wall_ns, seconds=True),
        kep=True,
    ),
    Metric(
        "graceful_shutdown_end_time_seconds",
        "gauge",
        "Unix time at which the last graceful shutdown ended, 0 while it runs (KEP-2712).",
        _plain(lambda meters: meters.last.end_wall_ns, seconds=True),
        kep=True,
    ),
    Metric(
        "sleep_action_terminated_early_total",
        "counter",
        "Sleep hooks that ended before their time (KEP-3960).",
        _plain(lambda meters: meters.sleeps_early),
        kep=True,
    ),
    Metric(
        "ebbtide_enabled",
        "gauge",
        "1 if the configuration asks for graceful shutdowns.",
        _plain(lambda meters: int(meters.enabled)),
    ),
    Metric(
        "ebbtide_armed",
        "gauge",
        "1 if the next shutdown will be held back: the lock is held and the signal is trusted.",
        _plain(lambda meters: int(meters.armed)),
    ),
    Metric(
        "ebbtide_lock_held",
        "gauge",
        "1 if logind's delay lock is held.",
        _plain(lambda meters: int(meters.lock_held)),
    ),
    Metric(
        "ebbtide_grant_seconds",
        "gauge",
        "What logind allows: InhibitDelayMaxUSec.",
        _plain(lambda meters: meters.grant_ns, seconds=True),
    ),
    Metric(
        "ebbtide_requested_seconds",
        "gauge",
        "The sum of the configured periods.",
        _plain(lambda meters: meters.requested_ns, seconds=True),
    ),
    Metric(
        "ebbtide_reserve_seconds",
        "gauge",
        "What is asked of logind on top of the periods.",
        _plain(lambda meters: meters.reserve_ns, seconds=True),
    ),
    Metric(
        "ebbtide_grant_sufficient",
        "gauge",
        "1 if the grant covers the periods and the reserve.",
        _plain(lambda meters: int(meters.sufficient)),
    ),
    Metric(
        "ebbtide_pods_at_risk",
        "gauge",
        "Pods that would be killed if the machine went down now, as earlier shutdowns saw their workloads.",
        _at_risk,
    ),
    Metric(
        "ebbtide_seconds_since_last_graceful_shutdown",
        "gauge",
        "Age of the last shutdown whose lock was released in order.",
        _since,
    ),
    Metric(
        "ebbtide_last_shutdown",
        "gauge",
        "1, labelled with the kind and the outcome of the running or the last shutdown.",
        _last,
    ),
    Metric(
        "ebbtide_last_shutdown_pods",
        "gauge",
        "Pods of the last shutdown by the priority of their wave and by their outcome.",
        _rows(lambda meters: meters.last.waves, "priority", "outcome"),
    ),
    Metric(
        "ebbtide_shutdowns_total",
        "counter",
        "Shutdowns that are over, by kind and outcome.",
        _rows(lambda meters: meters.shutdowns, "kind", "outcome"),
    ),
    Metric("ebbtide_pods_total", "counter", "Pods of all shutdowns by their outcome.", _pods),
    Metric(
        "ebbtide_hooks_total",
        "counter",
        "PreStop hooks by kind and result.",
        _rows(lambda meters: meters.hooks, "kind", "result"),
    ),
    Metric(
        "ebbtide_pod_stop_duration_seconds",
        "histogram",
        "From the begin of a pod's stop to its end, by outcome.",
        _histograms(lambda meters: meters.stop_times, "outcome"),
    ),
    Metric(
        "ebbtide_hook_duration_seconds",
        "histogram",
        "How long preStop hooks took, by kind.",
        _histograms(lambda meters: meters.hook_times, "kind"),
    ),
    Metric(
        "ebbtide_daemon_starts_total",
        "counter",
        "Starts of the daemon that the journal knows of.",
        _plain(lambda meters: meters.starts),
    ),
    Metric(
        "ebbtide_journal_storage_failures_total",
        "counter",
        "Writes and syncs of the journal that failed.",
        _plain(lambda meters: meters.storage_failures),
    ),
    Metric(
        "ebbtide_journal_late_total",
        "counter",
        "Effects that started before their order was durable, because the disk did not answer.",
        _plain(lambda meters: meters.late_durability),
    ),
    Metric(
        "ebbtide_journal_unsynced_records",
        "gauge",
        "Records that a power cut would lose now.",
        _around(lambda around: around.journal_unsynced),
    ),
    Metric(
        "ebbtide_journal_lost",
        "gauge",
        "1 if no location is left to write the journal to.",
        _around(lambda around: int(around.journal_lost)),
    ),
    Metric(
        "ebbtide_journal_away",
        "gauge",
        "1 if the journal is not at its first location.",
        _around(lambda around: int(around.journal_away)),
    ),
    Metric(
        "ebbtide_actor_failures_total",
        "counter",
        "Actors that failed and whose pods passed to the fallback.",
        _plain(lambda meters: meters.actor_failures),
    ),
    Metric(
        "ebbtide_export_pending_spans",
        "gauge",
        "Spans that no collector has acknowledged yet.",
        _pending,
    ),
    Metric(
        "ebbtide_export_behind_seconds",
        "gauge",
        "Age of the oldest span that no collector has acknowledged yet.",
        _behind,
    ),
)

"""Every metric, in one table: its name, kind, what it says, and where its value is.

The names of KEP-2712 and KEP-3960 stand as the KEPs write them; a prefix puts the kubelet's before them, so
that existing dashboards go on working. Everything else is ours, under one prefix.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from otel.metrics import reading
from otel.metrics.reading import Read

#: What the kubelet puts before the names of its own metrics.
KUBELET_PREFIX = "kubelet_"

Kind = Literal["gauge", "counter", "histogram"]


class Metric(NamedTuple):
    """``kep``: named by a KEP, so the prefix is the user's choice."""

    name: str
    kind: Kind
    help: str
    read: Read
    kep: bool = False


def name_of(metric: Metric, prefix: str) -> str:
    """Its name to the outside."""
    return prefix + metric.name if metric.kep else metric.name


CATALOG: tuple[Metric, ...] = (
    Metric(
        "graceful_shutdown_start_time_seconds",
        "gauge",
        "Unix time at which the last graceful shutdown began, 0 if there was none (KEP-2712).",
        reading.plain(lambda meters: meters.last.start_wall_ns, seconds=True),
        kep=True,
    ),
    Metric(
        "graceful_shutdown_end_time_seconds",
        "gauge",
        "Unix time at which the last graceful shutdown ended, 0 while it runs (KEP-2712).",
        reading.plain(lambda meters: meters.last.end_wall_ns, seconds=True),
        kep=True,
    ),
    Metric(
        "sleep_action_terminated_early_total",
        "counter",
        "Sleep hooks that ended before their time (KEP-3960).",
        reading.plain(lambda meters: meters.sleeps_early),
        kep=True,
    ),
    Metric(
        "ebbtide_enabled",
        "gauge",
        "1 if the configuration asks for graceful shutdowns.",
        reading.plain(lambda meters: int(meters.enabled)),
    ),
    Metric(
        "ebbtide_armed",
        "gauge",
        "1 if the next shutdown will be held back: the lock is held and the signal is trusted.",
        reading.live(lambda meters: int(meters.armed)),
    ),
    Metric(
        "ebbtide_lock_held",
        "gauge",
        "1 if logind's delay lock is held.",
        reading.live(lambda meters: int(meters.lock_held)),
    ),
    Metric(
        "ebbtide_grant_seconds",
        "gauge",
        "What logind allows: InhibitDelayMaxUSec.",
        reading.plain(lambda meters: meters.grant_ns, seconds=True),
    ),
    Metric(
        "ebbtide_requested_seconds",
        "gauge",
        "The sum of the configured periods.",
        reading.plain(lambda meters: meters.requested_ns, seconds=True),
    ),
    Metric(
        "ebbtide_reserve_seconds",
        "gauge",
        "What is asked of logind on top of the periods.",
        reading.plain(lambda meters: meters.reserve_ns, seconds=True),
    ),
    Metric(
        "ebbtide_grant_sufficient",
        "gauge",
        "1 if the grant covers the periods and the reserve.",
        reading.plain(lambda meters: int(meters.sufficient)),
    ),
    Metric(
        "ebbtide_pods_at_risk",
        "gauge",
        "Pods that would be killed if the machine went down now, as earlier shutdowns saw their workloads.",
        reading.at_risk,
    ),
    Metric(
        "ebbtide_seconds_since_last_graceful_shutdown",
        "gauge",
        "Age of the last shutdown whose lock was released in order.",
        reading.since,
    ),
    Metric(
        "ebbtide_last_shutdown",
        "gauge",
        "1, labelled with the kind and the outcome of the running or the last shutdown.",
        reading.last,
    ),
    Metric(
        "ebbtide_last_shutdown_start_time_seconds",
        "gauge",
        "Unix time at which the running or the last shutdown began, 0 if there was none.",
        reading.plain(lambda meters: meters.last.start_wall_ns, seconds=True),
    ),
    Metric(
        "ebbtide_last_shutdown_pods",
        "gauge",
        "Pods of the last shutdown by wave, outcome and cause (of a kill: hook, period, or its own grace).",
        reading.fates,
    ),
    Metric(
        "ebbtide_shutdowns_total",
        "counter",
        "Shutdowns that are over, by kind and outcome.",
        reading.shutdowns,
    ),
    Metric("ebbtide_pods_total", "counter", "Pods of all shutdowns by their outcome.", reading.pods),
    Metric(
        "ebbtide_hooks_total",
        "counter",
        "PreStop hooks by kind and result.",
        reading.rows(lambda meters: meters.hooks, "kind", "result"),
    ),
    Metric(
        "ebbtide_pod_stop_duration_seconds",
        "histogram",
        "From the begin of a pod's stop to its end, by outcome.",
        reading.histograms(lambda meters: meters.stop_times, "outcome"),
    ),
    Metric(
        "ebbtide_hook_duration_seconds",
        "histogram",
        "How long preStop hooks took, by kind.",
        reading.histograms(lambda meters: meters.hook_times, "kind"),
    ),
    Metric(
        "ebbtide_answers",
        "gauge",
        "1 if this part of the node answers: kubelet (it runs), runtime, api (the API server).",
        reading.answers,
    ),
    Metric(
        "ebbtide_kubelet_lock",
        "gauge",
        "1 if a kubelet holds a delay lock of its own, for its own graceful shutdown.",
        reading.live(lambda meters: int(meters.kubelet_lock)),
    ),
    Metric(
        "ebbtide_pods_by_means_total",
        "counter",
        "Pods of a Kubernetes node by the means that ended them (api, cri, observe) and their outcome.",
        reading.rows(lambda meters: meters.pods_by_means, "means", "outcome"),
    ),
    Metric(
        "ebbtide_handovers_total",
        "counter",
        "Shutdowns that were handed over from the API to the container runtime.",
        reading.plain(lambda meters: meters.handovers),
    ),
    Metric(
        "ebbtide_deletes_refused_total",
        "counter",
        "Deletes of pods that the API server did not take in time.",
        reading.plain(lambda meters: meters.refused_deletes),
    ),
    Metric(
        "ebbtide_certificates_total",
        "counter",
        "Certificates of a node that goes down, by whether its volumes were safe to detach.",
        reading.certificates,
    ),
    Metric(
        "ebbtide_daemon_starts_total",
        "counter",
        "Starts of the daemon that the journal knows of.",
        reading.plain(lambda meters: meters.starts),
    ),
    Metric(
        "ebbtide_journal_storage_failures_total",
        "counter",
        "Writes and syncs of the journal that failed.",
        reading.plain(lambda meters: meters.storage_failures),
    ),
    Metric(
        "ebbtide_journal_late_total",
        "counter",
        "Effects that started before their order was durable, because the disk did not answer.",
        reading.plain(lambda meters: meters.late_durability),
    ),
    Metric(
        "ebbtide_journal_unsynced_records",
        "gauge",
        "Records that a power cut would lose now.",
        reading.around(lambda around: around.journal_unsynced),
    ),
    Metric(
        "ebbtide_journal_lost",
        "gauge",
        "1 if no location is left to write the journal to.",
        reading.around(lambda around: int(around.journal_lost)),
    ),
    Metric(
        "ebbtide_journal_away",
        "gauge",
        "1 if the journal is not at its first location.",
        reading.around(lambda around: int(around.journal_away)),
    ),
    Metric(
        "ebbtide_actor_failures_total",
        "counter",
        "Actors that failed and whose pods passed to the fallback.",
        reading.plain(lambda meters: meters.actor_failures),
    ),
    Metric(
        "ebbtide_export_pending_shutdowns",
        "gauge",
        "Shutdowns of whose trace a collector has not acknowledged everything yet.",
        reading.pending,
    ),
    Metric(
        "ebbtide_export_behind_seconds",
        "gauge",
        "Age of the oldest shutdown of whose trace something is not acknowledged yet.",
        reading.behind,
    ),
)

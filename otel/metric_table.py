"""Every metric: its sums over a journal, its name, kind, help and value, and Prometheus' text format.

The sums (`Meters`) are also a side file, because retention removes segments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate, product
from operator import attrgetter
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from ebbtide.events import decisions as d
from ebbtide.events import facts as f
from ebbtide.events.base import NS_PER_SECOND, Event, Record
from ebbtide.events.catalog import Source
from ebbtide.events.codec import BadPayload, UnknownType, decode_record
from ebbtide.events.reader import History
from ebbtide.events.record.causes import cause_tree, root_cause
from ebbtide.events.record.episodes import shutdown_records
from ebbtide.events.record.fold import NODE_EVENTS, NodeState
from ebbtide.events.record.shutdown_record import ShutdownRecord
from ebbtide.events.values import BootEnding, Pod, ShutdownKind, workload_name

#: From a hook's milliseconds to a database's half hour.
BOUNDS_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1800)
REST = "+Inf"
BOUNDS_NS = tuple(round(bound * 1_000_000_000) for bound in BOUNDS_SECONDS)

#: Raise it when the sums change their meaning.
METERS_FORMAT = 4

#: Of shutdowns whose trace may still wait for its export.
ENDS_MAX = 64

#: The second has only the running or the last shutdown.
PODS, LAST_PODS = "ebbtide_pods_total", "ebbtide_last_shutdown_pods"

#: A node sees a few hundred workloads in its life. Drop the oldest.
WORKLOADS_MAX = 2000


class Histogram(msgspec.Struct, kw_only=True, omit_defaults=True):
    """``counts``: by bucket, not cumulative; the last bucket is above all bounds."""

    counts: list[int] = msgspec.field(default_factory=lambda: [0] * (len(BOUNDS_NS) + 1))
    sum_ns: int = 0

    def add(self, value_ns: int) -> None:
        at = next((at for at, bound in enumerate(BOUNDS_NS) if value_ns <= bound), len(BOUNDS_NS))
        self.counts[at] += 1
        self.sum_ns += value_ns

    def cumulative(self) -> dict[str, int]:
        """By upper bound in seconds."""
        return dict(zip((*map(str, BOUNDS_SECONDS), REST), accumulate(self.counts), strict=True))


class WorkloadNeed(msgspec.Struct, kw_only=True, omit_defaults=True):
    """How long a workload's pods took to end. ``needs_more``: the longest ended by SIGKILL."""

    longest_ns: int = 0
    needs_more: bool = False


class LastShutdown(msgspec.Struct, kw_only=True, omit_defaults=True):
    kind: str = "unknown"
    start_wall_ns: int = 0
    #: 0: another boot continues, with another monotonic clock.
    start_mono_ns: int = 0
    end_wall_ns: int = 0
    outcome: str = ""

    def end(self, record: Record) -> None:
        """A step of the wall clock in mid-shutdown does not change its length, as in `journal ls`."""
        took_ns = record.mono_ns - self.start_mono_ns
        self.end_wall_ns = self.start_wall_ns + took_ns if self.start_mono_ns else record.wall_ns


class OpenPod(msgspec.Struct, kw_only=True, omit_defaults=True):
    """``outcome``: the last one, because the kubelet may start a pod again."""

    workload: str = ""
    hooks: dict[str, str] = {}
    #: Its wave gave it less than it asks for.
    short: bool = False
    hook_cut: bool = False
    outcome: str = ""
    means: str = ""
    elapsed_ns: int = 0
    #: Its labels in `LAST_PODS`; empty: not counted.
    counted: str = ""


class CauseCount(msgspec.Struct, frozen=True):
    """``pods``: how many it explains."""

    code: str
    level: str
    severity: str
    pods: int


def last_causes(history: History) -> list[CauseCount]:
    """Of the last shutdown, in `blame`'s order; empty: it went well. Reads the whole history."""
    last: ShutdownRecord | None = None
    with suppress(BadPayload, UnknownType):
        # Keep one at a time: a journal may have hundreds.
        for record in shutdown_records(history):
            last = record
    if last is None or root_cause(last) is None:
        return []
    roots = (root for root in cause_tree(last) if root.level != "remark")
    return [CauseCount(each.code, each.level, each.severity, len(each.pods)) for each in roots]


class Meters(msgspec.Struct, kw_only=True, omit_defaults=True):
    """``seq``: the last counted record."""

    #: Sums of another format are not used.
    format: int = METERS_FORMAT
    seq: int = 0
    journal_id: bytes = b""
    node: NodeState = msgspec.field(default_factory=NodeState)
    #: By metric, then by the values of its labels, joined by commas.
    counts: dict[str, dict[str, int]] = {}
    stop_times: dict[str, Histogram] = {}
    hook_times: dict[str, Histogram] = {}
    last: LastShutdown = msgspec.field(default_factory=LastShutdown)
    #: Of the last shutdown, from its record; empty while it runs.
    causes: list[CauseCount] = []
    last_graceful_wall_ns: int = 0
    needs: dict[str, WorkloadNeed] = {}
    #: Of the open shutdown: priorities by wave, pods by UID.
    priorities: dict[int, int] = {}
    open_pods: dict[str, OpenPod] = {}
    episode: int = 0
    #: Of the latest shutdowns, by number: the last counted record and its time.
    ends: dict[int, tuple[int, int]] = {}
    boot_id: str = ""

    @property
    def fits(self) -> bool:
        """This version can use it."""
        histograms = (*self.stop_times.values(), *self.hook_times.values())
        whole = all(len(each.counts) == len(BOUNDS_NS) + 1 for each in histograms)
        return self.format == METERS_FORMAT and self.seq >= 0 and whole

    def count(self, metric: str, *labels: str) -> None:
        counts, key = self.counts.setdefault(metric, {}), ",".join(labels)
        counts[key] = counts.get(key, 0) + 1

    def ended(self, episode: int, seq: int, wall_ns: int) -> None:
        self.ends[episode] = (seq, wall_ns)
        if len(self.ends) > ENDS_MAX:
            del self.ends[min(self.ends)]

    def need(self, workload: str) -> WorkloadNeed:
        """Moves the workload to the end."""
        need = self.needs.pop(workload, None) or WorkloadNeed()
        self.needs[workload] = need
        if len(self.needs) > WORKLOADS_MAX:
            del self.needs[next(iter(self.needs))]
        return need


# --- records into meters


def fold(meters: Meters, records: Iterable[Record]) -> None:
    for record in records:
        # After a restart, records since the last checkpoint come again.
        if record.seq <= meters.seq:
            continue
        meters.seq = record.seq
        if type(record.event).__name__ in METERED:
            meters.node.see(record)
            if record.episode:
                meters.ended(record.episode, record.seq, record.wall_ns)
            _count(meters, record)


def _count(to: Meters, record: Record) -> None:
    """Every type here is in `COUNTED` (tests/otel/test_metrics.py)."""
    if (metric := TALLIED.get(type(record.event))) is not None:
        to.count(metric)
    match record.event:
        case f.DaemonStarted() as event if event.boot_id != to.boot_id:
            to.boot_id, to.last.start_mono_ns = event.boot_id, 0
        case f.InventoryTaken() as event if to.episode and not to.priorities:
            # The machine may go down before the plan.
            to.open_pods |= {pod.uid: open_pod(pod) for pod in event.pods}
        case d.LastBootEnded() as event:
            to.count("ebbtide_boots_ended_total", event.ending)
        case d.DetachCertified() as event:
            to.count("ebbtide_certificates_total", "safe" if event.safe else "unsafe")
        case d.ShutdownBegan() as event:
            to.last = LastShutdown(
                kind=event.kind, start_wall_ns=record.wall_ns, start_mono_ns=record.mono_ns
            )
            to.episode, to.priorities, to.open_pods = record.episode, {}, {}
            to.counts.pop(LAST_PODS, None)
            to.causes = []
        case d.PlanMade() as event:
            to.priorities |= {index: wave.priority for index, wave in enumerate(event.waves)}
        case d.PodPlanned() as event:
            pod = event.pod
            _count_last(to, to.open_pods.get(pod.uid), "")
            to.open_pods[pod.uid] = open_pod(pod)
            short = pod.deletion is None and event.grace_seconds < (pod.grace_seconds or 0)
            to.open_pods[pod.uid].short = short
        case d.HookEnded() as event:
            known = to.open_pods.get(event.uid)
            kind = known.hooks.get(event.container, "unknown") if known is not None else "unknown"
            to.count("ebbtide_hooks_total", kind, event.result)
            to.hook_times.setdefault(kind, Histogram()).add(event.elapsed_ns)
            if event.early:
                to.count("sleep_action_terminated_early_total")
            if known is not None:
                known.hook_cut |= event.result in ("timed-out", "cancelled") and not event.early
        case d.PodEnded() as event:
            ended = to.open_pods.setdefault(event.uid, OpenPod())
            ended.outcome, ended.means, ended.elapsed_ns = event.outcome, event.means, event.elapsed_ns
            # The first cause of a kill counts: its hook used the grace, its wave gave it less than it asks
            # for, or its own grace was too short.
            cause = "gone" if event.gone else CAUSES.get(event.outcome, "unknown")
            if event.outcome == "killed" and ended.workload:
                cause = "hook" if ended.hook_cut else "period" if ended.short else "grace"
            place = f"{event.wave},{to.priorities.get(event.wave, '')}"
            _count_last(to, ended, f"{place},{event.outcome},{cause}")
        case d.PodRejected() as event if event.uid not in to.open_pods:
            rejected = to.open_pods[event.uid] = OpenPod(outcome="rejected")
            _count_last(to, rejected, f",,rejected,{CAUSES['rejected']}")
        case d.ReleaseLock() if to.episode:
            # The machine goes down, so this may be the last record.
            to.last.end(record)
            to.last.outcome, to.last_graceful_wall_ns = "complete", to.last.end_wall_ns
        case d.EpisodeClosed() as event:
            to.count("ebbtide_shutdowns_total", to.last.kind, event.outcome)
            to.last.outcome = event.outcome
            # A shutdown that was cut short has no observed end.
            if event.outcome == "cancelled":
                to.last.end(record)
            count_pods(to, followed=event.followed)


#: The cause of an outcome, except of a kill.
CAUSES = {
    "graceful": "exited",
    "failed": "runtime",
    "spared": "cancelled",
    "rejected": "late",
    "unknown": "unknown",
}


def open_pod(pod: Pod) -> OpenPod:
    return OpenPod(
        workload=f"{pod.namespace}/{workload_name(pod.name)}",
        hooks={each.name: each.hook.kind for each in pod.containers if each.hook is not None},
    )


def _count_last(to: Meters, pod: OpenPod | None, labels: str) -> None:
    """Count the pod once, by its last end. ``labels`` empty: it runs again."""
    counts = to.counts.setdefault(LAST_PODS, {})
    if pod is not None and pod.counted:
        counts[pod.counted] -= 1
    if pod is not None:
        pod.counted = labels
    if labels:
        counts[labels] = counts.get(labels, 0) + 1


def count_pods(to: Meters, *, followed: bool = False) -> None:
    """Count the pods of the finished shutdown, each once, as `journal ls` does.

    ``followed``: the next shutdown counts its open pods.
    """
    for pod in to.open_pods.values():
        if followed and not pod.outcome:
            continue
        if not pod.outcome:
            _count_last(to, pod, f",,unknown,{CAUSES['unknown']}")
        outcome = pod.outcome or "unknown"
        to.count(PODS, outcome)
        if pod.means:
            to.count("ebbtide_pods_by_means_total", pod.means, outcome)
        if outcome in ("graceful", "killed"):
            to.stop_times.setdefault(outcome, Histogram()).add(pod.elapsed_ns)
        if outcome in ("graceful", "killed") and pod.workload:
            need = to.need(pod.workload)
            if pod.elapsed_ns >= need.longest_ns:
                need.longest_ns, need.needs_more = pod.elapsed_ns, outcome == "killed"
    to.episode, to.open_pods = 0, {}


#: Metrics that count an event.
TALLIED: dict[type[Event], str] = {
    f.DaemonStarted: "ebbtide_daemon_starts_total",
    f.StorageFailed: "ebbtide_journal_storage_failures_total",
    f.DurabilityLate: "ebbtide_journal_late_total",
    d.ActorFailed: "ebbtide_actor_failures_total",
    d.HandedOver: "ebbtide_handovers_total",
    d.DeleteRefused: "ebbtide_deletes_refused_total",
}
#: Other events that the sums need.
COUNTED: tuple[type[Event], ...] = (
    *(f.DaemonStarted, f.InventoryTaken, d.LastBootEnded, d.DetachCertified, d.ShutdownBegan),
    *(d.PlanMade, d.PodPlanned, d.HookEnded, d.PodEnded, d.PodRejected, d.ReleaseLock, d.EpisodeClosed),
)
#: The tags of records that change a sum.
METERED = frozenset(kind.__name__ for kind in (*TALLIED, *COUNTED, *NODE_EVENTS))


METERS_FILE_NAME = "metrics"

#: Some hundred bytes for each workload.
METERS_BYTES_MAX = 1024 * 1024


def kept_meters(sources: Sequence[Source], journal_id: bytes) -> Meters:
    """The newest side file of this journal in all locations, or empty meters.

    A reader of the whole journal distrusts a ``seq`` that the journal does not reach.
    """
    found = [Meters(journal_id=journal_id)]
    for source in sources:
        # Without a usable file, count the rest of the journal. (msgspec's errors are ValueErrors.)
        with suppress(OSError, ValueError, RecursionError):
            data = source.read(METERS_FILE_NAME, 0, METERS_BYTES_MAX)
            found.append(msgspec.msgpack.decode(data, type=Meters))
    usable = (meters for meters in found if meters.fits and meters.journal_id == journal_id)
    return max(usable, key=lambda each: each.seq)


def fold_before(sources: Sequence[Source], journal_id: bytes, seq: int) -> Meters:
    """The journal before record ``seq``. Raises OSError."""
    meters = Meters(journal_id=journal_id)
    for raw in History(sources, journal=journal_id.hex()).raw():
        if raw.seq >= seq:
            break
        if raw.tag in METERED:
            # An unreadable record costs only its own count.
            with suppress(BadPayload, UnknownType):
                fold(meters, (decode_record(raw),))
    # Also if the last records changed no sum, or each start would fold them again.
    meters.seq = max(meters.seq, seq - 1)
    return meters


# --- how a value is found

Labels = tuple[tuple[str, str], ...]


#: The outcomes of finished shutdowns.
OUTCOMES_OVER = tuple(outcome for outcome in get_args(d.EpisodeOutcome) if outcome != "running")


class Sample(NamedTuple):
    """A time stays in nanoseconds until the output."""

    labels: Labels
    value: int | Histogram


class ShippingState(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of closed segments; ``failed`` counts requests. ``lost``, since the daemon's start: removed here
    before they were known to be stored. ``oldest_wall_ns``: the last write of the oldest pending one;
    ``reason``: why it is not stored.
    """

    stored: int = 0
    present: int = 0
    failed: int = 0
    lost: int = 0
    pending: int = 0
    oldest_wall_ns: int = 0
    reason: str = ""


class ReadContext(NamedTuple):
    """Values outside of the journal.

    Not ``live``: a journal alone does not show the node's present state. ``at_risk`` None: the node's pods
    are unknown. ``export_pending`` None: no export. ``shipping`` None: no shipping, or no attempt yet.
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


SampleReader = Callable[[Any, ReadContext], Iterable[Sample]]


def value_of(path: str) -> SampleReader:
    """From the meters."""
    read, of_node = attrgetter(path), path.startswith("node.")
    return lambda meters, around: [Sample((), int(read(meters)))] if around.live or not of_node else []


def value_around(path: str) -> SampleReader:
    """From the context; no sample for an unknown value."""
    of, _, name = path.rpartition(".")

    def read(_: Any, around: ReadContext) -> list[Sample]:
        holder = getattr(around, of) if of else around
        value = None if holder is None else getattr(holder, name)
        return [] if value is None or not around.live else [Sample((), int(value))]

    return read


def counted(name: str, labels: Mapping[str, Sequence[str]]) -> SampleReader:
    """``labels``: with the values that have a sample from the start; (): none has."""

    # A counter that begins with 1 shows no increase: no alert would report a node's first killed pod.
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
        # The clock may have been set back.
        yield Sample((), max(0, around.now_wall_ns - (around.shipping.oldest_wall_ns or around.now_wall_ns)))


def read_age(meters: Meters, around: ReadContext) -> Iterator[Sample]:
    if meters.last_graceful_wall_ns:
        yield Sample((), max(0, around.now_wall_ns - meters.last_graceful_wall_ns))


def read_last_shutdown(meters: Meters, around: ReadContext) -> Iterator[Sample]:
    if meters.last.start_wall_ns:
        outcome = meters.last.outcome or "running"
        yield Sample((("kind", meters.last.kind), ("outcome", outcome)), 1)


def read_causes(meters: Meters, around: ReadContext) -> Iterator[Sample]:
    for place, each in enumerate(meters.causes, start=1):
        named = {"cause": each.code, "level": each.level, "severity": each.severity, "line": str(place)}
        yield Sample(tuple(named.items()), each.pods)


#: KEP-2712 and KEP-3960 have names without this prefix of the kubelet.
KUBELET_PREFIX = "kubelet_"


class Metric(NamedTuple):
    """The name's end shows kind and unit."""

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
        """Show its nanoseconds as seconds."""
        return "_seconds" in self.name


def metric_name(metric: Metric, prefix: str) -> str:
    """A KEP's name gets the user's prefix."""
    return metric.name if metric.name.startswith("ebbtide_") else prefix + metric.name


#: Of one value: name, place in the meters, help.
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
    (
        "ebbtide_reserve_seconds",
        "node.reserve_ns",
        "The reserve that logind is asked for on top of the periods.",
    ),
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
#: The same for the context.
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
#: Of counts: name, labels as for `counted`, help.
_COUNTED: tuple[tuple[str, Mapping[str, Sequence[str]], str], ...] = (
    ("sleep_action_terminated_early_total", {}, "Sleep hooks that ended before their time (KEP-3960)."),
    (
        LAST_PODS,
        {"wave": (), "priority": (), "outcome": (), "cause": ()},
        "Pods of the last shutdown by wave, outcome and cause (of a kill: hook, period, or its own grace;"
        " gone: it has ended, and how is not known).",
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
        "ebbtide_last_shutdown_causes",
        "Pods that each root cause of the last bad shutdown explains; line 1 is the first line of blame.",
        read_causes,
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


# --- text format 0.0.4

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def exposition(meters: Meters, around: ReadContext, prefix: str = "") -> str:
    """``prefix``: as in `metric_name`."""
    return exposition_of(CATALOG, meters, around, prefix)


def exposition_of(catalog: Sequence[Metric], meters: Any, around: ReadContext, prefix: str = "") -> str:
    lines: list[str] = []
    for metric in catalog:
        samples = tuple(metric.read(meters, around))
        name = metric_name(metric, prefix)
        # Omit a metric without a sample: its help alone would look like a zero.
        if samples:
            lines += (f"# HELP {name} {metric.help}", f"# TYPE {name} {metric.kind}")
        for labels, value in samples:
            if isinstance(value, Histogram):
                buckets = value.cumulative()
                for bound, count in buckets.items():
                    lines.append(f"{name}_bucket{_labels_text((*labels, ('le', bound)))} {count}")
                lines.append(f"{name}_sum{_labels_text(labels)} {exact_seconds(value.sum_ns)}")
                lines.append(f"{name}_count{_labels_text(labels)} {buckets[REST]}")
            else:
                lines.append(
                    f"{name}{_labels_text(labels)} {exact_seconds(value) if metric.seconds else value}"
                )
    return "".join(f"{line}\n" for line in lines)


def as_openmetrics(text: str) -> str:
    """In OpenMetrics a counter's family has no ``_total``."""
    return re.sub(r"(?m)^(# (?:HELP|TYPE) \S+)_total ", r"\1 ", text) + "# EOF\n"


def _labels_text(labels: Labels) -> str:
    inner = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels)
    return f"{{{inner}}}" if inner else ""


def exact_seconds(value_ns: int) -> str:
    """Without a float: 1.5, 0.000000001, 20."""
    whole, rest = divmod(value_ns, NS_PER_SECOND)
    return f"{whole}.{rest:09d}".rstrip("0").rstrip(".") if rest else str(whole)

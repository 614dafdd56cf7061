"""The metrics' sums over all shutdowns of a journal, and the state of the node.

Retention removes a journal's segments, so `Meters` is a side file beside it. A restart in mid-shutdown
continues the sums: they cannot wait for the shutdown's record, whose first events an earlier process read.
Times are nanoseconds, on the wall clock where their name says so.

`fold` takes each record once, in the order of the journal (`Meters.seq`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

import msgspec

from ebbtide.events import decisions as d
from ebbtide.events import facts as f
from ebbtide.events.base import Event, Record
from ebbtide.events.catalog import Source
from ebbtide.events.codec import BadPayload, UnknownType, decode_record
from ebbtide.events.reader import History
from ebbtide.events.record.node_state import NODE_EVENTS, NodeState
from ebbtide.events.values import workload_name

#: A hook takes milliseconds, a database's stop half an hour.
BOUNDS_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1800)
BOUNDS_NS = tuple(round(bound * 1_000_000_000) for bound in BOUNDS_SECONDS)

#: Raised when the sums change their meaning.
METERS_FORMAT = 3

#: Shutdowns whose trace may still wait for its export.
ENDS_MAX = 64

#: Pods of all shutdowns, and of the running or the last one.
PODS, LAST_PODS = "ebbtide_pods_total", "ebbtide_last_shutdown_pods"

#: A node sees a few hundred workloads in its life; the oldest go first.
WORKLOADS_MAX = 2000


class Histogram(msgspec.Struct, kw_only=True, omit_defaults=True):
    """``counts`` a bucket, the last one above all bounds; not cumulative."""

    counts: list[int] = msgspec.field(default_factory=lambda: [0] * (len(BOUNDS_NS) + 1))
    sum_ns: int = 0

    def add(self, value_ns: int) -> None:
        at = next((at for at, bound in enumerate(BOUNDS_NS) if value_ns <= bound), len(BOUNDS_NS))
        self.counts[at] += 1
        self.sum_ns += value_ns


class WorkloadNeed(msgspec.Struct, kw_only=True, omit_defaults=True):
    """How long a workload's pods took to end. ``needs_more``: the largest was a SIGKILL."""

    longest_ns: int = 0
    needs_more: bool = False


class LastShutdown(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The running or the last shutdown."""

    kind: str = "unknown"
    start_wall_ns: int = 0
    end_wall_ns: int = 0
    outcome: str = ""


class OpenPod(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A pod of the open shutdown, for its end."""

    workload: str
    hooks: dict[str, str] = {}
    #: Its wave gave it less than it asks for; a hook was cut short.
    short: bool = False
    hook_cut: bool = False


class Meters(msgspec.Struct, kw_only=True, omit_defaults=True):
    """``seq``: the last record in it."""

    #: Of the side file; sums of another format, or of other buckets, are folded anew.
    format: int = METERS_FORMAT
    seq: int = 0
    journal_id: bytes = b""
    node: NodeState = msgspec.field(default_factory=NodeState)
    #: By metric: how often, by the values of its labels, joined by commas.
    counts: dict[str, dict[str, int]] = {}
    stop_times: dict[str, Histogram] = {}
    hook_times: dict[str, Histogram] = {}
    last: LastShutdown = msgspec.field(default_factory=LastShutdown)
    last_graceful_wall_ns: int = 0
    needs: dict[str, WorkloadNeed] = {}
    #: Of the open shutdown: priorities by wave, pods by UID.
    priorities: dict[int, int] = {}
    open_pods: dict[str, OpenPod] = {}
    episode: int = 0
    #: Of the latest shutdowns, by number: the last counted record, and its time.
    ends: dict[int, tuple[int, int]] = {}

    @property
    def fits(self) -> bool:
        """Whether this version can use it."""
        histograms = (*self.stop_times.values(), *self.hook_times.values())
        whole = all(len(each.counts) == len(BOUNDS_NS) + 1 for each in histograms)
        return self.format == METERS_FORMAT and self.seq >= 0 and whole

    def count(self, metric: str, *labels: str) -> None:
        counts, key = self.counts.setdefault(metric, {}), ",".join(labels)
        counts[key] = counts.get(key, 0) + 1

    def ended(self, episode: int, seq: int, wall_ns: int) -> None:
        """The shutdown has reached this record."""
        self.ends[episode] = (seq, wall_ns)
        if len(self.ends) > ENDS_MAX:
            del self.ends[min(self.ends)]

    def need(self, workload: str) -> WorkloadNeed:
        """Moves the workload to the youngest place."""
        need = self.needs.pop(workload, None) or WorkloadNeed()
        self.needs[workload] = need
        if len(self.needs) > WORKLOADS_MAX:
            del self.needs[next(iter(self.needs))]
        return need


# --- records into meters --------------------------------------------------------------------------


def fold(meters: Meters, records: Iterable[Record]) -> None:
    """Take over what is new."""
    for record in records:
        # After a restart the records since the last checkpoint come again.
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
        case d.LastBootEnded() as event:
            to.count("ebbtide_boots_ended_total", event.ending)
        case d.DetachCertified() as event:
            to.count("ebbtide_certificates_total", "safe" if event.safe else "unsafe")
        case d.ShutdownBegan() as event:
            to.last = LastShutdown(kind=event.kind, start_wall_ns=record.wall_ns)
            to.episode, to.priorities, to.open_pods = record.episode, {}, {}
            to.counts.pop(LAST_PODS, None)
        case d.PlanMade() as event:
            to.priorities |= {index: wave.priority for index, wave in enumerate(event.waves)}
        case d.PodPlanned() as event:
            pod = event.pod
            to.open_pods[pod.uid] = OpenPod(
                workload=f"{pod.namespace}/{workload_name(pod.name)}",
                hooks={each.name: each.hook.kind for each in pod.containers if each.hook is not None},
                short=pod.grace_seconds is not None and event.grace_seconds < pod.grace_seconds,
            )
        case d.HookEnded() as event:
            open_pod = to.open_pods.get(event.uid)
            kind = open_pod.hooks.get(event.container, "unknown") if open_pod is not None else "unknown"
            to.count("ebbtide_hooks_total", kind, event.result)
            to.hook_times.setdefault(kind, Histogram()).add(event.elapsed_ns)
            if event.early:
                to.count("sleep_action_terminated_early_total")
            if open_pod is not None:
                open_pod.hook_cut |= event.result in ("timed-out", "cancelled") and not event.early
        case d.PodEnded() as event:
            _end_pod(to, event)
        case d.PodRejected():
            to.count(PODS, "rejected")
            to.count(LAST_PODS, "", "", "rejected", CAUSES["rejected"])
        case d.ReleaseLock() if to.episode:
            # The machine goes down, and no later record may come: so this is the shutdown's end. Its close
            # counts whether it did go down.
            to.last.end_wall_ns, to.last.outcome = record.wall_ns, "complete"
            to.last_graceful_wall_ns = record.wall_ns
        case d.EpisodeClosed() as event:
            to.count("ebbtide_shutdowns_total", to.last.kind, event.outcome)
            to.last.outcome = event.outcome
            # A shutdown that was cut short has no observed end.
            if event.outcome == "cancelled":
                to.last.end_wall_ns = record.wall_ns
            to.episode, to.open_pods = 0, {}


#: The cause of an outcome; for a kill it depends on what cut the time.
CAUSES = {
    "graceful": "exited",
    "failed": "runtime",
    "spared": "cancelled",
    "rejected": "late",
    "unknown": "unknown",
}


def _end_pod(to: Meters, event: d.PodEnded) -> None:
    to.count(PODS, event.outcome)
    if event.means:
        to.count("ebbtide_pods_by_means_total", event.means, event.outcome)
    pod = to.open_pods.pop(event.uid, None)
    # For a kill the first that holds: its hook used the grace up, its wave gave it less than it asks for, or
    # its own grace was too short. Each has another cure.
    cause = CAUSES.get(event.outcome, "unknown")
    if event.outcome == "killed" and pod is not None:
        cause = "hook" if pod.hook_cut else "period" if pod.short else "grace"
    to.count(LAST_PODS, str(event.wave), str(to.priorities.get(event.wave, "")), event.outcome, cause)
    if event.outcome in ("graceful", "killed"):
        to.stop_times.setdefault(event.outcome, Histogram()).add(event.elapsed_ns)
        need = None if pod is None else to.need(pod.workload)
        if need is not None and event.elapsed_ns >= need.longest_ns:
            need.longest_ns, need.needs_more = event.elapsed_ns, event.outcome == "killed"


#: The metrics of how often an event happened.
TALLIED: dict[type[Event], str] = {
    f.DaemonStarted: "ebbtide_daemon_starts_total",
    f.StorageFailed: "ebbtide_journal_storage_failures_total",
    f.DurabilityLate: "ebbtide_journal_late_total",
    d.ActorFailed: "ebbtide_actor_failures_total",
    d.HandedOver: "ebbtide_handovers_total",
    d.DeleteRefused: "ebbtide_deletes_refused_total",
}
#: What else the sums need.
COUNTED: tuple[type[Event], ...] = (
    *(d.LastBootEnded, d.DetachCertified, d.ShutdownBegan),
    *(d.PlanMade, d.PodPlanned, d.HookEnded, d.PodEnded, d.PodRejected, d.ReleaseLock, d.EpisodeClosed),
)
#: The tags of the records that change anything.
METERED = frozenset(kind.__name__ for kind in (*TALLIED, *COUNTED, *NODE_EVENTS))


# --- the side file --------------------------------------------------------------------------------

METERS_FILE_NAME = "metrics"

#: Some hundred bytes for each workload; a larger file is not ours.
METERS_BYTES_MAX = 1024 * 1024


def kept_meters(sources: Sequence[Source], journal_id: bytes) -> Meters:
    """The newest side file of this journal in all locations; or empty meters.

    A reader of the whole journal compares ``seq`` with it, and distrusts a higher one.
    """
    found = [Meters(journal_id=journal_id)]
    for source in sources:
        # An unusable file counts as none: the sums begin anew with the rest of the journal. (msgspec's errors
        # and those of bad UTF-8 are ValueErrors.)
        with suppress(OSError, ValueError, RecursionError):
            data = source.read(METERS_FILE_NAME, 0, METERS_BYTES_MAX)
            found.append(msgspec.msgpack.decode(data, type=Meters))
    usable = (meters for meters in found if meters.fits and meters.journal_id == journal_id)
    return max(usable, key=lambda each: each.seq)


def fold_before(sources: Sequence[Source], journal_id: bytes, seq: int) -> Meters:
    """All of the journal before a record's number. Raises OSError."""
    meters = Meters(journal_id=journal_id)
    for raw in History(sources, journal=journal_id.hex()).raw():
        if raw.seq >= seq:
            break
        if raw.tag in METERED:
            # One unreadable record costs its own count only.
            with suppress(BadPayload, UnknownType):
                fold(meters, (decode_record(raw),))
    # Also if the last records changed no sum: else they would be folded again and again.
    meters.seq = max(meters.seq, seq - 1)
    return meters

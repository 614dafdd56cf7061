"""What the metrics know: sums over all shutdowns of a journal, and the state of the node.

`Meters` is a value that can be written down and taken up again, because retention removes the segments that
it was folded from. Times are nanoseconds, on the wall clock where their name says so; names of workloads
are bounded.

`fold` takes records over: one table from event type to what it changes, in the order of the journal, each
record once (`Meters.seq`), so that a restart continues the sums and a second reading of the same records
changes nothing.

The side file with the sums stands beside the journal and can be made again from what is left of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from ebbtide.events import decisions as d
from ebbtide.events import facts as f
from ebbtide.events.base import Event, Record
from ebbtide.events.catalog import Source
from ebbtide.events.codec import BadPayload, UnknownType, decode_record
from ebbtide.events.reader import History
from ebbtide.events.record.node_state import NODE_EVENTS, NodeState
from ebbtide.events.values import workload_name

#: Upper bounds of the histograms' buckets. A hook takes milliseconds, a database's stop half an hour.
BOUNDS_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1800)
BOUNDS_NS = tuple(round(bound * 1_000_000_000) for bound in BOUNDS_SECONDS)

#: Raised when the sums mean something else than before.
METERS_FORMAT = 2

#: Shutdowns whose trace may still have to be sent; a node has one a week.
ENDS_MAX = 64

#: A node sees a few hundred workloads in its life; those that were seen longest ago go first.
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


class PodFates(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Pods of one wave, or of none (``wave`` and ``priority`` empty), that ended alike."""

    wave: str
    priority: str
    outcome: str
    cause: str
    pods: int = 0


class LastShutdown(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The running or the last shutdown."""

    kind: str = "unknown"
    trace_id: str = ""
    start_wall_ns: int = 0
    end_wall_ns: int = 0
    outcome: str = ""
    fates: list[PodFates] = []


class OpenPod(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A pod of the open shutdown: what has to be known of it when it ends."""

    workload: str
    hooks: dict[str, str] = {}
    #: Its wave gave it less than it asks for; a hook of it was cut short.
    short: bool = False
    hook_cut: bool = False


class Meters(msgspec.Struct, kw_only=True, omit_defaults=True):
    """All of it. ``seq``: the last record that is in it."""

    #: Of the side file; sums of another format, or of other buckets, are folded anew.
    format: int = METERS_FORMAT
    seq: int = 0
    journal_id: bytes = b""
    #: When the first record that counts was written.
    begun_wall_ns: int = 0
    node: NodeState = msgspec.field(default_factory=NodeState)
    #: By kind, then by outcome.
    shutdowns: dict[str, dict[str, int]] = {}
    pods: dict[str, int] = {}
    #: By kind of hook, then by result.
    hooks: dict[str, dict[str, int]] = {}
    sleeps_early: int = 0
    stop_times: dict[str, Histogram] = {}
    hook_times: dict[str, Histogram] = {}
    storage_failures: int = 0
    late_durability: int = 0
    actor_failures: int = 0
    starts: int = 0
    pods_by_means: dict[str, dict[str, int]] = {}
    handovers: int = 0
    refused_deletes: int = 0
    #: By what they say: ``safe``, ``unsafe``.
    certificates: dict[str, int] = {}
    #: By their ending.
    boots_ended: dict[str, int] = {}
    last: LastShutdown = msgspec.field(default_factory=LastShutdown)
    last_graceful_wall_ns: int = 0
    needs: dict[str, WorkloadNeed] = {}
    #: Of the open shutdown: priorities by wave, pods by UID, and those whose kind of hook is to be known.
    priorities: dict[int, int] = {}
    open_pods: dict[str, OpenPod] = {}
    episode: int = 0
    #: Of the latest shutdowns, by their number: the last record that counted here, and when it was written.
    ends: dict[int, tuple[int, int]] = {}

    @property
    def fits(self) -> bool:
        """Whether it is what this version writes down."""
        histograms = (*self.stop_times.values(), *self.hook_times.values())
        whole = all(len(each.counts) == len(BOUNDS_NS) + 1 for each in histograms)
        return self.format == METERS_FORMAT and self.seq >= 0 and whole

    def ended(self, episode: int, seq: int, wall_ns: int) -> None:
        """So far a shutdown has come."""
        self.ends[episode] = (seq, wall_ns)
        if len(self.ends) > ENDS_MAX:
            del self.ends[min(self.ends)]

    def need(self, workload: str) -> WorkloadNeed:
        """Seen again, it is the youngest one."""
        need = self.needs.pop(workload, None) or WorkloadNeed()
        self.needs[workload] = need
        if len(self.needs) > WORKLOADS_MAX:
            del self.needs[next(iter(self.needs))]
        return need


# --- records into meters --------------------------------------------------------------------------

MeterChange = Callable[[Meters, Any, Record], None]


def fold(meters: Meters, records: Iterable[Record]) -> None:
    """Take over what is new."""
    for record in records:
        # Once each: after a restart the same records are read again, from the last checkpoint on.
        if record.seq <= meters.seq:
            continue
        meters.seq = record.seq
        if type(record.event).__name__ in METERED:
            meters.node.see(record)
            meters.begun_wall_ns = meters.begun_wall_ns or record.wall_ns
            if record.episode:
                meters.ended(record.episode, record.seq, record.wall_ns)
            change = METER_CHANGES.get(type(record.event))
            if change is not None:
                change(meters, record.event, record)


def _count_pair(of: dict[str, dict[str, int]], first: str, second: str) -> None:
    row = of.setdefault(first, {})
    row[second] = row.get(second, 0) + 1


def _add_time(of: dict[str, Histogram], name: str, value_ns: int) -> None:
    of.setdefault(name, Histogram()).add(value_ns)


def _started(to: Meters, event: f.DaemonStarted, record: Record) -> None:
    to.starts += 1


def _storage_failed(to: Meters, event: f.StorageFailed, record: Record) -> None:
    to.storage_failures += 1


def _late(to: Meters, event: f.DurabilityLate, record: Record) -> None:
    to.late_durability += 1


def _failed(to: Meters, event: d.ActorFailed, record: Record) -> None:
    to.actor_failures += 1


# --- a shutdown --------------------------------------------------------------------------------


#: Why a pod had its outcome; of one that was killed it depends on what cut its time.
CAUSES = {
    "graceful": "exited",
    "failed": "runtime",
    "spared": "cancelled",
    "rejected": "late",
    "unknown": "unknown",
}


def _count_fate(last: LastShutdown, key: tuple[str, str, str, str]) -> None:
    for fates in last.fates:
        if (fates.wave, fates.priority, fates.outcome, fates.cause) == key:
            fates.pods += 1
            return
    wave, priority, outcome, cause = key
    last.fates.append(PodFates(wave=wave, priority=priority, outcome=outcome, cause=cause, pods=1))


def _began(to: Meters, event: d.ShutdownBegan, record: Record) -> None:
    to.last = LastShutdown(kind=event.kind, start_wall_ns=record.wall_ns)
    to.episode, to.priorities, to.open_pods = record.episode, {}, {}


def _plan(to: Meters, event: d.PlanMade, record: Record) -> None:
    to.priorities |= {index: wave.priority for index, wave in enumerate(event.waves)}


def _planned(to: Meters, event: d.PodPlanned, record: Record) -> None:
    pod = event.pod
    hooks: dict[str, str] = {each.name: each.hook.kind for each in pod.containers if each.hook is not None}
    short = pod.grace_seconds is not None and event.grace_seconds < pod.grace_seconds
    to.open_pods[pod.uid] = OpenPod(
        workload=f"{pod.namespace}/{workload_name(pod.name)}", hooks=hooks, short=short
    )


def _hook_ended(to: Meters, event: d.HookEnded, record: Record) -> None:
    pod = to.open_pods.get(event.uid)
    kind = pod.hooks.get(event.container, "unknown") if pod is not None else "unknown"
    _count_pair(to.hooks, kind, event.result)
    _add_time(to.hook_times, kind, event.elapsed_ns)
    to.sleeps_early += event.early
    if pod is not None:
        pod.hook_cut |= event.result in ("timed-out", "cancelled") and not event.early


def _pod_ended(to: Meters, event: d.PodEnded, record: Record) -> None:
    to.pods[event.outcome] = to.pods.get(event.outcome, 0) + 1
    if event.means:
        _count_pair(to.pods_by_means, event.means, event.outcome)
    pod = to.open_pods.pop(event.uid, None)
    # Of a kill the first of these that holds: its hook used the grace up, its wave gave it less than it asks
    # for, or its own grace was too short. What to change is another thing for each of them.
    cause = CAUSES.get(event.outcome, "unknown")
    if event.outcome == "killed" and pod is not None:
        cause = "hook" if pod.hook_cut else "period" if pod.short else "grace"
    wave = str(event.wave), str(to.priorities.get(event.wave, ""))
    _count_fate(to.last, (*wave, event.outcome, cause))
    if event.outcome not in ("graceful", "killed"):
        return
    _add_time(to.stop_times, event.outcome, event.elapsed_ns)
    if pod is not None:
        need = to.need(pod.workload)
        if event.elapsed_ns >= need.longest_ns:
            need.longest_ns, need.needs_more = event.elapsed_ns, event.outcome == "killed"


def _handed_over(to: Meters, event: d.HandedOver, record: Record) -> None:
    to.handovers += 1


def _refused(to: Meters, event: d.DeleteRefused, record: Record) -> None:
    to.refused_deletes += 1


def _boot_ended(to: Meters, event: d.LastBootEnded, record: Record) -> None:
    to.boots_ended[event.ending] = to.boots_ended.get(event.ending, 0) + 1


def _certified(to: Meters, event: d.DetachCertified, record: Record) -> None:
    # By the words of the metric's label, which outlives this field: a boolean would have to be renamed there.
    verdict = "safe" if event.safe else "unsafe"
    to.certificates[verdict] = to.certificates.get(verdict, 0) + 1


def _rejected(to: Meters, event: d.PodRejected, record: Record) -> None:
    to.pods["rejected"] = to.pods.get("rejected", 0) + 1
    _count_fate(to.last, ("", "", "rejected", CAUSES["rejected"]))


def _released(to: Meters, event: d.ReleaseLock, record: Record) -> None:
    # With the release the machine goes down, and nobody may be left to say more: so the shutdown's end is
    # this. Whether it did go down is counted when somebody knows (`_closed`).
    if to.episode:
        to.last.end_wall_ns, to.last.outcome = record.wall_ns, "complete"
        to.last_graceful_wall_ns = record.wall_ns


def _closed(to: Meters, event: d.EpisodeClosed, record: Record) -> None:
    """A shutdown that was cut short has no end that anybody saw."""
    _count_pair(to.shutdowns, to.last.kind, event.outcome)
    to.last.outcome = event.outcome
    if event.outcome == "cancelled":
        to.last.end_wall_ns = record.wall_ns
    to.episode, to.open_pods = 0, {}


METER_CHANGES: dict[type[Event], MeterChange] = {
    f.DaemonStarted: _started,
    f.StorageFailed: _storage_failed,
    f.DurabilityLate: _late,
    d.ActorFailed: _failed,
    d.ShutdownBegan: _began,
    d.PlanMade: _plan,
    d.PodPlanned: _planned,
    d.HookEnded: _hook_ended,
    d.PodEnded: _pod_ended,
    d.PodRejected: _rejected,
    d.HandedOver: _handed_over,
    d.DeleteRefused: _refused,
    d.DetachCertified: _certified,
    d.LastBootEnded: _boot_ended,
    d.ReleaseLock: _released,
    d.EpisodeClosed: _closed,
}

#: The tags of the records that change anything.
METERED = frozenset(kind.__name__ for kind in (*METER_CHANGES, *NODE_EVENTS))


# --- the side file --------------------------------------------------------------------------------

METERS_FILE_NAME = "metrics"

#: Some hundred bytes for each workload; a file that is larger is none of ours.
METERS_BYTES_MAX = 1024 * 1024


def kept_meters(sources: Sequence[Source], journal_id: bytes) -> Meters:
    """What was kept of this journal, the newest of all locations; empty meters where nothing usable was.

    Whoever reads the journal to its end holds their ``seq`` against it: one beyond it is not believed.
    """
    found = [Meters(journal_id=journal_id)]
    for source in sources:
        # A file that cannot be used is as good as none: the sums begin anew with what is left of the journal.
        # (msgspec's errors are ValueErrors, and so is that of bad UTF-8.)
        with suppress(OSError, ValueError, RecursionError):
            data = source.read(METERS_FILE_NAME, 0, METERS_BYTES_MAX)
            found.append(msgspec.msgpack.decode(data, type=Meters))
    usable = (meters for meters in found if meters.fits and meters.journal_id == journal_id)
    return max(usable, key=lambda each: each.seq)


def fold_before(sources: Sequence[Source], journal_id: bytes, seq: int) -> Meters:
    """All that the journal holds before a record's number. Raises OSError."""
    meters = Meters(journal_id=journal_id)
    for raw in History(sources, journal=journal_id.hex()).raw():
        if raw.seq >= seq:
            break
        if raw.tag in METERED:
            # One record that cannot be read costs its own count, and not the sums of all others.
            with suppress(BadPayload, UnknownType):
                fold(meters, (decode_record(raw),))
    # Also where the last records before it changed nothing: else they were folded again and again.
    meters.seq = max(meters.seq, seq - 1)
    return meters

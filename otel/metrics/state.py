"""What the metrics know: sums over all shutdowns of a journal, and how the node stands.

A value that can be written down and taken up again, because retention removes the segments that it was folded
from. Times are nanoseconds, on the wall clock where their name says so; names of workloads are bounded.
"""

from __future__ import annotations

import msgspec

from events.model import Period

#: Upper bounds of the histograms' buckets. A hook takes milliseconds, a database's stop half an hour.
BOUNDS_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1800)
BOUNDS_NS = tuple(round(bound * 1_000_000_000) for bound in BOUNDS_SECONDS)

#: Raised when the sums mean something else than before.
FORMAT = 1

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


class Need(msgspec.Struct, kw_only=True, omit_defaults=True):
    """How long a workload's pods took to end. ``needs_more``: the largest was a SIGKILL."""

    longest_ns: int = 0
    needs_more: bool = False


class Fates(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Pods of one wave, or of none (``wave`` and ``priority`` empty), that ended alike."""

    wave: str
    priority: str
    outcome: str
    cause: str
    pods: int = 0


class Last(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The running or the last shutdown."""

    kind: str = "unknown"
    trace_id: str = ""
    start_wall_ns: int = 0
    end_wall_ns: int = 0
    outcome: str = ""
    fates: list[Fates] = []


class Pod(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A pod of the open shutdown: what has to be known of it when it ends."""

    workload: str
    hooks: dict[str, str] = {}
    #: Its wave gave it less than it asks for; a hook of it was cut short.
    short: bool = False
    hook_cut: bool = False


class Meters(msgspec.Struct, kw_only=True, omit_defaults=True):
    """All of it. ``seq``: the last record that is in it."""

    #: Of the side file; sums of another format, or of other buckets, are folded anew.
    format: int = FORMAT
    seq: int = 0
    journal_id: bytes = b""
    #: When the first record that counts was written.
    begun_wall_ns: int = 0
    enabled: bool = False
    armed: bool = False
    lock_held: bool = False
    sufficient: bool = True
    grant_ns: int = 0
    requested_ns: int = 0
    reserve_ns: int = 0
    periods: tuple[Period, ...] = ()
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
    #: Of a Kubernetes node: who answers, by part, as the process that runs has seen it.
    answers: dict[str, bool] = {}
    kubelet_lock: bool = False
    pods_by_means: dict[str, dict[str, int]] = {}
    handovers: int = 0
    refused_deletes: int = 0
    #: By what they say: ``safe``, ``unsafe``.
    certificates: dict[str, int] = {}
    last: Last = msgspec.field(default_factory=Last)
    last_graceful_wall_ns: int = 0
    needs: dict[str, Need] = {}
    #: Of the open shutdown: priorities by wave, pods by UID, and those whose kind of hook is to be known.
    priorities: dict[int, int] = {}
    open_pods: dict[str, Pod] = {}
    episode: int = 0
    #: Of the latest shutdowns, by their number: the last record that counted here, and when it was written.
    ends: dict[int, tuple[int, int]] = {}

    @property
    def fits(self) -> bool:
        """Whether it is what this version writes down."""
        histograms = (*self.stop_times.values(), *self.hook_times.values())
        whole = all(len(each.counts) == len(BOUNDS_NS) + 1 for each in histograms)
        return self.format == FORMAT and self.seq >= 0 and whole

    def ended(self, episode: int, seq: int, wall_ns: int) -> None:
        """So far a shutdown has come."""
        self.ends[episode] = (seq, wall_ns)
        if len(self.ends) > ENDS_MAX:
            del self.ends[min(self.ends)]

    def need(self, workload: str) -> Need:
        """Seen again, it is the youngest one."""
        need = self.needs.pop(workload, None) or Need()
        self.needs[workload] = need
        if len(self.needs) > WORKLOADS_MAX:
            del self.needs[next(iter(self.needs))]
        return need

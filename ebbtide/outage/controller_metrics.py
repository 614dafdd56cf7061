"""The controller's Prometheus metrics: counters of records since the start, and the open outages.

Only failed followers count without a record. Open outages come from the followers' states: a new leader shows
them at once, and another replica none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, get_args

import trio

from ebbtide.actors.edges.kubernetes.config_maps import BLOCKED_SECONDS
from ebbtide.actors.outage import OUTAGE as OUTAGE_ACTOR
from ebbtide.actors.outage import OutagePhase, OutageState
from ebbtide.actors.system import System
from ebbtide.events import outage_events
from ebbtide.events.base import Record, parse_order_key
from ebbtide.events.decisions import ActorFailed
from ebbtide.events.facts import OrderEnded
from ebbtide.events.record.outage_causes import CURES, wait_code
from ebbtide.events.units import short_span
from ebbtide.otel.metric_table import Metric, ReadContext, Sample, exposition_of

Where = Literal["suspected", "out", "returning", "deleted", "aside"]

#: The actor's phases of each. Without an outage it is ``quiet``.
PLACES: Mapping[Where, tuple[OutagePhase, ...]] = {
    "suspected": ("suspected", "asking", "tainting", "switching", "reading"),
    "out": ("recovering", "out"),
    "returning": ("quarantined", "untainting", "following"),
    "deleted": ("gone",),
    "aside": ("aside",),
}

ALARMS: Mapping[type, str] = {
    outage_events.ProofWasWrong: "proof-wrong",
    outage_events.DetachForced: "six-minute-detach",
    outage_events.OutageAbandoned: "abandoned",
    outage_events.PowerOffGivenUp: "power-off-given-up",
    ActorFailed: "actor-failed",
}

#: On the Node, as in their orders' keys; and the journal's.
WRITES = ("taint", "untaint", "quarantine", "journal")


class Followed(Protocol):
    """A `Follower`."""

    @property
    def node(self) -> str: ...
    @property
    def system(self) -> System: ...


class Open(NamedTuple):
    node: str
    where: Where
    pods: int
    volumes: int
    waits: str = ""


class OutageMetrics:
    """``counts``: by name and label. ``followers``: this leader's, or None."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.followers: Mapping[str, Followed] | None = None
        #: By node, the codes of its outage's alarms.
        self.alarms: dict[str, dict[str, None]] = {}
        #: By node, why its journal cannot be written. The node is empty for all journals.
        self.blocked: Mapping[str, str] = {}
        self._blocked_at: dict[str, float] = {}

    def observe(self, follower: object, records: Sequence[Record]) -> None:
        node = getattr(follower, "node", "")
        for record in records:
            if isinstance(record.event, outage_events.OutageClosed):
                self.alarms.pop(node, None)
            elif (code := ALARMS.get(type(record.event), "")) and node:
                self.alarms.setdefault(node, {})[code] = None
            for name, value in counted(record.event):
                self.counts[name, value] += 1

    def block(self, blocked: Mapping[str, str]) -> None:
        now = trio.current_time()
        self.counts["ebbtide_outage_writes_failed_total", "journal"] += len(blocked.keys() - self.blocked)
        self._blocked_at = {node: self._blocked_at.get(node, now) for node in blocked}
        self.blocked = blocked

    def blocked_text(self) -> str:
        """For the Lease; empty: the journals are written."""
        if not self.blocked:
            return ""
        seconds = BLOCKED_SECONDS + trio.current_time() - min(self._blocked_at.values())
        # All journals, the empty node, come first.
        node, why = next(iter(self.blocked.items()))
        more = f" and {len(self.blocked) - 1} more" if len(self.blocked) > 1 else ""
        whose = f" of {node}{more}" if node else ""
        return f"no record{whose} could be stored for {short_span(seconds)}: {why}"

    def follower_failed(self) -> None:
        """The failure may be the journal's: no record has it."""
        self.counts["ebbtide_outage_follower_failures_total", ""] += 1

    def open(self) -> Iterator[Open]:
        for follower in (self.followers or {}).values():
            slot = follower.system.slots.get((OUTAGE_ACTOR.name, ""))
            state = None if slot is None else slot.state
            if isinstance(state, OutageState):
                for where in (each for each, phases in PLACES.items() if state.phase in phases):
                    yield Open(follower.node, where, len(state.pods), len(state.attachments), state.waits)

    def cause_of(self, found: Open) -> str:
        """Its gravest alarm since this leader began, else its wait; empty: it goes as it should."""
        alarms = self.alarms.get(found.node, {})
        hanging = "hanging" if found.where == "out" and found.pods + found.volumes else ""
        waits = {"suspected": wait_code(found.waits)}.get(found.where, hanging)
        return next((code for code in CURES if code in alarms), waits)

    def text(self) -> str:
        return exposition_of(CATALOG, self, ReadContext(0))


def counted(event: object) -> Iterator[tuple[str, str]]:
    match event:
        case outage_events.OutageClosed():
            yield "ebbtide_outages_total", event.outcome
        case outage_events.OutOfService(found=False):  # else an earlier leader has counted it
            yield "ebbtide_outage_taints_total", "set"
        case outage_events.ProofWasWrong():
            yield "ebbtide_outage_proofs_wrong_total", ""
        case outage_events.DetachForced():
            yield "ebbtide_outage_forced_detaches_total", ""
        case outage_events.PowerOffGivenUp():
            yield "ebbtide_outage_power_offs_given_up_total", ""
        case ActorFailed():
            yield "ebbtide_outage_actor_failures_total", ""
        case OrderEnded():
            what = parse_order_key(event.key).what
            failed = event.result in ("failed", "timed-out") and event.reason != outage_events.CHANGED
            if what == "untaint" and event.result == "done":
                yield "ebbtide_outage_taints_total", "removed"
            elif what == "permit" and event.result == "failed":
                yield "ebbtide_outage_brake_refusals_total", ""
            elif what in WRITES and failed:
                yield "ebbtide_outage_writes_failed_total", what


def _counter(name: str, text: str, label: str = "", values: Sequence[str] = ("",)) -> Metric:
    """With zeros: an alert on the first event needs them."""

    def samples(metrics: Any, context: ReadContext) -> list[Sample]:
        return [Sample(((label, each),) if label else (), metrics.counts[name, each]) for each in values]

    return Metric(name, text, samples)


def _each(value: Callable[[Open], int]) -> Callable[[Any, ReadContext], list[Sample]]:
    return lambda metrics, _: [Sample((("node", each.node),), value(each)) for each in metrics.open()]


CATALOG: tuple[Metric, ...] = (
    Metric(
        "ebbtide_outage_leading",
        "1 if this replica leads.",
        lambda metrics, _: [Sample((), int(metrics.followers is not None))],
    ),
    Metric(
        "ebbtide_outage_open",
        "1 for each open outage: suspected, out (of service), returning, aside.",
        lambda metrics, _: [
            Sample((("node", each.node), ("state", each.where)), 1) for each in metrics.open()
        ],
    ),
    Metric(
        "ebbtide_outage_causes",
        "1 for the root cause of each open outage: the code of its first line.",
        lambda metrics, _: [
            Sample((("node", each.node), ("cause", code)), 1)
            for each in metrics.open()
            if (code := metrics.cause_of(each))
        ],
    ),
    Metric(
        "ebbtide_outage_journal_blocked",
        "1 for each node whose journal was not written for 4 s; without a node: no journal can be.",
        lambda metrics, _: (
            [Sample((("node", node),), 1) for node in metrics.blocked] or [Sample((("node", ""),), 0)]
        ),
    ),
    Metric(
        "ebbtide_outage_pods_waiting",
        "Pods of out-of-service nodes that have not recovered yet.",
        _each(lambda each: each.pods),
    ),
    Metric(
        "ebbtide_outage_volumes_waiting",
        "Volumes still attached to out-of-service nodes.",
        _each(lambda each: each.volumes),
    ),
    _counter(
        "ebbtide_outages_total",
        "Closed outages, by their outcome.",
        "outcome",
        get_args(outage_events.OutageOutcome),
    ),
    _counter(
        "ebbtide_outage_taints_total",
        "Out-of-service taints that were set, and removed again.",
        "what",
        ("set", "removed"),
    ),
    _counter(
        "ebbtide_outage_proofs_wrong_total",
        "Nodes that returned under the boot that was proved off: two may have written the same data.",
    ),
    _counter(
        "ebbtide_outage_forced_detaches_total",
        "Volumes detached without the out-of-service taint, before their kubelet reported the unmount.",
    ),
    _counter("ebbtide_outage_brake_refusals_total", "Places that the storm brake refused."),
    _counter(
        "ebbtide_outage_writes_failed_total",
        "Writes that the API server did not take, other than because the Node had changed.",
        "what",
        WRITES,
    ),
    _counter("ebbtide_outage_power_offs_given_up_total", "Machines that could not be switched off."),
    _counter(
        "ebbtide_outage_actor_failures_total",
        "Failed actors: their outage is not decided until another leader starts.",
    ),
    _counter(
        "ebbtide_outage_follower_failures_total",
        "Restarts of a node's follower after a failure outside the actors.",
    ),
)

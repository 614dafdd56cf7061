"""The controller's Prometheus metrics: counters of records since the start, and the open outages.

Counters come from the records of each step, so they agree with the journals, except failed followers, which
may store nothing. Open outages are read from the followers' states, so a new leader shows them at once. A
replica that does not lead has none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, get_args

from ebbtide.actors.outage import OUTAGE as OUTAGE_ACTOR
from ebbtide.actors.outage import OutagePhase, OutageState
from ebbtide.actors.system import System
from ebbtide.events import outage_events
from ebbtide.events.base import Record, parse_order_key
from ebbtide.events.decisions import ActorFailed
from ebbtide.events.facts import OrderEnded
from ebbtide.otel.metric_table import Metric, ReadContext, Sample, exposition_of

Where = Literal["suspected", "out", "returning", "aside"]

#: The states that an operator needs; the actor has more phases.
PLACES: Mapping[OutagePhase, Where] = {
    "suspected": "suspected",
    "asking": "suspected",
    "tainting": "suspected",
    "reading": "suspected",
    "recovering": "out",
    "out": "out",
    "contacted": "returning",
    "quarantined": "returning",
    "untainting": "returning",
    "following": "returning",
    "aside": "aside",
}

#: Writes on the Node, by the word in their orders' keys.
WRITES = ("taint", "untaint", "quarantine")


class Counts:
    """Since the start of this process."""

    def __init__(self) -> None:
        self.closed: Counter[str] = Counter()
        self.taints: Counter[str] = Counter()
        self.failed_writes: Counter[str] = Counter()
        self.one: Counter[str] = Counter()


class Followed(Protocol):
    """A follower (`ebbtide.outage.outage_follower`)."""

    @property
    def node(self) -> str: ...
    @property
    def system(self) -> System: ...


class Open(NamedTuple):
    """One open outage."""

    node: str
    where: Where
    pods: int
    volumes: int


class OutageMetrics:
    """``followers``: this leader's, or None."""

    def __init__(self) -> None:
        self.counts = Counts()
        self.followers: Mapping[str, Followed] | None = None

    def observe(self, follower: object, records: Sequence[Record]) -> None:
        """A step of any follower."""
        for record in records:
            change = _CHANGES.get(type(record.event))
            if change is not None:
                change(self.counts, record.event)

    def follower_failed(self) -> None:
        """Not from a record: the failure may be the journal's."""
        self.counts.one["follower_failures"] += 1

    def open(self) -> Iterator[Open]:
        for follower in (self.followers or {}).values():
            slot = follower.system.slots.get((OUTAGE_ACTOR.name, ""))
            state = None if slot is None else slot.state
            if isinstance(state, OutageState) and (where := PLACES.get(state.phase)) is not None:
                yield Open(follower.node, where, len(state.pods), len(state.attachments))

    def text(self) -> str:
        """The answer to a scrape."""
        return exposition_of(CATALOG, self, ReadContext(0))


def _closed(to: Counts, event: outage_events.OutageClosed) -> None:
    to.closed[event.outcome] += 1


def _out_of_service(to: Counts, event: outage_events.OutOfService) -> None:
    if not event.found:  # that leader has counted it
        to.taints["set"] += 1


def _order_ended(to: Counts, event: OrderEnded) -> None:
    what = parse_order_key(event.key).what
    if what == "untaint" and event.result == "done":
        to.taints["removed"] += 1
    elif what == "permit" and event.result == "failed":
        to.one["brake_refusals"] += 1
    elif what in WRITES and event.result in ("failed", "timed-out") and event.reason != outage_events.CHANGED:
        to.failed_writes[what] += 1


def _one(name: str) -> Callable[[Counts, Any], None]:
    def add(to: Counts, event: object) -> None:
        to.one[name] += 1

    return add


_CHANGES: dict[type[Any], Callable[[Counts, Any], None]] = {
    outage_events.OutageClosed: _closed,
    outage_events.OutOfService: _out_of_service,
    OrderEnded: _order_ended,
    outage_events.ProofWasWrong: _one("proofs_wrong"),
    outage_events.DetachForced: _one("forced_detaches"),
    outage_events.PowerOffGivenUp: _one("power_offs_given_up"),
    ActorFailed: _one("actor_failures"),
}


# --- the table ---------------------------------------------------------------------------------


def _value(name: str) -> Callable[[Any, ReadContext], list[Sample]]:
    return lambda metrics, _: [Sample((), metrics.counts.one[name])]


def _rows(
    pick: Callable[[Counts], Counter[str]], name: str, values: Sequence[str]
) -> Callable[[Any, ReadContext], list[Sample]]:
    # Zeros too: an alert on the first event needs them.
    return lambda metrics, _: [Sample(((name, value),), pick(metrics.counts)[value]) for value in values]


def _each(value: Callable[[Open], int]) -> Callable[[Any, ReadContext], list[Sample]]:
    return lambda metrics, _: [Sample((("node", each.node),), value(each)) for each in metrics.open()]


CATALOG: tuple[Metric, ...] = (
    Metric(
        "ebbtide_outage_leading",
        "gauge",
        "1 if this replica leads.",
        lambda metrics, _: [Sample((), int(metrics.followers is not None))],
    ),
    Metric(
        "ebbtide_outage_open",
        "gauge",
        "1 for each outage that is open now: suspected, out (of service), returning, aside.",
        lambda metrics, _: [
            Sample((("node", each.node), ("state", each.where)), 1) for each in metrics.open()
        ],
    ),
    Metric(
        "ebbtide_outage_pods_waiting",
        "gauge",
        "Pods of a node that is out which are not recovered yet.",
        _each(lambda each: each.pods),
    ),
    Metric(
        "ebbtide_outage_volumes_waiting",
        "gauge",
        "Volumes of a node that is out which are not detached yet.",
        _each(lambda each: each.volumes),
    ),
    Metric(
        "ebbtide_outages_total",
        "counter",
        "Outages that were closed, by their outcome.",
        _rows(lambda counts: counts.closed, "outcome", get_args(outage_events.OutageOutcome)),
    ),
    Metric(
        "ebbtide_outage_taints_total",
        "counter",
        "Out-of-service taints that were set, and taken away again.",
        _rows(lambda counts: counts.taints, "what", ("set", "removed")),
    ),
    Metric(
        "ebbtide_outage_proofs_wrong_total",
        "counter",
        "Nodes that spoke again under the boot that was proved off: two may have written the same data.",
        _value("proofs_wrong"),
    ),
    Metric(
        "ebbtide_outage_forced_detaches_total",
        "counter",
        "Volumes that the attach-detach controller detached by its six-minute timer, without a taint.",
        _value("forced_detaches"),
    ),
    Metric(
        "ebbtide_outage_brake_refusals_total",
        "counter",
        "How often the storm brake refused a place.",
        _value("brake_refusals"),
    ),
    Metric(
        "ebbtide_outage_writes_failed_total",
        "counter",
        "Writes on a Node that the API server did not take, other than because the Node had changed.",
        _rows(lambda counts: counts.failed_writes, "what", WRITES),
    ),
    Metric(
        "ebbtide_outage_power_offs_given_up_total",
        "counter",
        "Machines that could not be switched off.",
        _value("power_offs_given_up"),
    ),
    Metric(
        "ebbtide_outage_actor_failures_total",
        "counter",
        "Actors that failed: of such an outage nothing is decided until another leader starts.",
        _value("actor_failures"),
    ),
    Metric(
        "ebbtide_outage_follower_failures_total",
        "counter",
        "How often following a node failed outside the actors, and began anew.",
        _value("follower_failures"),
    ),
)

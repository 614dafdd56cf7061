"""How a metric's value is found: what a sample is, and where in the meters, or around them, it stands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, get_args

from events.decisions import EpisodeOutcome, PodOutcome
from events.model import ShutdownKind
from otel.metrics.state import Histogram, Meters

NS_PER_SECOND = 1_000_000_000

Labels = tuple[tuple[str, str], ...]


#: How a shutdown may have ended.
OVER = tuple(outcome for outcome in get_args(EpisodeOutcome) if outcome != "running")


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
    #: Whether a daemon answers.
    live: bool = True


Read = Callable[[Meters, Around], Iterable[Sample]]


def plain(pick: Callable[[Meters], int], *, seconds: bool = False) -> Read:
    return lambda meters, around: (Sample((), pick(meters), seconds),)


def around(pick: Callable[[Around], int], *, seconds: bool = False) -> Read:
    return lambda meters, around: (Sample((), pick(around), seconds),)


def rows(pick: Callable[[Meters], dict[str, dict[str, int]]], *names: str) -> Read:
    def read(meters: Meters, around: Around) -> Iterator[Sample]:
        for first, row in pick(meters).items():
            for second, count in row.items():
                yield Sample(tuple(zip(names, (first, second), strict=True)), count)

    return read


def histograms(pick: Callable[[Meters], dict[str, Histogram]], name: str) -> Read:
    return lambda meters, around: [Sample(((name, key),), each) for key, each in pick(meters).items()]


def pods(meters: Meters, around: Around) -> Iterator[Sample]:
    """All outcomes, also those of no pod: a counter that begins with 1 shows no increase."""
    for outcome in get_args(PodOutcome):
        yield Sample((("outcome", outcome),), meters.pods.get(outcome, 0))


def shutdowns(meters: Meters, around: Around) -> Iterator[Sample]:
    """All kinds and ends, for the same reason."""
    for kind in get_args(ShutdownKind):
        for outcome in OVER:
            labels = (("kind", kind), ("outcome", outcome))
            yield Sample(labels, meters.shutdowns.get(kind, {}).get(outcome, 0))


def since(meters: Meters, around: Around) -> Iterator[Sample]:
    """Nothing where there was none: an age that is not known is no age of zero."""
    if meters.last_graceful_wall_ns:
        yield Sample((), max(0, around.now_wall_ns - meters.last_graceful_wall_ns), True)


def fates(meters: Meters, around: Around) -> Iterator[Sample]:
    for each in meters.last.fates:
        labels = (
            ("wave", each.wave),
            ("priority", each.priority),
            ("outcome", each.outcome),
            ("cause", each.cause),
        )
        yield Sample(labels, each.pods)


def live(pick: Callable[[Meters], int]) -> Read:
    """What only a daemon that runs can say; a journal says how it was."""
    return lambda meters, around: (Sample((), pick(meters)),) if around.live else ()


def answers(meters: Meters, around: Around) -> Iterator[Sample]:
    """Of whom somebody knows; and only a daemon that runs does."""
    for part, answers in meters.answers.items() if around.live else ():
        yield Sample((("part", part),), int(answers))


#: What a certificate says.
VERDICTS = ("safe", "unsafe")


def certificates(meters: Meters, around: Around) -> Iterator[Sample]:
    for verdict in VERDICTS:
        yield Sample((("verdict", verdict),), meters.certificates.get(verdict, 0))


def last(meters: Meters, around: Around) -> Iterator[Sample]:
    if meters.last.start_wall_ns:
        outcome = meters.last.outcome or "running"
        yield Sample((("kind", meters.last.kind), ("outcome", outcome)), 1)


def at_risk(meters: Meters, around: Around) -> Iterator[Sample]:
    if around.at_risk is not None:
        yield Sample((), around.at_risk)


def pending(meters: Meters, around: Around) -> Iterator[Sample]:
    if around.export_pending is not None:
        yield Sample((), around.export_pending)


def behind(meters: Meters, around: Around) -> Iterator[Sample]:
    if around.export_pending is not None:
        yield Sample((), around.export_behind_ns, True)

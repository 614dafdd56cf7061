"""The shutdowns and outages of a journal, as summaries (`episodes`) or as whole records (`records_of`).

A summary needs few events, so ``journal ls`` decodes a tenth of a long journal. One set of actors wrote all
of a journal: the daemon on a node (shutdowns), or the controller in the cluster (outages).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeVar, get_args

from ebbtide.events.codec import BadPayload, RawRecord
from ebbtide.events.decisions import EpisodeOutcome, LastBootEnded, PodOutcome
from ebbtide.events.reader import History
from ebbtide.events.record.episode_fold import EpisodeFold, grouped_by_episode
from ebbtide.events.record.fold import Beforehand, BootRecord, ShutdownFold
from ebbtide.events.record.outage_record import OPEN, LeaderBefore, OutageEnd, OutageFold, OutageRecord
from ebbtide.events.record.severity import Severity, severity_of
from ebbtide.events.record.shutdown_record import DamageRecord, ShutdownRecord, damage_of
from ebbtide.events.values import ShutdownKind

#: Kind and end of a shutdown in logind's words, or of an outage.
EpisodeKind = ShutdownKind | Literal["outage"]
EpisodeEnd = EpisodeOutcome | OutageEnd
#: Outcomes of an episode that has not ended.
GOING_ON: tuple[EpisodeEnd, ...] = ("running", OPEN)

EpisodeRecord = ShutdownRecord | OutageRecord


class Episode(NamedTuple):
    """One shutdown or outage. Times are wall-clock nanoseconds: first record plus monotonic difference.

    ``ended_wall_ns``: the order to release the lock, or the close of a cancelled shutdown or an outage. None:
    it was cut short or goes on. ``pods`` has a count for every outcome of the inventory; for an outage, for
    the pods that it followed: ``recovered`` or ``waiting``. An outage has no ``severity``. ``pods_running``:
    how many of the ``unknown`` of a running shutdown have not ended. ``headless``: the journal has lost the
    begin, so the counts and times are of the rest, without a severity.
    """

    id: str
    trace_id: str
    first_seq: int
    last_seq: int
    kind: EpisodeKind
    boot_id: str
    started_wall_ns: int
    ended_wall_ns: int | None
    outcome: EpisodeEnd
    pods: Mapping[str, int]
    severity: Severity | None = None
    pods_running: int = 0
    headless: bool = False


FoldT = TypeVar("FoldT", bound=EpisodeFold)


def _folds(
    history: History,
    begin: Callable[[int, RawRecord, Any, Any, Any], FoldT],
    before: Beforehand | LeaderBefore,
    *,
    summary: bool = False,
) -> Iterator[tuple[FoldT, DamageRecord | None]]:
    """Each episode once it is complete, oldest first. Memory for one. Only the last one names the damage.

    Raises BadPayload for a summary; else a damaged payload counts on its episode's record.
    """
    fold: FoldT | None = None
    fact: RawRecord | None = None
    for batch in history.batches():
        for raw in grouped_by_episode(batch.records):
            if raw.cause == 0:
                fact = raw
            try:
                before.learn(raw)
            except BadPayload:
                if summary:
                    raise
            if raw.episode and (fold is None or raw.episode != fold.number):
                # The fact that opens an episode is its first record, even if it closed another one before.
                first = fact if fact is not None and fact.seq == raw.episode else raw
                former, fold = fold, begin(raw.episode, first, batch.header, before, fold)
                if former is not None:
                    yield former, None
            if fold is None:
                continue
            if summary:
                fold.take_summary(raw, batch.header)
            else:
                fold.take(raw, batch.header, fact)
    if fold is not None:
        yield fold, damage_of(history.verdict, here=fold.goes_on)


def shutdown_records(history: History, *, boot_id: str | None = None) -> Iterator[ShutdownRecord]:
    """The shutdowns of a history (`fold.ShutdownFold.outcome` explains ``boot_id``). A journal of outages has
    none.
    """
    if history.of_outages:
        history.read()
        return
    for fold, damage in _folds(history, ShutdownFold, Beforehand()):
        yield fold.finish(boot_id, damage)


def outage_records(history: History, *, boot_id: str | None = None) -> Iterator[OutageRecord]:
    """The outages of a history. A journal of shutdowns has none."""
    if not history.of_outages:
        history.read()
        return
    for fold, damage in _folds(history, OutageFold, LeaderBefore()):
        yield fold.finish(boot_id, damage)


def records_of(history: History, *, boot_id: str | None = None) -> Iterator[EpisodeRecord]:
    """Its shutdowns, or its outages."""
    if history.of_outages:
        return outage_records(history, boot_id=boot_id)
    return shutdown_records(history, boot_id=boot_id)


def episodes(
    history: History, *, boot_id: str | None = None, boots: list[BootRecord] | None = None
) -> Iterator[Episode]:
    """The summaries of a history. ``boots`` takes up how boots ended, in the order of the journal.

    ``boot_id``: see `fold.ShutdownFold.outcome`. Raises events.codec.BadPayload.
    """
    if history.of_outages:
        for outage, damage in _folds(history, OutageFold, LeaderBefore(), summary=True):
            record = outage.finish(boot_id, damage)
            over = sum(pod.ended_ns is not None for pod in record.pods)
            yield _episode(record, outage, {"recovered": over, "waiting": len(record.pods) - over})
            if boots is not None and record.last_boot is not None:
                boots.append(_boot_of_node(record))
        return
    before = Beforehand(summary=True)
    before.boots = before.boots if boots is None else boots
    for shutdown, damage in _folds(history, ShutdownFold, before, summary=True):
        found = shutdown.finish(boot_id, damage)
        summary = found.summary
        yield _episode(
            found, shutdown, {fate: summary.count(fate) for fate in get_args(PodOutcome)}
        )._replace(
            severity=None if found.headless else severity_of(summary),
            pods_running=len(shutdown.without_fate()) if found.outcome == "running" else 0,
            headless=found.headless,
        )


def _episode(record: EpisodeRecord, fold: EpisodeFold, pods: Mapping[str, int]) -> Episode:
    return Episode(
        id=record.id,
        trace_id=record.trace_id,
        first_seq=record.first_seq,
        last_seq=record.last_seq,
        kind=record.kind,
        boot_id=fold.boot_id,
        started_wall_ns=record.started_wall_ns,
        ended_wall_ns=None if record.ended_ns is None else record.started_wall_ns + record.ended_ns,
        outcome=record.outcome,
        pods=pods,
    )


def _boot_of_node(outage: OutageRecord) -> BootRecord:
    boot = outage.last_boot
    assert boot is not None
    ended = LastBootEnded(
        boot_id=boot.boot_id,
        ending=boot.ending,
        why=boot.why,
        wave=boot.wave,
        recorded=bool(boot.trace_id),
        alive_wall_ns=boot.alive_wall_ns,
    )
    return BootRecord(ended, outage.id)


def headless_episode(history: History) -> int | None:
    """The number of the episode in the middle of which the history begins. Reads its first records again."""
    for batch in history.batches():
        # The first fact may still belong to the episode that it closed.
        first = next((raw for raw in batch.records if raw.episode), None)
        if first is None or any(raw.seq == first.episode for raw in batch.records):
            return None
        return first.episode
    return None

"""The shutdowns or the outages of a journal, as summaries (`episodes`) or as whole records (`records_of`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Literal, get_args

from msgspec.structs import replace

from ebbtide.events.base import FrozenStruct
from ebbtide.events.codec import BadPayload, RawRecord
from ebbtide.events.decisions import EpisodeOutcome, LastBootEnded, PodOutcome
from ebbtide.events.reader import History
from ebbtide.events.record.causes import headline, root_cause
from ebbtide.events.record.fold import Beforehand, BootRecord, EpisodeFold, ShutdownFold, grouped_by_episode
from ebbtide.events.record.outage_causes import outage_cause, outage_headline, outage_seal
from ebbtide.events.record.outage_record import OPEN, LeaderBefore, OutageEnd, OutageFold, OutageRecord
from ebbtide.events.record.shutdown_record import SIGNS, Severity, ShutdownRecord, damage_of
from ebbtide.events.values import ShutdownKind

EpisodeKind = ShutdownKind | Literal["outage"]
EpisodeEnd = EpisodeOutcome | OutageEnd
GOING_ON: tuple[EpisodeEnd, ...] = ("running", OPEN)

EpisodeRecord = ShutdownRecord | OutageRecord


class Episode(FrozenStruct, omit_defaults=False):
    """One shutdown or outage, for ``journal ls``; its JSON has the promised fields.

    Times are wall-clock nanoseconds: first record plus monotonic difference. ``ended_wall_ns``: the order to
    release the lock, or the close of a cancelled shutdown or an outage; None: cut short or not over.
    ``pods``: a count for every outcome; for an outage ``recovered`` and ``waiting``. ``pods_running``: the
    ``unknown`` pods of a running shutdown that have not ended. ``headless``: the journal has lost the begin.
    """

    id: str
    trace_id: str
    kind: EpisodeKind
    started_wall_ns: int
    ended_wall_ns: int | None
    outcome: EpisodeEnd
    severity: Severity | None = None
    sign: str = ""
    #: The first line of ``blame``, and its root's code; empty: it went well.
    headline: str = ""
    cause: str = ""
    pods: Mapping[str, int]
    pods_running: int = 0
    headless: bool = False
    first_seq: int
    last_seq: int
    boot_id: str


def _folded(
    history: History, boot_id: str | None, before: Beforehand | LeaderBefore
) -> Iterator[tuple[EpisodeFold, EpisodeRecord]]:
    """Each episode once it is complete. Only the last one has the damage."""
    begin: Any = OutageFold if history.of_outages else ShutdownFold
    fold: EpisodeFold | None = None
    fact: RawRecord | None = None
    for batch in history.batches():
        for raw in grouped_by_episode(batch.records):
            if raw.cause == 0:
                fact = raw
            with suppress(BadPayload):
                before.learn(raw)
            if raw.episode and (fold is None or raw.episode != fold.number):
                # An episode's first record is its opening fact, even if that closed another one before.
                first = fact if fact is not None and fact.seq == raw.episode else raw
                former, fold = fold, begin(raw.episode, first, batch.header, before, fold)
                if former is not None:
                    yield former, former.finish(boot_id, None)
            if fold is not None:
                fold.take(raw, batch.header, fact)
    if fold is not None:
        yield fold, fold.finish(boot_id, damage_of(history.verdict, here=fold.goes_on))


def records_of(history: History, *, boot_id: str | None = None) -> Iterator[EpisodeRecord]:
    """``boot_id``: see `fold.ShutdownFold.outcome`."""
    before = LeaderBefore() if history.of_outages else Beforehand()
    return (record for _, record in _folded(history, boot_id, before))


def shutdown_records(history: History, *, boot_id: str | None = None) -> Iterator[ShutdownRecord]:
    """The shutdowns of a history. A journal of outages has none."""
    return (each for each in records_of(history, boot_id=boot_id) if isinstance(each, ShutdownRecord))


def outage_records(history: History, *, boot_id: str | None = None) -> Iterator[OutageRecord]:
    """The outages of a history. A journal of shutdowns has none."""
    return (each for each in records_of(history, boot_id=boot_id) if isinstance(each, OutageRecord))


def episodes(
    history: History, *, boot_id: str | None = None, boots: list[BootRecord] | None = None
) -> Iterator[Episode]:
    """Adds to ``boots`` how boots ended. Raises events.codec.BadPayload.

    ``boot_id``: see `fold.ShutdownFold.outcome`.
    """
    if history.of_outages:
        for fold, record in _folded(history, boot_id, LeaderBefore()):
            assert isinstance(record, OutageRecord)
            over, found = sum(pod.ended_ns is not None for pod in record.pods), outage_cause(record)
            episode = _episode(record, fold, {"recovered": over, "waiting": len(record.pods) - over})
            code = "" if found is None else found.code
            sign = SIGNS[outage_seal(record)]
            yield replace(episode, headline=outage_headline(record), cause=code, sign=sign)
            boot = record.last_boot
            if boots is not None and boot is not None:
                ended = LastBootEnded(
                    boot_id=boot.boot_id,
                    ending=boot.ending,
                    why=boot.why,
                    wave=boot.wave,
                    recorded=bool(boot.trace_id),
                    alive_wall_ns=boot.alive_wall_ns,
                )
                boots.append(BootRecord(ended, record.id))
        return
    before = Beforehand()
    before.boots = before.boots if boots is None else boots
    for fold, record in _folded(history, boot_id, before):
        assert isinstance(fold, ShutdownFold)
        assert isinstance(record, ShutdownRecord)
        summary, root = record.summary, root_cause(record)
        yield replace(
            _episode(record, fold, {fate: summary.count(fate) for fate in get_args(PodOutcome)}),
            severity=record.severity,
            sign=SIGNS[record.severity],
            headline=headline(record),
            cause="" if root is None else root.code,
            pods_running=len(fold.without_fate()) if record.outcome == "running" else 0,
            headless=record.headless,
        )


def _episode(record: EpisodeRecord, fold: EpisodeFold, pods: Mapping[str, int]) -> Episode:
    if fold.unreadable is not None:
        raise fold.unreadable
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


def headless_episode(history: History) -> int | None:
    """The episode whose begin the history lacks."""
    for batch in history.batches():
        # The first fact may belong to an episode that it closes.
        first = next((raw for raw in batch.records if raw.episode), None)
        if first is None or any(raw.seq == first.episode for raw in batch.records):
            return None
        return first.episode
    return None

"""Accounts of all shutdowns of a history, in one streaming pass.

A pure fold of what was recorded: nothing is executed again, so it works on any version's journal. Types that
are not known are counted, payloads that cannot be read are passed over and said so. Ids, outcomes, ends
and counts are those of `events.episodes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from events.base import TYPES, Mark
from events.codec import BadPayload, decode_event
from events.decisions import Resumed, StatusesSettled
from events.episodes import parted
from events.frames import RawRecord
from events.history import Batch, History
from events.segment import Header
from replay.account.before import Before
from replay.account.course import COURSE
from replay.account.damage import damage_of
from replay.account.machine import MACHINE
from replay.account.model import Account
from replay.account.node import NODE
from replay.account.pods import PODS
from replay.account.tale import Tale

#: What each event means, by its type tag; the others mean nothing here.
MEANINGS: dict[str, Callable[[Tale, Any], None]] = {
    kind.__name__: handler for table in (PODS, COURSE, MACHINE, NODE) for kind, handler in table.items()
}

#: What the step that closes a shutdown says of it when it is closed already.
AFTERMATH = (Resumed.__name__, StatusesSettled.__name__)

MARKS = {tag: None for tag, kind in TYPES.items() if issubclass(kind, Mark)}


def accounts(history: History, *, boot_id: str | None = None) -> Iterator[Account]:
    """The shutdowns of a history, oldest first, each once the next one begins; the last one comes last.

    One that is not closed counts as ``running``, unless ``boot_id`` (of this machine, now) says that its
    boot is over, or its record ends in damage: then nobody can know more than that it is cut short. Only
    the last account tells of damage, that of which nobody knows before the end (`damage.with_verdict`).
    Takes memory for one shutdown, not for a journal.
    """
    fold = _Fold()
    for batch in history.batches():
        for raw in parted(batch.records):
            over = fold.add(raw, batch)
            if over is not None:
                yield over.told(history.journal_id, boot_id)
    if fold.tale is not None:
        damage = damage_of(history.verdict, here=fold.tale.goes_on)
        yield fold.tale.told(history.journal_id, boot_id, damage)


class _Fold:
    """The shutdown that is being read, and what stands before the next one."""

    def __init__(self) -> None:
        self.tale: Tale | None = None
        self._before = Before()
        self._fact: RawRecord | None = None

    def add(self, raw: RawRecord, batch: Batch) -> Tale | None:
        """The shutdown that is over with this record, if one is."""
        if raw.cause == 0:
            self._fact = raw
        try:
            self._before.learn(raw)
        except BadPayload:
            pass  # said by the tale, where it stands in one
        over = None
        if raw.episode and (self.tale is None or raw.episode != self.tale.number):
            over = self.tale
            first = _first_record(raw, self._fact)
            self.tale = Tale(raw.episode, first, batch.header, self._before, over)
        if self.tale is not None:
            self._tell(self.tale, raw, batch.header)
        return over

    def _tell(self, tale: Tale, raw: RawRecord, header: Header) -> None:
        if raw.episode == tale.number:
            tell(tale, raw, header)
        elif raw.tag in AFTERMATH and self._fact is not None and self._fact.episode == tale.number:
            tale.turn_to(raw, header)
            _mean(tale, raw)


def _first_record(raw: RawRecord, fact: RawRecord | None) -> RawRecord:
    """The fact that opened the episode, even where it still belonged to the one that it closed."""
    return fact if fact is not None and fact.seq == raw.episode else raw


def tell(tale: Tale, raw: RawRecord, header: Header) -> None:
    """One record of the shutdown."""
    tale.turn_to(raw, header)
    tale.events += 1
    tale.last_seq = raw.seq
    _mean(tale, raw)
    if tale.place.same_boot and raw.tag not in MARKS:
        tale.last_ns = tale.place.at_ns


def _mean(tale: Tale, raw: RawRecord) -> None:
    meaning = MEANINGS.get(raw.tag)
    if meaning is None:
        if raw.tag not in TYPES:
            tale.unknown_types[raw.tag] = tale.unknown_types.get(raw.tag, 0) + 1
        return
    try:
        meaning(tale, decode_event(raw.tag, raw.payload))
    except BadPayload:
        tale.tally("unreadable")

"""Reading works on anything: records lost, repeated, in disorder, of other versions, or miswritten."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from ebbtide.events.catalog import DirectorySource
from ebbtide.events.codec import BadPayload, RawRecord, decode_event
from ebbtide.events.facts import Tick
from ebbtide.events.reader import Batch, History
from ebbtide.events.record.fold import shutdown_records
from ebbtide.events.record.model import ShutdownRecord
from ebbtide.replay.blame import blame
from ebbtide.replay.critical_chain import critical_chain
from ebbtide.replay.diff import diff
from tests.events.record.worlds import histories
from tests.journals import SHUTDOWN, Remembered

ROUNDS = 60


def told(batches: list[Batch]) -> list[ShutdownRecord]:
    return list(shutdown_records(Remembered(batches)))


def edited(batches: list[Batch], edit: Callable[[RawRecord], list[RawRecord]]) -> list[Batch]:
    return [Batch(header, [new for raw in records for new in edit(raw)]) for header, records in batches]


def golden() -> list[Batch]:
    return list(History([DirectorySource(SHUTDOWN)]).batches())


def test_types_of_another_version_are_counted() -> None:
    """And named in a notice; everything else is told as ever."""

    def edit(raw: RawRecord) -> list[RawRecord]:
        return [raw._replace(tag="FromTheFuture") if raw.tag == "HookEnded" else raw]

    (account,) = told(edited(golden(), edit))
    assert account.unknown_types == {"FromTheFuture": 2}
    assert account.notices[-1].code == "unknown-events"
    assert account.count("killed") == 1
    assert all(hook.ended_ns is None for pod in account.pods for hook in pod.hooks)


def test_payloads_that_cannot_be_read_are_passed_over() -> None:
    """One notice, however many there are."""

    def edit(raw: RawRecord) -> list[RawRecord]:
        return [raw._replace(payload=b"\xc1") if raw.tag in ("HookEnded", "ContainerExited") else raw]

    (account,) = told(edited(golden(), edit))
    unreadable = [notice for notice in account.notices if notice.code == "unreadable"]
    assert [notice.text.partition(" could")[0] for notice in unreadable] == ["8 records"]
    assert account.count("graceful") == 4


def misfortune(draw: random.Random) -> Callable[[RawRecord], list[RawRecord]]:
    """What may become of a record."""
    rate = draw.choice((0.02, 0.1, 0.4))

    def edit(raw: RawRecord) -> list[RawRecord]:
        if draw.random() > rate:
            return [raw]
        at = draw.randrange(len(raw.payload) + 1)
        return draw.choice(
            (
                [],
                [raw, raw],
                [raw._replace(tag="FromTheFuture")],
                [raw._replace(tag=Tick.__name__)],
                [raw._replace(payload=raw.payload[:at])],
                [raw._replace(payload=raw.payload[:at] + draw.randbytes(2) + raw.payload[at + 2 :])],
                [raw._replace(mono_ns=raw.mono_ns + draw.randrange(-(10**10), 10**10))],
                [raw._replace(episode=draw.choice((0, raw.seq, raw.episode)))],
                [raw._replace(cause=0)],
            )
        )

    return edit


def test_no_journal_is_too_strange_to_be_told() -> None:
    """Whatever was done to the records, there is an account, and every reading verb has its answer."""
    draw = random.Random(7)
    journals = [golden(), *(list(history.batches()) for history in histories(0))]
    before: ShutdownRecord | None = None
    for _ in range(ROUNDS):
        batches = edited(draw.choice(journals), misfortune(draw))
        if draw.random() < 0.2:
            batches = batches[draw.randrange(len(batches)) :]
        for account in told(batches):
            assert all(cost.alone_ns >= 0 for cost in blame(account))
            chain = critical_chain(account)
            assert sum(segment.took_ns for segment in chain.segments) == chain.total_ns
            diff(before or account, account)
            before = account


def test_text_that_is_no_text_is_a_bad_payload() -> None:
    """As any other payload that does not fit its type."""
    with pytest.raises(BadPayload, match="BusLost"):
        decode_event("BusLost", b"\x81\xa5error\xa1\xc0")

"""Reading survives any records: lost, repeated, reordered, foreign, malformed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ebbtide.events.catalog import DirectorySource
from ebbtide.events.codec import BadPayload, RawRecord, decode_event
from ebbtide.events.reader import Batch, History
from ebbtide.events.record.episodes import shutdown_records
from ebbtide.events.record.shutdown_record import ShutdownRecord
from tests.journals import SHUTDOWN, Remembered


def told(batches: list[Batch]) -> list[ShutdownRecord]:
    return list(shutdown_records(Remembered(batches)))


def edited(batches: list[Batch], edit: Callable[[RawRecord], list[RawRecord]]) -> list[Batch]:
    return [Batch(header, [new for raw in records for new in edit(raw)]) for header, records in batches]


def golden() -> list[Batch]:
    return list(History([DirectorySource(SHUTDOWN)]).batches())


def test_types_of_another_version_are_counted() -> None:
    """A notice counts and names them; the rest is unchanged."""

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


def test_text_that_is_no_text_is_a_bad_payload() -> None:
    """Like any payload that does not fit its type."""
    with pytest.raises(BadPayload, match="BusLost"):
        decode_event("BusLost", b"\x81\xa5error\xa1\xc0")

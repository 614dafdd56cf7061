"""The daemon's metrics: whole after any restart, and a forecast by what earlier shutdowns saw."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ebbtide.metering import Metering, at_risk, decode
from events.base import NS_PER_SECOND
from events.history import History
from events.model import Period, Pod
from events.record import Record
from events.storage import DirectorySource
from otel.metrics.fold import fold
from otel.metrics.state import Meters, Need

GOLDEN = Path(__file__).parent.parent / "golden" / "shutdown-v1"


def records() -> list[Record]:
    return list(History([DirectorySource(GOLDEN)]).records())


async def refuse(data: bytes) -> None:
    raise AssertionError("sums with a gap must not be kept")


async def never(before_seq: int) -> Meters:
    raise AssertionError("nothing is missing")


async def test_what_is_missing_is_folded_once() -> None:
    """Sums that were lost are made again from the journal, and what came meanwhile is counted once."""
    before, after, whole = records()[:50], records()[50:], Meters()
    fold(whole, records())

    async def rebuild(before_seq: int) -> Meters:
        meters = Meters()
        fold(meters, (record for record in before if record.seq < before_seq))
        return meters

    metering = Metering(Meters(), whole=False, keep=refuse, rebuild=rebuild)
    metering.fold(after)
    await metering.save()
    await metering.complete()
    await metering.complete()
    assert metering.meters == whole


async def test_whole_sums_are_kept_as_they_are() -> None:
    """What is kept is read back as the same; another journal's, or a damaged file, counts for nothing."""
    kept: list[bytes] = []

    async def keep(data: bytes) -> None:
        kept.append(data)

    meters = Meters(journal_id=b"j" * 16)
    metering = Metering(meters, whole=True, keep=keep, rebuild=never)
    metering.fold(records())
    await metering.complete()
    await metering.save()
    assert decode(kept[0], b"j" * 16) == metering.meters
    assert decode(kept[0], b"k" * 16) == Meters(journal_id=b"k" * 16)
    assert decode(kept[0][:-7], b"j" * 16) == Meters(journal_id=b"j" * 16)
    assert msgspec.msgpack.decode(kept[0], type=Meters).seq == records()[-1].seq


@pytest.mark.parametrize(
    "need, expected",
    [
        (None, 0),
        (Need(longest_ns=10 * NS_PER_SECOND), 0),
        (Need(longest_ns=10 * NS_PER_SECOND, needs_more=True), 1),
        (Need(longest_ns=11 * NS_PER_SECOND), 1),
        (Need(longest_ns=9 * NS_PER_SECOND, needs_more=True), 0),
    ],
)
def test_at_risk(need: Need | None, expected: int) -> None:
    """A pod is at risk where its workload needed more than it would get, or was killed with as much."""
    meters = Meters(periods=(Period(priority=0, seconds=10),))
    if need is not None:
        meters.needs["shop/web"] = need
    pod = Pod(uid="u", namespace="shop", name="web-0", priority=0, grace_seconds=30)
    assert at_risk(meters, [pod]) == expected

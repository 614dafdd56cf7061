"""A slow logind: reads must not delay signals."""

from __future__ import annotations

from typing import Any, cast

import pytest
import trio
import trio.testing

from ebbtide.actors.edges import logind_reading as reader
from ebbtide.actors.edges.linux.bus import Bus, BusError
from ebbtide.actors.edges.logind_edge import READ_ATTEMPTS_MAX, LogindReporter
from ebbtide.events import bounds
from ebbtide.events.base import Fact

#: logind waits for a disk.
LATE_SECONDS = 4.0


class SlowLink:
    owner = ":1.1"
    pending = False

    async def bus(self) -> Bus:
        return cast(Bus, self)


class Nobody:
    async def put(self, *facts: Fact) -> None:
        raise AssertionError(facts)


@pytest.fixture
def reporter(monkeypatch: pytest.MonkeyPatch) -> LogindReporter:
    async def late(*_: object) -> bool:
        await trio.sleep(LATE_SECONDS)
        return False

    for name in ("read_grant_ns", "read_kubelet_lock", "read_kind"):
        monkeypatch.setattr(reader, name, late)

    async def going(*_: object) -> bool:
        return False

    monkeypatch.setattr(reader, "read_preparing", going)
    return LogindReporter(*(cast(Any, made) for made in (SlowLink(), None, None, None)))


async def test_a_look_in_between_ends_within_its_bound(
    reporter: LogindReporter, autojump_clock: trio.testing.MockClock
) -> None:
    """All reads together delay the next signal by the bound at most."""
    reporter.owner = SlowLink.owner
    async with reporter.turn:
        await reporter.report_changes(Nobody())
    assert trio.current_time() == pytest.approx(bounds.now.logind_look_seconds)


async def test_a_whole_reading_lets_a_signal_in(
    reporter: LogindReporter, autojump_clock: trio.testing.MockClock
) -> None:
    """The edge retries an unanswered read; the signal comes in between."""
    async with trio.open_nursery() as nursery:

        async def read() -> None:
            with pytest.raises(BusError, match="too slow"):
                await reporter.report_state(Nobody())

        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        async with reporter.turn:
            assert trio.current_time() <= bounds.now.logind_look_seconds
    assert trio.current_time() == pytest.approx(READ_ATTEMPTS_MAX * bounds.now.logind_look_seconds)

"""The daemon's shipping: a real process, real pipes, idle during a shutdown."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import trio
import trio.testing

from ebbtide.daemon import _trim_journal
from ebbtide.events import bounds
from ebbtide.events.catalog import DirectorySource, find_path
from ebbtide.events.disk import DirectoryStorage, Limits
from ebbtide.otel.sending import Refused
from ebbtide.shipping.shipping_destination import Store, closed_segments, load_shipped
from ebbtide.shipping.shipping_edge import ShippingEdge
from ebbtide.shipping.store_sink import Answer, Stored
from tests.daemon.test_tracing import Outlet
from tests.store.gateway import BUCKET, TAKEN, FakeStore, faking, reply
from tests.store.segments import JOURNAL_ID, lay_out_segments
from tests.store.test_shipping import Script, ship
from tests.waiting import until

STORE = Store(url=f"s3://{BUCKET}", cluster="prod")


class Bed(NamedTuple):
    """``open_episodes``: the system's open shutdowns."""

    edge: ShippingEdge
    fake: FakeStore
    said: list[str]
    folder: Path
    open_episodes: list[int]

    def shut_down(self, on: bool) -> None:
        self.open_episodes[:] = [1] if on else []
        self.edge.see(())

    def left(self) -> int:
        known = load_shipped(self.folder, STORE).segments
        return sum(each.name not in known for each in closed_segments([DirectorySource(self.folder)]))


def edge_of(folder: Path, said: list[str], episodes: list[int]) -> ShippingEdge:
    return ShippingEdge(
        STORE,
        [str(folder)],
        lambda: JOURNAL_ID,
        lambda: bool(episodes),
        lambda level, text: said.append(text),
    )


@asynccontextmanager
async def shipping(folder: Path, answer: object) -> AsyncIterator[Bed]:
    """The edge over four segments; leaving waits for its process."""
    lay_out_segments(folder, 4)
    said: list[str] = []
    episodes: list[int] = []
    async with faking(answer) as fake:  # type: ignore[arg-type]
        edge = edge_of(folder, said, episodes)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(edge.run, Outlet())
            yield Bed(edge, fake, said, folder, episodes)
            process = edge._process
            nursery.cancel_scope.cancel()
        if process is not None:
            await process.wait()


async def test_what_is_closed_is_shipped_and_the_process_goes(tmp_path: Path) -> None:
    """It starts with the first step; status and metrics use its reports, without reading a file."""
    async with shipping(tmp_path, lambda request: TAKEN) as bed:
        assert bed.edge.last_state() is None
        bed.shut_down(False)
        await until(lambda: bed.left() == 0, "the shipping")
        await until(lambda: bed.edge._process is None, "the shipping")
        assert len(bed.fake.got) == 3
        assert bed.said == []
        state = bed.edge.last_state()
        assert state is not None
        assert (state.stored, state.pending, state.oldest_wall_ns) == (3, 0, 0)


async def test_a_start_in_a_shutdown_ships_nothing_before_it_is_over(tmp_path: Path) -> None:
    """The daemon restarted in the shutdown and has no record of its start. A request survives."""
    async with shipping(tmp_path, lambda request: TAKEN) as bed:
        bed.edge.want(0)
        bed.shut_down(True)
        await trio.testing.wait_all_tasks_blocked(0.1)
        assert bed.edge._process is None
        assert bed.fake.got == []
        bed.shut_down(False)
        await until(lambda: bed.left() == 0, "the shipping")


@pytest.mark.parametrize("bad", [None, reply(503)])
async def test_a_shutdown_ends_the_process_at_once(tmp_path: Path, bad: bytes | None) -> None:
    """Even with a hung store. A partial upload does not count, and is repeated after the shutdown."""
    answers: list[bytes | None] = [bad]
    async with shipping(tmp_path, lambda request: answers[0]) as bed:
        bed.shut_down(False)
        bed.edge.want(0)
        await until(lambda: len(bed.fake.got) == 1, "the shipping")
        process = bed.edge._process
        assert process is not None
        bed.shut_down(True)
        await process.wait()
        # The network belongs to the pods: the connection closes at once.
        await until(lambda: bed.fake.connections == 0, "the end of the connection")
        got = len(bed.fake.got)
        assert load_shipped(tmp_path, STORE).segments == {}
        answers[0] = TAKEN
        bed.shut_down(False)
        await until(lambda: bed.left() == 0, "the shipping")
        assert bed.fake.got[0].target == bed.fake.got[got].target


@pytest.mark.proof
async def test_the_daemons_end_is_not_held_by_a_store_that_hangs(tmp_path: Path) -> None:
    """The process lingers a few seconds and ends by itself."""
    async with shipping(tmp_path, lambda request: None) as bed:
        bed.shut_down(False)
        bed.edge.want(0)
        await until(lambda: len(bed.fake.got) == 1, "the shipping")
        left = trio.current_time()
    assert trio.current_time() - left < 10
    assert load_shipped(tmp_path, STORE).segments == {}


# --- retention keeps unshipped segments up to the hard cap, and records later removals

#: At most the last segment: all removable ones go.
FULL = Limits(total_bytes=1)
FULLER = Limits(total_bytes=1, hard_bytes=1)
REFUSED = Refused("HTTP 403")


class Failing(DirectoryStorage):
    """A disk whose removals may fail from the third on."""

    left = 2
    fail: Callable[[str], Awaitable[None]] | None = None

    async def remove(self, name: str) -> None:
        self.left -= 1
        if self.fail is not None and self.left < 0:
            await self.fail(name)
        else:
            await super().remove(name)


class Node:
    """A journal with its retention and its shipping."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.names = folder, lay_out_segments(folder, 4)
        self.storages = [Failing(folder)]
        self.said: list[str] = []
        self.edge = edge_of(folder, self.said, [])

    async def trim(self, limits: Limits) -> list[str]:
        return list(await _trim_journal(self.storages, limits, None, None, self.edge))

    async def ship(self, *answers: Answer) -> None:
        """As one process of the shipping does."""
        await ship(self.folder, Script(*answers), STORE)

    async def ship_by_process(self) -> None:
        """A real shipping process, to a store that accepts all."""
        ended = trio.Event()
        self.edge._over = ended.set  # type: ignore[method-assign]
        async with faking(lambda request: TAKEN), trio.open_nursery() as nursery:
            nursery.start_soon(self.edge.run, Outlet())
            self.edge.see(())
            self.edge.want(0)
            await ended.wait()
            nursery.cancel_scope.cancel()


async def test_what_is_not_in_the_store_is_kept_when_the_journal_is_full(tmp_path: Path) -> None:
    """A week of overload costs space, but no segment."""
    on = Node(tmp_path)
    assert await on.trim(FULL) == []
    await on.ship(Stored(), REFUSED)
    assert await on.trim(FULL) == on.names[:1]
    await on.ship(Stored())
    assert await on.trim(FULL) == on.names[1:3]
    assert not any("removed" in line for line in on.said)


async def test_above_the_hard_cap_it_goes_all_the_same_and_that_is_on_record(tmp_path: Path) -> None:
    """By name in the log, counted in metrics and status."""
    on = Node(tmp_path)
    assert await on.trim(FULLER) == on.names[:3]
    assert [line for line in on.said if "before the store confirmed it" in line] == on.said
    assert [name for name in on.names if any(name in line for line in on.said)] == on.names[:3]
    path = find_path([DirectorySource(tmp_path)])
    assert [each.name for each in path.segments] == on.names[3:]
    assert closed_segments([DirectorySource(tmp_path)]) == []
    await on.ship_by_process()
    state = on.edge.last_state()
    assert state is not None
    assert (state.lost, state.pending) == (3, 0)


@pytest.mark.parametrize("limits", [FULL, FULLER])
async def test_a_cursor_that_cannot_be_read_makes_nothing_shipped(tmp_path: Path, limits: Limits) -> None:
    """Unknown is not there."""
    on = Node(tmp_path)
    await on.ship(Stored())
    (tmp_path / "shipped.json").write_text("{")
    assert await on.trim(limits) == ([] if limits is FULL else on.names[:3])


# --- what is cut short


@pytest.mark.parametrize("hangs", [False, True])
async def test_what_went_before_a_failure_is_on_record(
    tmp_path: Path, mock_clock: trio.testing.MockClock, hangs: bool
) -> None:
    """After a failed or hung third removal the first two are still recorded."""

    async def fail(name: str) -> None:
        if not hangs:
            raise OSError(errno.EIO, "Input/output error", name)
        mock_clock.jump(bounds.now.trim_seconds + 1)
        await trio.sleep_forever()

    on = Node(tmp_path)
    on.storages[0].fail = fail
    assert await on.trim(FULLER) == on.names[:2]
    assert [name for name in on.names if any(name in line for line in on.said)] == on.names[:2]

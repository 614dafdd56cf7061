"""The daemon's shipping: a real process, real pipes, idle during a shutdown."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import trio
import trio.testing

from ebbtide.events.catalog import DirectorySource
from ebbtide.shipping.shipping_destination import Store, closed_segments, load_shipped
from ebbtide.shipping.shipping_edge import ShippingEdge
from tests.daemon.test_tracing import Outlet
from tests.store.gateway import BUCKET, TAKEN, FakeStore, faking, reply
from tests.store.segments import JOURNAL_ID, lay_out_segments
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
        """A step after which a shutdown is open, or none."""
        self.open_episodes[:] = [1] if on else []
        self.edge.see(())

    def left(self) -> int:
        known = load_shipped(self.folder, STORE).segments
        return sum(each.name not in known for each in closed_segments([DirectorySource(self.folder)]))


@asynccontextmanager
async def shipping(folder: Path, answer: object) -> AsyncIterator[Bed]:
    """The edge over four segments; leaving waits for its process."""
    lay_out_segments(folder, 4)
    said: list[str] = []
    episodes: list[int] = []
    async with faking(answer) as fake:  # type: ignore[arg-type]
        edge = ShippingEdge(
            STORE,
            [str(folder)],
            lambda: JOURNAL_ID,
            lambda: bool(episodes),
            lambda level, text: said.append(text),
        )
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
    """The daemon restarted during the shutdown, without a record of its start; retention's request
    survives.
    """
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
    """Even with a hung or overloaded store. A partial upload is not counted, and is repeated after the
    shutdown.
    """
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

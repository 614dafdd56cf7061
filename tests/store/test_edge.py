"""Shipping as the daemon runs it: a real process, real pipes, and nothing in a shutdown."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from ebbtide.shipping.destination import Store, load_shipped
from ebbtide.shipping.edge import ShippingEdge
from tests.daemon.test_tracing import Journal, Outlet
from tests.store.gateway import BUCKET, TAKEN, FakeStore, Request, faking
from tests.store.segments import lay_out_segments

STORE = Store(url=f"s3://{BUCKET}", cluster="prod")
SECONDS_MAX = 30.0


@asynccontextmanager
async def shipping(folder: Path, answer: object) -> AsyncIterator[tuple[ShippingEdge, FakeStore, list[str]]]:
    """The edge over a journal of four segments; left, its process has ended too."""
    lay_out_segments(folder, 4)
    said: list[str] = []
    async with faking(answer) as fake:  # type: ignore[arg-type]
        edge = ShippingEdge(STORE, [str(folder)], Journal(folder), lambda level, text: said.append(text))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(edge.run, Outlet())
            yield edge, fake, said
            process = edge._process
            nursery.cancel_scope.cancel()
        if process is not None:
            with trio.fail_after(SECONDS_MAX):
                await process.wait()


async def until(holds: object) -> None:
    with trio.fail_after(SECONDS_MAX):
        while not holds():  # type: ignore[operator]
            await trio.sleep(0.02)


async def test_what_is_closed_is_shipped_and_the_process_goes(tmp_path: Path) -> None:
    """Started when it is wanted; retention has nothing to wait for afterwards."""
    async with shipping(tmp_path, lambda request: TAKEN) as (edge, fake, said):
        assert edge.backlog().segments == 3
        edge.want(0)
        await until(lambda: edge.backlog().segments == 0)
        await until(lambda: edge._process is None)
        assert len(fake.got) == 3
        assert said == []


async def test_in_a_shutdown_none_is_started_and_it_is_made_up_for(tmp_path: Path) -> None:
    """A wish that falls into it is not lost."""
    async with shipping(tmp_path, lambda request: TAKEN) as (edge, _, _):
        edge._hold(True)
        edge.want(0)
        await trio.sleep(0.3)
        assert edge._process is None
        edge._hold(False)
        await until(lambda: edge.backlog().segments == 0)


async def test_a_shutdown_breaks_off_what_is_sent(tmp_path: Path) -> None:
    """The store hangs; nothing more is asked of it before the shutdown is over."""
    answers: list[bytes | None] = [None]

    def answer(request: Request) -> bytes | None:
        return answers[0]

    async with shipping(tmp_path, answer) as (edge, fake, _):
        edge.want(0)
        await until(lambda: len(fake.got) == 1)
        edge._hold(True)
        await trio.sleep(1.5)
        assert len(fake.got) == 1
        answers[0] = TAKEN
        edge._hold(False)
        await until(lambda: edge.backlog().segments == 0)
        assert fake.got[0].target == fake.got[1].target


async def test_the_daemons_end_is_not_held_by_a_store_that_hangs(tmp_path: Path) -> None:
    """The process lingers for its few seconds, and ends by itself."""
    async with shipping(tmp_path, lambda request: None) as (edge, fake, _):
        edge.want(0)
        await until(lambda: len(fake.got) == 1)
        left = trio.current_time()
    assert trio.current_time() - left < 10
    assert load_shipped(tmp_path, STORE).segments == {}


async def test_without_the_client_it_is_one_line(tmp_path: Path, monkeypatch: object) -> None:
    """It names the extra that brings it."""
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "obstore.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "without"))  # type: ignore[attr-defined]
    place = tmp_path / "journal"
    place.mkdir()
    async with shipping(place, lambda request: TAKEN) as (edge, _, said):
        edge.want(0)
        await until(lambda: said)
        assert "obstore" in said[0]
        assert "[ship]" in said[0]

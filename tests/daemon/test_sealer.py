"""A daemon's seals: where somebody has asked for them, of what is durable, and never a reason to fail."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from ebbtide.daemon import SEAL_SECONDS, Daemon, Sealer
from ebbtide.events.disk import DirectoryStorage
from ebbtide.events.reader import History
from ebbtide.events.seal import (
    SEALS_BYTES_MAX,
    SEALS_FILE,
    Seals,
    checked_seals,
    encode_seals,
    parse_seals,
    with_seal,
)
from ebbtide.replay.sim.scenario import Draws
from tests.events import making
from tests.journals import JOURNAL_ID
from tests.world.disk import SimulatedDisk

FIRST = bytes(range(32))


def seals(folder: Path) -> list[int]:
    found = parse_seals((folder / SEALS_FILE).read_bytes())
    return [seal.seq for seal in checked_seals(found, FIRST)]


async def test_what_is_durable_is_sealed_once(tmp_path: Path) -> None:
    """Nothing new, no seal; and each head is that of the journal's record."""
    storage = DirectoryStorage(tmp_path)
    (tmp_path / SEALS_FILE).write_bytes(encode_seals(Seals(FIRST.hex())))
    async with making.running([storage]) as writer:
        sealer = Sealer(writer, storage, lambda: 7, lambda level, line: pytest.fail(line))
        await making.write_steps(writer, 2, synced=True)
        first_seq, _ = writer.head
        await sealer.seal()
        await sealer.seal()
        await making.write_steps(writer, 1, synced=True)
        await sealer.seal()
        assert seals(tmp_path) == [first_seq, writer.head[0]]
    heads = {raw.seq: raw.hash.hex() for raw in History([storage.source]).raw()}
    for seal in parse_seals((tmp_path / SEALS_FILE).read_bytes()).seals:
        assert heads[seal.seq] == seal.head


class HungSync:
    """The next sync of a thread of ours does not return until ``back``."""

    def __init__(self, sync: Callable[[int], None]) -> None:
        self._sync = sync
        self._hung, self.back = threading.Event(), threading.Event()

    def __call__(self, descriptor: int) -> None:
        if not self._hung.is_set():
            self._hung.set()
            self.back.wait()
        self._sync(descriptor)

    async def until_hung(self) -> None:
        await trio.to_thread.run_sync(self._hung.wait)


@contextlib.asynccontextmanager
async def hung_sync(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HungSync]:
    made = HungSync(os.fsync)
    monkeypatch.setattr(os, "fsync", made)
    try:
        yield made
    finally:
        made.back.set()


async def test_two_at_once_are_made_with_two_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon's end finds its hourly seal under way: each stands, or there was nothing more to seal."""
    storage = DirectoryStorage(tmp_path)
    (tmp_path / SEALS_FILE).write_bytes(encode_seals(Seals(FIRST.hex())))
    async with making.running([storage]) as writer:
        sealer = Sealer(writer, storage, lambda: 7, lambda level, line: pytest.fail(line))
        await making.write_steps(writer, 2, synced=True)
        first_seq, _ = writer.head
        async with trio.open_nursery() as nursery, hung_sync(monkeypatch) as disk:
            nursery.start_soon(sealer.seal)
            await disk.until_hung()
            await making.write_steps(writer, 1, synced=True)
            nursery.start_soon(sealer.seal)
            await trio.testing.wait_all_tasks_blocked()
            disk.back.set()
        assert seals(tmp_path) == [first_seq, writer.head[0]]


async def test_a_seal_that_was_given_up_undoes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its disk hangs, and it is done when the disk is back: until then none is made, since it would be made
    with the same key.
    """
    storage, said = DirectoryStorage(tmp_path), list[str]()
    (tmp_path / SEALS_FILE).write_bytes(encode_seals(Seals(FIRST.hex())))
    async with making.running([storage]) as writer:
        sealer = Sealer(writer, storage, lambda: 7, lambda level, line: said.append(line))
        await making.write_steps(writer, 2, synced=True)
        first_seq, _ = writer.head
        async with hung_sync(monkeypatch) as disk:
            with trio.CancelScope() as given_up:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(sealer.seal)
                    await disk.until_hung()
                    given_up.cancel()
            await making.write_steps(writer, 1, synced=True)
            await sealer.seal()
            assert seals(tmp_path) == []
            assert said == ["the journal cannot be sealed: the write before this one hangs"]
        with trio.fail_after(5):
            while seals(tmp_path) != [first_seq, writer.head[0]]:
                await sealer.seal()


@pytest.mark.parametrize("meanwhile", ["removed", "made anew"])
async def test_a_key_that_was_taken_away_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    """Somebody has put another file in the place of what was read, or none: that stands."""
    storage, said = DirectoryStorage(tmp_path), list[str]()
    path, other = tmp_path / SEALS_FILE, encode_seals(Seals(bytes(32).hex()))
    path.write_bytes(encode_seals(Seals(FIRST.hex())))
    async with making.running([storage]) as writer:
        await making.write_steps(writer, 1, synced=True)
        sealer = Sealer(writer, storage, lambda: 7, lambda level, line: said.append(line))
        async with trio.open_nursery() as nursery, hung_sync(monkeypatch) as disk:
            nursery.start_soon(sealer.seal)
            await disk.until_hung()
            path.unlink()
            if meanwhile == "made anew":
                path.write_bytes(other)
            disk.back.set()
    assert (path.read_bytes() if path.exists() else None) == (other if meanwhile == "made anew" else None)
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(SEALS_FILE + ".")] == []
    changed = "the journal cannot be sealed: somebody has changed seals.json meanwhile"
    assert said == ([changed] if meanwhile == "made anew" else [])


async def test_without_a_key_there_are_no_seals(tmp_path: Path) -> None:
    """Most nodes have none, and nothing is said or written."""
    storage = DirectoryStorage(tmp_path)
    async with making.running([storage]) as writer:
        await making.write_steps(writer, 1, synced=True)
        await Sealer(writer, storage, lambda: 7, lambda level, line: pytest.fail(line)).seal()
    assert not (tmp_path / SEALS_FILE).exists()


async def test_only_what_the_first_location_has_is_sealed(autojump_clock: trio.abc.Clock) -> None:
    """A reboot takes a fallback in memory away: its records would be missed, as if somebody had cut them off.
    Once the journal is back, all of it is sealed.
    """
    main, other = SimulatedDisk("main", Draws(1), faults={6: "eio"}), SimulatedDisk("other", Draws(1))
    await main.put(SEALS_FILE, encode_seals(Seals(FIRST.hex())))

    def sealed() -> list[int]:
        found = main.source.read(SEALS_FILE, 0, SEALS_BYTES_MAX)
        return [seal.seq for seal in checked_seals(parse_seals(found), FIRST)]

    async with making.running([main, other]) as writer:
        sealer = Sealer(writer, main, lambda: 7, lambda level, line: pytest.fail(line))
        await making.write_steps(writer, 3, synced=True)
        assert writer.away
        await sealer.seal()
        assert sealed() == []
        for _ in range(2):
            await making.rotate(writer)
            await trio.testing.wait_all_tasks_blocked()
        await making.write_steps(writer, 1, synced=True)
        assert not writer.away
        await sealer.seal()
        assert sealed() == [writer.head[0]]


async def test_a_year_of_seals_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read in a thread: pods may be ending just now."""
    storage, threads = DirectoryStorage(tmp_path), list[int]()

    def parse(data: bytes) -> Seals:
        threads.append(threading.get_ident())
        return parse_seals(data)

    monkeypatch.setattr("ebbtide.daemon.parse_seals", parse)
    (tmp_path / SEALS_FILE).write_bytes(encode_seals(Seals(FIRST.hex())))
    async with making.running([storage]) as writer:
        await making.write_steps(writer, 1, synced=True)
        await Sealer(writer, storage, lambda: 7, lambda level, line: pytest.fail(line)).seal()
    assert len(seals(tmp_path)) == 1
    assert threads != [threading.get_ident()]


async def test_an_open_shutdown_is_not_sealed(autojump_clock: trio.abc.Clock) -> None:
    """The hour's seal waits for its end; the next one comes an hour later."""
    sealed: list[float] = []

    async def seal_now() -> None:
        sealed.append(trio.current_time() - began)

    system = SimpleNamespace(episode=7)
    daemon = SimpleNamespace(
        _sealer=SimpleNamespace(seal=seal_now),
        _stepped=trio.Event(),
        sequencer=SimpleNamespace(system=system),
    )
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Daemon._seal, cast(Any, daemon))
        await trio.sleep(SEAL_SECONDS + 60)
        assert sealed == []
        system.episode = 0
        daemon._stepped.set()
        await trio.sleep(1.5 * SEAL_SECONDS)
        assert sealed == [SEAL_SECONDS + 60, 2 * SEAL_SECONDS + 60]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("kind", ["damaged", "full"])
async def test_what_cannot_be_sealed_is_said_once(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays as it is: a new file would hide that something was done to it."""
    storage, said = DirectoryStorage(tmp_path), list[str]()
    monkeypatch.setattr("ebbtide.daemon.SEALS_MAX", 1)
    full = with_seal(Seals(FIRST.hex()), JOURNAL_ID, 1, bytes(32), 0)
    before = encode_seals(full) if kind == "full" else b"{"
    (tmp_path / SEALS_FILE).write_bytes(before)
    async with making.running([storage]) as writer:
        await making.write_steps(writer, 1, synced=True)
        sealer = Sealer(writer, storage, lambda: 7, lambda level, line: said.append(line))
        await sealer.seal()
        await sealer.seal()
    assert len(said) == 1
    assert said[0].startswith("the journal cannot be sealed: ")
    assert (tmp_path / SEALS_FILE).read_bytes() == before

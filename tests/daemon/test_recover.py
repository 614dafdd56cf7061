"""Starts from a journal on disk after one restart and several.

A life is the real system and writer without edges; it ends as by SIGKILL.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar, TypeVarTuple, Unpack

import pytest
import trio
from trio.testing import MockClock

from ebbtide.actors import hook
from ebbtide.actors.episode import EpisodeState
from ebbtide.actors.system import take_checkpoint
from ebbtide.control import Request, control_verbs
from ebbtide.daemon import recover_in_time
from ebbtide.daemon_status import pod_phase
from ebbtide.events import bounds
from ebbtide.events import facts as f
from ebbtide.events.base import NS_PER_SECOND, Event, Fact, Record, Stamp
from ebbtide.events.codec import HASH_BYTES, RawRecord
from ebbtide.events.decisions import ActorFailed, HookStarted
from ebbtide.events.disk import DirectoryStorage
from ebbtide.events.segment import HEADER_PREFIX, SHUTDOWN_LOGIC, Identity, Link, WriterStart, header_length
from ebbtide.events.values import Container, Hook, Period, Settings
from ebbtide.events.writer import Writer
from ebbtide.recover import Recovered, recover
from ebbtide.replay.replayer import Divergence, Replayer
from tests.journals import SHUTDOWN, pod, started

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

MACHINE = "m"
FRESH = bytes(range(16))
GRANT_NS = 20 * NS_PER_SECOND
SETTINGS = f.SettingsLoaded(settings=Settings(by_pod_priority=(Period(priority=0, seconds=10),)))
PODS = (pod("web", 0, Container(name="c", hook=Hook(kind="exec")), uid="u", namespace="default"),)


class Life:
    def __init__(self, recovered: Recovered, writer: Writer) -> None:
        self.recovered, self.writer = recovered, writer
        self.system = recovered.system
        self.heard: list[Fact] = []
        self.verbs = control_verbs(recovered.status, self, dict, dict, dict)

    async def put(self, *facts: Fact) -> None:
        self.heard += facts

    async def admit(self, fact: Event, at_seconds: int) -> list[Record]:
        at_ns = at_seconds * NS_PER_SECOND
        records = self.system.step(fact, Stamp(at_ns, at_ns))
        self.recovered.status.fold(records)
        self.writer.append(records)
        await self.writer.wait_synced(records[-1].seq)
        return records

    async def start(self, at_seconds: int, *, preparing: bool = False) -> list[Record]:
        failed_starts = self.recovered.failed_starts
        fact = started("b", preparing=preparing, version="0", pid=1, node="n", failed_starts=failed_starts)
        return await self.admit(fact, at_seconds)

    async def begin_shutdown(self) -> None:
        """Ends with its only pod's hook running."""
        await self.start(0)
        await self.admit(SETTINGS, 0)
        await self.admit(f.LogindRead(owner=":1", grant_ns=GRANT_NS, preparing=False), 0)
        await self.admit(f.OrderEnded(key="LogindActor/arm//0", result="done"), 0)
        signal = f.PrepareForShutdown(active=True, kind="poweroff", grant_ns=GRANT_NS, lock_held=True)
        await self.admit(signal, 1)
        key = next(key for key in self.system.open_orders if "/inventory/" in key)
        await self.admit(f.InventoryTaken(key=key, as_of_ns=0, source="test", pods=PODS), 1)

    @property
    def episode(self) -> EpisodeState:
        state = self.system.slots[("EpisodeActor", "")].state
        assert isinstance(state, EpisodeState)
        return state


@asynccontextmanager
async def life(folder: Path) -> AsyncIterator[Life]:
    storage = DirectoryStorage(folder)
    recovered = recover([storage.source], MACHINE, FRESH)
    writer = Writer(
        [storage],
        Identity("n", MACHINE, "b", "0", SHUTDOWN_LOGIC),
        recovered.verdict.start(FRESH),
        on_failed=lambda location, error: pytest.fail(error),
        on_moved=lambda location, seq: pytest.fail(location),
        on_lost=lambda error: pytest.fail(error),
        last_resort=lambda line: None,
    )
    await writer.open()
    writer.begin_segment(Stamp(0, 0), take_checkpoint(recovered.system))
    recovered.system.next_seq += 1
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        yield Life(recovered, writer)
        nursery.cancel_scope.cancel()
    await storage.release()


async def restart(folder: Path, times: int, *, preparing: bool = True) -> None:
    for number in range(times):
        async with life(folder) as again:
            await again.start(2 + number, preparing=preparing)
            await again.admit(f.LogindRead(owner=":1", grant_ns=GRANT_NS, preparing=preparing), 2 + number)


@pytest.mark.parametrize("times", [0, 1, 2, 4])
async def test_the_verbs_work_after_any_number_of_restarts(tmp_path: Path, times: int) -> None:
    """Mid-shutdown, status, hurry and release work: the pod and the need survive."""
    async with life(tmp_path) as first:
        await first.begin_shutdown()
    await restart(tmp_path, times)
    async with life(tmp_path) as last:
        status = last.recovered.status
        assert (status.phase, status.kind, status.labels) == ("running", "poweroff", {"u": "default/web"})
        assert pod_phase(status.pods["u"]) == "preStop exec"
        assert status.needed_ns == 15 * NS_PER_SECOND
        await last.verbs["hurry"](Request("hurry", "web"), 0)
        await last.verbs["release"](Request("release"), 0)
        assert last.heard == [f.HurryRequested(pod="web", asked_by=0), f.ReleaseRequested(asked_by=0)]


async def test_two_starts_that_came_to_nothing_lead_to_the_fallback(tmp_path: Path) -> None:
    """Rule 7: each start begins a segment, and the third one counts the other two."""
    async with life(tmp_path) as first:
        await first.begin_shutdown()
    for failed in (0, 1):
        async with life(tmp_path) as again:
            assert again.recovered.failed_starts == failed
            await again.start(2 + failed, preparing=True)
            await again.admit(SETTINGS, 2 + failed)
            await again.admit(f.OrderEnded(key="HookActor/hook:x/u/0", result="unknown"), 2 + failed)
    async with life(tmp_path) as third:
        records = await third.start(4, preparing=True)
        failed_actors = [record.event.actor for record in records if isinstance(record.event, ActorFailed)]
        assert failed_actors == ["EpisodeActor"]


async def test_starts_that_ended_at_different_places_have_not_failed(tmp_path: Path) -> None:
    """They were killed from outside: the pods keep their wave's remaining grace."""
    async with life(tmp_path) as first:
        await first.begin_shutdown()
    for at, (lost, count) in enumerate([("hook", 0), ("stop", 1), ("stop", 1)]):
        async with life(tmp_path) as again:
            assert again.recovered.failed_starts == count
            await again.start(2 + at, preparing=True)
            await again.admit(SETTINGS, 2 + at)
            await again.admit(f.OrderEnded(key=f"HookActor/{lost}:x/u/{at}", result="unknown"), 2 + at)
    async with life(tmp_path) as last:
        assert last.recovered.failed_starts == 2


async def test_facts_after_a_divergence_are_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hook's end and the later exit happened. This journal does not replay: it is in another folder."""
    with TemporaryDirectory() as name:
        async with life(Path(name)) as first:

            def other(**fields: object) -> HookStarted:
                return HookStarted(**{**fields, "kind": "another"})  # type: ignore[arg-type]

            monkeypatch.setattr(hook.d, "HookStarted", other)
            await first.begin_shutdown()
            monkeypatch.undo()
            await first.admit(f.OrderEnded(key="HookActor/hook:c/u/0", result="done"), 2)
            await first.admit(f.ContainerExited(uid="u", container="c", exit_code=0), 3)
            assert first.episode.phase == "flushing"
        async with life(Path(name)) as second:
            divergence = second.recovered.divergence
            assert divergence is not None
            assert divergence.field == "kind"
            assert second.episode == first.episode
            assert take_checkpoint(second.system).open_orders == take_checkpoint(first.system).open_orders
            assert second.recovered.status.pods["u"].outcome == "graceful"


async def test_a_hook_that_only_the_records_know_is_never_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The older version ran the hook, this one would not have yet: it is refused, after any restart."""
    with TemporaryDirectory() as name:
        async with life(Path(name)) as first:
            await first.begin_shutdown()
        monkeypatch.setattr(hook, "begin_container", lambda down, *_, **__: (down, []))
        for diverges in (True, False):  # what the second start reads begins with the first one's state
            async with life(Path(name)) as again:
                assert (again.recovered.divergence is not None) is diverges
                assert again.recovered.spent == {"HookActor/hook:c/u/0"}
                await again.start(2, preparing=True)


class AtOnce(DirectoryStorage):
    """Without threads, so that the clock can jump; ``hangs`` never answers."""

    hangs = False

    async def acquire(self, program: str) -> None:
        """No other writer here."""

    async def call(self, function: Callable[[Unpack[Ts]], T], *args: *Ts) -> T:
        if self.hangs:
            await trio.sleep_forever()
        return function(*args)


@pytest.mark.parametrize("hung", [1, 2])
async def test_a_location_that_hangs_is_left_behind_in_time(
    tmp_path: Path, autojump_clock: MockClock, hung: int
) -> None:
    """Each location has its own bound; a journal without history then counts as the newest."""
    storages = [AtOnce(tmp_path / name) for name in ("disk", "ram")]
    for storage in storages[:hung]:
        storage.hangs = True
    said: list[str] = []
    wall_ns = 1_700_000_000 * NS_PER_SECOND
    began = trio.current_time()
    recovered = await recover_in_time(
        storages, MACHINE, FRESH, wall_ns, lambda level, line: said.append(line)
    )
    assert trio.current_time() - began == hung * bounds.now.recover_seconds
    assert [storage.location in line for storage, line in zip(storages, said, strict=False)] == [True] * hung
    assert recovered.verdict.start(FRESH).number == 1_700_000_000


async def test_another_versions_journal_leaves_no_node_unprotected(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """After a downgrade the newer journal stays, and a new one begins beside it."""
    for file in SHUTDOWN.iterdir():
        (tmp_path / file.name).write_bytes(_of_format(2, file.read_bytes()))
    said: list[str] = []
    wall_ns = 1_900_000_000 * NS_PER_SECOND
    recovered = await recover_in_time(
        [AtOnce(tmp_path)], MACHINE, FRESH, wall_ns, lambda level, line: said.append(line)
    )
    assert recovered.verdict.start(FRESH) == WriterStart(FRESH, Link(), 1_900_000_000)
    assert "needs another version of ebbtide" in said[0]
    assert "going on without its history" in said[0]


async def test_no_error_of_reading_leaves_a_node_unprotected(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for an unforeseen error; the line names it."""
    for file in SHUTDOWN.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())

    feed = Replayer.feed

    def fails(replayer: Replayer, records: Iterable[RawRecord]) -> Divergence | None:
        if kept := list(records):
            raise IndexError("pop from an empty deque")
        return feed(replayer, kept)

    monkeypatch.setattr(Replayer, "feed", fails)
    said: list[str] = []
    recovered = await recover_in_time(
        [AtOnce(tmp_path)], "machine-1", FRESH, 5 * NS_PER_SECOND, lambda level, line: said.append(line)
    )
    assert recovered.verdict.start(FRESH) == WriterStart(FRESH, Link(), 5)
    assert "please report it: IndexError: pop from an empty deque" in said[0]
    assert "going on without its history" in said[0]


def _of_format(version: int, segment: bytes) -> bytes:
    end = header_length(segment[: HEADER_PREFIX.size]) - HASH_BYTES
    header = segment[:8] + version.to_bytes(2, "little") + segment[10:end]
    return header + hashlib.sha256(header).digest() + segment[end + HASH_BYTES :]

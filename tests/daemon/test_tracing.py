"""The daemon's exporter: a real process, real pipes, broken back ends."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

from benchmarks.episodes import lay_out
from ebbtide import side_process
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.catalog import DirectorySource
from ebbtide.events.decisions import FlushTraces
from ebbtide.events.reader import History
from ebbtide.otel.cursor import load
from ebbtide.otel.destination import Destination
from ebbtide.side_process import Report
from ebbtide.tracing import TracingEdge
from tests.backends.compare import shutdowns
from tests.otel.delivery.collector import NO_GOOD, Collector, collecting, no_good
from tests.waiting import WATCHDOG_SECONDS, until

#: A flush to a dead server ends well before its bound.
AT_ONCE_SECONDS = 1.0


class Journal:
    """The edge's view of a finished journal."""

    away = False

    def __init__(self, folder: Path) -> None:
        history = History([DirectorySource(folder)])
        self.synced_seq = history.read().end.seq
        self.journal_id = history.journal_id


class Outlet:
    async def put(self, *facts: object) -> None:
        raise AssertionError("the edge has no facts to tell")


class Bed:
    def __init__(self, folder: Path, edge: TracingEdge, said: list[str]) -> None:
        self.folder, self.edge, self.said = folder, edge, said
        self.spans = sum(len(shutdown.spans) for shutdown in shutdowns(folder))

    async def until_well(self) -> trio.Process:
        """Wait for the first acknowledgement; the exporter's process."""
        await until(lambda: self.edge._process is not None and not self.edge._unwell, "a well back end")
        assert self.edge._process is not None
        return self.edge._process

    async def flush(self, timeout_seconds: float = WATCHDOG_SECONDS) -> tuple[str, str]:
        order = FlushTraces(key="NodeStatusActor/traces//1", timeout_ns=int(timeout_seconds * NS_PER_SECOND))
        ending = await self.edge.effects[FlushTraces](order, Outlet())  # type: ignore[misc]
        return ending.result, ending.reason


@asynccontextmanager
async def running(folder: Path, endpoint: str, **fields: object) -> AsyncIterator[Bed]:
    """The edge with its exporter; leaving waits for its exit."""
    lay_out(folder, 6, 2)
    said: list[str] = []
    destination = Destination(endpoint=f"{endpoint}/v1/traces", **fields)  # type: ignore[arg-type]
    edge = TracingEdge(destination, [str(folder)], Journal(folder), lambda level, text: said.append(text))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(edge.run, Outlet())
        edge.want(0)
        bed = Bed(folder, edge, said)
        await until(lambda: edge._process is not None, "the exporter")
        yield bed
        process = edge._process
        nursery.cancel_scope.cancel()
    if process is not None:
        await process.wait()


async def test_it_sends_remembers_and_goes(tmp_path: Path) -> None:
    """Niced, first OOM victim, no secret in arguments or environment; traces only, and it exits when done."""
    collector = Collector()
    secret = (("authorization", "s3cret"),)
    async with collecting(collector), running(tmp_path, collector.endpoint, headers=secret) as bed:
        process = bed.edge._process
        assert process is not None
        await collector.until(lambda: bool(collector.spans))
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == 19
        assert int(Path(f"/proc/{process.pid}/oom_score_adj").read_text()) == 900
        assert collector.got[0].headers["authorization"] == "s3cret"
        for name in ("cmdline", "environ"):
            assert b"s3cret" not in Path(f"/proc/{process.pid}/{name}").read_bytes()
        assert await process.wait() == 0
    assert len(collector.spans) == bed.spans
    assert {got.target for got in collector.got} == {"/v1/traces"}
    cursor = load(tmp_path)
    assert cursor is not None
    assert cursor.seq == Journal(tmp_path).synced_seq


async def test_a_flush_is_answered_when_all_has_arrived(tmp_path: Path) -> None:
    """A hung exporter takes the order's own time, and its late answer ends no later flush."""
    collector = Collector()

    async def is_flushed() -> bool:
        return await bed.flush() == ("done", "")

    async with collecting(collector), running(tmp_path, collector.endpoint) as bed:
        process = await bed.until_well()
        # A collector on a busy machine may outlast the patience; a flush then fails at once.
        await until(is_flushed, "a flush")
        assert len(collector.spans) == bed.spans
        process.send_signal(signal.SIGSTOP)
        assert (await bed.flush(0.05))[0] == "timed-out"
        late = Report(text="late", flushed=True, number=bed.edge._flush_number)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bed.flush)
            await trio.testing.wait_all_tasks_blocked()
            bed.edge._reported(late)
            assert bed.edge._flushed is not None
            assert not bed.edge._flushed.is_set()
            process.send_signal(signal.SIGCONT)


@pytest.mark.proof
@pytest.mark.parametrize("kind", [*NO_GOOD, "dead"])
async def test_no_back_end_is_bad_enough_to_hold_a_shutdown(tmp_path: Path, kind: str) -> None:
    """Down, deaf, mute, malformed or endless: afterwards no shutdown waits, and the reason is recorded."""
    async with no_good(kind) as endpoint, running(tmp_path, endpoint, timeout_ns=20 * NS_PER_SECOND) as bed:
        for pause_seconds in (0.0, 0.7):
            await trio.sleep(pause_seconds)
            began = trio.current_time()
            result, reason = await bed.flush()
            assert (result, bool(reason)) == ("failed", True)
            assert trio.current_time() - began < AT_ONCE_SECONDS


async def test_a_crash_is_not_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed exporter restarts and sends the unacknowledged spans."""
    monkeypatch.setattr(side_process, "AFTER_START_SECONDS", 0.05)
    async with no_good("mute") as endpoint, running(tmp_path, endpoint) as bed:
        first = bed.edge._process
        assert first is not None
        first.kill()
        await first.wait()
        await until(lambda: bed.edge._process not in (None, first), "the next exporter")

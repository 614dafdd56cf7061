"""A real daemon's shutdown, exported live: killed half way, finished after the restart, read back.

Needs the real logind (`tests.daemon.rig`) and real back ends.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from ebbtide.events.decisions import FlushTraces, ReleaseLock
from ebbtide.events.facts import OrderEnded
from tests.backends.backends import Backend, Kept
from tests.backends.compare import assert_same, shutdowns
from tests.daemon.conftest import rig
from tests.daemon.rig import Rig

__all__ = ["rig"]

pytestmark = [pytest.mark.backend, pytest.mark.root]


def exporting_to(rig: Rig, backend: Backend, protocol: str) -> None:
    endpoint = backend.grpc if protocol == "grpc" else backend.http
    rig.configure({0: 8, 1000: 12}, tracing={"endpoint": endpoint, "protocol": protocol, "flush": "2s"})


async def two_waves(rig: Rig) -> None:
    """Two slow pods in the first wave, one in the second: time to query during the shutdown."""
    rig.pod("web", "after=0.3", hook=0.3)
    rig.pod("slow", "after=3")
    rig.pod("db", "after=6", priority=1000)
    await rig.start()
    await rig.granted()
    await rig.up("web", "slow", "db")


def exporter_of(pid: int) -> int:
    """The PID of a daemon's exporter, started by one of its threads."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    children = [each for path in lists for each in path.read_text().split()]
    (found,) = [
        int(each) for each in children if b"ebbtide.follower" in Path(f"/proc/{each}/cmdline").read_bytes()
    ]
    return found


async def until(backend: Backend, trace_id: str, holds: Callable[[Kept], bool]) -> Kept:
    return await trio.to_thread.run_sync(backend.wait, trace_id, holds, abandon_on_cancel=True)


async def the_trace(rig: Rig) -> str:
    """The id that ``status`` shows, before anything is exported."""
    shown = json.loads(await rig.ebbtide("status", "-o", "json"))
    return str(shown["shutdown"]["traceId"])


async def compared(rig: Rig, backend: Backend, trace_id: str) -> None:
    """The back end equals the journal's projection, span by span."""

    def whole(kept: Kept) -> bool:
        (shutdown,) = shutdowns(*rig.locations)
        return set(kept.spans) == {(span.trace_id, span.span_id) for span in shutdown.own}

    kept = await until(backend, trace_id, whole)
    (shutdown,) = shutdowns(*rig.locations)
    assert shutdown.trace_id == trace_id
    assert_same(kept, shutdown)
    assert "shutdown" in {span.name for span in shutdown.own}


PAIRS = [("jaeger", "http/protobuf"), ("tempo", "grpc")]


@pytest.mark.parametrize("name, protocol", PAIRS)
async def test_a_shutdown_is_there_when_the_lock_is_released(
    request: pytest.FixtureRequest, rig: Rig, name: str, protocol: str
) -> None:
    """The back end has the ended spans during the shutdown; the flush is answered, and the rest follows."""
    backend: Backend = request.getfixturevalue(name)
    exporting_to(rig, backend, protocol)
    await two_waves(rig)
    await rig.bed.power_off()
    await rig.traced("db", "TERM")
    trace_id = await the_trace(rig)
    live = await until(backend, trace_id, lambda kept: bool(kept.spans))
    assert any(span.name.startswith("pod ") for span in live.spans.values())
    assert not rig.records(ReleaseLock)
    await rig.recorded(ReleaseLock)
    (flush,) = rig.events(FlushTraces)
    (answered,) = [each for each in rig.events(OrderEnded) if each.key == flush.key]
    assert (answered.result, answered.reason) == ("done", "")
    await compared(rig, backend, trace_id)
    assert await rig.stop() == 0


async def test_killed_half_way_and_finished_after_the_restart(rig: Rig, jaeger: Backend) -> None:
    """Exporter and daemon die in the middle; one trace is whole in the end, each span there once."""
    exporting_to(rig, jaeger, "http/protobuf")
    await two_waves(rig)
    await rig.bed.power_off()
    await rig.traced("web", "gone")
    trace_id = await the_trace(rig)
    await until(jaeger, trace_id, lambda kept: bool(kept.spans))
    os.kill(exporter_of(rig.pid), signal.SIGKILL)
    await rig.traced("slow", "gone")
    await rig.kill()
    await rig.start(until="shutdown")
    await rig.recorded(ReleaseLock)
    await compared(rig, jaeger, trace_id)
    assert await rig.stop() == 0


async def test_what_the_back_end_missed_is_sent_at_the_next_start(rig: Rig, jaeger: Backend) -> None:
    """No back end during the shutdown; the next start delivers from the cursor."""
    rig.configure({0: 8, 1000: 12}, tracing={"endpoint": "http://127.0.0.1:9", "flush": "2s"})
    await two_waves(rig)
    await rig.bed.power_off()
    await rig.recorded(ReleaseLock)
    trace_id = await the_trace(rig)
    (flush,) = rig.events(FlushTraces)
    (answered,) = [each for each in rig.events(OrderEnded) if each.key == flush.key]
    assert answered.result == "failed"
    assert "refused" in answered.reason.lower()
    assert answered.elapsed_ns < 500_000_000
    assert await rig.stop() == 0
    exporting_to(rig, jaeger, "http/protobuf")
    await rig.start(until="")
    await compared(rig, jaeger, trace_id)
    assert await rig.stop() == 0

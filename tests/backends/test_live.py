"""A real daemon's shutdown on the real logind, exported live and read back from real back ends."""

from __future__ import annotations

import json
from collections.abc import Callable

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


@pytest.mark.parametrize("name, protocol", [("jaeger", "http/protobuf"), ("tempo", "grpc")])
async def test_a_shutdown_is_there_when_the_lock_is_released(
    request: pytest.FixtureRequest, rig: Rig, name: str, protocol: str
) -> None:
    """Ended spans come in the shutdown, the flush is answered, and in the end all is as projected."""
    backend: Backend = request.getfixturevalue(name)

    async def kept(holds: Callable[[Kept], bool]) -> Kept:
        return await trio.to_thread.run_sync(backend.wait, trace_id, holds, abandon_on_cancel=True)

    endpoint = backend.grpc if protocol == "grpc" else backend.http
    rig.configure({0: 8, 1000: 12}, tracing={"endpoint": endpoint, "protocol": protocol, "flush": "2s"})
    # Time to query during the shutdown.
    rig.pod("web", "after=0.3", hook=0.3)
    rig.pod("slow", "after=3")
    rig.pod("db", "after=6", priority=1000)
    await rig.start()
    await rig.granted()
    await rig.up("web", "slow", "db")
    await rig.bed.power_off()
    await rig.traced("db", "TERM")
    # Known before any export.
    trace_id = json.loads(await rig.ebbtide("status", "-o", "json"))["shutdown"]["traceId"]
    live = await kept(lambda found: bool(found.spans))
    assert any(span.name.startswith("pod ") for span in live.spans.values())
    assert not rig.records(ReleaseLock)
    await rig.recorded(ReleaseLock)
    (flush,) = rig.events(FlushTraces)
    (answered,) = [each for each in rig.events(OrderEnded) if each.key == flush.key]
    assert (answered.result, answered.reason) == ("done", "")

    def whole(found: Kept) -> bool:
        (shutdown,) = shutdowns(*rig.locations)
        return set(found.spans) == {(span.trace_id, span.span_id) for span in shutdown.own}

    found = await kept(whole)
    (shutdown,) = shutdowns(*rig.locations)
    assert shutdown.trace_id == trace_id
    assert_same(found, shutdown)
    assert "shutdown" in {span.name for span in shutdown.own}
    assert await rig.stop() == 0

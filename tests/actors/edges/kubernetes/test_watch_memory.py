"""Watch lines, and a watch on an arbitrary server, in virtual time: it always continues."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from ebbtide.actors.edges.kubernetes.api_calls import SELF_SUBJECT_REVIEWS, Answer, Unanswered
from ebbtide.actors.edges.kubernetes.api_client import LINE_BYTES_MAX, LineStream
from ebbtide.actors.edges.kubernetes.api_watch import ApiHealth, Watch, pods_of
from ebbtide.actors.edges.kubernetes.known_pods import PodStore
from ebbtide.events import bounds
from ebbtide.events.facts import ApiRead
from tests.actors.edges.kubernetes import objects
from tests.actors.edges.kubernetes.write_fake import Scripted
from tests.actors.edges.process.process_bed import Outbox

HOUR = 3600.0


def stream_of(pieces: list[bytes], code: int = 200) -> LineStream:
    """A stream of these pieces, then its end."""
    left = iter(pieces)

    async def read() -> bytes:
        await trio.lowlevel.checkpoint()
        return next(left, b"")

    return LineStream(code, read)


@given(st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"-"))), st.data())
def test_lines(lines: list[bytes], data: st.DataObject) -> None:
    """The split into pieces does not change the lines; an unfinished line is dropped."""
    whole = b"".join(line + b"\n" for line in lines) + b"torn"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=5)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True) if a < b]

    async def read() -> list[bytes]:
        stream, found = stream_of(pieces), []
        while (line := await stream.line(1.0)) is not None:
            found.append(line)
        return found

    assert trio.run(read) == lines


async def test_a_line_without_end() -> None:
    """A line longer than any object is dropped."""
    piece = b"x" * (1024 * 1024)
    with pytest.raises(Unanswered, match="a line of more than"):
        await stream_of([piece] * (LINE_BYTES_MAX // len(piece) + 2)).line(1.0)


class Server:
    """Lists these pods; each watch gets the next stream. ``bodies`` come first."""

    def __init__(
        self, pods: list[dict[str, Any]], *watches: list[bytes], bodies: tuple[tuple[int, bytes], ...] = ()
    ) -> None:
        self.bodies = list(bodies)
        self.pods, self.watches = pods, list(watches)
        self.lists: list[str] = []
        self.places: list[str] = []

    async def call(self, method: str, path: str, **how: Any) -> Answer:
        await trio.lowlevel.checkpoint()
        if self.bodies:
            return Answer(*self.bodies.pop(0))
        if method == "GET" and path.startswith("/api/v1/pods"):
            self.lists.append(path)
            return Answer(
                200, json.dumps({"metadata": {"resourceVersion": "9"}, "items": self.pods}).encode()
            )
        return Answer(201, b"{}") if path == SELF_SUBJECT_REVIEWS else Answer(200, b"{}")

    @asynccontextmanager
    async def stream(self, path: str, *, seconds_max: float) -> AsyncIterator[LineStream]:
        self.places.append(path.partition("resourceVersion=")[2].partition("&")[0])
        yield stream_of(self.watches.pop(0)) if self.watches else LineStream(200, _forever)


async def _forever() -> bytes:
    await trio.sleep_forever()
    raise AssertionError


async def watched(server: Server, clock: MockClock) -> tuple[PodStore, Outbox]:
    store, outbox = PodStore(), Outbox()
    health = ApiHealth(server, "node-1", outbox, PodStore())
    with trio.CancelScope(deadline=clock.current_time() + HOUR):
        await Watch(server, pods_of("node-1"), store, health).run()
    return store, outbox


def pod(uid: str, version: str = "10") -> dict[str, Any]:
    return {"metadata": {"name": uid, "namespace": "default", "uid": uid, "resourceVersion": version}}


async def test_a_write_that_is_not_answered(autojump_clock: MockClock) -> None:
    """A silent server is probed and reported once as away. Any answer ends that."""
    takes_seconds = 0.0
    server, outbox = Scripted(lambda asked: (takes_seconds, Answer(200, b"{}"))), Outbox()
    health = ApiHealth(server, "node-1", outbox, PodStore())
    await health.answered()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(health.follow)
        takes_seconds = HOUR
        began = trio.current_time()
        for _ in range(2):
            with pytest.raises(Unanswered):
                await health.call("DELETE", "/pod", seconds_max=1.5)
        (away,) = await outbox.wait_for(ApiRead, reachable=False)
        assert trio.current_time() - began == pytest.approx(1.5 + bounds.now.api_liveness_seconds)
        assert away.error == "silence"
        await trio.sleep(60)
        takes_seconds = 0
        await health.call("PATCH", "/pod", seconds_max=1)
        await outbox.wait_for(ApiRead, 2, reachable=True)
        assert [read.reachable for read in outbox.of(ApiRead)] == [True, False, True]
        nursery.cancel_scope.cancel()


lines = st.one_of(
    st.binary(max_size=60),
    objects.anything.map(lambda value: json.dumps(value).encode()),
    st.builds(
        lambda kind, value: json.dumps({"type": kind, "object": value}).encode(),
        st.sampled_from(["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "", "OTHER"]),
        objects.pods | objects.anything,
    ),
    st.just(b'{"type":"ADDED","object":' + b"[" * 5000),
)


bodies = st.tuples(st.sampled_from([200, 201, 403, 410, 429, 500]), lines)


@settings(max_examples=50)
@given(
    st.lists(st.lists(lines.map(lambda line: line + b"\n"), max_size=3), max_size=3),
    st.lists(bodies, max_size=3).map(tuple),
)
def test_anything(watches: list[list[bytes]], said: tuple[tuple[int, bytes], ...]) -> None:
    """The watch never raises, and recovers with the server."""
    clock = MockClock(autojump_threshold=0)
    server = Server([pod("a")], *watches, bodies=said)
    _, outbox = trio.run(watched, server, clock, clock=clock)
    assert outbox.of(ApiRead)[-1].reachable

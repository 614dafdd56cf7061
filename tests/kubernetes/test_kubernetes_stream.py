"""Lines of a watch, and a watch whose server sends anything: whatever comes, the edge goes on."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from actors.edges.kubernetes.calling import Answer, Unanswered
from actors.edges.kubernetes.health import REVIEW, Health
from actors.edges.kubernetes.pages import PART_BYTES, whole
from actors.edges.kubernetes.store import Store
from actors.edges.kubernetes.streams import LINE_BYTES_MAX, Silent, Stream
from actors.edges.kubernetes.watch import Watch
from events.facts import ApiRead
from tests.kubernetes import objects
from tests.process.process_bed import Outbox

HOUR = 3600.0


def stream_of(pieces: list[bytes], code: int = 200) -> Stream:
    """A stream of these pieces, then its end."""
    left = iter(pieces)

    async def read() -> bytes:
        await trio.lowlevel.checkpoint()
        return next(left, b"")

    return Stream(code, read)


def jumping(work: Callable[[], Awaitable[Any]]) -> Any:
    return trio.run(work, clock=MockClock(autojump_threshold=0))


@given(st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"-"))), st.data())
def test_lines(lines: list[bytes], data: st.DataObject) -> None:
    """However the bytes are cut into pieces, the lines are the same; what is left at the end is none."""
    whole = b"".join(line + b"\n" for line in lines) + b"torn"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=5)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True) if a < b]

    async def read() -> list[bytes]:
        stream, found = stream_of(pieces), []
        while (line := await stream.line(1.0)) is not None:
            found.append(line)
        return found

    assert jumping(read) == lines


async def test_a_line_without_end() -> None:
    """A line that is longer than any object is given up, not collected."""
    piece = b"x" * (1024 * 1024)
    with pytest.raises(Unanswered, match="a line of more than"):
        await stream_of([piece] * (LINE_BYTES_MAX // len(piece) + 2)).line(1.0)


async def test_silence(autojump_clock: MockClock) -> None:
    """After silence the stream can be asked again, and nothing is lost."""
    send, receive = trio.open_memory_channel[bytes](1)
    stream = Stream(200, receive.receive)
    await send.send(b"half ")
    with pytest.raises(Silent):
        await stream.line(5.0)
    await send.send(b"and half\n")
    assert await stream.line(5.0) == b"half and half"


class Server:
    """Answers a list with these pods, and each watch with the next of these streams; the last one lasts.

    ``bodies``: what it says before that to lists and to whatever else is asked.
    """

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
        return Answer(201, b"{}") if path == REVIEW else Answer(200, b"{}")

    @asynccontextmanager
    async def stream(self, path: str, *, seconds_max: float) -> AsyncIterator[Stream]:
        self.places.append(path.partition("resourceVersion=")[2].partition("&")[0])
        yield stream_of(self.watches.pop(0)) if self.watches else Stream(200, _forever)


async def _forever() -> bytes:
    await trio.sleep_forever()
    raise AssertionError


async def watched(server: Server) -> tuple[Store, Outbox]:
    """What is known after an hour."""
    store, outbox = Store(), Outbox()
    health = Health(server, "node-1", outbox)
    with trio.move_on_after(HOUR):
        await Watch(server, "node-1", store, health).run()
    return store, outbox


def event(what: str, /, **thing: Any) -> bytes:
    return json.dumps({"type": what, "object": thing}).encode() + b"\n"


def pod(uid: str, version: str = "10") -> dict[str, Any]:
    return {"metadata": {"name": uid, "namespace": "default", "uid": uid, "resourceVersion": version}}


async def test_events(autojump_clock: MockClock) -> None:
    """Pods come, change and go with their events; a bookmark only moves the place."""
    lines = [
        event("ADDED", **pod("b")),
        event("MODIFIED", **pod("b", "11"), status={"phase": "Running"}),
        event("DELETED", **pod("a", "12")),
        event("BOOKMARK", metadata={"resourceVersion": "20"}),
    ]
    server = Server([pod("a")], lines)
    store, _ = await watched(server)
    assert [(each.uid, each.phase) for each in store.pods()] == [("b", "Running")]
    assert server.places[:2] == ["9", "20"]
    assert len(server.lists) == 1


@pytest.mark.parametrize(("code", "lists"), [(410, 2), (500, 1)], ids=["the place is gone", "anything else"])
async def test_an_error(autojump_clock: MockClock, code: int, lists: int) -> None:
    """An ERROR event ends the watch; only one that says that the place is gone makes it list again."""
    error = event("ERROR", kind="Status", code=code, message="too old")
    server = Server([pod("a")], [error])
    await watched(server)
    assert len(server.lists) == lists


async def test_a_place_that_never_was(autojump_clock: MockClock) -> None:
    """A server that refuses our place again and again is asked for a list, and so a new place."""
    error = event("ERROR", kind="Status", code=504, message="Too large resource version")
    server = Server([pod("a")], *[[error]] * 5)
    await watched(server)
    assert len(server.lists) == 2


async def test_short_trouble(autojump_clock: MockClock) -> None:
    """A few watches that end at once are no reason to call the server away."""
    _, outbox = await watched(Server([pod("a")], [], [b"{"], [b"nonsense\n"], []))
    assert outbox.of(ApiRead) == [ApiRead(reachable=True)]


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


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.lists(lines.map(lambda line: line + b"\n"), max_size=4), max_size=4),
    st.lists(bodies, max_size=4).map(tuple),
)
def test_anything(watches: list[list[bytes]], said: tuple[tuple[int, bytes], ...]) -> None:
    """Whatever the server says, the watch never raises, and ends with a server that is well."""

    async def run() -> Outbox:
        _, outbox = await watched(Server([pod("a")], *watches, bodies=said))
        return outbox

    assert jumping(run).of(ApiRead)[-1].reachable


async def test_a_list_in_parts() -> None:
    """A list comes in parts; after one that was large the next are asked for smaller."""
    asked: list[str] = []

    class Pages(Server):
        async def call(self, method: str, path: str, **how: Any) -> Answer:
            asked.append(path.partition("limit=")[2])
            number = len(asked)
            more = "" if number == 3 else f"part {number + 1}"
            metadata = {"resourceVersion": "7", "continue": more}
            padding = " " * (10 * PART_BYTES if number == 1 else 0)
            body = json.dumps({"metadata": metadata, "items": [pod(f"pod-{number}")]}) + padding
            return Answer(200, body.encode())

    pods, version = await whole(Pages([]), "node-1")
    assert [each.uid for each in pods] == ["pod-1", "pod-2", "pod-3"]
    assert version == "7"
    assert asked == ["50", "4&continue=part%202", "4&continue=part%203"]

"""What goes over the wire, and what a server may do to a call: against a small server of our own."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import h11
import pytest
import trio

from actors.edges.kubernetes import keeping, light, link, session
from actors.edges.kubernetes.calling import MERGE_PATCH, Unanswered
from actors.edges.kubernetes.link import Link
from actors.edges.kubernetes.session import CONNECTIONS_MAX
from actors.interfaces import Ending
from events.decisions import AnnounceNode
from events.facts import ApiRead
from tests.kubernetes.rig import Rig, linked, running, until

Seen = list[tuple[str, dict[str, str], bytes]]
TRACE = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
#: One answer, for as many requests as come on a connection.
Answering = Callable[[trio.SocketStream], Awaitable[None]]


@asynccontextmanager
async def served(folder: Path, serve: Answering) -> AsyncIterator[Link]:
    """Our client, at a server that does this with each connection."""
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        async with linked(config(folder, listener.socket.getsockname()[1])) as made:
            yield made
        nursery.cancel_scope.cancel()


def config(folder: Path, port: int) -> Path:
    path = folder / "kubeconfig"
    context = {"name": "x", "context": {"cluster": "x", "user": "x"}}
    cluster = {"name": "x", "cluster": {"server": f"http://127.0.0.1:{port}/prefix"}}
    user = {"name": "x", "user": {"token": "secret"}}
    document = {"current-context": "x", "contexts": [context], "clusters": [cluster], "users": [user]}
    path.write_text(json.dumps(document))
    return path


async def answer(
    seen: Seen, stream: trio.SocketStream, code: int = 200, body: bytes = b"{}", **fields: str
) -> None:
    """Answer each request so, and note it."""
    connection = h11.Connection(h11.SERVER)
    while True:
        request, content = None, b""
        while not isinstance(event := connection.next_event(), h11.EndOfMessage):
            if isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.Data):
                content += bytes(event.data)
            elif event is h11.NEED_DATA:
                connection.receive_data(await stream.receive_some())
            else:
                return
        assert request is not None
        headers = {name.decode(): value.decode() for name, value in request.headers}
        seen.append((f"{request.method.decode()} {request.target.decode()}", headers, content))
        said = {"content-length": str(len(body)), **{key.replace("_", "-"): fields[key] for key in fields}}
        reply = h11.Response(status_code=code, headers=list(said.items()))
        for part in (reply, h11.Data(data=body), h11.EndOfMessage()):
            await stream.send_all(connection.send(part) or b"")
        connection.start_next_cycle()


async def test_what_is_sent(tmp_path: Path) -> None:
    """Path and query go out as they are, with the token, the trace's context and the body's kind."""
    seen: Seen = []
    async with served(tmp_path, partial(answer, seen)) as made:
        path = "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-1&continue=a%2Bb"
        await made.call("GET", path, seconds_max=5)
        await made.call(
            "PATCH", "/x", body={"a": 1}, content_type=MERGE_PATCH, seconds_max=5, traceparent=TRACE
        )
    (get, got, _), (patch, sent, body) = seen
    assert get == f"GET /prefix{path}"
    assert got["authorization"] == "Bearer secret"
    assert got["accept-encoding"] == "identity"
    assert "traceparent" not in got
    assert patch == "PATCH /prefix/x"
    assert (sent["content-type"], sent["traceparent"]) == (MERGE_PATCH, TRACE)
    assert json.loads(body) == {"a": 1}


@pytest.mark.parametrize(
    ("said", "seconds"), [("7", 7.0), ("soon", 0.0), ("Wed, 21 Oct 2026 07:28:00 GMT", 0.0), ("-1", 0.0)]
)
async def test_a_refusal_is_an_answer(tmp_path: Path, said: str, seconds: float) -> None:
    """What the server refuses comes back with its code and the time that it asks for, and is not repeated."""
    seen: Seen = []
    async with served(tmp_path, partial(answer, seen, code=429, body=b"no", Retry_After=said)) as made:
        assert await made.call("GET", "/x", seconds_max=5) == (429, b"no", seconds)
    assert len(seen) == 1


async def unanswered(made: Link, seconds_max: float) -> bool:
    """May somebody have done what this call asked for?"""
    with pytest.raises(Unanswered) as caught:
        await made.call("DELETE", "/x", seconds_max=seconds_max)
    return caught.value.sent


async def test_whether_anything_was_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is silent or hangs up may have heard; one that no connection reaches has not."""
    monkeypatch.setattr(session, "CONNECTIONS_MAX", 1)
    heard = trio.Event()

    async def silent(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        heard.set()
        await trio.sleep_forever()

    async with served(tmp_path, silent) as made, trio.open_nursery() as nursery:
        nursery.start_soon(unanswered, made, 30.0)
        await heard.wait()
        # The only connection is taken, so this one waits for a turn all its time.
        assert not await unanswered(made, 0.2)
        nursery.cancel_scope.cancel()

    async def hang_up(stream: trio.SocketStream) -> None:
        await stream.receive_some()

    async with served(tmp_path, silent) as made:
        assert await unanswered(made, 0.2)
    async with served(tmp_path, hang_up) as made:
        assert await unanswered(made, 5.0)
    async with linked(config(tmp_path, 1)) as made:
        assert not await unanswered(made, 5.0)


async def test_one_connection_for_many_calls(tmp_path: Path) -> None:
    """Calls one after another go over one connection."""
    connections: list[Any] = []

    async def serve(stream: trio.SocketStream) -> None:
        connections.append(stream)
        await answer([], stream)

    async with served(tmp_path, serve) as made:
        for _ in range(5):
            await made.call("GET", "/x", seconds_max=5)
    assert len(connections) == 1


async def test_a_server_that_says_nothing(tmp_path: Path) -> None:
    """A call to a server that listens and is silent ends at its bound, and the next is on its own."""

    async def serve(stream: trio.SocketStream) -> None:
        await trio.sleep_forever()

    async with served(tmp_path, serve) as made:
        began = trio.current_time()
        with pytest.raises(Unanswered, match=r"GET /x: no answer in 0\.2 s"):
            await made.call("GET", "/x?secret=1", seconds_max=0.2)
        assert trio.current_time() - began < 5


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort",
        b"HTTP/1.1 9999 x\r\n\r\n",
    ],
    ids=["nothing", "nonsense", "cut short", "no code"],
)
async def test_what_is_no_answer(tmp_path: Path, said: bytes) -> None:
    """A connection that ends, or says what is no HTTP, is no answer, and one line."""

    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()
            await stream.send_all(said)

    async with served(tmp_path, serve) as made:
        with pytest.raises(Unanswered) as wrong:
            await made.call("POST", "/x", body={}, seconds_max=5)
    assert str(wrong.value).startswith("POST /x: ")
    assert "\n" not in str(wrong.value)
    assert "secret" not in str(wrong.value)


async def test_an_answer_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that is larger than anything asked for is given up."""
    monkeypatch.setattr(link, "ANSWER_BYTES_MAX", 1000)
    async with served(tmp_path, partial(answer, [], body=b"x" * 5000)) as made:
        with pytest.raises(Unanswered, match="an answer of more than 1000 bytes"):
            await made.call("GET", "/x", seconds_max=5)


async def test_a_call_that_is_cancelled(tmp_path: Path) -> None:
    """A call that nobody waits for any more leaves nothing behind that another could trip over."""
    seen: Seen = []

    async def serve(stream: trio.SocketStream) -> None:
        if not seen:
            seen.append(("", {}, b""))
            await trio.sleep_forever()
        await answer(seen, stream)

    async with served(tmp_path, serve) as made:
        with trio.move_on_after(0.1):
            await made.call("GET", "/x", seconds_max=5)
        assert (await made.call("GET", "/y", seconds_max=5)).ok


async def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the client's package the API is away, with the cure; an order has that for its reason."""
    monkeypatch.setattr(light, "PACKAGE", "no_such_package")
    async with running(config(tmp_path, 1), tmp_path / "state") as rig:
        (said,) = await rig.outbox.wait_for(ApiRead)
        ended = await rig.edge.adopt(AnnounceNode(key="k", ready=True), rig.outbox)
    assert not said.reachable
    assert "pip install 'ebbtide[node]'" in said.error
    assert ended == Ending("failed", said.error)
    assert rig.told == [said.error]


async def test_whatever_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure that nobody thought of is the API server's absence, said once and without its words; the edge
    goes on, tries again, and is there once it can be.
    """
    monkeypatch.setattr(keeping, "AGAIN_SECONDS", 0.01)
    load, tries = light.load, 0

    def fail() -> light.Client:
        nonlocal tries
        tries += 1
        if tries < 4:
            raise KeyError("SECRET")
        return load()

    monkeypatch.setattr(light, "load", fail)
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, partial(answer, []), [listener])
        port = listener.socket.getsockname()[1]
        async with running(config(tmp_path, port), tmp_path / "state", tmp_path / "manifests") as rig:
            await until(lambda: tries >= 4)
            order = AnnounceNode(key="k", ready=False)
            ended = await until_done(rig, order)
        nursery.cancel_scope.cancel()
    (first,) = [each for each in rig.told if "Kubernetes API cannot be used" in each]
    assert first.startswith(
        "the Kubernetes API cannot be used, which is tried again: KeyError at fail, line "
    )
    assert [each.error for each in rig.outbox.of(ApiRead)][:1] == [first]
    # This server's Node has nothing in it that can be read.
    assert "the node cannot be read" in ended.reason


async def until_done(rig: Rig, order: AnnounceNode) -> Ending:
    """Once the edge no longer says that it cannot be used."""
    with trio.fail_after(10):
        while True:
            ended = await rig.edge.adopt(order, rig.outbox)
            assert ended is not None
            if "cannot be used" not in ended.reason:
                return ended
            await trio.sleep(0.01)


async def test_a_session_that_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls that are under way, or wait for a connection, when theirs are closed are not answered."""
    monkeypatch.setattr(link, "OLD_SESSION_SECONDS", 0.0)

    connections: list[Any] = []

    async def serve(stream: trio.SocketStream) -> None:
        connections.append(stream)
        await trio.sleep_forever()

    async with served(tmp_path, serve) as made:
        wrong: list[str] = []

        async def ask() -> None:
            with pytest.raises(Unanswered) as error:
                await made.call("GET", "/x", seconds_max=60)
            wrong.append(str(error.value))

        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                for _ in range(CONNECTIONS_MAX + 5):
                    nursery.start_soon(ask)
                await until(lambda: len(connections) == CONNECTIONS_MAX)
                config(tmp_path, 1)
                await made._renew()
    assert len(wrong) == CONNECTIONS_MAX + 5


LATE = """
import sys, trio
from pathlib import Path
import actors.edges.kubernetes.runtime
from actors.edges.kubernetes.calling import Unanswered
from actors.edges.kubernetes.link import Link

async def main():
    link = Link(Path(sys.argv[1]))
    async with trio.open_nursery() as nursery:
        await nursery.start(link.run)
        await link.call("POST", "/200", body={}, seconds_max=5)
        before = set(sys.modules)
        for method in ("PATCH", "DELETE", "GET"):
            for path in ("/200", "/401", "/429", "/500", "/cut", "/silent"):
                try:
                    await link.call(method, path, body={}, seconds_max=1 if path == "/silent" else 5)
                except Unanswered:
                    pass
        print(*(set(sys.modules) - before))
        nursery.cancel_scope.cancel()

trio.run(main)
"""


async def test_nothing_is_imported_late(tmp_path: Path) -> None:
    """After the first call nothing is imported any more, whatever comes: the disk may be going down."""

    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            line = (await stream.receive_some()).split(b" ")[1].rpartition(b"/")[2]
            if line == b"silent":
                await trio.sleep_forever()
            if line != b"cut":
                fields = b"connection: close\r\nretry-after: 1\r\ncontent-length: 2"
                await stream.send_all(b"HTTP/1.1 %s x\r\n%s\r\n\r\n{}" % (line, fields))

    async with served(tmp_path, serve):
        argv = [sys.executable, "-c", LATE, str(tmp_path / "kubeconfig")]
        with trio.fail_after(60):
            done = await trio.run_process(argv, capture_stdout=True)
    assert done.stdout.split() == []

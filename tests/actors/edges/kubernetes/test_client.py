"""What goes over the wire, and what a server may do to a call: against a small server of our own."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import h11
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from ebbtide.actors.edges.kubernetes import client as light
from ebbtide.actors.edges.kubernetes import client as link
from ebbtide.actors.edges.kubernetes import client as session
from ebbtide.actors.edges.kubernetes import edge as keeping
from ebbtide.actors.edges.kubernetes.calls import (
    MERGE_PATCH,
    PART_BYTES,
    Answer,
    ApiCall,
    Unanswered,
    find_pods,
)
from ebbtide.actors.edges.kubernetes.client import (
    CONNECTIONS_MAX,
    LINE_BYTES_MAX,
    ApiClient,
    LineStream,
    SilentStream,
)
from ebbtide.actors.edges.kubernetes.pods import PodStore
from ebbtide.actors.edges.kubernetes.watch import (
    LIVENESS_PATH,
    SELF_SUBJECT_REVIEWS,
    ApiHealth,
    HeardCaller,
    PodWatch,
    list_all,
)
from ebbtide.actors.interfaces import Ending
from ebbtide.events import bounds
from ebbtide.events.decisions import AnnounceNode
from ebbtide.events.facts import ApiRead
from ebbtide.extras import install_command
from tests.actors.edges.kubernetes import objects
from tests.actors.edges.kubernetes.rig import Rig, linked, running
from tests.actors.edges.process.process_bed import Outbox
from tests.actors.edges.process.test_hooks import CANARY
from tests.actors.edges.test_http_get import WRONG_ANSWERS
from tests.waiting import until

Seen = list[tuple[str, dict[str, str], bytes]]
TRACE = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
#: One answer, for as many requests as come on a connection.
Answering = Callable[[trio.SocketStream], Awaitable[None]]


@asynccontextmanager
async def served(folder: Path, serve: Answering) -> AsyncIterator[ApiClient]:
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


async def unanswered(made: ApiClient, seconds_max: float) -> bool:
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
        # Long enough for a busy machine to send it.
        assert await unanswered(made, 1.5)
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


async def test_connections_that_are_not_needed_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many calls at once leave as many connections; calls one after another keep one of them."""
    monkeypatch.setattr(session, "KEEPALIVE_SECONDS", 0.2)
    open_now, most = 0, 5
    together = trio.Event()

    async def serve(stream: trio.SocketStream) -> None:
        nonlocal open_now
        open_now += 1
        if open_now == most:
            together.set()
        await together.wait()
        await answer([], stream)
        open_now -= 1

    async with served(tmp_path, serve) as made:
        async with trio.open_nursery() as nursery:
            for _ in range(most):
                nursery.start_soon(partial(made.call, "GET", "/x", seconds_max=5))
        with trio.fail_after(10):
            while open_now > 1:
                await made.call("GET", "/x", seconds_max=5)


async def test_a_server_that_says_nothing(tmp_path: Path) -> None:
    """A call to a server that listens and is silent ends at its bound, and the next is on its own."""

    async def serve(stream: trio.SocketStream) -> None:
        await trio.sleep_forever()

    async with served(tmp_path, serve) as made:
        began = trio.current_time()
        with pytest.raises(Unanswered, match=r"GET /x: no answer in 200 ms"):
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


@pytest.mark.parametrize(
    "said",
    [*WRONG_ANSWERS, f"HTTP/1.1 302 Found\r\nLocation: http://{CANARY}.invalid/\r\n\r\n".encode()],
    ids=itertools.count(),
)
async def test_no_failure_quotes_an_answer(tmp_path: Path, said: bytes) -> None:
    """Not where it is no HTTP, not where it breaks off, and nobody is asked who is named in it."""

    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()
            # The client may have hung up by then.
            with suppress(trio.BrokenResourceError):
                await stream.send_all(said)

    texts = []
    async with served(tmp_path, serve) as made:
        # Some of it the client takes for an answer: what it is worth is the writers' to say.
        try:
            await made.call("GET", f"/x?{CANARY}", seconds_max=5)
        except Unanswered as error:
            texts.append(str(error))
        try:
            async with made.stream(f"/x?{CANARY}", seconds_max=5) as stream:
                await stream.answer(5)
        except Unanswered as error:
            texts.append(str(error))
    assert not [text for text in texts if CANARY in text or not text.startswith("GET /x: ")]


@pytest.mark.parametrize(
    "line",
    [
        CANARY,
        f'{{"type": "{CANARY}", "object": "{CANARY}"}}',
        f'{{"type": "ADDED", "object": {{"metadata": "{CANARY}"}}}}',
        f'{{"type": "ERROR", "object": {{"code": 500, "message": "{CANARY}"}}}}',
        f'{{"type": "ERROR", "object": {{"code": "{CANARY}"}}}}',
        f'{{"type": "ERROR", "object": "{CANARY}"}}',
    ],
)
async def test_no_fact_quotes_a_watch(tmp_path: Path, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be read of a list or a watch is said without its words."""
    monkeypatch.setattr(bounds, "now", bounds.Bounds(api_away_seconds=0.0))
    store, outbox = PodStore(), Outbox()
    listed = f'{{"metadata": {{"resourceVersion": "1"}}, "items": ["{CANARY}"]}}'.encode()

    async def serve(stream: trio.SocketStream) -> None:
        request = await stream.receive_some()
        body = line.encode() + b"\n" if b"watch=1" in request or "metadata" not in line else listed
        async with stream:
            await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    async with served(tmp_path, serve) as made, trio.open_nursery() as nursery:
        store.resource_version = "1"
        nursery.start_soon(PodWatch(made, "n", store, ApiHealth(made, "n", outbox)).run)
        (said,) = await outbox.wait_for(ApiRead, reachable=False)
        nursery.cancel_scope.cancel()
    assert said.error
    assert CANARY not in said.error


async def test_an_answer_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that is larger than anything asked for is given up."""
    monkeypatch.setattr(link, "ANSWER_BYTES_MAX", 1000)
    async with served(tmp_path, partial(answer, [], body=b"x" * 5000)) as made:
        with pytest.raises(Unanswered, match="an answer of more than 1000 bytes"):
            await made.call("GET", "/x", seconds_max=5)


@pytest.mark.parametrize("pod_bytes, asked", [(1000, [50, 12, 3]), (9000, [50, 12, 3, 1])])
async def test_a_list_of_large_pods_is_asked_for_in_smaller_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pod_bytes: int, asked: list[int]
) -> None:
    """A tenant's fifty pods of 1.5 MiB are no reason to know nothing of the node's; one too large pod is."""
    monkeypatch.setattr(link, "ANSWER_BYTES_MAX", 5000)
    limits: list[int] = []

    async def serve(stream: trio.SocketStream) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += await stream.receive_some()
        limits.append(int(head.partition(b"limit=")[2].split()[0]))
        body = json.dumps({"metadata": {"resourceVersion": "7"}, "items": [pod("a")]}).encode()
        body += b" " * (pod_bytes * limits[-1])
        reply = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
        with suppress(trio.BrokenResourceError):
            await stream.send_all(reply + body)
        await trio.aclose_forcefully(stream)

    async with served(tmp_path, serve) as made:
        if pod_bytes < 5000:
            pods, version = await list_all(made, "node-1")
            assert ([each.uid for each in pods], version) == (["a"], "7")
        else:
            with pytest.raises(Unanswered, match=r"an answer of more than 4\.8 KiB"):
                await list_all(made, "node-1")
    assert limits == asked


@pytest.mark.parametrize("gone_at", [0, 2])
async def test_writers_find_their_pods_among_large_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone_at: int
) -> None:
    """A tenant whose pods make the list too long keeps nobody from telling which are gone. A list that the
    server forgets on its way tells nothing of any.
    """
    monkeypatch.setattr(link, "ANSWER_BYTES_MAX", 5000)
    asked: list[dict[str, list[str]]] = []
    uids = [f"u{number}" for number in range(5)]

    async def serve(stream: trio.SocketStream) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += await stream.receive_some()
        query = parse_qs(urlsplit(head.split()[1].decode()).query)
        asked.append(query)
        start, limit = int(query.get("continue", ["0"])[0]), int(query.get("limit", ["50"])[0])
        more = str(start + limit) if start + limit < len(uids) else ""
        items = [pod(uid) for uid in uids[start : start + limit]]
        body = json.dumps({"metadata": {"continue": more}, "items": items}).encode()
        body += b" " * (1500 * min(limit, len(uids) - start))
        code = 410 if gone_at and len(asked) > gone_at else 200
        reply = b"HTTP/1.1 %d X\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % (code, len(body))
        with suppress(trio.BrokenResourceError):
            await stream.send_all(reply + body)
        await trio.aclose_forcefully(stream)

    async with served(tmp_path, serve) as made:
        finding = find_pods(PodStore(), ["u3", "gone"], ApiCall(made, 5, ""), "node-1")
        if gone_at:
            with pytest.raises(Unanswered, match="410"):
                await finding
            return
        found = await finding
    assert {uid: known and known.api_uid for uid, known in found.items()} == {"u3": "u3", "gone": None}
    assert [each.get("limit") for each in asked] == [None, ["12"], ["3"], ["3"]]
    # As a whole from the server's cache, in parts from where there are parts.
    assert [each.get("resourceVersion") for each in asked] == [["0"], None, None, None]


async def test_large_answers_are_taken_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in memory is bounded, however many ask; small ones pass."""
    monkeypatch.setattr(link, "LARGE_BYTES", 100)
    whole, over = trio.Event(), list[str]()

    async def serve(stream: trio.SocketStream) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += await stream.receive_some()
        size = 50 if b"/small" in head else 500
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        await stream.send_all(b"x" * (size - 1))
        if b"/first" in head:
            await whole.wait()
        await stream.send_all(b"x")

    async def ask(client: ApiClient, path: str) -> None:
        assert len((await client.call("GET", path, seconds_max=20)).body) >= 50
        over.append(path)

    async with served(tmp_path, serve) as made, trio.open_nursery() as nursery:
        nursery.start_soon(ask, made, "/first")
        with trio.fail_after(20):
            while not made.large.locked():
                await trio.sleep(0.01)
        nursery.start_soon(ask, made, "/second")
        # The second is asked for, and is whole, before these are.
        for _ in range(5):
            await ask(made, "/small")
        whole.set()
    assert over == [*["/small"] * 5, "/first", "/second"]


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
    assert install_command("node") in said.error
    assert ended == Ending("failed", said.error)
    assert rig.told == [said.error]


async def test_whatever_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure that nobody thought of is the API server's absence, said once and without its words; the edge
    goes on, tries again, and is there once it can be.
    """
    monkeypatch.setattr(keeping, "AGAIN_SECONDS", 0.01)
    load, tries = light.load_client, 0

    def fail() -> light.ClientPackage:
        nonlocal tries
        tries += 1
        if tries < 4:
            raise KeyError("SECRET")
        return load()

    monkeypatch.setattr(light, "load_client", fail)
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, partial(answer, []), [listener])
        port = listener.socket.getsockname()[1]
        async with running(config(tmp_path, port), tmp_path / "state", tmp_path / "manifests") as rig:
            await until(lambda: tries >= 4, "it is tried again")
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
                await until(lambda: len(connections) == CONNECTIONS_MAX, "all connections are open")
                config(tmp_path, 1)
                await made._renew()
    assert len(wrong) == CONNECTIONS_MAX + 5


LATE = """
import sys, trio
from pathlib import Path
import ebbtide.actors.edges.kubernetes.runtime
from ebbtide.actors.edges.kubernetes.calls import Unanswered
from ebbtide.actors.edges.kubernetes.client import ApiClient

async def main():
    link = ApiClient(Path(sys.argv[1]))
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


# Lines of a watch, and a watch whose server sends anything: whatever comes, the edge goes on.


HOUR = 3600.0


def stream_of(pieces: list[bytes], code: int = 200) -> LineStream:
    """A stream of these pieces, then its end."""
    left = iter(pieces)

    async def read() -> bytes:
        await trio.lowlevel.checkpoint()
        return next(left, b"")

    return LineStream(code, read)


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
    stream = LineStream(200, receive.receive)
    await send.send(b"half ")
    with pytest.raises(SilentStream):
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
        return Answer(201, b"{}") if path == SELF_SUBJECT_REVIEWS else Answer(200, b"{}")

    @asynccontextmanager
    async def stream(self, path: str, *, seconds_max: float) -> AsyncIterator[LineStream]:
        self.places.append(path.partition("resourceVersion=")[2].partition("&")[0])
        yield stream_of(self.watches.pop(0)) if self.watches else LineStream(200, _forever)


async def _forever() -> bytes:
    await trio.sleep_forever()
    raise AssertionError


async def watched(server: Server) -> tuple[PodStore, Outbox]:
    """What is known after an hour."""
    store, outbox = PodStore(), Outbox()
    health = ApiHealth(server, "node-1", outbox)
    with trio.move_on_after(HOUR):
        await PodWatch(server, "node-1", store, health).run()
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


class Moody:
    """An API server of which each call takes that many seconds; it answers only what is in time."""

    def __init__(self) -> None:
        self.takes_seconds, self.asked = 0.0, list[str]()

    async def call(self, method: str, path: str, *, seconds_max: float, **_: object) -> Answer:
        self.asked.append(f"{method} {path}")
        await trio.sleep(min(self.takes_seconds, seconds_max))
        if self.takes_seconds > seconds_max:
            raise Unanswered(f"no answer in {seconds_max:g} s")
        return Answer(200, b"{}")


@asynccontextmanager
async def writing(server: Moody) -> AsyncIterator[tuple[HeardCaller, Outbox]]:
    """A writer's caller, and what is said of the server's health; at first that it answers."""
    outbox, heard = Outbox(), HeardCaller(server)
    heard.health = health = ApiHealth(server, "node-1", outbox)
    await health.answered()
    server.asked.clear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(health.follow)
        yield heard, outbox
        nursery.cancel_scope.cancel()


async def test_a_write_that_is_not_answered(autojump_clock: MockClock) -> None:
    """The server is asked whether it is there; when it is not, that is on record as soon as of any silence,
    and once. The next answer takes it back.
    """
    server = Moody()
    async with writing(server) as (heard, outbox):
        server.takes_seconds = HOUR
        began = trio.current_time()
        for _ in range(2):
            with pytest.raises(Unanswered):
                await heard.call("DELETE", "/pod", seconds_max=1.5)
        (away,) = await outbox.wait_for(ApiRead, reachable=False)
        assert trio.current_time() - began == pytest.approx(1.5 + bounds.now.api_liveness_seconds)
        assert away.error == "no answer in 1.5 s"
        await trio.sleep(60)
        server.takes_seconds = 0
        await heard.call("PATCH", "/pod", seconds_max=1)
        await outbox.wait_for(ApiRead, 2, reachable=True)
        assert [read.reachable for read in outbox.of(ApiRead)] == [True, False, True]


async def test_a_slow_server_is_there(autojump_clock: MockClock) -> None:
    """A write has less time than such a server takes; that is no reason to call it away."""
    server = Moody()
    async with writing(server) as (heard, outbox):
        server.takes_seconds = 1.5
        for _ in range(5):
            with pytest.raises(Unanswered):
                await heard.call("PATCH", "/pod", seconds_max=1)
        await trio.sleep(60)
        assert f"GET {LIVENESS_PATH}" in server.asked
        assert outbox.of(ApiRead) == [ApiRead(reachable=True)]


async def test_one_bad_write(autojump_clock: MockClock) -> None:
    """Something else was answered meanwhile: nothing is said, whatever became of the question."""
    server = Moody()
    async with writing(server) as (heard, outbox):
        server.takes_seconds = HOUR
        with pytest.raises(Unanswered):
            await heard.call("PATCH", "/pod", seconds_max=0.5)
        await trio.sleep(0.5)
        server.takes_seconds = 0
        await heard.call("PATCH", "/pod", seconds_max=0.5)
        await trio.sleep(60)
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

    pods, version = await list_all(Pages([]), "node-1")
    assert [each.uid for each in pods] == ["pod-1", "pod-2", "pod-3"]
    assert version == "7"
    assert asked == ["50", "4&continue=part%202", "4&continue=part%203"]

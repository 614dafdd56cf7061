"""Requests on the wire, and a server's possible reactions, against a small server of our own."""

from __future__ import annotations

import base64
import itertools
import json
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import h11
import pytest
import trio
import trustme
from trio.testing import MockClock

from ebbtide.actors.edges.kubernetes import api_client, api_edge
from ebbtide.actors.edges.kubernetes.api_calls import MERGE_PATCH, ApiCall, Unanswered, find_pods
from ebbtide.actors.edges.kubernetes.api_client import ApiClient
from ebbtide.actors.edges.kubernetes.api_watch import ApiHealth, Watch, list_watched, pods_of
from ebbtide.actors.edges.kubernetes.known_pods import PodStore
from ebbtide.events import bounds
from ebbtide.events.decisions import AnnounceNode
from ebbtide.events.facts import ApiRead
from tests.actors.edges.kubernetes.rig import linked, running
from tests.actors.edges.kubernetes.test_credentials import config, written
from tests.actors.edges.kubernetes.work_fake import pod
from tests.actors.edges.process.process_bed import Outbox
from tests.actors.edges.process.test_hooks import CANARY
from tests.actors.edges.test_http_request import WRONG_ANSWERS
from tests.waiting import WATCHDOG_SECONDS, until

Seen = list[tuple[str, dict[str, str], bytes]]
TRACE = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
#: One answer per request of a connection.
Answering = Callable[[trio.SocketStream], Awaitable[None]]


@pytest.fixture(autouse=True)
def _wide_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = dict.fromkeys(("api_try_seconds", "api_unhurried_seconds", "awake_seconds"), WATCHDOG_SECONDS)
    monkeypatch.setattr(bounds, "now", bounds.Bounds(**wide))


@asynccontextmanager
async def listening(folder: Path, serve: Answering) -> AsyncIterator[Path]:
    """The kubeconfig of a server that handles each connection with this function."""
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        yield at(folder, listener.socket.getsockname()[1])
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def served(folder: Path, serve: Answering) -> AsyncIterator[ApiClient]:
    async with listening(folder, serve) as path, linked(path) as made:
        yield made


def at(folder: Path, port: int) -> Path:
    return written(folder, config({"server": f"http://127.0.0.1:{port}/prefix"}, {"token": "secret"}))


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


async def head_of(stream: trio.SocketStream) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head:
        head += await stream.receive_some()
    return head


async def reply(stream: trio.SocketStream, body: bytes, code: int = 200) -> None:
    """The client may close before its end."""
    head = b"HTTP/1.1 %d X\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % (code, len(body))
    with suppress(trio.BrokenResourceError):
        await stream.send_all(head + body)
    await trio.aclose_forcefully(stream)


async def test_what_is_sent(tmp_path: Path) -> None:
    """Path and query unchanged, with token, trace context and content type."""
    seen: Seen = []
    async with served(tmp_path, partial(answer, seen)) as made:
        path = "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-1&continue=a%2Bb"
        await made.call("GET", path, seconds_max=WATCHDOG_SECONDS)
        more = {"content_type": MERGE_PATCH, "traceparent": TRACE}
        await made.call("PATCH", "/x", body={"a": 1}, seconds_max=WATCHDOG_SECONDS, **more)
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
    """A refusal returns its code and retry time, and is not repeated."""
    seen: Seen = []
    async with served(tmp_path, partial(answer, seen, code=429, body=b"no", Retry_After=said)) as made:
        assert await made.call("GET", "/x", seconds_max=WATCHDOG_SECONDS) == (429, b"no", seconds)
    assert len(seen) == 1


async def unanswered(made: ApiClient, seconds_max: float = WATCHDOG_SECONDS) -> bool:
    """May the server have carried out the call?"""
    with pytest.raises(Unanswered) as caught:
        await made.call("DELETE", "/x", seconds_max=seconds_max)
    return caught.value.sent


async def test_whether_anything_was_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mock_clock: MockClock
) -> None:
    """A silent or closing server may have received the call; an unreachable one has not."""
    mock_clock.rate = 1.0
    monkeypatch.setattr(api_client, "CONNECTIONS_MAX", 1)
    heard = trio.Event()

    async def silent(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        heard.set()
        await trio.sleep_forever()

    async with served(tmp_path, silent) as made, trio.open_nursery() as nursery:
        nursery.start_soon(unanswered, made)
        await heard.wait()
        # The only connection is busy, so this call waits its whole time for it.
        assert not await unanswered(made, 0.2)
        nursery.cancel_scope.cancel()

    async def later() -> None:
        await heard.wait()
        mock_clock.jump(WATCHDOG_SECONDS)

    async def hang_up(stream: trio.SocketStream) -> None:
        await stream.receive_some()

    heard = trio.Event()
    async with served(tmp_path, silent) as made, trio.open_nursery() as nursery:
        nursery.start_soon(later)
        assert await unanswered(made)
    async with served(tmp_path, hang_up) as made:
        assert await unanswered(made)
    async with linked(at(tmp_path, 1)) as made:
        assert not await unanswered(made)


async def test_connections_that_are_not_needed_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parallel calls leave as many connections; sequential calls keep one."""
    monkeypatch.setattr(api_client, "KEEPALIVE_SECONDS", 0.2)
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
                nursery.start_soon(partial(made.call, "GET", "/x", seconds_max=WATCHDOG_SECONDS))
        while open_now > 1:
            await made.call("GET", "/x", seconds_max=WATCHDOG_SECONDS)


@pytest.mark.parametrize(
    "said",
    [*WRONG_ANSWERS, f"HTTP/1.1 302 Found\r\nLocation: http://{CANARY}.invalid/\r\n\r\n".encode()],
    ids=itertools.count(),
)
async def test_no_failure_quotes_an_answer(tmp_path: Path, said: bytes) -> None:
    """Neither malformed nor truncated answers are quoted, and no redirect is followed."""

    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()
            # The client may already have closed.
            with suppress(trio.BrokenResourceError):
                await stream.send_all(said)

    async def streamed(made: ApiClient) -> None:
        async with made.stream(f"/x?{CANARY}", seconds_max=WATCHDOG_SECONDS) as stream:
            await stream.answer(5)

    texts = []
    async with served(tmp_path, serve) as made:
        for asked in (made.call("GET", f"/x?{CANARY}", seconds_max=WATCHDOG_SECONDS), streamed(made)):
            # The client accepts some of these; the writers must judge them.
            try:
                await asked
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
    """Unreadable parts of a list or a watch are reported without their text."""
    monkeypatch.setattr(bounds, "now", bounds.Bounds(api_away_seconds=0.0))
    store, outbox = PodStore(), Outbox()
    listed = f'{{"metadata": {{"resourceVersion": "1"}}, "items": ["{CANARY}"]}}'.encode()

    async def serve(stream: trio.SocketStream) -> None:
        watches = b"watch=1" in await head_of(stream)
        await reply(stream, line.encode() + b"\n" if watches or "metadata" not in line else listed)

    async with served(tmp_path, serve) as made, trio.open_nursery() as nursery:
        store.resource_version = "1"
        nursery.start_soon(Watch(made, pods_of("n"), store, ApiHealth(made, "n", outbox, store)).run)
        (said,) = await outbox.wait_for(ApiRead, reachable=False)
        nursery.cancel_scope.cancel()
    assert said.error
    assert CANARY not in said.error


async def test_fields_deeper_than_a_decoder_goes(tmp_path: Path) -> None:
    """A pod's author and a kubelet may write them: the API server stores 9 000 levels."""
    deep, store = b'{"f:a":' * 9000 + b"{}" + b"}" * 9000, PodStore()

    async def serve(stream: trio.SocketStream) -> None:
        uid = b"w" if b"watch=1" in await head_of(stream) else b"l"
        made = b'{"metadata":{"uid":"%s","managedFields":[{"fieldsV1":%s}]}}' % (uid, deep)
        form = b'{"type":"ADDED","object":%s}\n' if uid == b"w" else b'{"metadata":{},"items":[%s]}'
        await reply(stream, form % made)

    async with served(tmp_path, serve) as made, trio.open_nursery() as nursery:
        nursery.start_soon(Watch(made, pods_of("n"), store, ApiHealth(made, "n", Outbox(), store)).run)
        await until(lambda: store.find("w"), "the watch")
        nursery.cancel_scope.cancel()
    assert store.find("l")


@pytest.mark.parametrize("text", [b'"managedFields":[[1],{"uid":"u"}]', b'"managedFields":[' * 20_000])
def test_managed_fields_of_no_api_server_stay(text: bytes) -> None:
    assert api_client.unmanaged(text) == text


async def test_an_answer_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_client, "ANSWER_BYTES_MAX", 1000)
    async with served(tmp_path, partial(answer, [], body=b"x" * 5000)) as made:
        with pytest.raises(Unanswered, match="an answer of more than 1000 bytes"):
            await made.call("GET", "/x", seconds_max=WATCHDOG_SECONDS)


async def test_one_pod_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists shrink their parts, then give up."""
    monkeypatch.setattr(api_client, "ANSWER_BYTES_MAX", 5000)
    limits: list[int] = []

    async def serve(stream: trio.SocketStream) -> None:
        limits.append(int((await head_of(stream)).partition(b"limit=")[2].split()[0]))
        await reply(stream, b" " * 9000)

    async with served(tmp_path, serve) as made:
        with pytest.raises(Unanswered, match=r"an answer of more than 4\.8 KiB"):
            await list_watched(made, pods_of("node-1"))
    assert limits == [50, 12, 3, 1]


@pytest.mark.parametrize("gone_at", [0, 2])
async def test_writers_find_their_pods_among_large_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone_at: int
) -> None:
    """An oversized list comes in parts. An expired list is no proof."""
    monkeypatch.setattr(api_client, "ANSWER_BYTES_MAX", 5000)
    asked: list[dict[str, list[str]]] = []
    uids = [f"u{number}" for number in range(5)]

    async def serve(stream: trio.SocketStream) -> None:
        query = parse_qs(urlsplit((await head_of(stream)).split()[1].decode()).query)
        asked.append(query)
        start, limit = int(query.get("continue", ["0"])[0]), int(query.get("limit", ["50"])[0])
        more = str(start + limit) if start + limit < len(uids) else ""
        items = [pod(uid, uid=uid) for uid in uids[start : start + limit]]
        body = json.dumps({"metadata": {"continue": more}, "items": items}).encode()
        body += b" " * (1500 * min(limit, len(uids) - start))
        await reply(stream, body, 410 if gone_at and len(asked) > gone_at else 200)

    async with served(tmp_path, serve) as made:
        finding = find_pods(PodStore(), ["u3", "gone"], ApiCall(made, 5, ""), "node-1")
        if gone_at:
            with pytest.raises(Unanswered, match="410"):
                await finding
            return
        found = await finding
    assert {uid: known and known.api_uid for uid, known in found.items()} == {"u3": "u3", "gone": None}
    assert [each.get("limit") for each in asked] == [None, ["12"], ["3"], ["12"]]
    # First the whole list from the server's cache, then parts.
    assert [each.get("resourceVersion") for each in asked] == [["0"], None, None, None]


async def test_a_call_that_is_cancelled(tmp_path: Path) -> None:
    """A cancelled call leaves no state that disturbs another."""
    asked = trio.Event()

    async def serve(stream: trio.SocketStream) -> None:
        if not asked.is_set():
            asked.set()
            await trio.sleep_forever()
        await answer([], stream)

    async with served(tmp_path, serve) as made:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(made.call, "GET", "/x", seconds_max=WATCHDOG_SECONDS))
            await asked.wait()
            nursery.cancel_scope.cancel()
        assert (await made.call("GET", "/y", seconds_max=WATCHDOG_SECONDS)).ok


async def test_tls_connections_end_with_the_client(tmp_path: Path) -> None:
    """A server that never closes TLS causes no delay and leaks no socket."""
    authority, context, asked = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), trio.Event()
    authority.issue_cert("127.0.0.1").configure_cert(context)

    async def serve(plain: trio.SocketStream) -> None:
        stream = trio.SSLStream(plain, context, server_side=True)
        with suppress(trio.BrokenResourceError):
            while b"/silent" not in await stream.receive_some():
                await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            asked.set()
            await trio.sleep_forever()

    async with listening(tmp_path, serve) as path:
        document = json.loads(path.read_text().replace("http:", "https:"))
        encoded = base64.b64encode(authority.cert_pem.bytes()).decode()
        document["clusters"][0]["cluster"]["certificate-authority-data"] = encoded
        path.write_text(json.dumps(document))
        client = ApiClient(path)
        async with trio.open_nursery() as nursery:
            await nursery.start(client.run)
            nursery.start_soon(partial(client.call, "GET", "/silent", seconds_max=WATCHDOG_SECONDS))
            await client.call("GET", "/x", seconds_max=WATCHDOG_SECONDS)
            await asked.wait()
            session = client._session
            nursery.cancel_scope.cancel()
        assert session is not None
        assert all(each.fileno() < 0 for each in session._sockets)


async def test_whatever_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unforeseen failure counts as an absent API server, is reported once, and is retried."""
    monkeypatch.setattr(api_edge, "AGAIN_SECONDS", 0.01)
    load, tries = api_client.load_client, 0

    def fail() -> api_client.ClientPackage:
        nonlocal tries
        tries += 1
        if tries < 4:
            raise KeyError("SECRET")
        return load()

    async def usable() -> bool:
        ended = await rig.edge.adopt(AnnounceNode(key="k", ready=False), rig.outbox)
        assert ended is not None
        # This server's Node is unreadable.
        return "the node cannot be read" in ended.reason

    monkeypatch.setattr(api_client, "load_client", fail)
    async with (
        listening(tmp_path, partial(answer, [])) as kubeconfig,
        running(kubeconfig, tmp_path / "state", tmp_path / "manifests") as rig,
    ):
        await until(lambda: tries >= 4, "it is tried again")
        await until(usable, "it is usable")
    (first,) = [each for each in rig.told if "Kubernetes API cannot be used" in each]
    assert first.startswith(
        "the Kubernetes API cannot be used, which is tried again: KeyError at fail, line "
    )
    assert [each.error for each in rig.outbox.of(ApiRead)][:1] == [first]


LATE = """
import sys, trio
from pathlib import Path
import ebbtide.actors.edges.kubernetes.api_writes
from ebbtide.actors.edges.kubernetes.api_calls import Unanswered
from ebbtide.actors.edges.kubernetes.api_client import ApiClient

async def main():
    link = ApiClient(Path(sys.argv[1]))
    async with trio.open_nursery() as nursery:
        await nursery.start(link.run)
        await link.call("POST", "/200", body={}, seconds_max=300)
        before = set(sys.modules)
        for method in ("PATCH", "DELETE", "GET"):
            for path in ("/200", "/401", "/429", "/500", "/cut", "/silent"):
                try:
                    await link.call(method, path, body={}, seconds_max=0.1 if path == "/silent" else 300)
                except Unanswered:
                    pass
        print(*(set(sys.modules) - before))
        nursery.cancel_scope.cancel()

trio.run(main)
"""


async def test_nothing_is_imported_late(tmp_path: Path) -> None:
    """After the first call no module is imported: the disk may be failing."""

    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            line = (await stream.receive_some()).split(b" ")[1].rpartition(b"/")[2]
            if line == b"silent":
                await trio.sleep_forever()
            if line != b"cut":
                fields = b"connection: close\r\nretry-after: 1\r\ncontent-length: 2"
                await stream.send_all(b"HTTP/1.1 %s x\r\n%s\r\n\r\n{}" % (line, fields))

    async with listening(tmp_path, serve) as path:
        done = await trio.run_process([sys.executable, "-c", LATE, str(path)], capture_stdout=True)
    assert done.stdout.split() == []

"""The client's own rules, against a scripted server."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import pytest
import trio
import trio.testing

from ebbtide.events import bounds

pytest.importorskip("trio_asyncio")


from ebbtide.actors.edges.cri import api_pb2 as api
from ebbtide.actors.edges.cri import cri_client
from ebbtide.actors.edges.cri import cri_runtime as runtime_module
from ebbtide.actors.edges.cri.cri_edge import CriEdge
from ebbtide.actors.interfaces import Ending
from ebbtide.events.decisions import TakeInventory
from ebbtide.events.facts import InventoryTaken, RuntimeRead
from tests.actors.edges.process.process_bed import Outbox
from tests.actors.edges.process.test_hooks import CANARY
from tests.waiting import WATCHDOG_SECONDS, until

PATIENT = bounds.Bounds().widened(WATCHDOG_SECONDS)
SECONDS = WATCHDOG_SECONDS
STOP = api.StopContainerRequest(container_id="x", timeout=30)
Answer = Callable[[bytes, grpc.ServicerContext], bytes]


class Server(grpc.GenericRpcHandler):
    """``answers`` by method. ``seen``: method, request and metadata of each call."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.endpoint = f"unix://{socket}"
        self.answers: dict[str, Answer] = {}
        self.seen: list[tuple[str, bytes, dict[str, Any]]] = []
        self._server: grpc.Server | None = None

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        name = handler_call_details.method.rpartition("/")[2]
        assert handler_call_details.method == f"/runtime.v1.RuntimeService/{name}"

        def answer(request: bytes, context: grpc.ServicerContext) -> bytes:
            self.seen.append((name, request, dict(handler_call_details.invocation_metadata)))
            return self.answers[name](request, context)

        return grpc.unary_unary_rpc_method_handler(answer)

    def start(self) -> None:
        options = (("grpc.max_send_message_length", -1),)
        self._server = grpc.server(ThreadPoolExecutor(4), [self], options=options)
        assert self._server.add_insecure_port(self.endpoint)
        self._server.start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop(None).wait()
        self._server = None


@pytest.fixture
def server() -> Iterator[Server]:
    with TemporaryDirectory(prefix="ebl-", dir="/tmp") as folder:
        made = Server(Path(folder) / "s")
        made.start()
        yield made
        made.stop()


def gives(answer: Any) -> Answer:
    return lambda request, context: answer.SerializeToString()


def aborts(code: grpc.StatusCode, text: str = "no") -> Answer:
    return lambda request, context: context.abort(code, text)


@asynccontextmanager
async def linked(server: Server) -> AsyncIterator[cri_client.CriClient]:
    """A client on an open connection."""
    link = cri_client.CriClient(server.endpoint)
    async with trio.open_nursery() as nursery:
        await nursery.start(link.run)
        yield link
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.NOT_FOUND, cri_client.NotFound),
        (grpc.StatusCode.UNAVAILABLE, cri_client.Lost),
        (grpc.StatusCode.CANCELLED, cri_client.Lost),
        (grpc.StatusCode.INTERNAL, cri_client.RuntimeRefused),
        (grpc.StatusCode.UNIMPLEMENTED, cri_client.RuntimeRefused),
    ],
)
async def test_errors_by_their_kind(server: Server, code: grpc.StatusCode, kind: type[Exception]) -> None:
    """The client separates the runtime's errors from its absence. The text names the method."""
    server.answers["StopContainer"] = aborts(code, "because")
    async with linked(server) as link:
        with pytest.raises(kind, match=r"StopContainer: ") as raised:
            await link.call(STOP, SECONDS)
    assert type(raised.value) is kind


#: containerd quotes the failed command in its error.
QUOTING = (
    'failed to start exec "7d": OCI runtime exec failed: unable to start container process: exec:'
    f' "/{CANARY}/x --token={CANARY}": stat /{CANARY}/x: no such file or directory: unknown'
)


@pytest.mark.parametrize("said", [QUOTING, f"failed to connect to {CANARY}: no such file or directory"])
async def test_no_error_quotes_what_was_asked(server: Server, said: str) -> None:
    """A container controls parts of the runtime's message, so only known texts are reported."""
    request = api.ExecSyncRequest(container_id="x", cmd=[f"/{CANARY}/x", f"--token={CANARY}"])
    seconds = 0.2 if said.startswith("failed to connect") else SECONDS
    async with linked(server) as link:
        for code in set(grpc.StatusCode) - {grpc.StatusCode.OK}:
            server.answers["ExecSync"] = aborts(code, said)
            with pytest.raises(cri_client.CallFailed, match="ExecSync: ") as raised:
                await link.call(request, seconds)
            text = str(raised.value)
            assert CANARY not in text
            told = "no such file or directory" in text or "no answer" in text
            assert told or isinstance(raised.value, cri_client.NotFound)


@pytest.mark.parametrize("said", ["failed to connect", "server is not initialized yet"])
async def test_a_hook_is_sent_once(server: Server, said: str) -> None:
    """The runtime's error may quote what the hook wrote."""
    seen = []
    for code in (grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
        server.answers["ExecSync"] = aborts(code, f"exec failed: {said}")
        async with linked(server) as link:
            with pytest.raises(cri_client.CallFailed) as raised:
                await link.call(api.ExecSyncRequest(), 0.3)
        seen.append(isinstance(raised.value, cri_client.Unsent))
    assert (len(server.seen), seen) == (3, [False, *[said == "failed to connect"] * 2])


async def test_answers_that_are_none(server: Server) -> None:
    """Malformed bytes are quoted nowhere. containerd also listens before it has read its state: its answer
    then does not count.
    """
    server.answers["Version"] = lambda request, context: b"\x0a\xff" + CANARY.encode()
    server.answers["StopContainer"] = aborts(grpc.StatusCode.UNKNOWN, "server is not initialized yet")
    async with linked(server) as link, trio.open_nursery() as nursery:
        with pytest.raises(cri_client.CallFailed) as raised:
            await link.call(api.VersionRequest(), SECONDS)
        assert CANARY not in str(raised.value)
        nursery.start_soon(link.call, STOP, SECONDS)
        await until(lambda: len(server.seen) > 3, "it is not sent again")
        nursery.cancel_scope.cancel()


async def test_a_lost_call_is_repeated_where_it_may_be(server: Server) -> None:
    answers = [aborts(grpc.StatusCode.UNAVAILABLE)] * 2 + [gives(api.VersionResponse(runtime_name="r"))]
    server.answers["Version"] = lambda request, context: answers.pop(0)(request, context)
    async with linked(server) as link:
        answer = await link.repeat(api.VersionRequest(), SECONDS)
    assert (answer.runtime_name, len(server.seen)) == ("r", 3)


async def test_a_runtime_that_comes_later_is_waited_for(server: Server) -> None:
    """No server listens yet: `ready` and calls wait."""
    server.stop()
    server.answers["Version"] = gives(api.VersionResponse(runtime_name="r"))
    async with linked(server) as link:
        with pytest.raises(cri_client.Lost):
            await link.ready(0.2)
        with pytest.raises(cri_client.Lost):
            await link.call(api.VersionRequest(), 0.2)
        assert server.seen == []
        server.start()
        await link.ready(SECONDS)
        # A break is noticed even if the server returns quickly.
        server.stop()
        await link.gone()
        server.start()
        await link.ready(SECONDS)
        assert (await link.call(api.VersionRequest(), SECONDS)).runtime_name == "r"


async def test_probe(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe reports name and version. A false condition and silence are problems."""
    monkeypatch.setattr(bounds, "now", PATIENT)
    condition = api.RuntimeCondition(type="NetworkReady", status=False, reason="NoCni", message="no plugin")
    server.answers["Version"] = gives(api.VersionResponse(runtime_name="containerd", runtime_version="1.6"))
    server.answers["Status"] = gives(api.StatusResponse(status=api.RuntimeStatus(conditions=[condition])))
    found = await cri_client.probe_runtime(server.endpoint)
    assert found == cri_client.RuntimeProbe("containerd", "1.6", "NetworkReady is false: NoCni no plugin")
    server.stop()
    assert "no answer in 200 ms" in (await cri_client.probe_runtime(server.endpoint, 0.2)).problem


async def test_cancelled_calls_end_before_the_loop(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    """gRPC reports a cancelled call's end to the event loop, so the loop stays open until then."""

    def hang(request: bytes, context: grpc.ServicerContext) -> bytes:
        ended = threading.Event()
        if context.add_callback(ended.set):
            ended.wait()
        return b""

    server.answers["Version"] = hang
    for _ in range(3):
        link = cri_client.CriClient(server.endpoint)
        async with trio.open_nursery() as nursery:
            await nursery.start(link.run)
            for _ in range(50):
                nursery.start_soon(link.call, api.VersionRequest(), SECONDS)
            await until(lambda: bool(server.seen), "no call has arrived")
            nursery.cancel_scope.cancel()
        server.seen.clear()
    assert "loop is closed" not in capfd.readouterr().err


class FailsWhenCancelled:
    """A call whose error comes with its cancellation."""

    def __init__(self) -> None:
        self.ended = asyncio.get_running_loop().create_future()

    def __await__(self) -> Any:
        return self.ended.__await__()

    def _cancel(self, why: str) -> None:
        self.ended.set_exception(ConnectionError(why))


async def test_a_call_that_fails_while_it_is_cancelled(server: Server) -> None:
    """As of a runtime that dies when a hook's time is over: the client goes on."""
    server.answers["Version"] = gives(api.VersionResponse(runtime_name="x"))
    async with linked(server) as link:

        async def fail() -> None:
            await link._answer(FailsWhenCancelled())

        assert link._loop is not None
        for _ in range(3):
            with trio.move_on_after(0.01):
                await link._loop.run_aio_coroutine(fail())
            await trio.testing.wait_all_tasks_blocked()
            gc.collect()
        assert (await link.call(api.VersionRequest(), SECONDS)).runtime_name == "x"


# A server that accepts calls but does not answer lists.


class Wedged:
    """Once ``hangs`` is set, lists get no answer; version calls still do."""

    def __init__(self, server: Server) -> None:
        self.hangs, self.free = threading.Event(), threading.Event()
        server.answers["Version"] = gives(api.VersionResponse(runtime_name="x"))
        server.answers["ListPodSandbox"] = gives(api.ListPodSandboxResponse())
        server.answers["ListContainers"] = self.silent

    def silent(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """Any answer without a field."""
        while self.hangs.is_set() and context.is_active():
            self.free.wait(0.01)
        return b""


@asynccontextmanager
async def watched(server: Server, folder: Path) -> AsyncIterator[tuple[Wedged, Outbox, CriEdge]]:
    """An edge on a server that may hang."""
    wedged, outbox, edge = Wedged(server), Outbox(), CriEdge(server.endpoint, folder)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(edge.run, outbox)
        edge.prewarm()
        await outbox.wait_for(RuntimeRead, reachable=True)
        yield wedged, outbox, edge
        wedged.hangs.clear()
        nursery.cancel_scope.cancel()


async def test_lists_that_do_not_come(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two missing lists mark the runtime as away, although it answers version calls."""
    hurried = {"runtime_look_seconds": 0.2, "runtime_hangs_seconds": 0.3, "runtime_doubt_seconds": 0.05}
    for name in ("IDLE_SECONDS", "BUSY_SECONDS"):
        monkeypatch.setattr(runtime_module, name, 0.01)
    monkeypatch.setattr(bounds, "now", PATIENT)
    async with watched(server, tmp_path) as (wedged, outbox, _):
        monkeypatch.setattr(bounds, "now", PATIENT._replace(**hurried))
        # With the production bounds this look would wait as long as the test.
        looks = len(server.seen)
        await until(lambda: len(server.seen) > looks + 4, "no further look has begun")
        wedged.hangs.set()
        (lost,) = await outbox.wait_for(RuntimeRead, reachable=False)
        assert "Version" in [name for name, _, _ in server.seen]
        monkeypatch.setattr(bounds, "now", PATIENT)
        wedged.hangs.clear()
        await outbox.wait_for(RuntimeRead, 2, reachable=True)
    assert lost.error.endswith(": no answer in 200 ms")


async def test_it_hangs_at_the_signal(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The inventory does not wait for it, and no look has to fail: the runtime is asked at once."""
    monkeypatch.setattr(bounds, "now", PATIENT)
    async with watched(server, tmp_path) as (wedged, outbox, edge):
        wedged.hangs.set()
        server.answers["Version"] = wedged.silent
        monkeypatch.setattr(bounds, "now", PATIENT._replace(runtime_signal_seconds=0.2))
        taking = edge.effects[TakeInventory](TakeInventory(key="signal"), outbox)
        assert not isinstance(taking, Ending)
        assert await taking == Ending()
        assert [fact.source for fact in outbox.of(InventoryTaken)] == ["cri"]
        (lost,) = await outbox.wait_for(RuntimeRead, reachable=False)
    assert lost.error == "Version: no answer in 200 ms"

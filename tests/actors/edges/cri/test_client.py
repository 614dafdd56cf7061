"""The connection's own rules, against a server that answers as it is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import pytest
import trio

from ebbtide.events.units import bound_text

pytest.importorskip("trio_asyncio")

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ebbtide.actors.edges.cri import api_pb2 as api
from ebbtide.actors.edges.cri import client as client_module
from ebbtide.actors.edges.cri import runtime as runtime_module
from ebbtide.actors.edges.cri.client import (
    AWAY_SECONDS,
    HANGS_SECONDS,
    MESSAGE_BYTES_MAX,
    READY_POLL_SECONDS,
    CallFailed,
    CriClient,
    Lost,
    NotFound,
    RuntimeProbe,
    RuntimeReach,
    RuntimeRefused,
    Unsent,
    probe_runtime,
)
from ebbtide.actors.edges.cri.edge import CriEdge
from ebbtide.actors.edges.cri.pods import OperatorNotes
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.facts import RuntimeRead
from tests.actors.edges.process.process_bed import Outbox
from tests.actors.edges.process.test_hooks import CANARY

SECONDS = 10.0
STOP = api.StopContainerRequest(container_id="x", timeout=30)
Answer = Callable[[bytes, grpc.ServicerContext], bytes]


class Server(grpc.GenericRpcHandler):
    """``answers``: by method. ``seen``: each call's method, request and metadata."""

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


async def linked(server: Server, work: Callable[[CriClient], Any]) -> Any:
    """Run ``work`` on an open connection."""
    link, result = CriClient(server.endpoint), None
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        await nursery.start(link.run)
        try:
            result = await work(link)
        except Exception as error:
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return result


async def test_a_call_carries_its_trace(server: Server) -> None:
    """The request arrives as it was made, with the order's trace context beside it."""
    server.answers["StopContainer"] = gives(api.StopContainerResponse())
    trace = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    await linked(
        server,
        lambda link: link.call("StopContainer", STOP, api.StopContainerResponse, SECONDS, traceparent=trace),
    )
    ((name, request, metadata),) = server.seen
    assert (name, api.StopContainerRequest.FromString(request)) == ("StopContainer", STOP)
    assert metadata["traceparent"] == trace


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.NOT_FOUND, NotFound),
        (grpc.StatusCode.UNAVAILABLE, Lost),
        (grpc.StatusCode.CANCELLED, Lost),
        (grpc.StatusCode.INTERNAL, RuntimeRefused),
        (grpc.StatusCode.UNIMPLEMENTED, RuntimeRefused),
    ],
)
async def test_errors_by_their_kind(server: Server, code: grpc.StatusCode, kind: type[Exception]) -> None:
    """What the runtime says is told apart from its not being there; the text names the method."""
    server.answers["StopContainer"] = aborts(code, "because")
    with pytest.raises(kind, match=r"StopContainer: ") as raised:
        await linked(
            server, lambda link: link.call("StopContainer", STOP, api.StopContainerResponse, SECONDS)
        )
    assert type(raised.value) is kind


#: As containerd says it: what it was asked to run stands in its answer.
QUOTING = (
    'failed to start exec "7d": OCI runtime exec failed: unable to start container process: exec:'
    f' "/{CANARY}/x --token={CANARY}": stat /{CANARY}/x: no such file or directory: unknown'
)


@pytest.mark.parametrize("code", [each for each in grpc.StatusCode if each is not grpc.StatusCode.OK])
@pytest.mark.parametrize("said", [QUOTING, f"failed to connect to {CANARY}: no such file or directory"])
async def test_no_error_quotes_what_was_asked(server: Server, code: grpc.StatusCode, said: str) -> None:
    """Of a runtime's words for a failure those are told that we know; the others may be a container's."""
    server.answers["ExecSync"] = aborts(code, said)
    request = api.ExecSyncRequest(container_id="x", cmd=[f"/{CANARY}/x", f"--token={CANARY}"], timeout=1)
    with pytest.raises(CallFailed, match="ExecSync: ") as raised:
        await linked(server, lambda link: link.call("ExecSync", request, api.ExecSyncResponse, SECONDS))
    text = str(raised.value)
    assert CANARY not in text
    assert "no such file or directory" in text or isinstance(raised.value, NotFound) or "no answer" in text


async def test_an_answer_that_cannot_be_read(server: Server) -> None:
    """Bytes that are no message of this kind: their text is nobody's business either."""
    server.answers["Version"] = lambda request, context: b"\x0a\xff" + CANARY.encode()
    with pytest.raises(CallFailed) as raised:
        await linked(
            server, lambda link: link.call("Version", api.VersionRequest(), api.VersionResponse, SECONDS)
        )
    assert CANARY not in str(raised.value)


async def test_a_runtime_that_has_only_begun(server: Server) -> None:
    """containerd listens before it has read its state: what it says then is no answer."""
    server.answers["StopContainer"] = aborts(grpc.StatusCode.UNKNOWN, "server is not initialized yet")
    with pytest.raises(Unsent):
        await linked(
            server, lambda link: link.call("StopContainer", STOP, api.StopContainerResponse, SECONDS)
        )


async def test_a_deadline_is_kept(server: Server) -> None:
    """A runtime that does not answer costs no more than the call's time."""
    gate = trio.lowlevel.current_trio_token()

    def never(request: bytes, context: grpc.ServicerContext) -> bytes:
        trio.from_thread.run(trio.sleep, 0.5, trio_token=gate)
        return b""

    server.answers["StopContainer"] = never
    with pytest.raises(Lost, match=r"no answer in 100 ms"):
        await linked(server, lambda link: link.call("StopContainer", STOP, api.StopContainerResponse, 0.1))
    await trio.sleep(0.6)


async def test_a_lost_call_is_repeated_where_it_may_be(server: Server) -> None:
    """`repeat` asks again until the runtime answers; `call` asks once."""
    refusals = [aborts(grpc.StatusCode.UNAVAILABLE)] * 2

    def third_time(request: bytes, context: grpc.ServicerContext) -> bytes:
        return (refusals.pop() if refusals else gives(api.VersionResponse(runtime_name="r")))(
            request, context
        )

    server.answers["Version"] = third_time
    answer = await linked(
        server, lambda link: link.repeat("Version", api.VersionRequest(), api.VersionResponse, SECONDS)
    )
    assert (answer.runtime_name, len(server.seen)) == ("r", 3)


async def test_a_runtime_that_comes_later_is_waited_for(server: Server) -> None:
    """Nobody listens yet: `ready` waits, a call that must not wait is lost at once, one that may arrives."""
    server.stop()
    server.answers["Version"] = gives(api.VersionResponse(runtime_name="r"))

    async def work(link: CriClient) -> str:
        with pytest.raises(Lost):
            await link.ready(0.2)
        with pytest.raises(Unsent):
            await link.call("Version", api.VersionRequest(), api.VersionResponse, SECONDS, wait=False)
        assert server.seen == []
        server.start()
        await link.ready(SECONDS)
        return (await link.call("Version", api.VersionRequest(), api.VersionResponse, SECONDS)).runtime_name

    assert await linked(server, work) == "r"


async def test_a_dense_node_fits(server: Server) -> None:
    """An answer of nearly 16 MiB arrives; gRPC's own limit is four."""
    size = MESSAGE_BYTES_MAX - 1024
    server.answers["ListContainers"] = gives(
        api.ListContainersResponse(containers=[api.Container(id="x" * size)])
    )
    answer = await linked(
        server,
        lambda link: link.call(
            "ListContainers", api.ListContainersRequest(), api.ListContainersResponse, SECONDS
        ),
    )
    assert len(answer.containers[0].id) == size


async def test_a_closed_connection_loses_calls() -> None:
    """Who calls before or after the connection's life hears so."""
    with pytest.raises(Lost, match="closed"):
        await CriClient("unix:///nowhere").call("Version", api.VersionRequest(), api.VersionResponse, 1)


async def test_probe(server: Server) -> None:
    """A runtime is known by name and version; a false condition is a problem, and so is silence."""
    condition = api.RuntimeCondition(type="NetworkReady", status=False, reason="NoCni", message="no plugin")
    server.answers["Version"] = gives(api.VersionResponse(runtime_name="containerd", runtime_version="1.6"))
    server.answers["Status"] = gives(api.StatusResponse(status=api.RuntimeStatus(conditions=[condition])))
    found = await probe_runtime(server.endpoint)
    assert found == RuntimeProbe("containerd", "1.6", "NetworkReady is false: NoCni no plugin")
    server.stop()
    assert "no answer in 200 ms" in (await probe_runtime(server.endpoint, 0.2)).problem


# When the runtime is said to answer, and when no longer.


ERROR = "the runtime is away for 1 s"


class Line:
    """A connection that is cut and mended by the test."""

    def __init__(self) -> None:
        self.up = True

    async def ready(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            while not self.up:
                await trio.sleep(0.01)
            return
        raise Lost(f"the runtime is away for {bound_text(seconds)}")

    async def gone(self, busy: Callable[[], bool]) -> float:
        while self.up:
            await trio.sleep(0.01)
        return trio.current_time()


class Rig:
    def __init__(self) -> None:
        self.line, self.outbox, self.said = Line(), Outbox(), list[str]()
        self.reach = RuntimeReach(self.line, OperatorNotes(lambda level, line: self.said.append(line)))
        self.back, self.asked = trio.open_memory_channel[None](1)

    def facts(self) -> list[tuple[bool, str]]:
        return [(fact.reachable, fact.error) for fact in self.outbox.of(RuntimeRead)]


@asynccontextmanager
async def following() -> AsyncIterator[Rig]:
    rig = Rig()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.reach.follow, rig.outbox, rig.back, lambda: True)
        await rig.asked.receive()
        yield rig
        nursery.cancel_scope.cancel()


async def test_it_answers_once_it_has_told_something(autojump_clock: trio.testing.MockClock) -> None:
    """A connection alone is no answer; and the same is not said twice."""
    async with following() as rig:
        assert rig.facts() == []
        assert not rig.reach.known.is_set()
        for _ in range(2):
            await rig.reach.answers(rig.outbox)
        assert rig.facts() == [(True, "")]
        assert rig.reach.known.is_set()


async def test_a_connection_that_breaks(autojump_clock: trio.testing.MockClock) -> None:
    """After a second it is said, with the reason; when it is mended, the runtime is asked at once."""
    async with following() as rig:
        await rig.reach.answers(rig.outbox)
        rig.line.up = False
        await trio.sleep(AWAY_SECONDS + 0.1)
        assert rig.facts() == [(True, ""), (False, ERROR)]
        assert rig.reach.away
        rig.line.up = True
        await rig.asked.receive()
        await rig.reach.answers(rig.outbox)
        assert rig.facts()[2:] == [(True, "")]
    assert [line.partition(";")[0] for line in rig.said] == [
        f"container runtime: {ERROR}",
        "container runtime: it answers again",
    ]


async def test_a_short_break_is_told_afterwards(autojump_clock: trio.testing.MockClock) -> None:
    """A runtime that is restarted within a second: how long it was away, which no operator has to know."""
    async with following() as rig:
        await rig.reach.answers(rig.outbox)
        rig.line.up = False
        await trio.sleep(AWAY_SECONDS / 2)
        rig.line.up = True
        await rig.asked.receive()
        await trio.sleep(2 * AWAY_SECONDS)
        known, again = rig.outbox.of(RuntimeRead)
        assert (known.reachable, known.away_ns, again.reachable, again.error) == (True, 0, True, "")
        assert again.away_ns == pytest.approx(AWAY_SECONDS / 2 * NS_PER_SECOND, rel=0.1)
        assert rig.said == []


async def test_a_break_of_a_real_connection(server: Server) -> None:
    """While pods are stopped it is seen at once, also where the server is soon there again."""

    async def work(link: CriClient) -> None:
        await link.ready(SECONDS)
        server.stop()
        stopped = trio.current_time()
        with trio.fail_after(SECONDS):
            assert await link.gone(lambda: True) <= stopped + READY_POLL_SECONDS
        server.start()
        await link.ready(SECONDS)

    await linked(server, work)


async def test_a_runtime_that_hangs(autojump_clock: trio.testing.MockClock) -> None:
    """Looks that fail again and again say it, also while the connection stands; one does not."""
    async with following() as rig:
        await rig.reach.fails(RuntimeRefused("no"), trio.current_time(), rig.outbox)
        assert rig.facts() == []
        await trio.sleep(HANGS_SECONDS + 0.1)
        await rig.reach.fails(RuntimeRefused("no"), trio.current_time(), rig.outbox)
        assert rig.facts() == [(False, "no")]
        await rig.reach.answers(rig.outbox)
        await rig.reach.fails(RuntimeRefused("once"), trio.current_time(), rig.outbox)
        assert rig.facts() == [(False, "no"), (True, "")]


# One that answers, but not what it is asked.


class Wedged:
    """A server whose lists, once ``hangs`` is set, have no answer; what its version is it says at once."""

    def __init__(self, server: Server) -> None:
        self.hangs = threading.Event()
        server.answers["Version"] = gives(api.VersionResponse(runtime_name="x"))
        server.answers["ListPodSandbox"] = gives(api.ListPodSandboxResponse())
        server.answers["ListContainers"] = self._containers

    def _containers(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        while self.hangs.is_set() and context.is_active():
            time.sleep(0.01)
        return api.ListContainersResponse().SerializeToString()


@pytest.mark.parametrize("from_the_start", [True, False])
async def test_lists_that_do_not_come(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, from_the_start: bool
) -> None:
    """The runtime is on record as away after two of them, though it says its version all the time."""
    wedged = Wedged(server)
    for name, seconds in {"LOOK_SECONDS_MAX": 0.4, "IDLE_SECONDS": 0.1, "BUSY_SECONDS": 0.1}.items():
        monkeypatch.setattr(runtime_module, name, seconds)
    monkeypatch.setattr(client_module, "HANGS_SECONDS", 0.6)
    monkeypatch.setattr(runtime_module, "DOUBT_SECONDS", 0.1)
    outbox = Outbox()
    edge = CriEdge(server.endpoint, tmp_path)
    if from_the_start:
        wedged.hangs.set()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(edge.run, outbox)
        edge.prewarm()
        with trio.fail_after(10):
            if not from_the_start:
                assert [read.reachable for read in await outbox.wait_for(RuntimeRead)] == [True]
                wedged.hangs.set()
            while outbox.of(RuntimeRead)[-1:] == [] or outbox.of(RuntimeRead)[-1].reachable:
                await trio.sleep(0.02)
            assert "Version" in [name for name, _, _ in server.seen]
            wedged.hangs.clear()
            while not outbox.of(RuntimeRead)[-1].reachable:
                await trio.sleep(0.02)
        nursery.cancel_scope.cancel()
    lost = next(read for read in outbox.of(RuntimeRead) if not read.reachable)
    assert lost.error == "ListContainers: no answer in 400 ms"

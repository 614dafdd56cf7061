"""The client of the container runtime: calls with deadlines, which outlive a restart of the runtime.

gRPC runs on asyncio, in a loop by trio-asyncio; only this module knows either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import grpc
import grpc.aio
import msgspec
import trio
import trio_asyncio
from google.protobuf.message import Message

from ebbtide.actors.edges.cri import api_pb2 as api
from ebbtide.actors.edges.linux.processes import ExitStatus
from ebbtide.actors.interfaces import NOTICE, WARNING, Outlet, Tell, known_text
from ebbtide.events import bounds
from ebbtide.events.facts import RuntimeRead
from ebbtide.events.units import bound_text

ResultT = TypeVar("ResultT")


class CallFailed(Exception):
    """The text is one line for the record."""


class Lost(CallFailed):
    """No answer: the runtime is away, went away during the call, or took too long."""


class Unsent(Lost):
    """The runtime did not begin the call, so it may be sent again."""


class RuntimeRefused(CallFailed):
    """The runtime answered with an error."""


class NotFound(RuntimeRefused):
    """The runtime does not know this container or sandbox."""


class TooLarge(RuntimeRefused):
    """The runtime carried the call out; its answer is too large."""


SERVICE_NAME = "runtime.v1.RuntimeService"
#: The other service on this socket has the methods with this prefix.
IMAGE_SERVICE_NAME, IMAGE_PREFIX = "runtime.v1.ImageService", "Image"
#: The list of a dense node is larger than gRPC's own limit of 4 MiB.
MESSAGE_BYTES_MAX = 16 * 1024 * 1024
#: A hook's answer has its output, up to 16 MiB; only the exit code matters.
EXEC_BYTES_MAX = 64 * 1024
EXEC_LIMIT = {
    "name": [{"service": SERVICE_NAME, "method": "ExecSync"}],
    "maxResponseMessageBytes": EXEC_BYTES_MAX,
}
#: Before the next try to connect. gRPC's own pause begins at a second.
RECONNECT_MS_MIN = 50
RECONNECT_MS_MAX = 250
#: gRPC's own wait for a connection cannot be cancelled, and outlives the loop: look instead.
READY_POLL_SECONDS = 0.05
#: Between two looks at an idle connection.
GONE_POLL_SECONDS = 0.5
#: gRPC's own thread ends a cancelled call.
CANCELLED_SECONDS_MAX = 10.0

#: gRPC's codes without a connection, or if the runtime went away during the call.
AWAY_CODES = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
TOO_LARGE_TEXT = "Received message larger than max"
#: gRPC could not connect. With any other code the text is the runtime's.
UNSENT_TEXT, UNSENT_CODES = (
    "failed to connect",
    (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED),
)
#: containerd listens but has not read its state yet.
NOT_INITIALIZED = "server is not initialized yet"
#: A runtime's or gRPC's texts, none from a container.
RUNTIME_TEXTS = (
    UNSENT_TEXT,
    NOT_INITIALIZED,
    "Connection refused",
    "Connection reset",
    "Socket closed",
    "No such file or directory",
    "Permission denied",
    "executable file not found",
    "no such file or directory",
    "permission denied",
    "exec format error",
    "in CONTAINER_EXITED state",
    "process already finished",
    "no space left on device",
    "too many open files",
    "cannot allocate memory",
    "deadline exceeded",
    "timed out",
)

CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.initial_reconnect_backoff_ms", RECONNECT_MS_MIN),
    ("grpc.min_reconnect_backoff_ms", RECONNECT_MS_MIN),
    ("grpc.max_reconnect_backoff_ms", RECONNECT_MS_MAX),
    ("grpc.service_config", msgspec.json.encode({"methodConfig": [EXEC_LIMIT]}).decode()),
    # A proxy of the environment is not for a socket of this machine.
    ("grpc.enable_http_proxy", 0),
)

ON_RECORD_AS_AWAY = "the runtime is on record as away"

METHODS = (
    "Version",
    "Status",
    "ListPodSandbox",
    "PodSandboxStatus",
    "ListContainers",
    "ContainerStatus",
    "StopContainer",
    "ExecSync",
    "ImageStatus",
)


def method_of(request: Message) -> str:
    return type(request).__name__.removesuffix("Request")


def answer_type(method: str) -> type[Message]:
    found: type[Message] = getattr(api, f"{method}Response")
    return found


class CriClient:
    """``endpoint`` is a gRPC target, such as ``unix:///run/containerd/containerd.sock``."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._loop: trio_asyncio.BaseTrioEventLoop | None = None
        self._channel: grpc.aio.Channel | None = None
        self._calls: dict[str, Callable[..., Awaitable[Message]]] = {}
        #: Calls that gRPC has not ended yet.
        self._open: set[asyncio.Future[Message]] = set()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio_asyncio.open_loop() as loop:
            self._channel = channel = await loop.run_aio_coroutine(self._connect())
            self._loop = loop
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._loop = None
                with trio.CancelScope(shield=True):
                    await loop.run_aio_coroutine(self._drain())
                    await loop.run_aio_coroutine(channel.close())

    async def _connect(self) -> grpc.aio.Channel:
        # A coroutine: a channel belongs to the running loop.
        channel = grpc.aio.insecure_channel(self._endpoint, options=CHANNEL_OPTIONS)
        for name in METHODS:
            service = IMAGE_SERVICE_NAME if name.startswith(IMAGE_PREFIX) else SERVICE_NAME
            self._calls[name] = channel.unary_unary(
                f"/{service}/{name}",
                request_serializer=lambda request: request.SerializeToString(),
                response_deserializer=answer_type(name).FromString,
            )
        return channel

    async def _drain(self) -> None:
        """gRPC's thread reports each call's end to this loop: once it is closed, that prints an error."""
        if self._open:
            await asyncio.wait(self._open, timeout=CANCELLED_SECONDS_MAX)

    async def ready(self, seconds: float) -> None:
        """Raises Lost."""
        with trio.move_on_after(seconds):
            while not self._connected(connect=True):
                await trio.sleep(READY_POLL_SECONDS)
            return
        raise Lost(f"the runtime is away for {bound_text(seconds)}")

    async def gone(self) -> None:
        """Raises Lost when our side closes."""
        while self._connected():
            await trio.sleep(GONE_POLL_SECONDS)

    def _connected(self, *, connect: bool = False) -> bool:
        if self._channel is None or self._loop is None:
            raise Lost("the connection is closed")
        state = self._channel.get_state(try_to_connect=connect)
        return bool(state == grpc.ChannelConnectivity.READY)

    async def call(self, request: Message, seconds: float, *, traceparent: str = "") -> Any:
        """Sends it again if the runtime did not begin it; never ExecSync: a hook must not run twice. Raises
        Lost, NotFound, RuntimeRefused.
        """
        return await self._call(request, seconds, traceparent, Unsent)

    async def repeat(self, request: Message, seconds: float, *, traceparent: str = "") -> Any:
        """`call` that sends a lost request again."""
        return await self._call(request, seconds, traceparent, Lost)

    async def _call(self, request: Message, seconds: float, traceparent: str, again: type[Lost]) -> Any:
        deadline = trio.current_time() + seconds
        while True:
            if self._loop is None:
                raise Lost("the connection is closed")
            left = max(0.0, deadline - trio.current_time())
            try:
                return await self._loop.run_aio_coroutine(self._send(request, left, traceparent))
            except Lost as error:
                late = trio.current_time() + READY_POLL_SECONDS >= deadline
                if late or not isinstance(error, again) or isinstance(request, api.ExecSyncRequest):
                    raise
            await trio.sleep(READY_POLL_SECONDS)

    async def _send(self, request: Message, seconds: float, traceparent: str) -> Any:
        """On asyncio."""
        name = method_of(request)
        metadata = (("traceparent", traceparent),) if traceparent else ()
        try:
            found = await self._answer(
                self._calls[name](request, timeout=seconds, wait_for_ready=True, metadata=metadata)
            )
            # gRPC's result for bytes that are no such message.
            if found is None:
                raise RuntimeRefused(f"{name}: the answer cannot be read")
            return found
        except grpc.aio.AioRpcError as error:
            code, details = error.code(), error.details() or ""
        words = known_text(details, RUNTIME_TEXTS)
        why = f": {words}" if words else ""
        if code == grpc.StatusCode.NOT_FOUND:
            raise NotFound(f"{name}: not found")
        # "Unavailable" may mean never sent, or lost: the text decides first.
        if details == NOT_INITIALIZED or (code in UNSENT_CODES and UNSENT_TEXT in details):
            raise Unsent(f"{name}: the runtime is away{why}")
        if code in AWAY_CODES:
            raise Lost(f"{name}: the runtime is away{why}")
        if code == grpc.StatusCode.DEADLINE_EXCEEDED:
            raise Lost(f"{name}: no answer in {bound_text(seconds)}")
        if code == grpc.StatusCode.RESOURCE_EXHAUSTED and TOO_LARGE_TEXT in details:
            raise TooLarge(f"{name}: the answer is too large")
        raise RuntimeRefused(f"{name}: {code.name}{why}")

    async def _answer(self, call: Any) -> Message | None:
        """A cancel cancels only the call in gRPC; the task ends with gRPC's report (`_drain`)."""
        task = asyncio.ensure_future(call)
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():
                call._cancel("cancelled by its caller")
            raise


#: containerd's and CRI-O's code for an end that they have not seen. Before Linux 6.15 a program that exits
#: with this code counts as lost.
LOST_EXIT_CODE = 255


async def exit_of_container(client: CriClient, container_id: str) -> ExitStatus | None:
    """None: it has not ended. Raises CallFailed."""
    request = api.ContainerStatusRequest(container_id=container_id)
    try:
        found = await client.call(request, bounds.now.runtime_look_seconds)
    except NotFound:
        return ExitStatus()
    if found.status.state != api.CONTAINER_EXITED:
        return None
    code = found.status.exit_code
    return ExitStatus(exit_code=code, lost=code == LOST_EXIT_CODE)


class RuntimeReach:
    """Does the runtime answer? ``known`` is set at the first result. Changes become facts, but no restart
    within a second. Missing lists show a hung runtime.
    """

    def __init__(self, client: CriClient, outlet: Outlet, tell: Tell) -> None:
        self.answering: bool | None = None
        self.known = trio.Event()
        self._client = client
        self._outlet = outlet
        self._tell = tell
        self._failing_since: float | None = None
        self._turn = trio.Lock()
        self._gone = trio.Event()

    @property
    def away(self) -> bool:
        return self.answering is False

    async def while_it_answers(self, work: Callable[[], Awaitable[ResultT]]) -> ResultT | None:
        """None: the runtime went away before the end of ``work``, which is cancelled."""
        result: ResultT | None = None
        if self.away:
            return result

        async def give_up() -> None:
            await self._gone.wait()
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(give_up)
            result = await work()
            nursery.cancel_scope.cancel()
        return result

    async def follow(self, back: trio.MemorySendChannel[None]) -> None:
        """Sends to ``back`` when the runtime can be asked again."""
        while True:
            try:
                await self._client.ready(bounds.now.runtime_away_seconds)
            except Lost as error:
                await self._record(False, error)
                await self._client.ready(float("inf"))
            with suppress(trio.WouldBlock):  # A question is due in any case.
                back.send_nowait(None)
            await self._client.gone()

    async def doubt(self) -> None:
        """During a long look: without an answer to a small call the runtime is away."""
        await trio.sleep(bounds.now.runtime_doubt_seconds)
        await self.ask(bounds.now.runtime_echo_seconds)

    async def ask(self, seconds: float) -> None:
        """Asks twice: the daemon may have been stopped during the first question."""
        try:
            with suppress(Lost):
                return await ask_version(self._client, seconds)
            await ask_version(self._client, seconds)
        except Lost as error:
            await self._record(False, error)

    async def answers(self) -> None:
        self._failing_since = None
        await self._record(True)

    async def fails(self, error: Exception, since: float) -> None:
        # Each look has its own long time: count from the first failure.
        if self._failing_since is None:
            self._failing_since = since
        if trio.current_time() - self._failing_since > bounds.now.runtime_hangs_seconds:
            await self._record(False, error)

    async def _record(self, answering: bool, error: Exception | None = None) -> None:
        async with self._turn:
            if self.answering is not answering:
                if error is not None:
                    self._gone.set()
                    self._tell(WARNING, f"container runtime: {error}; pods that appear are not seen")
                elif self.away:
                    self._gone = trio.Event()
                    self._tell(NOTICE, "container runtime: it answers again")
                self.answering = answering
                error_text = "" if error is None else str(error)
                await self._outlet.put(RuntimeRead(reachable=answering, error=error_text))
            self.known.set()


async def ask_version(client: CriClient, seconds: float) -> None:
    """An error is an answer. Raises Lost."""
    # gRPC's own bound depends on its threads.
    with trio.move_on_after(seconds + READY_POLL_SECONDS):
        try:
            await client.call(api.VersionRequest(version="v1"), seconds)
        except RuntimeRefused:
            pass
        return
    raise Lost(f"Version: no answer in {bound_text(seconds)}")


class RuntimeProbe(NamedTuple):
    """``problem`` is empty when this runtime can end pods."""

    name: str = ""
    version: str = ""
    problem: str = ""


async def probe_runtime(endpoint: str, seconds: float | None = None) -> RuntimeProbe:
    """Read only; does not raise."""
    client, found = CriClient(endpoint), RuntimeProbe()
    seconds = bounds.now.runtime_probe_seconds if seconds is None else seconds
    async with trio.open_nursery() as nursery:
        await nursery.start(client.run)
        try:
            version = await client.call(api.VersionRequest(version="v1"), seconds)
            answer = await client.call(api.StatusRequest(), seconds)
            bad = [each for each in answer.status.conditions if not each.status]
            problem = "; ".join(f"{each.type} is false: {each.reason} {each.message}".strip() for each in bad)
            found = RuntimeProbe(version.runtime_name, version.runtime_version, problem)
        except CallFailed as error:
            found = RuntimeProbe(problem=str(error))
        nursery.cancel_scope.cancel()
    return found

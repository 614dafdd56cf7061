"""The connection to the container runtime: calls with deadlines, which outlive a runtime that restarts.

gRPC here is asyncio's; trio-asyncio lends it a loop, and Trio's tasks wait for its calls. This module is
the only one that knows either, and it is imported once the node is armed (`actors.edges.cri.edge`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar, cast

import grpc
import grpc.aio
import trio
import trio_asyncio
from google.protobuf.message import Message

from actors.edges.cri import api_pb2 as api
from actors.edges.cri.errors import Lost, NotFound, RuntimeRefused, Unsent

SERVICE = "/runtime.v1.RuntimeService/"
#: A dense node's list is larger than gRPC's own limit of 4 MiB.
MESSAGE_BYTES_MAX = 16 * 1024 * 1024
#: How soon a runtime that was away is asked again; gRPC's own pause begins at a second.
RECONNECT_MS_MIN = 50
RECONNECT_MS_MAX = 250
AGAIN_SECONDS = 0.05
#: How soon it is noticed that an idle connection has broken.
GONE_SECONDS = 0.5
DRAIN_SECONDS = 0.05

#: gRPC's words for "nobody there": also what a call gets whose runtime goes in the middle of it.
AWAY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)

#: gRPC could not connect; or containerd listens already, but has not read its state yet.
UNSENT = ("failed to connect", "server is not initialized yet")

OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.initial_reconnect_backoff_ms", RECONNECT_MS_MIN),
    ("grpc.min_reconnect_backoff_ms", RECONNECT_MS_MIN),
    ("grpc.max_reconnect_backoff_ms", RECONNECT_MS_MAX),
    # A proxy in the environment is not meant for a socket of this machine.
    ("grpc.enable_http_proxy", 0),
)

#: Method to the type of its answer.
METHODS: dict[str, type[Message]] = {
    "Version": api.VersionResponse,
    "Status": api.StatusResponse,
    "ListPodSandbox": api.ListPodSandboxResponse,
    "PodSandboxStatus": api.PodSandboxStatusResponse,
    "StopPodSandbox": api.StopPodSandboxResponse,
    "ListContainers": api.ListContainersResponse,
    "ContainerStatus": api.ContainerStatusResponse,
    "StopContainer": api.StopContainerResponse,
    "ExecSync": api.ExecSyncResponse,
}

AnswerT = TypeVar("AnswerT", bound=Message)
Call = Callable[..., Awaitable[Message]]


class Link:
    """One channel. ``endpoint`` is a gRPC target, such as ``unix:///run/containerd/containerd.sock``."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._loop: trio_asyncio.BaseTrioEventLoop | None = None
        self._channel: grpc.aio.Channel | None = None
        self._calls: dict[str, Call] = {}

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Hold the channel open until cancelled. Nothing is sent before the first call."""
        async with trio_asyncio.open_loop() as loop:
            self._channel = channel = await loop.run_aio_coroutine(self._open())
            self._loop = loop
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._loop = None
                with trio.CancelScope(shield=True):
                    await loop.run_aio_coroutine(channel.close())
                    # gRPC's own thread still has ends of cancelled calls to tell, to a loop that is there.
                    await trio.sleep(DRAIN_SECONDS)

    async def _open(self) -> grpc.aio.Channel:
        channel = grpc.aio.insecure_channel(self._endpoint, options=OPTIONS)
        self._calls = {name: self._method(channel, name, answer) for name, answer in METHODS.items()}
        return channel

    @staticmethod
    def _method(channel: grpc.aio.Channel, name: str, answer: type[Message]) -> Call:
        made = channel.unary_unary(
            SERVICE + name,
            request_serializer=lambda request: request.SerializeToString(),
            response_deserializer=answer.FromString,
        )
        return cast(Call, made)

    async def ready(self, seconds: float) -> None:
        """Return once the runtime is connected. Raises Lost."""
        with trio.move_on_after(seconds):
            while not self._connected(connect=True):
                await trio.sleep(AGAIN_SECONDS)
            return
        raise Lost(f"the runtime is away for {seconds:.1f} s")

    async def gone(self) -> None:
        """Return once the runtime is no longer connected. Raises Lost when the connection is closed."""
        while self._connected():
            await trio.sleep(GONE_SECONDS)

    def _connected(self, *, connect: bool = False) -> bool:
        """gRPC could also be waited for, but that wait cannot be cancelled, and outlives the loop."""
        if self._channel is None or self._loop is None:
            raise Lost("the connection is closed")
        state = self._channel.get_state(try_to_connect=connect)
        return bool(state == grpc.ChannelConnectivity.READY)

    async def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        if self._loop is None:
            work.close()
            raise Lost("the connection is closed")
        return await self._loop.run_aio_coroutine(work)

    async def call(
        self,
        name: str,
        request: Message,
        answer: type[AnswerT],
        seconds: float,
        *,
        wait: bool = True,
        traceparent: str = "",
    ) -> AnswerT:
        """One call, sent at most once. Cancelling cancels it. Raises Lost, NotFound, RuntimeRefused."""
        work = self._send(name, request, seconds, wait, traceparent)
        return cast(AnswerT, await self._run(work))

    async def _send(self, name: str, request: Message, seconds: float, wait: bool, traceparent: str) -> Any:
        metadata = (("traceparent", traceparent),) if traceparent else ()
        try:
            return await self._calls[name](request, timeout=seconds, wait_for_ready=wait, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            raise _known(name, error, seconds) from None

    async def repeat(
        self, name: str, request: Message, answer: type[AnswerT], seconds: float, *, traceparent: str = ""
    ) -> AnswerT:
        """The same for what may be said twice: a call that was lost is sent again while there is time."""
        deadline = trio.current_time() + seconds
        while True:
            left = max(0.0, deadline - trio.current_time())
            try:
                return await self.call(name, request, answer, left, traceparent=traceparent)
            except Lost:
                if trio.current_time() + AGAIN_SECONDS >= deadline:
                    raise
                await trio.sleep(AGAIN_SECONDS)


def _known(name: str, error: grpc.aio.AioRpcError, seconds: float) -> Exception:
    code, details = error.code(), error.details() or ""
    if code == grpc.StatusCode.NOT_FOUND:
        return NotFound(f"{name}: {details}")
    if any(word in details for word in UNSENT):
        return Unsent(f"{name}: the runtime is away: {details}")
    if code in AWAY:
        return Lost(f"{name}: the runtime is away: {details}")
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return Lost(f"{name}: no answer in {seconds:.1f} s")
    return RuntimeRefused(f"{name}: {code.name}: {details}")

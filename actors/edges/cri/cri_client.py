"""The client of the container runtime: calls with deadlines, which outlive a runtime that restarts.

gRPC here is asyncio's; trio-asyncio lends it a loop, and Trio's tasks wait for its calls. This module is
the only one that knows either, and it is imported once the node is armed (`actors.edges.cri.cri_edge`).

Whether the runtime answers is said when it changes: as a fact, and to the operator. A connection that
breaks is noticed at once, a runtime that hangs by its lists that do not come; a break of less than a second
(a runtime that is restarted quickly) is told when it is over.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar, cast

import grpc
import grpc.aio
import msgspec
import trio
import trio_asyncio
from google.protobuf.message import Message

from ebbtide.actors.edges.cri import api_pb2 as api
from ebbtide.actors.edges.cri.cri_pods import OperatorNotes
from ebbtide.actors.edges.linux.exits import ExitStatus
from ebbtide.actors.interfaces import Outlet, known_text
from ebbtide.events import bounds
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.facts import RuntimeRead
from ebbtide.events.units import bound_text


class CallFailed(Exception):
    """A call that has no answer of use; the text is one line for the record."""


class Lost(CallFailed):
    """Nobody answered: the runtime is away, or went in the middle, or the time was over."""


class Unsent(Lost):
    """The same, and the runtime has certainly done nothing about it: the call may be made again."""


class RuntimeRefused(CallFailed):
    """The runtime answered with an error."""


class NotFound(RuntimeRefused):
    """The runtime knows no such container or sandbox (any more)."""


class TooLarge(RuntimeRefused):
    """The runtime has done it and answered, and the answer is larger than what is taken of one."""


AnswerT = TypeVar("AnswerT", bound=Message)


SERVICE_NAME = "runtime.v1.RuntimeService"
SERVICE = f"/{SERVICE_NAME}/"
#: The methods of the runtime's other service, on the same socket.
IMAGE_SERVICE = "/runtime.v1.ImageService/"
IMAGE_METHODS = ("ImageStatus",)
#: A dense node's list is larger than gRPC's own limit of 4 MiB.
MESSAGE_BYTES_MAX = 16 * 1024 * 1024
#: Of a hook only the exit code is of use, but its answer brings all that it has printed, up to 16 MiB, and a
#: wave has a hundred hooks. Some lines of output are no reason to lose the exit code.
EXEC_BYTES_MAX = 64 * 1024
#: gRPC's service config: an answer that is announced as larger is not read at all.
EXEC_LIMIT = {
    "name": [{"service": SERVICE_NAME, "method": "ExecSync"}],
    "maxResponseMessageBytes": EXEC_BYTES_MAX,
}
#: How soon a runtime that was away is asked again; gRPC's own pause begins at a second.
RECONNECT_MS_MIN = 50
RECONNECT_MS_MAX = 250
#: gRPC's own wait for a connection cannot be cancelled (`CriClient._connected`); so soon it is seen that one
#: is there.
READY_POLL_SECONDS = 0.05
#: How soon it is noticed that an idle connection has broken; while pods are stopped as soon as it is there.
GONE_POLL_SECONDS = 0.5
#: gRPC's own thread tells the ends of what was cancelled a moment later.
DRAIN_SECONDS = 0.05

#: gRPC's words for "nobody there": also what a call gets whose runtime goes in the middle of it.
AWAY_CODES = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)

#: Our own end has refused an answer, whose call has been carried out.
TOO_LARGE_TEXT = "Received message larger than max"
#: gRPC could not connect; or containerd listens already, but has not read its state yet.
UNSENT_TEXTS = ("failed to connect", "server is not initialized yet")

#: What a runtime, or gRPC, may say of a call that failed: nothing of it is a container's.
RUNTIME_TEXTS = (
    *UNSENT_TEXTS,
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
    # A proxy in the environment is not meant for a socket of this machine.
    ("grpc.enable_http_proxy", 0),
)

#: Method to the type of its answer.
ANSWER_TYPES: dict[str, type[Message]] = {
    "Version": api.VersionResponse,
    "Status": api.StatusResponse,
    "ListPodSandbox": api.ListPodSandboxResponse,
    "PodSandboxStatus": api.PodSandboxStatusResponse,
    "StopPodSandbox": api.StopPodSandboxResponse,
    "ListContainers": api.ListContainersResponse,
    "ContainerStatus": api.ContainerStatusResponse,
    "StopContainer": api.StopContainerResponse,
    "ExecSync": api.ExecSyncResponse,
    "ImageStatus": api.ImageStatusResponse,
}

UnaryCall = Callable[..., Awaitable[Message]]


class CriClient:
    """One channel. ``endpoint`` is a gRPC target, such as ``unix:///run/containerd/containerd.sock``."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._loop: trio_asyncio.BaseTrioEventLoop | None = None
        self._channel: grpc.aio.Channel | None = None
        self._calls: dict[str, UnaryCall] = {}

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
        # A coroutine, because a channel belongs to the loop that runs while it is made.
        channel = grpc.aio.insecure_channel(self._endpoint, options=CHANNEL_OPTIONS)
        for name, answer in ANSWER_TYPES.items():
            self._calls[name] = channel.unary_unary(
                (IMAGE_SERVICE if name in IMAGE_METHODS else SERVICE) + name,
                request_serializer=lambda request: request.SerializeToString(),
                response_deserializer=answer.FromString,
            )
        return channel

    async def ready(self, seconds: float) -> None:
        """Return once the runtime is connected. Raises Lost."""
        with trio.move_on_after(seconds):
            while not self._connected(connect=True):
                await trio.sleep(READY_POLL_SECONDS)
            return
        raise Lost(f"the runtime is away for {bound_text(seconds)}")

    async def gone(self, busy: Callable[[], bool]) -> float:
        """Return once the runtime is no longer connected, with Trio's time at which it was last seen to be.
        Raises Lost when the connection is closed.
        """
        seen = trio.current_time()
        while self._connected():
            seen = trio.current_time()
            await trio.sleep(READY_POLL_SECONDS if busy() else GONE_POLL_SECONDS)
        return seen

    def _connected(self, *, connect: bool = False) -> bool:
        """gRPC could also be waited for, but that wait cannot be cancelled, and outlives the loop."""
        if self._channel is None or self._loop is None:
            raise Lost("the connection is closed")
        state = self._channel.get_state(try_to_connect=connect)
        return bool(state == grpc.ChannelConnectivity.READY)

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
        if self._loop is None:
            work.close()
            raise Lost("the connection is closed")
        return cast(AnswerT, (await self._loop.run_aio_coroutine(work)))

    async def _send(self, name: str, request: Message, seconds: float, wait: bool, traceparent: str) -> Any:
        metadata = (("traceparent", traceparent),) if traceparent else ()
        try:
            found = await self._calls[name](request, timeout=seconds, wait_for_ready=wait, metadata=metadata)
            # gRPC gives nothing for bytes that are no such message.
            if found is None:
                raise RuntimeRefused(f"{name}: the answer cannot be read")
            return found
        except grpc.aio.AioRpcError as error:
            code, details = error.code(), error.details() or ""
        words = known_text(details, RUNTIME_TEXTS)
        why = f": {words}" if words else ""
        if code == grpc.StatusCode.NOT_FOUND:
            raise NotFound(f"{name}: not found")
        # Before the codes: gRPC says "unavailable" both of what it never sent and of what it lost in the
        # middle.
        if any(text in details for text in UNSENT_TEXTS):
            raise Unsent(f"{name}: the runtime is away{why}")
        if code in AWAY_CODES:
            raise Lost(f"{name}: the runtime is away{why}")
        if code == grpc.StatusCode.DEADLINE_EXCEEDED:
            raise Lost(f"{name}: no answer in {bound_text(seconds)}")
        if code == grpc.StatusCode.RESOURCE_EXHAUSTED and TOO_LARGE_TEXT in details:
            raise TooLarge(f"{name}: the answer is too large")
        raise RuntimeRefused(f"{name}: {code.name}{why}")

    async def repeat(
        self, name: str, request: Message, answer: type[AnswerT], seconds: float, *, traceparent: str = ""
    ) -> AnswerT:
        """`call` for what may be sent twice: one that was lost is sent again while there is time."""
        deadline = trio.current_time() + seconds
        while True:
            left = max(0.0, deadline - trio.current_time())
            try:
                return await self.call(name, request, answer, left, traceparent=traceparent)
            except Lost:
                if trio.current_time() + READY_POLL_SECONDS >= deadline:
                    raise
                await trio.sleep(READY_POLL_SECONDS)


#: While something waits for the runtime: so soon it is seen that it is on record as away.
AWAY_POLL_SECONDS = 0.1


async def exit_of_container(caller: CriClient, container_id: str) -> ExitStatus | None:
    """How a container ended, as the runtime has it; None: it has not, as it says. Raises CallFailed."""
    request = api.ContainerStatusRequest(container_id=container_id)
    try:
        seconds = bounds.now.runtime_look_seconds
        found = await caller.call("ContainerStatus", request, api.ContainerStatusResponse, seconds)
    # It is gone, and with it whatever could be said.
    except NotFound:
        return ExitStatus()
    if found.status.state != api.CONTAINER_EXITED:
        return None
    return ExitStatus(exit_code=found.status.exit_code)


ON_RECORD_AS_AWAY = "the runtime is on record as away"


class RuntimeReach:
    """``known`` is set when it has been found out, one way or the other."""

    def __init__(self, connection: CriClient, notes: OperatorNotes) -> None:
        self.answering: bool | None = None
        self.known = trio.Event()
        self._connection = connection
        self._notes = notes
        self._failing_since: float | None = None
        self._turn = trio.Lock()

    @property
    def away(self) -> bool:
        return self.answering is False

    async def confirm(self, outlet: Outlet, seconds: float | None = None) -> None:
        """Return once the runtime has answered a question that is asked now. Raises Lost, at once where it is
        on record as away; one that is connected and silent for `runtime_echo_seconds` is so from then on.
        """
        if self.away:
            raise Lost(ON_RECORD_AS_AWAY)
        seconds = bounds.now.runtime_echo_seconds if seconds is None else seconds
        question, deadline = api.VersionRequest(version="v1"), trio.current_time() + seconds
        try:
            # A bound of our own: gRPC's is only as good as its own threads.
            with trio.move_on_after(seconds + READY_POLL_SECONDS):
                await self._connection.ready(min(seconds, bounds.now.runtime_away_seconds))
                left = max(0.0, deadline - trio.current_time())
                await self._connection.call("Version", question, api.VersionResponse, left, wait=False)
                return
            raise Lost(f"Version: no answer in {bound_text(seconds)}")
        except RuntimeRefused:
            pass  # An answer, if an odd one.
        except Lost as error:
            if seconds >= bounds.now.runtime_echo_seconds and trio.current_time() >= deadline:
                await self._say(False, outlet, error)
            raise

    async def gone(self) -> None:
        """Return once it is on record as away."""
        while not self.away:
            await trio.sleep(AWAY_POLL_SECONDS)

    async def follow(
        self, outlet: Outlet, back: trio.MemorySendChannel[None], busy: Callable[[], bool]
    ) -> None:
        """Until cancelled; something goes into ``back`` when the runtime can be asked again. ``busy``: are
        pods being stopped?
        """
        seen: float | None = None
        while True:
            try:
                await self._connection.ready(bounds.now.runtime_away_seconds)
                if seen is not None:
                    await self._say_back(outlet, trio.current_time() - seen)
            except Lost as error:
                await self._say(False, outlet, error)
                # Said once: from here on only its return is news.
                await self._connection.ready(float("inf"))
            try:
                back.send_nowait(None)
            except trio.WouldBlock:
                pass  # It is about to be asked in any case.
            seen = await self._connection.gone(busy)

    async def answers(self, outlet: Outlet) -> None:
        """It has told all that it was asked."""
        self._failing_since = None
        await self._say(True, outlet)

    async def fails(self, error: Exception, since: float, outlet: Outlet) -> None:
        """A look that began at ``since`` has failed."""
        # From the first look that failed, since each has its own long time to fail in.
        if self._failing_since is None:
            self._failing_since = since
        if trio.current_time() - self._failing_since > bounds.now.runtime_hangs_seconds:
            await self._say(False, outlet, error)

    async def _say_back(self, outlet: Outlet, seconds: float) -> None:
        """Of a break that nobody was told of."""
        async with self._turn:
            if self.answering:
                away_ns = round(seconds * NS_PER_SECOND)
                await outlet.put(RuntimeRead(reachable=True, away_ns=away_ns))

    async def _say(self, answering: bool, outlet: Outlet, error: Exception | None = None) -> None:
        async with self._turn:
            if self.answering is not answering:
                self.answering = answering
                if error is None:
                    self._notes.back()
                else:
                    self._notes.away(error)
                await outlet.put(RuntimeRead(reachable=answering, error="" if error is None else str(error)))
            self.known.set()


class RuntimeProbe(NamedTuple):
    """``problem`` is empty when pods can be ended through this runtime."""

    name: str = ""
    version: str = ""
    problem: str = ""


async def probe_runtime(endpoint: str, seconds: float | None = None) -> RuntimeProbe:
    """Ask for the version and the conditions; changes nothing, raises nothing."""
    link, found = CriClient(endpoint), RuntimeProbe()
    seconds = bounds.now.runtime_probe_seconds if seconds is None else seconds
    async with trio.open_nursery() as nursery:
        await nursery.start(link.run)
        try:
            version = await link.call(
                "Version", api.VersionRequest(version="v1"), api.VersionResponse, seconds
            )
            answer = await link.call("Status", api.StatusRequest(), api.StatusResponse, seconds)
            bad = [each for each in answer.status.conditions if not each.status]
            problem = "; ".join(f"{each.type} is false: {each.reason} {each.message}".strip() for each in bad)
            found = RuntimeProbe(version.runtime_name, version.runtime_version, problem)
        except CallFailed as error:
            found = RuntimeProbe(problem=str(error))
        nursery.cancel_scope.cancel()
    return found

"""The fastest possible shutdown: bare runtime calls that end a node's pods in order.

A daemon's extra time over this pays for its journal, plan and care. Stop the kubelet first, or it restarts
the containers. Outside: `Bare`, which ends pods on request. Inside: one asyncio program.

A second variant also sends Ebbtide's final status patches, each when its pod's containers have ended. No wave
waits for them.

python -m tests.node.bare SOCKET wipe     # no container, no sandbox is left, also none that has ended
python -m tests.node.bare SOCKET count    # how many containers run
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any

import aiohttp
import grpc.aio
import msgspec
import trio
from google.protobuf.message import Message

from ebbtide.actors.edges.cri import api_pb2 as api
from ebbtide.actors.edges.kubernetes.api_calls import STRATEGIC_PATCH, ApiPod
from ebbtide.actors.edges.kubernetes.api_writes import final_status
from tests.actors.edges.cri import making_pb2 as making
from tests.beds.inside import PROJECT
from tests.node.bed import Bed
from tests.node.identities import EBBTIDE
from tests.node.parts import API, Member
from tests.waiting import WATCHDOG_SECONDS

SERVICE = "/runtime.v1.RuntimeService/"
GRACE_SECONDS = 10
OPTIONS = (("grpc.max_receive_message_length", 16 * 1024 * 1024), ("grpc.enable_http_proxy", 0))
NAME_LABEL = "io.kubernetes.pod.name"
RUNNING = api.ContainerState.CONTAINER_RUNNING
#: Removed in parallel: the network plugins limit this.
WIPED_AT_ONCE = 8
#: Ebbtide's number for a fast server: a connection costs more than a call.
CONNECTIONS = 8
STATUS = ("Succeeded", "Terminated", "ended by a bare client")


class Bare:
    """A started program that stops these pods, wave by wave, on request."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process

    async def stop(self) -> None:
        """Stop all in order; returns when the last container has ended."""
        assert self.process.stdin is not None
        await self.process.stdin.send_all(b"go\n")
        await self._line()

    async def _line(self) -> None:
        assert self.process.stdout is not None
        said = b""
        while not said.endswith(b"\n"):
            piece = await self.process.stdout.receive_some()
            assert piece, "the bare client ended"
            said += piece


@contextlib.asynccontextmanager
async def bare(
    bed: Bed, member: Member, waves: Sequence[Sequence[str]], *, told: bool = False
) -> AsyncIterator[Bare]:
    """Connect and look up the containers of these pods (by name).

    ``told``: also write their final statuses.
    """
    server = [API, str(bed.secrets.authority), EBBTIDE.token] if told else None
    words = map(json.dumps, (waves, server))
    inner = [sys.executable, "-m", "tests.node.bare", str(member.socket), "stop", *words]
    # In the node's network but the machine's processes, so the test can end the program itself.
    argv = ["nsenter", "-t", str(bed.pid), "-n", "--", *inner] if told else inner
    pipe = subprocess.PIPE
    process = await trio.lowlevel.open_process(argv, stdin=pipe, stdout=pipe, cwd=PROJECT)
    try:
        made = Bare(process)
        await made._line()
        yield made
    finally:
        process.kill()
        await process.wait()


async def ask(member: Member, verb: str) -> str:
    """The answer of ``wipe`` or ``count``."""
    argv = [sys.executable, "-m", "tests.node.bare", str(member.socket), verb]
    done = await trio.run_process(argv, capture_stdout=True, cwd=PROJECT)
    return done.stdout.decode().strip()


class Client:
    """Inside: the calls."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel

    async def call(self, name: str, request: Message, answer: type[Message]) -> Any:
        method = self.channel.unary_unary(
            SERVICE + name,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=answer.FromString,
        )
        return await method(request, timeout=WATCHDOG_SECONDS)

    async def containers(self) -> dict[str, list[str]]:
        """The running ones' ids by their pod's name."""
        found = await self.call("ListContainers", api.ListContainersRequest(), api.ListContainersResponse)
        by_pod: dict[str, list[str]] = {}
        for item in found.containers:
            if item.state == RUNNING:
                by_pod.setdefault(item.labels[NAME_LABEL], []).append(item.id)
        return by_pod

    async def stop(self, waves: list[list[str]], server: list[str] | None) -> None:
        by_pod = await self.containers()
        writes: list[asyncio.Task[None]] = []
        async with contextlib.AsyncExitStack() as stack:
            teller = await stack.enter_async_context(_teller(*server)) if server else None
            print("ready", flush=True)
            await asyncio.to_thread(sys.stdin.readline)

            async def stop_pod(name: str) -> None:
                await asyncio.gather(*map(self.stop_one, by_pod[name]))
                if teller is not None:
                    writes.append(asyncio.create_task(teller.tell(name)))

            for wave in waves:
                await asyncio.gather(*map(stop_pod, wave))
            await asyncio.gather(*writes)
        print("done", flush=True)

    async def stop_one(self, container: str) -> None:
        request = api.StopContainerRequest(container_id=container, timeout=GRACE_SECONDS)
        await self.call("StopContainer", request, api.StopContainerResponse)

    async def wipe(self) -> None:
        found = await self.call("ListPodSandbox", api.ListPodSandboxRequest(), api.ListPodSandboxResponse)
        turns = asyncio.Semaphore(WIPED_AT_ONCE)

        async def remove(sandbox: str) -> None:
            request = making.RemovePodSandboxRequest(pod_sandbox_id=sandbox)
            async with turns:
                await self.call("StopPodSandbox", request, making.Empty)
                await self.call("RemovePodSandbox", request, making.Empty)

        await asyncio.gather(*(remove(item.id) for item in found.items))

    async def count(self) -> None:
        print(sum(map(len, (await self.containers()).values())))


class Teller:
    """Inside: the statuses. ``pods`` by name, as before the stop."""

    def __init__(self, session: aiohttp.ClientSession, pods: dict[str, ApiPod]) -> None:
        self.session, self.pods = session, pods

    async def tell(self, name: str) -> None:
        pod = self.pods[name]
        body = final_status(pod, *STATUS)
        # The kubelet is stopped, so no other client writes: no new read is needed.
        del body["metadata"]["resourceVersion"]
        path = f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{name}/status"
        kind = {"Content-Type": STRATEGIC_PATCH}
        async with self.session.patch(path, data=msgspec.json.encode(body), headers=kind) as answer:
            answer.raise_for_status()
            await answer.read()


@contextlib.asynccontextmanager
async def _teller(server: str, authority: str, token: str) -> AsyncIterator[Teller]:
    trusted = ssl.create_default_context(cafile=authority)
    connector = aiohttp.TCPConnector(limit=CONNECTIONS, ssl=trusted, keepalive_timeout=WATCHDOG_SECONDS)
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(server, connector=connector, headers=headers) as session:
        async with session.get("/api/v1/namespaces/default/pods") as answer:
            found = msgspec.json.decode(await answer.read(), type=_PodList)
        yield Teller(session, {pod.metadata.name: pod for pod in found.items})


class _PodList(msgspec.Struct):
    items: list[ApiPod]


async def main(socket: str, verb: str, *words: str) -> None:
    async with grpc.aio.insecure_channel(f"unix://{socket}", options=OPTIONS) as channel:
        await getattr(Client(channel), verb)(*map(json.loads, words))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

"""The least that ends a node's pods in their order: bare calls to the runtime, and nothing else.

What a daemon takes over this is what its journal, its plan and its care cost. The kubelet has to be stopped,
else it starts again what ends here. Outside: `Bare`, which ends pods on request. Inside: one asyncio program.

python -m tests.node.bare SOCKET wipe     # no container, no sandbox is left, also none that has ended
python -m tests.node.bare SOCKET count    # how many containers run
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc.aio
import trio
from google.protobuf.message import Message

from ebbtide.actors.edges.cri import api_pb2 as api
from tests.actors.edges.cri import making_pb2 as making
from tests.beds.inside import PROJECT
from tests.node.parts import Member

SERVICE = "/runtime.v1.RuntimeService/"
CALL_SECONDS_MAX = 60.0
GRACE_SECONDS = 10
OPTIONS = (("grpc.max_receive_message_length", 16 * 1024 * 1024), ("grpc.enable_http_proxy", 0))
NAME_LABEL = "io.kubernetes.pod.name"
RUNNING = api.ContainerState.CONTAINER_RUNNING
#: Removed side by side: the network plugins take the processors.
WIPED_AT_ONCE = 8


class Bare:
    """A started program that waits for the word to stop these pods, wave by wave."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process

    async def stop(self) -> None:
        """All of them, in their order; returns when the last container has ended."""
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
async def bare(member: Member, waves: Sequence[Sequence[str]]) -> AsyncIterator[Bare]:
    """Connected, with the containers of these pods (by name) looked up; ended with the block."""
    argv = [sys.executable, "-m", "tests.node.bare", str(member.socket), "stop", json.dumps(waves)]
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
        return await method(request, timeout=CALL_SECONDS_MAX)

    async def containers(self) -> dict[str, list[str]]:
        """The running ones' ids by their pod's name."""
        found = await self.call("ListContainers", api.ListContainersRequest(), api.ListContainersResponse)
        by_pod: dict[str, list[str]] = {}
        for item in found.containers:
            if item.state == RUNNING:
                by_pod.setdefault(item.labels[NAME_LABEL], []).append(item.id)
        return by_pod

    async def stop(self, waves: list[list[str]]) -> None:
        by_pod = await self.containers()
        planned = [[each for name in wave for each in by_pod[name]] for wave in waves]
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        for ids in planned:
            await asyncio.gather(*map(self.stop_one, ids))
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


async def main(socket: str, verb: str, *words: str) -> None:
    async with grpc.aio.insecure_channel(f"unix://{socket}", options=OPTIONS) as channel:
        await getattr(Client(channel), verb)(*map(json.loads, words))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

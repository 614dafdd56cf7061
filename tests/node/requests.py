"""Lost Service requests while one of two nodes goes down.

Inside: a client at a steady rate, one connection per request. Outside: a Deployment of four pods on two
nodes, and the count.

python -m tests.node.requests URL-ADDRESS PORT A_SECOND SECONDS
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from typing import Any

import trio

from tests.node.bed import Bed
from tests.node.client import POLL_SECONDS, Object
from tests.node.parts import Part
from tests.node.pods import container

CLIENT = "requests"
REPLICAS = 4
A_SECOND, SECONDS = 50, 25
HOOK_SECONDS = 5
ANSWER_SECONDS_MAX = 2.0
#: From the first request to the shutdown request.
BEFORE_SECONDS = 3.0
UP_SECONDS_MAX = 60
SERVICES = "/api/v1/namespaces/default/services"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
WEB = "echo ok > /www/index.html; httpd -f -p 8080 -h /www & trap 'exit 0' TERM; wait"


def deployment(name: str = "web") -> Object:
    """Half of the pods on each node, with a sleeping hook for the endpoints to update."""
    labels = {"app": name}
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": labels},
        # The node going down still counts, otherwise all new pods would wait for it.
        "nodeTaintsPolicy": "Honor",
    }
    ready = {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1}
    hook = {"preStop": {"sleep": {"seconds": HOOK_SECONDS}}}
    made = container(WEB, readinessProbe=ready, lifecycle=hook)
    spec = {"containers": [made], "topologySpreadConstraints": [spread], "terminationGracePeriodSeconds": 30}
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {
        "metadata": {"name": name},
        "spec": {"replicas": REPLICAS, "selector": {"matchLabels": labels}, "template": template},
    }


async def serve(bed: Bed, name: str = "web") -> str:
    """The Service's address, once all pods are Ready and it answers."""
    service = {
        "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": 8080}]},
    }
    address = str((await bed.api.post(SERVICES, service))["spec"]["clusterIP"])
    await bed.api.post(DEPLOYMENTS, deployment(name))
    await bed.api.until(
        f"{DEPLOYMENTS}/{name}",
        lambda each: each["status"].get("readyReplicas") == REPLICAS,
        seconds=UP_SECONDS_MAX,
    )
    with trio.fail_after(UP_SECONDS_MAX):
        while not await _answers(bed, address):
            await trio.sleep(POLL_SECONDS)
    return address


async def _answers(bed: Bed, address: str) -> bool:
    with trio.move_on_after(ANSWER_SECONDS_MAX), contextlib.suppress(OSError):
        return await bed.fetch(address, 80) == "ok\n"
    return False


async def start_client(bed: Bed, address: str) -> None:
    """Starts at once and ends by itself."""
    (bed.folder / "log" / f"{CLIENT}.log").write_text("")
    words = [address, "80", str(A_SECOND), str(SECONDS)]
    await bed.start(Part(CLIENT, [sys.executable, "-m", "tests.node.requests", *words], {}))


async def lost(bed: Bed) -> list[dict[str, Any]]:
    """All requests without an answer, after the client's end: time and reason."""
    with trio.fail_after(SECONDS + UP_SECONDS_MAX):
        while await bed.inside.do("exited", name=CLIENT) is None:
            await trio.sleep(POLL_SECONDS)
    said = json.loads(bed.log(CLIENT))
    assert said["asked"] == A_SECOND * SECONDS, said
    found: list[dict[str, Any]] = said["lost"]
    return found


class Client:
    """Inside: open loop, so a slow answer does not delay the next request."""

    def __init__(self, address: str, port: int) -> None:
        self.address, self.port = address, port
        self.lost: list[dict[str, Any]] = []
        self.began = time.monotonic()

    async def ask(self) -> None:
        at = time.monotonic() - self.began
        try:
            with trio.fail_after(ANSWER_SECONDS_MAX):
                answer = await self._fetch()
        except (OSError, trio.BrokenResourceError, trio.TooSlowError) as error:
            self.lost.append({"at": round(at, 3), "why": repr(error)})
        else:
            if b" 200 " not in answer.partition(b"\r\n")[0]:
                self.lost.append({"at": round(at, 3), "why": answer[:40].decode(errors="replace")})

    async def _fetch(self) -> bytes:
        async with await trio.open_tcp_stream(self.address, self.port) as stream:
            await stream.send_all(b"GET / HTTP/1.0\r\n\r\n")
            return b"".join([bytes(piece) async for piece in stream])

    async def run(self, a_second: int, seconds: int) -> None:
        async with trio.open_nursery() as nursery:
            for number in range(a_second * seconds):
                await trio.sleep(max(0.0, self.began + number / a_second - time.monotonic()))
                nursery.start_soon(self.ask)


async def main(address: str, port: int, a_second: int, seconds: int) -> None:
    client = Client(address, port)
    await client.run(a_second, seconds)
    print(json.dumps({"asked": a_second * seconds, "lost": client.lost}))


if __name__ == "__main__":
    trio.run(main, sys.argv[1], *map(int, sys.argv[2:]))

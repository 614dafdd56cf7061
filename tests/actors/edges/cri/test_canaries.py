"""No secret leaves the daemon: a whole shutdown in which every component fails and quotes its input.

Pods, hook servers, the runtime and the API server all emit a marker. No file of the daemon, and no output
made from its journal, contains it.
"""

from __future__ import annotations

import json
import subprocess
import zipfile
from contextlib import suppress
from pathlib import Path

import h11
import pytest
import trio

from ebbtide.events import decisions as d
from ebbtide.events.facts import ApiRead, AutopsyTaken, OrderEnded
from tests.actors.edges.cri.daemon_rig import DaemonRig
from tests.actors.edges.cri.pods import DEAF, POLITE, Kubelet, Spec
from tests.actors.edges.cri.test_containerd import inside
from tests.actors.edges.process.test_hooks import CANARY
from tests.actors.edges.test_http_request import WRONG_ANSWERS
from tests.beds.containerd import Containerd
from tests.daemon.rig import EBBTIDE

pytestmark = [pytest.mark.node, pytest.mark.root]

#: Of a request's head.
RECEIVE_BYTES = 65536
REFUSED = json.dumps({"message": f'Pod is invalid: status.message: Invalid value: "{CANARY}"'}).encode()
DENIED = json.dumps({"message": f'admission webhook "{CANARY}" denied the request: {CANARY}'}).encode()
NODE = json.dumps(
    {"metadata": {"resourceVersion": "1", "annotations": {"note": CANARY}}, "status": {"conditions": []}}
).encode()


def listed(*names: str) -> bytes:
    """The API server's pod list, with a marker in every field that the daemon does not need."""
    items = [
        {
            "metadata": {
                "name": name,
                "namespace": "test",
                "uid": f"uid-{name}",
                "annotations": {"note": CANARY},
            },
            "spec": {"containers": [{"name": "main", "env": [{"name": "TOKEN", "value": CANARY}]}]},
            "status": {
                "phase": "Running",
                "containerStatuses": [
                    {"name": "main", "lastState": {"terminated": {"exitCode": 1, "message": CANARY}}}
                ],
            },
        }
        for name in names
    ]
    return json.dumps({"metadata": {"resourceVersion": "1"}, "items": items}).encode()


class Servers:
    """Hook servers with one answer each, and an API server, in the pods' network."""

    def __init__(self, pods: bytes) -> None:
        self.pods = pods
        self.asked: list[str] = []

    async def hook(self, answer: bytes, stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError):
            async with stream:
                await stream.receive_some(RECEIVE_BYTES)
                await stream.send_all(answer)

    async def api(self, stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError, h11.RemoteProtocolError):
            async with stream:
                connection = h11.Connection(h11.SERVER)
                while (event := connection.next_event()) is h11.NEED_DATA:
                    connection.receive_data(await stream.receive_some(RECEIVE_BYTES))
                # The client already had its answer on another connection.
                if not isinstance(event, h11.Request):
                    return
                method, target = event.method.decode(), event.target.decode()
                self.asked.append(f"{method} {target}")
                code, body = self._answer(method, target)
                await stream.send_all(
                    b"HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
                    % (code, CANARY.encode(), len(body))
                    + body
                )

    def _answer(self, method: str, target: str) -> tuple[int, bytes]:
        if "watch=" in target:
            return 200, f'{{"type": "ERROR", "object": {{"code": 500, "message": "{CANARY}"}}}}\n'.encode()
        if method == "GET":
            return 200, self.pods if target.startswith("/api/v1/pods") else NODE
        if target.endswith("/status"):
            return 422, REFUSED
        return (502, f"<html>{CANARY}</html>".encode()) if "events" in target else (403, DENIED)


async def listening(bed: Containerd, nursery: trio.Nursery, handler: object) -> int:
    with inside(bed.network):
        made = trio.socket.socket()
    await made.bind(("127.0.0.1", 0))
    made.listen()
    nursery.start_soon(trio.serve_listeners, handler, [trio.SocketListener(made)])
    return int(made.getsockname()[1])


def ask(port: int, *headers: tuple[str, str]) -> dict[str, object]:
    given = [{"name": name, "value": value} for name, value in (("Authorization", CANARY), *headers)]
    return {
        "httpGet": {"host": "127.0.0.1", "port": port, "path": f"/x?{CANARY}#{CANARY}", "httpHeaders": given}
    }


def kubeconfig(path: Path, port: int) -> str:
    context = {"name": "x", "context": {"cluster": "x", "user": "x"}}
    cluster = {"name": "x", "cluster": {"server": f"http://127.0.0.1:{port}"}}
    user = {"name": "x", "user": {"token": CANARY}}
    document = {"current-context": "x", "contexts": [context], "clusters": [cluster], "users": [user]}
    path.write_text(json.dumps(document))
    return str(path)


async def test_no_secret_leaves(
    bed: Containerd, kubelet: Kubelet, rig: DaemonRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hooks that cannot run, servers that answer no HTTP, an API server that quotes requests."""
    # On a busy machine the runtime would count as away, and a hook's outcome as unknown.
    monkeypatch.setenv("EBBTIDE_BOUNDS_FACTOR", "10")
    names = [f"answer-{number}" for number in range(len(WRONG_ANSWERS))]
    names += ["absent", "loud", "named", "controlled", "hard"]
    servers = Servers(listed(*names))
    async with trio.open_nursery() as nursery:
        for name, answer in zip(names, WRONG_ANSWERS, strict=False):

            async def serve(stream: trio.SocketStream, answer: bytes = answer) -> None:
                await servers.hook(answer, stream)

            kubelet.pod(name, Spec(POLITE, pre_stop=ask(await listening(bed, nursery, serve))))
        loud = ["/bin/sh", "-c", f"echo {CANARY}; echo {CANARY} >&2; exit 3"]
        for name, command in (("absent", [f"/{CANARY}/absent", CANARY]), ("loud", loud)):
            kubelet.pod(name, Spec(POLITE, pre_stop={"exec": {"command": command}}))
        kubelet.pod("named", Spec(POLITE, pre_stop=ask(1, (f"{CANARY} x", "x"))))
        kubelet.pod("controlled", Spec(POLITE, pre_stop=ask(1, ("X", f"{CANARY}\n{CANARY}"))))
        kubelet.pod("hard", Spec(f": {CANARY}; {DEAF}"), grace=1)
        api = kubeconfig(rig.folder / "kubeconfig", await listening(bed, nursery, servers.api))
        rig.configure({0: 8}, node={"kubeconfig": api, "nodeName": "node-1"})
        await rig.start()
        await rig.recorded(ApiRead)
        await rig.bed.power_off("reboot")
        await rig.recorded(d.ReleaseLock)
        await rig.kill()
        nursery.cancel_scope.cancel()
    hooks = {event.uid.removeprefix("uid-"): event for event in rig.events(d.HookEnded)}
    assert {name: event.result for name, event in hooks.items()} == dict.fromkeys(names[:-1], "failed")
    assert "no such file or directory" in hooks["absent"].reason
    assert len(rig.events(AutopsyTaken)) == 1
    refused = [ended.reason for ended in rig.events(OrderEnded) if ended.result == "failed"]
    assert "the node cannot be changed: 403 admission webhook" in refused
    assert any(each.startswith("POST /api/v1/namespaces/default/events") for each in servers.asked)
    await no_canary(rig)


async def no_canary(rig: DaemonRig) -> None:
    """Search every file of the daemon and every output of its journal."""
    files = [path for path in rig.folder.rglob("*") if path.is_file() and path.name != "kubeconfig"]
    made = {str(path): path.read_bytes() for path in files}
    assert {"log", "pods.json"} <= {path.name for path in files}
    pack = rig.folder / "pack.zip"
    for words in (
        ("journal", "show"),
        ("journal", "show", "-o", "json"),
        ("export", "otlp-json"),
        ("replay", "report"),
        ("replay", "timeline", "--all"),
        ("journal", "pack", "--all", "-o", str(pack)),
    ):
        done = await trio.run_process(
            [*EBBTIDE, *words, "--journal", str(rig.journal)], capture_stdout=True, stderr=subprocess.DEVNULL
        )
        made[" ".join(words)] = done.stdout
        assert done.stdout or "pack" in words
    with zipfile.ZipFile(pack) as packed:
        made |= {f"pack: {name}": packed.read(name) for name in packed.namelist()}
    assert not [name for name, data in made.items() if CANARY.encode() in data.lower()]

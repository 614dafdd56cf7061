"""What the views of a large cluster weigh and cost, beside a server that simulates it: the figures of
docs/outage.md.

``python -m benchmarks.cluster [NODES PODS SECONDS]`` prints a line of JSON; the exit code is 1 when a figure
is missed. Two processes: a server over TLS that lists, watches and says so many changes as it is asked for,
and the client with both views, which measures itself; ``SECONDS`` of it quiet.
"""

from __future__ import annotations

import asyncio
import json
import resource
import ssl
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from ebbtide.actors.edges.kubernetes.api_calls import LEASES_PATH, NODES_PATH
from ebbtide.actors.edges.kubernetes.api_client import ApiClient
from ebbtide.actors.edges.kubernetes.node_view import ClusterView
from ebbtide.actors.edges.kubernetes.work_view import ATTACHMENTS_PATH, PODS_PATH, VOLUMES_PATH, WorkView
from ebbtide.outage import controller
from tests.actors.edges.kubernetes.work_fake import attachment, csi, volume

if TYPE_CHECKING:
    from aiohttp import web

NODES, PODS = 1000, 30_000
#: Of ten pods one has a volume, and of an owner there are three.
VOLUMES_SHARE, SIBLINGS = 10, 3
#: A kubelet renews its lease every 10 s; pods of a quiet cluster hardly change, ten a second is a busy one.
RENEWAL_SECONDS, POD_CHANGES_A_SECOND = 10.0, 10
BURST = 2000
SETTLE_SECONDS, IDLE_SECONDS = 1.0, 20.0
PATIENCE_SECONDS = 60.0
#: Measured: 1 KiB a pod with all that belongs to it, and one part of a list; 60 us a change.
KIB_A_POD_MAX, PART_MIB_MAX, US_A_CHANGE_MAX = 2.0, 16.0, 500

# --- the objects


def _text(made: object) -> str:
    return json.dumps(made, separators=(",", ":"))


def _pod() -> str:
    """Of some 8 KiB, as admission, injectors, kubelet and field managers leave it behind; what differs is
    written as ``%(name)s``.
    """
    env = [{"name": f"SETTING_{number}", "value": "a value of usual length"} for number in range(20)]
    probe = {"httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10}
    container = {
        "name": "main",
        "image": "registry.example.test/team/service@sha256:" + 64 * "0",
        "env": env,
        "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}},
        "livenessProbe": probe,
        "readinessProbe": probe,
        "volumeMounts": [{"name": f"v-{number}", "mountPath": f"/v/{number}"} for number in range(6)],
    }
    tolerations = [
        {
            "key": f"node.kubernetes.io/{key}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 300,
        }
        for key in ("not-ready", "unreachable")
    ]
    when = "2026-01-01T00:00:00Z"
    conditions = [
        {"type": each, "status": "True", "lastProbeTime": None, "lastTransitionTime": when}
        for each in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    managed: dict[str, Any] = {
        "f:spec": {f"f:field-{number}": {"f:name": {}, ".": {}, "f:value": {}} for number in range(60)}
    }
    status = {
        "name": "main",
        "state": {"running": {"startedAt": when}},
        "ready": True,
        "imageID": container["image"],
        "containerID": "containerd://" + 64 * "0",
    }
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "%(owner)s",
        "uid": "%(owner)s-8052-b4c04f4d3132",
    }
    return _text(
        {
            "metadata": {
                "name": "%(name)s",
                "namespace": "%(space)s",
                "uid": "%(number)08d-0042-3510-8052-b4c04f4d3132",
                "resourceVersion": "%(version)s",
                "creationTimestamp": when,
                "labels": {"app.kubernetes.io/name": "service", "pod-template-hash": "5d4f8c7b9"},
                "annotations": {"example.test/injected": 600 * "x", "example.test/config": 64 * "0"},
                "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
                "managedFields": [{"manager": "kubelet", "operation": "Update", "fieldsV1": managed}],
            },
            "spec": {
                "nodeName": "%(node)s",
                "containers": [container, {**container, "name": "sidecar"}],
                "tolerations": tolerations,
                "volumes": [
                    {"name": "data", "persistentVolumeClaim": {"claimName": "%(claim)s"}},
                    *({"name": f"v-{number}", "configMap": {"name": "settings"}} for number in range(6)),
                ],
            },
            "status": {
                "phase": "Running",
                "conditions": conditions,
                "containerStatuses": [status, {**status, "name": "sidecar"}],
                "podIP": "10.0.0.1",
            },
        }
    )


def _node() -> str:
    at = "@sha256:" + 64 * "0"
    images = [{"names": [f"registry.example.test/team/image-{n}{at}"], "sizeBytes": n} for n in range(60)]
    condition = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}
    info = {
        "bootID": "4c4c4544-0042-3510-8052-b4c04f4d3132",
        "systemUUID": "4c4c4544-0042-%(name)s",
    }
    meta = {"name": "%(name)s", "uid": "%(name)s-0042-3510-8052", "resourceVersion": "%(version)s"}
    status = {"conditions": [condition], "images": images, "nodeInfo": info}
    return _text({"metadata": meta, "spec": {}, "status": status})


def _lease() -> str:
    spec = {"holderIdentity": "%(name)s", "leaseDurationSeconds": 40, "renewTime": "%(version)s"}
    return _text({"metadata": {"name": "%(name)s", "resourceVersion": "%(version)s"}, "spec": spec})


class Kind:
    """``count`` objects, made when they are asked for."""

    def __init__(self, count: int, template: str) -> None:
        self.count, self._template = count, template
        self.watchers: list[web.StreamResponse] = []
        self.ended = asyncio.Event()

    def make(self, number: int, version: int, nodes: int) -> str:
        owner = f"service-{number // SIBLINGS:06d}"
        return self._template % {
            "number": number,
            "version": version,
            "name": f"{owner}-{number:06d}" if self.count > nodes else f"node-{number:04d}",
            "owner": owner,
            "space": f"team-{number % 50}",
            "node": f"node-{number % nodes:04d}",
            "claim": f"data-{number}" if number % VOLUMES_SHARE == 0 else "",
        }


class Cluster:
    """The server. ``POST /change/KIND/COUNT`` says so many changes to its watchers, at once; with 0 it ends
    the watches, and knows no place of before.
    """

    def __init__(self, nodes: int, pods: int) -> None:
        self._nodes, self._version = nodes, 1_000_000
        self.kinds = {
            NODES_PATH: Kind(nodes, _node()),
            LEASES_PATH: Kind(nodes, _lease()),
            PODS_PATH: Kind(pods, _pod()),
            ATTACHMENTS_PATH: Kind(pods // VOLUMES_SHARE, _text(attachment("%(name)s", "%(node)s"))),
            VOLUMES_PATH: Kind(
                pods // VOLUMES_SHARE, _text(volume("%(name)s", "%(claim)s", **csi("%(name)s")))
            ),
        }
        self._at = self._forgotten = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        from aiohttp import web

        if request.path.startswith("/change/"):
            _, _, what, count = request.path.split("/")
            await self._change(
                next(kind for path, kind in self.kinds.items() if path.endswith(what)), int(count)
            )
            return web.Response()
        kind = self.kinds.get(request.path)
        if kind is None:
            return web.Response()
        if "watch" in request.query:
            if int(request.query["resourceVersion"]) < self._forgotten:
                return web.Response(status=410)
            response = web.StreamResponse()
            await response.prepare(request)
            kind.watchers.append(response)
            await kind.ended.wait()
            return response
        begin = int(request.query.get("continue") or 0)
        end = min(kind.count, begin + int(request.query["limit"]))
        items = ",".join(kind.make(number, self._version, self._nodes) for number in range(begin, end))
        more = str(end) if end < kind.count else ""
        meta = _text({"resourceVersion": str(self._version), "continue": more})
        return web.Response(text=f'{{"metadata":{meta},"items":[{items}]}}')

    async def _change(self, kind: Kind, count: int) -> None:
        if not count:
            self._version += 1
            self._forgotten = self._version
            kind.ended.set()
            kind.ended, kind.watchers = asyncio.Event(), []
        for _ in range(count):
            self._at = (self._at + 1) % kind.count
            self._version += 1
            line = f'{{"type":"MODIFIED","object":{kind.make(self._at, self._version, self._nodes)}}}\n'
            for watcher in kind.watchers:
                await watcher.write(line.encode())


def serve(folder: Path, nodes: int, pods: int) -> None:
    """Until killed; the port goes to stdout."""
    import trustme
    from aiohttp import web

    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)

    async def run() -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", Cluster(nodes, pods).answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        print(runner.addresses[0][1], flush=True)
        await asyncio.sleep(3600)

    asyncio.run(run())


# --- the client


def resident_mib(field: str = "VmRSS:") -> float:
    text = Path("/proc/self/status").read_text()
    return round(int(text.partition(field)[2].split()[0]) / 1024, 1)


def processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def measure(folder: Path, port: int, nodes: int, pods: int, seconds: float) -> dict[str, Any]:
    """Light; the peak of the first list; after it; a burst of changed pods; a quiet time; and all pods listed
    once more.
    """
    kubeconfig = folder / "kubeconfig"
    cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(folder / "ca.pem")}
    kubeconfig.write_text(
        _text(
            {
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "u", "user": {"token": "t"}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    )
    seen: dict[str, Any] = {"nodes": nodes, "pods": pods, "with": controller.__name__}
    link = ApiClient(kubeconfig)
    async with trio.open_nursery() as nursery:
        await nursery.start(link.run)
        seen["light_mib"] = resident_mib()
        cluster_view, work = ClusterView(), WorkView()
        began, used = trio.current_time(), processor_seconds()
        nursery.start_soon(cluster_view.run, link)
        nursery.start_soon(work.run, link)
        with trio.fail_after(PATIENCE_SECONDS):
            await cluster_view.listed()
            await work.current()
        seen["list_seconds"] = round(trio.current_time() - began, 1)
        seen["list_processor_seconds"] = round(processor_seconds() - used, 1)
        seen["peak_mib"] = resident_mib("VmHWM:")
        await trio.sleep(SETTLE_SECONDS)
        seen["listed_mib"] = resident_mib()
        assert len(work.pods.kept) == pods

        async def change(what: str, count: int) -> None:
            await link.call("POST", f"/change/{what}/{count}", seconds_max=PATIENCE_SECONDS)

        used = processor_seconds()
        await change("pods", BURST)
        await trio.sleep(SETTLE_SECONDS)
        seen["us_a_change"] = round((processor_seconds() - used) * 1e6 / BURST)
        used, began = processor_seconds(), trio.current_time()
        while trio.current_time() < began + seconds:
            await change("leases", int(nodes / RENEWAL_SECONDS))
            await change("pods", POD_CHANGES_A_SECOND)
            await trio.sleep(1)
        seen["quiet_percent"] = round((processor_seconds() - used) * 100 / (trio.current_time() - began), 2)
        work.pods.listed = trio.Event()
        await change("pods", 0)
        await work.pods.listed.wait()
        seen["again_peak_mib"] = resident_mib("VmHWM:")
        await trio.sleep(SETTLE_SECONDS)
        seen["end_mib"] = resident_mib()
        nursery.cancel_scope.cancel()
    return seen


def main(nodes: int = NODES, pods: int = PODS, seconds: float = IDLE_SECONDS) -> dict[str, Any]:
    """Both processes; the client is a child as well, so that it holds nothing but its own."""
    with tempfile.TemporaryDirectory() as name:
        argv = [sys.executable, "-m", "benchmarks.cluster"]
        words = [name, str(nodes), str(pods)]
        with subprocess.Popen([*argv, "serve", *words], stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            words += [server.stdout.readline().strip(), str(seconds)]
            try:
                said = subprocess.run(
                    [*argv, "measure", *words], stdout=subprocess.PIPE, text=True, check=True
                )
            finally:
                server.kill()
    return dict(json.loads(said.stdout))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", folder, nodes, pods]:
            serve(Path(folder), int(nodes), int(pods))
        case ["measure", folder, nodes, pods, port, seconds]:
            print(_text(trio.run(measure, Path(folder), int(port), int(nodes), int(pods), float(seconds))))
        case numbers:
            found = main(*map(int, numbers))
            print(_text(found))
            kept_mib = found["pods"] * KIB_A_POD_MAX / 1024 + PART_MIB_MAX
            if found["peak_mib"] - found["light_mib"] > kept_mib or found["us_a_change"] > US_A_CHANGE_MAX:
                sys.exit(f"missed: {kept_mib:.0f} MiB at the peak, {US_A_CHANGE_MAX} us a change")

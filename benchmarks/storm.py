"""A thousand nodes, thirty thousand pods, one controller; then a hundred of the nodes die at once.

    sudo python -m benchmarks.storm [--nodes 1000] [--pods 30000] [--out 100] [--seconds 120]

A real API server and etcd; the kubelets are this program, which renews all leases every 10 s as they do. What
the controller asks for is what the API server counts, less what we ask for ourselves. Bounded: it ends by
itself after three minutes and the time that it takes to make the pods.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import trio

from benchmarks.report import say
from ebbtide.actors.edges.kubernetes.api_calls import LEASES_PATH, MERGE_PATCH
from ebbtide.actors.edges.kubernetes.api_client import ApiClient
from ebbtide.actors.edges.kubernetes.node_view import DECLARED_ANNOTATION
from tests.actors.edges.kubernetes.rig import linked
from tests.node.bed import Bed
from tests.node.bringing_up import bring_api_up, made_bed
from tests.node.identities import ADMIN

NODES = "/api/v1/nodes"
NAMESPACE = "ebbtide"
LEASE_SECONDS = 40
RENEWAL_SECONDS = 10
#: So many requests of ours at once: the API server and we share two processors.
AT_ONCE = 16
IDLE_SECONDS = 30
CALL_SECONDS = 30
CONFIGURATION = f"""
apiVersion: ebbtide/v1alpha1
kind: OutageConfiguration
namespace: {NAMESPACE}
brake: {{maxNodes: 5, minHealthy: 1}}
pools:
- {{name: all, askKubelet: false}}
"""


class Cluster:
    """What the kubelets of all nodes write. ``asked``: how many requests we have made."""

    def __init__(self, link: ApiClient, nodes: int) -> None:
        self.link, self.names = link, [f"node-{at:04d}" for at in range(nodes)]
        self.uids: dict[str, str] = {}
        self.marks: dict[str, str] = {}
        self.dead: set[str] = set()
        self.asked = 0
        self._limit = trio.CapacityLimiter(AT_ONCE)

    async def ask(self, method: str, path: str, body: object) -> dict[str, object]:
        async with self._limit:
            self.asked += 1
            kind = {"content_type": MERGE_PATCH} if method == "PATCH" else {}
            answer = await self.link.call(method, path, body=body, seconds_max=CALL_SECONDS, **kind)
        assert answer.ok or answer.code == 409, (method, path, answer)
        said: dict[str, object] = json.loads(answer.body)
        return said

    async def all(self, work: object, items: Iterator[object]) -> None:
        async with trio.open_nursery() as nursery:
            for item in items:
                nursery.start_soon(work, item)  # type: ignore[arg-type]

    async def register(self, name: str) -> None:
        made = await self.ask("POST", NODES, {"metadata": {"name": name}})
        self.uids[name] = made["metadata"]["uid"]  # type: ignore[index]
        self.marks[name] = now()
        spec = {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": self.marks[name]}
        await self.ask("POST", LEASES_PATH, {"metadata": {"name": name}, "spec": spec})
        info = {"bootID": f"boot-of-{name}", "systemUUID": self.uids[name]}
        await self.ready(name, "True", nodeInfo=info)

    async def ready(self, name: str, status: str, **more: object) -> None:
        mark = now()[:19] + "Z"
        said = {"type": "Ready", "status": status, "lastTransitionTime": mark}
        said |= {"lastHeartbeatTime": mark} if status == "True" else {}
        body = {"status": {"conditions": [said], **more}}
        await self.ask("PATCH", f"{NODES}/{name}/status", body)

    async def make_pod(self, at: object) -> None:
        await self.ask("POST", "/api/v1/namespaces/default/pods", pod(int(str(at)), self.names))

    async def renew(self) -> None:
        """As kubelets do: each every ten seconds, spread over them."""
        async with trio.open_nursery() as nursery:
            while True:
                began = trio.current_time()
                for at, name in enumerate(self.names):
                    await trio.sleep_until(began + RENEWAL_SECONDS * at / len(self.names))
                    if name not in self.dead:
                        nursery.start_soon(self._renew, name)
                await trio.sleep_until(began + RENEWAL_SECONDS)

    async def _renew(self, name: str) -> None:
        self.marks[name] = now()
        await self.ask("PATCH", f"{LEASES_PATH}/{name}", {"spec": {"renewTime": self.marks[name]}})

    async def die(self, names: list[str]) -> None:
        """NotReady, as the node lifecycle controller says it, and declared off by a person."""
        self.dead |= set(names)
        for name in names:
            await self.ready(name, "Unknown")
            said = {
                "uid": self.uids[name],
                "boot": f"boot-of-{name}",
                "mark": self.marks[name],
                "by": "storm",
            }
            note = {"metadata": {"annotations": {DECLARED_ANNOTATION: json.dumps(said)}}}
            await self.ask("PATCH", f"{NODES}/{name}", note)


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.", time.gmtime()) + f"{time.time_ns() // 1000 % 10**6:06d}Z"


def pod(at: int, nodes: list[str]) -> dict[str, object]:
    """With as much in it as a pod has: some 6 KiB when the API server has filled it in."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"app-{at % 500}", "uid": f"u-{at % 500}"}
    env = [{"name": f"SETTING_{each}", "value": "x" * 60} for each in range(30)]
    main = {"name": "main", "image": "registry.example/app:1", "env": env}
    labels = {"app": f"app-{at % 500}", "pod-template-hash": f"{at % 500:08x}"}
    return {
        "metadata": {
            "name": f"app-{at % 500}-{at}",
            "labels": labels,
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {"nodeName": nodes[at % len(nodes)], "containers": [main, {**main, "name": "side"}]},
    }


async def requests(link: ApiClient) -> float:
    """All that the API server has answered, by its own count; watches count when they end."""
    answer = await link.call("GET", "/metrics", seconds_max=CALL_SECONDS, accept="text/plain")
    counted = re.findall(rb"^apiserver_request_total\{([^}]*)\} (\S+)$", answer.body, re.MULTILINE)
    internal = (b'verb="WATCH"', b',resource=""')
    return sum(float(value) for labels, value in counted if not any(each in labels for each in internal))


def memory_mib(pid: int) -> tuple[float, float]:
    """Resident now, and at its peak."""
    text = Path(f"/proc/{pid}/status").read_text()
    found = {name: int(kib) / 1024 for name, kib in re.findall(r"^(VmRSS|VmHWM):\s+(\d+) kB$", text, re.M)}
    return found["VmRSS"], found["VmHWM"]


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def leads(link: ApiClient) -> bool:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/ebbtide-outage"
    return (await link.call("GET", path, seconds_max=CALL_SECONDS)).ok


async def measure(bed: Bed, options: argparse.Namespace) -> dict[str, object]:
    rights = bed.secrets.kubeconfig(ADMIN, bed.server, "storm")
    figures: dict[str, object] = {"nodes": options.nodes, "pods": options.pods, "out": options.out}
    async with linked(rights) as link, trio.open_nursery() as nursery:
        cluster = Cluster(link, options.nodes)
        await cluster.ask("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        with suppress(AssertionError):
            await cluster.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "kube-node-lease"}})
        say(f"making {options.nodes} nodes and {options.pods} pods")
        await cluster.all(cluster.register, iter(cluster.names))
        nursery.start_soon(cluster.renew)
        await cluster.all(cluster.make_pod, iter(range(options.pods)))
        with tempfile.TemporaryDirectory() as folder:
            configuration, log = Path(folder, "outage.yaml"), Path(folder, "log")
            configuration.write_text(CONFIGURATION)
            argv = [sys.executable, "-c", "from ebbtide.cli import main; main()", "outage", "run"]
            argv += ["--config", str(configuration), "--kubeconfig", str(rights), "--replica", "storm"]
            with log.open("wb") as written:
                process = await trio.lowlevel.open_process(argv, stdout=written, stderr=written)
            try:
                while not await leads(link):
                    await trio.sleep(0.2)
                await trio.sleep(IDLE_SECONDS)
                before = processor_seconds(process.pid)
                await trio.sleep(IDLE_SECONDS)
                figures["idle_percent"] = 100 * (processor_seconds(process.pid) - before) / IDLE_SECONDS
                figures["idle_mib"], figures["peak_mib"] = memory_mib(process.pid)
                say(json.dumps(figures))
                await storm(cluster, link, options, figures)
                figures["storm_mib"], figures["storm_peak_mib"] = memory_mib(process.pid)
            finally:
                process.kill()
                await process.wait()
                say(f"{log.read_text()[-1000:]}\nended: {process.returncode}")
        nursery.cancel_scope.cancel()
    return figures


async def storm(
    cluster: Cluster, link: ApiClient, options: argparse.Namespace, figures: dict[str, object]
) -> None:
    """The rate of each ten seconds; how many Nodes are tainted at each moment; all of them on record."""
    await cluster.die(cluster.names[: options.out])
    rates, tainted = [], []
    ends = trio.current_time() + options.seconds
    counted, ours, at = await requests(link), cluster.asked, trio.current_time()
    while trio.current_time() < ends:
        await trio.sleep(10)
        found, asked, then = await requests(link), cluster.asked, trio.current_time()
        # Our own look at the metrics is one of them.
        rates.append(round(((found - counted) - (asked - ours) - 1) / (then - at), 1))
        counted, ours, at = found, asked, then
        answer = await link.call("GET", f"{NODES}?limit=1000", seconds_max=CALL_SECONDS)
        cluster.asked += 1
        items = json.loads(answer.body)["items"]
        keys = [{each["key"] for each in item["spec"].get("taints", [])} for item in items]
        tainted.append(sum("node.kubernetes.io/out-of-service" in each for each in keys))
        say(f"{rates[-1]:6.1f} requests a second, {tainted[-1]} nodes out of service")
    path = f"/api/v1/namespaces/{NAMESPACE}/configmaps?limit=5000"
    answer = await link.call("GET", path, seconds_max=CALL_SECONDS)
    uids = {
        each["metadata"].get("labels", {}).get("ebbtide.dev/node-uid")
        for each in json.loads(answer.body)["items"]
    }
    figures |= {
        "requests_a_second": rates,
        "out_of_service": tainted,
        "journals": len(uids & {cluster.uids[name] for name in cluster.names[: options.out]}),
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for name, default in (("nodes", 1000), ("pods", 30000), ("out", 100), ("seconds", 120)):
        options.add_argument(f"--{name}", type=int, default=default)
    parsed = options.parse_args()
    with made_bed() as bed:
        trio.run(bring_api_up, bed)
        figures = trio.run(measure, bed, parsed)
    say(json.dumps(figures))
    if parsed.nodes == 1000 and parsed.pods == 30000:
        Path(__file__).with_name("results").joinpath("storm.json").write_text(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()

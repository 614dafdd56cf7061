"""This node's pods: the store, its disk cache, static manifests, and the stored fields of an object."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from hypothesis import given

from ebbtide.actors.edges.kubernetes import known_pods
from ebbtide.actors.edges.kubernetes.known_pods import (
    LAST_ENDS_MAX,
    TAINT_KEY,
    KnownPod,
    PodCache,
    PodObject,
    PodStore,
    project_pod,
    read_manifests,
)
from ebbtide.actors.interfaces import Ending
from ebbtide.events import bounds
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.decisions import WithdrawPods
from ebbtide.events.facts import ApiRead
from ebbtide.events.files import write_atomically
from ebbtide.events.values import Deletion
from tests.actors.edges.kubernetes import objects
from tests.actors.edges.kubernetes.rig import NODE, Rig, running
from tests.actors.edges.test_documents import merge_keys
from tests.waiting import WATCHDOG_SECONDS, until


def pod(uid: str, **fields: Any) -> KnownPod:
    return KnownPod(**{"uid": uid, "api_uid": f"api-{uid}", "namespace": "default", "name": uid} | fields)


def silent(level: int, line: str) -> None:
    raise AssertionError(line)


# --- the store


def mirror(uid: str, api_uid: str, **fields: Any) -> KnownPod:
    return pod(uid, **{"api_uid": api_uid, "static": True, "name": api_uid} | fields)


def test_a_pod_that_is_being_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Since the change that shows it, else by the wall clock, whatever the cache had; a mirror's deletion is
    none.
    """
    wall_ns, now_ns = 1_000_000 * NS_PER_SECOND, 500 * NS_PER_SECOND
    monkeypatch.setattr(known_pods.time, "time_ns", lambda: wall_ns)
    monkeypatch.setattr(known_pods.time, "monotonic_ns", lambda: now_ns)
    store = PodStore()
    going = {"deleted_by_ns": wall_ns + 3 * NS_PER_SECOND, "deletion_seconds": 8}
    stale = Deletion(since_ns=7, grace_seconds=8)
    listed = pod("listed", **going, deletion=stale)
    store.replace([pod("web"), listed, mirror("etcd", "mirror", **going)], "1")
    store.put(pod("web", **going))
    found = {uid: each.deletion for uid in ("web", "listed", "etcd") if (each := store.find(uid)) is not None}
    assert found["web"] == Deletion(since_ns=now_ns, grace_seconds=8)
    assert found["listed"] == Deletion(since_ns=now_ns - 5 * NS_PER_SECOND, grace_seconds=8)
    assert found["etcd"] is None
    # Deleted again with less grace.
    store.put(pod("web", deleted_by_ns=wall_ns, deletion_seconds=2))
    again = store.find("web")
    assert again is not None
    assert again.deletion == Deletion(since_ns=now_ns, grace_seconds=2)


def test_a_pod_goes_before_who_claims_to_mirror_it() -> None:
    """A pod's UID is its own, whatever claims it, in any order, in lists and in the cache."""
    real, claim = pod("web", api_uid="web", grace_seconds=300), mirror("web", "claim", grace_seconds=1)
    for shown in ([real, claim], [claim, real]):
        store = PodStore()
        store.restore(shown)
        assert (store.find("web"), store.pods()) == (real, [real])
        store.replace(shown, "5")
        assert (store.find("web"), store.pods()) == (real, [real])
        store = PodStore()
        for each in shown:
            store.put(each)
        assert (store.find("web"), store.pods()) == (real, [real])
        store.remove(claim)
        assert store.find("web") == real


def test_what_a_pods_object_went_with_is_known_for_a_while() -> None:
    """Exit codes of the object's last state; none from a false mirror."""
    store = PodStore()
    real, claim = pod("web", api_uid="web"), mirror("web", "claim")
    store.replace([real, claim], "5")
    store.remove(msgspec.structs.replace(claim, ended={"main": 3}))
    assert store.exit_code("web", "main") is None
    store.remove(msgspec.structs.replace(real, ended={"main": 0}))
    assert (store.find("web"), store.exit_code("web", "main")) == (None, 0)
    for number in range(LAST_ENDS_MAX):
        store.put(pod(str(number)))
        store.remove(pod(str(number), ended={"main": 1}))
    assert (store.exit_code("web", "main"), store.exit_code("0", "main")) == (None, 1)


def test_of_two_mirrors_the_kubelets() -> None:
    """A pod creator cannot write statuses: only the kubelet can."""
    true, claim = mirror("hash", "true", phase="Running"), mirror("hash", "claim", phase="Pending")
    for shown in ([true, claim], [claim, true]):
        store = PodStore()
        store.replace(shown, "5")
        assert (store.find("hash"), store.pods()) == (true, [true])


def test_a_static_pods_name_is_a_mirrors() -> None:
    """A static pod's name alone is no proof; the manifest counts."""
    store = PodStore()
    manifest = pod("", name="api-node-1", api_uid="", static=True)
    store.set_manifests([manifest])
    store.put(pod("web", name="api-node-1", api_uid="web"))
    assert store.find_named("default", "api-node-1") == manifest


# --- the cache


@pytest.fixture(autouse=True)
def _wide_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        bounds, "now", bounds.Bounds(last_write_seconds=WATCHDOG_SECONDS, awake_seconds=WATCHDOG_SECONDS)
    )
    monkeypatch.setattr(known_pods, "GATHER_SECONDS", 0.01)
    monkeypatch.setattr(known_pods, "REST_SECONDS", 0.01)


@asynccontextmanager
async def followed(cache: PodCache, store: PodStore) -> AsyncIterator[None]:
    """Runs the store; at the end it writes the changes."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cache.follow, store)
        await trio.testing.wait_all_tasks_blocked()
        yield
        nursery.cancel_scope.cancel()


async def test_it_is_there_after_a_restart(tmp_path: Path) -> None:
    """The next daemon of this node reads the cache; a daemon of another node does not."""
    store = PodStore()
    one = pod("one", priority=5, ended={"main": 3}, sidecars=("s",))
    async with followed(PodCache(tmp_path, NODE, silent), store):
        store.replace([one], "5")
    assert PodCache(tmp_path, NODE, silent).load() == [one]
    assert PodCache(tmp_path, "node-2", silent).load() == []
    assert (tmp_path / "pods.json").stat().st_mode & 0o777 == 0o600


async def test_a_disk_that_refuses(tmp_path: Path) -> None:
    """One message; no other effect."""
    (tmp_path / "file").write_text("")
    told: list[str] = []
    store = PodStore()
    cache = PodCache(tmp_path / "file", NODE, lambda level, line: told.append(line))
    async with followed(cache, store):
        store.put(pod("one"))
        await until(lambda: told, "the write fails")
        store.put(pod("two"))
    assert len(told) == 1
    assert "knows no priorities" in told[0]


async def test_a_disk_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shared threads stay free, and a late write never replaces a newer one."""
    free, held = threading.Event(), threading.Event()

    def slow(*arguments: Any, **more: Any) -> None:
        held.set()
        free.wait()
        write_atomically(*arguments, **more)

    monkeypatch.setattr(known_pods, "write_atomically", slow)
    monkeypatch.setattr(bounds, "now", bounds.Bounds(last_write_seconds=0.05))
    store, cache = PodStore(), PodCache(tmp_path, NODE, silent)
    try:
        async with followed(cache, store):
            store.put(pod("one"))
            await until(held.is_set, "the disk has it")
            store.put(pod("two"))
        assert trio.to_thread.current_default_thread_limiter().borrowed_tokens == 0
        assert cache.threads.borrowed_tokens == 1
    finally:
        free.set()


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe", b'{"version":2,"node":"node-1","pods":[]}', b'{"version":1}', b"[" * 9000],
)
def test_a_file_of_no_use(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "pods.json").write_bytes(content)
    assert PodCache(tmp_path, NODE, silent).load() == []


# --- manifests

MANIFEST = """
apiVersion: v1
kind: Pod
metadata:
  name: etcd
  namespace: kube-system
  annotations: {since: 2026-01-01}
spec:
  hostNetwork: true
  priorityClassName: system-node-critical
  containers:
  - name: etcd
    command: [etcd]
"""


def test_manifests(tmp_path: Path) -> None:
    """Static pods get their mirrors' names and their class's priority. All else is skipped: also a FIFO, a
    merge bomb and binary data.
    """
    os.mkfifo(tmp_path / "a.yaml")
    (tmp_path / "b.yaml").write_text(merge_keys(40_000))
    (tmp_path / "c.yaml").write_bytes(b"\xff")
    (tmp_path / "etcd.yaml").write_text(MANIFEST)
    (tmp_path / "plain.json").write_text(json.dumps({"metadata": {"name": "plain"}, "spec": {"priority": 3}}))
    (tmp_path / ".hidden.yaml").write_text(MANIFEST)
    (tmp_path / "broken.yaml").write_text("a: [")
    (tmp_path / "list.yaml").write_text("- 1")
    (tmp_path / "folder").mkdir()
    etcd, plain = read_manifests(tmp_path, "Node-1")
    assert (etcd.namespace, etcd.name, etcd.priority) == ("kube-system", "etcd-node-1", 2_000_001_000)
    assert (etcd.priority_assigned, plain.priority_assigned) == (True, False)
    assert etcd.static
    assert etcd.host_network
    assert etcd.containers == ("etcd",)
    assert (plain.namespace, plain.name, plain.priority) == ("default", "plain-node-1", 3)
    assert read_manifests(tmp_path / "plain.json", "node-1") == [plain]
    assert read_manifests(tmp_path / "nothing", "node-1") == []


# --- the edge without an API server


async def test_no_api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an API, manifests and the cache answer; orders fail at once."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    store = PodStore()
    async with followed(PodCache(tmp_path, NODE, silent), store):
        store.put(pod("one", priority=4))
    folder = tmp_path / "manifests"
    folder.mkdir()
    (folder / "etcd.yaml").write_text(MANIFEST)
    async with running(None, tmp_path, folder) as rig:
        await until(lambda: rig.names() == [f"etcd-{NODE}", "one"], "manifests and the cache")
        (said,) = await rig.outbox.wait_for(ApiRead, reachable=False)
        assert "no kubeconfig" in said.error
        assert (rig.edge.pods.expecting, rig.edge.pods.untold) == (False, said.error)
        ending = await rig.edge.adopt(WithdrawPods(key="k", uids=("one",)), rig.outbox)
        assert ending == Ending("failed", said.error)


async def test_an_order_before_it_is_awake(tmp_path: Path) -> None:
    """An order of a running shutdown wakes the edge and waits no longer than allowed."""
    path = tmp_path / "kubeconfig"
    path.write_text("{")
    rig = Rig(path, tmp_path)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.edge.run, rig.outbox)
        assert await rig.edge.adopt(WithdrawPods(key="k", uids=("one",)), rig.outbox) is not None
        nursery.cancel_scope.cancel()
    assert any("kubeconfig" in line for line in rig.told)


async def test_what_may_still_come(tmp_path: Path) -> None:
    """Wait for the first list and the manifests."""
    store = PodStore()
    store.restore([pod("one", priority=4)])
    assert store.untold == known_pods.NOT_LISTED_YET
    store.replace([], "7")
    assert store.untold == ""
    assert Rig(None, tmp_path, manifests=tmp_path).edge.pods.expecting
    assert not Rig(None, tmp_path).edge.pods.expecting


# --- the client's package


def test_light() -> None:
    """The light part loads neither client nor asyncio nor YAML; the client loads without its models."""
    script = """
import sys
import ebbtide.actors.edges.kubernetes.api_edge
heavy = {"kubernetes", "aiohttp", "asyncio", "yaml", "trio_asyncio"} & set(sys.modules)
assert not heavy, heavy
from ebbtide.actors.edges.kubernetes import api_client as ours
client = ours.load_client()
assert not [name for name in sys.modules if name.split(".")[0] == "kubernetes"]
assert client.rest.__module__ == "kubernetes.aio.client.rest"
"""
    subprocess.run([sys.executable, "-c", script], check=True)


MIRROR, SOURCE = "kubernetes.io/config.mirror", "kubernetes.io/config.source"


def seen(**parts: Any) -> KnownPod:
    return project_pod(msgspec.json.decode(json.dumps(parts), type=PodObject))


@given(objects.pods)
def test_any_pod(pod: dict[str, Any]) -> None:
    """Each pod has a projection that agrees with the object, and the cache reads back what it wrote."""
    found, spec, meta = seen(**pod), pod["spec"], pod["metadata"]
    assert (found.api_uid, found.name, found.namespace) == (meta["uid"], meta["name"], meta["namespace"])
    assert found.priority == spec.get("priority")
    assert found.grace_seconds == spec.get("terminationGracePeriodSeconds")
    assert found.containers == tuple(each["name"] for each in spec["containers"])
    assert found.deleting == ("deletionTimestamp" in meta)
    assert msgspec.json.decode(msgspec.json.encode(found), type=KnownPod) == found


def test_nothing_secret() -> None:
    """No environment, annotation or image is stored."""
    pod = {
        "metadata": {"name": "a", "uid": "u", "annotations": {"note": "SECRET"}, "labels": {"x": "SECRET"}},
        "spec": {"containers": [{"name": "c", "image": "SECRET", "env": [{"name": "A", "value": "SECRET"}]}]},
    }
    assert b"SECRET" not in msgspec.json.encode(seen(**pod))


OF_NODE = {"kind": "Node", "name": "Node-1", "controller": True}


def mirrored(name: str = "etcd-node-1", owner: dict[str, Any] = OF_NODE, **annotations: str) -> KnownPod:
    noted = {MIRROR: "hash", SOURCE: "file"} | {
        f"kubernetes.io/config.{k}": v for k, v in annotations.items()
    }
    meta = {"name": name, "uid": "api", "annotations": noted, "ownerReferences": [owner]}
    return seen(metadata=meta, spec={})


@pytest.mark.parametrize(
    "found",
    [
        mirrored(source="api"),
        mirrored(name="etcd"),
        mirrored(name="etcd-node-2"),
        mirrored(owner={"kind": "ReplicaSet", "name": "node-1", "controller": True}),
        mirrored(mirror=""),
    ],
)
def test_a_mirror_that_no_kubelet_has_made(found: KnownPod) -> None:
    """A mirror without a kubelet describes only itself, and no kubelet runs it."""
    assert (found.uid, found.static) == ("api", True)


@pytest.mark.parametrize(
    ("kind", "name", "labels", "owner", "daemon"),
    [
        ("ReplicaSet", "web-7d9f", {"pod-template-hash": "7d9f"}, "Deployment/web", False),
        ("ReplicaSet", "web-7d9f", {}, "ReplicaSet/web-7d9f", False),
        ("ReplicaSet", "web", {"pod-template-hash": "7d9f"}, "ReplicaSet/web", False),
        ("StatefulSet", "db", {}, "StatefulSet/db", False),
        ("DaemonSet", "logs", {}, "DaemonSet/logs", True),
        ("Job", "once", {}, "Job/once", False),
    ],
)
def test_owners(kind: str, name: str, labels: dict[str, str], owner: str, daemon: bool) -> None:
    """The owner is the top workload; only controlling owners count."""
    owners = [{"kind": "Other", "name": "x"}, {"kind": kind, "name": name, "controller": True}]
    found = seen(metadata={"labels": labels, "ownerReferences": owners}, spec={})
    assert (found.owner, found.daemon) == (owner, daemon)


def tolerating(**fields: str) -> dict[str, Any]:
    return {"tolerations": [fields]}


def holding(kind: str) -> dict[str, Any]:
    return {"volumes": [{"name": "v", kind: {}}]}


@pytest.mark.parametrize(
    ("spec", "field", "value"),
    [
        # The Node's taint: a DaemonSet makes such a pod again there.
        (tolerating(operator="Exists"), "tolerates_all", True),
        (tolerating(operator="Exists", effect="NoSchedule"), "tolerates_all", True),
        (tolerating(operator="Exists", effect="NoExecute"), "tolerates_all", False),
        (tolerating(operator="Exists", key="node.kubernetes.io/unschedulable"), "tolerates_all", False),
        (tolerating(operator="Equal", key="a", value="b"), "tolerates_all", False),
        (tolerating(operator="Exists", key=TAINT_KEY), "tolerates_all", True),
        (tolerating(key=TAINT_KEY, effect="NoSchedule"), "tolerates_all", True),
        (tolerating(operator="Equal", key=TAINT_KEY, value="b"), "tolerates_all", False),
        (tolerating(operator="Exists", key=TAINT_KEY, effect="NoExecute"), "tolerates_all", False),
        # Another node may wait for the unmount.
        (holding("persistentVolumeClaim"), "volumes", True),
        (holding("csi"), "volumes", True),
        (holding("ephemeral"), "volumes", True),
        (holding("configMap"), "volumes", False),
        (holding("projected"), "volumes", False),
        (holding("hostPath"), "volumes", False),
        # The number counts; without one, the system classes have their known values.
        ({"priorityClassName": "system-node-critical"}, "priority", 2_000_001_000),
        ({"priorityClassName": "system-cluster-critical"}, "priority", 2_000_000_000),
        ({"priorityClassName": "mine"}, "priority", None),
        ({"priorityClassName": "system-node-critical", "priority": 5}, "priority", 5),
    ],
)
def test_what_is_kept_of_a_spec(spec: dict[str, Any], field: str, value: object) -> None:
    assert getattr(seen(metadata={"name": "a", "uid": "u"}, spec=spec), field) == value


def test_what_runs_and_what_has_ended() -> None:
    """Running containers and init containers, by runtime ID. The kubelet writes 137 for a container that
    never ran: that is no exit code.
    """
    runs: dict[str, Any] = {"running": {"startedAt": "2026-01-01T00:00:02Z"}}
    unknown = {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown"}}
    statuses = [
        {"name": "a", "containerID": f"cri-o://{'beef' * 16}", "state": runs},
        {"name": "b", "containerID": f"cri-o://{'dead' * 16}", "state": {"terminated": {"exitCode": 3}}},
        {"name": "c", "state": {"waiting": {}}},
        {"name": "never", "state": unknown},
        {"name": "killed", "state": {"terminated": {"exitCode": 137, "reason": "Error"}}},
    ]
    before = {"name": "i", "containerID": f"containerd://{'f0' * 32}", "state": runs}
    status = {"initContainerStatuses": [before], "containerStatuses": statuses}
    found = seen(metadata={"name": "a", "uid": "u"}, status=status)
    assert found.running == {"i": "f0" * 32, "a": "beef" * 16}
    assert found.ended == {"b": 3, "killed": 137}

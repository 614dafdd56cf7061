"""The stored fields of a pod object, each by its rule."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given

from ebbtide.actors.edges.kubernetes.known_pods import KnownPod
from ebbtide.actors.edges.kubernetes.pod_object import PodObject, project_pod, read_manifests
from tests.actors.edges.kubernetes import objects
from tests.actors.edges.test_documents import merge_keys

MIRROR, SOURCE = "kubernetes.io/config.mirror", "kubernetes.io/config.source"


def seen(**parts: Any) -> KnownPod:
    return project_pod(msgspec.json.decode(json.dumps(parts), type=PodObject))


def of_spec(**spec: Any) -> KnownPod:
    return seen(metadata={"name": "a", "uid": "u"}, spec=spec)


@given(objects.pods)
def test_any_pod(pod: dict[str, Any]) -> None:
    """Each pod has a projection that agrees with the object."""
    found = seen(**pod)
    spec = pod["spec"]
    assert (found.api_uid, found.name, found.namespace) == tuple(
        pod["metadata"][key] for key in ("uid", "name", "namespace")
    )
    assert found.priority == spec.get("priority")
    assert found.grace_seconds == spec.get("terminationGracePeriodSeconds")
    assert found.containers == tuple(each["name"] for each in spec["containers"])
    assert found.deleting == ("deletionTimestamp" in pod["metadata"])


@given(objects.pods)
def test_it_is_kept_as_it_is(pod: dict[str, Any]) -> None:
    """The cache reads back the pod that it wrote."""
    found = seen(**pod)
    assert msgspec.json.decode(msgspec.json.encode(found), type=KnownPod) == found


def test_nothing_secret() -> None:
    """No environment, annotation or image is stored."""
    pod = {
        "metadata": {"name": "a", "uid": "u", "annotations": {"note": "SECRET"}, "labels": {"x": "SECRET"}},
        "spec": {"containers": [{"name": "c", "image": "SECRET", "env": [{"name": "A", "value": "SECRET"}]}]},
    }
    assert b"SECRET" not in msgspec.json.encode(seen(**pod))


OF_NODE = {"kind": "Node", "name": "Node-1", "controller": True}


def mirror(name: str = "etcd-node-1", owner: dict[str, Any] = OF_NODE, **annotations: str) -> KnownPod:
    noted = {MIRROR: "hash", SOURCE: "file"} | {
        f"kubernetes.io/config.{k}": v for k, v in annotations.items()
    }
    meta = {"name": name, "uid": "api", "annotations": noted, "ownerReferences": [owner]}
    return seen(metadata=meta, spec={})


@pytest.mark.parametrize(
    "found",
    [
        mirror(source="api"),
        mirror(name="etcd"),
        mirror(name="etcd-node-2"),
        mirror(owner={"kind": "ReplicaSet", "name": "node-1", "controller": True}),
        mirror(mirror=""),
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


@pytest.mark.parametrize(
    ("toleration", "all_of_them"),
    [
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
        ({"operator": "Exists", "key": "node.kubernetes.io/unschedulable"}, False),
        ({"operator": "Equal", "key": "a", "value": "b"}, False),
    ],
)
def test_tolerations(toleration: dict[str, str], all_of_them: bool) -> None:
    """Whether a pod tolerates any NoSchedule taint."""
    assert of_spec(tolerations=[toleration]).tolerates_all is all_of_them


@pytest.mark.parametrize(
    ("kind", "concerns_others"),
    [
        ("persistentVolumeClaim", True),
        ("csi", True),
        ("ephemeral", True),
        ("configMap", False),
        ("projected", False),
        ("hostPath", False),
    ],
)
def test_volumes(kind: str, concerns_others: bool) -> None:
    """Whether another node may wait for this volume's unmount."""
    assert of_spec(volumes=[{"name": "v", kind: {}}]).volumes is concerns_others


@pytest.mark.parametrize(
    ("spec", "number"),
    [
        ({"priorityClassName": "system-node-critical"}, 2_000_001_000),
        ({"priorityClassName": "system-cluster-critical"}, 2_000_000_000),
        ({"priorityClassName": "mine"}, None),
        ({"priorityClassName": "system-node-critical", "priority": 5}, 5),
    ],
)
def test_classes(spec: dict[str, Any], number: int | None) -> None:
    """The number counts; without one, the system classes have their known values."""
    assert of_spec(**spec).priority == number


def test_what_runs() -> None:
    """Running containers and init containers, by runtime ID."""
    runs: dict[str, Any] = {"running": {"startedAt": "2026-01-01T00:00:02Z"}}
    found = seen(
        metadata={"name": "a", "uid": "u"},
        status={
            "initContainerStatuses": [
                {"name": "i", "containerID": f"containerd://{'f0' * 32}", "state": runs}
            ],
            "containerStatuses": [
                {"name": "a", "containerID": f"cri-o://{'beef' * 16}", "state": runs},
                {
                    "name": "b",
                    "containerID": f"cri-o://{'dead' * 16}",
                    "state": {"terminated": {"exitCode": 3}},
                },
                {"name": "c", "state": {"waiting": {}}},
            ],
        },
    )
    assert found.running == {"i": "f0" * 32, "a": "beef" * 16}


def test_what_stands_among_the_static_pods(tmp_path: Path) -> None:
    """A FIFO, a merge bomb and binary data are skipped; the other manifests are read."""
    os.mkfifo(tmp_path / "a.yaml")
    (tmp_path / "b.yaml").write_text(merge_keys(40_000))
    (tmp_path / "c.yaml").write_bytes(b"\xff")
    (tmp_path / "d.yaml").write_text("metadata: {name: web, creationTimestamp: 2026-01-01T00:00:00Z}\n")
    assert [each.name for each in read_manifests(tmp_path, "Node-1")] == ["web-node-1"]

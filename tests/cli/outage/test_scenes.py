"""`outage explain` on objects as an API server has them: scenes of real users, made small."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import trio

from ebbtide.actors.edges.kubernetes.api_calls import Answer
from ebbtide.cli.common.guard import Refused
from ebbtide.cli.outage.outage_common import Cluster
from ebbtide.cli.outage.outage_explain import attachment_text, explanation, gather

Object = dict[str, Any]
PLACES = {
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/namespaces/d/pods",
    "PersistentVolumeClaim": "/api/v1/namespaces/d/persistentvolumeclaims",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "VolumeAttachment": "/apis/storage.k8s.io/v1/volumeattachments",
}
SHUTDOWN = {"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"}


class Objects:
    """`ApiCaller` over plain objects."""

    def __init__(self, objects: list[Object]) -> None:
        self._objects = {f"{PLACES[each['kind']]}/{each['metadata']['name']}": each for each in objects}

    async def call(self, method: str, path: str, **more: object) -> Answer:
        url = urlsplit(path)
        if url.path in self._objects:
            return Answer(200, json.dumps(self._objects[url.path]).encode())
        found = [each for place, each in self._objects.items() if place.startswith(f"{url.path}/")]
        if url.path == "/api/v1/pods":
            (selector,) = parse_qs(url.query)["fieldSelector"]
            pods = [each for each in self._objects.values() if each["kind"] == "Pod"]
            found = [each for each in pods if each["spec"]["nodeName"] == selector.partition("=")[2]]
        elif url.path not in PLACES.values():
            return Answer(404, b"{}")
        return Answer(200, json.dumps({"metadata": {}, "items": found}).encode())


def ago(seconds: int) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()


def node(name: str, ready: str = "True", *taints: Object, provider: str = "") -> Object:
    status = {"conditions": [{"type": "Ready", "status": ready}], "nodeInfo": {"bootID": "b"}}
    meta = {"name": name, "uid": f"u-{name}"}
    spec = {"taints": list(taints), "providerID": provider}
    return {"kind": "Node", "metadata": meta, "spec": spec, "status": status}


def pod(on: str, *, ready: bool = False) -> Object:
    waiting = {"waiting": {"reason": "ContainerCreating"}}
    return {
        "kind": "Pod",
        "metadata": {"name": "db-0", "namespace": "d", "uid": f"p-{on}"},
        "spec": {
            "nodeName": on,
            "containers": [{"name": "c", "image": "x"}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
        },
        "status": {
            "phase": "Running" if ready else "Pending",
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "containerStatuses": [{"name": "c", "state": {} if ready else waiting}],
        },
    }


def attachment(on: str, *, deleted: bool = False, **status: object) -> Object:
    finalizers = ["external-attacher/csi-example"]
    meta: Object = {"name": f"csi-{on}", "uid": f"a-{on}", "finalizers": finalizers}
    meta |= {"deletionTimestamp": ago(120)} if deleted else {}
    spec = {"attacher": "csi.example", "nodeName": on, "source": {"persistentVolumeName": "pv"}}
    return {"kind": "VolumeAttachment", "metadata": meta, "spec": spec, "status": status}


CLAIM: Object = {
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "data", "namespace": "d"},
    "spec": {"volumeName": "pv"},
}
VOLUME: Object = {
    "kind": "PersistentVolume",
    "metadata": {"name": "pv", "uid": "v"},
    "spec": {
        "csi": {"driver": "csi.example", "volumeHandle": "h"},
        "claimRef": {"namespace": "d", "name": "data"},
    },
    "status": {"phase": "Bound"},
}
BOUND = [CLAIM, VOLUME, pod("new"), node("new")]
NOT_READY: Object = {"message": "the volume is not ready for workloads"}
NO_MACHINE: Object = {"message": "InstanceNotFound"}

ELSEWHERE = "0/2 nodes are available: 1 node(s) had volume node affinity conflict."
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": ELSEWHERE}
UNPLACED: Object = {**pod("")}
UNPLACED["status"] = {"phase": "Pending", "conditions": [UNSCHEDULABLE]}
SHARED: Object = {**VOLUME, "spec": {**VOLUME["spec"], "accessModes": ["ReadWriteMany"]}}
TAINTED = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute", "timeAdded": ago(600)}
#: Long: a slow machine runs the test minutes after `TAINTED` was made.
FOR_A_MONTH = {"key": TAINTED["key"], "operator": "Exists", "tolerationSeconds": 61 * 12 * 3600}
PATIENT: Object = {**pod("old", ready=True)}
PATIENT["spec"] = {**PATIENT["spec"], "tolerations": [FOR_A_MONTH]}

#: The subject, the objects, the causes' codes, and words that the text has, and has not.
SCENES: dict[str, tuple[str, list[Object], list[str], list[str], list[str]]] = {
    "its volume is in another zone": (
        "d/db-0",
        [CLAIM, VOLUME, UNPLACED, node("new"), node("old", "Unknown", TAINTED)],
        ["not-ready"],
        ["had volume node affinity conflict", "start a new one in that zone"],
        ["kubectl describe"],
    ),
    "a volume that several nodes may have": (
        "d/db-0",
        [CLAIM, SHARED, pod("new"), node("new"), node("old", "Unknown"), attachment("old", attached=True)],
        ["not-ready"],
        ["the kubelet of new starts it"],
        ["explain old"],
    ),
    "it tolerates the taint for a month": (
        "old",
        [PATIENT, node("old", "Unknown", TAINTED)],
        ["tolerates"],
        ["which ends in 30 d 11 h", "delete it yourself: kubectl delete pod -n d db-0"],
        ["wait some seconds"],
    ),
    "attach-error": (
        "d/db-0",
        [*BOUND, attachment("new", attached=False, attachError=NOT_READY)],
        ["attach-refused", "not-ready"],
        ["pv is not attached to new yet: the volume is not ready for workloads", "the attacher's log"],
        ["attached;"],
    ),
    "attaching": (
        "d/db-0",
        [*BOUND, attachment("new", attached=False)],
        ["attaching", "not-ready"],
        ["pv is not attached to new yet"],
        [],
    ),
    "the node of the attachment is gone": (
        "d/db-0",
        [*BOUND, attachment("old", attached=True)],
        ["attached-to-gone", "not-ready"],
        ["old, a Node that does not exist any more", "six minutes", "delete volumeattachment csi-old"],
        ["explain old"],
    ),
    "asked about the gone node": (
        "old",
        [*BOUND, attachment("old", attached=True)],
        ["node-gone", "attached-to-gone"],
        ["pv is still attached to old, a Node that does not exist any more"],
        [],
    ),
    "its driver does not find the machine": (
        "d/db-0",
        [*BOUND, attachment("old", deleted=True, attached=True, detachError=NO_MACHINE)],
        ["driver-refuses", "not-ready"],
        ["does not exist any more: its driver refuses: InstanceNotFound", "patch volumeattachment csi-old"],
        ["explain old"],
    ),
    "a pod of the gone node": (
        "d/db-0",
        [CLAIM, VOLUME, pod("old"), attachment("old", attached=True)],
        ["node-gone", "attached-to-gone"],
        ["pv is still attached to old, a Node that does not exist any more"],
        ["waits for"],
    ),
    "the other node is there": (
        "d/db-0",
        [*BOUND, node("old"), attachment("old", attached=True)],
        ["attached-elsewhere", "not-ready"],
        ["ebbtide outage explain old"],
        ["does not exist"],
    ),
    "two nodes share a volume": (
        "d/db-0",
        [CLAIM, VOLUME, pod("new", ready=True), node("new"), node("old"), attachment("old", attached=True)],
        ["nothing-hangs"],
        [],
        ["waits"],
    ),
    "the cloud's taint": (
        "off",
        [node("off", "Unknown", SHUTDOWN, provider="openstack:///1"), pod("off")],
        ["node-down", "not-deleted"],
        ["shutdown is a proof if a leading controller saw it", "make sure", "once the machine is off"],
        ["a proof already"],
    ),
    "a cloud's taint that may come early": (
        "off",
        [node("off", "Unknown", SHUTDOWN, provider="azure:///1"), pod("off")],
        ["node-down", "not-deleted"],
        ["declare off", "make sure"],
        ["a proof already"],
    ),
}


@pytest.mark.parametrize(("subject", "objects", "codes", "said", "unsaid"), SCENES.values(), ids=SCENES)
def test_scene(
    subject: str, objects: list[Object], codes: list[str], said: list[str], unsaid: list[str]
) -> None:
    caller: Any = Objects(objects)
    found = explanation(trio.run(gather, Cluster(caller), subject, "ebbtide"))
    assert [each.code for each in found.causes] == codes
    text = "\n".join(line for each in found.causes for line in (each.text, *each.do))
    text += "\n".join(map(attachment_text, found.attachments))
    assert [each for each in said if each not in text] == []
    assert [each for each in unsaid if each in text] == []


def test_a_name_without_any_object_is_refused() -> None:
    caller: Any = Objects(BOUND)
    with pytest.raises(Refused, match="there is no Node old, and no pod or volume on it"):
        trio.run(gather, Cluster(caller), "old", "ebbtide")

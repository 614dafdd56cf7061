"""Workloads that write their node's name into their volume each second.

The lines detect the forbidden case: a node still writes after another one started.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tests.node.client import Object
from tests.node.csi.storage import claim
from tests.node.image import IMAGE

APPS = "/apis/apps/v1/namespaces/default"
STATEFUL_SETS, DEPLOYMENTS = f"{APPS}/statefulsets", f"{APPS}/deployments"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
#: A line has the event, the node, and the Unix time.
WRITER = (
    "trap 'exit 0' TERM; note() { echo $1 $NODE $(date +%s) >> /data/$FILE; }; note begin; "
    "while :; do note beat; sleep 1 & wait $!; done"
)
GRACE_SECONDS = 5
EVERYTHING = [{"operator": "Exists"}]


def template(app: str, file: str, volumes: list[Object], *, deaf: bool = False, **spec: Any) -> Object:
    """``file``: in the volume; shared by successors, else the pod's own name. ``deaf``: only SIGKILL ends
    it.
    """
    environ = [
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "FILE", "value": file}
        if file
        else {"name": "FILE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]
    main = {
        "name": "main",
        "image": IMAGE,
        "command": ["/bin/sh", "-c", WRITER.replace("exit 0", "") if deaf else WRITER],
        "env": environ,
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    fields = {"containers": [main], "terminationGracePeriodSeconds": GRACE_SECONDS, "volumes": volumes}
    return {"metadata": {"labels": {"app": app}}, "spec": fields | spec}


def stateful_set(name: str = "web", **spec: Any) -> Object:
    """One pod with its own claim; ``spec`` overrides the pod's."""
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name},
        "spec": {
            "serviceName": name,
            "selector": {"matchLabels": {"app": name}},
            "template": template(name, "log", [], **spec),
            "volumeClaimTemplates": [claim()],
        },
    }


def deployment(name: str, used: str, replicas: int = 1, *, shared: bool = False, **spec: Any) -> Object:
    """On the claim ``used``. ``shared``: parallel writers, a file each."""
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": used}}]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": template(name, "" if shared else "log", volumes, **spec),
        },
    }


def bare_pod(name: str, used: str, **spec: Any) -> Object:
    made = template(name, "log", [{"name": "data", "persistentVolumeClaim": {"claimName": used}}], **spec)
    return {"apiVersion": "v1", "kind": "Pod", **made, "metadata": {"name": name} | made["metadata"]}


def foreign_writes(written: Mapping[str, Iterable[str]]) -> int:
    """Lines by a node after another one had started to write the same file."""
    found = 0
    for lines in written.values():
        writer = ""
        for line in lines:
            what, node, _ = line.split()
            if what == "begin":
                writer = node
            found += node != writer
    return found

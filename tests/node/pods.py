"""Pod manifests in one line, and waiting for pods."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from tests.node.bed import Bed
from tests.node.client import Object, condition
from tests.node.image import IMAGE
from tests.node.parts import MANIFESTS, Member

PODS = "/api/v1/namespaces/default/pods"
#: Created kinds, by API path.
KINDS = (
    "/apis/apps/v1/namespaces/default/deployments",
    "/apis/apps/v1/namespaces/default/daemonsets",
    "/apis/batch/v1/namespaces/default/jobs",
    PODS,
)
#: Ends at once on SIGTERM.
OBEDIENT = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"
#: Only SIGKILL ends it.
STUBBORN = "trap '' TERM; while :; do sleep 1; done"


def container(script: str = OBEDIENT, name: str = "main", **fields: Any) -> Object:
    return {"name": name, "image": IMAGE, "command": ["/bin/sh", "-c", script], **fields}


def pod(name: str, node: str = "", script: str = OBEDIENT, **spec: Any) -> Object:
    """A pod on that node without the scheduler; empty: any node. ``spec`` overrides."""
    placed = {"nodeName": node} if node else {}
    fields = {"containers": [container(script)], "terminationGracePeriodSeconds": 30, **placed, **spec}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": fields,
    }


async def running(bed: Bed, *made: Object) -> list[Object]:
    """Create pods and wait until each is Ready; returns their objects."""
    for each in made:
        await bed.api.post(PODS, each)
    names = [each["metadata"]["name"] for each in made]
    return [await bed.api.until(f"{PODS}/{name}", is_ready) for name in names]


@contextlib.asynccontextmanager
async def static(bed: Bed, member: Member, made: Object) -> AsyncIterator[str]:
    """A Ready static pod for the block; yields its mirror's path."""
    name = made["metadata"]["name"]
    file = bed.place(member.state / MANIFESTS / f"{name}.json")
    file.write_text(json.dumps(made))
    mirror = f"{PODS}/{name}-{member.name}"
    try:
        await bed.api.until(mirror, is_ready)
        yield mirror
    finally:
        file.unlink()


def is_ready(made: Object) -> bool:
    return condition(made, "Ready") == "True"


async def remove_all(bed: Bed) -> None:
    """Delete all objects of those kinds and wait."""
    now = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
    for path in KINDS:
        await bed.api.ask("DELETE", path, now)
    await bed.api.until(PODS, lambda pods: not pods["items"])

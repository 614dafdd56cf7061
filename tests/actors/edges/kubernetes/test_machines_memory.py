"""What a Machine of Cluster API proves of a Node, in virtual time against a scripted server."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

from ebbtide.actors.edges.kubernetes.api_calls import Answer, ApiNode
from ebbtide.actors.edges.kubernetes.node_view import (
    MACHINE_ANNOTATION,
    MACHINE_NAMESPACE_ANNOTATION,
    ClusterView,
    project_node,
)
from ebbtide.actors.edges.proof_sources.proof_source import Machine, Said, Unread
from ebbtide.actors.edges.proof_sources.remediators import (
    EARLIER,
    OTHER_PROVIDER_ID,
    Machines,
    RemediatorSource,
)
from tests.actors.edges.kubernetes.write_fake import Scripted

MACHINE = Machine("worker", "u", "boot-1", "", "test://worker")


class Management:
    """Of one Node, which says what its Machine is called; ``body`` is the Machine."""

    def __init__(self, name: str = "machine-1", **spec: Any) -> None:
        self.body = {"metadata": {"uid": "m"}, "spec": {"providerID": "test://worker", **spec}}
        self.server = Scripted(lambda asked: (0.01, Answer(200, msgspec.json.encode(self.body))))
        self.view = ClusterView()
        self._name, self._version = name, 0
        self.says_life("1")

    def says_life(self, mark: str) -> None:
        """A status of the kubelet's."""
        self._version += 1
        noted = {MACHINE_NAMESPACE_ANNOTATION: "default", MACHINE_ANNOTATION: self._name}
        meta = {"name": "worker", "uid": "u", "resourceVersion": str(self._version), "annotations": noted}
        ready = {"type": "Ready", "status": "Unknown", "lastHeartbeatTime": mark}
        node = {"metadata": meta, "spec": {"providerID": "test://worker"}, "status": {"conditions": [ready]}}
        self.view.nodes.put(project_node(msgspec.convert(node, ApiNode)))

    def says(self, reason: str) -> None:
        condition = {"type": "InfrastructureReady", "status": "False", "reason": reason}
        self.body["status"] = {"nodeInfo": {"bootID": "boot-1"}, "conditions": [condition]}

    def source(self) -> RemediatorSource:
        return RemediatorSource(Machines(self.server, self.view), self.view, "worker")


async def read(source: RemediatorSource) -> Said | None:
    """Once it is the node's turn again."""
    await trio.sleep(60)
    return await source.read(MACHINE)


async def test_only_what_is_said_while_we_look_on_counts(autojump_clock: MockClock) -> None:
    """A Machine's word from before the first look or the last sign of life may be of an earlier boot."""
    made = Management()
    source = made.source()
    for reason in ("NotReady", "InstanceStopped", "ObjectDoesNotExist", "Deleted", "InternalError"):
        made.says(reason)
        assert await read(source) == Said("unknown", error="it has not fenced the machine yet")
    made.says("ObjectDeleted")
    for _ in range(2):
        assert await read(source) == Said("off", "providerID", "test://worker", "boot-1")
    assert await read(made.source()) == Said("unknown", error=EARLIER)
    made.says_life("2")
    assert await read(source) == Said("unknown", error=EARLIER)


@pytest.mark.parametrize("provider_id", ["test://another", ""])
async def test_a_machine_that_is_another_nodes(provider_id: str, autojump_clock: MockClock) -> None:
    """A kubelet writes its Node's annotations, and not the Machine."""
    made = Management(providerID=provider_id)
    made.says("ObjectDeleted")
    with pytest.raises(Unread, match=OTHER_PROVIDER_ID):
        await read(made.source())


@pytest.mark.parametrize("name", ["..", "a/b", ""])
async def test_what_is_no_objects_name_is_not_asked_for(name: str, autojump_clock: MockClock) -> None:
    """Whoever may annotate the Node chooses no path."""
    made = Management(name)
    assert await read(made.source()) is None
    assert made.server.asked == []

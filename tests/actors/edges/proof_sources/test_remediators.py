"""Other remediators in virtual time: request rates and proofs."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

from ebbtide.actors.edges.kubernetes import node_view
from ebbtide.actors.edges.kubernetes.api_calls import Answer, ApiNode
from ebbtide.actors.edges.proof_sources import remediators
from ebbtide.actors.edges.proof_sources.proof_source import Machine, Said, Unread
from tests.actors.edges.kubernetes.write_fake import Asked, Scripted

FAR, _ = remediators.KINDS
#: The reading interval of a node that is not proved off.
READ_EVERY_SECONDS = 5.0
MINUTE_SECONDS = 60.0
#: An API server's answers for an unknown path and an unknown kind.
UNKNOWN_PATHS = [
    b"404 page not found\n",
    b'{"kind":"Status","status":"Failure","reason":"NotFound","details":{},"code":404}',
]


def answering(code: int, body: bytes) -> Scripted:
    return Scripted(lambda asked: (0.02, Answer(code, body)))


def no_such(name: str) -> Answer:
    status = {"kind": "Status", "reason": "NotFound", "details": {"name": name, "kind": "machines"}}
    return Answer(404, msgspec.json.encode(status))


def noted(*names: str) -> node_view.ClusterView:
    """Nodes, with a Machine of the same name each."""
    node = node_view.NodeView("", "u", "1", "b1", "Unknown", "uuid", "test://", "none", (), "")
    view = node_view.ClusterView()
    view.nodes.replace([node._replace(name=each, machine=("default", each)) for each in names], "1")
    return view


def made(caller: Scripted, name: str, view: node_view.ClusterView) -> remediators.Remediator:
    return (
        remediators.Machines(caller, view) if name == "machines" else remediators.Remediations(caller, name)
    )


async def read_for(seconds: float, remediator: remediators.Remediator, nodes: list[str]) -> Counter[str]:
    """Reports per node. The nodes start within the first seconds, one by one."""
    told: Counter[str] = Counter()

    async def read(node: str, after_seconds: float) -> None:
        await trio.sleep(after_seconds)
        while True:
            told[node] += await remediator.of(node) is not None
            await trio.sleep(READ_EVERY_SECONDS)

    with trio.move_on_after(seconds):
        async with trio.open_nursery() as nursery:
            for number, node in enumerate(nodes):
                nursery.start_soon(read, node, number * READ_EVERY_SECONDS / len(nodes))
    return told


def per_second_max(asked: list[Asked], seconds: float) -> float:
    at = [each.at_seconds for each in asked]
    return max(bisect_left(at, first + seconds) - number for number, first in enumerate(at)) / seconds


async def test_a_list_is_for_all_nodes_whenever_they_ask(autojump_clock: MockClock) -> None:
    """A hundred nodes with unaligned readings share the lists."""
    nodes = [f"n-{number}" for number in range(100)]
    server = answering(200, b'{"items": []}')
    told = await read_for(MINUTE_SECONDS, made(server, FAR, node_view.ClusterView()), nodes)
    assert min(told[each] for each in nodes) >= MINUTE_SECONDS / (
        READ_EVERY_SECONDS + 2 * remediators.LIST_EVERY_SECONDS
    )
    assert per_second_max(server.asked, 10.0) <= 1.1 / remediators.LIST_EVERY_SECONDS


async def test_machines_of_many_nodes_are_read_in_turn(autojump_clock: MockClock) -> None:
    """Within our request budget, and no node is forgotten."""
    nodes = [f"n-{number}" for number in range(100)]
    body = b'{"metadata": {"uid": "u"}, "spec": {"providerID": "test://"}}'
    server = answering(200, body)
    round_seconds = len(nodes) / remediators.MACHINES_PER_SECOND
    told = await read_for(4 * round_seconds, made(server, "machines", noted(*nodes)), nodes)
    assert max(told.values()) - min(told[each] for each in nodes) <= 2
    assert min(told[each] for each in nodes) >= 3
    # Some nodes take their turn early, others one reading later.
    shifted = (MINUTE_SECONDS + remediators.TURNS_AHEAD_SECONDS + READ_EVERY_SECONDS) / MINUTE_SECONDS
    assert per_second_max(server.asked, MINUTE_SECONDS) <= remediators.MACHINES_PER_SECOND * shifted


@pytest.mark.parametrize("body", UNKNOWN_PATHS)
async def test_what_is_not_installed_is_looked_for_once_a_minute(
    autojump_clock: MockClock, body: bytes
) -> None:
    """One look per minute, not one per node and reading."""
    nodes = [f"n-{number}" for number in range(100)]
    server = answering(404, body)
    far = made(server, FAR, node_view.ClusterView())
    assert not (await read_for(2.5 * remediators.NOT_INSTALLED_SECONDS, far, nodes)).total()
    # Readings that began before the result ask once more.
    assert len(server.asked) <= 6
    # Installed in the meantime.
    server.behaviour = lambda asked: (0.02, Answer(200, b'{"items": []}'))
    await trio.sleep(remediators.NOT_INSTALLED_SECONDS)
    assert await far.of("n-1") == []


@pytest.mark.parametrize("body", UNKNOWN_PATHS)
async def test_machines_that_are_kept_elsewhere(autojump_clock: MockClock, body: bytes) -> None:
    """The Node names a Machine without Cluster API: reported each time, asked once a minute."""
    server = answering(404, body)
    machines = made(server, "machines", noted("a", "b"))
    for node in ("a", "b", "a"):
        with pytest.raises(Unread) as refused:
            await machines.of(node)
        assert str(refused.value) == remediators.ELSEWHERE
    assert len(server.asked) == 1
    await trio.sleep(remediators.NOT_INSTALLED_SECONDS)
    server.behaviour = lambda asked: (0.02, no_such("a"))
    with pytest.raises(Unread) as refused:
        await machines.of("a")
    assert str(refused.value) == f"{remediators.NOTED} is not there"


async def test_a_machine_that_is_not_there_says_nothing_of_another(autojump_clock: MockClock) -> None:
    """A deleted Machine is no proof, and does not stop the search for the next node's."""
    body = b'{"metadata": {"uid": "u"}, "spec": {"providerID": "test://"}}'
    server = Scripted(lambda asked: (0.02, no_such("a") if asked.path.endswith("/a") else Answer(200, body)))
    machines = made(server, "machines", noted("a", "b"))
    with pytest.raises(Unread, match="is not there"):
        await machines.of("a")
    assert await machines.of("b") is not None


# --- what they prove

MACHINE = Machine("worker", "u", "boot-1", "", "test://worker")


class Management:
    """One Node that names its Machine; ``body`` is the Machine."""

    def __init__(self, name: str = "machine-1", **spec: Any) -> None:
        self.body = {"metadata": {"uid": "m"}, "spec": {"providerID": "test://worker", **spec}}
        self.server = Scripted(lambda asked: (0.01, Answer(200, msgspec.json.encode(self.body))))
        self.view = node_view.ClusterView()
        self._name, self._version = name, 0
        self.says_life("1")

    def says_life(self, mark: str) -> None:
        self._version += 1
        noted = {node_view.MACHINE_NAMESPACE_ANNOTATION: "default", node_view.MACHINE_ANNOTATION: self._name}
        meta = {"name": "worker", "uid": "u", "resourceVersion": str(self._version), "annotations": noted}
        ready = {"type": "Ready", "status": "Unknown", "lastHeartbeatTime": mark}
        node = {"metadata": meta, "spec": {"providerID": "test://worker"}, "status": {"conditions": [ready]}}
        self.view.nodes.put(node_view.project_node(msgspec.convert(node, ApiNode)))

    def says(self, reason: str) -> None:
        condition = {"type": "InfrastructureReady", "status": "False", "reason": reason}
        self.body["status"] = {"nodeInfo": {"bootID": "boot-1"}, "conditions": [condition]}

    def source(self) -> remediators.RemediatorSource:
        return remediators.RemediatorSource(remediators.Machines(self.server, self.view), self.view, "worker")


async def read(source: remediators.RemediatorSource) -> Said | None:
    """Once it is the node's turn again."""
    await trio.sleep(60)
    return await source.read(MACHINE)


async def test_only_what_is_said_while_we_look_on_counts(autojump_clock: MockClock) -> None:
    """A Machine's state from before the first look or the last sign of life may be of an earlier boot."""
    made = Management()
    source = made.source()
    for reason in ("NotReady", "InstanceStopped", "ObjectDoesNotExist", "Deleted", "InternalError"):
        made.says(reason)
        assert await read(source) == Said("unknown", error="it has not fenced the machine yet")
    made.says("ObjectDeleted")
    for _ in range(2):
        assert await read(source) == Said("off", "providerID", "test://worker", "boot-1")
    assert await read(made.source()) == Said("unknown", error=remediators.EARLIER)
    made.says_life("2")
    assert await read(source) == Said("unknown", error=remediators.EARLIER)


@pytest.mark.parametrize("provider_id", ["test://another", ""])
async def test_a_machine_that_is_another_nodes(provider_id: str, autojump_clock: MockClock) -> None:
    """A kubelet writes its Node's annotations, but not the Machine."""
    made = Management(providerID=provider_id)
    made.says("ObjectDeleted")
    with pytest.raises(Unread, match=remediators.OTHER_PROVIDER_ID):
        await read(made.source())


@pytest.mark.parametrize("name", ["..", "a/b", ""])
async def test_what_is_no_objects_name_is_not_asked_for(name: str, autojump_clock: MockClock) -> None:
    """A Node's annotation must not choose the request's path."""
    made = Management(name)
    assert await read(made.source()) is None
    assert made.server.asked == []


async def test_a_fence_agent_that_has_succeeded(autojump_clock: MockClock) -> None:
    """Only success seen while watching counts; not a running, foreign or deleted agent."""
    objects: list[dict[str, Any]] = []
    server = Scripted(lambda asked: (0.01, Answer(200, msgspec.json.encode({"items": objects}))))
    source = remediators.RemediatorSource(remediators.Remediations(server, FAR), Management().view, "worker")
    assert await read(source) is None

    def says(node: str, status: str, **meta: str) -> None:
        condition = {"type": "FenceAgentActionSucceeded", "status": status}
        objects[:] = [{"metadata": {"uid": node, **meta}, "status": {"conditions": [condition]}}]

    says("other", "True", name="other")
    assert await read(source) is None
    for status in ("Unknown", "False"):
        says("m", status, name="worker")
        assert await read(source) == Said("unknown", error="it has not fenced the machine yet")
    says("m", "True", name="worker")
    for _ in range(2):
        assert await read(source) == Said("off", "nodeUID", "u")
    # Its name may differ from the node's.
    objects[0]["metadata"] |= {"name": "x", "annotations": {remediators.NODE_NAME_ANNOTATION: "worker"}}
    assert await read(source) == Said("off", "nodeUID", "u")
    says("m", "True", name="worker", deletionTimestamp="2026-01-01T00:00:00Z")
    assert await read(source) is None

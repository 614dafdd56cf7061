"""Other remediators in virtual time: how often their objects are asked for, and where there are none."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

import msgspec
import pytest
import trio
from trio.testing import MockClock

from ebbtide.actors.edges.kubernetes.api_calls import Answer
from ebbtide.actors.edges.kubernetes.node_view import ClusterView, NodeView
from ebbtide.actors.edges.proof_sources.proof_source import Unread
from ebbtide.actors.edges.proof_sources.remediators import (
    ELSEWHERE,
    KINDS,
    LIST_EVERY_SECONDS,
    MACHINES_PER_SECOND,
    NOT_INSTALLED_SECONDS,
    NOTED,
    TURNS_AHEAD_SECONDS,
    Machines,
    Remediations,
    Remediator,
)
from tests.actors.edges.kubernetes.write_fake import Asked, Scripted

FAR, _ = KINDS
#: As a node is read while nothing proves it off.
READ_EVERY_SECONDS = 5.0
MINUTE_SECONDS = 60.0
#: What an API server says of a path that it does not know, and of a kind that a group does not have.
UNKNOWN_PATHS = [
    b"404 page not found\n",
    b'{"kind":"Status","status":"Failure","reason":"NotFound","details":{},"code":404}',
]


def answering(code: int, body: bytes) -> Scripted:
    return Scripted(lambda asked: (0.02, Answer(code, body)))


def no_such(name: str) -> Answer:
    status = {"kind": "Status", "reason": "NotFound", "details": {"name": name, "kind": "machines"}}
    return Answer(404, msgspec.json.encode(status))


def noted(*names: str) -> ClusterView:
    """Nodes, with a Machine of the same name each."""
    node = NodeView("", "u", "1", "b1", "Unknown", "uuid", "test://", "none", (), "")
    view = ClusterView()
    view.nodes.replace([node._replace(name=each, machine=("default", each)) for each in names], "1")
    return view


def made(caller: Scripted, name: str, view: ClusterView) -> Remediator:
    return Machines(caller, view) if name == "machines" else Remediations(caller, name)


async def read_for(seconds: float, remediator: Remediator, nodes: list[str]) -> Counter[str]:
    """How often each node was told something. They begin in the first seconds, one after the other."""
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
    """In any such time."""
    at = [each.at_seconds for each in asked]
    return max(bisect_left(at, first + seconds) - number for number, first in enumerate(at)) / seconds


async def test_a_list_is_for_all_nodes_whenever_they_ask(autojump_clock: MockClock) -> None:
    """A hundred of them, of which no two are read at the same moment, at each of their readings."""
    nodes = [f"n-{number}" for number in range(100)]
    server = answering(200, b'{"items": []}')
    told = await read_for(MINUTE_SECONDS, made(server, FAR, ClusterView()), nodes)
    assert min(told[each] for each in nodes) >= MINUTE_SECONDS / (READ_EVERY_SECONDS + 2 * LIST_EVERY_SECONDS)
    assert per_second_max(server.asked, 10.0) <= 1.1 / LIST_EVERY_SECONDS


async def test_machines_of_many_nodes_are_read_in_turn(autojump_clock: MockClock) -> None:
    """Never more than their share of our requests, and no node is forgotten."""
    nodes = [f"n-{number}" for number in range(100)]
    body = b'{"metadata": {"uid": "u"}, "spec": {"providerID": "test://"}}'
    server = answering(200, body)
    round_seconds = len(nodes) / MACHINES_PER_SECOND
    told = await read_for(4 * round_seconds, made(server, "machines", noted(*nodes)), nodes)
    assert max(told.values()) - min(told[each] for each in nodes) <= 2
    assert min(told[each] for each in nodes) >= 3
    # Some take their turn early, and others at their next reading after it.
    shifted = (MINUTE_SECONDS + TURNS_AHEAD_SECONDS + READ_EVERY_SECONDS) / MINUTE_SECONDS
    assert per_second_max(server.asked, MINUTE_SECONDS) <= MACHINES_PER_SECOND * shifted


@pytest.mark.parametrize("body", UNKNOWN_PATHS)
async def test_what_is_not_installed_is_looked_for_once_a_minute(
    autojump_clock: MockClock, body: bytes
) -> None:
    """Not by each of a hundred nodes at each reading."""
    nodes = [f"n-{number}" for number in range(100)]
    server = answering(404, body)
    far = made(server, FAR, ClusterView())
    assert not (await read_for(2.5 * NOT_INSTALLED_SECONDS, far, nodes)).total()
    # Whoever has begun to gather before that is known asks once more.
    assert len(server.asked) <= 6
    # Installed in the meantime.
    server.behaviour = lambda asked: (0.02, Answer(200, b'{"items": []}'))
    await trio.sleep(NOT_INSTALLED_SECONDS)
    assert await far.of("n-1") == []


@pytest.mark.parametrize("body", UNKNOWN_PATHS)
async def test_machines_that_are_kept_elsewhere(autojump_clock: MockClock, body: bytes) -> None:
    """The Node names one, and there is no Cluster API: said each time, asked for once a minute."""
    server = answering(404, body)
    machines = made(server, "machines", noted("a", "b"))
    for node in ("a", "b", "a"):
        with pytest.raises(Unread) as refused:
            await machines.of(node)
        assert str(refused.value) == ELSEWHERE
    assert len(server.asked) == 1
    await trio.sleep(NOT_INSTALLED_SECONDS)
    server.behaviour = lambda asked: (0.02, no_such("a"))
    with pytest.raises(Unread) as refused:
        await machines.of("a")
    assert str(refused.value) == f"{NOTED} is not there"


async def test_a_machine_that_is_not_there_says_nothing_of_another(autojump_clock: MockClock) -> None:
    """One that is deleted is no proof, and no reason not to look for the next node's."""
    body = b'{"metadata": {"uid": "u"}, "spec": {"providerID": "test://"}}'
    server = Scripted(lambda asked: (0.02, no_such("a") if asked.path.endswith("/a") else Answer(200, body)))
    machines = made(server, "machines", noted("a", "b"))
    with pytest.raises(Unread, match="is not there"):
        await machines.of("a")
    assert await machines.of("b") is not None

"""The assembled controller on a server in virtual time: the total request rate."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import cast

import msgspec
import pytest
import trio
from trio.testing import MockClock

from ebbtide.actors.edges.kubernetes.api_calls import Answer
from ebbtide.actors.edges.kubernetes.api_client import ApiClient
from ebbtide.actors.edges.kubernetes.node_view import NodeView
from ebbtide.actors.edges.kubernetes.paced import BURST, REQUESTS_PER_SECOND
from ebbtide.actors.edges.proof_sources.proof_edges import SourcesEdge
from ebbtide.actors.edges.proof_sources.remediators import KINDS, LIST_EVERY_SECONDS
from ebbtide.events.base import Fact
from ebbtide.events.outage_events import EvidenceRead, ReadSources
from ebbtide.log import LogOutput
from ebbtide.outage.configuration import parse_outage
from ebbtide.outage.controller import BEGUN_MAX, LOOK_SECONDS, Leader, Options, _leader
from ebbtide.outage.controller_metrics import OutageMetrics
from ebbtide.outage.outage_follower import Follower
from tests.actors.edges.kubernetes.write_fake import Asked, Scripted

CONFIGURATION = """
apiVersion: ebbtide/v1alpha1
kind: OutageConfiguration
pools: [{name: all, askKubelet: false, believe: [remediator]}]
"""
NODES = [f"n-{number}" for number in range(100)]
NOT_YET = "it has not fenced the machine yet"
READ_EVERY_SECONDS = 5.0
STORM_SECONDS = 60.0


def remediators(asked: Asked) -> tuple[float, Answer]:
    """medik8s has no object, and each node has a running Machine."""
    if "machines" in asked.path:
        body = {"metadata": {"uid": "m"}, "spec": {"providerID": "test://"}}
        return 0.02, Answer(200, msgspec.json.encode(body))
    return 0.02, Answer(200, b'{"items": []}')


def leader(link: Scripted, manager: Scripted | None) -> Leader:
    configuration = parse_outage("outage.yaml", CONFIGURATION.encode())
    options = Options(configuration, Path("/nowhere"), "one", dry_run=True)
    clients = cast(ApiClient, link), cast(ApiClient | None, manager)
    return _leader(options, "one", *clients, LogOutput(), OutageMetrics())


class Told:
    def __init__(self, node: str) -> None:
        self.node = node
        self.errors: Counter[str] = Counter()

    async def put(self, *facts: Fact) -> None:
        self.push(*facts)

    def push(self, *facts: Fact) -> None:
        self.errors.update(each.error for each in facts if isinstance(each, EvidenceRead))


@pytest.mark.parametrize("managed", [False, True])
async def test_remediators_of_a_hundred_nodes_are_asked_at_our_own_rate(
    autojump_clock: MockClock, managed: bool
) -> None:
    """In either cluster; each node gets all reports, and most requests remain for the recovery."""
    here, there = Scripted(remediators), Scripted(remediators)
    shared = leader(here, there if managed else None)._shared
    node = NodeView("", "", "1", "b1", "Unknown", "uuid", "test://", "none", (), "")
    shared.view.nodes.replace(
        [node._replace(name=each, uid=each, machine=("default", each)) for each in NODES], "1"
    )
    told = {each: Told(each) for each in NODES}

    async def read(name: str) -> None:
        edges = shared.edges(Follower(shared, name, name))
        (sources,) = [each for each in edges if isinstance(each, SourcesEdge)]
        while True:
            await sources._read_all(ReadSources(key="read", node=name), told[name])
            await trio.sleep(READ_EVERY_SECONDS)

    with trio.move_on_after(STORM_SECONDS):
        async with trio.open_nursery() as nursery:
            for each in NODES:
                nursery.start_soon(read, each)
                # As fast as a leader begins followers.
                await trio.sleep(LOOK_SECONDS / BEGUN_MAX)
    machines = [each for each in (there if managed else here).asked if "machines" in each.path]
    lists = [each for each in here.asked if "machines" not in each.path]
    for asked in (here.asked, machines):
        at = [each.at_seconds for each in asked]
        assert all(
            sum(first <= each < first + 1.0 for each in at) <= BURST + REQUESTS_PER_SECOND for first in at
        )
    assert len(lists) <= len(KINDS) * (STORM_SECONDS / LIST_EVERY_SECONDS + 1)
    assert len(here.asked) / STORM_SECONDS < REQUESTS_PER_SECOND / 2
    # No node waited too long.
    assert [each.node for each in told.values() if not each.errors] == []
    assert {error for each in told.values() for error in each.errors} == {NOT_YET}


def test_the_environments_resource_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """In each journal's settings, so that the trace follows from the journal."""
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.cluster.name=blue")
    shared = leader(Scripted(remediators), None)._shared
    assert shared.settings("node-1").resource == {"k8s.cluster.name": "blue"}

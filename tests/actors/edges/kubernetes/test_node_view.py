"""The node view in virtual time: no older state after a newer one, and when a node is silent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, get_args

import msgspec
import pytest
import trio
from trio.testing import MockClock

from ebbtide.actors.edges.kubernetes.api_calls import LEASES_PATH, NODES_PATH, Answer, ApiNode, Unanswered
from ebbtide.actors.edges.kubernetes.node_view import (
    NOTE_ANNOTATION,
    OUT_OF_SERVICE,
    ClusterView,
    LeaseView,
    Look,
    MachineClaims,
    NodeEdge,
    NodeView,
    facts_between,
    is_as_ordered,
    project_node,
    untaint_patch,
)
from ebbtide.actors.edges.kubernetes.node_writes import LAST_BOOT_ANNOTATION, last_boot_text
from ebbtide.actors.interfaces import Ending
from ebbtide.events import outage_events
from ebbtide.events.base import NS_PER_SECOND as NS
from ebbtide.events.codec import encode_event
from ebbtide.events.decisions import PublishLastBoot
from ebbtide.events.values import BootEnding, BootEndReason
from ebbtide.outage.configuration import OutageConfiguration, Pool
from ebbtide.outage.permits import ZONE, used_labels
from tests.actors.edges.kubernetes.work_fake import Server
from tests.actors.edges.process.process_bed import Outbox

NODE = NodeView("n", "u", "1", "b1", "True", "s", "p", "none", (), "s1")
LEASE = LeaseView("n", "1", "l1", 40)


def node_object(**fields: Any) -> dict[str, Any]:
    meta = {"name": "n", "uid": "u", "resourceVersion": "1"}
    return {"metadata": meta, **fields}


def test_what_is_told() -> None:
    """One heartbeat per changed mark, then the changed Node; a new boot is the last report."""
    look = Look(NODE, "l1")
    read = outage_events.NodeRead(
        uid="u",
        boot_id="b1",
        ready="True",
        resource_version="1",
        system_uuid="s",
        provider_id="p",
        lease_mark="l1",
        status_mark="s1",
    )
    newer = NODE._replace(version="2", status_mark="s2")
    rebooted = newer._replace(boot_id="b2")
    beats = [outage_events.HeartbeatSeen(mark="l2"), outage_events.HeartbeatSeen(mark="s2", source="status")]
    replace = msgspec.structs.replace
    newer_read = replace(read, resource_version="2", status_mark="s2", lease_mark="l2")
    assert facts_between(None, look) == [read]
    assert facts_between(look, look) == []
    assert facts_between(look, look, asked=True) == [read]
    assert facts_between(look, Look(NODE, "l2")) == beats[:1]
    assert facts_between(look, Look(newer, "l2")) == [*beats, newer_read]
    assert facts_between(look, Look(rebooted, "l2")) == [replace(newer_read, boot_id="b2")]
    # What is known of its machine has changed, and nothing of the Node.
    claims = MachineClaims("first", "another")
    named = replace(read, first_uuid="first", same_uuid_node="another")
    assert facts_between(look, look._replace(claims=claims)) == [named]
    assert facts_between(look._replace(claims=claims), look) == [read]
    # A removed object is no sign of life.
    assert facts_between(look, Look(NODE, "")) == []
    assert facts_between(Look(NODE, ""), look) == [outage_events.HeartbeatSeen(mark="l1")]
    gone = Look(None, "l1")
    assert facts_between(look, gone) == facts_between(None, gone) == [outage_events.NodeDeleted()]
    assert facts_between(gone, gone) == []
    assert facts_between(gone, gone, asked=True) == [outage_events.NodeDeleted()]
    replaced = gone._replace(replaced=True)
    assert facts_between(gone, replaced) == [outage_events.NodeDeleted(replaced=True)]
    assert facts_between(replaced, replaced) == []


ORDER = outage_events.SetTaint(
    key="k",
    node="n",
    node_uid="u",
    boot_id="b1",
    resource_version="1",
    effect="NoExecute",
    ready="Unknown",
    lease_mark="l1",
    status_mark="s1",
)


POWER_FIELDS = ("node", "node_uid", "boot_id", "ready", "lease_mark", "status_mark")


@pytest.mark.parametrize(
    ("fields", "as_ordered"),
    [
        ({}, True),
        ({"lease_mark": ""}, False),
        ({"lease_mark": "l0"}, False),
        ({"status_mark": "s0"}, False),
        ({"node_uid": "v"}, False),
        ({"boot_id": "b0"}, False),
        ({"ready": "False"}, False),
        ({"resource_version": "0"}, False),
    ],
)
def test_what_the_order_names_is_what_is_there(fields: dict[str, Any], *, as_ordered: bool) -> None:
    """Each mark of the order; a mark that vanished is no sign of life."""
    order, node = msgspec.structs.replace(ORDER, **fields), NODE._replace(ready="Unknown")
    assert is_as_ordered(order, node, "l1") == as_ordered
    # Other changes of the Node do not affect its power, but its UUID does.
    ours = {each: getattr(order, each) for each in POWER_FIELDS}
    power_off = outage_events.PowerOff(key="k", system_uuid="s", **ours)
    same = as_ordered or "resource_version" in fields
    assert is_as_ordered(power_off, node._replace(version="9"), "l1") == same
    assert not is_as_ordered(msgspec.structs.replace(power_off, system_uuid="t"), node, "l1")
    # A system that the configuration names.
    assert is_as_ordered(msgspec.structs.replace(power_off, system_uuid=""), node, "l1") == same
    if not fields:
        assert is_as_ordered(order, node._replace(status_mark=""), "")


@pytest.mark.parametrize(
    ("note", "taint", "owner", "boot"),
    [
        ("", None, "none", ""),
        ("", {"timeAdded": "T"}, "other", ""),
        ('{"effect":"NoExecute","added":"T"}', {"timeAdded": "T"}, "ours", ""),
        ('{"effect":"NoExecute","added":"T","boot":"b1"}', {"timeAdded": "T"}, "ours", "b1"),
        # A foreign edit spoilt it: the taint is ours, without a known subject.
        ('{"effect":"NoExecute","added":"T","boot":"%s"}' % ("b" * 65), {"timeAdded": "T"}, "ours", ""),
        ('{"effect":"NoExecute","added":"T","boot":"b1"}', {"timeAdded": "other"}, "other", ""),
        ('{"effect":"NoExecute","added":"T"}', {}, "other", ""),
        ('{"effect":"NoSchedule","added":"T"}', {"timeAdded": "T"}, "other", ""),
        ('{"effect":"NoExecute"}', {}, "other", ""),
        ("{", {"timeAdded": "T"}, "other", ""),
        ('{"added":7}', {"timeAdded": "T"}, "other", ""),
    ],
)
def test_whose_taint_it_is(note: str, taint: dict[str, str] | None, owner: str, boot: str) -> None:
    """Ours is the taint in the note, by its time; only that one is removed, and its boot reported."""
    taints = [] if taint is None else [{"key": OUT_OF_SERVICE, "effect": "NoExecute", **taint}]
    found = node_object(spec={"taints": taints})
    found["metadata"]["annotations"] = {NOTE_ANNOTATION: note} if note else {}
    node = msgspec.convert(found, ApiNode)
    (read,) = facts_between(None, Look(project_node(node), ""))
    assert isinstance(read, outage_events.NodeRead)
    assert (read.taint, read.taint_boot) == (owner, boot)
    back = untaint_patch(node)
    assert (back is None) == (not note)
    if back is not None:
        assert back["spec"]["taints"] == (None if owner == "ours" else taints)


# --- how the last boot ended

BOOTS = "aaaaaaaa-bbbb-4ccc-8ddd-000000000001", "aaaaaaaa-bbbb-4ccc-8ddd-000000000002"


def saying(text: str) -> NodeView:
    found = node_object()
    found["metadata"]["annotations"] = {LAST_BOOT_ANNOTATION: text}
    return project_node(msgspec.convert(found, ApiNode))


def written(**fields: Any) -> dict[str, Any]:
    given = {"boot_id": BOOTS[0].replace("-", ""), "ending": "cut-short", "why": "panic", "wave": 2}
    order = PublishLastBoot(key="k", recorded=True, alive_wall_ns=1_700_000_000 * NS, **(given | fields))
    return dict(msgspec.json.decode(last_boot_text(order, BOOTS[1], "a" * 32, "b" * 32)))


@pytest.mark.parametrize("ending", get_args(BootEnding))
@pytest.mark.parametrize("why", get_args(BootEndReason))
def test_what_the_daemon_writes_is_read(ending: BootEnding, why: BootEndReason) -> None:
    """The reader accepts each field that the daemon writes, and unknown values as the same bytes."""
    told = saying(msgspec.json.encode(written(ending=ending, why=why)).decode()).last_boot
    assert told == outage_events.LastBootStated(
        boot_id=BOOTS[0],
        ending=ending,
        why=why,
        wave=2,
        alive_wall_ns=1_700_000_000 * NS,
        journal_id="a" * 32,
        trace_id="b" * 32,
        said_by=BOOTS[1],
    )
    least = {"bootId": BOOTS[0], "ending": ending, "saidBy": BOOTS[1]}
    told = saying(msgspec.json.encode(least).decode()).last_boot
    assert told is not None
    fresh = outage_events.LastBootStated(boot_id=BOOTS[0], ending=ending, said_by=BOOTS[1])
    assert encode_event(told) == encode_event(fresh)


@pytest.mark.parametrize(
    "fields",
    [
        {"bootId": "b1"},
        {"bootId": BOOTS[0].upper()},
        {"bootId": f"{BOOTS[0]}\n"},
        {"saidBy": ""},
        {"ending": "exploded"},
        {"why": "<script>"},
        {"wave": -2},
        {"wave": 10_000},
        {"wave": True},
        {"aliveAt": "yesterday"},
        {"aliveAt": "9999-12-31T23:59:59Z"},
        {"journal": "a" * 31},
        {"trace": "b" * 33},
        {"trace": "\u0661" * 32},
        {"more": "x" * 1024},
    ],
)
def test_a_spoilt_word_says_nothing(fields: dict[str, Any]) -> None:
    """No partial reading: no actor waits for it, and the record shows all of it."""
    assert saying(msgspec.json.encode(written()).decode()).last_boot is not None
    assert saying(msgspec.json.encode(written() | fields).decode()).last_boot is None


# --- silence


class Nobody:
    async def call(self, method: str, path: str, **fields: Any) -> Answer:
        raise Unanswered("nobody is there")


class OneNode:
    """A server that refuses each write."""

    def __init__(self) -> None:
        self.patches = 0

    async def call(self, method: str, path: str, **fields: Any) -> Answer:
        if method == "PATCH":
            self.patches += 1
            return Answer(422)
        ready = {"type": "Ready", "status": "Unknown", "lastHeartbeatTime": "s1"}
        info = {"bootID": "b1", "systemUUID": "s"}
        lease = {"metadata": {"name": "n"}, "spec": {"renewTime": "l1"}}
        node = node_object(status={"nodeInfo": info, "conditions": [ready]})
        return Answer(200, msgspec.json.encode(lease if path.startswith(LEASES_PATH) else node))


async def test_another_node_names_the_machine(autojump_clock: MockClock) -> None:
    """The view learns it while an order waits: neither taint nor command, and the core gets the reason.
    A taint decided with it is set, and a bound node is switched off; a liar's third name changes nothing.
    """
    server, view, box = OneNode(), ClusterView(), Outbox()
    edge = NodeEdge(server, view, "n", "u")
    effect: Any = edge.effects[outage_events.SetTaint]
    await edge.effects[outage_events.ReadNode](outage_events.ReadNode(key="r"), box)  # type: ignore[misc]
    power_off = outage_events.PowerOff(
        key="k", system_uuid="s", **{each: getattr(ORDER, each) for each in POWER_FIELDS}
    )
    bound = msgspec.structs.replace(power_off, system_uuid="")
    changed = Ending("failed", outage_events.CHANGED)
    assert await edge.as_ordered(power_off, box) is None
    view.nodes.put(NODE._replace(name="m", uid="m"))
    assert await effect(ORDER, box) == changed
    assert box.of(outage_events.NodeRead)[-1].same_uuid_node == "m"
    assert server.patches == 0
    await effect(ORDER, box)
    assert server.patches == 1
    assert await edge.as_ordered(power_off, box) == changed
    assert await edge.as_ordered(bound, box) is None
    for version, uuid in enumerate("xys", start=2):
        view.nodes.put(NODE._replace(name="m", uid="liar", version=str(version), system_uuid=uuid))
    assert await edge.as_ordered(power_off, box) is None


@asynccontextmanager
async def watching(clock: MockClock) -> AsyncIterator[tuple[ClusterView, Outbox]]:
    """An edge over a view with node and lease."""
    view, box = ClusterView(), Outbox()
    view.nodes.replace([NODE], "1")
    view.leases.replace([LEASE], "1")
    view.sees(clock.current_time())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(NodeEdge(Nobody(), view, "n", "u").run, box)
        yield view, box
        nursery.cancel_scope.cancel()


def missed(box: Outbox) -> list[tuple[float, str]]:
    return [(each.silent_ns / 1e9, each.mark) for each in box.of(outage_events.HeartbeatMissed)]


async def test_a_missed_renewal_is_told_once(autojump_clock: MockClock) -> None:
    """A kubelet renews every ten seconds. The next report needs a renewal in between."""
    async with watching(autojump_clock) as (view, box):
        await trio.sleep(11.4)
        assert missed(box) == []
        await trio.sleep(100)
        assert missed(box) == [(11.5, "l1")]
        view.leases.put(LEASE._replace(version="2", mark="l2"))
        # A new version with the same mark is no renewal.
        await trio.sleep(10)
        view.leases.put(LEASE._replace(version="3", mark="l2"))
        await trio.sleep(100)
        assert missed(box) == [(11.5, "l1"), (11.5, "l2")]
        assert [type(each) for each in box.facts] == [
            outage_events.NodeRead,
            outage_events.HeartbeatMissed,
            outage_events.HeartbeatSeen,
            outage_events.HeartbeatMissed,
        ]


async def test_what_nobody_could_have_seen_is_no_silence(autojump_clock: MockClock) -> None:
    """While the lease watch is broken no silence counts; afterwards it starts anew."""
    async with watching(autojump_clock) as (view, box):
        await trio.sleep(11)
        view.sees(float("inf"))
        await trio.sleep(3600)
        assert missed(box) == []
        view.sees(trio.current_time())
        await trio.sleep(11)
        assert missed(box) == []
        await trio.sleep(2)
        assert missed(box) == [(11.5, "l1")]


async def test_a_node_without_a_lease_is_not_silent(autojump_clock: MockClock) -> None:
    async with watching(autojump_clock) as (view, box):
        view.leases.remove(LEASE._replace(version="2"))
        await trio.sleep(3600)
        assert missed(box) == []


async def test_the_watches_fill_it(autojump_clock: MockClock) -> None:
    """Older states never follow newer ones. The operator gets one message about renewals."""
    server, told = Server(), list[str]()
    view = ClusterView(lambda level, line: told.append(line))
    server.put(NODES_PATH, node_object())
    server.put(LEASES_PATH, {"metadata": {"name": "n"}, "spec": {"renewTime": "l1"}})
    async with trio.open_nursery() as nursery:
        nursery.start_soon(view.run, server)
        await view.listed()
        found = view.of("n").node
        assert found is not None
        view.nodes.put(found._replace(version="0", boot_id="older"))
        assert view.of("n").node == found
        await trio.sleep(5)
        began = view.sees_since
        assert began < trio.current_time()
        server.reachable = False
        await trio.sleep(60)
        assert view.sees_since == float("inf")
        server.reachable = True
        await trio.sleep(20)
        assert began < view.sees_since < trio.current_time()
        nursery.cancel_scope.cancel()
    for word in ("are not seen", "are seen again"):
        assert sum(word in line for line in told) == 2


def test_only_used_labels_are_kept() -> None:
    """A kubelet may set 100 000 of its own Node."""
    pool = Pool(name="p", node_selector={"rack": "r1"})
    view = ClusterView(labels=used_labels(OutageConfiguration(pools=(pool,))))
    labels = dict.fromkeys(map(str, range(1000)), "x") | {"rack": "r1", ZONE: "z"}
    found = view.project(msgspec.convert({"metadata": {"name": "n", "labels": labels}}, ApiNode))
    assert found.labels == {"rack": "r1", ZONE: "z"}

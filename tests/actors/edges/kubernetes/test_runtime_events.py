"""Events and awaited statuses on a real API server: posted once, and seen when they are there."""

from __future__ import annotations

import re
import time

import pytest
import trio

from ebbtide.actors.edges.kubernetes.runtime import event_name, event_object
from ebbtide.actors.interfaces import Ending
from ebbtide.actors.node_status import KILLED_REASON
from ebbtide.events.decisions import AwaitStatuses, PostEvent
from ebbtide.events.facts import StatusesSeen
from tests.actors.edges.kubernetes.write_rig import NODE, NODE_CLIENT, TRACE, Hand, account, known, writing
from tests.node.bed import Bed
from tests.node.client import Object
from tests.node.pods import PODS, pod, running, static

pytestmark = [pytest.mark.node]
EVENTS = "/api/v1/namespaces/default/events"
ON_NODE = PostEvent(
    key="NodeStatusActor/event/signal/1",
    kind="Node",
    name="",
    reason="Shutdown",
    message="Shutdown manager detected shutdown event",
)
ON_OWNER = PostEvent(
    key="NodeStatusActor/event/uid/2",
    kind="StatefulSet",
    name="web",
    namespace="default",
    reason=KILLED_REASON,
    message="Pod web-0 had to be killed",
    warning=True,
)


@pytest.mark.parametrize("who", ["node", "account"])
@pytest.mark.parametrize("order", [ON_NODE, ON_OWNER], ids=["node", "owner"])
async def test_posted_once(bed: Bed, who: str, order: PostEvent) -> None:
    """Whoever posts it: it is there once however often it is ordered, with its source and its trace."""
    client = NODE_CLIENT if who == "node" else await account(bed)
    name = event_name(order, NODE, TRACE)
    async with writing(bed, client=client) as hand:
        for _ in range(2):
            assert await hand.do(order) == Ending()
    found = [each for each in (await bed.api.get(EVENTS))["items"] if each["metadata"]["name"] == name]
    (event,) = found
    assert event["message"] == f"{order.message} (trace {TRACE})"
    assert event["metadata"]["annotations"] == {"ebbtide.dev/trace-id": TRACE}
    assert event["source"] == {"component": "ebbtide", "host": NODE}
    assert (event["reason"], event["count"]) == (order.reason, 1)
    assert event["type"] == ("Warning" if order.warning else "Normal")
    about = event["involvedObject"]
    if order is ON_NODE:
        assert (about["kind"], about["name"], about["uid"]) == ("Node", NODE, NODE)
    else:
        assert (about["apiVersion"], about["namespace"]) == ("apps/v1", "default")
    await bed.api.delete(f"{EVENTS}/{name}")


async def test_refused(bed: Bed) -> None:
    """A namespace that is gone is said, without its name: that is in the order."""
    order = PostEvent(key="k", kind="Job", name="j", namespace="nowhere", reason="r", message="m")
    async with writing(bed, client=NODE_CLIENT) as hand:
        ended = await hand.do(order)
    assert ended.result == "failed"
    assert ended.reason == "the API server answered 404 not found"


def test_names() -> None:
    """A name differs by node, by shutdown and by order, and is a DNS name however long the subject's is."""
    names = {
        event_name(order, node, trace)
        for order in (ON_NODE, ON_OWNER)
        for node in ("node-1", "node-2")
        for trace in (TRACE, "", "0" * 32)
    }
    assert len(names) == 12
    long = PostEvent(key="k", kind="Node", name="Node." + "x" * 194 + "." + "y" * 50, reason="r", message="m")
    name = event_name(long, NODE, TRACE)
    assert len(name) < 253
    assert name == name.lower()
    assert ".." not in name


def test_long_message() -> None:
    """A message is cut to what an Event may hold, between characters, and its trace is not."""
    order = PostEvent(key="k", kind="Node", name=NODE, reason="r", message="ü" * 2000)
    message = event_object(order, NODE, TRACE)["message"]
    assert len(message.encode()) <= 1024
    assert message.endswith(f"ü (trace {TRACE})")


def awaited(*made: Object, seconds: int = 10) -> AwaitStatuses:
    uids = tuple(known(each).uid for each in made)
    return AwaitStatuses(key="k", uids=uids, timeout_ns=seconds * 1_000_000_000)


async def seen(hand: Hand) -> StatusesSeen:
    (fact,) = hand.outbox.of(StatusesSeen)
    return fact


@pytest.mark.parametrize("who", ["node", "account"])
async def test_awaited(bed: Bed, who: str) -> None:
    """It ends as soon as each pod has a final status or no object, whoever wrote or removed it."""
    client = NODE_CLIENT if who == "node" else await account(bed)
    made = await running(
        bed, pod("one", NODE), pod("two", NODE), pod("job", NODE, "sleep 2; exit 0", restartPolicy="Never")
    )

    async def end() -> None:
        await trio.sleep(0.5)
        await bed.api.delete(f"{PODS}/one", {"gracePeriodSeconds": 0})
        await bed.api.patch(f"{PODS}/two/status", {"status": {"phase": "Failed"}})

    async with writing(bed, map(known, made), client) as hand, trio.open_nursery() as nursery:
        nursery.start_soon(end)
        assert await hand.do(awaited(*made)) == Ending()
        assert (await seen(hand)).missing == ()


async def test_never_seen(bed: Bed) -> None:
    """Pods that still run when the time is over are named; a static pod counts as well."""
    (made,) = await running(bed, pod("one", NODE))
    async with static(bed, bed.members[NODE], pod("still")) as mirror:
        still = await bed.api.get(mirror)
        async with writing(bed, map(known, (made, still)), NODE_CLIENT) as hand:
            began = time.monotonic()
            ended = await hand.do(awaited(made, still, seconds=1))
            assert 1 <= time.monotonic() - began < 3
            assert (await seen(hand)).missing == (known(made).uid, known(still).uid)
    # On a busy machine the last list may go unanswered, which is then told behind it.
    assert ended.result == "timed-out"
    assert re.fullmatch("2 of 2 without a final status(: GET /api/v1/pods: no answer in .*)?", ended.reason)


async def test_without_a_server(bed: Bed) -> None:
    """A server that is gone is waited for until the time is over, and the reason says so."""
    (made,) = await running(bed, pod("one", NODE))
    async with writing(bed, [known(made)], NODE_CLIENT) as hand:
        await bed.stop("kube-apiserver")
        ended = await hand.do(awaited(made, seconds=1))
        assert (await seen(hand)).missing == (known(made).uid,)
        await bed.start_api()
    assert ended.result == "timed-out"
    assert ended.reason.startswith("1 of 1 without a final status: ")


async def test_the_watch_knows(bed: Bed) -> None:
    """What the watch has as final costs no call at all."""
    (made,) = await running(bed, pod("one", NODE))
    await bed.stop("kube-apiserver")
    async with writing(bed, [known(made, phase="Succeeded")], NODE_CLIENT) as hand:
        assert await hand.do(awaited(made, seconds=1)) == Ending()
    await bed.start_api()

"""The edge of a Node in an outage, on a real API server: what it sees, and its writes with conflicts."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import trio

from ebbtide.actors.edges.kubernetes.calls import Answer, Unanswered
from ebbtide.actors.interfaces import Ending
from ebbtide.events import bounds
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.outage import CHANGED, HeartbeatSeen, NodeDeleted, NodeRead
from tests.actors.edges.kubernetes.outage_rig import OTHERS, UUID, Kubelet, asking, seeing
from tests.actors.edges.kubernetes.rights import CLUSTER_RULES, LEASE_RULES, granted
from tests.node.bed import Bed
from tests.waiting import until

pytestmark = [pytest.mark.node]

#: Not the shipped account: its roles have this name on the same server, and others would find ours there.
ACCOUNT = "ebbtide-taints"
OUT_OF_SERVICE = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
NOTE = "ebbtide.dev/out-of-service"

Change = Callable[[Kubelet], Awaitable[object]]


@pytest.fixture
async def rights(api_bed: Bed) -> Path:
    return await granted(api_bed, ACCOUNT, [], CLUSTER_RULES, {"kube-node-lease": LEASE_RULES})


@pytest.fixture
async def kubelet(api_bed: Bed) -> AsyncIterator[Kubelet]:
    """Of a node that has just been registered, and is Ready."""
    made = Kubelet(api_bed, "worker")
    await made.register()
    yield made
    await made.remove()


async def is_untouched(kubelet: Kubelet) -> bool:
    return await kubelet.taints() == [OTHERS] and NOTE not in await kubelet.annotations()


# --- what is seen ---------------------------------------------------------------------------------


async def test_what_it_sees(rights: Path, kubelet: Kubelet) -> None:
    """First the Node, then each renewal and each status as a heartbeat, and the Node when it has changed."""
    async with seeing(rights, kubelet) as hand:
        box = hand.outbox
        (first,) = box.facts
        assert first == NodeRead(
            uid=kubelet.uid,
            boot_id="boot-1",
            ready="True",
            resource_version=hand.last().resource_version,
            system_uuid=UUID.lower(),
            provider_id="test://worker",
            lease_mark=hand.last().lease_mark,
            status_mark=hand.last().status_mark,
        )
        assert first.lease_mark > "2026"
        assert first.status_mark > "2026"

        mark = await kubelet.renew()
        await box.wait_for(HeartbeatSeen, mark=mark)
        assert box.facts[1:] == [HeartbeatSeen(mark=mark)]

        mark = await kubelet.report(volumes=("kubernetes.io/csi/d^v",))
        await box.wait_for(NodeRead, status_mark=mark)
        beat, read = box.facts[2:]
        assert beat == HeartbeatSeen(mark=mark, source="status")
        assert isinstance(read, NodeRead)
        assert read.volumes_in_use == ("kubernetes.io/csi/d^v",)

        await kubelet.unheard()
        await box.wait_for(NodeRead, ready="Unknown")
        assert isinstance(box.facts[4], NodeRead)
        assert box.facts[4].status_mark == mark


async def test_a_node_that_is_gone_is_gone(rights: Path, kubelet: Kubelet) -> None:
    """One that is registered under its name is another: it is not told of, and nothing is written there."""
    async with seeing(rights, kubelet) as hand, asking(rights, kubelet) as other:
        order, untaint, quarantine = hand.taint(), hand.untaint(), hand.quarantine()
        await kubelet.remove()
        await hand.outbox.wait_for(NodeDeleted)
        again = Kubelet(kubelet.bed, kubelet.name)
        await again.register()
        await again.renew()
        for each in (hand, other):
            assert await each.do(order) == Ending("failed", CHANGED)
            assert (await each.do(untaint)).result == "failed"
            assert (await each.do(quarantine)).result == "failed"
            assert await each.read() == Ending()
            facts = each.outbox.facts[1:]
            assert {type(fact) for fact in facts} == {NodeDeleted}
        assert await is_untouched(again)


# --- the taint ------------------------------------------------------------------------------------


async def _annotate(kubelet: Kubelet) -> None:
    await kubelet.bed.api.patch(kubelet.path, {"metadata": {"annotations": {"example.test/a": "b"}}})


async def _taint_elsewhere(kubelet: Kubelet) -> None:
    await kubelet.bed.api.patch(kubelet.path, {"spec": {"taints": [OTHERS, OUT_OF_SERVICE]}})


async def _clean(kubelet: Kubelet) -> None:
    await kubelet.bed.api.patch(
        kubelet.path, {"spec": {"taints": [OTHERS]}, "metadata": {"annotations": {"example.test/a": None}}}
    )


CHANGES: dict[str, Change] = {
    "a renewal": lambda kubelet: kubelet.renew(),
    "a status": lambda kubelet: kubelet.report(ready="Unknown"),
    "Ready": lambda kubelet: kubelet.report(ready="True"),
    "another boot": lambda kubelet: kubelet.report(boot="boot-2", ready="Unknown"),
    "another's taint": _taint_elsewhere,
    "anything at all": _annotate,
}


#: What is no sign of life of the machine: the version alone is another.
STILL_OFF = ("another's taint", "anything at all")


@pytest.mark.parametrize("name", CHANGES)
async def test_a_machine_that_has_spoken_is_not_switched_off(
    rights: Path, kubelet: Kubelet, name: str
) -> None:
    """Read again, and told first; whatever else has changed on the Node is not about its power."""
    await kubelet.report(ready="Unknown")
    async with asking(rights, kubelet) as hand:
        order, before = hand.power_off(), len(hand.outbox.facts)
        assert await hand.edge.as_ordered(order, hand.outbox) is None
        await CHANGES[name](kubelet)
        checked = await hand.edge.as_ordered(order, hand.outbox)
        assert checked == (None if name in STILL_OFF else Ending("failed", CHANGED))
        assert len(hand.outbox.facts) > before
        assert hand.caller.patches == 0
        await _clean(kubelet)
        assert await hand.read() == Ending()
        assert await hand.edge.as_ordered(hand.power_off(), hand.outbox) is None
        other = hand.power_off(system_uuid="another")
        assert await hand.edge.as_ordered(other, hand.outbox) == Ending("failed", CHANGED)
        order = hand.power_off()
        await kubelet.remove()
        await kubelet.register(ready="Unknown")
        assert await hand.edge.as_ordered(order, hand.outbox) == Ending("failed", CHANGED)


async def test_silence_that_nobody_watched_switches_nothing_off(rights: Path, kubelet: Kubelet) -> None:
    """It counts from when the watch of the leases stands again, whatever stands in the lease."""
    await kubelet.report(ready="Unknown")
    async with seeing(rights, kubelet) as hand:
        order = hand.power_off(silent_ns=30 * NS_PER_SECOND)
        # The watch itself says when it begins to see.
        await until(lambda: hand.view.sees_since != math.inf, "the leases are watched")
        # Renewed a minute ago, and watched since then.
        hand.view.of(kubelet.name).renewed_at = trio.current_time() - 60
        hand.view.sees(trio.current_time() - 60)
        assert await hand.edge.as_ordered(order, hand.outbox) is None
        hand.view.sees(math.inf)
        assert await hand.edge.as_ordered(order, hand.outbox) == Ending("failed", CHANGED)
        hand.view.sees(trio.current_time() - 20)
        assert await hand.edge.as_ordered(order, hand.outbox) == Ending("failed", CHANGED)
        hand.view.sees(trio.current_time() - 60)
        assert await hand.edge.as_ordered(order, hand.outbox) is None


# --- answers that are lost ------------------------------------------------------------------------


async def test_an_answer_that_is_lost(rights: Path, kubelet: Kubelet) -> None:
    """What was carried out is done, by its note, and is not written twice."""
    await kubelet.report(ready="Unknown")
    async with asking(rights, kubelet) as hand:

        async def lose(send: Callable[[], Awaitable[Answer]]) -> Answer:
            assert (await send()).ok
            raise Unanswered("the connection ended before the answer came")

        hand.caller.instead = lose
        assert await hand.do(hand.taint()) == Ending()
        assert hand.caller.patches == 1
        assert len(await kubelet.taints()) == 2
        hand.caller.instead = lose
        assert await hand.do(hand.untaint()) == Ending()
        assert await is_untouched(kubelet)


async def test_a_write_that_comes_late_is_refused(
    rights: Path, kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the Node was read for the next decision, what is still under way changes nothing any more."""
    monkeypatch.setattr(bounds, "now", bounds.Bounds(api_unhurried_seconds=0.3))
    await kubelet.report(ready="Unknown")
    async with asking(rights, kubelet) as hand:
        late: list[Callable[[], Awaitable[Answer]]] = []

        async def hold_back(send: Callable[[], Awaitable[Answer]]) -> Answer:
            late.append(send)
            await trio.sleep(0.3)
            raise Unanswered("silence")

        hand.caller.instead = hold_back
        assert (await hand.do(hand.taint())).result == "timed-out"
        assert await hand.read() == Ending()
        assert hand.last().taint == "none"
        assert (await late[0]()).code == 409
        assert await kubelet.taints() == [OTHERS]


async def test_the_way_back_overtakes_the_quarantine(rights: Path, kubelet: Kubelet) -> None:
    """Ordered while the quarantine is on its way: nothing of ours is left, whichever comes last."""
    async with asking(rights, kubelet) as hand, trio.open_nursery() as nursery:
        sent = trio.Event()

        async def slowly(send: Callable[[], Awaitable[Answer]]) -> Answer:
            sent.set()
            await trio.sleep(0.2)
            return await send()

        hand.caller.instead = slowly
        nursery.start_soon(hand.do, hand.quarantine())
        await sent.wait()
        assert await hand.do(hand.untaint()) == Ending()
        assert await is_untouched(kubelet)


# --- whose taint ----------------------------------------------------------------------------------


async def test_anothers_taint_is_left_alone(rights: Path, kubelet: Kubelet) -> None:
    """Also where ours stood before it, and its note still says so."""
    await kubelet.report(ready="Unknown")
    async with asking(rights, kubelet) as hand:
        assert await hand.do(hand.taint()) == Ending()
        await _taint_elsewhere(kubelet)
        assert await hand.read() == Ending()
        assert hand.last().taint == "other"
        assert await hand.do(hand.untaint()) == Ending()
        assert await kubelet.taints() == [OTHERS, OUT_OF_SERVICE]
        assert NOTE not in await kubelet.annotations()


# --- rights ---------------------------------------------------------------------------------------

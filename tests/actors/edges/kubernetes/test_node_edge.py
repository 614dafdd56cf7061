"""The edge of a Node in an outage, on a real API server: what it sees, and its writes with conflicts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import trio

from ebbtide.actors.edges.kubernetes.api_calls import Answer, Unanswered
from ebbtide.actors.interfaces import Ending
from ebbtide.events import bounds
from tests.actors.edges.kubernetes.outage_rig import OTHERS, Kubelet, asking
from tests.actors.edges.kubernetes.rights import CLUSTER_RULES, LEASE_RULES, granted
from tests.node.bed import Bed

pytestmark = [pytest.mark.node]

#: Not the shipped account: its roles have this name on the same server, and others would find ours there.
ACCOUNT = "ebbtide-taints"
NOTE = "ebbtide.dev/out-of-service"


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

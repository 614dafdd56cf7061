"""An outage's core between a journal and a Node that are real: stored first, then tainted, and taken back."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from ebbtide.actors.actor import OUTAGE_FLAGS
from ebbtide.actors.checkpoint import take_checkpoint
from ebbtide.actors.edges.kubernetes.config_maps import ConfigMapStorage
from ebbtide.actors.edges.kubernetes.node_edge import NodeEdge
from ebbtide.actors.edges.kubernetes.node_view import ClusterView
from ebbtide.actors.interfaces import Effect, Ending, Outlet
from ebbtide.actors.runner import Effects, Inbox, Sequencer
from ebbtide.actors.system import System
from ebbtide.events.base import Event, Order, Stamp
from ebbtide.events.facts import OrderEnded
from ebbtide.events.outage import (
    EvidenceRead,
    LeaderStarted,
    ListWork,
    OutageClosed,
    OutOfService,
    ProofAccepted,
    ReadSources,
    RequestPermit,
    ReturnPermit,
    SetTaint,
    WorkListed,
)
from ebbtide.events.reader import History
from ebbtide.events.segment import segment_file_name
from ebbtide.events.writer import Writer
from ebbtide.host import SystemClock
from ebbtide.replay.replayer import Replayer
from tests.actors.edges.kubernetes.config_map_fake import read
from tests.actors.edges.kubernetes.outage_rig import Between, Kubelet
from tests.actors.edges.kubernetes.rig import linked, until
from tests.actors.edges.kubernetes.rights import granted
from tests.actors.edges.kubernetes.test_config_maps import RULES
from tests.actors.edges.kubernetes.test_node_edge import CLUSTER_RULES, LEASE_RULES
from tests.events.making import IDENTITY, OTHER_ID, Told, make_writer
from tests.node.bed import Bed

pytestmark = [pytest.mark.node, pytest.mark.slow]

ACCOUNT = "ebbtide-leader"


class Cloud:
    """The edges that are not there yet: a cloud that says what it is told to, a brake that lets all pass, and
    nothing that hangs.
    """

    def __init__(self, kubelet: Kubelet) -> None:
        self.kubelet, self.off = kubelet, False
        self.effects: Mapping[type[Order], Effect] = {
            ReadSources: self._say,
            RequestPermit: lambda order, outlet: Ending(),
            ReturnPermit: lambda order, outlet: Ending(),
            ListWork: self._list,
        }

    async def _say(self, order: ReadSources, outlet: Outlet) -> Ending:
        await outlet.put(self.evidence())
        return Ending()

    def evidence(self) -> EvidenceRead:
        return EvidenceRead(
            source="cloud",
            name="test",
            verdict="off" if self.off else "unknown",
            begun_ns=SystemClock().mono_ns(),
            identity_kind="providerID",
            identity=f"test://{self.kubelet.name}",
        )

    async def _list(self, order: ListWork, outlet: Outlet) -> Ending:
        await outlet.put(WorkListed(key=order.key))
        return Ending()


class Leader:
    """One process: system, journal and edges. ``events`` has all that was recorded."""

    def __init__(self, kubelet: Kubelet) -> None:
        self.cloud, self.inbox, self.told = Cloud(kubelet), Inbox(), Told()
        self.events: list[Event] = []
        self.writer: Writer
        self.caller: Between

    def first(self, kind: type[Event]) -> Any:
        return next((event for event in self.events if isinstance(event, kind)), None)

    def ended(self, key: str) -> OrderEnded | None:
        found = (each for each in self.events if isinstance(each, OrderEnded) and each.key == key)
        return next(found, None)

    async def heard(self, kind: type[Event]) -> Any:
        return await until(lambda: self.first(kind))


@asynccontextmanager
async def leading(rights: Path, kubelet: Kubelet, who: str) -> AsyncIterator[Leader]:
    """The leader of a journal that begins; left, it dies where it stands."""
    made, clock = Leader(kubelet), SystemClock()
    async with linked(rights) as link, trio.open_nursery() as nursery:
        view = ClusterView()
        nursery.start_soon(view.run, link)
        place = ConfigMapStorage(link, ACCOUNT, kubelet.uid, who)
        await place.acquire(who)
        system = System(flags=OUTAGE_FLAGS)
        identity = IDENTITY._replace(machine_id=kubelet.uid, logic_flags=OUTAGE_FLAGS)
        _, verdict = await read(place)
        made.writer = make_writer([place], verdict.start(OTHER_ID), made.told, identity=identity)
        await made.writer.open()
        nursery.start_soon(made.writer.run)
        made.writer.begin_segment(Stamp(clock.mono_ns(), clock.wall_ns()), take_checkpoint(system))
        system.next_seq += 1
        made.caller = Between(link)
        node = NodeEdge(made.caller, view, kubelet.name, kubelet.uid)
        effects = Effects([node, made.cloud], made.inbox, made.writer, clock)  # type: ignore[list-item]  # no edge that runs
        sequencer = Sequencer(system, made.inbox, made.writer, effects, clock)
        sequencer.observers.append(lambda records: made.events.extend(each.event for each in records))
        start = LeaderStarted(version="1", replica=who, node=kubelet.name, node_uid=kubelet.uid)
        made.inbox.push(start)
        nursery.start_soon(effects.run)
        nursery.start_soon(sequencer.run)
        nursery.start_soon(node.run, made.inbox)
        yield made
        nursery.cancel_scope.cancel()


@pytest.fixture
async def rights(api_bed: Bed) -> Path:
    return await granted(api_bed, ACCOUNT, RULES, CLUSTER_RULES, {"kube-node-lease": LEASE_RULES})


@pytest.fixture
async def kubelet(api_bed: Bed) -> AsyncIterator[Kubelet]:
    made = Kubelet(api_bed, "worker")
    await made.register()
    yield made
    await made.remove()


async def test_from_not_ready_to_the_way_back(rights: Path, kubelet: Kubelet) -> None:
    """Tainted once it is not Ready and proved off, free again under another boot; the journal replays."""
    async with leading(rights, kubelet, "one") as leader:
        stored: list[str] = []

        async def look() -> None:
            async with linked(rights) as link:
                place = ConfigMapStorage(link, ACCOUNT, kubelet.uid, "reader")
                stored.extend(raw.tag for raw in (await read(place))[0])

        leader.caller.before["PATCH"] = look
        leader.cloud.off = True
        await kubelet.unheard()
        await leader.heard(OutOfService)
        # Before the write was made, anybody could read who ordered it, and for what proof.
        assert stored[-1] == SetTaint.__name__
        assert ProofAccepted.__name__ in stored
        assert [each["key"] for each in await kubelet.taints()][1:] == ["node.kubernetes.io/out-of-service"]
        await kubelet.report(boot="boot-2")
        closed = await leader.heard(OutageClosed)
        assert closed.outcome == "recovered"
        assert len(await kubelet.taints()) == 1
        assert await leader.writer.wait_synced(leader.writer.last_seq)
        assert leader.told.failed == []
    async with linked(rights) as link:
        again = ConfigMapStorage(link, ACCOUNT, kubelet.uid, "two")

        def replayed() -> Replayer:
            replayer = Replayer()
            replayer.feed(History([again.source]).raw())
            return replayer

        assert (await again.call(replayed)).finish() is None


async def test_no_taint_before_its_order_is_stored(rights: Path, kubelet: Kubelet) -> None:
    """Fenced by another leader, the one whose order it is never begins it."""
    async with leading(rights, kubelet, "one") as leader:
        await kubelet.unheard()
        await until(lambda: leader.first(EvidenceRead))
        await leader.writer.wait_synced(leader.writer.last_seq)
        async with linked(rights) as link:
            other = ConfigMapStorage(link, ACCOUNT, kubelet.uid, "two")
            await other.acquire("two")
            file = await other.create(segment_file_name(99, OTHER_ID))
            await file.write(b"another leader was here")
        leader.cloud.off = True
        await leader.inbox.put(leader.cloud.evidence())
        order = await leader.heard(SetTaint)
        ended = await until(lambda: leader.ended(order.key))
        assert ended.result == "cancelled"
        assert leader.writer.lost
        assert leader.caller.patches == 0
        assert len(await kubelet.taints()) == 1


async def test_how_long_the_taint_takes(rights: Path, api_bed: Bed) -> None:
    """From the moment at which all is at hand, with the journal written before."""
    took = []
    for at in range(7):
        kubelet = Kubelet(api_bed, f"worker-{at}")
        await kubelet.register(ready="Unknown")
        async with leading(rights, kubelet, "one") as leader:
            await leader.heard(EvidenceRead)
            leader.cloud.off = True
            began = time.monotonic()
            await leader.inbox.put(leader.cloud.evidence())
            with trio.fail_after(20):
                while leader.first(OutOfService) is None:
                    await trio.sleep(0.001)
            took.append(1000 * (time.monotonic() - began))
            assert leader.first(ProofAccepted)
        await kubelet.remove()
    print(f"proof to taint: {sorted(round(each) for each in took)} ms")

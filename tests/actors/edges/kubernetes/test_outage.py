"""Core, journal and Node of one leader, all real: stored first, then tainted, and taken back."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from ebbtide.actors.edges.kubernetes.client import ApiClient
from ebbtide.actors.edges.kubernetes.config_maps import ConfigMapStorage, StoredJournal, list_journals
from ebbtide.actors.edges.kubernetes.node_view import ALIVE_ANNOTATION, ClusterView
from ebbtide.actors.edges.proof.power import PowerEdge
from ebbtide.actors.edges.proof.redfish import Redfish
from ebbtide.actors.edges.proof.sources import Machine, SourcesEdge
from ebbtide.actors.edges.proof.statements import StatementsEdge, StatementSource
from ebbtide.actors.interfaces import Edge, Effect, Ending, Outlet
from ebbtide.events.base import Event, Order, Record
from ebbtide.events.outage import (
    Contradicted,
    ContradictionEnded,
    EvidenceRead,
    LeaderStarted,
    ListWork,
    NodeRead,
    NodeReturned,
    OutageBegan,
    OutageClosed,
    OutageSettings,
    OutageWaits,
    OutOfService,
    PowerOff,
    ProofAccepted,
    ReadSources,
    RemoveTaint,
    RequestPermit,
    ReturnPermit,
    SetTaint,
    WorkListed,
    WorkRecovered,
)
from ebbtide.events.reader import History
from ebbtide.events.segment import segment_file_name
from ebbtide.host import SystemClock
from ebbtide.outage.controller import Leader, Watching
from ebbtide.outage.follower import Follower, Shared
from ebbtide.replay.replayer import Replayer
from tests.actors.edges.kubernetes.config_map_fake import read
from tests.actors.edges.kubernetes.outage_rig import UUID, Between, Kubelet
from tests.actors.edges.kubernetes.rig import linked, until
from tests.actors.edges.kubernetes.rights import granted
from tests.actors.edges.kubernetes.test_config_maps import RULES
from tests.actors.edges.kubernetes.test_node_edge import CLUSTER_RULES, LEASE_RULES
from tests.beds.bmc import redfish_emulator
from tests.beds.skipping import or_skip
from tests.events.making import IDENTITY, OTHER_ID
from tests.node.bed import Bed

pytestmark = [pytest.mark.node]

ACCOUNT = "ebbtide-follows"
NO_SETTINGS = OutageSettings()
#: The controller takes 3 s at most, and is read every 5 s.
SWITCHED_SECONDS_MAX = 40.0


class Cloud:
    """The other edges in one: a cloud that says what it is told to, a brake that lets all pass, and nothing
    that hangs.
    """

    outlet: Outlet

    def __init__(self, kubelet: Kubelet) -> None:
        self.kubelet, self.off = kubelet, False
        self.effects: Mapping[type[Order], Effect] = {
            ReadSources: self._say,
            RequestPermit: lambda order, outlet: Ending(),
            ReturnPermit: lambda order, outlet: Ending(),
            ListWork: self._list,
        }

    async def run(self, outlet: Outlet) -> None:
        self.outlet = outlet

    async def adopt(self, order: Order, outlet: Outlet) -> Ending | None:
        return None

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

    async def off_now(self) -> None:
        """Said without being asked."""
        self.off = True
        await self.outlet.put(self.evidence())


class Led:
    """One replica that leads. ``events`` has all that was recorded of the kubelet's node."""

    def __init__(
        self,
        kubelet: Kubelet,
        link: ApiClient,
        who: str,
        redfish: Redfish | None = None,
        settings: OutageSettings = NO_SETTINGS,
    ) -> None:
        self.cloud, self.caller, self._redfish = Cloud(kubelet), Between(link), redfish
        self.events: list[Event] = []
        self.told: list[str] = []
        #: Where the first of its kind is recorded, who leads is cancelled.
        self.dies: tuple[type[Event], trio.CancelScope] | None = None
        view = ClusterView()
        # What a peer says stands on the Node.
        peer = [StatementSource("peer", view, kubelet.name, kubelet.uid)]
        self._stated = StatementsEdge(peer, view, kubelet.name, SystemClock())
        shared = Shared(
            caller=self.caller,
            view=view,
            namespace=ACCOUNT,
            replica=who,
            writer=who,
            settings=lambda node: settings,
            # Journals of earlier tests are gone on with as well.
            edges=lambda each: self._edges(each) if each.node_uid == kubelet.uid else [Cloud(kubelet)],
            clock=SystemClock(),
            identity=IDENTITY,
            tell=lambda level, line: self.told.append(line),
            report=lambda level, line, fields: None,
            observers=[self._see],
        )
        self.leader = Leader(shared, link, Watching((view.run,)))

    def _edges(self, follower: Follower) -> Sequence[Edge]:
        if (redfish := self._redfish) is None:
            return [self.cloud, self._stated]
        self.cloud.effects = {
            order: effect for order, effect in self.cloud.effects.items() if order is not ReadSources
        }
        kubelet = self.cloud.kubelet
        machine = Machine(kubelet.name, kubelet.uid, "boot-1", UUID.lower(), "")
        sources = SourcesEdge([redfish], lambda: machine, SystemClock())
        return [self.cloud, sources, PowerEdge([redfish], follower.node_edge.as_ordered)]

    def _see(self, follower: Follower, records: Sequence[Record]) -> None:
        if follower.node_uid == self.cloud.kubelet.uid:
            self.events += [each.event for each in records]
            if self.dies is not None and self.first(self.dies[0]):
                self.dies[1].cancel()

    def first(self, kind: type[Event]) -> Any:
        return next((event for event in self.events if isinstance(event, kind)), None)

    async def heard(self, kind: type[Event]) -> Any:
        return await until(lambda: self.first(kind))


@asynccontextmanager
async def leading(rights: Path, kubelet: Kubelet, who: str, **fields: Any) -> AsyncIterator[Led]:
    """Left, it dies where it stands."""
    async with linked(rights) as link, trio.open_nursery() as nursery:
        led = Led(kubelet, link, who, **fields)
        nursery.start_soon(led.leader.run)
        yield led
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


async def replays(rights: Path, kubelet: Kubelet) -> list[str]:
    """The journal as another process reads it: its records' tags."""
    async with linked(rights) as link:
        place = ConfigMapStorage(link, ACCOUNT, kubelet.uid, "reader")

        def replayed() -> Replayer:
            replayer = Replayer()
            replayer.feed(History([place.source]).raw())
            return replayer

        assert (await place.call(replayed)).finish() is None
        return [raw.tag for raw in (await read(place))[0]]


async def test_from_not_ready_to_the_way_back(
    rights: Path, kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tainted once it is not Ready and proved off, free again under another boot; then nobody follows it."""
    monkeypatch.setattr("ebbtide.outage.follower.REST_SECONDS", 0.2)
    async with leading(rights, kubelet, "one") as led:
        stored: list[str] = []

        async def look() -> None:
            async with linked(rights) as link:
                place = ConfigMapStorage(link, ACCOUNT, kubelet.uid, "reader")
                stored.extend(raw.tag for raw in (await read(place))[0])

        led.caller.before["PATCH"] = look
        led.cloud.off = True
        await kubelet.unheard()
        await led.heard(OutOfService)
        # Before the write was made, anybody could read who ordered it, and for what proof.
        assert stored[-1] == SetTaint.__name__
        assert ProofAccepted.__name__ in stored
        assert [each["key"] for each in await kubelet.taints()][1:] == ["node.kubernetes.io/out-of-service"]
        await kubelet.report(boot="boot-2")
        assert (await led.heard(OutageClosed)).outcome == "recovered"
        assert len(await kubelet.taints()) == 1
        await until(lambda: not led.leader.followers)
        assert led.told == []
    assert (await replays(rights, kubelet)).count(OutageBegan.__name__) == 1
    async with linked(rights) as link:
        (found,) = [each for each in await list_journals(link, ACCOUNT) if each.node_uid == kubelet.uid]
        assert found == StoredJournal(kubelet.uid, kubelet.name, at_rest=True)


async def test_a_peer_that_speaks_in_the_last_moment(rights: Path, kubelet: Kubelet) -> None:
    """Between the taint's last reading and its write: nothing is written, before it is taken back."""
    said = {"uid": kubelet.uid, "boot": "boot-1", "by": "db-2"}
    async with leading(rights, kubelet, "one") as led:

        async def speak() -> None:
            await kubelet.annotate({ALIVE_ANNOTATION: json.dumps(said)})

        led.caller.before["PATCH"] = speak
        led.cloud.off = True
        await kubelet.unheard()
        contradicted = await led.heard(Contradicted)
        assert (contradicted.source, contradicted.name) == ("peer", "db-2")
        assert led.first(SetTaint)
        # The cloud says once more that it is off, and nothing follows from it.
        told = len(led.events)
        await led.cloud.off_now()
        await until(
            lambda: any(
                isinstance(each, EvidenceRead) and each.source == "cloud" for each in led.events[told:]
            )
        )
        assert led.first(OutOfService) is None
        assert len(await kubelet.taints()) == 1
        await kubelet.bed.api.patch(kubelet.path, {"metadata": {"annotations": {ALIVE_ANNOTATION: None}}})
        await led.heard(ContradictionEnded)
        await led.cloud.off_now()
        await led.heard(OutOfService)
        assert len(await kubelet.taints()) == 2
    assert (await replays(rights, kubelet)).count(OutageBegan.__name__) == 1


#: What is recorded in the outage below, in its order.
COURSE = (
    *(LeaderStarted, NodeRead, OutageBegan, ListWork, ReadSources, OutageWaits, EvidenceRead, ProofAccepted),
    *(RequestPermit, SetTaint, OutOfService, WorkRecovered, RemoveTaint, NodeReturned, ReturnPermit),
)


class Course:
    """Dies, is tainted, returns under another boot; whoever leads, it goes on from where it is."""

    def __init__(self, kubelet: Kubelet) -> None:
        self.kubelet, self.returned = kubelet, False

    async def go_on(self, led: Led) -> None:
        led.cloud.off = True
        if not self.returned:
            while len(await self.kubelet.taints()) < 2:
                await trio.sleep(0.02)
            self.returned = True
            # The machine does not ask whether somebody leads.
            with trio.CancelScope(shield=True):
                await self.kubelet.report(boot="boot-2")
        await until(lambda: led.first(OutageClosed))


@pytest.mark.parametrize("killed_at", COURSE, ids=lambda kind: kind.__name__)
async def test_another_leader_goes_on(rights: Path, kubelet: Kubelet, killed_at: type[Event]) -> None:
    """Killed in the step of each event, the next one tells the one outage to its end, with one taint."""
    await kubelet.unheard()
    course = Course(kubelet)
    async with leading(rights, kubelet, "one") as led:
        with trio.fail_after(20), trio.CancelScope() as life:
            led.dies = killed_at, life
            await course.go_on(led)
        assert life.cancelled_caught
    async with leading(rights, kubelet, "two") as led:
        with trio.fail_after(20):
            await course.go_on(led)
        follower = led.leader.followers[kubelet.uid]
        assert await follower.wait_synced(follower.system.next_seq - 1)
    tags = await replays(rights, kubelet)
    assert tags.count(OutageBegan.__name__) == tags.count(OutageClosed.__name__) == 1
    assert tags.count(OutOfService.__name__) == 1
    assert len(await kubelet.taints()) == 1


async def test_fenced_it_leaves(rights: Path, kubelet: Kubelet) -> None:
    """Where another leader goes on, an order is never begun, and nobody is led any more."""
    async with linked(rights) as link:
        led = Led(kubelet, link, "one")
        async with trio.open_nursery() as nursery:

            async def lead() -> None:
                await led.leader.run()
                nursery.cancel_scope.cancel()

            nursery.start_soon(lead)
            await kubelet.unheard()
            await led.heard(EvidenceRead)
            follower = led.leader.followers[kubelet.uid]
            await follower.wait_synced(follower.system.next_seq - 1)
            other = ConfigMapStorage(link, ACCOUNT, kubelet.uid, "two")
            await other.acquire("two")
            file = await other.create(segment_file_name(99, OTHER_ID))
            await file.write(b"another leader was here")
            await led.cloud.off_now()
            with trio.fail_after(20):
                await trio.sleep_forever()
        assert led.first(SetTaint)
        assert led.caller.patches == 0
        assert len(await kubelet.taints()) == 1
        assert led.told[-1].endswith("another leader goes on with this journal: two: not leading any more")


async def test_a_machine_that_nobody_hears_is_switched_off(
    rights: Path, kubelet: Kubelet, tmp_path: Path
) -> None:
    """It is on, so nothing proves that it is off: one command goes to its management controller; Off twice is
    the proof, and then the taint is set.
    """
    uuid = UUID.lower()
    changes: list[tuple[str, str]] = []
    with (
        or_skip(),
        redfish_emulator(tmp_path, {uuid: "worker"}, on_change=lambda *each: changes.append(each)) as bmc,
    ):
        redfish = Redfish(url=bmc.url, ca_file=bmc.ca_file, **bmc.secrets)
        settings = OutageSettings(power_off_seconds=1)
        async with leading(rights, kubelet, "one", redfish=redfish, settings=settings) as led:
            await kubelet.unheard()
            await led.heard(PowerOff)
            with trio.fail_after(SWITCHED_SECONDS_MAX):
                while led.first(OutOfService) is None:
                    await trio.sleep(0.05)
    assert changes == [(uuid, "Off")]
    said = [event.verdict for event in led.events if isinstance(event, EvidenceRead)]
    assert said[:2] == ["on", "on"]
    assert said[-2:] == ["off", "off"]
    assert [type(event) for event in led.events].count(PowerOff) == 1
    assert [each["key"] for each in await kubelet.taints()][1:] == ["node.kubernetes.io/out-of-service"]


async def test_how_long_the_taint_takes(rights: Path, api_bed: Bed) -> None:
    """From the moment at which all is at hand, with the journal written before."""
    took = []
    for at in range(7):
        kubelet = Kubelet(api_bed, f"worker-{at}")
        await kubelet.register(ready="Unknown")
        async with leading(rights, kubelet, "one") as led:
            await led.heard(EvidenceRead)
            began = time.monotonic()
            await led.cloud.off_now()
            with trio.fail_after(20):
                while led.first(OutOfService) is None:
                    await trio.sleep(0.001)
            took.append(1000 * (time.monotonic() - began))
            assert led.first(ProofAccepted)
        await kubelet.remove()
    print(f"proof to taint: {sorted(round(each) for each in took)} ms")

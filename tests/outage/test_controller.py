"""One lead in virtual time: followers, restarts, and their journals."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import trio
from trio.testing import MockClock

from ebbtide.actors.edges.kubernetes import config_maps
from ebbtide.actors.edges.kubernetes.api_calls import (
    BURST,
    LEASES_PATH,
    NODES_PATH,
    REQUESTS_PER_SECOND,
    Answer,
)
from ebbtide.actors.edges.kubernetes.api_client import ApiClient
from ebbtide.actors.edges.kubernetes.config_maps import (
    BLOCKED_SECONDS,
    GATHER_SECONDS,
    NO_ANSWER,
    ConfigMapStorage,
)
from ebbtide.actors.edges.kubernetes.lease_requests import (
    REQUESTS_ANNOTATION,
    Request,
    Requests,
    RequestsEdge,
    RequestsView,
)
from ebbtide.actors.edges.kubernetes.node_view import (
    FLOOD_REPORT_SECONDS,
    ClusterView,
    Declared,
    LeaseView,
    NodeView,
)
from ebbtide.actors.edges.proof_sources.proof_source import SourcesEdge
from ebbtide.actors.edges.proof_sources.remediators import KINDS, LIST_EVERY_SECONDS
from ebbtide.actors.interfaces import Edge, Effect, Ending, Outlet
from ebbtide.actors.system import System, as_checkpoint
from ebbtide.events import outage_events
from ebbtide.events.base import Event, Fact, Order, Record
from ebbtide.events.outage_events import CloseRead, EvidenceRead, PauseRead, ReadSources
from ebbtide.events.reader import History
from ebbtide.events.segment import OUTAGE_LOGIC, segment_file_name
from ebbtide.log import LogOutput
from ebbtide.outage import outage_follower
from ebbtide.outage.configuration import parse_outage
from ebbtide.outage.controller import (
    AGAIN_SECONDS,
    BEGUN_MAX,
    GONE_MAX,
    LEAVE_SECONDS_MAX,
    LOOK_SECONDS,
    Leader,
    Options,
    _leader,
    urgency,
)
from ebbtide.outage.controller_metrics import OutageMetrics
from ebbtide.outage.outage_follower import REST_SECONDS, Follower, Shared, recover_outages
from ebbtide.replay.sim.scenario import Draws
from ebbtide.replay.sim.sim_outage import COUNTED
from tests.actors.edges.kubernetes.config_map_fake import ConfigMaps
from tests.actors.edges.kubernetes.write_fake import Asked, Scripted, status
from tests.actors.edges.process.process_bed import Outbox
from tests.actors.runner_parts import TrioClock
from tests.events.making import IDENTITY, stamp
from tests.journals import JOURNAL_ID, Journal, Memory, checkpoint, steps
from tests.waiting import until

HANGS = outage_events.Attachment(name="va-1", volume="pv-1", driver="d", deleting=True)
RENEW_SECONDS = 10
#: Promised 15, less the renewal of the Lease, which has the note.
SEEN_SECONDS_MAX = 15 - 2.4
HOUR_SECONDS = 3600


@pytest.fixture(autouse=True)
def _no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A working thread would stop the loop, and virtual time would jump."""

    async def at_once(function: Callable[..., object], *args: object, **fields: object) -> object:
        await trio.lowlevel.checkpoint()
        return function(*args)

    monkeypatch.setattr(trio.to_thread, "run_sync", at_once)


class Server(ConfigMaps):
    """ConfigMaps, and one Node with its lease in the test's state."""

    def __init__(self) -> None:
        super().__init__(Draws(1))
        self.view = ClusterView()
        self.view.sees(trio.current_time())
        self.node = NodeView("n", "uid-n", "1", "b1", "True", "s", "", "none", (), "s1")
        self._version = 1
        self.view.nodes.put(self.node)
        self.renew()

    def put(self, **fields: Any) -> None:
        self._version += 1
        self.node = self.node._replace(version=str(self._version), **fields)
        self.view.nodes.put(self.node)

    def renew(self) -> None:
        self._version += 1
        self.lease = LeaseView("n", str(self._version), f"l{self._version}", 40)
        self.view.leases.put(self.lease)

    async def renew_for(self, seconds: float) -> None:
        for _ in range(int(seconds / RENEW_SECONDS)):
            await trio.sleep(RENEW_SECONDS)
            self.renew()

    def carry_out(self, method: str, path: str, body: Any) -> Answer:
        if path.startswith(f"{NODES_PATH}/"):
            node = self.node
            meta = {"name": node.name, "uid": node.uid, "resourceVersion": node.version}
            ready = {"type": "Ready", "status": node.ready, "lastHeartbeatTime": node.status_mark}
            state = {"nodeInfo": {"bootID": node.boot_id, "systemUUID": "s"}, "conditions": [ready]}
            return Answer(200, msgspec.json.encode({"metadata": meta, "status": state}))
        if path.startswith(f"{LEASES_PATH}/"):
            meta = {"name": "n", "resourceVersion": self.lease.version}
            spec = {"renewTime": self.lease.mark, "leaseDurationSeconds": 40}
            return Answer(200, msgspec.json.encode({"metadata": meta, "spec": spec}))
        return super().carry_out(method, path, body)


class Rest:
    """All other edges in one: no reports, one hung volume, and failures on request."""

    def __init__(self) -> None:
        self.fails = trio.Event()
        self.effects: Mapping[type[Order], Effect] = {
            outage_events.ReadSources: lambda order, outlet: Ending(),
            outage_events.RequestPermit: self._permit,
            outage_events.ReturnPermit: lambda order, outlet: Ending(),
            outage_events.ListWork: self._list,
            outage_events.PostOutageEvent: lambda order, outlet: Ending(),
        }

    async def run(self, outlet: Outlet) -> None:
        await self.fails.wait()
        raise RuntimeError("a defect")

    async def adopt(self, order: Order, outlet: Outlet) -> Ending | None:
        return None

    async def _permit(self, order: outage_events.RequestPermit, outlet: Outlet) -> Ending:
        await outlet.put(msgspec.structs.replace(COUNTED, key=order.key))
        return Ending()

    async def _list(self, order: outage_events.ListWork, outlet: Outlet) -> Ending:
        await outlet.put(outage_events.WorkListed(key=order.key, attachments=(HANGS,)))
        return Ending()


class Led:
    """``events``: all records. ``rest``: of the newest follower."""

    def __init__(self, server: Server) -> None:
        self.events: list[Event] = []
        self.last_seq = 0
        self.told: list[str] = []
        self.kind: type[Rest] = Rest
        self.rest = Rest()
        self.metrics = OutageMetrics()
        shared = Shared(
            caller=server,
            view=server.view,
            namespace="ns",
            replica="one",
            writer="one",
            settings=lambda node: outage_events.OutageSettings(),
            edges=self._edges,
            clock=TrioClock(),
            identity=IDENTITY,
            tell=lambda level, line: self.told.append(line),
            report=lambda level, line, fields: None,
            observers=[self._see],
            on_failed=self.metrics.follower_failed,
            on_blocked=self.metrics.block,
        )
        self.leader = Leader(shared, None, ())  # type: ignore[arg-type]

    def _edges(self, follower: Follower) -> Sequence[Edge]:
        self.rest = self.kind()
        return [self.rest]  # type: ignore[list-item]

    def _see(self, follower: Follower, records: Sequence[Record]) -> None:
        self.events += [record.event for record in records]
        self.last_seq = records[-1].seq

    def count(self, kind: type[Event]) -> int:
        return sum(isinstance(each, kind) for each in self.events)

    async def until(self, kind: type[Event], count: int = 1) -> None:
        await until(lambda: self.count(kind) >= count, f"{count} of {kind.__name__}")


@asynccontextmanager
async def leading(kind: type[Rest] = Rest, **trouble: Any) -> AsyncIterator[tuple[Server, Led]]:
    """With an open outage, if ``trouble`` changes the Node."""
    server = Server()
    server.view.nodes.listed.set()
    server.view.leases.listed.set()
    led = Led(server)
    led.kind = kind
    async with trio.open_nursery() as nursery:
        nursery.start_soon(led.leader.run)
        if trouble:
            server.put(**trouble)
            await led.until(outage_events.OutageBegan)
        yield server, led
        nursery.cancel_scope.cancel()


async def test_a_follower_that_fails_begins_anew(autojump_clock: MockClock) -> None:
    """Also for an open outage whose node has recovered."""
    async with leading(ready="Unknown") as (server, led):
        # The kubelet is back and itself reports NotReady: no trouble.
        server.renew()
        server.put(ready="False", status_mark="s2")
        await server.renew_for(30)
        assert led.count(outage_events.OutageClosed) == 0
        led.rest.fails.set()
        notes = []
        for _ in range(int(AGAIN_SECONDS)):
            await trio.sleep(1)
            notes.append(led.metrics.blocked_text())
        await server.renew_for(3 * RENEW_SECONDS)
        assert led.count(outage_events.LeaderStarted) == 2
        assert [line for line in led.told if "a defect" in line]
        # What an error quotes may be secret.
        assert [note for note in notes if "n could be stored" in note]
        assert not [note for note in notes if "a defect" in note]
        assert "ebbtide_outage_follower_failures_total 1\n" in led.metrics.text()


async def test_the_most_urgent_journals_begin_first(autojump_clock: MockClock) -> None:
    """With many open: a returned but tainted node is unusable."""
    async with leading(ready="Unknown") as (server, _):
        pass
    for name in range(2 * BEGUN_MAX):
        server.view.nodes.put(
            server.node._replace(name=f"m{name}", uid=f"uid-m{name}", version=str(100 + name))
        )
    server.view.nodes.put(
        server.node._replace(name="z", uid="uid-z", version="200", ready="True", taint="ours")
    )
    led = Led(server)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(led.leader.run)
        await trio.sleep(0.1)
        begun = [each.node for each in led.leader.followers.values()]
        nursery.cancel_scope.cancel()
    assert len(begun) == BEGUN_MAX
    assert begun[0] == "z"
    gone = urgency(None)
    assert urgency(server.node._replace(taint="ours", ready="True")) < urgency(server.node) < gone


async def test_a_node_that_is_well_writes_no_journal(autojump_clock: MockClock) -> None:
    """An old statement may stay forever; renewals are irrelevant."""
    async with leading() as (server, led):
        server.put(declared=Declared("uid-n", "b0", "old", "somebody"))
        await led.until(outage_events.LeaderStarted)
        before = server.creates
        await server.renew_for(HOUR_SECONDS)
        assert server.creates - before < 10
        assert len(led.leader.followers) == 1
        # Silent again: the last renewal and the miss are recorded.
        last = server.lease.mark
        await led.until(outage_events.OutageBegan)
        said = [
            each
            for each in led.events
            if isinstance(each, outage_events.HeartbeatSeen | outage_events.HeartbeatMissed)
        ]
        assert [type(each) for each in said[-2:]] == [
            outage_events.HeartbeatSeen,
            outage_events.HeartbeatMissed,
        ]
        assert [each.mark for each in said[-2:]] == [last, last]
        # From now on each sign of life counts.
        count = led.count(outage_events.HeartbeatSeen)
        server.renew()
        await led.until(outage_events.HeartbeatSeen, count + 1)


async def test_a_node_that_is_back_writes_little(autojump_clock: MockClock) -> None:
    """Its leftovers may hang for weeks while it renews its lease."""
    async with leading(ready="Unknown", taint="ours") as (server, led):
        server.put(boot_id="b2", ready="True", taint="none", status_mark="s2")
        await led.until(outage_events.NodeReturned)
        before = server.creates
        await server.renew_for(HOUR_SECONDS)
        assert server.creates - before < 10
        assert led.count(outage_events.OutageClosed) == 0


async def stored_tags(server: Server) -> set[str]:
    place = ConfigMapStorage(server, "ns", "uid-n", "two")
    await place.acquire("two")
    return {raw.tag for raw in History([place.source]).raw()}


class Nothing(Rest):
    async def _list(self, order: outage_events.ListWork, outlet: Outlet) -> Ending:
        await outlet.put(outage_events.WorkListed(key=order.key))
        return Ending()


@pytest.mark.parametrize("kept", [True, False])
async def test_an_alarm_outlives_later_outages(
    kept: bool, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kubelet can begin and end outages until retention removes the one with its alarm."""
    limits = outage_follower.OUTAGE_LIMITS._replace(total_bytes=1)
    monkeypatch.setattr(outage_follower, "OUTAGE_LIMITS", limits)
    monkeypatch.setattr(outage_follower, "ALARM_NS", outage_follower.ALARM_NS if kept else 0)
    async with leading(Nothing, ready="Unknown", taint="ours") as (server, led):
        server.put(status_mark="alive")
        await led.until(outage_events.ProofWasWrong)
        for count in range(1, 4):
            server.put(ready="True", boot_id=f"again-{count}", taint="none", status_mark=f"{count}")
            await led.until(outage_events.OutageClosed, count)
            await server.renew_for(2 * REST_SECONDS)
            server.put(ready="Unknown")
            await led.until(outage_events.LeaderStarted, count + 1)
        assert ("ProofWasWrong" in await stored_tags(server)) is kept


@pytest.mark.parametrize("alarmed", [1, 3])
async def test_an_alarm_before_or_behind_a_gap(alarmed: int, autojump_clock: MockClock) -> None:
    """It keeps its outage, though the checkpoint behind both needs no history."""
    journal, seq = Journal(IDENTITY._replace(machine_id="uid-n", logic=OUTAGE_LOGIC)), 1
    for number in range(1, 5):
        at = stamp(seq)
        journal.begin(at).add(checkpoint(seq, at, as_checkpoint(System(logic=OUTAGE_LOGIC))))
        if number < 4:
            wrong = outage_events.ProofWasWrong(proof="cloud", what="it reports its status")
            event = wrong if number == alarmed else outage_events.WorkRecovered()
            journal.add(*steps(event, first_seq=seq + 1, episode=seq))
        seq += 2
    assert recover_outages([Memory(journal.files)], "uid-n", bytes(16)).keep_from == 2 * alarmed - 1
    del journal.files[segment_file_name(2, JOURNAL_ID)]
    recovered = recover_outages([Memory(journal.files)], "uid-n", bytes(16))
    assert (recovered.verdict.state, recovered.keep_from) == ("intact", 2 * alarmed - 1)


async def test_a_kubelet_that_reports_without_an_end(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its reports become rare and short: the alarm stays on record. At the bound the journal begins anew."""
    monkeypatch.setattr(config_maps, "JOURNAL_BYTES_MAX", 2**18)

    async def flood(hours: float) -> None:
        for at in range(int(hours * HOUR_SECONDS / RENEW_SECONDS)):
            server.put(volumes_in_use=(f"{at:0500}",) * 20, status_mark=f"{at}")
            server.renew()
            await trio.sleep(RENEW_SECONDS)

    async with leading(ready="Unknown", taint="ours") as (server, led):
        server.put(status_mark="alive")
        await led.until(outage_events.ProofWasWrong)
        await flood(0.5)
        assert {"OutageBegan", "OutOfService", "ProofWasWrong"} <= await stored_tags(server)
        assert led.count(outage_events.LeaderStarted) == 1
        reads = [each for each in led.events if isinstance(each, outage_events.NodeRead)]
        assert len(reads[-1].volumes_in_use) == 1
        monkeypatch.setattr(config_maps, "JOURNAL_BYTES_MAX", 2**16)
        await flood(0.1)
        assert [line for line in led.told if "going on without its history" in line]
        assert sum(len(str(each["binaryData"])) for each in server.objects.values()) < 3 * 2**16
        count = led.count(outage_events.RemoveTaint)
        server.put(boot_id="b2", ready="True", status_mark="s2", volumes_in_use=())
        await trio.sleep(FLOOD_REPORT_SECONDS)
        await led.until(outage_events.RemoveTaint, count + 1)


@pytest.mark.parametrize("fill", [0, 1])
async def test_a_follower_rests_late_in_a_flood(
    fill: float, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one would report the Node at once."""
    async with leading(Nothing, ready="Unknown") as (server, led):
        await led.until(outage_events.OutageBegan)
        server.put(ready="True", status_mark="s2")
        server.renew()
        await led.until(outage_events.OutageClosed)
        monkeypatch.setattr(outage_follower, "FLOOD_FILL", fill)
        await server.renew_for(2 * REST_SECONDS)
        assert len(led.leader.followers) == 1 - fill
        await server.renew_for(FLOOD_REPORT_SECONDS)
        assert not led.leader.followers


class Breaks(Rest):
    async def run(self, outlet: Outlet) -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise RuntimeError("a defect")


async def test_a_follower_that_fails_in_the_end_of_a_lead(autojump_clock: MockClock) -> None:
    """It is logged and ends only this lead, not the process."""
    async with leading(Breaks, ready="Unknown") as (_, led):
        pass
    assert [line for line in led.told if "a defect" in line or "RuntimeError" in line]


async def test_a_leader_that_is_ended_stores_what_it_has_seen(autojump_clock: MockClock) -> None:
    """Buffered steps were logged, so they must be stored too."""
    async with leading(ready="Unknown") as (server, led):
        await trio.sleep(GATHER_SECONDS * 5)
        server.renew()
        await led.until(outage_events.HeartbeatSeen)
        with trio.fail_after(LEAVE_SECONDS_MAX):
            await led.leader.leave()
    place = ConfigMapStorage(server, "ns", "uid-n", "two")
    await place.acquire("two")
    assert max(raw.seq for raw in History([place.source]).raw()) >= led.last_seq > 0


DEAD = status(500, 'failed calling webhook "a.example.test": connection refused')


@pytest.mark.parametrize("refused", [DEAD, None], ids=["dead", "hung"])
@pytest.mark.parametrize("calm", [True, False])
async def test_a_blocked_journal_is_seen_within_fifteen_seconds(
    calm: bool, refused: Answer | None, autojump_clock: MockClock
) -> None:
    """In log, metrics and the Lease's note; also in a calm cluster, which writes no record."""
    async with leading(**({} if calm else {"ready": "Unknown"})) as (server, led):
        await server.renew_for(60)
        assert led.metrics.blocked_text() == ""
        assert 'ebbtide_outage_journal_blocked{node=""} 0\n' in led.metrics.text()
        blocked_at, server.refuses = trio.current_time(), [refused]
        await until(led.metrics.blocked_text, "it is seen")
        assert trio.current_time() - blocked_at < SEEN_SECONDS_MAX
        assert 'ebbtide_outage_journal_blocked{node=""} 1\n' in led.metrics.text()
        assert 'ebbtide_outage_writes_failed_total{what="journal"} 1\n' in led.metrics.text()
        why = "500 failed calling webhook" if refused else NO_ANSWER
        assert [line for line in led.told if line == f"the journals cannot be written: {why}"]
        server.refuses.clear()
        await until(lambda: not led.metrics.blocked_text(), "it is over")
        assert "the journals can be written again" in led.told


async def test_what_blocks_one_journal_is_seen_by_its_node(autojump_clock: MockClock) -> None:
    """A webhook for these objects alone: dry runs pass. The Lease names the nodes."""
    async with leading(ready="Unknown") as (server, led):
        await server.renew_for(60)
        server.spares_dry_runs, server.refuses = True, [DEAD]
        server.renew()
        await until(led.metrics.blocked_text, "it is seen")
        assert led.metrics.blocked_text().startswith("no record of n could be stored for")
        assert 'ebbtide_outage_journal_blocked{node="n"} 1\n' in led.metrics.text()
        assert "n: the journal cannot be written: 500 failed calling webhook" in str(led.told)
        server.refuses.clear()
        await until(lambda: not led.metrics.blocked_text(), "it is over")


async def test_a_follower_that_cannot_go_on_is_seen(autojump_clock: MockClock) -> None:
    """A mutating webhook, or a defect: no record is stored while it begins anew."""
    async with leading(ready="Unknown") as (server, led):
        server.spares_dry_runs = True
        server.mutate = lambda body: body["metadata"]["annotations"].clear()
        await until(led.metrics.blocked_text, "it is seen")
        assert "of n could be stored" in led.metrics.blocked_text()
        assert "a mutating webhook changes" in led.metrics.blocked_text()
        creates = server.creates
        await trio.sleep(10 * AGAIN_SECONDS)
        assert server.creates - creates < 30
        server.mutate = lambda body: None
        count = led.count(outage_events.OutageBegan)
        await led.until(outage_events.OutageBegan, count + 1)


async def test_one_lost_answer_is_no_alarm(autojump_clock: MockClock) -> None:
    async with leading() as (server, led):
        server.refuses = [DEAD]
        await trio.sleep(BLOCKED_SECONDS / 2)
        server.refuses.clear()
        await trio.sleep(60)
        assert led.metrics.counts["ebbtide_outage_writes_failed_total", "journal"] == 0


# --- the assembled controller on a server in virtual time: the total request rate


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
    return _leader(options, "one", *clients, RequestsView(), LogOutput(), OutageMetrics())


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


async def test_the_environments_resource_is_recorded(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In each journal's settings, so that the trace follows from the journal."""
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.cluster.name=blue")
    shared = leader(Scripted(remediators), None)._shared
    assert shared.settings("node-1").resource == {"k8s.cluster.name": "blue"}


async def test_a_persons_requests(autojump_clock: MockClock) -> None:
    """Each once, about this node; a pause of all nodes; what is spoilt pauses."""
    view, outbox = RequestsView(), Outbox()

    def put(pause: dict[str, Request], close: dict[str, Request], text: str = "") -> None:
        made = text or msgspec.json.encode(Requests(pause, close)).decode()
        view.take({"metadata": {"annotations": {REQUESTS_ANNOTATION: made}}})

    ann, bob = Request("ann", "noon", "the array is moved"), Request("bob", "one")
    put({"node-1": ann}, {"node-2": ann})
    edge = RequestsEdge(view, "node-1")
    assert view.now.paused("node-1") == "ann"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(edge.run, outbox)
        for pause, close in (
            ({"": bob}, {"node-2": ann}),
            ({}, {"node-1": ann}),
            ({}, {"node-1": ann, "node-2": bob}),
            ({}, {"node-1": bob}),
            ({"node-1": Request("\x1b", "two")}, {"node-1": Request("ann", "three", "x" * 201)}),
        ):
            put(pause, close)
            await trio.sleep(1)
        put({}, {})
        await trio.sleep(1)
        put({}, {}, "{spoilt")
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert outbox.facts == [
        PauseRead(by="bob"),
        PauseRead(),
        CloseRead(by="ann", why="the array is moved", at="noon"),
        CloseRead(by="bob", why="", at="one"),
        PauseRead(by="unreadable"),
        PauseRead(),
        PauseRead(by="unreadable"),
    ]


async def test_journals_of_unknown_nodes_are_opened_a_few_at_a_time(autojump_clock: MockClock) -> None:
    """Whoever may create ConfigMaps can name thousands. A node in trouble does not wait for them."""
    server = Server()
    for number in range(300):
        uid = f"evil-{number}"
        name = f"ebbtide-outage-{uid}-0000000001"
        labels, node = {"ebbtide.dev/node-uid": uid}, {"ebbtide.dev/node": f"evil-{number}"}
        server.objects[name] = {"metadata": {"name": name, "uid": uid, "labels": labels, "annotations": node}}
    for each in (server.view.nodes, server.view.leases):
        each.listed.set()
    led, most = Led(server), 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(led.leader.run)
        server.put(ready="Unknown")
        for _ in range(60):
            await trio.sleep(LOOK_SECONDS)
            most = max(most, len(led.leader.followers))
        assert "uid-n" in led.leader.followers
        assert most == GONE_MAX + 1
        nursery.cancel_scope.cancel()

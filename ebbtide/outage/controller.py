"""The controller: its leader runs a `Follower` for each node in trouble and each open journal of an earlier
leader. No state survives a lead: the next leader reads it from the API server.
"""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
import trio

from ebbtide.actors.edges.kubernetes.api_calls import ApiCaller, PacedCaller, Unanswered, answer_text
from ebbtide.actors.edges.kubernetes.api_client import ApiClient
from ebbtide.actors.edges.kubernetes.api_writes import OutageEventsEdge
from ebbtide.actors.edges.kubernetes.config_maps import BLOCKED_SECONDS, NO_ANSWER, list_journals, try_create
from ebbtide.actors.edges.kubernetes.leadership import LEASE, Leadership
from ebbtide.actors.edges.kubernetes.lease_requests import RequestsEdge, RequestsView
from ebbtide.actors.edges.kubernetes.node_view import ClusterView, NodeView
from ebbtide.actors.edges.kubernetes.work_view import Followed, WorkEdge, WorkView
from ebbtide.actors.edges.proof_sources.cluster_sources import (
    CONTRADICT,
    STATED,
    KubeletSource,
    StatementsEdge,
    StatementSource,
)
from ebbtide.actors.edges.proof_sources.proof_source import (
    Check,
    Machine,
    PowerEdge,
    PowerSwitch,
    ProofSource,
    SourcesEdge,
)
from ebbtide.actors.edges.proof_sources.remediators import (
    KINDS,
    Machines,
    Remediations,
    Remediator,
    RemediatorSource,
)
from ebbtide.actors.interfaces import NOTICE, WARNING, Clock, Edge
from ebbtide.actors.outage import OutageState
from ebbtide.actors.outage_work import DetachState, StuckPodState
from ebbtide.actors.system import System
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.outage_events import Attachment, OutageSettings
from ebbtide.events.units import span_s
from ebbtide.host import SystemClock, journal_identity
from ebbtide.log import LogOutput, failure_line
from ebbtide.outage.configuration import OutageConfiguration, Pool
from ebbtide.outage.controller_metrics import OutageMetrics
from ebbtide.outage.first_uuids import FirstUuids
from ebbtide.outage.outage_follower import Follower, JournalLost, Shared, in_trouble
from ebbtide.outage.permits import PermitEdge, Permits, ask_etcd, used_labels
from ebbtide.tracing import usable_destination, usable_resource

T = TypeVar("T")

#: A look at a thousand nodes takes 3 ms.
LOOK_SECONDS = 0.5
#: In each look: a begin costs ten requests of twenty a second, and a slow API server makes all leases late.
BEGUN_MAX = 5
#: Open journals of deleted Nodes. A client can forge thousands.
GONE_MAX = 20
LEFT_SECONDS = 0.05
#: Before a failed follower starts again.
AGAIN_SECONDS = 15.0
#: Between two dry runs.
TRY_SECONDS = 3.0
#: Beside the nodes: the leader's dry run and its first list.
EVERY_JOURNAL = ""


def urgency(node: NodeView | None) -> int:
    """The lower begins first: a node that only our taint makes unusable, then nodes that are down. None: a
    deleted node.
    """
    if node is not None and node.taint == "ours" and node.ready == "True":
        return 0
    return 1 if node is not None and node.ready == "Unknown" else 2


class Leader:
    """``tasks`` run beside the followers until cancelled, and never fail."""

    def __init__(
        self, shared: Shared, link: ApiClient, tasks: Sequence[Callable[[ApiClient], Awaitable[None]]]
    ) -> None:
        self._shared, self._link, self._tasks = shared, link, tasks
        #: By Node UID.
        self.followers: dict[str, Follower] = {}
        #: Open journals without a follower, by Node UID: the name, when to begin, and the last failure.
        self._left: dict[str, tuple[str, float, str]] = {}
        self._fenced = ""
        self._leaving = False
        self._refused = self._unlisted = ""
        self._blocked: dict[str, str] = {}

    async def run(self) -> None:
        """Leads until a journal has another leader."""
        shared = self._shared
        async with trio.open_nursery() as nursery:
            for task in self._tasks:
                nursery.start_soon(task, self._link)
            nursery.start_soon(self._try_journals)
            nursery.start_soon(self._report_blocked)
            await shared.view.listed()
            now = trio.current_time()
            if shared.machines is not None:
                await self._until_read(shared.machines.load)
            for journal in await self._until_read(partial(list_journals, shared.caller, shared.namespace)):
                if not journal.at_rest and journal.node:
                    self._left[journal.node_uid] = journal.node, now, ""
            while not self._fenced:
                for node_uid, node in self._due()[: 0 if self._leaving else BEGUN_MAX]:
                    self._left.pop(node_uid, None)
                    self.followers[node_uid] = Follower(shared, node, node_uid)
                    nursery.start_soon(self._run, self.followers[node_uid])
                await trio.sleep(LOOK_SECONDS)
            nursery.cancel_scope.cancel()
        if self._fenced:
            shared.tell(WARNING, f"{self._fenced}: not leading any more")

    async def leave(self) -> None:
        """Returns once all followers have stored their records."""
        self._leaving = True
        for follower in self.followers.values():
            follower.leave()
        while self.followers:
            await trio.sleep(LEFT_SECONDS)

    def _due(self) -> list[tuple[str, str]]:
        now, there = trio.current_time(), {node.uid: node for node in self._shared.view.there()}
        # A healthy node too: its outage may be open.
        due = {node_uid: node for node_uid, (node, at, _) in self._left.items() if at <= now}
        due |= {
            node.uid: node.name
            for node in there.values()
            if node.uid not in self.followers
            and node.uid not in self._left
            and in_trouble(self._shared.view, node.name, node.uid)
        }
        gone = [node_uid for node_uid in due if node_uid not in there]
        room = max(0, GONE_MAX - sum(node_uid not in there for node_uid in self.followers))
        due = {node_uid: node for node_uid, node in due.items() if node_uid not in gone[room:]}
        return sorted(due.items(), key=lambda each: urgency(there.get(each[0])))

    async def _until_read(self, read: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                found = await read()
                self._unlisted = ""
                return found
            except OSError as error:
                self._unlisted = error.strerror or str(error)
                await trio.sleep(AGAIN_SECONDS)

    async def _try_journals(self) -> None:
        """A calm cluster writes no journal: finds out before its next outage."""
        failing_since = math.inf
        while True:
            began = trio.current_time()
            try:
                answer = await try_create(self._shared.caller, self._shared.namespace)
                problem = "" if answer.ok else answer_text(answer)
            except Unanswered as error:
                problem = NO_ANSWER if error.sent else self._refused
            failing_since = min(failing_since, began) if problem else math.inf
            if not problem or trio.current_time() - failing_since >= BLOCKED_SECONDS:
                self._refused = problem
            await trio.sleep(TRY_SECONDS if problem == self._refused else LOOK_SECONDS)

    async def _report_blocked(self) -> None:
        """Logs when a journal begins to wait, and when it goes on: two reasons may alternate for hours."""
        while True:
            found = {each.node: each.blocked for each in self.followers.values()}
            found[EVERY_JOURNAL] = self._unlisted or self._refused
            blocked = {node: why for node, why in sorted(found.items()) if why}
            for node in self._blocked.keys() ^ blocked.keys():
                why, whose = blocked.get(node, ""), f"{node}: the journal" if node else "the journals"
                line = f"{whose} cannot be written: {why}" if why else f"{whose} can be written again"
                self._shared.tell(WARNING if why else NOTICE, line)
            self._blocked = blocked
            failed = {node: why for node, _, why in self._left.values() if why}
            self._shared.on_blocked(blocked | failed)
            await trio.sleep(LOOK_SECONDS)

    async def _run(self, follower: Follower) -> None:
        try:
            await follower.run()
        except JournalLost as lost:
            if lost.fenced:
                self._fenced = f"{follower.node}: {lost}"
            else:
                self._failed(follower, f"the journal: {lost}")
        except BaseExceptionGroup as group:
            # If the lead ends too, its Cancelled must go on.
            failures, ends = group.split(Exception)
            if failures is not None:
                self._broke(follower, failures)
            if ends is not None:
                raise ends from None
        except Exception as error:
            self._broke(follower, error)
        finally:
            del self.followers[follower.node_uid]

    def _broke(self, follower: Follower, error: Exception) -> None:
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        # What an error quotes is for the log alone.
        self._failed(follower, failure_line("the follower", error), "the follower fails, see the log")

    def _failed(self, follower: Follower, line: str, why: str = "") -> None:
        self._shared.on_failed()
        self._shared.tell(WARNING, f"{follower.node}: {line}: beginning anew in {span_s(AGAIN_SECONDS)}")
        self._left[follower.node_uid] = (follower.node, trio.current_time() + AGAIN_SECONDS, why or line)


#: Another replica takes over after the same time.
LEAVE_SECONDS_MAX = 3.0
#: Each process of a pod needs another writer's name.
NONCE_BYTES = 4


class Options(NamedTuple):
    """``kubeconfig`` None: the pod's service account. ``dry_run`` overrides the configuration."""

    configuration: OutageConfiguration
    kubeconfig: Path | None
    replica: str
    dry_run: bool


async def run_controller(options: Options, log: LogOutput) -> None:
    """Runs until SIGTERM or SIGINT. Gives the Lease back; taints stay."""
    configuration = options.configuration
    identity = f"{options.replica}_{os.urandom(NONCE_BYTES).hex()}"
    link, metrics = ApiClient(options.kubeconfig, log.tell), OutageMetrics()
    async with trio.open_nursery() as nursery:
        if configuration.metrics_listen:
            from ebbtide.metrics_server import serve_or_report  # late: h11 is only needed for scrapes

            nursery.start_soon(serve_or_report, configuration.metrics_listen, metrics.text, log.tell)
        await nursery.start(link.run)
        manager: ApiClient | None = None
        if (file := configuration.cluster_api.kubeconfig) is not None:
            manager = ApiClient(Path(file), lambda level, line: log.tell(level, f"clusterApi: {line}"))
            await nursery.start(manager.run)
        requests = RequestsView()
        leadership = Leadership(
            link, configuration.namespace, LEASE, identity, log.tell, metrics.blocked_text, requests.take
        )
        #: At most one.
        leads: list[Leader] = []

        async def act_as_leader() -> None:
            leads.append(_leader(options, identity, link, manager, requests, log, metrics))
            try:
                await leads[0].run()
            finally:
                leads.clear()
                metrics.followers = None
                metrics.block({})

        async def end_when_asked() -> None:
            with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                await anext(signals)
                with trio.move_on_after(LEAVE_SECONDS_MAX):
                    for leader in leads:
                        await leader.leave()
                leading.cancel_scope.cancel()

        async with trio.open_nursery() as leading:
            leading.start_soon(end_when_asked)
            while True:
                await leadership.run(act_as_leader)
        nursery.cancel_scope.cancel()
    log.tell(NOTICE, "ended")


def _leader(
    options: Options,
    identity: str,
    link: ApiClient,
    manager: ApiClient | None,
    requests: RequestsView,
    log: LogOutput,
    metrics: OutageMetrics,
) -> Leader:
    """``manager``: the management cluster's API server, if there is one."""
    configuration, clock = options.configuration, SystemClock()
    view, work = ClusterView(log.tell, used_labels(configuration)), WorkView(log.tell)
    resource = usable_resource(os.environ, log.tell)
    paced = PacedCaller(link)
    machines = FirstUuids(paced, configuration.namespace, view, log.tell)
    permits = Permits(configuration, view, lambda node: ask_etcd(paced, work.pods_of(node)))
    # Another server has its own rate.
    proof = proof_edges(configuration, view, clock, paced, None if manager is None else PacedCaller(manager))

    def settings(node: str) -> OutageSettings:
        made, pool = configuration.settings, pool_of(configuration, view, node)
        power_off = pool.power_off
        return msgspec.structs.replace(
            made,
            dry_run=made.dry_run or options.dry_run,
            power_off_seconds=0 if power_off is None else power_off.after_ns // NS_PER_SECOND,
            # Without a management controller no UUID decides: some clouds reuse a providerID.
            bound=pool.bound or not (pool.redfish or pool.ipmi),
            resource=resource,
            paused=requests.now.paused(node),
        )

    def edges(follower: Follower) -> Sequence[Edge]:
        node = follower.node
        return (
            WorkEdge(
                work, node, effect=configuration.effect, followed=followed_in(follower.system), caller=paced
            ),
            *proof(node, follower.node_uid, follower.node_edge.as_ordered),
            PermitEdge(permits, node, follower.node_uid),
            OutageEventsEdge(paced, node, options.replica, lambda: follower.trace_id),
            RequestsEdge(requests, node),
        )

    shared = Shared(
        caller=paced,
        view=view,
        namespace=configuration.namespace,
        replica=options.replica,
        writer=identity,
        settings=settings,
        edges=edges,
        clock=clock,
        identity=journal_identity(options.replica),
        tell=log.tell,
        report=log.report,
        observers=(metrics.observe,),
        on_failed=metrics.follower_failed,
        on_blocked=metrics.block,
        machines=machines,
    )
    tasks: list[Callable[[ApiClient], Awaitable[None]]] = [view.run, work.run, machines.run]
    destination = usable_destination(configuration.tracing.given, os.environ, log.tell)
    if destination is not None:
        from ebbtide.outage.traces import OutageTraces

        traces = OutageTraces(paced, configuration.namespace, destination, log.tell)
        shared = shared._replace(observers=(*shared.observers, traces.observe))
        tasks.append(traces.run)
    leader = Leader(shared, link, tasks)
    metrics.followers = leader.followers
    return leader


def followed_in(system: System) -> Followed:
    pods, attachments, states = [], [], [slot.state for slot in system.slots.values()]
    for state in states:
        if isinstance(state, StuckPodState) and state.pod is not None and state.phase != "over":
            pods.append(state.pod)
        elif isinstance(state, DetachState) and state.phase != "over":
            attachments.append(Attachment(name=state.name))
    elsewhere = next((state.elsewhere for state in states if isinstance(state, OutageState)), ())
    return Followed(pods, attachments, elsewhere)


def machine_of(view: ClusterView, node: str, node_uid: str) -> Machine | None:
    """As last read; None without this Node."""
    found = view.of(node).node
    if found is None or found.uid != node_uid:
        return None
    return Machine(found.name, found.uid, found.boot_id, found.system_uuid, found.provider_id)


def pool_of(configuration: OutageConfiguration, view: ClusterView, node: str) -> Pool:
    """By its labels; a deleted Node has none."""
    found = view.of(node).node
    return configuration.pool_of(found.labels if found is not None else {})


def proof_edges(
    configuration: OutageConfiguration,
    view: ClusterView,
    clock: Clock,
    caller: ApiCaller,
    manager: ApiCaller | None = None,
) -> Callable[[str, str, Check], Sequence[Edge]]:
    """``manager``: the cluster with Cluster API's Machines; None: this one. The pool is chosen when the node
    is suspected. ``check``: before a power-off.
    """
    remediators: list[Remediator] = [Remediations(caller, name) for name in KINDS]
    remediators.append(Machines(caller if manager is None else manager, view))
    by_pool = {pool.name: pool.machine_sources() for pool in configuration.pools}

    def edges(node: str, node_uid: str, check: Check) -> Sequence[Edge]:
        pool = pool_of(configuration, view, node)
        stated = [
            StatementSource(each, view, node, node_uid)
            for each in STATED
            if each in pool.believe or each in CONTRADICT
        ]
        machine = by_pool[pool.name](node) if pool.name in by_pool else []
        sources: list[ProofSource] = [*stated, *machine]
        if pool.ask_kubelet:
            sources.append(KubeletSource(view, node))
        if "remediator" in pool.believe:
            sources += [RemediatorSource(each, view, node) for each in remediators]
        return (
            StatementsEdge(stated, view, node, clock),
            SourcesEdge(sources, lambda: machine_of(view, node, node_uid), clock),
            PowerEdge([each for each in machine if isinstance(each, PowerSwitch)], check),
        )

    return edges

"""The controller's process: assembly, leadership, end."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import trio

from ebbtide.actors.edges.kubernetes.api_client import ApiClient
from ebbtide.actors.edges.kubernetes.leadership import Leadership
from ebbtide.actors.edges.kubernetes.node_view import ClusterView
from ebbtide.actors.edges.kubernetes.paced import PacedCaller
from ebbtide.actors.edges.kubernetes.work_edge import WorkEdge
from ebbtide.actors.edges.kubernetes.work_view import WorkView
from ebbtide.actors.interfaces import NOTICE, WARNING, Edge
from ebbtide.actors.outage_work import STUCK_POD, StuckPodState
from ebbtide.actors.system import System
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.outage_events import OutageSettings, PodLost
from ebbtide.host import SystemClock, journal_identity
from ebbtide.log import LogOutput
from ebbtide.outage.configuration import OutageConfiguration
from ebbtide.outage.controller import Leader
from ebbtide.outage.controller_metrics import OutageMetrics
from ebbtide.outage.outage_follower import Follower, Shared
from ebbtide.outage.permits import Permits
from ebbtide.outage.pool_sources import pool_of, proof_edges
from ebbtide.tracing import usable_destination, usable_resource

#: In our namespace; its holder leads.
LEASE = "ebbtide-outage"
#: For storing the last records. Another replica takes over after the same time.
LEAVE_SECONDS_MAX = 3.0
#: In a writer's name: distinguishes this process from an earlier one in the same pod.
NONCE_BYTES = 4


class Options(NamedTuple):
    """``kubeconfig`` None: the pod's service account. ``dry_run`` overrides the configuration."""

    configuration: OutageConfiguration
    kubeconfig: Path | None
    replica: str
    dry_run: bool


async def run_controller(options: Options, log: LogOutput) -> None:
    """Until SIGTERM or SIGINT. Gives the Lease back; taints stay."""
    configuration = options.configuration
    identity = f"{options.replica}_{os.urandom(NONCE_BYTES).hex()}"
    link, metrics = ApiClient(options.kubeconfig, log.tell), OutageMetrics()
    async with trio.open_nursery() as nursery:
        if configuration.metrics_listen:
            nursery.start_soon(_serve, configuration, metrics, log)
        await nursery.start(link.run)
        manager: ApiClient | None = None
        if (file := configuration.cluster_api.kubeconfig) is not None:
            manager = ApiClient(Path(file), lambda level, line: log.tell(level, f"clusterApi: {line}"))
            await nursery.start(manager.run)
        leadership = Leadership(link, configuration.namespace, LEASE, identity, log.tell)
        #: This process's leader, while it leads.
        leads: list[Leader] = []

        async def act_as_leader() -> None:
            leads.append(_leader(options, identity, link, manager, log, metrics))
            try:
                await leads[0].run()
            finally:
                # Another replica continues what this one leaves open.
                leads.clear()
                metrics.followers = None

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
                # A leader that another one has fenced begins anew, without its state.
                await leadership.run(act_as_leader)
        nursery.cancel_scope.cancel()
    log.tell(NOTICE, "ended")


async def _serve(configuration: OutageConfiguration, metrics: OutageMetrics, log: LogOutput) -> None:
    """A port in use costs only the metrics."""
    from ebbtide.metrics_server import serve  # late: h11 is only needed for scrapes

    address = configuration.metrics_listen
    try:
        await serve(address, metrics.text, task_status=trio.TASK_STATUS_IGNORED)
    except OSError as error:
        log.tell(WARNING, f"no metrics at {address}: {error.strerror or error}; see metricsListen")


def _leader(
    options: Options,
    identity: str,
    link: ApiClient,
    manager: ApiClient | None,
    log: LogOutput,
    metrics: OutageMetrics,
) -> Leader:
    """``manager``: the management cluster's API server, if it is another one. Nothing is kept from an earlier
    lead.
    """
    configuration, clock = options.configuration, SystemClock()
    view, work = ClusterView(log.tell), WorkView(log.tell)
    permits = Permits(configuration.brake, view)
    resource = usable_resource(os.environ, log.tell)
    paced = PacedCaller(link)
    # Another server has its own rate.
    proof = proof_edges(configuration, view, clock, paced, None if manager is None else PacedCaller(manager))

    def settings(node: str) -> OutageSettings:
        made, power_off = configuration.settings, pool_of(configuration, view, node).power_off
        return msgspec.structs.replace(
            made,
            dry_run=made.dry_run or options.dry_run,
            power_off_seconds=0 if power_off is None else power_off.after_ns // NS_PER_SECOND,
            resource=resource,
        )

    def edges(follower: Follower) -> Sequence[Edge]:
        node = follower.node
        return (
            WorkEdge(work, node, effect=configuration.effect, lost=lost_in(follower.system)),
            *proof(node, follower.node_uid, follower.node_edge.as_ordered),
            permits.edge(node),
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
    )
    tasks: list[Callable[[ApiClient], Awaitable[None]]] = [view.run, work.run]
    destination = usable_destination(configuration.tracing.given, os.environ, log.tell)
    if destination is not None:
        # Spans are only loaded where they are sent.
        from ebbtide.outage.traces import OutageTraces

        traces = OutageTraces(paced, configuration.namespace, destination, log.tell)
        shared = shared._replace(observers=(*shared.observers, traces.observe))
        tasks.append(traces.run)
    leader = Leader(shared, link, tasks)
    metrics.followers = leader.followers
    return leader


def lost_in(system: System) -> list[PodLost]:
    """The followed pods that are not over, as they were found."""
    states = (slot.state for (name, _), slot in system.slots.items() if name == STUCK_POD.name)
    pods = [each for each in states if isinstance(each, StuckPodState) and each.phase != "over"]
    return [PodLost(pod=each.pod, elsewhere=each.elsewhere) for each in pods if each.pod is not None]

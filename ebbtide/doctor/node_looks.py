"""The look at a Kubernetes node for the doctor and the plan: kubelet, runtime and API server side by side.

Each look is bounded, and gives its problem where a part does not answer. gRPC and the API's client are
imported late, where they are installed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import trio

from ebbtide.actors.edges.cri.cri_pods import PodEntry, PodTable, known_pod_of, pod_view
from ebbtide.actors.edges.kubernetes.known_pods import KnownPod, PodCache, PodStore
from ebbtide.actors.edges.kubernetes.pod_object import read_manifests
from ebbtide.actors.edges.linux.bus import BusError, ask_once, side_by_side, system_bus_address
from ebbtide.actors.edges.linux.proc import SignalForecast, cgroups_of, forecast_signal
from ebbtide.actors.edges.pod_spec import ProcessSpec
from ebbtide.config.schema import NodeSection
from ebbtide.doctor import snapshot
from ebbtide.doctor.gather import FoundPods, targets_of_containers
from ebbtide.doctor.machine import kubelet_process, look_at_kubelet
from ebbtide.events.units import span_s
from ebbtide.extras import missing_packages
from ebbtide.manifests import Manifest
from ebbtide.modes import OWN_UID, ModeUnavailable, NodeParts, find_node_parts, lasting_folder
from ebbtide.options import RunOptions

# --- the container runtime ---------------------------------------------------------------------

#: A list, and three calls for each pod: a hundred pods take some 200 ms.
LOOK_SECONDS_MAX = 10.0


async def look_at_runtime(socket: Path | None) -> tuple[snapshot.RuntimeState, tuple[PodEntry, ...]]:
    """The runtime, and the running sandboxes without our own, oldest first; their descriptors are closed.

    Does not raise for the runtime: ``problem`` has its error.
    """
    from ebbtide.actors.edges.cri.cri_client import CallFailed, CriClient, probe_runtime
    from ebbtide.actors.edges.cri.cri_runtime import Listing, pods_of_cgroups

    if socket is None:
        return snapshot.RuntimeState(problem="no socket is named or found"), ()
    # gRPC would only say "unavailable" for each of these.
    problem = ""
    if not socket.exists():
        problem = "nothing listens there"
    elif not socket.is_socket():
        problem = "it is not a socket"
    elif not os.access(socket, os.W_OK):
        problem = "permission denied: use sudo"
    if problem:
        return snapshot.RuntimeState(str(socket), problem=problem), ()
    endpoint = f"unix://{socket}"
    probed = await probe_runtime(endpoint)
    state = snapshot.RuntimeState(str(socket), probed.name, probed.version, probed.problem)
    if not probed.name:
        return state, ()
    try:
        with trio.fail_after(LOOK_SECONDS_MAX):
            link, table = CriClient(endpoint), PodTable()
            # One turn of the runtime's edge, which keeps this table warm.
            async with trio.open_nursery() as nursery:
                await nursery.start(link.run)
                # The table holds a descriptor of each first process, which a look does not need.
                try:
                    await Listing(link, table, lambda _: None, lambda _: None).refresh()
                finally:
                    table.close()
                    nursery.cancel_scope.cancel()
            # The daemon's own pod, or the doctor's, is in no wave.
            own = pods_of_cgroups(table.entries(), cgroups_of(os.getpid())) | {os.environ.get(OWN_UID, "")}
            pods = tuple(pod for pod in table.pods.values() if pod.running and pod.uid not in own)
    except (CallFailed, trio.TooSlowError) as error:
        return state._replace(problem=str(error) or f"no list within {span_s(LOOK_SECONDS_MAX)}"), ()
    return state, pods


def forecasts_of_containers(pods: tuple[PodEntry, ...]) -> Iterator[SignalForecast]:
    """The effect of the stop signal on each container's first process, where it is visible here."""
    for pod in pods:
        for name, entry in pod.containers.items():
            found = forecast_signal(pod.uid, name, entry.pid, entry.spec.stop_signal) if entry.pid else None
            if found is not None:
                yield found


#: systemd answers in milliseconds; without it the process table has the kubelet.
MACHINE_SECONDS_MAX = 3.0


def look_at_node(options: RunOptions, section: NodeSection) -> FoundPods:
    """``options.mode`` is one of the node's. Does not raise."""
    blank = snapshot.NodeSnapshot(options.mode, options.node_name or "")
    if missing := missing_packages("node"):
        return FoundPods(seen=blank._replace(missing=missing))
    unfit = ""
    try:
        parts = find_node_parts(options, section)
    except ModeUnavailable as error:
        unfit = str(error)
    try:
        # The look goes on with the parts that mode auto would take.
        parts = parts if not unfit else find_node_parts(options._replace(mode="auto"), section)
    except ModeUnavailable:
        return FoundPods(seen=blank._replace(unfit=unfit))
    return trio.run(_look_at_parts, options, parts, unfit)


async def _look_at_parts(options: RunOptions, parts: NodeParts, unfit: str) -> FoundPods:
    async def cluster() -> tuple[snapshot.ApiServerState, tuple[KnownPod, ...]]:
        from ebbtide.doctor.api_server import look_at_api_server

        if parts.has_api:
            return await look_at_api_server(parts.kubeconfig, parts.node)
        return snapshot.ApiServerState(), ()

    kubelet, (runtime, entries), (api, listed) = await side_by_side(
        Exception, lambda: _kubelet(parts), lambda: look_at_runtime(parts.cri_socket), cluster
    )
    # The pods as the daemon has them: running sandboxes with names from the list, the cache or a manifest.
    store = PodStore()
    store.restore(PodCache(lasting_folder(options), parts.node, lambda level, line: None).load())
    store.set_manifests(read_manifests(parts.static_pods, parts.node))
    # Last, since it is newer than the daemon's cache.
    if api.answers:
        store.replace(listed, resource_version="")
    pods = [pod_view(entry, known_pod_of(entry, store)) for entry in entries]
    manifests = tuple(
        Manifest(pod=pod, spec=ProcessSpec(uid=pod.uid, containers=()), source="the container runtime")
        for pod in pods
    )
    return FoundPods(
        manifests,
        tuple(forecasts_of_containers(entries)),
        tuple(target for entry in entries for target in targets_of_containers(entry)),
        snapshot.NodeSnapshot(options.mode, parts.node, (), kubelet, runtime, api, unfit),
        listed,
        next((each.id for entry in entries for each in entry.containers.values()), ""),
        parts,
    )


async def _kubelet(parts: NodeParts) -> snapshot.KubeletState:
    """Without a service manager only the kubelet's process is visible."""
    with contextlib.suppress(BusError), trio.move_on_after(MACHINE_SECONDS_MAX):
        return await ask_once(
            system_bus_address(), partial(look_at_kubelet, unit=parts.kubelet_unit, node=parts.node)
        )
    return kubelet_process(parts.node)._replace(unit=parts.kubelet_unit)

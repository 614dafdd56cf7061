"""The look at a Kubernetes node for the doctor and the plan: kubelet, runtime and API server side by side.

Each look is bounded, and gives its problem where a part does not answer. gRPC and the API's client are
imported late, where they are installed.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec
import trio

from ebbtide.actors.edges.cri.cri_pods import PodEntry, PodTable, known_pod_of, pod_view
from ebbtide.actors.edges.documents import object_of_file
from ebbtide.actors.edges.kubernetes.known_pods import KnownPod, PodCache, PodStore
from ebbtide.actors.edges.kubernetes.pod_object import (
    MANIFEST_BYTES_MAX,
    PodObject,
    project_pod,
    read_manifests,
)
from ebbtide.actors.edges.linux.bus import Bus, BusError, ask_once, system_bus_address
from ebbtide.actors.edges.linux.proc import SignalForecast, cgroups_of, forecast_signal
from ebbtide.actors.edges.pod_spec import ProcessSpec
from ebbtide.config.schema import NodeSection
from ebbtide.doctor import machine, snapshot
from ebbtide.events.units import span_s
from ebbtide.events.values import Pod
from ebbtide.extras import missing_packages
from ebbtide.manifests import FILES_MAX, Manifest
from ebbtide.modes import OWN_UID, ModeUnavailable, NodeParts, find_node_parts, lasting_folder
from ebbtide.options import RunOptions

if TYPE_CHECKING:
    from ebbtide.actors.edges.cri.cri_client import RuntimeProbe

# --- the container runtime ---------------------------------------------------------------------

#: A list, and three calls for each pod: a hundred pods take some 200 ms.
LOOK_SECONDS_MAX = 10.0


class RunningSandboxes(NamedTuple):
    """The runtime, and the running sandboxes without our own, oldest first; their descriptors are closed."""

    runtime: snapshot.RuntimeState
    pods: tuple[PodEntry, ...] = ()


async def look_at_runtime(socket: Path | None) -> RunningSandboxes:
    """Does not raise for the runtime: ``problem`` has its error."""
    from ebbtide.actors.edges.cri.cri_client import CallFailed, CriClient, probe_runtime
    from ebbtide.actors.edges.cri.cri_runtime import Listing, pods_of_cgroups

    if socket is None:
        return RunningSandboxes(snapshot.RuntimeState(problem="no socket is named or found"))
    # gRPC would only say "unavailable" for each of these.
    problem = ""
    if not socket.exists():
        problem = "nothing listens there"
    elif not socket.is_socket():
        problem = "it is not a socket"
    elif not os.access(socket, os.W_OK):
        problem = "permission denied: use sudo"
    if problem:
        return RunningSandboxes(snapshot.RuntimeState(str(socket), problem=problem))
    endpoint = f"unix://{socket}"
    probed = await probe_runtime(endpoint)
    if not probed.name:
        return RunningSandboxes(_runtime_state(socket, probed))
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
        why = str(error) or f"no list within {span_s(LOOK_SECONDS_MAX)}"
        return RunningSandboxes(_runtime_state(socket, probed)._replace(problem=why))
    return RunningSandboxes(_runtime_state(socket, probed), pods)


def _runtime_state(socket: Path, probed: RuntimeProbe) -> snapshot.RuntimeState:
    return snapshot.RuntimeState(str(socket), probed.name, probed.version, probed.problem)


def forecasts_of_containers(pods: tuple[PodEntry, ...]) -> Iterator[SignalForecast]:
    """The effect of the stop signal on each container's first process, where it is visible here."""
    for pod in pods:
        for name, entry in pod.containers.items():
            found = forecast_signal(pod.uid, name, entry.pid, entry.spec.stop_signal) if entry.pid else None
            if found is not None:
                yield found


# --- static pods -------------------------------------------------------------------------------

# Static pods whose manifests give no number for their priority, from the kubelet's folder of them.

STATIC_POD_SUFFIXES = (".yaml", ".yml", ".json")


class _StaticMetadata(msgspec.Struct):
    name: str = ""
    namespace: str = "default"


class _StaticSpec(msgspec.Struct, rename="camel"):
    priority: int | None = None
    priority_class_name: str = ""


class _StaticManifest(msgspec.Struct):
    metadata: _StaticMetadata = msgspec.field(default_factory=_StaticMetadata)
    spec: _StaticSpec = msgspec.field(default_factory=_StaticSpec)


def static_pods(folder: Path) -> tuple[snapshot.StaticPod, ...]:
    """Static pods without ``spec.priority``, in the order of their files. A file with an error is left out:
    the kubelet logs it.
    """
    try:
        paths = [path for path in sorted(folder.iterdir())[:FILES_MAX] if path.suffix in STATIC_POD_SUFFIXES]
    except OSError:
        return ()
    found = []
    for path in paths:
        try:
            pod = msgspec.convert(object_of_file(path, MANIFEST_BYTES_MAX), _StaticManifest)
        except (OSError, ValueError):  # msgspec's errors and DocumentError are ValueErrors.
            continue
        if pod.spec.priority is None:
            label = f"{pod.metadata.namespace}/{pod.metadata.name}"
            found.append(snapshot.StaticPod(label, str(path), pod.spec.priority_class_name))
    return tuple(found)


# --- the API server's list ---------------------------------------------------------------------

# One list of a node's pods gives the daemon's projection and the signs of agents (images, host paths).

#: Labels whose values name the program.
TELLING_LABELS = (
    "app",
    "k8s-app",
    "name",
    "component",
    "app.kubernetes.io/name",
    "app.kubernetes.io/component",
)
TERMINAL_PHASES = ("Succeeded", "Failed")

T = TypeVar("T")


class ListedPods(NamedTuple):
    """The same pods twice, without ended ones."""

    known: tuple[KnownPod, ...] = ()
    pods: tuple[snapshot.NodePod, ...] = ()


class _Metadata(msgspec.Struct):
    labels: dict[str, str] | None = None


class _HostPath(msgspec.Struct):
    path: str = ""


class _Volume(msgspec.Struct, rename="camel"):
    host_path: _HostPath | None = None


class _Container(msgspec.Struct):
    image: str = ""


class _Spec(msgspec.Struct):
    containers: list[_Container] | None = None
    volumes: list[_Volume] | None = None


class _Pod(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _Spec = msgspec.field(default_factory=_Spec)


class _Pods(msgspec.Struct):
    items: list[_Pod] = []


class _Objects(msgspec.Struct):
    items: list[PodObject] = []


def pods_of_list(body: bytes) -> ListedPods:
    """From a PodList as JSON. Raises ValueError."""
    known, pods = [], []
    pairs = zip(_decoded_list(body, _Objects).items, _decoded_list(body, _Pods).items, strict=True)
    for listed, pod in pairs:
        if listed.status.phase in TERMINAL_PHASES:
            continue
        each, labels = project_pod(listed), pod.metadata.labels or {}
        terms = [each.name, *(container.image for container in pod.spec.containers or ())]
        terms += [labels[name] for name in TELLING_LABELS if name in labels]
        known.append(each)
        pods.append(
            snapshot.NodePod(
                uid=each.uid,
                label=f"{each.namespace}/{each.name}",
                host_network=each.host_network,
                daemon=each.daemon,
                volumes=each.volumes,
                paths=tuple(volume.host_path.path for volume in pod.spec.volumes or () if volume.host_path),
                terms=tuple(term.lower() for term in terms),
            )
        )
    return ListedPods(tuple(known), tuple(pods))


def _decoded_list(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its list of pods cannot be read: {error}") from None


#: systemd answers in milliseconds; without it the process table has the kubelet.
MACHINE_SECONDS_MAX = 3.0


class FoundNode(NamedTuple):
    """The pods: ``manifests`` for a plan, ``entries`` of the runtime, ``known`` by the API server."""

    seen: snapshot.NodeSnapshot
    manifests: tuple[Manifest, ...] = ()
    forecasts: tuple[SignalForecast, ...] = ()
    entries: tuple[PodEntry, ...] = ()
    known: tuple[KnownPod, ...] = ()
    parts: NodeParts | None = None


def look_at_node(options: RunOptions, section: NodeSection) -> FoundNode:
    """``options.mode`` is one of the node's. Does not raise."""
    blank = snapshot.NodeSnapshot(options.mode, options.node_name or "", now_s=int(time.time()))
    if missing := missing_packages("node"):
        return FoundNode(blank._replace(missing=missing))
    unfit = ""
    try:
        parts = find_node_parts(options, section)
    except ModeUnavailable as error:
        unfit = str(error)
    try:
        # The look goes on with the parts that mode auto would take.
        parts = parts if not unfit else find_node_parts(options._replace(mode="auto"), section)
    except ModeUnavailable:
        return FoundNode(blank._replace(unfit=unfit))
    found = trio.run(partial(_look_at_all, options, parts))
    return found._replace(seen=found.seen._replace(unfit=unfit), parts=parts)


async def _look_at_all(options: RunOptions, parts: NodeParts) -> FoundNode:
    looks = _NodeLooks(parts, lasting_folder(options))
    async with trio.open_nursery() as nursery:
        for look in (looks.machine, looks.runtime, looks.cluster):
            nursery.start_soon(look)
    return looks.found(options.mode)


class _NodeLooks:
    """Three looks, each bounded, each with its own answer."""

    def __init__(self, parts: NodeParts, lasting: Path) -> None:
        self._parts = parts
        self._lasting = lasting
        self._kubelet = snapshot.KubeletState(parts.kubelet_unit)
        self._boot_ns: int | None = None
        self._runtime = snapshot.RuntimeState()
        self._entries: tuple[PodEntry, ...] = ()
        self._api = snapshot.ApiServerState()
        self._listed = ListedPods()

    async def machine(self) -> None:
        """Without a service manager only the kubelet's process is visible."""
        unit = self._parts.kubelet_unit
        with contextlib.suppress(BusError), trio.move_on_after(MACHINE_SECONDS_MAX):
            await ask_once(system_bus_address(), self._ask_the_manager)
            return
        self._kubelet = machine.kubelet_process(self._parts.node)._replace(unit=unit)

    async def _ask_the_manager(self, bus: Bus) -> None:
        self._kubelet = await machine.look_at_kubelet(bus, self._parts.kubelet_unit, self._parts.node)
        self._boot_ns = await machine.last_boot_ns(bus)

    async def runtime(self) -> None:
        self._runtime, self._entries = await look_at_runtime(self._parts.cri_socket)

    async def cluster(self) -> None:
        from ebbtide.doctor import api_server as cluster

        if self._parts.has_api:
            self._api, self._listed = await cluster.look_at_api_server(
                self._parts.kubeconfig, self._parts.node
            )

    def _views(self) -> list[Pod]:
        """As the daemon has them: running sandboxes with names from the list, the cache or a manifest."""
        store = PodStore()
        store.restore(PodCache(self._lasting, self._parts.node, lambda level, line: None).load())
        store.set_manifests(read_manifests(self._parts.static_pods, self._parts.node))
        # Last, since it is newer than the daemon's cache.
        if self._api.answers:
            store.replace(self._listed.known, resource_version="")
        return [pod_view(entry, known_pod_of(entry, store)) for entry in self._entries]

    def found(self, mode: str) -> FoundNode:
        seen = snapshot.NodeSnapshot(
            mode=mode,
            name=self._parts.node,
            now_s=int(time.time()),
            kubelet=self._kubelet,
            runtime=self._runtime,
            api=self._api,
            pods=self._listed.pods,
            statics=static_pods(self._parts.static_pods),
            boot_ns=self._boot_ns,
        )
        pods = self._views()
        manifests = tuple(
            Manifest(pod=pod, spec=ProcessSpec(uid=pod.uid, containers=()), source="the container runtime")
            for pod in pods
        )
        forecasts = tuple(forecasts_of_containers(self._entries))
        return FoundNode(seen, manifests, forecasts, self._entries, self._listed.known)

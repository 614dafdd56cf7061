"""Looking at a Kubernetes node for the doctor, the plan and the drill: everything at once, and bounded.

Each look is on its own: what does not answer is missing from the whole, and says why. gRPC and the API's
client are imported only here, and only where they are installed.
"""

from __future__ import annotations

import contextlib
import time
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import trio

from actors.edges.bus import Bus, BusError, ask_once, system_bus_address
from actors.edges.cri.table import PodEntry
from actors.edges.cri.views import cached, known_of, view
from actors.edges.kubernetes.cache import Cache
from actors.edges.kubernetes.calling import Known
from actors.edges.kubernetes.manifests import read as read_manifests
from actors.edges.kubernetes.store import Store
from actors.edges.process.forecast import Forecast
from actors.edges.process.spec import ProcessSpec
from ebbtide.config.node import NodeSection
from ebbtide.doctor import machine
from ebbtide.doctor.listed import Listed
from ebbtide.doctor.seen import Api, Kubelet, NodeSeen, Runtime
from ebbtide.doctor.statics import static_pods
from ebbtide.manifests import Manifest
from ebbtide.options import RunOptions
from ebbtide.places import PACKAGES, Places, Unfit, find
from ebbtide.runtimes import lasting_folder
from events.model import Pod

MACHINE_SECONDS_MAX = 3.0


class Found(NamedTuple):
    """``manifests`` are the pods as a plan takes them, ``entries`` as the runtime has them."""

    seen: NodeSeen
    manifests: tuple[Manifest, ...] = ()
    forecasts: tuple[Forecast, ...] = ()
    entries: tuple[PodEntry, ...] = ()
    known: tuple[Known, ...] = ()
    places: Places | None = None


def missing_packages() -> tuple[str, ...]:
    """Of the extra ``node``; nothing is imported."""
    return tuple(name for name in PACKAGES if find_spec(name.partition(".")[0]) is None)


def look_at_node(options: RunOptions, section: NodeSection) -> Found:
    """Everything of the node, side by side. Raises nothing; ``options.mode`` is one of the node's."""
    blank = NodeSeen(options.mode, options.node_name or "", now_s=int(time.time()))
    if missing := missing_packages():
        return Found(blank._replace(missing=missing))
    unfit = ""
    try:
        places = find(options, section)
    except Unfit as error:
        unfit = str(error)
    try:
        # What a strict mode refuses is looked for all the same.
        places = places if not unfit else find(options._replace(mode="auto"), section)
    except Unfit:
        return Found(blank._replace(unfit=unfit))
    found = trio.run(partial(_look, options, places))
    return found._replace(seen=found.seen._replace(unfit=unfit), places=places)


async def _look(options: RunOptions, places: Places) -> Found:
    looks = _Looks(places, lasting_folder(options))
    async with trio.open_nursery() as nursery:
        for look in (looks.machine, looks.runtime, looks.cluster):
            nursery.start_soon(look)
    return looks.found(options.mode)


class _Looks:
    """Three looks, each bounded, each with its own answer."""

    def __init__(self, places: Places, lasting: Path) -> None:
        self._places = places
        self._lasting = lasting
        self._kubelet = Kubelet(places.kubelet_unit)
        self._boot_ns: int | None = None
        self._runtime = Runtime()
        self._entries: tuple[PodEntry, ...] = ()
        self._api = Api()
        self._listed = Listed()

    async def machine(self) -> None:
        """Without a service manager the kubelet's process is all that can be seen."""
        unit = self._places.kubelet_unit
        with contextlib.suppress(BusError), trio.move_on_after(MACHINE_SECONDS_MAX):
            await ask_once(system_bus_address(), self._ask_the_manager)
            return
        self._kubelet = machine.kubelet_process(self._places.node)._replace(unit=unit)

    async def _ask_the_manager(self, bus: Bus) -> None:
        self._kubelet = await machine.look_at_kubelet(bus, self._places.kubelet_unit, self._places.node)
        self._boot_ns = await machine.boot_ns(bus)

    async def runtime(self) -> None:
        from ebbtide.doctor import containers

        self._runtime, self._entries = await containers.look(self._places.cri_socket)

    async def cluster(self) -> None:
        from ebbtide.doctor import cluster

        if self._places.has_api:
            self._api, self._listed = await cluster.look(self._places.kubeconfig, self._places.node)

    def _views(self) -> list[Pod]:
        """As the daemon has them: what runs, with what the watch, its cache or a manifest tells; without a
        runtime, those that are known.
        """
        store = Store()
        store.restore(Cache(self._lasting, self._places.node, lambda level, line: None).load())
        store.set_manifests(read_manifests(self._places.static_pods, self._places.node))
        if self._api.answers:
            store.replace(self._listed.known, resource_version="")
        if self._runtime.problem and not self._entries:
            return [pod for pod in map(cached, store.pods()) if pod is not None]
        return [view(entry, known_of(entry, store)) for entry in self._entries]

    def found(self, mode: str) -> Found:
        from ebbtide.doctor import containers

        seen = NodeSeen(
            mode=mode,
            name=self._places.node,
            now_s=int(time.time()),
            kubelet=self._kubelet,
            runtime=self._runtime,
            api=self._api,
            pods=self._listed.pods,
            statics=static_pods(self._places.static_pods),
            boot_ns=self._boot_ns,
        )
        pods = self._views()
        manifests = tuple(
            Manifest(pod=pod, spec=ProcessSpec(uid=pod.uid, containers=()), source="the container runtime")
            for pod in pods
        )
        forecasts = tuple(containers.forecasts(self._entries))
        return Found(seen, manifests, forecasts, self._entries, self._listed.known)

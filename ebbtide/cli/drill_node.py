"""The drill's measurements on a Kubernetes node: API server, container runtime, and the kubelet's unit.

Nothing is stopped, and nothing runs in anybody's container: what changes something is a dry run, which
the API server carries through admission and then drops.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote

import trio

from ebbtide.actors.edges.cri import api_pb2 as cri
from ebbtide.actors.edges.cri import client as runtime
from ebbtide.actors.edges.cri.client import CallFailed
from ebbtide.actors.edges.kubernetes.calls import JSON, STRATEGIC_PATCH, Unanswered
from ebbtide.actors.edges.kubernetes.client import ApiClient
from ebbtide.actors.edges.kubernetes.pods import KnownPod
from ebbtide.actors.edges.linux.bus import Bus, BusError, ask_once, system_bus_address
from ebbtide.cli.drill import SAMPLES, Measured
from ebbtide.doctor.machine import unit_state
from ebbtide.events import bounds
from ebbtide.modes import NodeParts

#: A delete that is not taken in 2 s hands the shutdown over; a quarter of that leaves room for a bad day.
API_NS_MAX = 500_000_000
API_SECONDS_MAX = 5.0
#: Each sample of a dry run goes through every webhook.
DRY_SAMPLES = 5
#: A runtime answers in some milliseconds; an inventory makes such a call for each container.
CRI_NS_MAX = 100_000_000
UNIT_NS_MAX = 50_000_000
#: From here on every server knows a dry run of a delete (1.13), and none may have it switched off (1.19).
MINOR_MIN = 19

#: What each mode cannot do without.
NEEDS = {"api": ("API",), "auto": ("API", "CRI", "kubelet"), "cri": ("CRI", "kubelet"), "observe": ()}

Once = Callable[[], Awaitable[object]]


class Failed(Exception):
    """It could not be measured; the text says why."""


def measure_node(mode: str, parts: NodeParts, known: Sequence[KnownPod]) -> list[Measured]:
    """All three, one after another, so that none is slow because of the others."""
    found = [*trio.run(_runtime, parts), trio.run(_unit, parts.kubelet_unit)]
    if parts.has_api:
        found += trio.run(_api, parts, _victim(known))
    return [each._replace(needed=each.what.partition(" ")[0] in NEEDS[mode]) for each in found]


async def _timed(made: Measured, once: Once, samples: int = SAMPLES) -> Measured:
    """The first of them is left out: it opens the connection."""
    taken = []
    try:
        await once()
        for _ in range(samples):
            began_ns = time.monotonic_ns()
            await once()
            taken.append(time.monotonic_ns() - began_ns)
    except (Failed, Unanswered, CallFailed, BusError) as error:
        return made._replace(error=str(error))
    return made._replace(samples_ns=tuple(sorted(taken)))


def _victim(known: Sequence[KnownPod]) -> KnownPod | None:
    """A pod that a shutdown would delete; none of it is really deleted."""
    return next((pod for pod in known if not pod.static and not pod.deleting), None)


async def _api(parts: NodeParts, victim: KnownPod | None) -> list[Measured]:
    link = ApiClient(parts.kubeconfig)
    async with trio.open_nursery() as nursery:
        await nursery.start(link.run)
        try:
            ask = partial(_answered, link)
            where = "in-cluster" if parts.kubeconfig is None else str(parts.kubeconfig)
            node = Measured("API node", parts.node, (), API_NS_MAX)
            found = [await _timed(node, partial(ask, "GET", f"/api/v1/nodes/{quote(parts.node)}"))]
            if found[0].error:
                # Then the address is what somebody has to look at, and not the Node.
                return [found[0]._replace(target=where)]
            if victim is None:
                return found
            path = f"/api/v1/namespaces/{quote(victim.namespace)}/pods/{quote(victim.name)}"
            target = f"{victim.namespace}/{victim.name}"
            patch = partial(ask, "PATCH", f"{path}/status?dryRun=All", DISRUPTED, STRATEGIC_PATCH)
            delete = partial(ask, "DELETE", f"{path}?dryRun=All", _deletion(victim))
            found.append(
                await _timed(Measured("API dry-run patch", target, (), API_NS_MAX), patch, DRY_SAMPLES)
            )
            dry = Measured("API dry-run delete", target, (), API_NS_MAX)
            # Asked before, each time: a pod that is really deleted cannot be had back.
            try:
                _check_version(await ask("GET", "/version"))
            except (Failed, Unanswered) as error:
                return [*found, dry._replace(error=str(error))]
            return [*found, await _timed(dry, delete, DRY_SAMPLES)]
        finally:
            nursery.cancel_scope.cancel()


#: What is patched before a delete.
DISRUPTED = {
    "status": {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "EbbtideDrill"}]}
}


def _deletion(victim: KnownPod) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "dryRun": ["All"],
        "gracePeriodSeconds": max(1, victim.grace_seconds or 1),
        "preconditions": {"uid": victim.api_uid},
    }


def _check_version(body: bytes) -> None:
    """An old server would take a dry run of a delete for a delete. Raises Failed."""
    try:
        said: Any = json.loads(body)
        major, minor = int(said["major"]), int(str(said["minor"]).rstrip("+"))
    except (ValueError, KeyError, TypeError):
        raise Failed("the server does not tell its version, so no delete is tried") from None
    if (major, minor) < (1, MINOR_MIN):
        raise Failed(f"server {major}.{minor} may not know a dry run of a delete: none is tried")


async def _answered(
    link: ApiClient, method: str, path: str, body: object = None, content_type: str = JSON
) -> bytes:
    answer = await link.call(method, path, body=body, content_type=content_type, seconds_max=API_SECONDS_MAX)
    if answer.ok:
        return answer.body
    try:
        # A Status object, unless something between us and the API server has answered in its place.
        why = str(json.loads(answer.body)["message"])
    except (ValueError, KeyError, TypeError):
        why = "no reason was given"
    raise Failed(f"{answer.code}: {why}")


# --- the container runtime ---------------------------------------------------------------------


async def _runtime(parts: NodeParts) -> list[Measured]:
    listed = Measured("CRI list of sandboxes", str(parts.cri_socket), (), CRI_NS_MAX)
    if not parts.cri_socket.is_socket():
        return [listed._replace(error="nothing listens there")]
    link = runtime.CriClient(f"unix://{parts.cri_socket}")
    async with trio.open_nursery() as nursery:
        await nursery.start(link.run)
        try:
            # Bounded as the daemon's own looks: a runtime that hangs must not hang the drill.
            call = partial(link.call, seconds=bounds.now.runtime_look_seconds)
            sandboxes = partial(
                call, "ListPodSandbox", cri.ListPodSandboxRequest(), cri.ListPodSandboxResponse
            )
            found = [await _timed(listed, sandboxes)]
            if found[0].error:
                return found
            running = cri.ContainerFilter(state=cri.ContainerStateValue(state=cri.CONTAINER_RUNNING))
            every = cri.ListContainersRequest(filter=running)
            try:
                listing = await call("ListContainers", every, cri.ListContainersResponse)
            except CallFailed:
                return found
            # Any one of them: the status of each is asked for in the same way.
            for container in listing.containers[:1]:
                request = cri.ContainerStatusRequest(container_id=container.id, verbose=True)
                status = Measured("CRI container status", container.id[:12], (), CRI_NS_MAX)
                look = partial(call, "ContainerStatus", request, cri.ContainerStatusResponse)
                found.append(await _timed(status, look))
            return found
        finally:
            nursery.cancel_scope.cancel()


async def _unit(unit: str) -> Measured:
    """Looked up, as before a stop."""
    made = Measured("kubelet unit", unit, (), UNIT_NS_MAX)
    try:
        return await ask_once(system_bus_address(), lambda bus: _timed(made, partial(_look_up, bus, unit)))
    except BusError as error:
        return made._replace(error=str(error))


async def _look_up(bus: Bus, unit: str) -> None:
    loaded, _ = await unit_state(bus, unit)
    if not loaded:
        raise Failed("the service manager knows no such unit")

"""``doctor --measure``: time the calls of a shutdown, without ending a pod.

No process gets a signal, no hook runs, and writes to the API server are dry runs.
"""

from __future__ import annotations

import os
import socket
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import trio

from ebbtide.actors.edges.kubernetes import api_calls
from ebbtide.actors.edges.linux.bus import Bus, BusError, ask_once, system_bus_address
from ebbtide.actors.edges.logind_reading import read_preparing
from ebbtide.actors.edges.process.process_pods import CannotStart, spawn
from ebbtide.doctor.gather import FoundPods, HookTarget
from ebbtide.doctor.node_looks import ask_bounded, unit_state
from ebbtide.doctor.rules import DRY_DELETE, DRY_PATCH, LOGIND_CALL, SYNC, Measured, Snapshot
from ebbtide.events import bounds
from ebbtide.events.base import BARRIER_NS_MAX
from ebbtide.modes import NodeParts

#: Enough for a median and a bad case, in a second.
SAMPLES = 20
#: Each dry run goes through every webhook.
DRY_SAMPLES = 5
#: An order and its outcome, rounded up to a page.
WRITE_BYTES = 4096
#: A slower port is as good as closed.
CONNECT_SECONDS_MAX = 1.0
BUS_NS_MAX = 50_000_000
#: A slower start takes more from every exec hook's grace.
EXEC_NS_MAX = 100_000_000
CONNECT_NS_MAX = 100_000_000
#: A third of the time after which a silent delete hands the shutdown over.
API_NS_MAX = 500_000_000
#: For each container an inventory makes such a call.
CRI_NS_MAX = 100_000_000
NO_OP = ("true",)

Once = Callable[[], object]


async def measure_calls(snapshot: Snapshot, pods: FoundPods) -> tuple[Measured, ...]:
    """One after another: no call slows another."""
    found = [await _sync(Path(snapshot.store.path)), await _exec()]
    if snapshot.bus is not None:
        found += [await _on_bus(LOGIND_CALL, system_bus_address(), read_preparing)]
    node, parts = pods.seen, pods.parts
    if node is not None and parts is not None:
        if node.kubelet.loaded:
            look = partial(unit_state, unit=parts.kubelet_unit)
            found += [await _on_bus("kubelet unit", parts.kubelet_unit, look)]
        if not node.runtime.problem:
            found += await _runtime(parts.cri_socket, pods.container)
        if node.api.answers:
            # A server with our name (1.26) has dry runs (1.13). An older one would delete the pod.
            found += await _api(parts, pods if node.api.user else pods._replace(known=()))
    return (*found, *[await measure_connection(target) for target in pods.targets])


async def _timed(
    made: Measured, failure: tuple[type[Exception], ...], once: Once, samples: int = SAMPLES
) -> Measured:
    taken = []
    try:
        for _ in range(samples):
            began_ns = time.monotonic_ns()
            if isinstance(done := once(), Awaitable):
                await done
            taken.append(time.monotonic_ns() - began_ns)
    except failure as error:
        return made._replace(error=getattr(error, "strerror", None) or str(error))
    # The first may open the connection.
    return made._replace(samples_ns=tuple(sorted(taken[1:] or taken)))


async def _sync(journal: Path) -> Measured:
    """As for an order that outlives the boot."""
    # A missing journal will be made below this folder.
    place = next(folder for folder in (journal.absolute(), *journal.absolute().parents) if folder.is_dir())
    made = Measured(SYNC, str(place), BARRIER_NS_MAX)
    try:
        with tempfile.TemporaryFile(dir=place, prefix=".measure-", buffering=0) as file:

            def append_page() -> None:
                os.write(file.fileno(), bytes(WRITE_BYTES))
                os.fdatasync(file.fileno())

            return await _timed(made, (OSError,), append_page)
    except OSError as error:
        return made._replace(error=f"cannot write: {error.strerror}")


async def _exec() -> Measured:
    with open(os.devnull, "wb") as output:

        def run_no_op() -> None:
            child = spawn(NO_OP, os.environ, "", output.fileno())
            os.close(child.pidfd)
            os.waitpid(child.pid, 0)

        return await _timed(Measured("exec", NO_OP[0], EXEC_NS_MAX), (CannotStart,), run_no_op)


async def _on_bus(what: str, target: str, call: Callable[[Bus], Awaitable[object]]) -> Measured:
    made = Measured(what, target, BUS_NS_MAX)
    try:
        return await ask_once(system_bus_address(), lambda bus: _timed(made, (BusError,), partial(call, bus)))
    except BusError as error:
        return made._replace(error=str(error))


async def measure_connection(target: HookTarget) -> Measured:
    """No request: it would begin to drain the pod."""
    made = Measured("httpGet target", target.name, CONNECT_NS_MAX, error=target.error)

    def connect() -> None:
        socket.create_connection((target.host, target.port), CONNECT_SECONDS_MAX).close()

    # More may look like an attack.
    return made if target.error else await _timed(made, (OSError,), connect, samples=1)


async def _runtime(socket_path: Path, container: str) -> list[Measured]:
    from ebbtide.actors.edges.cri import api_pb2 as cri
    from ebbtide.actors.edges.cri.cri_client import CallFailed, CriClient

    link = CriClient(f"unix://{socket_path}")
    async with trio.open_nursery() as nursery:
        await nursery.start(link.run)
        call = partial(link.call, seconds=bounds.now.runtime_look_seconds)
        sandboxes = partial(call, cri.ListPodSandboxRequest())
        made = Measured("CRI list of sandboxes", str(socket_path), CRI_NS_MAX)
        found = [await _timed(made, (CallFailed,), sandboxes)]
        if container:
            request = cri.ContainerStatusRequest(container_id=container, verbose=True)
            status = partial(call, request)
            made = Measured("CRI container status", container[:12], CRI_NS_MAX)
            found.append(await _timed(made, (CallFailed,), status))
        nursery.cancel_scope.cancel()
    return found


class Refused(Exception):
    """The API server answered with an error."""


async def _api(parts: NodeParts, pods: FoundPods) -> list[Measured]:
    """A shutdown's delete of one pod, as a dry run."""
    from ebbtide.actors.edges.kubernetes.api_client import ApiClient
    from ebbtide.actors.edges.kubernetes.api_writes import GRACE_SECONDS_MIN

    link = ApiClient(parts.kubeconfig)

    async def ask(method: str, path: str, body: object = None, content_type: str = api_calls.JSON) -> None:
        answer = await ask_bounded(link, method, path, body, content_type)
        if not answer.ok:
            raise Refused(api_calls.answer_text(answer))

    failures = (Refused, api_calls.Unanswered)
    async with trio.open_nursery() as nursery:
        await nursery.start(link.run)
        read = partial(ask, "GET", api_calls.node_path(parts.node))
        found = [await _timed(Measured("API node", parts.node, API_NS_MAX), failures, read)]
        # A shutdown does not delete a static pod's mirror.
        pod = next((pod for pod in pods.known if not pod.static and not pod.deleting), None)
        if pod is not None:
            path, label = api_calls.pod_path(pod.namespace, pod.name), f"{pod.namespace}/{pod.name}"
            shown = {"status": {"conditions": [api_calls.disruption_target([])]}}
            grace_seconds = max(GRACE_SECONDS_MIN, pod.grace_seconds or GRACE_SECONDS_MIN)
            delete = api_calls.delete_options(pod.api_uid, grace_seconds) | {"dryRun": ["All"]}
            patch = partial(ask, "PATCH", f"{path}/status?dryRun=All", shown, api_calls.STRATEGIC_PATCH)
            for what, call in (
                (DRY_PATCH, patch),
                (DRY_DELETE, partial(ask, "DELETE", f"{path}?dryRun=All", delete)),
            ):
                found.append(await _timed(Measured(what, label, API_NS_MAX), failures, call, DRY_SAMPLES))
        nursery.cancel_scope.cancel()
    return found

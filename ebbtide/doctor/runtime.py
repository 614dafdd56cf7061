"""Looking at the container runtime for the doctor, the plan and the drill: who answers, and what runs.

The runtime's edge keeps its table warm with `Listing`; here that is done once, and everything is given
back.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import trio

from ebbtide.actors.edges.cri.client import CallFailed, CriClient, RuntimeProbe, probe_runtime
from ebbtide.actors.edges.cri.pods import PodEntry, PodTable
from ebbtide.actors.edges.cri.runtime import (
    Listing,
    cgroups_of,
    pods_of_cgroups,
)
from ebbtide.actors.edges.linux.proc import SignalForecast, forecast_signal
from ebbtide.doctor.snapshot import RuntimeState
from ebbtide.modes import OWN_UID

#: A list, and three calls for each pod: a hundred pods take some 200 ms.
LOOK_SECONDS_MAX = 10.0


class RunningSandboxes(NamedTuple):
    """Who answered, and the sandboxes that something runs in but the one that we are in, oldest first; their
    descriptors are closed.
    """

    runtime: RuntimeState
    pods: tuple[PodEntry, ...] = ()


async def look_at_runtime(socket: Path | None) -> RunningSandboxes:
    """Raises nothing of the runtime's: ``problem`` says it."""
    if socket is None:
        return RunningSandboxes(RuntimeState(problem="no socket is named or found"))
    # Looked at before it is dialled: gRPC would say of all three only that it is unavailable.
    problem = ""
    if not socket.exists():
        problem = "nothing listens there"
    elif not socket.is_socket():
        problem = "it is not a socket"
    elif not os.access(socket, os.W_OK):
        problem = "permission denied: use sudo"
    if problem:
        return RunningSandboxes(RuntimeState(str(socket), problem=problem))
    endpoint = f"unix://{socket}"
    probed = await probe_runtime(endpoint)
    if not probed.name:
        return RunningSandboxes(_runtime_state(socket, probed))
    try:
        with trio.fail_after(LOOK_SECONDS_MAX):
            link, table = CriClient(endpoint), PodTable()
            async with trio.open_nursery() as nursery:
                await nursery.start(link.run)
                # The table holds a descriptor of each first process, so that a signal cannot reach another
                # one that got its number; a look has no use for them and would run out of descriptors.
                try:
                    await Listing(link, table, lambda _: None, lambda _: None).refresh()
                finally:
                    table.close()
                    nursery.cancel_scope.cancel()
            # The daemon's own pod is in no wave, and whoever runs the doctor inside of it is not told of it.
            own = pods_of_cgroups(table.entries(), cgroups_of(os.getpid())) | {os.environ.get(OWN_UID, "")}
            pods = tuple(pod for pod in table.pods.values() if pod.running and pod.uid not in own)
    except (CallFailed, trio.TooSlowError) as error:
        why = str(error) or f"no list within {LOOK_SECONDS_MAX:g} s"
        return RunningSandboxes(_runtime_state(socket, probed)._replace(problem=why))
    return RunningSandboxes(_runtime_state(socket, probed), pods)


def _runtime_state(socket: Path, probed: RuntimeProbe) -> RuntimeState:
    return RuntimeState(str(socket), probed.name, probed.version, probed.problem)


def forecasts_of_containers(pods: tuple[PodEntry, ...]) -> Iterator[SignalForecast]:
    """What the stop signal would do to each container's first process, where this machine shows it."""
    for pod in pods:
        for name, entry in pod.containers.items():
            found = forecast_signal(pod.uid, name, entry.pid, entry.spec.stop_signal) if entry.pid else None
            if found is not None:
                yield found

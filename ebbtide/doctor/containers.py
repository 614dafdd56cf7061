"""Looking at the container runtime for the doctor, the plan and the drill: who answers, and what runs.

The runtime's edge keeps its table warm with `Listing`; here that is done once, and everything is given back.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import trio

from actors.edges.cri.errors import CallFailed
from actors.edges.cri.link import Link
from actors.edges.cri.listing import Listing, cgroups_of, own_pods
from actors.edges.cri.probe import Probed, probe
from actors.edges.cri.table import PodEntry, Table
from actors.edges.process.forecast import Forecast, forecast
from ebbtide.doctor.seen import Runtime
from ebbtide.runtimes import OWN_UID

#: A list, and three calls for each pod: a hundred pods take some 200 ms.
LOOK_SECONDS_MAX = 10.0


class Running(NamedTuple):
    """Who answered, and the sandboxes that something runs in but the one that we are in, oldest first; their
    descriptors are closed.
    """

    runtime: Runtime
    pods: tuple[PodEntry, ...] = ()


async def look(socket: Path | None) -> Running:
    """Raises nothing of the runtime's: ``problem`` says it."""
    if socket is None:
        return Running(Runtime(problem="no socket is named or found"))
    if not socket.is_socket() or not os.access(socket, os.W_OK):
        return Running(Runtime(str(socket), problem=_no_socket(socket)))
    endpoint = f"unix://{socket}"
    probed = await probe(endpoint)
    if not probed.name:
        return Running(_seen(socket, probed))
    try:
        with trio.fail_after(LOOK_SECONDS_MAX):
            pods = await _list(endpoint)
    except (CallFailed, trio.TooSlowError) as error:
        why = str(error) or f"no list within {LOOK_SECONDS_MAX:g} s"
        return Running(_seen(socket, probed)._replace(problem=why))
    return Running(_seen(socket, probed), pods)


def _no_socket(socket: Path) -> str:
    if not socket.exists():
        return "nothing listens there"
    return "permission denied: use sudo" if socket.is_socket() else "it is not a socket"


def _seen(socket: Path, probed: Probed) -> Runtime:
    return Runtime(str(socket), probed.name, probed.version, probed.problem)


async def _list(endpoint: str) -> tuple[PodEntry, ...]:
    link, table = Link(endpoint), Table()
    async with trio.open_nursery() as nursery:
        await nursery.start(link.run)
        try:
            await Listing(link, table, lambda _: None, lambda _: None).refresh()
        finally:
            table.close()
            nursery.cancel_scope.cancel()
    own = own_pods(table.entries(), cgroups_of(os.getpid())) | {os.environ.get(OWN_UID, "")}
    return tuple(pod for pod in table.pods.values() if pod.running and pod.uid not in own)


def forecasts(pods: tuple[PodEntry, ...]) -> Iterator[Forecast]:
    """What the stop signal would do to each container's first process, where this machine shows it."""
    for pod in pods:
        for name, entry in pod.containers.items():
            found = forecast(pod.uid, name, entry.pid, entry.spec.stop_signal) if entry.pid else None
            if found is not None:
                yield found

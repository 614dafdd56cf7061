"""Bring up a node part by part, and remove it without leftovers.

Separate from the bed: one node serves many tests, each with its own Trio run.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import trio

from tests.beds import logind
from tests.beds.inside import Inside
from tests.beds.logind import LogindBed
from tests.beds.rootfs import Unavailable
from tests.node import parts, programs, remains
from tests.node.bed import Bed
from tests.node.parts import Member, Part


def need() -> None:
    """Raises Unavailable with the reason if no node can run here."""
    if reason := logind.missing():
        raise Unavailable(reason)
    programs.need_packages()
    programs.all_kubernetes()


@contextlib.contextmanager
def made_bed(names: Sequence[str] = ("node-1",)) -> Iterator[Bed]:
    """An empty bed, removed at the end. Raises Unavailable."""
    need()
    remains.sweep()
    with _folder() as beside, _folder() as folder:
        inside = Inside("tests.node.logind_inside", beside)
        try:
            with socket.create_server(("127.0.0.1", 0)) as listening:
                bed = Bed(folder, LogindBed(beside, inside), listening, names)
                try:
                    yield bed
                finally:
                    bed.close()
        finally:
            inside.close()


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    folder = remains.new_folder()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def bring_up(bed: Bed, **kubelet: Any) -> None:
    """Start each part as soon as its dependencies run; ``kubelet`` changes its settings. Raises Unready."""
    began = time.monotonic()

    def over(step: str) -> None:
        bed.times[step] = time.monotonic() - began

    await _open(bed)
    over("logind")
    await bed.start(parts.etcd(bed.folder / "state"))
    async with trio.open_nursery() as nursery:
        for member in bed.members.values():
            nursery.start_soon(_bring_runtime_up, bed, member)
        await bed.start_api()
        over("API server")
        await _start_control_plane(bed)
    over("containerd")
    for member in bed.members.values():
        await bed.start_kubelet(member, **kubelet)
    for member in bed.members.values():
        await bed.node_ready(member)
    over("Ready")


async def bring_api_up(bed: Bed) -> None:
    """Start only the API server and its store. Raises Unready."""
    await _open(bed)
    await bed.start(parts.etcd(bed.folder / "state"))
    await bed.start_api()


async def mend_api(bed: Bed) -> None:
    """Restart the parts that a failed test stopped."""
    alive = await bed.inside.do("alive")
    if "etcd" not in alive:
        await bed.start(parts.etcd(bed.folder / "state"))
    if "kube-apiserver" not in alive:
        await bed.start_api()


async def _open(bed: Bed) -> None:
    await bed.logind.do("start_bus")
    await bed.logind.start_logind()
    bed.open()
    if bed.around:
        # The runtime must see the mounts of kubelets in their own namespaces.
        await bed.run("mount", "--make-shared", str(bed.folder / "state"))
    await bed.name_units()
    await _lay_network(bed)


async def _lay_network(bed: Bed) -> None:
    await bed.run("ip", "link", "set", "lo", "up")
    for member in bed.members.values():
        await bed.run("ip", "address", "add", f"{member.address}/32", "dev", "lo")
    # kube-proxy only rewrites packets that have a route.
    await bed.run("ip", "route", "add", parts.SERVICES, "dev", "lo", "src", parts.FIRST_ADDRESS)


async def _bring_runtime_up(bed: Bed, member: Member) -> None:
    await bed.start_containerd(member)
    await bed.load_image(member)


async def _start_control_plane(bed: Bed) -> None:
    for part in _control_plane(bed):
        await bed.start(part)


def _control_plane(bed: Bed) -> tuple[Part, ...]:
    first = next(iter(bed.members.values()))
    return (
        parts.controllers(bed.programs["kube-controller-manager"], bed.secrets),
        parts.scheduler(bed.programs["kube-scheduler"], bed.secrets),
        parts.proxy(bed.programs["kube-proxy"], bed.secrets, first),
    )


async def mend(bed: Bed, **kubelet: Any) -> None:
    """Restart stopped parts and end the shutdown of a failed test; ``kubelet``: the bed's changed
    settings.
    """
    await mend_infrastructure(bed)
    alive = await bed.inside.do("alive")
    preparing = await bed.logind.get("PreparingForShutdown")
    if preparing or any(f"kubelet-{name}" not in alive for name in bed.members):
        await bed.start_over(**kubelet)


async def mend_infrastructure(bed: Bed) -> None:
    """All but the kubelets and the shutdown."""
    await mend_api(bed)
    alive = await bed.inside.do("alive")
    for part in _control_plane(bed):
        if part.name not in alive:
            await bed.start(part)
    for member in bed.members.values():
        if f"containerd-{member.name}" not in alive:
            await bed.start_containerd(member)


@contextlib.asynccontextmanager
async def node_bed(names: Sequence[str] = ("node-1",), **kubelet: Any) -> AsyncIterator[Bed]:
    """Ready nodes for the block. Raises Unavailable, Unready."""
    await trio.to_thread.run_sync(need)
    with made_bed(names) as bed:
        await bring_up(bed, **kubelet)
        yield bed

"""Faults of a node's parts: killed, hung (for a while or for good), slow.

A fault lasts for its block. Afterwards the part runs again, or the next boot starts it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import NamedTuple

import trio

from tests.beds.rootfs import Unavailable
from tests.node.bed import Bed
from tests.node.ebbtide import NAME as DAEMON
from tests.node.ebbtide import Daemon
from tests.node.parts import API_PORT, Member

KILLED, HUNG_5_S, HUNG, SLOW = "killed", "hung-5s", "hung", "slow"
WAYS = (KILLED, HUNG_5_S, HUNG, SLOW)
HUNG_SECONDS = 5.0
#: A slow part runs a tenth of the time, in slices shorter than any deadline.
STOPPED_SECONDS, RUNNING_SECONDS = 0.18, 0.02
#: RestartSec of the packaged units (containerd, the kubelet by kubeadm, logind).
CONTAINERD_SECONDS, KUBELET_SECONDS, LOGIND_SECONDS = 5.0, 10.0, 0.1
DISK_BYTES = 24 << 20
DISK_SECONDS_MAX = 10
ONE_OF_PACKETS = "3"

#: In the node's mounts but outside its processes. It thaws when its input ends, so also after a killed test.
#: A frozen file system accepts no write.
FREEZER = """
import fcntl, os, select, sys
FIFREEZE, FITHAW = 0xC0045877, 0xC0045878
place, frozen, thawed = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
folder = os.open(place, os.O_RDONLY)
while True:
    fcntl.ioctl(folder, FIFREEZE, 0)
    print("frozen", flush=True)
    ended = select.select([0], [], [], frozen or None)[0]
    fcntl.ioctl(folder, FITHAW, 0)
    if ended or select.select([0], [], [], thawed)[0]:
        break
"""
#: EXT4_IOC_SHUTDOWN without write-back: every later call fails.
BREAKER = """
import fcntl, os, struct, sys
fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587D, struct.pack("I", 2))
"""


class Target(NamedTuple):
    """The affected node. ``disk``: the mount of the journal's file system in the node; ``daemon``: None if
    the kubelet shuts down alone.
    """

    bed: Bed
    member: Member
    daemon: Daemon | None
    disk: Path | None

    def named(self, part: str) -> str:
        """The node's process that is this part."""
        return {"api-server": "kube-apiserver", "etcd": "etcd", "daemon": DAEMON}.get(
            part, f"{part}-{self.member.name}"
        )


Fault = Callable[[Target], AbstractAsyncContextManager[None]]


@contextlib.contextmanager
def mounted(bed: Bed) -> Iterator[Callable[[], None]]:
    """A separate file system for a journal at `disk_of`; yields a function that remounts it.

    Raises Unavailable.
    """
    image, place = disk_of(bed).with_suffix(".image"), disk_of(bed)

    def mount() -> None:
        _in_node(bed, "mount", "-o", "loop,noatime", str(image), str(place))

    def again() -> None:
        _in_node(bed, "umount", str(place))
        mount()

    try:
        _in_node(bed, "mkdir", "-p", str(place))
        _in_node(bed, "truncate", "-s", str(DISK_BYTES), str(image))
        _in_node(bed, "mkfs.ext4", "-q", "-F", str(image))
        mount()
    except OSError as error:
        raise Unavailable(f"a disk of its own needs a loop device and ext4: {error}") from None
    try:
        yield again
    finally:
        _in_node(bed, "umount", "-l", str(place))
        _in_node(bed, "rm", str(image))


def disk_of(bed: Bed) -> Path:
    return bed.folder / "state" / "journal-disk"


def _in_node(bed: Bed, *argv: str) -> None:
    """Run in the node. Raises OSError with the command's output."""
    done = subprocess.run([*bed.enter, *argv], capture_output=True, text=True, timeout=DISK_SECONDS_MAX)
    if done.returncode:
        raise OSError(f"{' '.join(argv)}: {done.stderr.strip()}")


# --- processes


async def pids_of(target: Target, part: str) -> list[int]:
    """The machine's PIDs; for a daemon with a lock-keeping parent, the daemon itself."""
    if part in ("logind", "bus"):
        return [await target.bed.logind.pid(part)]
    inner = (await target.bed.inside.do("pids")).get(target.named(part))
    if inner is None:
        return []
    here = outer_pid(target.bed, inner)
    children = Path(f"/proc/{here}/task/{here}/children").read_text().split() if part == "daemon" else []
    return [int(each) for each in children] or [here]


def outer_pid(bed: Bed, inner: int) -> int:
    """The machine's PID of the node's process ``inner``. Raises ProcessLookupError."""
    space = os.readlink(f"/proc/{bed.pid}/ns/pid")
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.readlink(entry / "ns/pid") == space:
                fields = dict(line.split(":", 1) for line in (entry / "status").read_text().splitlines())
                if int(fields["NSpid"].split()[-1]) == inner:
                    return int(entry.name)
    raise ProcessLookupError(f"no process {inner} in the node")


def _send(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def hung(part: str, seconds: float = 0) -> Fault:
    """SIGSTOP: connections stay, no answers come. 0 seconds: until the block's end."""

    @contextlib.asynccontextmanager
    async def fault(target: Target) -> AsyncIterator[None]:
        pids = await pids_of(target, part)
        _send(pids, signal.SIGSTOP)
        try:
            async with trio.open_nursery() as nursery:
                if seconds:
                    nursery.start_soon(_later, pids, seconds)
                yield
                nursery.cancel_scope.cancel()
        finally:
            _send(pids, signal.SIGCONT)

    return fault


async def _later(pids: Sequence[int], seconds: float) -> None:
    await trio.sleep(seconds)
    _send(pids, signal.SIGCONT)


def slow(part: str) -> Fault:
    @contextlib.asynccontextmanager
    async def fault(target: Target) -> AsyncIterator[None]:
        pids = await pids_of(target, part)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_slices, pids)
                yield
                nursery.cancel_scope.cancel()
        finally:
            _send(pids, signal.SIGCONT)

    return fault


async def _slices(pids: Sequence[int]) -> None:
    while True:
        _send(pids, signal.SIGSTOP)
        await trio.sleep(STOPPED_SECONDS)
        _send(pids, signal.SIGCONT)
        await trio.sleep(RUNNING_SECONDS)


def killed(part: str, again_seconds: float = 0) -> Fault:
    """SIGKILL, then restart after the unit's delay; 0: no restart."""

    @contextlib.asynccontextmanager
    async def fault(target: Target) -> AsyncIterator[None]:
        name, jobs = target.named(part), await target.bed.logind.do("asked")
        await target.bed.stop(name)
        async with trio.open_nursery() as nursery:
            if again_seconds:
                nursery.start_soon(_again, target, name, again_seconds, len(jobs))
            yield
            nursery.cancel_scope.cancel()

    return fault


async def _again(target: Target, name: str, seconds: float, jobs: int) -> None:
    await trio.sleep(seconds)
    asked = (await target.bed.logind.do("asked"))[jobs:]
    # A unit that is stopped while it waits for its restart stays stopped.
    if not (name.startswith("kubelet") and ["StopUnit", target.member.unit] in asked):
        await target.bed.inside.do("again", name=name)


@contextlib.asynccontextmanager
async def daemon_killed(target: Target) -> AsyncIterator[None]:
    """Its parent holds the lock and restarts it, like a service manager."""
    _send(await pids_of(target, "daemon"), signal.SIGKILL)
    yield


@contextlib.asynccontextmanager
async def logind_killed(target: Target) -> AsyncIterator[None]:
    await target.bed.logind.stop_logind()
    await trio.sleep(LOGIND_SECONDS)
    await target.bed.logind.start_logind()
    yield


@contextlib.asynccontextmanager
async def bus_killed(target: Target) -> AsyncIterator[None]:
    """logind exits when it loses the bus."""
    await target.bed.logind.restart_bus()
    yield


# --- the network to the API server, for all of the node


def network(*what: str, seconds: float = 0) -> Fault:
    """iptables rules for the API server's port, also for open connections."""
    rule = ["OUTPUT", "-p", "tcp", "--dport", str(API_PORT), *what]

    @contextlib.asynccontextmanager
    async def fault(target: Target) -> AsyncIterator[None]:
        await target.bed.run("iptables", "-w", "-I", *rule)
        held = True

        async def take_away() -> None:
            nonlocal held
            if held:
                held = False
                await target.bed.run("iptables", "-w", "-D", *rule)

        async def later() -> None:
            await trio.sleep(seconds)
            await take_away()

        try:
            async with trio.open_nursery() as nursery:
                if seconds:
                    nursery.start_soon(later)
                yield
                nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                await take_away()

    return fault


# --- the disk of the journal


def frozen(seconds: float = 0, thawed_seconds: float = 0) -> Fault:
    """Writes block and resume in turn; 0 and 0: block until the end."""

    @contextlib.asynccontextmanager
    async def fault(target: Target) -> AsyncIterator[None]:
        assert target.disk is not None
        enter = ["nsenter", "-t", str(target.bed.pid), "-m", "--"]
        words = [sys.executable, "-c", FREEZER, str(target.disk), str(seconds), str(thawed_seconds)]
        pipe = subprocess.PIPE
        process = await trio.lowlevel.open_process([*enter, *words], stdin=pipe, stdout=pipe)
        try:
            assert process.stdout is not None
            with trio.fail_after(DISK_SECONDS_MAX):
                assert await process.stdout.receive_some(), "the disk cannot be frozen"
            yield
        finally:
            with trio.CancelScope(shield=True):
                assert process.stdin is not None
                await process.stdin.aclose()
                await process.wait()

    return fault


@contextlib.asynccontextmanager
async def disk_dead(target: Target) -> AsyncIterator[None]:
    assert target.disk is not None
    _in_node(target.bed, sys.executable, "-c", BREAKER, str(target.disk))
    yield


#: Longer than any shutdown: one thaw after the first freeze.
FOR_GOOD_SECONDS = 3600.0

#: Each part's faults.
FAULTS: dict[str, dict[str, Fault]] = {
    # The unit restarts it; shims and containers survive.
    "containerd": {KILLED: killed("containerd", CONTAINERD_SECONDS)},
    "kubelet": {KILLED: killed("kubelet", KUBELET_SECONDS)},
    # On another machine, or a static pod: no component restarts it during a shutdown.
    "api-server": {KILLED: killed("api-server")},
    "etcd": {KILLED: killed("etcd")},
    "logind": {KILLED: logind_killed},
    "bus": {KILLED: bus_killed},
    "daemon": {KILLED: daemon_killed},
    # Only the path to the API server: pods, runtime and kubelet share no wire. Reject, drop, or lose one
    # packet of three.
    "network": {
        KILLED: network("-j", "REJECT", "--reject-with", "tcp-reset"),
        HUNG_5_S: network("-j", "DROP", seconds=HUNG_SECONDS),
        HUNG: network("-j", "DROP"),
        SLOW: network(
            *("-m", "statistic", "--mode", "nth", "--every", ONE_OF_PACKETS, "--packet", "0", "-j", "DROP")
        ),
    },
    # The journal's file system: each call fails, or it is frozen always or nine tenths of the time.
    "disk": {
        KILLED: disk_dead,
        HUNG_5_S: frozen(HUNG_SECONDS, FOR_GOOD_SECONDS),
        HUNG: frozen(),
        SLOW: frozen(STOPPED_SECONDS, RUNNING_SECONDS),
    },
}
for _part, _ways in FAULTS.items():
    if HUNG not in _ways:
        _ways.update({HUNG_5_S: hung(_part, HUNG_SECONDS), HUNG: hung(_part), SLOW: slow(_part)})

"""Processes by pidfd: their ends, and SIGKILL to whole trees.

A pod of an earlier daemon is another process's child: since Linux 6.15 its pidfd has the exit code once its
parent has waited; before, the code stays unknown.

A cgroup (v2 with ``cgroup.kill``, Linux 5.14) that is delegated to us (`is_delegated`) kills a tree whole. We
switch no controller on, so pods may run beside the daemon in one group.

Without a cgroup, looks at all processes are repeated until one finds no new process of the tree: the first
process, its session and group, and their descendants. A process escapes if it left the session and has lost
its parent, or, once an adopted container's first process was reaped, if it is outside its group.
"""

from __future__ import annotations

import fcntl
import hashlib
import math
import os
import select
import signal
import struct
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import trio

from ebbtide.actors.edges.linux import proc
from ebbtide.actors.edges.linux.proc import signal_name
from ebbtide.actors.interfaces import Outlet
from ebbtide.events import bounds
from ebbtide.events.base import NS_PER_SECOND, Fact
from ebbtide.events.values import ProcessReport

#: A parent that waits at all does so within a millisecond.
PARENT_POLL_SECONDS = 0.002

#: ``struct pidfd_info`` of ``linux/pidfd.h`` in its first size: a mask of 64 bits, ids, the exit code.
INFO_BYTES = 64
INFO_EXIT = 1 << 3
#: ``_IOWR(0xFF, 11, struct pidfd_info)``
PIDFD_GET_INFO = 3 << 30 | INFO_BYTES << 16 | 0xFF << 8 | 11
INFO_MASK = struct.Struct("=Q")
INFO_EXIT_CODE = struct.Struct("=i")


class Child(NamedTuple):
    """The caller closes ``pidfd``."""

    pid: int
    pidfd: int
    start_ticks: int


def open_child(pid: int, start_ticks: int) -> Child | None:
    """None: it is gone."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return None
    if proc.is_same_process(pid, start_ticks):
        return Child(pid, pidfd, start_ticks)
    os.close(pidfd)
    return None


class ExitStatus(NamedTuple):
    """Both empty: unknown. ``lost``: the runtime has lost the end; the exit code is the runtime's."""

    exit_code: int | None = None
    signal: str = ""
    lost: bool = False


def exit_of_wait_status(status: int) -> ExitStatus:
    code = os.waitstatus_to_exitcode(status)
    return ExitStatus(exit_code=code) if code >= 0 else ExitStatus(signal=signal_name(-code))


def reap(pidfd: int) -> ExitStatus | None:
    """Does not block; None: it runs. Another process's child: from its pidfd."""
    try:
        found = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
    except ChildProcessError:
        return exit_of_pidfd(pidfd)
    if found is None:
        return None
    if found.si_code == os.CLD_EXITED:
        return ExitStatus(exit_code=found.si_status)
    return ExitStatus(signal=signal_name(found.si_status))


async def reap_soon(pidfd: int) -> ExitStatus:
    """For an ended process. Another process's child: its parent gets a moment to wait."""
    # After a hang-up the parent has waited: the descriptor's answer is final.
    poll = select.poll()
    poll.register(pidfd, 0)
    end = reap(pidfd)
    with trio.move_on_after(bounds.now.parent_seconds):
        while end == ExitStatus() and not poll.poll(0):
            await trio.sleep(PARENT_POLL_SECONDS)
    return end if end not in (None, ExitStatus()) else exit_of_pidfd(pidfd)


def exit_of_pidfd(pidfd: int) -> ExitStatus:
    """Once its parent has waited; empty on older kernels."""
    info = bytearray(INFO_BYTES)
    INFO_MASK.pack_into(info, 0, INFO_EXIT)
    try:
        fcntl.ioctl(pidfd, PIDFD_GET_INFO, info)
    except OSError:
        return ExitStatus()
    if not INFO_MASK.unpack_from(info)[0] & INFO_EXIT:
        return ExitStatus()
    return exit_of_wait_status(INFO_EXIT_CODE.unpack_from(info, INFO_BYTES - INFO_EXIT_CODE.size)[0])


#: Closes the pidfd last, and may return a fact.
OnExit = Callable[[], Awaitable[Fact | None]]


class ExitWatch:
    def __init__(self) -> None:
        self._items, self._incoming = trio.open_memory_channel[tuple[int, OnExit, bool] | Fact](math.inf)
        self._open: set[int] = set()

    def add(self, pidfd: int, on_end: OnExit, *, child: bool = True) -> None:
        """``child`` False: another process's child."""
        self._open.add(pidfd)
        self._items.send_nowait((pidfd, on_end, child))

    def post(self, fact: Fact) -> None:
        self._items.send_nowait(fact)

    def close(self) -> None:
        """After `run` has ended."""
        for pidfd in self._open:
            os.close(pidfd)
        self._open.clear()

    async def run(self, outlet: Outlet) -> None:
        async with trio.open_nursery() as nursery:
            async for item in self._incoming:
                if isinstance(item, Fact):
                    await outlet.put(item)
                else:
                    nursery.start_soon(self._follow, *item, outlet)

    async def _follow(self, pidfd: int, on_end: OnExit, child: bool, outlet: Outlet) -> None:
        await trio.lowlevel.wait_readable(pidfd)
        if not child:
            # Its parent has the exit code first, but may never wait.
            await reap_soon(pidfd)
        fact = await on_end()
        self._open.discard(pidfd)
        if fact is not None:
            await outlet.put(fact)


#: A tree that still grows then forks too fast.
LOOKS_MAX = 50


class TreeRoot(NamedTuple):
    """``pid`` 0: there is no process."""

    pid: int = 0
    start_ticks: int = 0


def all_stats() -> Iterator[proc.ProcessStat]:
    for pid in proc.all_pids():
        stat = proc.read_stat(pid)
        if stat is not None:
            yield stat


def tree_members(look: Iterable[proc.ProcessStat], roots: Collection[TreeRoot]) -> list[proc.ProcessStat]:
    """Without zombies. A session or group counts only while its root is in the look with its start time:
    numbers are reused.
    """
    stats = list(look)
    starts = {stat.pid: stat.start_ticks for stat in stats}
    alive = {root.pid for root in roots if root.pid and starts.get(root.pid) == root.start_ticks}
    found = {stat.pid for stat in stats if alive & {stat.pid, stat.session, stat.group}}
    children: dict[int, list[int]] = {}
    for stat in stats:
        children.setdefault(stat.parent_pid, []).append(stat.pid)
    todo = list(found)
    while todo:
        new = [pid for pid in children.get(todo.pop(), ()) if pid not in found]
        found.update(new)
        todo.extend(new)
    return [stat for stat in stats if stat.pid in found and stat.state not in "ZX"]


async def examine_tree(root: TreeRoot) -> tuple[ProcessReport, ...]:
    """Bounded. Empty without a first process."""
    if not root.pid:
        return ()
    deadline_ns = time.monotonic_ns() + round(bounds.now.autopsy_seconds * NS_PER_SECOND)

    def examine() -> tuple[ProcessReport, ...]:
        return proc.examine_processes(tree_members(all_stats(), (root,)), deadline_ns)

    return await trio.to_thread.run_sync(examine)


def kill_exactly(pid: int, start_ticks: int) -> None:
    """SIGKILL, never to a later process with this number."""
    if not pid:
        return
    with suppress(OSError):
        # The descriptor first: afterwards the process cannot be replaced.
        pidfd = os.pidfd_open(pid)
        try:
            if proc.is_same_process(pid, start_ticks):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        finally:
            os.close(pidfd)


def kill_new(roots: Collection[TreeRoot], known: set[TreeRoot]) -> bool:
    """One look for all trees (20 ms for a thousand processes). Kills all processes that are not ``known``;
    False: there is none.
    """
    try:
        found = tree_members(all_stats(), roots)
    except OSError:
        # No descriptor is free.
        for root in roots:
            kill_exactly(*root)
        return False
    new = {TreeRoot(stat.pid, stat.start_ticks) for stat in found} - known
    # Parents first: the first process must not end because its child did.
    for each in sorted(new, key=lambda each: (each.start_ticks, each.pid)):
        kill_exactly(*each)
    known |= new
    return bool(new)


def kill_trees(roots: Collection[TreeRoot]) -> None:
    """A fork between a look and its SIGKILL is in the next look."""
    known: set[TreeRoot] = set()
    for _ in range(LOOKS_MAX):
        if not kill_new(roots, known):
            return


class TreeKiller:
    def __init__(self) -> None:
        self._roots: list[TreeRoot] = []
        self._wake, self._done = trio.Event(), trio.Event()
        #: The daemon ends: kill no process any more.
        self.closed = False

    async def kill(self, root: TreeRoot, group: str = "") -> None:
        """Returns when the tree has no new process, or its cgroup was killed."""
        if not self.kill_soon(root, group):
            await self._done.wait()

    def kill_soon(self, root: TreeRoot, group: str = "") -> bool:
        """True: done, by its cgroup."""
        if group:
            # A process that has just started may not be in its group yet.
            kill_exactly(*root)
            if kill_group(group):
                return True
        self._roots.append(root)
        self._wake.set()
        return False

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            roots, done = self._roots, self._done
            self._roots, self._wake, self._done = [], trio.Event(), trio.Event()
            known: set[TreeRoot] = set()
            for _ in range(LOOKS_MAX):
                if self.closed or not kill_new(roots, known):
                    break
                # A tree that forks fast must not hold up the other pods.
                await trio.lowlevel.checkpoint()
            done.set()


DELEGATE_ATTRIBUTES = ("user.delegate", "trusted.delegate")


def delegated_group(mounts: str, own: str) -> Path | None:
    """Our cgroup v2 group, from the texts of mountinfo and ``/proc/self/cgroup``; None: outside the mount."""
    group = next((line[3:] for line in own.splitlines() if line.startswith("0::/")), None)
    for line in mounts.splitlines():
        fields, _, kind = line.partition(" - ")
        if group is not None and kind.startswith("cgroup2 "):
            root, point = fields.split()[3:5]
            if ".." not in group and Path(group).is_relative_to(root):
                return Path(point) / Path(group).relative_to(root)
    return None


def is_delegated(group: Path) -> bool:
    """By the service manager (``Delegate=yes``), as our user's, or as a root without a service manager."""
    if not os.access(group, os.W_OK):
        return False
    for name in DELEGATE_ATTRIBUTES:
        with suppress(OSError):
            if os.getxattr(group, name) == b"1":
                return True
    is_root = not (group / "cgroup.type").exists() and not Path("/run/systemd/system").exists()
    return is_root or group.stat().st_uid == os.geteuid() != 0


class Cgroups:
    """One group per container, below one group per state directory."""

    def __init__(self, parent: Path, state_dir: Path) -> None:
        name = hashlib.sha256(str(state_dir.resolve()).encode()).hexdigest()[:12]
        self.base = parent / f"ebbtide-{name}"

    @classmethod
    def detect(cls, state_dir: Path) -> Cgroups | None:
        """None: not delegated, or the kernel cannot kill a group."""
        try:
            mounts = Path("/proc/self/mountinfo").read_text()
            group = delegated_group(mounts, Path("/proc/self/cgroup").read_text())
            if group is None or not is_delegated(group):
                return None
            found = cls(group, state_dir)
            found.base.mkdir(exist_ok=True)
        except OSError:
            return None
        return found if (found.base / "cgroup.kill").exists() else None

    def make(self, name: str) -> str:
        """Empty: the kernel refuses (a limit on groups)."""
        group = self.base / name
        try:
            group.mkdir(parents=True, exist_ok=True)
        except OSError:
            return ""
        return str(group)

    def prune(self, keep: Collection[str] = ()) -> None:
        """Remove empty groups but these: a process that has just started may not be in its group yet."""
        for group in map(str, [*self.base.glob("*/"), self.base]):
            if group not in keep:
                with suppress(OSError):
                    os.rmdir(group)


def kill_group(group: str) -> bool:
    """A group that is gone is empty."""
    try:
        fd = os.open(f"{group}/cgroup.kill", os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        os.write(fd, b"1")
    except OSError:
        return False
    finally:
        os.close(fd)
    return True

"""Ending whole process trees, as the end of a pid namespace would: nothing of a container is left behind.

With a cgroup the kernel does it. Without one, a tree is what one look at all processes shows to belong
together: the first process's children and their children, its session and its group, and everything that
carries the container's marks, in whatever session it hides. Looks are repeated until one finds nothing
new. What has cleared its environment *and* left its session *and* lost its parent is not found: that
takes a cgroup.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

import trio

from actors.edges.process import proc
from actors.edges.process.cgroup import kill_group, remove_group
from actors.edges.process.scan import Process, Scanner

#: (pod's UID, container) or, for a hook, ("", its order's key).
TreeKey = tuple[str, str]

#: A tree that still grows after this many looks forks faster than it can be killed.
LOOKS_MAX = 50
#: Leftovers of containers that ended by themselves are looked for together: at least this often apart,
#: and so that looking takes at most a tenth of the time.
GAP_NS = 50_000_000
GAP_SHARE = 10
#: A killed cgroup empties within milliseconds; one that does not holds a process that cannot die.
REMOVALS_MAX = 100


class Root(NamedTuple):
    """A tree's first process; start ticks 0: it has ended, only marks count."""

    pid: int = 0
    start_ticks: int = 0


def tree_keys(process: Process) -> tuple[TreeKey, ...]:
    """The trees that a process belongs to by its marks: its container's, and its order's."""
    mark = process.mark
    return ((mark.uid, mark.container), ("", mark.order)) if mark is not None else ()


def members(look: Iterable[Process], roots: Mapping[TreeKey, Root]) -> list[Process]:
    """The processes in a look that belong to one of the trees. Pure. Zombies are left out.

    Sessions and groups count only while their root is in the look with its own start time: a number alone
    may belong to somebody else by now.
    """
    processes = list(look)
    starts = {process.pid: process.stat.start_ticks for process in processes}
    alive = {root.pid for root in roots.values() if root.pid and starts.get(root.pid) == root.start_ticks}
    found = {
        process.pid
        for process in processes
        if process.pid in alive
        or process.stat.session in alive
        or process.stat.group in alive
        or any(key in roots for key in tree_keys(process))
    }
    _add_descendants(processes, found)
    return [process for process in processes if process.pid in found and process.stat.state not in "ZX"]


def _add_descendants(processes: list[Process], found: set[int]) -> None:
    children: dict[int, list[int]] = {}
    for process in processes:
        children.setdefault(process.stat.parent_pid, []).append(process.pid)
    todo = list(found)
    while todo:
        new = [pid for pid in children.get(todo.pop(), ()) if pid not in found]
        found.update(new)
        todo.extend(new)


def kill_exactly(pid: int, start_ticks: int) -> None:
    """SIGKILL to this process and no other that may have its number by now; a number of 0 is nobody."""
    if not pid:
        return
    with suppress(OSError):
        pidfd = os.pidfd_open(pid)
        try:
            if proc.is_same(pid, start_ticks):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        finally:
            os.close(pidfd)


class Sweeper:
    """Kills trees: asked-for ones at once, leftovers of ended ones soon and together."""

    def __init__(self, scanner: Scanner, mono_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._scanner = scanner
        self._mono_ns = mono_ns
        self._roots: dict[TreeKey, Root] = {}
        #: Asked for since the last strike.
        self._fresh: dict[TreeKey, Root] = {}
        self._groups: dict[str, int] = {}
        self._waiting: list[trio.Event] = []
        self._wake = trio.Event()
        self._urgent = trio.Event()
        self._struck = trio.Event()
        self._next_ns = 0
        self.closed = False

    async def kill(self, key: TreeKey, root: Root, group: str = "") -> None:
        """Return when a look finds nothing more of the tree (or its cgroup was killed)."""
        if not self.kill_soon(key, root, group):
            done = trio.Event()
            self._waiting.append(done)
            await done.wait()

    def kill_soon(self, key: TreeKey, root: Root, group: str = "") -> bool:
        """The same without waiting. True when it is done already, by its cgroup."""
        if group:
            # First of all, so that it ends by SIGKILL and not because a child of it did; and a process that
            # was only just started may not have entered its group yet.
            kill_exactly(*root)
        if self._kill_group(group):
            return True
        self._roots[key] = self._fresh[key] = root
        self._wake.set()
        self._urgent.set()
        self._struck.set()
        return False

    def leftovers(self, key: TreeKey, group: str = "") -> None:
        """The first process has ended by itself: the rest of its tree goes, soon. A group that can be
        removed is empty: nothing is left, for the price of one call.
        """
        if not (group and remove_group(group)) and not self._kill_group(group):
            self._roots.setdefault(key, Root())
            self._wake.set()

    def _kill_group(self, group: str) -> bool:
        if not group or not kill_group(group):
            return False
        self._groups[group] = REMOVALS_MAX
        self._wake.set()
        return True

    async def run(self) -> None:
        """Carry it out until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._strike_loop)
            nursery.start_soon(self._sweep_loop)

    async def _strike_loop(self) -> None:
        """What is known without marks is killed at once, whatever holds a look with them: one process that
        hangs its readers must not delay the SIGKILL of any other.
        """
        while True:
            await self._struck.wait()
            self._struck = trio.Event()
            roots, self._fresh = self._fresh, {}
            try:
                self._strike(roots)
            except OSError:
                self._strike_blindly(roots)

    def _strike_blindly(self, roots: Mapping[TreeKey, Root]) -> None:
        """Where nobody can be looked at: the first processes, by their numbers."""
        for root in () if self.closed else roots.values():
            kill_exactly(*root)

    async def _sweep_loop(self) -> None:
        while True:
            await self._wake.wait()
            await self._until_due()
            self._wake, self._urgent = trio.Event(), trio.Event()
            roots, self._roots = self._roots, {}
            waiting, self._waiting = self._waiting, []
            began_ns = self._mono_ns()
            try:
                if roots:
                    await self._finish(roots, set())
            except OSError:
                # Nobody waits for it any longer, but it is tried again.
                self._roots = roots | self._roots
                self._wake.set()
            self._remove_groups()
            now_ns = self._mono_ns()
            self._next_ns = now_ns + max(GAP_NS, GAP_SHARE * (now_ns - began_ns))
            for done in waiting:
                done.set()

    async def _until_due(self) -> None:
        seconds = (self._next_ns - self._mono_ns()) / 1_000_000_000
        if seconds > 0:
            with trio.move_on_after(seconds):
                await self._urgent.wait()

    async def sweep(self, roots: Mapping[TreeKey, Root]) -> None:
        """Kill these trees now, on the caller's task."""
        await self._finish(roots, self._strike(roots))

    def _strike(self, roots: Mapping[TreeKey, Root]) -> set[tuple[int, int]]:
        if not any(root.pid for root in roots.values()):
            return set()
        return self._kill_new(self._scanner.look_without_marks(), roots, set())

    async def _finish(self, roots: Mapping[TreeKey, Root], killed: set[tuple[int, int]]) -> None:
        for _ in range(LOOKS_MAX):
            new = self._kill_new(await self._scanner.look(), roots, killed)
            if not new:
                return
            killed |= new

    def _kill_new(
        self, look: list[Process], roots: Mapping[TreeKey, Root], killed: set[tuple[int, int]]
    ) -> set[tuple[int, int]]:
        found = {(process.pid, process.stat.start_ticks) for process in members(look, roots)}
        new = set() if self.closed else found - killed
        # Parents first: a container's first process is to end by SIGKILL, not because its child did.
        for pid, start_ticks in sorted(new, key=lambda one: (one[1], one[0])):
            kill_exactly(pid, start_ticks)
        return new

    def _remove_groups(self) -> None:
        left = {group: tries - 1 for group, tries in self._groups.items() if not remove_group(group)}
        self._groups = {group: tries for group, tries in left.items() if tries}
        if self._groups:
            self._wake.set()

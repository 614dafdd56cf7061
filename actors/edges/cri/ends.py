"""Containers' ends: seen at once through a descriptor of the first process, and reported if somebody waits.

The exit code comes from the kernel where it tells it, else from the runtime, for a moment only.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from actors.edges.cri.calling import Caller
from actors.edges.cri.listing import end_of
from actors.edges.cri.sandboxes import Sandboxes
from actors.edges.cri.table import ContainerEntry, Table, Told
from actors.edges.process.endings import End, reap_soon, told
from actors.interfaces import Outlet
from events.facts import ContainerExited

#: Looks of 20 ms each for what the kernel tells of an end.
SHIM_LOOKS_MAX = 5
#: A runtime notices an end a moment after the kernel; a wave does not wait longer for an exit code.
NOTICE_SECONDS_MAX = 0.5
NOTICE_AGAIN_SECONDS = 0.02
#: After an end its kubelet may start the container again: so long the table is looked over more often.
RESTART_SECONDS = 5.0


class Ends:
    """``start`` runs a task as long as the edge does."""

    def __init__(
        self, caller: Caller, table: Table, sandboxes: Sandboxes, start: Callable[..., None], outlet: Outlet
    ) -> None:
        self._caller = caller
        self._table = table
        self._sandboxes = sandboxes
        self._start = start
        self._outlet = outlet
        self._quiet_at = 0.0

    @property
    def fresh(self) -> bool:
        """Has something ended a moment ago?"""
        return trio.current_time() < self._quiet_at

    def follow(self, entry: ContainerEntry) -> None:
        """A container has become known."""
        if entry.pidfd >= 0:
            self._start(self._watch, entry)

    def miss(self, entry: ContainerEntry) -> None:
        """One without a descriptor is no longer in the runtime's list."""
        self._start(self._lost_sight, entry)

    async def catch_up(self, before: tuple[Told, ...]) -> None:
        """What the daemon before was given and has ended while none ran: reported, and cleaned up after."""
        running = {entry.id for entry in self._table.entries()}
        over = [each for each in before if each.id not in running]
        for each in over:
            end = await end_of(self._caller, each.id) or End()
            means = self._table.told.get((each.uid, each.container), each)
            if means.id != each.id:  # A shutdown has begun, and means the one that was started since.
                continue
            ended = ContainerExited(uid=each.uid, container=each.container, exit_code=end.exit_code)
            await self._outlet.put(ended)
        stopped = {each.uid for each in over if each.stopping}
        for pod in self._table.pods.values():
            if pod.uid in stopped:
                self._sandboxes.add(pod)

    async def _watch(self, entry: ContainerEntry) -> None:
        await trio.lowlevel.wait_readable(entry.pidfd)
        await self._ended(entry, await self._waited_for(entry) or await self._noticed(entry))

    async def _waited_for(self, entry: ContainerEntry) -> End | None:
        """The kernel tells how a process ended once its own parent, the shim, has taken notice."""
        for _ in range(SHIM_LOOKS_MAX):
            if (end := await reap_soon(entry.pidfd)) != End():
                return end
        return None

    async def _noticed(self, entry: ContainerEntry) -> End:
        """Older kernels tell no exit code of another's child: the runtime does, soon."""
        with trio.move_on_after(NOTICE_SECONDS_MAX):
            while True:
                end = await end_of(self._caller, entry.id)
                if end is not None:
                    return end
                await trio.sleep(NOTICE_AGAIN_SECONDS)
        return told(entry.pidfd) if entry.pidfd >= 0 else End()

    async def _lost_sight(self, entry: ContainerEntry) -> None:
        end = await self._noticed(entry)
        if entry.running:
            await self._ended(entry, end)

    async def _ended(self, entry: ContainerEntry, end: End) -> None:
        entry.finish(end)
        self._quiet_at = trio.current_time() + RESTART_SECONDS
        self._sandboxes.stir()
        self._sandboxes.look(entry.pod)
        if entry.id in self._table.followed:
            await self._outlet.put(entry.exited())

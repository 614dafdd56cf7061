"""The dying node is made visible, and made as it was: taint, ``unschedulable``, conditions, in that order.

A newer announcement overtakes an older one, and what is taken back goes for the certificate as well, so what
stands at the end is what was said last (`halves`). Going down, the node is shown for as long as that is of
use; coming back, a node that nobody restores would stay empty, so it is tried until it is done.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from actors.edges.kubernetes.calling import MERGE_PATCH, STRATEGIC_PATCH, Unanswered
from actors.edges.kubernetes.writes import memory
from actors.edges.kubernetes.writes.halves import Half, Hold, NodeWrites
from actors.edges.kubernetes.writes.insisting import Call, silence
from actors.interfaces import Ending, Outlet
from events.decisions import AnnounceNode

#: While the machine goes down: beyond a minute few shutdowns are left to be shown.
ANNOUNCE_SECONDS_MAX = 60.0
#: After a cancel or a boot, when the API server may come long after us. It costs a call every few seconds.
RESTORE_SECONDS_MAX = 24 * 3600.0
RESTORE_AGAIN_SECONDS = 5.0
#: One try of it.
TRY_SECONDS_MAX = 10.0
#: A delete that waits for the taint waits no longer: the taint only keeps the pod from coming back here.
TAINT_SECONDS_MAX = 0.5
#: NodeRestriction's words to a node's own identity.
NO_TAINTS = "not allowed to modify taints"
WARNING = 4

#: Whom an order that holds the Node gives way to.
ANNOUNCEMENT, CERTIFICATE = "announcement", "certificate"

Tell = Callable[[int, str], None]


RESTORED = (
    Half("", MERGE_PATCH, memory.uncordon),
    Half("/status", STRATEGIC_PATCH, memory.hide),
    Half("", MERGE_PATCH, memory.tidied),
)


class Announcements:
    def __init__(self, writes: NodeWrites, context: Callable[[str], str], tell: Tell) -> None:
        self._writes, self._context, self._tell = writes, context, tell
        self._tainted = trio.Event()
        #: What the operator has been told, once each.
        self._told: set[str] = set()

    async def wait_tainted(self) -> None:
        """Until the node is tainted, or cannot be; for a bounded time."""
        with trio.move_on_after(TAINT_SECONDS_MAX):
            await self._tainted.wait()

    async def announce(self, order: AnnounceNode, outlet: Outlet) -> Ending:
        if order.ready:
            self._tainted = trio.Event()
        overtakes = (ANNOUNCEMENT, CERTIFICATE) if order.ready else (ANNOUNCEMENT,)
        async with self._writes.hold(ANNOUNCEMENT, overtakes) as hold:
            return await (self._restore(order, hold) if order.ready else self._show(order, hold))
        return Ending("cancelled", "a later announcement has overtaken it")

    # --- going down ------------------------------------------------------------------------------

    async def _show(self, order: AnnounceNode, hold: Hold) -> Ending:
        call = self._writes.call(hold, ANNOUNCE_SECONDS_MAX, self._context(order.key))
        ready = {"reason": order.reason, "message": order.message} if order.unready else None
        problems = []
        try:
            if order.cordon:
                problems.append(await self._cordon(call))
            show = Half("/status", STRATEGIC_PATCH, lambda node: memory.show(node, order.conditions, ready))
            problems.append(await self._writes.change(call, show))
        except Unanswered as error:
            return silence(error)
        return self._sum(problems)

    async def _cordon(self, call: Call) -> str:
        """The taint is settled when this returns: there, or not to be had. Raises Unanswered."""
        problem = await self._writes.change(
            call, Half("", MERGE_PATCH, lambda node: memory.cordon(node, taint=True))
        )
        self._tainted.set()
        if NO_TAINTS in problem:
            rest = Half("", MERGE_PATCH, lambda node: memory.cordon(node, taint=False))
            problem = await self._writes.change(call, rest) or f"no taint ({problem}); the rest is done"
        return problem

    # --- as it was -------------------------------------------------------------------------------

    async def _restore(self, order: AnnounceNode, hold: Hold) -> Ending:
        until, said = trio.current_time() + RESTORE_SECONDS_MAX, False
        while problem := await self._take_back(order, hold):
            if not said:
                self._tell(WARNING, f"the node is not shown as it was yet, which is tried again: {problem}")
            said = True
            if trio.current_time() >= until:
                return Ending("timed-out", problem)
            await trio.sleep(RESTORE_AGAIN_SECONDS)
        return Ending()

    async def _take_back(self, order: AnnounceNode, hold: Hold) -> str:
        """What is in the way."""
        call = self._writes.call(hold, TRY_SECONDS_MAX, self._context(order.key))
        try:
            return "; ".join(filter(None, [await self._writes.change(call, half) for half in RESTORED]))
        except Unanswered as error:
            return str(error)

    def _sum(self, problems: list[str]) -> Ending:
        found = "; ".join(filter(None, problems))
        if found:
            self._say(f"what others see of this node: {found}")
        return Ending("failed", found) if found else Ending()

    def _say(self, line: str) -> None:
        if line not in self._told:
            self._told.add(line)
            self._tell(WARNING, line)

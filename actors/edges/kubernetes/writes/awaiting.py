"""Mode observe keeps the lock until the API server has every pod's final status, which others have to write.

The watch usually knows first, and costs nothing. Where it does not, a list is asked for, in one call for all
pods, and the more rarely the longer the server takes for one. Mirror pods count: theirs is the static pod's.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from actors.edges.kubernetes.calling import Caller, Known, Lookup, Unanswered
from actors.edges.kubernetes.writes.finding import Denied, listed
from actors.edges.kubernetes.writes.insisting import Call
from actors.edges.kubernetes.writes.shapes import FINAL_PHASES
from actors.interfaces import Ending, Outlet
from events.base import NS_PER_SECOND
from events.decisions import AwaitStatuses
from events.facts import StatusesSeen

POLL_SECONDS = 0.1
#: Of the time at most a quarter is spent on lists: the server has the statuses themselves to take.
REST_PER_CALL = 3


class Awaiting:
    def __init__(self, caller: Caller, lookup: Lookup, node: str, context: Callable[[str], str]) -> None:
        self._caller, self._lookup, self._node, self._context = caller, lookup, node, context

    async def wait(self, order: AwaitStatuses, outlet: Outlet) -> Ending:
        """Says who is missing before it ends."""
        call = Call(self._caller, order.timeout_ns / NS_PER_SECOND, self._context(order.key))
        missing, ended = await self._until_seen(order.uids, call)
        await outlet.put(StatusesSeen(key=order.key, missing=missing))
        return ended

    async def _until_seen(self, uids: tuple[str, ...], call: Call) -> tuple[tuple[str, ...], Ending]:
        missing, why, next_list = uids, "", 0.0
        while missing := tuple(uid for uid in missing if not _is_final(self._lookup.find(uid))):
            now = trio.current_time()
            if now >= call.until:
                return missing, Ending(
                    "timed-out", f"{len(missing)} of {len(uids)} without a final status{why}"
                )
            if now >= next_list:
                try:
                    seen = await listed(call, self._node)
                    missing, why = tuple(uid for uid in missing if _is_missing(seen.get(uid))), ""
                except Unanswered as error:
                    why = f": {error}"
                except Denied as error:
                    return missing, Ending("failed", str(error))
                next_list = trio.current_time() + max(
                    POLL_SECONDS, REST_PER_CALL * (trio.current_time() - now)
                )
            if missing:
                await trio.sleep(min(POLL_SECONDS, call.left_seconds))
        return (), Ending()


def _is_final(known: Known | None) -> bool:
    """By the watch, which may be behind, or not there: then it knows of no pod that is final and is not."""
    return known is not None and known.phase in FINAL_PHASES


def _is_missing(listed_pod: Known | None) -> bool:
    """By a list: an object that is gone needs no status any more."""
    return listed_pod is not None and listed_pod.phase not in FINAL_PHASES

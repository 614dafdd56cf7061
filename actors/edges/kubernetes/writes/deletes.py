"""Mode api ends a pod by deleting its object: once, that very pod, and never so that it vanishes unstopped.

A grace of 0 would take the object out of the API while the containers run, so it is never less than 1. The
UID is a precondition: a pod that has come back under the same name is another one. ``DisruptionTarget`` comes
first, so that a Job does not count the pod as its own failure; a pod without it is deleted all the same.

How an order ends says what may have become of the pod's hooks. ``done``: it is gone, or the kubelet ends it.
``failed``: nobody took the delete, because the server refused it or it was never sent. ``timed-out``: it was
sent, and nothing shows whether it was taken.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from actors.edges.kubernetes.calling import STRATEGIC_PATCH, Answer, Caller, Lookup, Unanswered
from actors.edges.kubernetes.writes.insisting import Call, ending, is_gone, silence, words
from actors.edges.kubernetes.writes.many import Places
from actors.edges.kubernetes.writes.shapes import disruption, pod_path
from actors.interfaces import Ending, Outlet
from events.decisions import DeletePod

#: A pod whose delete is not taken by then is the runtime's, with the rest of its grace (docs/node.md).
#: Counted from the order, whatever was waited for: the stop signal of a pod without grace comes before its
#: SIGKILL, which is 2 s after the order.
DELETE_SECONDS_MAX = 1.5
#: Of which the mark may have: it is a courtesy to the pod's owner.
MARK_SECONDS_MAX = 0.5
#: And of what a late turn has left, this part.
MARK_SHARE = 3
#: A turn that comes with less left is none: what is sent and not answered leaves its pod without its hooks.
TURN_SECONDS_MIN = 0.05
#: An answer that took so long is one of a slow server: what still waits for a turn would be too late.
SLOW_SECONDS = 0.25
#: With less the object would go before its containers.
GRACE_SECONDS_MIN = 1


class Deletes:
    """``tainted`` returns when the node is, or cannot be, tainted, or its time is over."""

    def __init__(
        self,
        caller: Caller,
        lookup: Lookup,
        context: Callable[[str], str],
        tainted: Callable[[], Awaitable[None]],
    ) -> None:
        self._caller, self._lookup, self._context = caller, lookup, context
        self._tainted = tainted
        self._places, self._open = Places(), 0
        self._marked: set[str] = set()
        #: Those of which a delete was taken: what the watch shows of them says nothing of a later one.
        self._taken: set[str] = set()

    async def delete(self, order: DeletePod, outlet: Outlet) -> Ending:
        began = trio.current_time()
        if not self._open:
            self._places = Places()
        self._open += 1
        try:
            ended = await self._in_turn(order, began)
        finally:
            self._open -= 1
        if ended.result != "done" and self._is_deleting(order.uid):
            ended = Ending()
        if ended.result == "done":
            self._taken.add(order.uid)
        return ended

    async def _in_turn(self, order: DeletePod, began: float) -> Ending:
        until = began + DELETE_SECONDS_MAX
        with trio.move_on_at(until - TURN_SECONDS_MIN) as waiting:
            if order.after_taint:
                await self._tainted()
            async with self._places.one():
                waiting.deadline = float("inf")
                return await self._delete(order, began, until)
        return Ending("failed", f"not sent: no turn in {DELETE_SECONDS_MAX} s")

    def _is_deleting(self, uid: str) -> bool:
        """Nobody answered, and yet the watch shows that it was taken."""
        known = self._lookup.find(uid)
        return known is not None and known.deleting and uid not in self._taken

    async def _delete(self, order: DeletePod, began: float, until: float) -> Ending:
        known = self._lookup.find(order.uid)
        uid = known.api_uid if known is not None else order.uid
        if await self._mark(order, uid, self._call(order, until)):
            return Ending()
        call = self._call(order, until)
        try:
            answer = await self._until_taken(order, uid, began, call)
        except Unanswered as error:
            return silence(error) if call.in_doubt else Ending("failed", f"not sent: {error}")
        if is_gone(answer):
            return Ending()
        if not answer.ok and call.in_doubt:
            return Ending("timed-out", f"the API server may have taken it: {words(answer)}")
        return ending(answer)

    def _call(self, order: DeletePod, until: float) -> Call:
        return Call(self._caller, until - trio.current_time(), self._context(order.key))

    async def _mark(self, order: DeletePod, uid: str, call: Call) -> bool:
        """Is the pod gone already? Whatever else comes of it, it is deleted."""
        if uid in self._marked:
            return False
        body = {"metadata": {"uid": uid}, "status": {"conditions": [disruption([])]}}
        path = f"{pod_path(order.namespace, order.name)}/status"
        asked, seconds = trio.current_time(), min(MARK_SECONDS_MAX, call.left_seconds / MARK_SHARE)
        try:
            answer = await call.once("PATCH", path, body, STRATEGIC_PATCH, seconds)
        except Unanswered:
            return False
        if trio.current_time() - asked > SLOW_SECONDS:
            self._places.widen()
        if answer.ok:
            self._marked.add(uid)
        return is_gone(answer)

    async def _until_taken(self, order: DeletePod, uid: str, began: float, call: Call) -> Answer:
        # The kubelet counts whole seconds from when it hears of it; what has passed is no longer the pod's.
        left_seconds = order.grace_seconds - round(trio.current_time() - began)
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": max(GRACE_SECONDS_MIN, left_seconds),
            "preconditions": {"uid": uid},
        }
        return await call.insist("DELETE", pod_path(order.namespace, order.name), body)

"""The last word on a pod that was ended without its kubelet: the status that the kubelet would have written.

Without it the pod looks Running for as long as its node is away (kubernetes#109531, #110755). It is written
once: an object that is final already keeps what it has, one that is gone needs none, and one that has been
started again since, after a reboot, must never get it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import msgspec
import trio

from actors.edges.kubernetes.calling import STRATEGIC_PATCH, Answer, Caller, Known, Lookup, Unanswered
from actors.edges.kubernetes.late import Late, Then
from actors.edges.kubernetes.writes.final import final_status, newest_start, started_this_boot
from actors.edges.kubernetes.writes.finding import Denied, find_all, objects
from actors.edges.kubernetes.writes.insisting import CONFLICT, Call, is_gone, words
from actors.edges.kubernetes.writes.many import of_each
from actors.edges.kubernetes.writes.shapes import FINAL_PHASES, PodObject, pod_path
from actors.interfaces import Ending, Outlet
from events.decisions import DeliverStatuses

#: For all calls of one pod. The core waits for its statuses only so long as it is told to
#: (``statusFlushSeconds``); what goes on after that is as good as the machine's last seconds allow.
POD_SECONDS_MAX = 5.0
#: For all pods of an order.
ORDER_SECONDS_MAX = 10.0
#: After a boot the API server may come long after us; later than this the cluster has helped itself.
LATER_SECONDS_MAX = 600.0
LATER_AGAIN_SECONDS = 5.0
#: The kubelet, or a controller, wrote in between: read again.
CONFLICTS_MAX = 5
#: From so many on, one list is less work for the server than a read each.
LIST_FROM = 4
#: Names in a reason.
NAMED_MAX = 5

Status = tuple[str, str, str, str]
DELIVERED, STALE, FAILED = "delivered", "stale", "failed"


class Fate(NamedTuple):
    """What became of one status: delivered, stale or failed, and why."""

    what: str
    why: str = ""


class Refusal(Exception):
    """The server's answer was no."""


class Statuses:
    """``final``: the API's UIDs of the pods whose status is delivered here, from the beginning of it."""

    def __init__(
        self, caller: Caller, lookup: Lookup, node: str, context: Callable[[str], str], late: Late
    ) -> None:
        self._caller, self._lookup, self._node, self._context = caller, lookup, node, context
        self._late = late
        self.final: set[str] = set()

    async def deliver(self, order: DeliverStatuses, outlet: Outlet) -> Ending:
        """One try in a shutdown; what an earlier boot has left is tried until it is taken or stale."""
        if not order.unchanged_only:
            return await self._deliver_now(order)
        until = trio.current_time() + LATER_SECONDS_MAX
        while True:
            ended = await self._deliver(order)
            if ended.result != "failed" or trio.current_time() + LATER_AGAIN_SECONDS > until:
                return ended
            await trio.sleep(LATER_AGAIN_SECONDS)

    async def _deliver_now(self, order: DeliverStatuses) -> Ending:
        """What is known of the pods now is kept beside it, for the next boot, and needed where this fails."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._late.keep, [each[0] for each in order.statuses], self._lookup.find)
            ended = await self._deliver(order)
            if ended.result == "done":
                nursery.cancel_scope.cancel()
        return ended

    async def _deliver(self, order: DeliverStatuses) -> Ending:
        until = trio.current_time() + ORDER_SECONDS_MAX
        call = self._call(order)
        try:
            found = await find_all(self._lookup, [each[0] for each in order.statuses], call, self._node)
        except (Unanswered, Denied) as error:
            return Ending("failed", f"0 of {len(order.statuses)} delivered: {error}")

        begun = set() if order.unchanged_only else {pod.api_uid for pod in found.values() if pod is not None}
        self.final |= begun
        read = await self._read_ahead(order)
        then = await self._late.known() if order.unchanged_only else {}

        async def one(status: Status) -> Fate:
            known = found[status[0]]
            ahead = read.get(known.api_uid) if known is not None else None
            seconds = min(POD_SECONDS_MAX, until - trio.current_time())
            before = then.get(status[0])
            return await self._one(order, status, known, before, ahead, self._call(order, seconds))

        ended = _sum(await of_each(order.statuses, one))
        if ended.result != "done":
            self.final -= begun
        return ended

    async def _read_ahead(self, order: DeliverStatuses) -> dict[str, PodObject]:
        """Many objects with one call, by the API's UID; what is not there is read one by one."""
        if len(order.statuses) < LIST_FROM:
            return {}
        try:
            return {pod.metadata.uid: pod for pod in await objects(self._call(order), self._node)}
        except (Unanswered, Denied):
            return {}

    def _call(self, order: DeliverStatuses, seconds: float = POD_SECONDS_MAX) -> Call:
        return Call(self._caller, seconds, self._context(order.key))

    async def _one(
        self,
        order: DeliverStatuses,
        status: Status,
        known: Known | None,
        then: Then | None,
        ahead: PodObject | None,
        call: Call,
    ) -> Fate:
        if known is None:
            return Fate(DELIVERED, "gone")
        label = f"{known.namespace}/{known.name}"
        try:
            fate = await _write(order, status, known, then, call, ahead)
            if fate.what == DELIVERED and order.remove and not known.static:
                await _remove(known, call)
        except (Unanswered, Refusal) as error:
            return Fate(FAILED, f"{label}: {error}")
        return Fate(fate.what, f"{label} {fate.why}")


async def _write(
    order: DeliverStatuses,
    status: Status,
    known: Known,
    then: Then | None,
    call: Call,
    pod: PodObject | None,
) -> Fate:
    """Read, and write what was read with the rest. Raises Unanswered, Refusal."""
    path = pod_path(known.namespace, known.name)
    for _ in range(CONFLICTS_MAX):
        if pod is None:
            answer = await call.insist("GET", path)
            if is_gone(answer):
                return Fate(DELIVERED, "is gone")
            pod = _pod(answer)
        if pod.metadata.uid != known.api_uid:
            return Fate(DELIVERED, "is another one by now")
        if pod.status.phase in FINAL_PHASES:
            return Fate(DELIVERED, f"was {pod.status.phase} already")
        if order.unchanged_only and (why := _stale(pod, then)):
            return Fate(STALE, why)
        body = final_status(pod, *status[1:])
        answer = await call.insist("PATCH", f"{path}/status", body, STRATEGIC_PATCH)
        if answer.ok or is_gone(answer):
            return Fate(DELIVERED)
        if answer.code != CONFLICT:
            raise Refusal(words(answer))
        if order.unchanged_only:
            return Fate(STALE, "has changed since")
        pod = None
    raise Refusal("it changes as fast as it is read")


def _pod(answer: Answer) -> PodObject:
    if not answer.ok:
        raise Refusal(words(answer))
    try:
        return msgspec.json.decode(answer.body, type=PodObject)
    except msgspec.DecodeError as error:
        raise Refusal(f"it cannot be read: {error}") from None


def _stale(pod: PodObject, then: Then | None) -> str:
    """Why a status of an earlier boot is no longer this pod's (design, rule 11)."""
    if then is None:
        return "is not known from when its status was due"
    if pod.metadata.resource_version != then.resource_version:
        return "has changed since"
    newest = newest_start(pod)
    if started_this_boot(newest) or (then.started_at and newest > then.started_at):
        return "has been started again"
    return ""


async def _remove(known: Known, call: Call) -> None:
    """Its containers have ended, so a grace of 0 leaves nothing behind. Raises Unanswered, Refusal."""
    body = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": known.api_uid},
    }
    answer = await call.insist("DELETE", pod_path(known.namespace, known.name), body)
    if not answer.ok and not is_gone(answer):
        raise Refusal(f"not removed: {words(answer)}")


def _sum(fates: list[Fate]) -> Ending:
    """One word for all: what failed before what is stale."""
    count = Counter(fate.what for fate in fates)
    if count[FAILED]:
        return Ending("failed", f"{count[FAILED]} of {len(fates)} not delivered: {_named(fates, FAILED)}")
    if count[STALE]:
        return Ending("cancelled", f"stale: {count[STALE]} of {len(fates)}: {_named(fates, STALE)}")
    return Ending()


def _named(fates: list[Fate], what: str) -> str:
    those = [fate.why for fate in fates if fate.what == what]
    more = [f"and {len(those) - NAMED_MAX} more"] if len(those) > NAMED_MAX else []
    return "; ".join([*those[:NAMED_MAX], *more])

"""The edge of one Node in an outage: what is seen of it, and the three writes.

Every write names the Node's version that it was made from. `SetTaint` reads Node and lease again, in this
order. If they differ from the order's, it refuses, reports what it found, and the core decides anew. A note
on the Node, in the same request, says which taint is ours. While an unanswered write may still be carried
out, no decision is based on the Node (`NodeWriter.change`).
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import NamedTuple, TypeVar

import msgspec
import trio

from ebbtide.actors.edges.kubernetes import api_calls as api
from ebbtide.actors.edges.kubernetes.node_view import (
    NOTE_ANNOTATION,
    OUT_OF_SERVICE,
    OUT_OF_SERVICE_VALUE,
    ApiLease,
    ClusterView,
    NodeView,
    OutageNote,
    is_our_taint,
    lease_path,
    project_lease,
    project_node,
    read_note,
)
from ebbtide.actors.edges.kubernetes.node_writes import NodePatch, NodeWriter
from ebbtide.actors.interfaces import Edge, Effect, Ending, Outlet, TraceContext
from ebbtide.events import bounds, outage_events
from ebbtide.events.base import NS_PER_SECOND, Fact, Order

#: Of this key all taints are ours.
QUARANTINE: api.JsonObject = {"key": "ebbtide.dev/quarantine", "effect": "NoSchedule"}
HOLD = "outage"
OVERTAKEN = "a later order has overtaken it"
ANOTHER_NODE = "another Node has its name"

EndingT = TypeVar("EndingT", Ending, Ending | None)


class _AnotherNode(Exception):
    """Another object has the order's name."""


class Look(NamedTuple):
    """A report. ``node`` None: it is gone."""

    node: NodeView | None
    lease_mark: str


def facts_between(told: Look | None, now: Look, *, asked: bool = False) -> list[Fact]:
    """``asked``: the Node also without a change."""
    if now.node is None:
        is_news = asked or told is None or told.node is not None
        return [outage_events.NodeDeleted()] if is_news else []
    node, before = now.node, told.node if told is not None else None
    facts: list[Fact] = []
    # A new boot id is reported first: a heartbeat alone would count for the boot before.
    if told is not None and before is not None and before.boot_id == node.boot_id:
        if now.lease_mark not in ("", told.lease_mark):
            facts.append(outage_events.HeartbeatSeen(mark=now.lease_mark))
        if node.status_mark not in ("", before.status_mark):
            facts.append(outage_events.HeartbeatSeen(mark=node.status_mark, source="status"))
    if asked or before != node:
        facts.append(
            outage_events.NodeRead(
                uid=node.uid,
                boot_id=node.boot_id,
                ready=node.ready,
                resource_version=node.version,
                system_uuid=node.system_uuid,
                provider_id=node.provider_id,
                taint=node.taint,
                volumes_in_use=node.volumes_in_use,
                lease_mark=now.lease_mark,
                status_mark=node.status_mark,
                taint_boot=node.taint_boot,
            )
        )
    if node.last_boot is not None and (before is None or before.last_boot != node.last_boot):
        facts.append(node.last_boot)
    return facts


def is_as_ordered(
    order: outage_events.SetTaint | outage_events.PowerOff, node: NodeView, lease_mark: str
) -> bool:
    """A mark that is gone is no sign of life."""
    if isinstance(order, outage_events.SetTaint):
        same = order.resource_version == node.version
    else:
        same = node.system_uuid in ("", order.system_uuid)
    said = (order.node_uid, order.boot_id, order.ready)
    return (
        same
        and said == (node.uid, node.boot_id, node.ready)
        and lease_mark in ("", order.lease_mark)
        and node.status_mark in ("", order.status_mark)
    )


def taint_patch(node: api.ApiNode, order: outage_events.SetTaint) -> api.JsonObject:
    added = api.rfc3339_now()
    taint = {
        "key": OUT_OF_SERVICE,
        "value": OUT_OF_SERVICE_VALUE,
        "effect": order.effect,
        "timeAdded": added,
    }
    note = msgspec.json.encode(OutageNote(order.key, order.effect, added, order.boot_id)).decode()
    meta = {"resourceVersion": order.resource_version, "annotations": {NOTE_ANNOTATION: note}}
    return {"metadata": meta, "spec": {"taints": [*node.spec.taints, taint]}}


def quarantine_patch(node: api.ApiNode) -> api.JsonObject | None:
    """None if it is set."""
    if any(_is_quarantine(taint) for taint in node.spec.taints):
        return None
    meta = {"resourceVersion": node.metadata.resource_version}
    return {"metadata": meta, "spec": {"taints": [*node.spec.taints, QUARANTINE]}}


def untaint_patch(node: api.ApiNode) -> api.JsonObject | None:
    """Remove all that is ours; None if nothing is."""
    note = read_note(node)
    left = [each for each in node.spec.taints if not (_is_quarantine(each) or is_our_taint(each, note))]
    if len(left) == len(node.spec.taints) and NOTE_ANNOTATION not in node.metadata.annotations:
        return None
    meta = {"resourceVersion": node.metadata.resource_version, "annotations": {NOTE_ANNOTATION: None}}
    return {"metadata": meta, "spec": {"taints": left or None}}


def _is_quarantine(taint: api.JsonObject) -> bool:
    return bool(taint.get("key") == QUARANTINE["key"])


class NodeEdge(Edge):
    """``heeded``: is a renewal of the lease alone worth a report? A healthy node renews six times a minute,
    and each fact is an object in the API server.
    """

    def __init__(
        self,
        caller: api.ApiCaller,
        view: ClusterView,
        node: str,
        node_uid: str,
        context: TraceContext = lambda key: "",
        heeded: Callable[[], bool] = lambda: True,
    ) -> None:
        self._view, self._context, self._heeded = view, context, heeded
        self._node, self._uid = node, node_uid
        self._writer = NodeWriter(caller, node, NOTE_ANNOTATION)
        self._told: Look | None = None
        self._gone = False
        self._missed: str | None = None
        self._telling = trio.Lock()
        self.effects: Mapping[type[Order], Effect] = {
            outage_events.ReadNode: self._read_node,
            outage_events.SetTaint: self._set_taint,
            outage_events.RemoveTaint: lambda order, outlet: self._change(order, outlet, untaint_patch),
            outage_events.SetQuarantine: lambda order, outlet: self._change(order, outlet, quarantine_patch),
        }

    async def run(self, outlet: Outlet) -> None:
        """The Node as it is now, and then its changes, until cancelled."""
        await self._view.listed()
        while True:
            observed = self._view.of(self._node)
            news = observed.news
            is_news = self._heeded() or self._told is None or self._look().node != self._told.node
            if is_news:
                await self._tell(outlet)
            mark = self._look().lease_mark
            silent_at = math.inf if self._gone or mark == self._missed else self._view.silent_at(self._node)
            with trio.move_on_at(silent_at):
                await news.wait()
                continue
            # The last renewal before the missed one.
            await self._tell(outlet)
            # After a delay both may come at once.
            now = trio.current_time()
            if self._look().lease_mark == mark and self._view.silent_at(self._node) <= now:
                silent_ns = int((now - self._view.heard_at(self._node)) * NS_PER_SECOND)
                self._missed = mark
                await outlet.put(outage_events.HeartbeatMissed(silent_ns=silent_ns, mark=mark))

    async def _tell(self, outlet: Outlet, *, asked: bool = False) -> None:
        # One at a time, since each report is a change against the one before.
        async with self._telling:
            now = self._look()
            facts = facts_between(self._told, now, asked=asked)
            self._told = now
            if facts:
                await outlet.put(*facts)

    def _look(self) -> Look:
        observed = self._view.of(self._node)
        self._gone = self._gone or observed.node is None or observed.node.uid != self._uid
        mark = observed.lease.mark if observed.lease is not None else ""
        return Look(None if self._gone else observed.node, mark)

    async def _holding(
        self,
        order: Order,
        seconds_max: float,
        work: Callable[[api.ApiCall], Awaitable[EndingT]],
        overtakes: tuple[str, ...] = (),
    ) -> EndingT | Ending:
        """Hold the Node for ``work``, which may raise Unanswered."""
        async with self._writer.hold(HOLD, overtakes) as hold:
            try:
                return await work(api.ApiCall(hold, seconds_max, self._context(order.key)))
            except api.Unanswered as error:
                return api.unanswered_ending(error)
        return Ending("cancelled", OVERTAKEN)

    async def _read_node(self, order: outage_events.ReadNode, outlet: Outlet) -> Ending:
        async def read(call: api.ApiCall) -> Ending:
            problem = ""
            if self._writer.in_doubt:
                with suppress(_AnotherNode):
                    problem = await self._writer.change(call, self._patch(lambda node: None))
            # A Node that is gone is an answer.
            problem = (await self._get(call))[1] or problem
            if problem and not self._gone:
                return Ending("failed", problem)
            await self._tell(outlet, asked=True)
            return Ending()

        return await self._holding(order, bounds.now.api_try_seconds, read)

    async def _get(self, call: api.ApiCall) -> tuple[api.ApiNode | None, str]:
        """Read the Node, then its lease, into the view; or why not. Raises Unanswered."""
        answer = await call.until_answered("GET", api.node_path(self._node))
        node, problem = self._take(answer)
        if node is None:
            return None, problem
        answer = await call.until_answered("GET", lease_path(self._node))
        if answer.code == api.HTTP_NOT_FOUND:
            return node, ""
        if not answer.ok:
            return None, f"the node's lease cannot be read: {api.answer_text(answer)}"
        try:
            self._view.leases.put(project_lease(msgspec.json.decode(answer.body, type=ApiLease)))
        except (ValueError, RecursionError) as error:
            return None, f"the node's lease cannot be read: {error}"
        return node, ""

    def _take(self, answer: api.Answer) -> tuple[api.ApiNode | None, str]:
        self._gone = self._gone or answer.code == api.HTTP_NOT_FOUND
        if not answer.ok:
            return None, f"the node cannot be read: {api.answer_text(answer)}"
        try:
            node = msgspec.json.decode(answer.body, type=api.ApiNode)
        except (ValueError, RecursionError) as error:
            return None, f"the node cannot be read: {error}"
        self._view.nodes.put(project_node(node))
        self._gone = self._gone or node.metadata.uid != self._uid
        return node, ""

    async def as_ordered(self, order: outage_events.PowerOff, outlet: Outlet) -> Ending | None:
        """Read Node and lease again and report them; None: they are as when the power-off was decided."""

        async def compare(call: api.ApiCall) -> Ending | None:
            node, problem = await self._get(call)
            await self._tell_if_known(outlet)
            if node is None:
                return Ending("failed", problem)
            silent_ns = (trio.current_time() - self._view.heard_at(self._node)) * NS_PER_SECOND
            silent = silent_ns >= order.silent_ns or not order.silent_ns
            same = silent and is_as_ordered(order, project_node(node), self._look().lease_mark)
            return None if same else Ending("failed", outage_events.CHANGED)

        return await self._holding(order, bounds.now.api_try_seconds, compare)

    async def _set_taint(self, order: outage_events.SetTaint, outlet: Outlet) -> Ending:
        async def compare_and_swap(call: api.ApiCall) -> Ending:
            again = api.AGAIN_SECONDS
            while True:
                node, problem = await self._get(call)
                await self._tell_if_known(outlet)
                if node is None:
                    return Ending("failed", problem)
                now = project_node(node)
                # An earlier try of this order whose answer was lost.
                if now.taint == "ours" and read_note(node).order == order.key:
                    return Ending()
                if not is_as_ordered(order, now, self._look().lease_mark):
                    return Ending("failed", outage_events.CHANGED)
                # One try: before the next both are read again.
                with suppress(api.Unanswered):
                    answer = await call.once(
                        "PATCH", api.node_path(self._node), taint_patch(node, order), api.MERGE_PATCH
                    )
                    if answer.ok:
                        self._take(answer)
                        await self._tell(outlet)
                        return Ending()
                    if answer.code not in (api.HTTP_CONFLICT, api.HTTP_TOO_MANY) and answer.code < 500:
                        return Ending("failed", f"the node cannot be changed: {api.answer_text(answer)}")
                await trio.sleep(min(again, call.left_seconds))
                again = min(again * 2, api.AGAIN_SECONDS_MAX)

        return await self._holding(order, bounds.now.api_unhurried_seconds, compare_and_swap, (HOLD,))

    async def _change(
        self,
        order: outage_events.RemoveTaint | outage_events.SetQuarantine,
        outlet: Outlet,
        change: Callable[[api.ApiNode], api.JsonObject | None],
    ) -> Ending:
        """Depends only on the Node's identity."""

        async def write(call: api.ApiCall) -> Ending:
            try:
                problem = await self._writer.change(call, self._patch(change))
            except _AnotherNode:
                problem = ANOTHER_NODE
            with suppress(api.Unanswered):
                await self._get(call)
            await self._tell_if_known(outlet)
            return Ending("failed", problem) if problem else Ending()

        return await self._holding(order, bounds.now.api_unhurried_seconds, write, (HOLD,))

    def _patch(self, change: Callable[[api.ApiNode], api.JsonObject | None]) -> NodePatch:
        """Raises _AnotherNode."""

        def of_this_node(node: api.ApiNode) -> api.JsonObject | None:
            if node.metadata.uid != self._uid:
                raise _AnotherNode
            return change(node)

        return NodePatch(of_this_node)

    async def _tell_if_known(self, outlet: Outlet) -> None:
        """Report what an order has found, before its outcome."""
        if self._gone or self._view.of(self._node).node is not None:
            await self._tell(outlet)

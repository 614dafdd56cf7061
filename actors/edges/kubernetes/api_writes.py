"""The edge once it is awake: the connection, the warm watch, the cache behind it, and the writers behind the
orders.

Imported by `actors.edges.kubernetes.api_edge` when the node is armed, with the client and all that it brings.

What a shutdown writes to the API server: deletes, statuses, Events, and what others see of the node. Each
writer is bounded and repeatable, and ends in words: none raises, so a server that is slow, angry or gone
costs a reason and no more. None decides: what is written where follows from the order and from what is
there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import trio

from ebbtide.actors.edges.kubernetes.api_calls import (
    HTTP_CONFLICT,
    ApiCall,
    ApiCaller,
    JsonObject,
    Unanswered,
    answer_ending,
    rfc3339_now,
    unanswered_ending,
)
from ebbtide.actors.edges.kubernetes.api_client import ApiClient
from ebbtide.actors.edges.kubernetes.api_watch import ApiHealth, HeardCaller, PodWatch
from ebbtide.actors.edges.kubernetes.known_pods import (
    PodCache,
    PodLookup,
    PodStore,
)
from ebbtide.actors.edges.kubernetes.node_writes import (
    DetachCertificates,
    JournalLink,
    LastBootNotes,
    NodeAnnouncements,
    NodeWriter,
    no_link,
)
from ebbtide.actors.edges.kubernetes.pod_writes import (
    LateStatuses,
    PodDeletes,
    PodWithdrawals,
    StatusDelivery,
    StatusWait,
)
from ebbtide.actors.interfaces import Effect, Ending, Outlet, Tell, TraceContext
from ebbtide.events import bounds
from ebbtide.events.base import Order
from ebbtide.events.decisions import (
    AnnounceNode,
    AwaitStatuses,
    DeletePod,
    DeliverStatuses,
    PostEvent,
    PublishCertificate,
    PublishLastBoot,
    WithdrawPods,
)


class Runtime:
    """Lives as long as `run`. ``kubeconfig`` None: as the pod that we run in."""

    def __init__(
        self,
        kubeconfig: Path | None,
        node: str,
        store: PodStore,
        cache: PodCache,
        context: TraceContext,
        tell: Tell,
        link: JournalLink = no_link,
    ) -> None:
        self._node, self._store, self._cache = node, store, cache
        self._link = ApiClient(kubeconfig, tell)
        self._heard = HeardCaller(self._link)
        self._writes = Writes(self._heard, store, node, context, tell, cache.folder, link)

    async def run(self, outlet: Outlet, task_status: trio.TaskStatus[None]) -> None:
        """Until cancelled; calls under way are given up. Raises ClientMissing, and whatever is a bug here."""
        async with trio.open_nursery() as nursery:
            # Connected before anything asks: the watch would else begin with a failure, and a pause.
            await nursery.start(self._link.run)
            self._heard.health = health = ApiHealth(self._link, self._node, outlet)
            nursery.start_soon(health.follow)
            nursery.start_soon(PodWatch(self._link, self._node, self._store, health).run)
            nursery.start_soon(self._cache.follow, self._store)
            task_status.started()

    async def carry_out(self, order: Order, outlet: Outlet) -> Ending:
        """One order. It waits for the API server as long as it is willing to."""
        ending = self._writes.effects[type(order)](order, outlet)
        return ending if isinstance(ending, Ending) else await ending


class Writes:
    """``context`` gives the ``traceparent`` of an order's key, or nothing; ``tell`` takes a line for the
    operator with its sd-daemon(3) level. ``node`` is the name of the Node object; ``folder`` outlives a
    reboot, None: no status is delivered later than in its shutdown. ``link``: of the node's own journal.
    """

    def __init__(
        self,
        caller: ApiCaller,
        lookup: PodLookup,
        node: str,
        context: TraceContext = lambda key: "",
        tell: Tell = lambda level, line: None,
        folder: Path | None = None,
        link: JournalLink = no_link,
    ) -> None:
        # One writer for all that is written to the Node: announcement and certificate overtake each other by
        # rule, not by accident.
        ours = NodeWriter(caller, node)
        announcements = NodeAnnouncements(ours, context, tell)
        statuses = StatusDelivery(caller, lookup, node, context, LateStatuses(folder, tell))
        self.effects: Mapping[type[Order], Effect] = {
            AnnounceNode: announcements.announce,
            AwaitStatuses: StatusWait(caller, lookup, node, context).wait,
            DeletePod: PodDeletes(caller, lookup, context, announcements.wait_tainted).delete,
            DeliverStatuses: statuses.deliver,
            PostEvent: EventWriter(caller, node, context).post,
            PublishCertificate: DetachCertificates(ours, context).publish,
            PublishLastBoot: LastBootNotes(ours, context, tell, link).publish,
            WithdrawPods: PodWithdrawals(caller, lookup, node, context, statuses.final).withdraw,
        }

    async def adopt(self, order: Order, outlet: Outlet) -> Ending | None:
        """Whatever was open is said again: preconditions, names and notes make each of these orders
        repeatable. None for an order that is not ours.
        """
        effect: Any = self.effects.get(type(order))
        return None if effect is None else await effect(order, outlet)


# --- Kubernetes Events -------------------------------------------------------------------------

# What happened here, each once: an Event's name is made from its order. A second try, by this daemon or by
# the one after a crash, is a conflict, and a conflict is success. Order keys are the same on every node, so
# the node and the shutdown's trace are in the name as well.

EVENT_COMPONENT = "ebbtide"
TRACE_ID_ANNOTATION = "ebbtide.dev/trace-id"
NODE_NAMESPACE = "default"
#: An object's name has 253 characters at most; a message what events.k8s.io allows a note.
SUBJECT_CHARACTERS_MAX = 200
MESSAGE_BYTES_MAX = 1024
DIGEST_CHARACTERS = 16
API_VERSIONS = {
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "DaemonSet": "apps/v1",
    "ReplicaSet": "apps/v1",
    "Job": "batch/v1",
}
#: Position of the trace id among a traceparent's parts (W3C Trace Context).
TRACE_PART, TRACE_PARTS = 1, 4


class EventWriter:
    def __init__(self, caller: ApiCaller, node: str, context: TraceContext) -> None:
        self._caller, self._node, self._context = caller, node, context

    async def post(self, order: PostEvent, outlet: Outlet) -> Ending:
        traceparent = self._context(order.key)
        call = ApiCall(self._caller, bounds.now.api_unhurried_seconds, traceparent)
        event = event_object(order, self._node, trace_id_of(traceparent))
        try:
            answer = await call.until_answered(
                "POST", f"/api/v1/namespaces/{event['metadata']['namespace']}/events", event
            )
        except Unanswered as error:
            return unanswered_ending(error)
        # The name is made of the order's key, so a conflict is this very Event, which an earlier try has
        # made.
        return Ending() if answer.code == HTTP_CONFLICT else answer_ending(answer)


def trace_id_of(traceparent: str) -> str:
    parts = traceparent.split("-")
    return parts[TRACE_PART] if len(parts) == TRACE_PARTS else ""


def event_object(order: PostEvent, node: str, trace: str) -> JsonObject:
    """A core/v1 Event as a kubelet makes one. Without a namespace it is on this Node, whose name stands for
    its UID.
    """
    on_node = not order.namespace
    subject = order.name or node
    about: JsonObject = {
        "kind": order.kind,
        "name": subject,
        "apiVersion": API_VERSIONS.get(order.kind, "v1"),
        **({"uid": subject} if on_node else {"namespace": order.namespace}),
    }
    seen = rfc3339_now()
    # The trace is kept whole, whatever is cut.
    mark = f" (trace {trace})" if trace else ""
    room = MESSAGE_BYTES_MAX - len(mark)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": event_name(order, node, trace),
            "namespace": order.namespace or NODE_NAMESPACE,
            **({"annotations": {TRACE_ID_ANNOTATION: trace}} if trace else {}),
        },
        "involvedObject": about,
        "reason": order.reason,
        "message": (order.message.encode()[:room].decode(errors="ignore") + mark),
        "type": "Warning" if order.warning else "Normal",
        "source": {"component": EVENT_COMPONENT, "host": node},
        "reportingComponent": EVENT_COMPONENT,
        "reportingInstance": node,
        "firstTimestamp": seen,
        "lastTimestamp": seen,
        "count": 1,
    }


def event_name(order: PostEvent, node: str, trace: str) -> str:
    """``<subject>.<digest>``: a DNS subdomain wherever the subject's name is one."""
    digest = hashlib.sha256("\0".join((node, trace, order.key)).encode()).hexdigest()[:DIGEST_CHARACTERS]
    subject = (order.name or node).lower()[:SUBJECT_CHARACTERS_MAX].rstrip("-.")
    return f"{subject}.{digest}"

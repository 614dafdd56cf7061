"""The awake Kubernetes edge: the connection, the watch, the cache, and the writers.

Each writer is bounded and repeatable. It does not raise: for a slow or missing server it returns a reason.
The order and the objects determine what it writes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import trio

from ebbtide.actors.edges.kubernetes import api_calls as api
from ebbtide.actors.edges.kubernetes.api_client import ApiClient
from ebbtide.actors.edges.kubernetes.api_watch import ApiHealth, Watch, pods_of
from ebbtide.actors.edges.kubernetes.known_pods import (
    PodCache,
    PodStore,
)
from ebbtide.actors.edges.kubernetes.node_writes import JournalLink, NodeEffects, NodeWriter, no_link
from ebbtide.actors.edges.kubernetes.pod_writes import (
    LateStatuses,
    PodDeletes,
    StatusDelivery,
    await_statuses,
    withdraw,
)
from ebbtide.actors.interfaces import Effect, Ending, Outlet, Tell, TraceContext
from ebbtide.events import bounds
from ebbtide.events import decisions as d
from ebbtide.events.base import Order


async def connect(
    kubeconfig: Path | None,
    node: str,
    store: PodStore,
    cache: PodCache,
    context: TraceContext,
    tell: Tell,
    link: JournalLink,
    outlet: Outlet,
    task_status: trio.TaskStatus[Writes],
) -> None:
    """Until cancelled. ``kubeconfig`` None: the pod's own access. Raises ClientMissing, and any bug."""
    client = ApiClient(kubeconfig, tell)
    health = ApiHealth(client, node, outlet, store)
    async with trio.open_nursery() as nursery:
        # Before the watch, which would begin with a failure and a pause.
        await nursery.start(client.run)
        nursery.start_soon(health.follow)
        nursery.start_soon(Watch(client, pods_of(node), store, health).run)
        nursery.start_soon(cache.follow, store)
        task_status.started(Writes(health, store, node, context, tell, cache.folder, link))


class Writes:
    """``context``: the ``traceparent`` of an order's key. ``folder`` outlives a reboot; None: no status is
    delivered after one.
    """

    def __init__(
        self,
        caller: api.ApiCaller,
        lookup: PodStore,
        node: str,
        context: TraceContext = lambda key: "",
        tell: Tell = lambda level, line: None,
        folder: Path | None = None,
        link: JournalLink = no_link,
    ) -> None:
        # One writer for the Node, so that announcement and certificate overtake each other by rule.
        ours = NodeWriter(caller, node)
        on_node = NodeEffects(ours, context, tell, link)
        parts = api.WriteParts(caller, lookup, node, context)
        statuses = StatusDelivery(parts, LateStatuses(folder, tell))
        self.effects: Mapping[type[Order], Effect] = {
            d.AnnounceNode: on_node.announce,
            d.AwaitStatuses: partial(await_statuses, parts),
            d.DeletePod: PodDeletes(parts, on_node.wait_tainted).delete,
            d.DeliverStatuses: statuses.deliver,
            d.PostEvent: partial(post_event, parts),
            d.PublishCertificate: on_node.publish_certificate,
            d.PublishLastBoot: on_node.publish_last_boot,
            d.WithdrawPods: partial(withdraw, parts, statuses.final),
        }


# An Event's name is made from its order's key, so a second try, also after a crash, is a conflict. Order keys
# are the same on every node, so the name includes node and trace.

EVENT_COMPONENT = "ebbtide"
TRACE_ID_ANNOTATION = "ebbtide.dev/trace-id"
NODE_NAMESPACE = "default"
#: An object's name has at most 253 characters. The message is as long as a note of events.k8s.io.
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
#: The trace id's place in a traceparent (W3C Trace Context).
TRACE_PART, TRACE_PARTS = 1, 4


async def post_event(parts: api.WriteParts, order: d.PostEvent, outlet: Outlet) -> Ending:
    call = parts.call(order.key, bounds.now.api_unhurried_seconds)
    event = event_object(order, parts.node, trace_id_of(parts.context(order.key)))
    try:
        answer = await call.until_answered(
            "POST", f"/api/v1/namespaces/{event['metadata']['namespace']}/events", event
        )
    except api.Unanswered as error:
        return api.unanswered_ending(error)
    return Ending() if answer.code == api.HTTP_CONFLICT else api.answer_ending(answer)


def trace_id_of(traceparent: str) -> str:
    parts = traceparent.split("-")
    return parts[TRACE_PART] if len(parts) == TRACE_PARTS else ""


def event_object(order: d.PostEvent, node: str, trace: str) -> api.JsonObject:
    """A core/v1 Event as a kubelet makes one. Without a namespace it is about the Node."""
    on_node = not order.namespace
    subject = order.name or node
    about: api.JsonObject = {
        "kind": order.kind,
        "name": subject,
        "apiVersion": API_VERSIONS.get(order.kind, "v1"),
        **({"uid": subject} if on_node else {"namespace": order.namespace}),
    }
    seen = api.rfc3339_now()
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


def event_name(order: d.PostEvent, node: str, trace: str) -> str:
    """``<subject>.<digest>``: a DNS subdomain if the subject's name is one."""
    digest = hashlib.sha256("\0".join((node, trace, order.key)).encode()).hexdigest()[:DIGEST_CHARACTERS]
    subject = (order.name or node).lower()[:SUBJECT_CHARACTERS_MAX].rstrip("-.")
    return f"{subject}.{digest}"

"""Kubernetes Events of what happened here, each once: its name is made from its order.

A second try, by this daemon or by the one after a crash, is a conflict, and a conflict is success. Order
keys are the same on every node, so the node and the shutdown's trace are in the name as well.
"""

from __future__ import annotations

import hashlib

from ebbtide.actors.edges.kubernetes.calls import (
    HTTP_CONFLICT,
    ApiCall,
    ApiCaller,
    JsonObject,
    Unanswered,
    answer_ending,
    rfc3339_now,
    unanswered_ending,
)
from ebbtide.actors.interfaces import Ending, Outlet, TraceContext
from ebbtide.events.decisions import PostEvent

#: Nobody waits for an Event.
EVENT_SECONDS_MAX = 10.0
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
        call = ApiCall(self._caller, EVENT_SECONDS_MAX, traceparent)
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

"""Kubernetes Events of what happened here, each once: its name is made from its order.

A second try, by this daemon or by the one after a crash, is a conflict, and a conflict is success. Order keys
are the same on every node, so the node and the shutdown's trace are in the name as well.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from actors.edges.kubernetes.calling import Caller, Unanswered
from actors.edges.kubernetes.writes.insisting import CONFLICT, Call, ending, silence
from actors.edges.kubernetes.writes.shapes import Object, now
from actors.interfaces import Ending, Outlet
from events.decisions import PostEvent

#: Nobody waits for an Event.
EVENT_SECONDS_MAX = 10.0
SOURCE = "ebbtide"
TRACE_ID = "ebbtide.dev/trace-id"
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


class Reports:
    def __init__(self, caller: Caller, node: str, context: Callable[[str], str]) -> None:
        self._caller, self._node, self._context = caller, node, context

    async def post(self, order: PostEvent, outlet: Outlet) -> Ending:
        traceparent = self._context(order.key)
        call = Call(self._caller, EVENT_SECONDS_MAX, traceparent)
        event = event_of(order, self._node, trace_id(traceparent))
        try:
            answer = await call.insist(
                "POST", f"/api/v1/namespaces/{event['metadata']['namespace']}/events", event
            )
        except Unanswered as error:
            return silence(error)
        return Ending() if answer.code == CONFLICT else ending(answer)


def trace_id(traceparent: str) -> str:
    parts = traceparent.split("-")
    return parts[TRACE_PART] if len(parts) == TRACE_PARTS else ""


def event_of(order: PostEvent, node: str, trace: str) -> Object:
    """A core/v1 Event as a kubelet makes one. Without a namespace it is on this Node, whose name stands for
    its UID.
    """
    on_node = not order.namespace
    subject = order.name or node
    about: Object = {
        "kind": order.kind,
        "name": subject,
        "apiVersion": API_VERSIONS.get(order.kind, "v1"),
        **({"uid": subject} if on_node else {"namespace": order.namespace}),
    }
    seen = now()
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": event_name(order, node, trace),
            "namespace": order.namespace or NODE_NAMESPACE,
            **({"annotations": {TRACE_ID: trace}} if trace else {}),
        },
        "involvedObject": about,
        "reason": order.reason,
        "message": _message(order.message, trace),
        "type": "Warning" if order.warning else "Normal",
        "source": {"component": SOURCE, "host": node},
        "reportingComponent": SOURCE,
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


def _message(text: str, trace: str) -> str:
    """The trace is kept whole, whatever is cut."""
    mark = f" (trace {trace})" if trace else ""
    room = MESSAGE_BYTES_MAX - len(mark)
    return text.encode()[:room].decode(errors="ignore") + mark

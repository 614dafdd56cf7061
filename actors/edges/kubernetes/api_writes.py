"""The connection to the API server, and the writes to Pods and Events (`node_writes`: to the Node).

Each writer is bounded and repeatable. Without an answer it returns a reason.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import trio

from ebbtide.actors.edges.kubernetes import api_calls as api
from ebbtide.actors.edges.kubernetes import known_pods
from ebbtide.actors.edges.kubernetes.api_client import ApiClient
from ebbtide.actors.edges.kubernetes.api_watch import ApiHealth, Watch, pods_of
from ebbtide.actors.edges.kubernetes.node_writes import JournalLink, NodeEffects, NodeWriter, no_link
from ebbtide.actors.interfaces import WARNING, Edge, Effect, Ending, Outlet, Tell, TraceContext
from ebbtide.events import bounds
from ebbtide.events import decisions as d
from ebbtide.events.base import NS_PER_SECOND, Order
from ebbtide.events.decisions import AwaitStatuses, DeletePod, DeliverStatuses, WithdrawPods
from ebbtide.events.facts import StatusesSeen
from ebbtide.events.files import read_own, write_atomically
from ebbtide.events.kinds import ExitCode, PodStatus
from ebbtide.events.outage_events import PostOutageEvent
from ebbtide.events.units import span_s


async def connect(
    kubeconfig: Path | None,
    node: str,
    store: known_pods.PodStore,
    cache: known_pods.PodCache,
    context: TraceContext,
    tell: Tell,
    link: JournalLink,
    outlet: Outlet,
    task_status: trio.TaskStatus[Writes],
) -> None:
    """``kubeconfig`` None: the pod's own access. Raises ClientMissing."""
    client = ApiClient(kubeconfig, tell)
    health = ApiHealth(client, node, outlet, store)
    async with trio.open_nursery() as nursery:
        # Without it the watch would begin with a failure and a pause.
        await nursery.start(client.run)
        nursery.start_soon(health.follow)
        nursery.start_soon(Watch(client, pods_of(node), store, health).run)
        nursery.start_soon(cache.follow, store)
        task_status.started(Writes(health, store, node, context, tell, cache.folder, link))


class Writes:
    """``folder`` outlives a reboot; None: no status is delivered after one."""

    def __init__(
        self,
        caller: api.ApiCaller,
        lookup: known_pods.PodStore,
        node: str,
        context: TraceContext = lambda key: "",
        tell: Tell = lambda level, line: None,
        folder: Path | None = None,
        link: JournalLink = no_link,
    ) -> None:
        # One writer: announcement and certificate overtake each other.
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
    return await post(call, event_object(order, parts.node, trace_id_of(parts.context(order.key))))


async def post(
    call: api.ApiCall, event: api.JsonObject, again_seconds_max: float = api.AGAIN_SECONDS_MAX
) -> Ending:
    """A conflict is an earlier try, or another leader's."""
    try:
        answer = await call.until_answered(
            "POST",
            f"/api/v1/namespaces/{event['metadata']['namespace']}/events",
            event,
            again_seconds_max=again_seconds_max,
        )
    except api.Unanswered as error:
        return api.unanswered_ending(error)
    return Ending() if answer.code == api.HTTP_CONFLICT else api.answer_ending(answer)


def trace_id_of(traceparent: str) -> str:
    parts = traceparent.split("-")
    return parts[TRACE_PART] if len(parts) == TRACE_PARTS else ""


def event_object(
    order: d.PostEvent, node: str, trace: str, component: str = EVENT_COMPONENT, instance: str = ""
) -> api.JsonObject:
    """Without a namespace it is about the Node. ``instance``: the reporter's; else the node."""
    instance = instance or node
    on_node = not order.namespace
    subject = order.name or node
    about: api.JsonObject = {
        "kind": order.kind,
        "name": subject,
        "apiVersion": API_VERSIONS.get(order.kind, "v1"),
        **({"uid": subject} if on_node else {"namespace": order.namespace}),
        **({"uid": order.uid} if order.uid else {}),
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
        "source": {"component": component, "host": instance},
        "reportingComponent": component,
        "reportingInstance": instance,
        "firstTimestamp": seen,
        "lastTimestamp": seen,
        "count": 1,
    }


def event_name(order: d.PostEvent, node: str, trace: str) -> str:
    """A second try, also after a crash, is a conflict. Keys are the same on every node: the digest also has
    node and trace.
    """
    digest = hashlib.sha256("\0".join((node, trace, order.key)).encode()).hexdigest()[:DIGEST_CHARACTERS]
    subject = (order.name or node).lower()[:SUBJECT_CHARACTERS_MAX].rstrip("-.")
    return f"{subject}.{digest}"


OUTAGE_COMPONENT = "ebbtide-outage"
#: A rack's pods have a thousand Events, which go last.
OUTAGE_EVENT_SECONDS = 120.0
#: A server that refuses one refuses all: do not repeat a thousand twice a second.
OUTAGE_EVENT_AGAIN_SECONDS = 20.0


class OutageEventsEdge(Edge):
    def __init__(self, caller: api.ApiCaller, node: str, replica: str, trace: Callable[[], str]) -> None:
        self._caller, self._node, self._replica, self._trace = caller, node, replica, trace
        self.effects: Mapping[type[Order], Effect] = {PostOutageEvent: self._post}

    async def _post(self, order: PostOutageEvent, outlet: Outlet) -> Ending:
        event = event_object(order, self._node, self._trace(), OUTAGE_COMPONENT, self._replica)
        call = api.ApiCall(self._caller, OUTAGE_EVENT_SECONDS, "")
        return await post(call, event, OUTAGE_EVENT_AGAIN_SECONDS)

    async def adopt(self, order: Order, outlet: Outlet) -> Ending | None:
        """A repeat is a conflict."""
        return await self._post(order, outlet) if isinstance(order, PostOutageEvent) else None


MARK_SHARE = 3
#: A delete with less time may stay unanswered: then its pod gets no hooks.
TURN_SECONDS_MIN = 0.05
#: With less the object would go before its containers.
GRACE_SECONDS_MIN = 1


class PodDeletes:
    """``tainted`` returns when the node is tainted, cannot be, or its time is over.

    The UID is a precondition: a new pod may have the same name. ``DisruptionTarget`` comes first, so that a
    Job does not count the pod as failed. The result decides about the pod's hooks. ``done``: the pod is gone,
    or the kubelet ends it. ``failed``: refused, or never sent. ``timed-out``: the server may have taken it.
    """

    def __init__(self, parts: api.WriteParts, tainted: Callable[[], Awaitable[None]]) -> None:
        self._parts, self._lookup = parts, parts.lookup
        self._tainted = tainted
        self._slots, self._open = api.CallSlots(), 0
        #: By the API's UID.
        self._marked: set[str] = set()
        #: For these the watch cannot show whether a later delete was taken.
        self._taken: set[str] = set()

    async def delete(self, order: DeletePod, outlet: Outlet) -> Ending:
        began = trio.current_time()
        if not self._open:
            self._slots = api.CallSlots()
        self._open += 1
        try:
            ended = await self._delete_in_turn(order, began)
        finally:
            self._open -= 1
        known = self._lookup.find(order.uid)
        uid = known.api_uid if known is not None else order.uid
        # The watch may show that an unanswered delete was taken.
        if ended.result != "done" and uid not in self._taken and known is not None and known.deleting:
            ended = Ending()
        if ended.result == "done":
            self._taken.add(uid)
        return ended

    async def _delete_in_turn(self, order: DeletePod, began: float) -> Ending:
        until = began + bounds.now.delete_seconds
        with trio.move_on_at(until - TURN_SECONDS_MIN) as waiting:
            if order.after_taint:
                await self._tainted()
            async with self._slots.one():
                waiting.deadline = float("inf")
                known = self._lookup.find(order.uid)
                uid = known.api_uid if known is not None else order.uid
                # In the same turn: another turn would delay the delete.
                if await self._mark(order, uid, self._call(order, until)):
                    return Ending()
                call = self._call(order, until)
                try:
                    # The kubelet counts whole seconds.
                    left_seconds = order.grace_seconds - round(trio.current_time() - began)
                    body = api.delete_options(uid, max(GRACE_SECONDS_MIN, left_seconds))
                    answer = await call.until_answered(
                        "DELETE", api.pod_path(order.namespace, order.name), body
                    )
                except api.Unanswered as error:
                    return (
                        api.unanswered_ending(error)
                        if call.in_doubt
                        else Ending("failed", f"not sent: {error}")
                    )
                if api.is_gone(answer):
                    return Ending()
                if not answer.ok and call.in_doubt:
                    return Ending("timed-out", f"the API server may have taken it: {api.answer_text(answer)}")
                return api.answer_ending(answer)
        return Ending("failed", f"not sent: no turn in {span_s(bounds.now.delete_seconds)}")

    def _call(self, order: DeletePod, until: float) -> api.ApiCall:
        return self._parts.call(order.key, until - trio.current_time())

    async def _mark(self, order: DeletePod, uid: str, call: api.ApiCall) -> bool:
        """Is the pod gone already?"""
        if uid in self._marked:
            return False
        body = {"metadata": {"uid": uid}, "status": {"conditions": [api.disruption_target([])]}}
        path = f"{api.pod_path(order.namespace, order.name)}/status"
        seconds = min(bounds.now.mark_seconds, call.left_seconds / MARK_SHARE)
        asked = trio.current_time()
        try:
            answer = await call.once("PATCH", path, body, api.STRATEGIC_PATCH, seconds)
        except api.Unanswered:
            return False
        if trio.current_time() - asked > bounds.now.slow_answer_seconds:
            self._slots.widen()
        if answer.ok:
            self._marked.add(uid)
        return api.is_gone(answer)


WITHDRAWN_CONDITIONS = ("Ready", "ContainersReady")
WITHDRAWN_REASON, WITHDRAWN_MESSAGE = "NodeShutdown", "node is shutting down"


async def withdraw(
    parts: api.WriteParts, final: Container[str], order: WithdrawPods, outlet: Outlet
) -> Ending:
    """With the kubelet stopped, only Ready=False ends new connections to the pods. ``final``: API UIDs of
    pods with a final status, written or under way.
    """
    try:
        call = parts.call(order.key, bounds.now.withdraw_seconds)
        found = await api.find_pods(parts.lookup, order.uids, call, parts.node)
    except (api.Unanswered, api.ListDenied) as error:
        return Ending("failed", str(error))

    async def one(pod: known_pods.KnownPod) -> str:
        if pod.api_uid in final or pod.phase in known_pods.FINAL_PHASES:
            return ""
        conditions = [
            api.make_condition([], kind, "False", WITHDRAWN_REASON, WITHDRAWN_MESSAGE)
            for kind in WITHDRAWN_CONDITIONS
        ]
        body = {"metadata": {"uid": pod.api_uid}, "status": {"conditions": conditions}}
        path = f"{api.pod_path(pod.namespace, pod.name)}/status"
        try:
            answer = await parts.call(order.key, bounds.now.withdraw_seconds).until_answered(
                "PATCH", path, body, api.STRATEGIC_PATCH
            )
        except api.Unanswered as error:
            return str(error)
        return "" if answer.ok or api.is_gone(answer) else api.answer_text(answer)

    problems = [each for each in await api.for_each(filter(None, found.values()), one) if each]
    if problems:
        return Ending("failed", f"{len(problems)} of {len(order.uids)} not withdrawn: {problems[0]}")
    return Ending()


#: Later than this the cluster has helped itself.
LATER_SECONDS_MAX = 600.0
LATER_AGAIN_SECONDS = 5.0
#: Between two reports of a slow delivery.
PROGRESS_SECONDS = 0.25
CONFLICTS_MAX = 5
#: For as many pods, one list costs the server less than single reads.
LIST_FROM = 4
NAMED_PODS_MAX = 5

DELIVERED, STALE, FAILED = "delivered", "stale", "failed"


class DeliveryResult(NamedTuple):
    what: str
    why: str = ""


class StatusRefused(Exception):
    """The server refused."""


class StatusDelivery:
    """Without a final status a pod looks Running while its node is away (kubernetes#109531,
    kubernetes#110755). A pod that has started again must never get one. ``final``: API UIDs of pods whose
    delivery has begun.
    """

    def __init__(self, parts: api.WriteParts, late: LateStatuses) -> None:
        self._parts, self._lookup, self._node = parts, parts.lookup, parts.node
        self._late = late
        self.final: set[str] = set()

    async def deliver(self, order: DeliverStatuses, outlet: Outlet) -> Ending:
        """In a shutdown once; a status of an earlier boot until it is taken or stale."""
        missing = dict.fromkeys(each[0] for each in order.statuses)
        if not order.unchanged_only:
            # For the next boot, in case this fails.
            async with trio.open_nursery() as nursery:
                uids = [*missing]
                nursery.start_soon(self._late.keep, uids, self._lookup.find)
                async with trio.open_nursery() as meanwhile:
                    meanwhile.start_soon(_report_progress, order, missing, outlet)
                    delivered = await self._deliver(order, missing)
                    meanwhile.cancel_scope.cancel()
                if delivered.result == "done":
                    nursery.cancel_scope.cancel()
                    self._late.forget(uids)
            if missing and len(missing) < len(order.statuses):
                await outlet.put(StatusesSeen(key=order.key, missing=tuple(missing)))
            return delivered
        until = trio.current_time() + LATER_SECONDS_MAX
        while True:
            ended = await self._deliver(order, missing)
            if ended.result != "failed" or trio.current_time() + LATER_AGAIN_SECONDS > until:
                return ended
            await trio.sleep(LATER_AGAIN_SECONDS)

    async def _deliver(self, order: DeliverStatuses, missing: dict[str, None]) -> Ending:
        """Takes delivered pods out of ``missing``."""
        until = trio.current_time() + bounds.now.statuses_seconds
        call = self._call(order)
        try:
            found = await api.find_pods(self._lookup, [each[0] for each in order.statuses], call, self._node)
        except (api.Unanswered, api.ListDenied) as error:
            return Ending("failed", f"0 of {len(order.statuses)} delivered: {error}")

        # Before the first write: a later withdrawal would overwrite the final status.
        begun = set() if order.unchanged_only else {pod.api_uid for pod in found.values() if pod is not None}
        self.final |= begun
        # By the API's UID.
        read: dict[str, api.ApiPod] = {}
        if len(order.statuses) >= LIST_FROM:
            with suppress(api.Unanswered, api.ListDenied):
                read = {
                    pod.metadata.uid: pod for pod in await api.list_pod_objects(self._call(order), self._node)
                }
        then = await self._late.known() if order.unchanged_only else {}

        async def one(status: PodStatus) -> DeliveryResult:
            known = found[status[0]]
            ahead = read.get(known.api_uid) if known is not None else None
            before = then.get(status[0])
            call = self._call(order, until - trio.current_time())
            if known is None:
                missing.pop(status[0], None)
                return DeliveryResult(DELIVERED, "gone")
            label = f"{known.namespace}/{known.name}"
            try:
                result = await _write_status(order, status, known, before, call, ahead)
                if result.what == DELIVERED and order.remove and not known.static:
                    # Its containers have ended.
                    body = api.delete_options(known.api_uid, 0)
                    answer = await call.until_answered(
                        "DELETE", api.pod_path(known.namespace, known.name), body
                    )
                    if not answer.ok and not api.is_gone(answer):
                        raise StatusRefused(f"not removed: {api.answer_text(answer)}")
            except (api.Unanswered, StatusRefused) as error:
                return DeliveryResult(FAILED, f"{label}: {error}")
            if result.what == DELIVERED:
                missing.pop(status[0], None)
            return DeliveryResult(result.what, f"{label} {result.why}")

        results = await api.for_each(order.statuses, one)
        count = Counter(result.what for result in results)
        if not count[FAILED] and not count[STALE]:
            return Ending()

        def named(what: str) -> str:
            return "; ".join([each.why for each in results if each.what == what][:NAMED_PODS_MAX])

        self.final -= begun
        if count[FAILED]:
            return Ending("failed", f"{count[FAILED]} of {len(results)} not delivered: {named(FAILED)}")
        return Ending("cancelled", f"stale: {count[STALE]} of {len(results)}: {named(STALE)}")

    def _call(self, order: DeliverStatuses, left_seconds: float = math.inf) -> api.ApiCall:
        seconds = min(bounds.now.status_seconds, left_seconds)
        return self._parts.call(order.key, seconds)


async def _report_progress(order: DeliverStatuses, missing: Collection[str], outlet: Outlet) -> None:
    """For a release before the end of a slow delivery."""
    told = len(missing)
    while True:
        await trio.sleep(PROGRESS_SECONDS)
        if told != len(missing):
            told = len(missing)
            await outlet.put(StatusesSeen(key=order.key, missing=tuple(missing)))


async def _write_status(
    order: DeliverStatuses,
    status: PodStatus,
    known: known_pods.KnownPod,
    then: str | None,
    call: api.ApiCall,
    pod: api.ApiPod | None,
) -> DeliveryResult:
    path = api.pod_path(known.namespace, known.name)
    for _ in range(CONFLICTS_MAX):
        if pod is None:
            answer = await call.until_answered("GET", path)
            if api.is_gone(answer):
                return DeliveryResult(DELIVERED, "is gone")
            if not answer.ok:
                raise StatusRefused(api.answer_text(answer))
            try:
                pod = msgspec.json.decode(answer.body, type=api.ApiPod)
            except (ValueError, RecursionError) as error:
                raise StatusRefused(f"it cannot be read: {error}") from None
        if pod.metadata.uid != known.api_uid:
            return DeliveryResult(DELIVERED, "is another one by now")
        if pod.status.phase in known_pods.FINAL_PHASES:
            return DeliveryResult(DELIVERED, f"was {pod.status.phase} already")
        # An earlier boot's status would end a pod that runs again.
        if order.unchanged_only and then is None:
            return DeliveryResult(STALE, "is not known from when its status was due")
        if order.unchanged_only and pod.metadata.resource_version != then:
            return DeliveryResult(STALE, "has changed since")
        body = final_status(pod, *status[1:])
        # The body has the version: the patch replaces conditions and containers whole.
        answer = await call.until_answered("PATCH", f"{path}/status", body, api.STRATEGIC_PATCH)
        if answer.ok or api.is_gone(answer):
            return DeliveryResult(DELIVERED)
        if answer.code != api.HTTP_CONFLICT:
            raise StatusRefused(api.answer_text(answer))
        if order.unchanged_only:
            return DeliveryResult(STALE, "has changed since")
        pod = None
    raise StatusRefused("it changes as fast as it is read")


UNKNOWN_MESSAGE = "The container could not be located when the pod was terminated"
UNKNOWN_EXIT_CODE = 137
REJECT_REASON = "NodeShutdown"
UNREADY_REASONS = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}
UNREADY_CONDITIONS = ("Ready", "ContainersReady")


def final_status(
    pod: api.ApiPod, phase: str, reason: str, message: str, exit_codes: Sequence[ExitCode] = ()
) -> api.JsonObject:
    """A strategic merge patch of ``pods/status``, for this version, as in the kubelet's graceful shutdown. A
    container without a known end gets the status of its ``TerminatePod``, or 0 in a succeeded pod; a sidecar
    never gets 0.
    """
    before = pod.status.conditions
    # As the kubelet does (PodObservedGenerationTracking).
    tracked = {"observedGeneration": pod.metadata.generation} if pod.status.observed_generation else {}
    unready = UNREADY_REASONS.get(phase, reason)
    status: api.JsonObject = {
        "phase": phase,
        "reason": reason,
        "message": message,
        "conditions": [
            *(
                api.make_condition(before, kind, "False", unready, "", **tracked)
                for kind in UNREADY_CONDITIONS
            ),
            *([] if reason == REJECT_REASON else [api.disruption_target(before, **tracked)]),
        ],
    }
    for name, statuses in (
        ("initContainerStatuses", pod.status.init_container_statuses),
        ("containerStatuses", pod.status.container_statuses),
    ):
        if statuses:
            first, codes = name.startswith("init"), dict(exit_codes)
            status[name] = [
                _terminated(each, phase, codes.get(str(each.get("name"))), first=first) for each in statuses
            ]
    meta = {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version}
    return {"metadata": meta, "status": status}


def _terminated(
    container: api.JsonObject, phase: str, exit_code: int | None, *, first: bool
) -> api.JsonObject:
    state = _object_at(container, "state")
    running = _object_at(state, "running")
    # An init container that never ran has not failed.
    if "terminated" in state or (first and not running):
        return container
    ended: api.JsonObject = {
        "exitCode": UNKNOWN_EXIT_CODE,
        "reason": known_pods.UNKNOWN_REASON,
        "message": UNKNOWN_MESSAGE,
    }
    if exit_code is None and phase == "Succeeded" and not first:
        exit_code = 0
    if exit_code is not None:
        ended = {"exitCode": exit_code, "reason": "Error" if exit_code else "Completed"}
    if running:
        ended |= {"startedAt": running.get("startedAt"), "finishedAt": api.rfc3339_now()}
    if identity := container.get("containerID"):
        ended["containerID"] = identity
    return {**container, "state": {"terminated": ended}, "ready": False, "started": False}


def _object_at(parent: api.JsonObject, name: str) -> api.JsonObject:
    """Empty for any other type."""
    found = parent.get(name)
    return found if isinstance(found, dict) else {}


LATE_FILE_NAME = "late.json"
LATE_FILE_VERSION = 1
LATE_PODS_MAX = 1024
LATE_BYTES_MAX = 1024 * 1024


class _LateFile(msgspec.Struct, rename="camel"):
    version: int
    #: Pods' versions by the runtime's UID.
    pods: dict[str, str] = {}


class LateStatuses:
    """The kubelet may start the pods again after a reboot: a late status needs an unchanged pod. ``folder``
    None: in memory only.
    """

    def __init__(self, folder: Path | None, tell: Tell) -> None:
        self._path = None if folder is None else folder / LATE_FILE_NAME
        self._tell = tell
        self._pods: dict[str, str] | None = {} if folder is None else None
        #: A thread on a hung disk outlives its task: one at a time.
        self._threads = trio.CapacityLimiter(1)

    async def known(self) -> Mapping[str, str]:
        def read(path: Path) -> dict[str, str]:
            try:
                found = msgspec.json.decode(read_own(path, LATE_BYTES_MAX), type=_LateFile)
            except (OSError, ValueError, RecursionError):
                return {}
            return found.pods if found.version == LATE_FILE_VERSION else {}

        if self._pods is None:
            assert self._path is not None
            found = await trio.to_thread.run_sync(
                read, self._path, abandon_on_cancel=True, limiter=self._threads
            )
            self._pods = found if self._pods is None else self._pods
        return self._pods

    async def keep(self, uids: Iterable[str], find: Callable[[str], known_pods.KnownPod | None]) -> None:
        """Does not raise."""
        now, path = {uid: find(uid) for uid in uids}, self._path
        with trio.move_on_after(bounds.now.side_file_seconds):
            pods = dict(await self.known())
            for uid, pod in now.items():
                pods.pop(uid, None)
                if pod is not None and pod.resource_version:
                    pods[uid] = pod.resource_version
            self._pods = dict(list(pods.items())[-LATE_PODS_MAX:])
            if path is None:
                return
            data = msgspec.json.encode(_LateFile(LATE_FILE_VERSION, self._pods))

            def write() -> None:
                os.makedirs(path.parent, mode=0o700, exist_ok=True)
                write_atomically(path, data, sync=True)

            try:
                await trio.to_thread.run_sync(write, abandon_on_cancel=True, limiter=self._threads)
            except OSError as error:
                why = f"{error.strerror}; statuses that are late are not delivered after a reboot"
                self._tell(WARNING, f"Kubernetes API: {path}: {why}")

    def forget(self, uids: Iterable[str]) -> None:
        """The next write takes them out of the file."""
        for uid in uids:
            (self._pods or {}).pop(uid, None)


#: Each look reads only memory, and the release waits.
STATUS_POLL_SECONDS = 0.02
STATUS_LIST_SECONDS = 0.1
#: The server has to take the statuses too.
REST_PER_LIST = 3


async def await_statuses(parts: api.WriteParts, order: AwaitStatuses, outlet: Outlet) -> Ending:
    """The watch usually knows first; else a list, less often from a slow server."""
    call = parts.call(order.key, order.timeout_ns / NS_PER_SECOND)
    missing, why, next_list, ended = order.uids, "", 0.0, Ending()

    def is_final(uid: str) -> bool:
        pod = parts.lookup.find(uid)
        return pod is not None and pod.phase in known_pods.FINAL_PHASES

    while missing := tuple(uid for uid in missing if not is_final(uid)):
        now = trio.current_time()
        if now >= call.until:
            without = f"{len(missing)} of {len(order.uids)} without a final status{why}"
            ended = Ending("timed-out", without)
            break
        # With less time the answer would come too late, and would look like the cause.
        if now >= next_list and (not next_list or call.left_seconds >= STATUS_LIST_SECONDS):
            try:
                with trio.move_on_at(call.until):
                    seen = await api.list_known_pods(call, parts.node)
                    missing = tuple(
                        uid
                        for uid in missing
                        if uid in seen and seen[uid].phase not in known_pods.FINAL_PHASES
                    )
                    why = ""
            except api.Unanswered as error:
                why = f": {error}"
            except api.ListDenied as error:
                ended = Ending("failed", str(error))
                break
            next_list = trio.current_time() + max(
                STATUS_LIST_SECONDS, REST_PER_LIST * (trio.current_time() - now)
            )
        if missing:
            await trio.sleep(min(STATUS_POLL_SECONDS, call.left_seconds))
    await outlet.put(StatusesSeen(key=order.key, missing=missing))
    return ended

"""All that a shutdown writes to Pods: the delete, Ready=False, and the final status.

Mode api ends a pod by deleting its object: once, that very pod, and never so that it vanishes unstopped. A
grace of 0 would take the object out of the API while the containers run, so it is never less than 1. The
UID is a precondition: a pod that has come back under the same name is another one. ``DisruptionTarget``
comes first, so that a Job does not count the pod as its own failure; a pod without it is deleted all the
same. How such an order ends says what may have become of the pod's hooks. ``done``: it is gone, or the
kubelet ends it. ``failed``: nobody took the delete, because the server refused it or it was never sent.
``timed-out``: it was sent, and nothing shows whether it was taken.

With the kubelet stopped nobody else takes a pod out of its Services (Ready=False) before its final status.

A pod that was ended without its kubelet gets the status that the kubelet would have written; without it the
pod looks Running for as long as its node is away (kubernetes#109531, #110755). It is written once: an
object that is final already keeps what it has, one that is gone needs none, and one that has been started
again since, after a reboot, must never get it. What could not be delivered waits in the journal for the
next boot, and as what the pod was known then is kept on disk.

Mode observe writes none: it waits until the API server has every pod's final status, which others have to
write.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec
import trio

from ebbtide.actors.edges.kubernetes.api_calls import (
    HTTP_CONFLICT,
    STRATEGIC_PATCH,
    ApiCall,
    ApiCaller,
    ApiPod,
    CallSlots,
    JsonObject,
    ListDenied,
    Unanswered,
    answer_ending,
    answer_text,
    delete_options,
    disruption_target,
    find_pods,
    for_each,
    is_gone,
    list_known_pods,
    list_pod_objects,
    make_condition,
    pod_path,
    rfc3339_now,
    unanswered_ending,
)
from ebbtide.actors.edges.kubernetes.known_pods import (
    FINAL_PHASES,
    KnownPod,
    PodLookup,
)
from ebbtide.actors.interfaces import WARNING, Ending, Outlet, Tell, TraceContext
from ebbtide.events import bounds
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.decisions import AwaitStatuses, DeletePod, DeliverStatuses, WithdrawPods
from ebbtide.events.facts import StatusesSeen
from ebbtide.events.files import read_own, write_atomically
from ebbtide.events.units import span_s

#: And of what a late turn has left, this part.
MARK_SHARE = 3
#: A turn that comes with less left is none: what is sent and not answered leaves its pod without its hooks.
TURN_SECONDS_MIN = 0.05
#: With less the object would go before its containers.
GRACE_SECONDS_MIN = 1


def forget_gone(uids: set[str], lookup: PodLookup) -> None:
    """Of the API's UIDs keep those of pods that are known: in months any number of pods comes and goes. Who
    knows of none has not been told yet.
    """
    if there := {pod.api_uid for pod in lookup.pods()}:
        uids &= there


class PodDeletes:
    """``tainted`` returns when the node is, or cannot be, tainted, or its time is over."""

    def __init__(
        self,
        caller: ApiCaller,
        lookup: PodLookup,
        context: TraceContext,
        tainted: Callable[[], Awaitable[None]],
    ) -> None:
        self._caller, self._lookup, self._context = caller, lookup, context
        self._tainted = tainted
        self._slots, self._open = CallSlots(), 0
        #: Here and below by the API's UID.
        self._marked: set[str] = set()
        #: Those of which a delete was taken: what the watch shows of them says nothing of a later one.
        self._taken: set[str] = set()

    async def delete(self, order: DeletePod, outlet: Outlet) -> Ending:
        began = trio.current_time()
        if not self._open:
            self._slots = CallSlots()
            forget_gone(self._marked, self._lookup)
            forget_gone(self._taken, self._lookup)
        self._open += 1
        try:
            ended = await self._delete_in_turn(order, began)
        finally:
            self._open -= 1
        known = self._lookup.find(order.uid)
        uid = known.api_uid if known is not None else order.uid
        # Nobody answered, and yet the watch may show that it was taken.
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
                # Before the delete: afterwards the object may be gone with nobody told why. Within the same
                # turn, because a mark that waits for a turn of its own would hold its pod's delete up.
                if await self._mark(order, uid, self._call(order, until)):
                    return Ending()
                call = self._call(order, until)
                try:
                    # The kubelet counts whole seconds from when it hears of the delete; what has passed is
                    # no longer the pod's.
                    left_seconds = order.grace_seconds - round(trio.current_time() - began)
                    body = delete_options(uid, max(GRACE_SECONDS_MIN, left_seconds))
                    answer = await call.until_answered("DELETE", pod_path(order.namespace, order.name), body)
                except Unanswered as error:
                    return (
                        unanswered_ending(error) if call.in_doubt else Ending("failed", f"not sent: {error}")
                    )
                if is_gone(answer):
                    return Ending()
                if not answer.ok and call.in_doubt:
                    return Ending("timed-out", f"the API server may have taken it: {answer_text(answer)}")
                return answer_ending(answer)
        return Ending("failed", f"not sent: no turn in {span_s(bounds.now.delete_seconds)}")

    def _call(self, order: DeletePod, until: float) -> ApiCall:
        return ApiCall(self._caller, until - trio.current_time(), self._context(order.key))

    async def _mark(self, order: DeletePod, uid: str, call: ApiCall) -> bool:
        """Is the pod gone already? Whatever else comes of it, it is deleted."""
        if uid in self._marked:
            return False
        body = {"metadata": {"uid": uid}, "status": {"conditions": [disruption_target([])]}}
        path = f"{pod_path(order.namespace, order.name)}/status"
        seconds = min(bounds.now.mark_seconds, call.left_seconds / MARK_SHARE)
        asked = trio.current_time()
        try:
            answer = await call.once("PATCH", path, body, STRATEGIC_PATCH, seconds)
        except Unanswered:
            return False
        if trio.current_time() - asked > bounds.now.slow_answer_seconds:
            self._slots.widen()
        if answer.ok:
            self._marked.add(uid)
        return is_gone(answer)


# With the kubelet stopped nobody else would set Ready=False before the pod's final status, and until then
# each new connection goes to a process that no longer listens. Nothing waits for it, so one second a pod is
# its bound. A final status says the same and more: where one is under way, the server is spared this call.

WITHDRAWN_CONDITIONS = ("Ready", "ContainersReady")
WITHDRAWN_REASON, WITHDRAWN_MESSAGE = "NodeShutdown", "node is shutting down"


class PodWithdrawals:
    """``final``: the API's UIDs of pods whose final status is written, or being written, by somebody."""

    def __init__(
        self,
        caller: ApiCaller,
        lookup: PodLookup,
        node: str,
        context: TraceContext,
        final: Container[str] = (),
    ) -> None:
        self._caller, self._lookup, self._node, self._context = caller, lookup, node, context
        self._final = final

    async def withdraw(self, order: WithdrawPods, outlet: Outlet) -> Ending:
        trace = self._context(order.key)
        try:
            call = ApiCall(self._caller, bounds.now.withdraw_seconds, trace)
            found = await find_pods(self._lookup, order.uids, call, self._node)
        except (Unanswered, ListDenied) as error:
            return Ending("failed", str(error))

        async def one(pod: KnownPod) -> str:
            if pod.api_uid in self._final or pod.phase in FINAL_PHASES:
                return ""
            # Why it could not be done.
            conditions = [
                make_condition([], kind, "False", WITHDRAWN_REASON, WITHDRAWN_MESSAGE)
                for kind in WITHDRAWN_CONDITIONS
            ]
            body = {"metadata": {"uid": pod.api_uid}, "status": {"conditions": conditions}}
            path = f"{pod_path(pod.namespace, pod.name)}/status"
            try:
                answer = await ApiCall(self._caller, bounds.now.withdraw_seconds, trace).until_answered(
                    "PATCH", path, body, STRATEGIC_PATCH
                )
            except Unanswered as error:
                return str(error)
            return "" if answer.ok or is_gone(answer) else answer_text(answer)

        problems = [each for each in await for_each(filter(None, found.values()), one) if each]
        if problems:
            return Ending("failed", f"{len(problems)} of {len(order.uids)} not withdrawn: {problems[0]}")
        return Ending()


#: After a boot the API server may come long after us; later than this the cluster has helped itself.
LATER_SECONDS_MAX = 600.0
#: At a boot: the whole cluster may be coming up, and nothing waits for this.
LATER_AGAIN_SECONDS = 5.0
#: The kubelet, or a controller, wrote in between: read again.
CONFLICTS_MAX = 5
#: From so many on, one list is less work for the server than a read each.
LIST_FROM = 4
#: Names in a reason.
NAMED_PODS_MAX = 5

FinalStatus = tuple[str, str, str, str]
DELIVERED, STALE, FAILED = "delivered", "stale", "failed"


class DeliveryResult(NamedTuple):
    """What became of one status: delivered, stale or failed, and why."""

    what: str
    why: str = ""


class StatusRefused(Exception):
    """The server's answer was no."""


class StatusDelivery:
    """``final``: the API's UIDs of the pods whose status is delivered here, from the beginning of it."""

    def __init__(
        self,
        caller: ApiCaller,
        lookup: PodLookup,
        node: str,
        context: TraceContext,
        late: LateStatuses,
    ) -> None:
        self._caller, self._lookup, self._node, self._context = caller, lookup, node, context
        self._late = late
        self.final: set[str] = set()

    async def deliver(self, order: DeliverStatuses, outlet: Outlet) -> Ending:
        """One try in a shutdown; what an earlier boot has left is tried until it is taken or stale."""
        if not order.unchanged_only:
            # What is known of the pods now is kept beside it, for the next boot, and needed where this fails.
            async with trio.open_nursery() as nursery:
                uids = [each[0] for each in order.statuses]
                nursery.start_soon(self._late.keep, uids, self._lookup.find)
                delivered = await self._deliver(order)
                if delivered.result == "done":
                    nursery.cancel_scope.cancel()
                    self._late.forget(uids)
            return delivered
        until = trio.current_time() + LATER_SECONDS_MAX
        while True:
            ended = await self._deliver(order)
            if ended.result != "failed" or trio.current_time() + LATER_AGAIN_SECONDS > until:
                return ended
            await trio.sleep(LATER_AGAIN_SECONDS)

    async def _deliver(self, order: DeliverStatuses) -> Ending:
        until = trio.current_time() + bounds.now.statuses_seconds
        call = self._call(order)
        try:
            found = await find_pods(self._lookup, [each[0] for each in order.statuses], call, self._node)
        except (Unanswered, ListDenied) as error:
            return Ending("failed", f"0 of {len(order.statuses)} delivered: {error}")

        # Before the first write: a withdrawal that comes later would set back what a final status has said.
        begun = set() if order.unchanged_only else {pod.api_uid for pod in found.values() if pod is not None}
        forget_gone(self.final, self._lookup)
        self.final |= begun
        # Many objects with one call, by the API's UID; what is not there is read one by one.
        read: dict[str, ApiPod] = {}
        if len(order.statuses) >= LIST_FROM:
            with suppress(Unanswered, ListDenied):
                read = {
                    pod.metadata.uid: pod for pod in await list_pod_objects(self._call(order), self._node)
                }
        then = await self._late.known() if order.unchanged_only else {}

        async def one(status: FinalStatus) -> DeliveryResult:
            known = found[status[0]]
            ahead = read.get(known.api_uid) if known is not None else None
            before = then.get(status[0])
            call = self._call(order, until - trio.current_time())
            if known is None:
                return DeliveryResult(DELIVERED, "gone")
            label = f"{known.namespace}/{known.name}"
            try:
                result = await _write_status(order, status, known, before, call, ahead)
                if result.what == DELIVERED and order.remove and not known.static:
                    # Its containers have ended, so a grace of 0 leaves nothing behind.
                    body = delete_options(known.api_uid, 0)
                    answer = await call.until_answered("DELETE", pod_path(known.namespace, known.name), body)
                    if not answer.ok and not is_gone(answer):
                        raise StatusRefused(f"not removed: {answer_text(answer)}")
            except (Unanswered, StatusRefused) as error:
                return DeliveryResult(FAILED, f"{label}: {error}")
            return DeliveryResult(result.what, f"{label} {result.why}")

        results = await for_each(order.statuses, one)
        count = Counter(result.what for result in results)
        if not count[FAILED] and not count[STALE]:
            return Ending()
        self.final -= begun
        # What failed before what is stale.
        if count[FAILED]:
            names = _named_pods(results, FAILED)
            return Ending("failed", f"{count[FAILED]} of {len(results)} not delivered: {names}")
        names = _named_pods(results, STALE)
        return Ending("cancelled", f"stale: {count[STALE]} of {len(results)}: {names}")

    def _call(self, order: DeliverStatuses, left_seconds: float = math.inf) -> ApiCall:
        seconds = min(bounds.now.status_seconds, left_seconds)
        return ApiCall(self._caller, seconds, self._context(order.key))


async def _write_status(
    order: DeliverStatuses,
    status: FinalStatus,
    known: KnownPod,
    then: KnownThen | None,
    call: ApiCall,
    pod: ApiPod | None,
) -> DeliveryResult:
    """Read, and write what was read with the rest. Raises Unanswered, StatusRefused."""
    path = pod_path(known.namespace, known.name)
    for _ in range(CONFLICTS_MAX):
        if pod is None:
            answer = await call.until_answered("GET", path)
            if is_gone(answer):
                return DeliveryResult(DELIVERED, "is gone")
            if not answer.ok:
                raise StatusRefused(answer_text(answer))
            try:
                pod = msgspec.json.decode(answer.body, type=ApiPod)
            except (ValueError, RecursionError) as error:
                raise StatusRefused(f"it cannot be read: {error}") from None
        if pod.metadata.uid != known.api_uid:
            return DeliveryResult(DELIVERED, "is another one by now")
        if pod.status.phase in FINAL_PHASES:
            return DeliveryResult(DELIVERED, f"was {pod.status.phase} already")
        if order.unchanged_only and (why := _stale_reason(pod, then)):
            return DeliveryResult(STALE, why)
        body = final_status(pod, *status[1:])
        # With the version that was read: conditions and containers are passed on whole, so a write in between
        # must not be lost.
        answer = await call.until_answered("PATCH", f"{path}/status", body, STRATEGIC_PATCH)
        if answer.ok or is_gone(answer):
            return DeliveryResult(DELIVERED)
        if answer.code != HTTP_CONFLICT:
            raise StatusRefused(answer_text(answer))
        if order.unchanged_only:
            return DeliveryResult(STALE, "has changed since")
        pod = None
    raise StatusRefused("it changes as fast as it is read")


def _stale_reason(pod: ApiPod, then: KnownThen | None) -> str:
    """Why a status of an earlier boot is no longer this pod's: written, it would end what runs again."""
    if then is None:
        return "is not known from when its status was due"
    if pod.metadata.resource_version != then.resource_version:
        return "has changed since"
    newest = newest_start(pod)
    if started_this_boot(newest) or (then.started_at and newest > then.started_at):
        return "has been started again"
    return ""


def _named_pods(results: list[DeliveryResult], what: str) -> str:
    those = [result.why for result in results if result.what == what]
    more = [f"and {len(those) - NAMED_PODS_MAX} more"] if len(those) > NAMED_PODS_MAX else []
    return "; ".join([*those[:NAMED_PODS_MAX], *more])


# The phase, the reason and ``DisruptionTarget`` are those of the kubelet's graceful node shutdown. Containers
# that the API still has as running or waiting become terminated as its status manager does it where nobody
# can say how one ended (``TerminatePod``): exit code 137, reason ``ContainerStatusUnknown``; in a pod that
# succeeded each has exited with 0. ``containerStatuses`` is one value in a patch, so its other fields are
# passed on.

UNKNOWN_REASON = "ContainerStatusUnknown"
UNKNOWN_MESSAGE = "The container could not be located when the pod was terminated"
UNKNOWN_EXIT_CODE = 137
#: What a kubelet gives as the reason of Ready=False in a final phase.
UNREADY_REASONS = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}
UNREADY_CONDITIONS = ("Ready", "ContainersReady")
STAT = Path("/proc/stat")


def final_status(pod: ApiPod, phase: str, reason: str, message: str) -> JsonObject:
    """The body of a strategic merge patch of ``pods/status``, only for that object in that version."""
    before = pod.status.conditions
    # As the kubelet does where it tracks generations at all (PodObservedGenerationTracking).
    tracked = {"observedGeneration": pod.metadata.generation} if pod.status.observed_generation else {}
    unready = UNREADY_REASONS.get(phase, reason)
    status: JsonObject = {
        "phase": phase,
        "reason": reason,
        "message": message,
        "conditions": [
            *(make_condition(before, kind, "False", unready, "", **tracked) for kind in UNREADY_CONDITIONS),
            disruption_target(before, **tracked),
        ],
    }
    for name, statuses in (
        ("initContainerStatuses", pod.status.init_container_statuses),
        ("containerStatuses", pod.status.container_statuses),
    ):
        if statuses:
            status[name] = [_terminated(each, phase, first=name.startswith("init")) for each in statuses]
    meta = {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version}
    return {"metadata": meta, "status": status}


def _terminated(container: JsonObject, phase: str, *, first: bool) -> JsonObject:
    state = _object_at(container, "state")
    running = _object_at(state, "running")
    # An init container that never ran has not failed: it was never its turn.
    if "terminated" in state or (first and not running):
        return container
    ended: JsonObject = {"exitCode": UNKNOWN_EXIT_CODE, "reason": UNKNOWN_REASON, "message": UNKNOWN_MESSAGE}
    if phase == "Succeeded":
        ended = {"exitCode": 0, "reason": "Completed"}
    if running:
        ended |= {"startedAt": running.get("startedAt"), "finishedAt": rfc3339_now()}
    if identity := container.get("containerID"):
        ended["containerID"] = identity
    return {**container, "state": {"terminated": ended}, "ready": False, "started": False}


def _object_at(parent: JsonObject, name: str) -> JsonObject:
    """Empty where there is none, or something else: these objects are passed on as they were read."""
    found = parent.get(name)
    return found if isinstance(found, dict) else {}


def newest_start(pod: ApiPod) -> str:
    """Of any of its containers, ended ones too, RFC 3339; empty if none has run."""
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    states = [_object_at(each, "state") for each in statuses]
    spans = [_object_at(state, "running") or _object_at(state, "terminated") for state in states]
    return max((str(span.get("startedAt") or "") for span in spans), default="")


def started_this_boot(started_at: str) -> bool:
    """Did that happen since the machine came up? What cannot be told counts as yes: a status that is not
    delivered does less harm than one of a pod that runs.
    """
    if not started_at:
        return False
    try:
        # When the machine came up, by its wall clock of now (proc(5), btime).
        found = [line.split()[1] for line in STAT.read_text().splitlines() if line.startswith("btime ")]
        return (
            datetime.fromisoformat(started_at).timestamp()
            >= datetime.fromtimestamp(int(found[0]), UTC).timestamp()
        )
    except (OSError, ValueError):
        return True


# By the next boot the warm watch has a pod as it is then, which says nothing: the kubelet may have started it
# again. So what is known when its final status is due is put beside the cache while the first try is made,
# and a later try may only write to a pod in that very version. One of which nothing was kept is left alone.


LATE_FILE_NAME = "late.json"
LATE_FILE_VERSION = 1
#: A node has some hundred pods; the newest are kept.
LATE_PODS_MAX = 1024
#: What such a file has at most; one that is larger is not ours.
LATE_BYTES_MAX = 1024 * 1024


class KnownThen(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """``started_at``: the newest start of any container, RFC 3339."""

    resource_version: str
    started_at: str = ""


class _LateFile(msgspec.Struct, rename="camel"):
    version: int
    pods: dict[str, KnownThen] = {}


class LateStatuses:
    """``late.json`` in ``folder``, which outlives a reboot; None: kept as long as we live."""

    def __init__(self, folder: Path | None, tell: Tell) -> None:
        self._path = None if folder is None else folder / LATE_FILE_NAME
        self._tell = tell
        #: None: not read yet.
        self._pods: dict[str, KnownThen] | None = None
        #: Counts what is to be kept, and what of it the file has.
        self._version = self._stored = 0
        #: A thread that a disk holds up goes on when its task has given it up. So there is one, and none of
        #: those that everybody shares.
        self._threads = trio.CapacityLimiter(1)

    async def known(self) -> Mapping[str, KnownThen]:
        """By the UID that the runtime knows; of this boot and of those before."""
        if self._pods is None:
            found: dict[str, KnownThen] = {}
            if self._path is not None:
                found = await trio.to_thread.run_sync(
                    _read_late_file, self._path, abandon_on_cancel=True, limiter=self._threads
                )
            # Two may have asked at the same time.
            self._pods = found if self._pods is None else self._pods
        return self._pods

    async def keep(self, uids: Iterable[str], find: Callable[[str], KnownPod | None]) -> None:
        """As these pods are known now; those that are not known are forgotten. Bounded, and never raises."""
        now = {uid: find(uid) for uid in uids}
        with trio.move_on_after(bounds.now.side_file_seconds):
            pods = dict(await self.known())
            for uid, pod in now.items():
                pods.pop(uid, None)
                if pod is not None and pod.resource_version:
                    pods[uid] = KnownThen(pod.resource_version, pod.started_at)
            self._pods = dict(list(pods.items())[-LATE_PODS_MAX:])
            self._version += 1
            if self._path is None:
                return
            try:
                await trio.to_thread.run_sync(
                    self._write, self._path, abandon_on_cancel=True, limiter=self._threads
                )
            except OSError as error:
                line = (
                    f"{self._path}: {error.strerror}; statuses that are late are not delivered after a reboot"
                )
                self._tell(WARNING, f"Kubernetes API: {line}")

    def forget(self, uids: Iterable[str]) -> None:
        """Nothing of these is owed any more. The file says so with the next that is kept."""
        pods = self._pods or {}
        for uid in uids:
            pods.pop(uid, None)

    def _write(self, path: Path) -> None:
        """What is known by now, and what came while it was written: its task may have given up, and others
        have not waited for their turn.
        """
        while (version := self._version) != self._stored:
            os.makedirs(path.parent, mode=0o700, exist_ok=True)
            data = msgspec.json.encode(_LateFile(LATE_FILE_VERSION, self._pods or {}))
            write_atomically(path, data, sync=True)
            self._stored = version


def _read_late_file(path: Path) -> dict[str, KnownThen]:
    try:
        found = msgspec.json.decode(read_own(path, LATE_BYTES_MAX), type=_LateFile)
    except (OSError, ValueError, RecursionError):
        return {}
    return found.pods if found.version == LATE_FILE_VERSION else {}


# The watch usually knows first, and costs nothing. Where it does not, one list for all pods is asked for, the
# more rarely the longer the server takes for one. Mirror pods count: theirs is the static pod's.


#: Between two looks at what the watch has: it is in memory, and the release waits for what it says.
STATUS_POLL_SECONDS = 0.02
#: Between two lists at least.
STATUS_LIST_SECONDS = 0.1
#: Of the time at most a quarter is spent on lists: the server has the statuses themselves to take.
REST_PER_LIST = 3


class StatusWait:
    def __init__(self, caller: ApiCaller, lookup: PodLookup, node: str, context: TraceContext) -> None:
        self._caller, self._lookup, self._node, self._context = caller, lookup, node, context

    async def wait(self, order: AwaitStatuses, outlet: Outlet) -> Ending:
        """Says who is missing before it ends."""
        call = ApiCall(self._caller, order.timeout_ns / NS_PER_SECOND, self._context(order.key))
        missing, why, next_list, ended = order.uids, "", 0.0, Ending()
        shown: set[str] = set()
        while missing := tuple(uid for uid in missing if not self._is_final(uid, shown)):
            now = trio.current_time()
            if now >= call.until:
                without = f"{len(missing)} of {len(order.uids)} without a final status{why}"
                ended = Ending("timed-out", without)
                break
            # With less than is between two lists the answer would come after the time, and its silence would
            # stand as the cause.
            if now >= next_list and (not next_list or call.left_seconds >= STATUS_LIST_SECONDS):
                try:
                    seen = await list_known_pods(call, self._node)
                    # An object that is gone needs no status any more.
                    missing = tuple(
                        uid for uid in missing if uid in seen and seen[uid].phase not in FINAL_PHASES
                    )
                    why = ""
                except Unanswered as error:
                    why = f": {error}"
                except ListDenied as error:
                    ended = Ending("failed", str(error))
                    break
                next_list = trio.current_time() + max(
                    STATUS_LIST_SECONDS, REST_PER_LIST * (trio.current_time() - now)
                )
            if missing:
                await trio.sleep(min(STATUS_POLL_SECONDS, call.left_seconds))
        await outlet.put(StatusesSeen(key=order.key, missing=missing))
        return ended

    def _is_final(self, uid: str, shown: set[str]) -> bool:
        """By the watch, which may be behind, or not there: then it knows of no pod that is final and is not.

        ``shown``: whom it has had since the order. Who is no longer there has lost its object: a kubelet
        writes the last status and takes the object away at once, so that only the second may be seen. A
        mirror's object may go while its pod is as it was.
        """
        pod = self._lookup.find(uid)
        if pod is None:
            return uid in shown
        if not pod.static:
            shown.add(uid)
        return pod.phase in FINAL_PHASES

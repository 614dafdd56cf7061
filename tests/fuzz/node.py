"""Answers of the container runtime and the API server, and the resulting shutdown: rows of
`tests.fuzz.targets`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, cast

import grpc
import msgspec
import trio
import trio.testing
from google.protobuf.message import DecodeError, Message

from ebbtide.actors.edges.cri import api_pb2 as api
from ebbtide.actors.edges.cri import cri_pods
from ebbtide.actors.edges.cri.cri_client import METHODS, CallFailed, CriClient, RuntimeReach, answer_type
from ebbtide.actors.edges.cri.cri_runtime import ContainerEnds, ContainerOrders, Listing
from ebbtide.actors.edges.kubernetes import node_writes
from ebbtide.actors.edges.kubernetes.api_calls import ApiNode, ApiPod, Unanswered
from ebbtide.actors.edges.kubernetes.api_watch import ApiRefused, VersionExpired, Watch, pods_of
from ebbtide.actors.edges.kubernetes.api_writes import final_status
from ebbtide.actors.edges.kubernetes.known_pods import PodStore
from ebbtide.actors.edges.pod_spec import ExecAction
from ebbtide.actors.system import System, take_checkpoint
from ebbtide.events import facts as f
from ebbtide.events.base import NS_PER_SECOND, Event, Stamp
from ebbtide.events.codec import encode_event
from ebbtide.events.decisions import RunHook
from ebbtide.events.values import Pod, Settings
from tests.actors.edges.process.process_bed import Outbox
from tests.replay.shutdown import GRANT_NS, WAVES, armed, ended, started
from tests.waiting import WATCHDOG_SECONDS

#: A shutdown of some pods ends long before.
TICKS_MAX = 50
#: Containers with hooks per input.
HOOKS_MAX = 2


def shut_down(pods: Iterable[Pod]) -> None:
    """A shutdown without spontaneous ends: each record must be encodable."""
    system, now_ns = System(), 5 * NS_PER_SECOND

    def step(fact: Event) -> None:
        for record in system.step(fact, Stamp(now_ns, now_ns)):
            encode_event(record.event)
        encode_event(take_checkpoint(system))
        assert not [slot for slot in system.slots.values() if slot.failed]

    step(started("boot-1"))
    step(f.SettingsLoaded(settings=Settings(by_pod_priority=WAVES)))
    for _, fact in armed(GRANT_NS):
        step(fact)
    step(f.PrepareForShutdown(active=True, kind="reboot", grant_ns=GRANT_NS, lock_held=True))
    for fact in f.InventoryTaken.in_parts("EpisodeActor/inventory//0", 1, "cri", list(pods)):
        step(fact)
    step(ended("EpisodeActor/inventory//0"))
    for _ in range(TICKS_MAX):
        if (due_ns := system.next_deadline_ns()) is None:
            break
        now_ns = max(now_ns, due_ns)
        step(f.Tick())


# --- the runtime


class _Loop:
    """Where gRPC's calls would run."""

    async def run_aio_coroutine(self, work: Awaitable[object]) -> object:
        return await work


class _Channel:
    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        return grpc.ChannelConnectivity.READY


class _Answering(CriClient):
    """Answers each call with the next bytes, decoded like gRPC; None if undecodable."""

    def __init__(self, answers: Iterable[bytes]) -> None:
        super().__init__("unix:///nowhere")
        self._left = iter(answers)
        self._loop = cast(Any, _Loop())
        self._channel = cast(Any, _Channel())
        self._calls = {name: self._answer_of(answer_type(name)) for name in METHODS}

    async def _answer(self, call: Any) -> Message | None:
        found: Message | None = await call
        return found

    def _answer_of(self, kind: type[Message]) -> Callable[..., Awaitable[Message]]:
        async def call(request: Message, **_: object) -> Message:
            request.SerializeToString()
            try:
                return kind.FromString(next(self._left, b""))
            except DecodeError:
                return cast(Message, None)

        return call


def cut(data: bytes) -> Iterator[bytes]:
    """Pieces, each behind its length (2 bytes)."""
    while len(data) > 2:
        length = int.from_bytes(data[:2], "little")
        yield data[2 : 2 + length]
        data = data[2 + length :]


def joined(pieces: Iterable[bytes]) -> bytes:
    """The inverse of `cut`."""
    return b"".join(len(piece).to_bytes(2, "little") + piece for piece in pieces)


def cri(data: bytes) -> None:
    """Answers of the container runtime, one behind another: two looks, a hook, an end, and a shutdown."""
    trio.run(_cri, data, clock=trio.testing.MockClock(autojump_threshold=0))


async def _cri(data: bytes) -> None:
    client, table, outbox = _Answering(cut(data)), cri_pods.PodTable(), Outbox()
    started: list[tuple[Callable[..., Awaitable[None]], tuple[Any, ...]]] = []

    def start(work: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        started.append((work, arguments))

    reach, warm = RuntimeReach(client, outbox, lambda level, line: None), trio.Event()
    reach.known.set()
    warm.set()
    ends = ContainerEnds(client, table, start, outbox)
    orders = ContainerOrders(client, reach, table, warm, start, lambda key: "", ends.code_in_api)
    listing = Listing(client, table, ends.follow, ends.miss)
    try:
        for _ in range(2):
            with suppress(CallFailed):
                await listing.refresh()
        views = [cri_pods.pod_view(pod) for pod in table.active()]
        table.give(table.active())
        for entry in list(table.entries())[:HOOKS_MAX]:
            if isinstance(entry.spec.pre_stop, ExecAction):
                order = RunHook(key="h", uid=entry.pod.uid, container=entry.spec.name, timeout_ns=10**9)
                await orders.carry_out(order, outbox)
        for entry in list(table.entries())[:HOOKS_MAX]:
            if entry.pidfd < 0:
                ends.miss(entry)
        for work, arguments in started:
            # A watched process ends at its own time.
            with trio.move_on_after(WATCHDOG_SECONDS):
                await work(*arguments)
        ends.owed = [cri_pods.InventoryContainer(uid="u", container="main", id="gone")]
        await ends.catch_up()
        for fact in outbox.facts:
            encode_event(fact)
    finally:
        table.close()
    shut_down(views)


def cri_answers() -> Iterator[bytes]:
    labels = {
        cri_pods.POD_UID_LABEL: "u",
        cri_pods.POD_NAMESPACE_LABEL: "shop",
        cri_pods.POD_NAME_LABEL: "web-0",
    }
    notes = {cri_pods.PRIORITY_ANNOTATION: "5", cri_pods.SIDECARS_ANNOTATION: "proxy"}
    sandbox = api.PodSandbox(id="s1", created_at=5, labels=labels, annotations=notes)
    hook = b'{"exec":{"command":["true"]}}'.decode()
    said = {
        cri_pods.GRACE_ANNOTATION: "30",
        cri_pods.PRE_STOP_ANNOTATION: hook,
        cri_pods.PORTS_ANNOTATION: '[{"name":"a","containerPort":8}]',
    }
    container = api.Container(
        id="c1",
        pod_sandbox_id="s1",
        metadata=api.ContainerMetadata(name="main"),
        state=api.CONTAINER_RUNNING,
        created_at=6,
        labels={cri_pods.CONTAINER_NAME_LABEL: "main"},
        annotations=said,
    )
    network = api.PodSandboxNetworkStatus(ip="10.0.0.7", additional_ips=[api.PodIP(ip="fd00::7")])
    place = api.PodSandboxStatusResponse(status=api.PodSandboxStatus(id="s1", network=network))
    status = api.ContainerStatus(
        id="c1", state=api.CONTAINER_RUNNING, created_at=6, started_at=7, image_ref="sha256:0"
    )
    running = api.ContainerStatusResponse(status=status)
    image = api.ImageStatusResponse(info={"info": '{"imageSpec":{"config":{"StopSignal":"SIGQUIT"}}}'})
    ended_status = api.ContainerStatus(id="c1", state=api.CONTAINER_EXITED, exit_code=3, finished_at=9)
    sandboxes = api.ListPodSandboxResponse(items=[sandbox])
    containers = api.ListContainersResponse(containers=[container])
    gone = api.ContainerStatusResponse(status=ended_status)
    look = [sandboxes, containers, running, place, image]
    hooked = api.ExecSyncResponse(stdout=b"x", exit_code=1)
    yield joined(each.SerializeToString() for each in (*look, sandboxes, containers, hooked, gone, gone))
    # The second look shows it no more.
    nothing = (api.ListPodSandboxResponse(), api.ListContainersResponse())
    yield joined(each.SerializeToString() for each in (*look, *nothing, gone, gone))


# --- the API server


def api_objects(data: bytes) -> None:
    """Lines of a watch; the same lines as a Node, and as a pod that a status is written to."""
    store = PodStore()
    watch = Watch(cast(Any, None), pods_of("node-1"), store, cast(Any, None))
    for line in data.split(b"\n"):
        with suppress(Unanswered, VersionExpired, ApiRefused):
            watch.apply_event(line)
        with suppress(ValueError, RecursionError):
            _write_node(msgspec.json.decode(line, type=ApiNode))
        with suppress(ValueError, RecursionError):
            _write_pod(msgspec.json.decode(line, type=ApiPod))
    encoded = msgspec.json.encode(store.watched())
    assert isinstance(encoded, bytes)
    shut_down(cri_pods.coming_view(known, known.containers) for known in store.pods())


def _write_node(node: ApiNode) -> None:
    ready = {"reason": "KubeletNotReady", "message": "node is shutting down"}
    bodies = [
        node_writes.cordon_patch(node, taint=True),
        node_writes.conditions_patch(node, ("NodeShutdown",), dict(ready)),
        node_writes.certificate_patch(node, "{}"),
        node_writes.fence_patch(node),
        *(patch.change(node) for patch in node_writes.RESTORE_PATCHES),
    ]
    msgspec.json.encode(bodies)


def _write_pod(pod: ApiPod) -> None:
    for phase in ("Succeeded", "Failed"):
        msgspec.json.encode(final_status(pod, phase, "Terminated", "node is shutting down"))


def api_object_lines() -> Iterator[bytes]:
    meta = {"uid": "u", "namespace": "shop", "name": "web-0", "resourceVersion": "7", "generation": 2}
    spec = {
        "priority": 5,
        "terminationGracePeriodSeconds": 30,
        "initContainers": [{"name": "proxy", "restartPolicy": "Always"}],
        "containers": [{"name": "main"}],
    }
    state = {"running": {"startedAt": "2026-03-01T12:00:00Z"}}
    shown = {"name": "main", "containerID": f"containerd://{'0' * 64}", "state": state}
    status = {"phase": "Running", "observedGeneration": 2, "containerStatuses": [shown]}
    pod = {"metadata": meta, "spec": spec, "status": status}
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}
    error = {"type": "ERROR", "object": {"code": 410, "message": "too old"}}
    events = [{"type": kind, "object": pod} for kind in ("ADDED", "MODIFIED")]
    yield b"\n".join(map(msgspec.json.encode, (*events, bookmark)))
    yield b"\n".join(map(msgspec.json.encode, (*events, {"type": "DELETED", "object": pod}, error)))
    yield msgspec.json.encode(pod)
    note = '{"taint":true,"conditions":{"NodeShutdown":{"type":"NodeShutdown","status":"False"}}}'
    condition = {"type": "NodeShutdown", "status": "True", "reason": "NodeShutdown", "message": "x"}
    node = {
        "metadata": {"resourceVersion": "3", "annotations": {node_writes.CHANGED_ANNOTATION: note}},
        "spec": {
            "taints": [node_writes.TAINT, {"key": "other", "effect": "NoExecute"}],
            "unschedulable": True,
        },
        "status": {"conditions": [condition, {"type": "Ready", "status": "True", "lastTransitionTime": "t"}]},
    }
    yield msgspec.json.encode(node)

"""The warm table: which containers an inventory has, and which ends a restarted daemon records."""

from __future__ import annotations

import gc
import hashlib
import os
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest
import trio
import trio.testing
from google.protobuf.message import Message
from msgspec.structs import replace

from ebbtide.actors.edges.cri import api_pb2 as api
from ebbtide.actors.edges.cri import cri_client, cri_pods, cri_runtime
from ebbtide.actors.edges.cri.cri_pods import ContainerEntry, InventoryContainer, PodEntry, PodTable
from ebbtide.actors.edges.kubernetes.known_pods import KnownPod, PodStore
from ebbtide.actors.edges.linux import proc
from ebbtide.actors.edges.linux.processes import ExitStatus
from ebbtide.actors.edges.pod_spec import ContainerSpec, hook_of
from ebbtide.actors.interfaces import Ending
from ebbtide.events.bounds import Bounds
from ebbtide.events.facts import ContainerExited
from ebbtide.events.units import bound_text
from tests.actors.edges.cri.conftest import Told, kill, stop
from tests.actors.edges.process.process_bed import Outbox

BOUNDS = Bounds()


def id_of(*names: str) -> str:
    return hashlib.sha256("/".join(names).encode()).hexdigest()


def pod(table: PodTable, uid: str, *names: str, sandbox: str = "") -> PodEntry:
    made = table.pods.setdefault(sandbox or f"s-{uid}", PodEntry(uid, "ns", uid, sandbox or f"s-{uid}"))
    for name in names:
        made.containers[name] = ContainerEntry(made, id_of(uid, name), ContainerSpec(name=name, argv=()))
    return made


def test_our_own_pod_is_in_no_wave() -> None:
    """Leave out the pod whose container ID is in our own cgroup, or that is configured."""
    table = PodTable(frozenset({"told"}))
    for uid in ("web", "ours", "told"):
        pod(table, uid, "main")
    cgroups = f"4:pids:/kubepods/pod1/{id_of('ours', 'main')}\n0::/\n"
    table.own |= cri_runtime.pods_of_cgroups(table.entries(), cgroups)
    assert [each.uid for each in table.active()] == ["web"]


@pytest.mark.parametrize("foreign", ["", "/", ":/", "kubelet.service", "a" * 63, "a" * 65, "A" * 64])
def test_an_id_that_is_none(foreign: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A malicious API server must not get a process of the node listed."""
    groups = f"0::/system.slice/kubelet.service/cri-containerd-{'a' * 66}.scope/{'A' * 64}\n"
    monkeypatch.setattr(proc, "cgroups_of", lambda pid: groups)
    assert cri_pods.first_processes((foreign, "a" * 64)) == {}
    stat = proc.read_stat(os.getpid())
    assert stat is not None
    entry = ContainerEntry(PodEntry("web", "ns", "web", ""), foreign, ContainerSpec(name="main", argv=()))
    assert not cri_pods.open_first_process(entry, stat.pid, stat.start_ticks)
    assert entry.pidfd < 0
    assert cri_runtime.pods_of_cgroups([entry], groups) == frozenset()


@pytest.mark.parametrize(
    "group", ["cri-containerd-{}.scope", "crio-{}.scope", "system.slice:docker:{}", "{}"]
)
def test_an_id_in_a_group(group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    key, pid = id_of("web", "main"), os.getpid()
    groups = {pid: f"1:name=systemd:/kubepods/pod-{id_of('uid')}\n0::/kubepods/{group.format(key)}/inner\n"}
    monkeypatch.setattr(proc, "cgroups_of", lambda pid: groups.get(pid, "0::/\n"))
    found = cri_pods.first_processes((key, id_of("other")))
    assert [(each, at) for each, (at, _) in found.items()] == [(key, pid)]


def test_a_child_with_a_lower_pid_is_not_the_first_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pids began again within the tick in which the container started. 302 is an exec, such as a hook."""
    key, own = id_of("web", "main"), proc.read_stat(os.getpid())
    assert own is not None
    stats = {
        pid: own._replace(pid=pid, parent_pid=parent, start_ticks=ticks)
        for pid, parent, ticks in ((32767, 1, 7), (300, 32767, 7), (301, 300, 7), (302, 1, 8))
    }
    monkeypatch.setattr(proc, "all_pids", lambda: list(stats))
    monkeypatch.setattr(proc, "read_stat", stats.get)
    monkeypatch.setattr(proc, "cgroups_of", lambda pid: f"0::/kubepods/cri-containerd-{key}.scope\n")
    assert cri_pods.first_processes([key]) == {key: (32767, 7)}
    assert cri_pods.without_exec([key]) == set()
    del stats[302]
    assert cri_pods.without_exec([key, id_of("other")]) == {key}


def test_what_former_shutdowns_were_given_is_forgotten() -> None:
    """Forget a container that ended in a former shutdown and was restarted. Keep one that still runs, even
    without its sandbox.
    """
    table = PodTable()
    web, going = pod(table, "web", "main"), pod(table, "going", "main")
    lasting = going.containers["main"]
    table.give([web, going], anew=True)
    table.pods = {key: each for key, each in table.pods.items() if each is not going}
    for number in range(50):
        before = web.containers["main"]
        before.finish(ExitStatus(exit_code=0))
        table.put(ContainerEntry(web, f"again-{number}", ContainerSpec(name="main", argv=())))
        # Until the next shutdown an order addresses the old container.
        assert table.find("web", "main") is before
        table.give([web], anew=True)
        assert table.find("web", "main") is web.containers["main"]
    assert lasting.id in table.followed
    assert len(table.followed) == 2
    gc.collect()
    assert sum(isinstance(each, ContainerEntry) and each.pod is web for each in gc.get_objects()) <= 3


def test_what_a_shutdown_was_told_is_kept_for_this_boot(tmp_path: Path) -> None:
    """Only a daemon of the same boot reads an undamaged file."""
    told = [InventoryContainer(uid="web", container="main", id="x")]
    cri_pods.InventoryFile(tmp_path / "cri", "boot").store(told)
    assert cri_pods.InventoryFile(tmp_path / "cri", "boot").load() == tuple(told)
    assert cri_pods.InventoryFile(tmp_path / "cri", "other").load() == ()
    (tmp_path / "cri" / cri_pods.INVENTORY_FILE_NAME).write_bytes(b"\xc1")
    assert cri_pods.InventoryFile(tmp_path / "cri", "boot").load() == ()


# Sandboxes and containers without a state do not delay the others.


DEAD = cri_client.RuntimeRefused("PodSandboxStatus: UNKNOWN: ttrpc: closed")
HANGS = cri_client.Lost("ContainerStatus: no answer in 5 s")
NUMBERS = ("1", "2", "3")


class Shims:
    """A runtime with three pods. ``broken``: its error instead of a state. ``ended``: exit codes of unlisted
    containers. ``unsure``: containers unknown to it. ``hanging``: methods and objects without an answer.
    """

    def __init__(self) -> None:
        self.broken: dict[str, Exception] = {}
        self.ended: dict[str, int] = {}
        self.unsure: set[str] = set()
        self.image = ""
        self.image_error: Exception | None = None
        self.asked_images: list[str] = []
        self.id_of: Callable[[str], str | None] = lambda number: None
        self.annotations: dict[str, str] = {}
        self.stop_signal = api.RUNTIME_DEFAULT
        self.away = False
        self.asked: list[str] = []
        self.hanging: tuple[str, ...] = ()
        self.state_seconds = 0.0

    async def ready(self, seconds: float) -> None:
        if self.away:
            raise cri_client.Lost("the runtime is away")

    async def call(self, request: Message, seconds: float, **more: Any) -> Any:
        name = cri_client.method_of(request)
        key = getattr(request, "container_id", "") or getattr(request, "pod_sandbox_id", "")
        if name in self.hanging or key in self.hanging:
            await trio.sleep(seconds)
            raise cri_client.Lost(f"{name}: no answer in {bound_text(seconds)}")
        if self.state_seconds and name.endswith("Status"):
            await trio.sleep(self.state_seconds)
        if name == "ListPodSandbox":
            return api.ListPodSandboxResponse(items=[_sandbox(each) for each in NUMBERS])
        if name == "ListContainers":
            left = [each for each in NUMBERS if f"c{each}" not in self.ended]
            return api.ListContainersResponse(containers=[self._container(each) for each in left])
        if name == "ImageStatus":
            self.asked_images.append(cast(api.ImageStatusRequest, request).image.image)
            if self.image_error is not None:
                raise self.image_error
            return api.ImageStatusResponse(info={"info": self.image})
        if name == "Version":
            if self.away:
                raise cri_client.Lost("the runtime is away")
            return api.VersionResponse(version="v1")
        self.asked.append(key)
        if key in self.broken:
            raise self.broken[key]
        if name == "PodSandboxStatus":
            network = api.PodSandboxNetworkStatus(ip="10.0.0.1")
            return api.PodSandboxStatusResponse(status=api.PodSandboxStatus(network=network))
        if key in self.unsure:
            return api.ContainerStatusResponse(status=api.ContainerStatus(state=api.CONTAINER_UNKNOWN))
        if key in self.ended:
            over = api.ContainerStatus(state=api.CONTAINER_EXITED, exit_code=self.ended[key])
            return api.ContainerStatusResponse(status=over)
        running = api.ContainerStatus(
            state=api.CONTAINER_RUNNING, stop_signal=self.stop_signal, image_ref=f"image-{key}"
        )
        return api.ContainerStatusResponse(status=running)

    repeat = call

    def _container(self, number: str) -> api.Container:
        labels = {cri_pods.CONTAINER_NAME_LABEL: "main"}
        return api.Container(
            id=self.id_of(number) or f"c{number}",
            pod_sandbox_id=f"s{number}",
            created_at=int(number),
            labels=labels,
            annotations=self.annotations,
        )


def _sandbox(number: str) -> api.PodSandbox:
    labels = {
        cri_pods.POD_UID_LABEL: f"u{number}",
        cri_pods.POD_NAME_LABEL: f"p{number}",
        cri_pods.POD_NAMESPACE_LABEL: "ns",
    }
    return api.PodSandbox(id=f"s{number}", created_at=int(number), labels=labels)


class Rig:
    def __init__(self, shims: Any = None) -> None:
        self.shims, self.table, self.said = shims or Shims(), PodTable(), list[str]()
        self.new: list[ContainerEntry] = []
        self.gone: list[ContainerEntry] = []
        tell = lambda level, line: self.said.append(line)  # noqa: E731 - one line of a test
        self.listing = cri_runtime.Listing(self.shims, self.table, self.new.append, self.gone.append, tell)

    def known(self) -> list[str]:
        return [pod.uid for pod in self.table.active()]


@pytest.mark.parametrize("unsure", ["unknown", "lost"])
async def test_a_container_with_a_lost_shim_has_not_ended(
    unsure: str, autojump_clock: trio.abc.Clock
) -> None:
    """Its end waits for the runtime's word, also when the kubelet has started a successor meanwhile."""
    shims, table, out = Shims(), PodTable(), Outbox()
    async with trio.open_nursery() as nursery:
        ends = cri_runtime.ContainerEnds(cast(Any, shims), table, nursery.start_soon, out)
        listing = cri_runtime.Listing(cast(Any, shims), table, ends.follow, ends.miss)
        await listing.refresh()
        table.give(table.active(), anew=True)
        pod = table.pods["s2"]
        shims.ended["c2"] = 5
        if unsure == "unknown":
            shims.unsure.add("c2")
        else:
            shims.broken["c2"] = HANGS
        await listing.refresh()
        await trio.sleep(2)
        assert (out.facts, pod.running) == ([], True)
        table.put(ContainerEntry(pod, "again", ContainerSpec(name="main", argv=())))
        shims.unsure.clear()
        shims.broken.clear()
        await listing.refresh()
        await trio.sleep(2)
        assert [(fact.uid, fact.exit_code) for fact in out.of(ContainerExited)] == [("u2", 5)]
        nursery.cancel_scope.cancel()


async def test_a_sandbox_with_a_dead_shim(autojump_clock: trio.abc.Clock) -> None:
    """The pod has no address until the runtime reports it. It is asked rarely; the operator reads it once."""
    rig = Rig()
    rig.shims.broken["s1"] = DEAD
    for _ in range(3):
        await rig.listing.refresh()
    assert rig.known() == ["u1", "u2", "u3"]
    assert [rig.table.pods[f"s{number}"].pod_ip for number in NUMBERS] == ["", "10.0.0.1", "10.0.0.1"]
    assert rig.said == [f"container runtime: no address is known of the pod ns/p1: {DEAD}"]
    assert rig.shims.asked.count("s1") == 1
    rig.shims.broken.clear()
    await trio.sleep(cri_runtime.BROKEN_AGAIN_SECONDS)
    await rig.listing.refresh()
    assert rig.table.pods["s1"].pod_ip == "10.0.0.1"


async def test_a_container_that_is_late(autojump_clock: trio.abc.Clock) -> None:
    """The list shows it running, so a shutdown gets it with the list's data. The state is requested again
    later.
    """
    rig = Rig()
    rig.shims.annotations = {
        cri_pods.PRE_STOP_ANNOTATION: '{"exec": {"command": ["/bye"]}}',
        cri_pods.GRACE_ANNOTATION: "7",
    }
    rig.shims.stop_signal = api.SIGUSR1
    rig.shims.broken["c2"] = HANGS
    await rig.listing.refresh()
    assert rig.known() == ["u1", "u2", "u3"]
    entry = rig.table.find("u2", "main")
    assert entry is not None
    assert (entry.spec.stop_signal, entry.pod.grace_seconds) == ("SIGTERM", 7)
    assert hook_of(entry.spec.pre_stop) is not None
    for _ in range(3):
        await rig.listing.refresh()
    assert rig.said == [f"container runtime: a container of ns/p2 is taken as it is listed: {HANGS}"]
    assert rig.shims.asked.count("c2") == 1
    rig.shims.broken.clear()
    await trio.sleep(cri_runtime.BROKEN_AGAIN_SECONDS)
    await rig.listing.refresh()
    assert rig.table.find("u2", "main") is entry
    assert entry.spec.stop_signal == "SIGUSR1"


@pytest.mark.parametrize("error", [DEAD, HANGS], ids=["refused", "hangs"])
async def test_a_state_is_not_told_of_what_has_a_process(
    error: Exception,
    process: subprocess.Popen[bytes],
    autojump_clock: trio.abc.Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Use the process from the container's cgroup; a later state agrees."""
    rig, key = Rig(), id_of("web")
    monkeypatch.setattr(rig.shims, "id_of", {"2": key}.get)
    rig.shims.broken[key] = error
    groups = {process.pid: f"0::/kubepods/cri-containerd-{key}.scope\n"}
    monkeypatch.setattr(proc, "cgroups_of", lambda pid: groups.get(pid, "0::/\n"))
    with closing(rig.table):
        await rig.listing.refresh()
        entry = rig.table.find("u2", "main")
        assert entry is not None
        before = entry.pid, entry.pidfd
        assert before[0] == process.pid
        assert rig.new.count(entry) == 1
        rig.shims.broken.clear()
        await trio.sleep(cri_runtime.BROKEN_AGAIN_SECONDS)
        await rig.listing.refresh()
        assert (entry.pid, entry.pidfd) == before
        assert rig.new.count(entry) == 1


@pytest.mark.parametrize("name", ["PodSandboxStatus", "ContainerStatus", "ImageStatus"])
async def test_states_that_do_not_come(name: str, autojump_clock: trio.abc.Clock) -> None:
    """All states are awaited together; listed containers are included."""
    rig = Rig()
    rig.shims.state_seconds, rig.shims.hanging = 0.3, (name,)
    for most_seconds in (BOUNDS.runtime_look_seconds + BOUNDS.runtime_state_seconds, 0):
        began = trio.current_time()
        await rig.listing.refresh()
        assert trio.current_time() - began <= most_seconds
        assert rig.known() == ["u1", "u2", "u3"]
    rig.shims.hanging = ()
    await trio.sleep(cri_runtime.BROKEN_AGAIN_SECONDS)
    await rig.listing.refresh()
    assert [pod.pod_ip for pod in rig.table.pods.values()] == ["10.0.0.1"] * 3


async def test_the_signal_of_an_image() -> None:
    """One request per image and look. An unreadable image means SIGTERM."""
    rig = Rig()
    rig.shims.image = '{"imageSpec": {"config": {"StopSignal": "SIGQUIT"}}}'
    await rig.listing.refresh()
    assert [entry.spec.stop_signal for entry in rig.table.entries()] == ["SIGQUIT"] * 3
    await rig.listing.refresh()
    assert sorted(rig.shims.asked_images) == ["image-c1", "image-c2", "image-c3"]
    other = Rig()
    other.shims.image_error = cri_client.RuntimeRefused("ImageStatus: UNKNOWN")
    await other.listing.refresh()
    assert [entry.spec.stop_signal for entry in other.table.entries()] == ["SIGTERM"] * 3
    assert other.said == []


@pytest.mark.parametrize("lost", ["image", "runtime"])
async def test_a_lost_image_is_asked_again(lost: str, autojump_clock: trio.abc.Clock) -> None:
    """One bad look must not leave SIGTERM to a container whose image names another signal."""
    rig = Rig()
    rig.shims.image = '{"imageSpec": {"config": {"StopSignal": "SIGQUIT"}}}'
    if lost == "image":
        rig.shims.image_error = cri_client.Lost("ImageStatus: no answer in 5 s")
        await rig.listing.refresh()
        await rig.listing.refresh()
        assert (len(rig.shims.asked_images), len(rig.said)) == (3, 3)
    else:
        rig.shims.broken["c2"], rig.shims.away = HANGS, True
        with pytest.raises(cri_client.Lost):
            await rig.listing.refresh()
    rig.shims.broken.clear()
    rig.shims.image_error, rig.shims.away = None, False
    await trio.sleep(cri_runtime.BROKEN_AGAIN_SECONDS)
    await rig.listing.refresh()
    assert [entry.spec.stop_signal for entry in rig.table.entries()] == ["SIGQUIT"] * 3
    asked = list(rig.shims.asked_images)
    await trio.sleep(cri_runtime.BROKEN_AGAIN_SECONDS)
    await rig.listing.refresh()
    assert rig.shims.asked_images == asked


async def test_a_runtime_that_stops_behind_its_lists(autojump_clock: trio.abc.Clock) -> None:
    """The runtime answers nothing at all, so no single object gets a delay."""
    rig = Rig()
    rig.shims.stop_signal = api.SIGUSR1
    rig.shims.state_seconds, rig.shims.hanging = 0.3, ("c1", "c2", "Version")
    with pytest.raises(cri_client.Lost):
        await rig.listing.refresh()
    assert trio.current_time() <= BOUNDS.runtime_look_seconds + 2 * BOUNDS.runtime_state_seconds
    assert (rig.known(), rig.said) == (["u3"], [])
    rig.shims.hanging = ()
    await rig.listing.refresh()
    assert sorted(entry.spec.stop_signal for entry in rig.table.entries()) == ["SIGUSR1"] * 3


class Restart(Rig):
    """The former daemon received three pods and ordered their stops."""

    def __init__(self, shims: Shims | None = None) -> None:
        super().__init__(shims)
        self.outbox, self.runtime = Outbox(), cast(cri_client.CriClient, self.shims)
        self.told = Told()
        start: Callable[..., None] = lambda *work: None  # noqa: E731 - no test here goes through the runtime
        lookup = cast(PodStore, self.told)
        self.ends = cri_runtime.ContainerEnds(self.runtime, self.table, start, self.outbox, lookup)
        before = [InventoryContainer(uid=f"u{n}", container="main", id=f"c{n}") for n in NUMBERS]
        self.table.restore(tuple(before))
        self.ends.owed = before
        self.reach = cri_client.RuntimeReach(self.runtime, self.outbox, lambda *line: None)
        self.warm = trio.Event()
        self.reach.known.set()
        self.orders = cri_runtime.ContainerOrders(
            self.runtime, self.reach, self.table, self.warm, start, lambda key: "", self.ends.code_in_api
        )

    async def look(self) -> None:
        await self.listing.refresh()
        self.warm.set()
        await self.ends.catch_up()

    def ended(self) -> list[tuple[str, int | None, bool]]:
        return [(fact.uid, fact.exit_code, fact.gone) for fact in self.outbox.of(ContainerExited)]


async def test_what_is_listed_has_not_ended(autojump_clock: trio.abc.Clock) -> None:
    """Listed as running without a state: its end waits until it leaves the list."""
    rig = Restart()
    rig.shims.broken["c2"] = DEAD
    rig.shims.ended["c3"] = 7
    await rig.look()
    assert rig.known() == ["u1"]
    assert rig.ended() == [("u3", 7, False)]
    for order in (stop("u2"), kill("u2")):
        assert await rig.orders.carry_out(order, rig.outbox) == Ending("failed", cri_runtime.NOT_KNOWN)
    rig.shims.broken.clear()
    rig.shims.ended["c2"] = 5
    await rig.look()
    assert rig.ended() == [("u3", 7, False), ("u2", 5, False)]
    await rig.look()
    assert len(rig.ended()) == 2
    assert [*rig.table.followed] == ["c1"]


async def test_what_is_said_to_run_has_not_ended() -> None:
    """Unlisted, but its state is not exited: its shim may be lost."""
    rig = Restart()
    rig.shims.ended["c2"] = 5
    rig.shims.unsure.add("c2")
    await rig.look()
    assert await rig.orders.carry_out(stop("u2"), rig.outbox) == Ending("failed", cri_runtime.NOT_KNOWN)
    assert rig.ended() == []
    rig.shims.unsure.clear()
    assert await rig.orders.carry_out(stop("u2"), rig.outbox) == Ending()
    assert rig.ended() == [("u2", 5, False)]


@pytest.mark.parametrize("asked_by", ["look", "order"])
@pytest.mark.parametrize("shown", ["before", "after", "gone"])
async def test_the_api_server_has_the_exit_code_of_a_removed_container(
    shown: str, asked_by: str, autojump_clock: trio.abc.Clock
) -> None:
    """The kubelet removed the container in between. Without the pod's object the code is unknown."""
    rig = Restart()
    told = rig.told
    runs, ended = KnownPod(uid="u2", api_uid="u2", namespace="ns", name="u2"), {"main": 3}
    told.known = [] if shown == "gone" else [replace(runs, ended=ended if shown == "before" else {})]
    rig.shims.ended, rig.shims.broken = {"c2": 3}, {"c2": cri_client.NotFound("no such container")}
    async with trio.open_nursery() as nursery:
        if asked_by == "look":
            nursery.start_soon(rig.look)
        else:
            await rig.listing.refresh()
            rig.warm.set()
            nursery.start_soon(rig.orders.carry_out, stop("u2"), rig.outbox)
        await trio.testing.wait_all_tasks_blocked()
        if shown == "after":
            told.tell(replace(runs, ended=ended))
    assert rig.ended() == [("u2", None, True) if shown == "gone" else ("u2", 3, False)]


@pytest.mark.parametrize("left", ["runtime", "api"])
async def test_a_daemon_that_stood_still_looks_once_more(
    left: str, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    """The time of the look passed while it stood still; meanwhile the kubelet may remove the container."""

    class Still(Shims):
        async def call(self, request: Message, seconds: float, **more: Any) -> Any:
            if not self.asked:
                self.asked.append("c2")
                autojump_clock.jump(9)
                await trio.sleep_forever()
            return await super().call(request, seconds, **more)

    async def unreaped(pidfd: int) -> ExitStatus:
        return ExitStatus()

    monkeypatch.setattr(cri_runtime, "reap_soon", unreaped)
    rig, readable = Restart(Still()), os.eventfd(1)
    entry = ContainerEntry(
        PodEntry("u2", "ns", "p2", "s2"), "c2", ContainerSpec(name="main", argv=()), 7, readable
    )
    if left == "runtime":
        rig.shims.ended = {"c2": 3}
    else:
        rig.shims.broken["c2"] = cri_client.NotFound("no such container")
        rig.told.known = [KnownPod(uid="u2", api_uid="u2", namespace="ns", name="u2", ended={"main": 3})]
    await rig.ends._watch(entry)
    assert entry.end == ExitStatus(exit_code=3)


async def test_states_of_the_ended_that_do_not_come(autojump_clock: trio.abc.Clock) -> None:
    """The list shows them as not running: they are gone. All states are awaited together."""
    rig = Restart()
    rig.shims.hanging = ("ContainerStatus",)
    rig.shims.ended = dict.fromkeys(("c1", "c2", "c3"), 0)
    began = trio.current_time()
    await rig.look()
    assert trio.current_time() - began == BOUNDS.runtime_look_seconds
    assert sorted(rig.ended()) == [(f"u{number}", None, True) for number in NUMBERS]


async def test_a_runtime_that_has_not_answered(autojump_clock: trio.abc.Clock) -> None:
    """Without a list no container is recorded as ended."""
    rig = Restart()
    rig.shims.hanging = ("ContainerStatus",)
    rig.warm.set()
    for order in (stop("u2"), kill("u2")):
        assert await rig.orders.carry_out(order, rig.outbox) == Ending("failed", cri_runtime.NOWHERE)
    assert rig.ended() == []

"""Mounted volumes in the kernel's table, and the kubelet's health."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from jeepney import DBusAddress

from ebbtide.actors.edges import kubelet_unit as unit_module
from ebbtide.actors.edges.kubelet_unit import KubeletEdge, KubeletUnit, health_endpoint, main_process
from ebbtide.actors.edges.linux import bus as bus_module
from ebbtide.actors.edges.linux import proc
from ebbtide.actors.edges.linux.bus import BusError, BusRefused
from ebbtide.actors.edges.service_manager import SYSTEMD
from ebbtide.actors.interfaces import Ending
from ebbtide.events import bounds
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.decisions import AwaitUnmounts, CheckMounts, StartKubelet, StopKubelet
from ebbtide.events.facts import KubeletRead
from tests.actors.edges.process.process_bed import Outbox
from tests.actors.edges.process.test_hooks import serving
from tests.waiting import WATCHDOG_SECONDS

ROOT = PurePosixPath("/var/lib/kubelet")


def line(path: str, device: str = "8:16", kind: str = "ext4") -> str:
    return f"100 1 {device} / {path} rw,relatime shared:1 - {kind} /dev/sdb rw\n"


def used(*lines: str) -> tuple[tuple[str, str], ...]:
    return unit_module.mounted_volumes("".join((line("/", "8:1"), *lines)), ROOT)


PODS = f"{ROOT}/pods"
SHARED = f"{ROOT}/plugins/kubernetes.io/csi/disk.example/0a1b/globalmount"
SUBPATHS = f"{PODS}/u3/volume-subpaths"


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        # Mounts of shareable plugins, with their pod; also a raw device.
        ([line(f"{PODS}/u1/volumes/kubernetes.io~csi/data/mount")], [("u1", "data")]),
        ([line(f"{PODS}/u1/volumes/kubernetes.io~nfs/my\\040data")], [("u1", "my data")]),
        ([line(f"{PODS}/u1/volumes/kubernetes.io~local-volume/data/mount")], [("u1", "data")]),
        ([line(f"{PODS}/u2/volumeDevices/kubernetes.io~csi/raw", "0:6", "devtmpfs")], [("u2", "raw")]),
        # A driver's mount for all pods of the node.
        ([line(SHARED)], [("", SHARED)]),
        # Memory and projected files vanish with the boot.
        (
            [line(f"{PODS}/u1/volumes/{each}/x", "0:50", "tmpfs") for each in unit_module.NODE_LOCAL_PLUGINS],
            [],
        ),
        # A subpath does not name its plugin. On the kubelet's own disk, or in memory, it is no volume.
        ([line(f"{SUBPATHS}/data/main/0"), line(f"{SUBPATHS}/data/main/1")], [("u3", "data")]),
        ([line(f"{SUBPATHS}/scratch/main/0", "8:1"), line(f"{SUBPATHS}/token/main/0", "0:50", "tmpfs")], []),
        ([line(str(ROOT), "8:32"), line(f"{SUBPATHS}/scratch/main/0", "8:32")], []),
        # The kubelet's folder, its plugin folder, and unrelated mounts.
        ([line(str(ROOT)), line(f"{ROOT}/plugins"), line("/var/lib/kubelet2/pods/u/volumes/x~y/z")], []),
        ([line("/run/containerd/io.containerd.runtime.v2.task/k8s.io/abc/rootfs")], []),
    ],
)
def test_which_mounts_are_volumes_in_use(lines: list[str], found: list[tuple[str, str]]) -> None:
    assert used(*lines) == tuple(found)


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=300))
def test_any_table_is_read(text: str) -> None:
    """Lines that are none are passed over."""
    found = unit_module.mounted_volumes(text, ROOT)
    assert found == tuple(dict.fromkeys(found))


# Orders that the kubelet's edge refuses, and a missing service manager.


NOWHERE = "unix:path=/nowhere/bus"


@pytest.mark.parametrize("name", unit_module.KUBELET_WITH_RUNTIME)
async def test_a_unit_that_is_the_runtime_too_is_not_stopped(name: str) -> None:
    """k3s, for example: its unit also owns the container socket."""
    edge, outbox = KubeletEdge(f"{name}.service", address=NOWHERE), Outbox()
    ending = await edge.adopt(StopKubelet(key="s"), outbox)
    assert outbox.facts == [KubeletRead(unit=f"{name}.service", stoppable=False)]
    assert ending == Ending(
        "failed",
        f"{name}.service is the kubelet and the container runtime in one: "
        "without it no container could be stopped",
    )


async def test_no_bus() -> None:
    """Each read and each order fails with one line."""
    edge, outbox = KubeletEdge("kubelet.service", Path("/nowhere"), address=NOWHERE), Outbox()
    for order in (StopKubelet(key="s"), StartKubelet(key="t")):
        ending = await edge.adopt(order, outbox)
        assert ending is not None
        assert ending.result == "failed"
        assert "is dbus running?" in ending.reason
    assert outbox.facts == [KubeletRead(unit="kubelet.service", active=None)]


# A stop, with a service manager that answers or not.


UNIT_PATH = f"{SYSTEMD.object_path}/unit/kubelet_2eservice"
NO_SUCH_OBJECT = "org.freedesktop.DBus.Error.UnknownObject"


class Manager:
    """One unit; a stop ends it at once."""

    def __init__(self) -> None:
        self.state, self.job = "active", ""
        #: PID, and start time in monotonic microseconds.
        self.main = (0, 0)

    async def method(
        self, target: DBusAddress, name: str, sign: str = "", *body: Any, answer: str | None = None
    ) -> tuple[Any, ...]:
        if name == "StopUnit":
            self.state = "inactive"
        return (UNIT_PATH,)

    async def get(self, target: DBusAddress, name: str) -> Any:
        if name == "JobType":
            if not self.job:
                raise BusRefused(NO_SUCH_OBJECT, "")
            return self.job
        return {
            "ActiveState": self.state,
            "LoadState": "loaded",
            "Job": (1, "/job/1") if self.job else (0, "/"),
            "MainPID": self.main[0],
            "ExecMainStartTimestampMonotonic": self.main[1],
        }[name]


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Manager:
    """Asked by every `Unit` of the test."""
    made = Manager()

    async def ask(address: str, work: Callable[[Manager], Awaitable[Any]]) -> Any:
        return await work(made)

    monkeypatch.setattr(unit_module, "ask_once", ask)
    return made


@contextlib.contextmanager
def process(*argv: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A process, with its start time in monotonic microseconds."""
    slept = time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
    with subprocess.Popen(argv) as made:
        stat = proc.read_stat(made.pid)
        assert stat is not None
        started_us = round((stat.start_ticks / os.sysconf("SC_CLK_TCK") - slept) * 1_000_000)
        try:
            yield made, started_us
        finally:
            made.kill()


async def hung(address: str, work: object) -> None:
    await trio.sleep_forever()


async def no_bus(address: str, work: object) -> None:
    raise BusError("the bus has gone")


@pytest.mark.parametrize("asked", [hung, no_bus])
async def test_a_manager_that_does_not_answer(
    manager: Manager, monkeypatch: pytest.MonkeyPatch, asked: Callable[..., Awaitable[None]]
) -> None:
    """The last known process is enough to end the kubelet: a wave does not wait for a bus."""
    outbox = Outbox()
    edge = KubeletEdge("kubelet.service", Path("/nowhere"), address="bus")
    patient = bounds.Bounds().widened(WATCHDOG_SECONDS)
    monkeypatch.setattr(bounds, "now", patient._replace(unit_answer_seconds=0.1))
    with process("sleep", "infinity") as (made, started_us):
        manager.main = (made.pid, started_us)
        await edge._look(outbox)
        monkeypatch.setattr(unit_module, "ask_once", asked)
        ending = await edge._stop(StopKubelet(key="s"), outbox)
        assert made.wait() == -signal.SIGTERM
    assert (ending.result, ending.reason.partition(":")[0]) == ("done", "by SIGTERM to its process")


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds of a stop, divided by five."""
    patient, usual = bounds.Bounds().widened(WATCHDOG_SECONDS), bounds.Bounds().widened(1 / 5)
    names = ("unit_answer_seconds", "kubelet_stop_seconds", "bus_connect_seconds", "bus_call_seconds")
    hurried = patient._replace(**{name: getattr(usual, name) for name in names})
    monkeypatch.setattr(bounds, "now", hurried)


@contextlib.contextmanager
def hung_kubelet(manager: Manager) -> Iterator[subprocess.Popen[bytes]]:
    """Obeys no signal but SIGKILL."""
    with process("sleep", "infinity") as (made, started_us):
        made.send_signal(signal.SIGSTOP)
        manager.main = (made.pid, started_us)
        yield made


async def test_a_stop_that_the_manager_carries_out(manager: Manager) -> None:
    """A stop waits for the process's end; without a process it returns at once."""
    unit = KubeletUnit("bus", "kubelet.service")
    assert await unit.stop() == Ending()
    assert await unit.stop() == Ending()
    manager.state = "active"
    with process("sleep", "0.1") as (made, started_us):
        manager.main = (made.pid, started_us)
        assert await unit.stop() == Ending()
    assert unit.answered


async def test_a_kubelet_that_does_not_obey_the_manager(manager: Manager, hurried: None) -> None:
    unit = KubeletUnit("bus", "kubelet.service")
    with hung_kubelet(manager) as made:
        assert await unit.stop() == Ending("done", "by SIGKILL to its process")
        assert made.wait() == -signal.SIGKILL


async def test_a_bus_and_a_kubelet_that_hang(
    manager: Manager, hurried: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel accepts the connection, but no process answers: the edge kills the kubelet."""
    unit = KubeletUnit(f"unix:path={tmp_path}/bus", "kubelet.service")
    with hung_kubelet(manager) as made, socket.socket(socket.AF_UNIX) as bus:
        assert await unit.active()
        monkeypatch.setattr(unit_module, "ask_once", bus_module.ask_once)
        bus.bind(str(tmp_path / "bus"))
        bus.listen()
        ending = await unit.stop()
        assert made.wait() == -signal.SIGKILL
    assert (ending.result, ending.reason.partition(":")[0]) == ("done", "by SIGKILL to its process")


async def test_a_kubelet_that_was_looked_at_while_it_is_ended(
    manager: Manager, hurried: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look that finds another process closes the first one's descriptor; the stop keeps its own."""
    unit = KubeletUnit("bus", "kubelet.service")
    ask = unit_module.ask_once
    with hung_kubelet(manager) as made, process("sleep", "infinity") as (other, started_us):
        assert await unit.active()

        async def look() -> None:
            await trio.sleep(1.5 * bounds.now.unit_answer_seconds)
            monkeypatch.setattr(unit_module, "ask_once", ask)
            manager.main = (other.pid, started_us)
            assert await unit.active()

        monkeypatch.setattr(unit_module, "ask_once", hung)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(look)
            ending = await unit.stop()
        assert made.wait() == -signal.SIGKILL
        assert other.poll() is None
    assert ending.result == "done"


async def test_a_stop_without_an_answer_is_bounded(
    manager: Manager, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.abc.Clock
) -> None:
    """Without a process and without an answer, the order still ends."""
    monkeypatch.setattr(unit_module, "ask_once", hung)
    ending = await KubeletUnit("bus", "kubelet.service").stop()
    assert ending == Ending("failed", "the service manager did not answer within 500 ms")
    assert trio.current_time() == bounds.now.unit_answer_seconds


def test_another_process_of_the_same_number() -> None:
    """The service manager may count PIDs in another namespace, and PIDs are reused."""
    with process("sleep", "infinity") as (made, started_us):
        assert main_process(made.pid, started_us - 5_000_000) is None
        found = main_process(made.pid, started_us)
        assert found is not None
        os.close(found.pidfd)
    assert main_process(0, 0) is None


def test_a_process_that_was_started_before_the_machine_slept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel counts start times from boot. The service manager leaves out the time asleep, and only
    the total sleep is known.
    """
    boot_seconds = time.clock_gettime

    def slept(clock: int) -> float:
        return boot_seconds(clock) + 3600 * (clock == time.CLOCK_BOOTTIME)

    with process("sleep", "infinity") as (made, started_us):
        monkeypatch.setattr(time, "clock_gettime", slept)
        assert main_process(made.pid, started_us + 5_000_000) is None
        assert main_process(made.pid, started_us - 3_605_000_000) is None
        for found in (main_process(made.pid, started_us - us) for us in (0, 1_800_000_000, 3_600_000_000)):
            assert found is not None
            os.close(found.pidfd)


@pytest.mark.parametrize(
    ("state", "job", "active"),
    [
        ("active", "", True),
        ("active", "stop", True),
        ("reloading", "", True),
        ("activating", "", True),
        ("activating", "start", True),
        ("deactivating", "", True),
        ("deactivating", "restart", True),
        ("deactivating", "start", True),
        ("deactivating", "stop", False),
        ("inactive", "", False),
        ("inactive", "start", True),
        ("failed", "", False),
        ("failed", "restart", True),
    ],
)
async def test_what_counts_as_active(manager: Manager, state: str, job: str, active: bool) -> None:
    """Inactive means: no component will start it again."""
    manager.state, manager.job = state, job
    assert await KubeletUnit("bus", "kubelet.service").active() is active


# --- its health endpoint


@pytest.mark.parametrize(
    "answer, healthy",
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", True),
        (b"HTTP/1.1 500 Internal Server Error\r\n\r\n", False),
        (b"SSH-2.0-OpenSSH_9.2\r\n", False),
        (b"", None),
    ],
    ids=["well", "ill", "another", "gone"],
)
async def test_health(answer: bytes, healthy: bool | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a good answer is healthy. A closed connection means gone."""
    monkeypatch.setattr(bounds, "now", bounds.Bounds(kubelet_silent_seconds=WATCHDOG_SECONDS))
    async with serving(answer) as server:
        assert await unit_module.ask_health(unit_module.HEALTH_ADDRESS, server.port) is healthy


async def test_silence_is_not_health(autojump_clock: trio.abc.Clock) -> None:
    """The kernel accepts the connection, but no process answers."""
    with socket.create_server((unit_module.HEALTH_ADDRESS, 0)) as silent:
        assert await unit_module.ask_health(*silent.getsockname()) is False


@pytest.mark.parametrize(
    "text, expected",
    [
        ("healthzPort: 11248", ("127.0.0.1", 11248)),
        ("healthzBindAddress: ::1", ("::1", 10248)),
        ("healthzPort: 0", None),
        ("healthzPort: true", ("127.0.0.1", 10248)),
        ("healthzPort: false", ("127.0.0.1", 10248)),
        ("healthzPort: {}", ("127.0.0.1", 10248)),
        ("healthzPort: 70000", ("127.0.0.1", 10248)),
        ("[", ("127.0.0.1", 10248)),
        ("", ("127.0.0.1", 10248)),
    ],
)
def test_where_its_health_is_asked(tmp_path: Path, text: str, expected: tuple[str, int] | None) -> None:
    """The address comes from the kubelet's configuration; invalid values leave the kubelet's defaults."""
    (tmp_path / unit_module.KUBELET_CONFIG).write_text(text)
    assert health_endpoint(tmp_path / unit_module.KUBELET_CONFIG) == expected


def test_no_configuration(tmp_path: Path) -> None:
    """Without a regular file the defaults apply, and the daemon survives."""
    (tmp_path / "device").symlink_to("/dev/null")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    for kind in ("none", "device", "fifo", "folder"):
        assert health_endpoint(tmp_path / kind) == (unit_module.HEALTH_ADDRESS, unit_module.HEALTH_PORT)


# --- mounts that are waited for; the kernel's own are in test_kubelet_mounts_real.py


async def do(edge: KubeletEdge, order: CheckMounts | AwaitUnmounts, outbox: Outbox) -> Ending:
    ending = edge.effects[type(order)](order, outbox)
    assert not isinstance(ending, Ending)
    return await ending


async def test_a_table_that_cannot_be_read(tmp_path: Path) -> None:
    """An unreadable table yields no mount report."""
    edge = KubeletEdge("k.service", tmp_path, mount_table=tmp_path / "none", address="unix:path=/nowhere")
    outbox = Outbox()
    reason = f"cannot read {tmp_path}/none: No such file or directory"
    assert await do(edge, CheckMounts(key="c"), outbox) == Ending("failed", reason)
    order = AwaitUnmounts(key="w", uids=("u1",), timeout_ns=NS_PER_SECOND)
    assert await do(edge, order, outbox) == Ending("failed", reason)
    assert outbox.facts == []

"""A real containerd: killed or hung, late and restarted pods, hooks. Each container gets one stop signal."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from ebbtide.actors.edges.cri import cri_runtime as runtime_module
from ebbtide.actors.edges.cri.cri_runtime import EXEC_TOO_LOUD
from ebbtide.actors.edges.linux import proc
from ebbtide.actors.edges.linux.processes import ExitStatus
from ebbtide.actors.interfaces import Ending
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.decisions import RunHook
from ebbtide.events.facts import ContainerExited, InventoryTaken, PodJoined
from tests.actors.edges.cri.conftest import kill, rig_on, stop, take
from tests.actors.edges.cri.pods import CODE_3, EXITED, NOTES, POLITE, RUNNING, SERVER, Kubelet, Spec, Witness
from tests.beds.containerd import Containerd
from tests.beds.inside import PROJECT
from tests.proc import each_process
from tests.waiting import until

pytestmark = [pytest.mark.node, pytest.mark.root]

#: Writes a line for each SIGTERM and continues.
COUNTS = "trap 'echo told >> /tmp/told' TERM; touch /tmp/up; while :; do sleep 0.05; done"


@pytest.mark.parametrize("noticed", [True, False], ids=["before", "just now"])
async def test_a_containerd_that_was_killed(
    bed: Containerd, kubelet: Kubelet, tmp_path: Path, noticed: bool
) -> None:
    """Containers get exactly one stop signal, also if containerd returns."""
    made = kubelet.pod("counts", Spec(COUNTS))
    async with rig_on(bed, tmp_path) as rig:
        await rig.inventory()
        told = Path(f"/proc/{kubelet.first_process(made.containers['main'])}/root/tmp/told")
        bed.stop()
        try:
            if noticed:
                await until(lambda: "pods that appear are not seen" in "".join(rig.said), "not noticed")
            assert await rig.do(stop("uid-counts")) == Ending()
            await until(told.exists, "no signal")
        finally:
            bed.start()
        assert len(await rig.inventory("again")) == 1
        assert told.read_text() == "told\n"
        await rig.do(kill("uid-counts"))
        await rig.outbox.wait_for(ContainerExited)


async def test_a_shim_that_hangs(bed: Containerd, kubelet: Kubelet, tmp_path: Path) -> None:
    """Lists work, but a stop through the runtime hangs."""
    made = kubelet.pod("wedged", Spec(NOTES))
    witness = Witness(kubelet)
    witness.add("wedged", made)
    async with rig_on(bed, tmp_path) as rig:
        await rig.inventory()
        stat = proc.read_stat(kubelet.first_process(made.containers["main"]))
        assert stat is not None
        os.kill(stat.parent_pid, signal.SIGSTOP)
        try:
            assert await rig.do(stop(made.uid)) == Ending()
            await until(lambda: witness.told() == {"wedged/main": 1}, "no signal")
        finally:
            os.kill(stat.parent_pid, signal.SIGCONT)
        await rig.outbox.wait_for(ContainerExited, uid=made.uid, exit_code=5)
    witness.close()


async def test_what_its_kubelet_has_started_again_joins_once_more(
    bed: Containerd, kubelet: Kubelet, tmp_path: Path
) -> None:
    """The restart joins after the old container's end; later orders address the restart."""
    made = kubelet.pod("web", Spec(CODE_3), Spec(POLITE, "other"))
    async with rig_on(bed, tmp_path) as rig:
        await rig.inventory()
        await rig.do(take("closer", refresh=True, late=True))
        spec = Spec(CODE_3)
        for times in (1, 2):
            await rig.do(stop("uid-web"))
            await rig.outbox.wait_for(ContainerExited, times)
            spec = spec._replace(attempt=times)
            new = kubelet.again("web", made, spec)
            joined = (await rig.outbox.wait_for(PodJoined, times))[-1].pod
            assert [(each.name, each.running) for each in joined.containers] == [
                ("main", True),
                ("other", True),
            ]
            assert kubelet.state(new) == RUNNING
        assert len(rig.outbox.of(PodJoined)) == 2
        await rig.do(kill("uid-web"))
        await until(lambda: kubelet.state(new) != RUNNING, "it was not hit")


async def test_what_was_started_again_while_no_daemon_ran(
    bed: Containerd, kubelet: Kubelet, tmp_path: Path
) -> None:
    """Reported in the first listing, after the old container's end and before the listing's end."""
    made = kubelet.pod("web", Spec(CODE_3))
    async with rig_on(bed, tmp_path) as rig:
        await rig.inventory()
    kubelet.stop_container(made.containers["main"])
    new = kubelet.again("web", made, Spec(POLITE))
    async with rig_on(bed, tmp_path) as rig:
        await rig.do(take("closer", refresh=True, late=True))
        said = [type(fact) for fact in rig.outbox.facts]
        assert [each for each in said if each in (ContainerExited, PodJoined, InventoryTaken)] == [
            ContainerExited,
            PodJoined,
            InventoryTaken,
        ]
        assert rig.outbox.of(ContainerExited)[0].exit_code == 3
        await rig.do(kill("uid-web"))
        await until(lambda: kubelet.state(new) != RUNNING, "it was not hit")


async def test_a_signal_soon_after_the_start(
    bed: Containerd, kubelet: Kubelet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An end from before the daemon's start delays no inventory. If the container runs again, its old end is
    irrelevant.
    """
    old = kubelet.pod("old", Spec(CODE_3), Spec(CODE_3, "other"))
    async with rig_on(bed, tmp_path) as rig:
        await rig.inventory()
    kubelet.stop_container(old.containers["main"])
    again = kubelet.again("old", old, Spec(CODE_3))
    real, asked = runtime_module.exit_of_container, trio.Event()

    async def slow(caller: Any, container_id: str) -> ExitStatus | None:
        if container_id == old.containers["main"]:
            asked.set()
            await go_on.wait()
        return await real(caller, container_id)

    monkeypatch.setattr(runtime_module, "exit_of_container", slow)
    go_on = trio.Event()
    async with rig_on(bed, tmp_path) as rig:
        await asked.wait()
        (pod,) = await rig.inventory(refresh=False)
        assert [(each.name, each.running) for each in pod.containers] == [("other", True), ("main", True)]
        go_on.set()
        await rig.do(stop("uid-old"))
        (ended,) = await rig.outbox.wait_for(ContainerExited)
        assert ended.container == "main"
        await until(lambda: kubelet.state(again) == EXITED, "it was not stopped")


CLONE_NEWNET = 0x40000000
LOUD_HOOKS = 6
#: Of 90 MiB output: connections and buffers, but no hook's whole output.
LOUD_GROWTH_BYTES_MAX = 12 * 1024 * 1024
#: proc(5): this resets the peak of the resident size.
CLEAR_REFS, RESET_PEAK = Path("/proc/self/clear_refs"), "5"


def hook(uid: str, seconds: float = 10) -> RunHook:
    return RunHook(key=f"hook/{uid}", uid=uid, container="main", timeout_ns=int(seconds * NS_PER_SECOND))


@contextmanager
def inside(network: str) -> Iterator[None]:
    """This thread in another network namespace, where the pods' addresses are."""
    libc = ctypes.CDLL(None, use_errno=True)
    home, there = os.open("/proc/thread-self/ns/net", os.O_RDONLY), os.open(network, os.O_RDONLY)
    try:
        assert libc.setns(there, CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
        yield
    finally:
        assert libc.setns(home, CLONE_NEWNET) == 0
        os.close(home)
        os.close(there)


async def test_output_that_nobody_reads(bed: Containerd, kubelet: Kubelet, tmp_path: Path) -> None:
    """The runtime sends up to 16 MiB of output per hook; the edge reads only a little, even of many loud
    hooks. The hooks ran, but their exit codes are in the unread answers.
    """
    loud = {"exec": {"command": ["/bin/sh", "-c", "head -c 15728640 /dev/zero; touch /tmp/ran"]}}
    lines = {"exec": {"command": ["/bin/sh", "-c", "seq 1000; exit 3"]}}
    made = [kubelet.pod(f"loud-{number}", Spec(POLITE, pre_stop=loud)) for number in range(LOUD_HOOKS)]
    kubelet.pod("lines", Spec(POLITE, pre_stop=lines))
    endings: list[Ending] = []
    async with rig_on(bed, tmp_path) as rig:
        await rig.inventory()
        assert await rig.do(hook("uid-lines")) == Ending("failed", "exit code 3", 3)

        async def run_it(uid: str) -> None:
            endings.append(await rig.do(hook(uid)))

        CLEAR_REFS.write_text(RESET_PEAK)
        before = _resident_peak_bytes()
        async with trio.open_nursery() as nursery:
            for each in made:
                nursery.start_soon(run_it, each.uid)
        grown = _resident_peak_bytes() - before
    assert endings == [Ending("unknown", EXEC_TOO_LOUD)] * LOUD_HOOKS
    assert all(kubelet.exec(each.containers["main"], "cat", "/tmp/ran") == 0 for each in made)
    assert grown <= LOUD_GROWTH_BYTES_MAX, f"{grown} bytes"


def _resident_peak_bytes() -> int:
    """proc(5): ``VmHWM``, in KiB."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


async def test_exec_that_does_not_end(bed: Containerd, kubelet: Kubelet, tmp_path: Path) -> None:
    """The runtime cancels a hook at the end of its time."""
    command = {"exec": {"command": ["/bin/sh", "-c", "touch /tmp/began; exec sleep 7777"]}}
    made = kubelet.pod("hangs", Spec(POLITE, pre_stop=command))
    async with rig_on(bed, tmp_path) as rig:
        await rig.inventory()
        assert await rig.do(hook("uid-hangs", 1)) == Ending("timed-out", "the hook's time is over")
        assert kubelet.exec(made.containers["main"], "cat", "/tmp/began") == 0
        await until(lambda: not _running("7777"), "the hook runs on")


def _running(word: str) -> bool:
    return any(word.encode() in line for line in each_process("cmdline").values())


async def test_a_lost_exec_is_not_repeated(bed: Containerd, kubelet: Kubelet, tmp_path: Path) -> None:
    """The runtime goes away during a hook: its outcome is unknown, and it is not repeated."""
    command = {"exec": {"command": ["/bin/sh", "-c", "echo x >> /tmp/runs; sleep 5"]}}
    made = kubelet.pod("lost", Spec(POLITE, pre_stop=command))
    main = made.containers["main"]
    async with rig_on(bed, tmp_path) as rig:
        await rig.inventory()
        endings: list[Ending] = []

        async def run_it() -> None:
            endings.append(await rig.do(hook("uid-lost")))

        rig.nursery.start_soon(run_it)
        await until(lambda: kubelet.exec(main, "cat", "/tmp/runs") == 0, "the hook does not begin")
        bed.stop()
        bed.start()
        await until(lambda: endings, "the hook's outcome does not come")
        assert endings[0].result == "unknown"
        assert kubelet.exec(main, "/bin/sh", "-c", '[ "$(cat /tmp/runs)" = x ]') == 0
        assert await rig.edge.adopt(hook("uid-lost"), rig.outbox) is None


async def test_http_get(bed: Containerd, kubelet: Kubelet, tmp_path: Path) -> None:
    """An httpGet hook asks the pod itself, on a port by its name; any answer will do."""
    ask = {"httpGet": {"port": "web", "path": "/bye", "scheme": "HTTP"}}
    ports = ({"name": "web", "containerPort": 8080, "protocol": "TCP"},)
    made = kubelet.pod("web", Spec(SERVER, pre_stop=ask, ports=ports))
    kubelet.pod("shut", Spec(POLITE, pre_stop={"httpGet": {"port": 8080, "path": "/"}}))
    up = ("/bin/wget", "-q", "-O", "/dev/null", "http://127.0.0.1:8080/bye")
    await until(lambda: kubelet.exec(made.containers["main"], *up) == 0, "no server")
    async with rig_on(bed, tmp_path) as rig:
        await rig.inventory()
        with inside(bed.network):
            assert await rig.do(hook("uid-web")) == Ending()
            assert (await rig.do(hook("uid-shut"))).result == "failed"
    await trio.lowlevel.checkpoint()


# --- where a hook over HTTP goes ---------------------------------------------------------------

ASK = "from ebbtide.actors.edges.cri.cri_runtime import node_address; print(node_address())"
UP = "ip link set d0 up && ip link set d1 up && "
LINK = "ip link add d0 type veth peer name d1 && ip address add {address} dev d0 && " + UP
ROUTE = "ip {family} route add default dev d0 && "


@pytest.mark.parametrize(
    ("setup", "address"),
    [
        ("", "127.0.0.1"),
        (LINK.format(address="10.9.8.7/24"), "127.0.0.1"),
        (LINK.format(address="10.9.8.7/24") + ROUTE.format(family="-4"), "10.9.8.7"),
        (LINK.format(address="fd00::7/64 nodad") + ROUTE.format(family="-6"), "fd00::7"),
    ],
    ids=["none", "no-route", "four", "six"],
)
def test_the_address_of_the_default_route(setup: str, address: str) -> None:
    """The node's own, as the kubelet has it; a node without any way out has only the loopback."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("needs unshare and ip")
    script = f'ip link set lo up && {setup}exec "$0" -c "$1"'
    argv = ["unshare", "--net", "--", "sh", "-c", script, sys.executable, ASK]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=PROJECT, timeout=30)
    assert (done.stdout.strip(), done.stderr) == (address, "")

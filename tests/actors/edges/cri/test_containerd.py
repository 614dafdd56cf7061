"""A real containerd: restarted containers and hooks."""

from __future__ import annotations

import ctypes
import os
import shutil
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
from ebbtide.actors.edges.linux.processes import ExitStatus
from ebbtide.actors.interfaces import Ending
from ebbtide.events.facts import ContainerExited, InventoryTaken, PodJoined
from tests.actors.edges.cri.conftest import hook, kill, rig_on, stop, take
from tests.actors.edges.cri.pods import CODE_3, EXITED, POLITE, RUNNING, SERVER, Kubelet, Spec
from tests.beds.containerd import Containerd
from tests.beds.inside import PROJECT
from tests.proc import each_process
from tests.waiting import until

pytestmark = [pytest.mark.node, pytest.mark.root]


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


# --- where a hook over HTTP goes

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

"""preStop hooks on a real containerd: exec through the runtime, httpGet to the pod's own address."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from ebbtide.actors.edges.cri.orders import EXEC_TOO_LOUD
from ebbtide.actors.interfaces import Ending
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.decisions import RunHook
from tests.actors.edges.cri.conftest import rig_on
from tests.actors.edges.cri.pods import Kubelet, Spec
from tests.actors.edges.cri.test_edge import POLITE, until
from tests.beds.containerd import Containerd
from tests.proc import each_process

pytestmark = [pytest.mark.node, pytest.mark.root]

CLONE_NEWNET = 0x40000000
SERVER = f"mkdir -p /tmp/www; echo hello > /tmp/www/bye; httpd -p 8080 -h /tmp/www; {POLITE}"

LOUD_HOOKS = 6
#: Of 90 MiB that are said: what connections and buffers come to, and not one hook's output.
LOUD_GROWTH_BYTES_MAX = 12 * 1024 * 1024
#: proc(5): this makes the peak of the resident size what it is now.
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


async def test_exec(bed: Containerd, kubelet: Kubelet, tmp_path: Path) -> None:
    """An exec hook runs in its container; its exit code is its outcome, its output stays out."""
    command = {"exec": {"command": ["/bin/sh", "-c", "echo secret; touch /tmp/ran"]}}
    made = kubelet.pod("runs", Spec(POLITE, pre_stop=command))
    kubelet.pod("fails", Spec(POLITE, pre_stop={"exec": {"command": ["/bin/sh", "-c", "exit 7"]}}))
    kubelet.pod("absent", Spec(POLITE, pre_stop={"exec": {"command": ["/bin/nothing-here", "secret"]}}))
    async with rig_on(bed, tmp_path) as rig:
        await rig.inventory()
        assert await rig.do(hook("uid-runs")) == Ending("done", exit_code=0)
        assert kubelet.exec(made.containers["main"], "cat", "/tmp/ran") == 0
        assert await rig.do(hook("uid-fails")) == Ending("failed", "exit code 7", 7)
        absent = await rig.do(hook("uid-absent"))
        assert absent.result == "failed"
        assert "no such file or directory" in absent.reason
        assert "nothing-here" not in absent.reason


async def test_output_that_nobody_reads(bed: Containerd, kubelet: Kubelet, tmp_path: Path) -> None:
    """The runtime sends a hook's whole output, up to 16 MiB: more than a little of it is not taken, however
    many hooks say so much at once. They ran; with what exit code is in the answer that was not taken.
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
    """A hook ends with its time, cancelled in the runtime too: nothing of it runs on."""
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
    """The runtime goes in the middle of a hook: what became of it is unknown, and it is not run again."""
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

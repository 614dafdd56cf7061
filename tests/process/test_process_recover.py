"""The daemon dies and comes back: what runs is found again, exactly, and nothing runs twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import trio
from process_bed import (
    SECOND,
    Bed,
    bed_of,
    held_pids,
    hook_pod,
    nothing_left,
    pod_of,
    python,
    running,
    shell,
    until,
)

from actors.edges.process import proc
from actors.edges.process.hooks import UNTOLD
from actors.edges.process.record import ContainerRecord, Records
from actors.edges.process.spec import ExecAction
from actors.interfaces import Ending
from events.decisions import AnnounceNode, KillContainer, RunHook, StartPod, TakeInventory
from events.facts import ContainerExited, ContainerStarted, InventoryTaken, PodAppeared

START = "start/p"

#: A daemon of its own process: starts its pod, says so, and waits for its death.
DAEMON = """
import sys, trio
from pathlib import Path
sys.path[:0] = [{tests!r}, {root!r}]
from process_bed import running, pod_of, shell, hook_pod
from actors.edges.process.spec import ExecAction

async def main():
    folder = Path({folder!r})
    action = ExecAction(argv=("sh", "-c", {hook!r}))
    pods = [hook_pod("p", action), pod_of("q", shell("trap 'exit 5' TERM; sleep 1000 & wait"))]
    async with running(folder, pods) as bed, trio.open_nursery() as nursery:
        await bed.start("p")
        await bed.start("q")
        nursery.start_soon(bed.order, bed.hook("p"))
        print("up", flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


def facts_of(bed: Bed) -> list[object]:
    return [
        fact
        for fact in bed.outbox.facts
        if isinstance(fact, (ContainerStarted, ContainerExited, PodAppeared))
    ]


async def start_and_leave(folder: Path, *pods: object, **options: object) -> list[int]:
    """A first life: everything started and left alone; the first processes' pids."""
    async with running(folder, list(pods), **options) as bed:  # type: ignore[arg-type]
        for pod, _ in pods:  # type: ignore[misc]
            assert await bed.start(pod.uid) == Ending()
        return [fact.pid for fact in bed.outbox.of(ContainerStarted)]


async def is_followed(bed: Bed, key: str) -> None:
    """Wait until the process of this order is under our eyes."""
    ours = [item for item in bed.processes() if item.stat.session == item.pid]
    (pid,) = (item.pid for item in ours if item.mark is not None and item.mark.order == key)
    await until(lambda: pid in held_pids())


async def test_a_running_pod_is_adopted_and_not_announced_again(tmp_path: Path, use_cgroups: bool) -> None:
    """A new daemon knows the pod at once, starts nothing, and can stop it."""
    pod = pod_of("p", shell("exec sleep 1000"), shell("exec sleep 1000", "two"))
    pids = await start_and_leave(tmp_path, pod, use_cgroups=use_cgroups)
    async with running(tmp_path, [pod], use_cgroups=use_cgroups) as bed:
        await bed.known("p")
        assert set(pids) <= held_pids()
        await bed.signal("p")
        await bed.exited("p")
        assert await bed.kill("p", "two") == Ending()
        await bed.exited("p", "two")
        assert not bed.outbox.of(PodAppeared)
        await nothing_left(bed)


async def test_an_end_in_between_is_reported(tmp_path: Path) -> None:
    """A container that ended while no daemon looked is reported, its leftovers end, and it stays ended."""
    pod = pod_of("p", shell(f"setsid sleep 1000 & echo x > {tmp_path}/ready; exec sleep 1000"))
    (pid,) = await start_and_leave(tmp_path, pod)
    await until(lambda: (tmp_path / "ready").exists())
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    async with running(tmp_path, [pod]) as bed:
        assert await bed.exited("p") == ContainerExited(uid="p", container="main")
        await nothing_left(bed)
        assert facts_of(bed) == [ContainerExited(uid="p", container="main")]


async def test_a_number_alone_is_not_believed(tmp_path: Path) -> None:
    """A recorded number that another process has by now is left in peace."""
    (tmp_path / "state" / "pods").mkdir(parents=True)
    stranger = subprocess.Popen(["sleep", "1000"])
    try:
        pod, spec = pod_of("p", shell("sleep 1000"))
        stat = proc.read_stat(stranger.pid)
        assert stat is not None
        record = ContainerRecord(name="main", pid=stranger.pid, start_ticks=stat.start_ticks - 1)
        Records(tmp_path / "state" / "pods", proc.boot_id()).store(START, pod, spec, (record,))
        async with running(tmp_path, [(pod, spec)]) as bed:
            await bed.exited("p")
            await bed.kill("p")
            await bed.signal("p")
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


async def test_a_record_of_another_boot_means_nothing(tmp_path: Path) -> None:
    """After a reboot the pod is started afresh; the old record is removed."""
    folder = tmp_path / "state" / "pods"
    folder.mkdir(parents=True)
    pod, spec = pod_of("p", shell("exec sleep 1000"))
    Records(folder, "another boot").store(START, pod, spec, ())
    (folder / "torn").write_bytes(b"\x81")
    async with bed_of(tmp_path, (pod, spec)) as bed:
        assert bed.outbox.of(PodAppeared) == [PodAppeared(pod=pod)]
        assert [path.name for path in folder.iterdir()] == ["p"]
        await bed.kill("p")


async def test_a_container_that_the_record_does_not_name_is_found_by_its_marks(tmp_path: Path) -> None:
    """The daemon died between starting a container and writing that down."""
    pod, spec = pod_of("p", shell("setsid sleep 1000 & exec sleep 1000"))
    (pid,) = await start_and_leave(tmp_path, (pod, spec))
    Records(tmp_path / "state" / "pods", proc.boot_id()).store(START, pod, spec, ())
    async with running(tmp_path, [(pod, spec)]) as bed:
        await bed.known("p")
        assert facts_of(bed) == [ContainerStarted(uid="p", container="main", pid=pid)]
        assert await bed.edge.adopt(StartPod(key=START, uid="p"), bed.outbox) == Ending()
        assert {fact.pid for fact in bed.outbox.of(ContainerStarted)} == {pid}
        await bed.kill("p")
        await nothing_left(bed)


async def test_a_pod_whose_record_is_lost_is_found_when_its_manifest_is_read(tmp_path: Path) -> None:
    """Without any record a pod that is up is not started a second time."""
    pod = pod_of("p", shell("exec sleep 1000"), shell("exit 0", "brief"))
    (pid, _) = await start_and_leave(tmp_path, pod)
    (tmp_path / "state" / "pods" / "p").unlink()
    async with running(tmp_path, [pod]) as bed:
        await bed.known("p")
        assert facts_of(bed) == [
            ContainerStarted(uid="p", container="main", pid=pid),
            ContainerExited(uid="p", container="brief"),
        ]
        await bed.kill("p")
        await nothing_left(bed)


async def test_a_start_that_was_cut_short_is_taken_up_again(tmp_path: Path) -> None:
    """An init container that was under way ends, runs again, and the rest of the pod follows."""
    log = tmp_path / "log"
    init = (
        shell("exec sleep 1000", "side", sidecar=True),
        shell(f"echo init >> {log}; test -e {tmp_path}/go || exec sleep 1000", "in"),
    )
    pod = pod_of("p", shell("exec sleep 1000"), init=init)
    order = StartPod(key=START, uid="p")
    async with running(tmp_path, [pod]) as bed, trio.open_nursery() as nursery:
        await bed.outbox.wait_for(PodAppeared)
        nursery.start_soon(bed.order, order)
        await until(lambda: log.exists())
        bed.edge.detach()
        nursery.cancel_scope.cancel()
    (tmp_path / "go").touch()
    async with running(tmp_path, [pod]) as bed:
        assert await bed.edge.adopt(order, bed.outbox) == Ending()
        assert log.read_text().split() == ["init", "init"]
        assert {fact.container for fact in bed.outbox.of(ContainerStarted)} == {"side", "main"}
        await bed.kill("p")
        await bed.kill("p", "side")
        await nothing_left(bed)


async def test_a_start_of_which_nothing_is_known_is_unknown(tmp_path: Path) -> None:
    """Neither a record nor a process: what became of the order cannot be known."""
    async with running(tmp_path, []) as bed:
        assert await bed.edge.adopt(StartPod(key=START, uid="p"), bed.outbox) is None
        order = RunHook(key="h", uid="p", container="main", timeout_ns=SECOND)
        assert await bed.edge.adopt(order, bed.outbox) is None
        assert await bed.edge.adopt(AnnounceNode(key="a", ready=True), bed.outbox) is None


async def test_what_may_be_repeated_is_done_again(tmp_path: Path) -> None:
    """An open kill and an open inventory are simply carried out."""
    pod = pod_of("p", shell("exec sleep 1000"))
    await start_and_leave(tmp_path, pod)
    async with running(tmp_path, [pod]) as bed:
        assert await bed.edge.adopt(TakeInventory(key="i"), bed.outbox) == Ending()
        assert [pod.uid for pod in bed.outbox.of(InventoryTaken)[0].pods] == ["p"]
        order = KillContainer(key="k", uid="p", container="main")
        assert await bed.edge.adopt(order, bed.outbox) == Ending()
        await bed.exited("p")
        await nothing_left(bed)


async def test_a_hook_of_an_earlier_life_is_followed_to_its_end(tmp_path: Path) -> None:
    """The hook goes on while the daemon is away, is not run again, and its end is its order's."""
    action = ExecAction(
        argv=("sh", "-c", f"echo x >> {tmp_path}/hooked; until test -e {tmp_path}/go; do sleep 0.01; done")
    )
    pod = hook_pod("p", action)
    async with running(tmp_path, [pod]) as bed, trio.open_nursery() as nursery:
        await bed.start("p")
        order = bed.hook("p")
        nursery.start_soon(bed.order, order)
        await bed.shows("hooked")
        bed.edge.detach()
        nursery.cancel_scope.cancel()
    async with running(tmp_path, [pod]) as bed, trio.open_nursery() as nursery:
        endings: list[Ending | None] = []

        async def adopt() -> None:
            endings.append(await bed.edge.adopt(order, bed.outbox))

        nursery.start_soon(adopt)
        await is_followed(bed, order.key)
        (tmp_path / "go").touch()
        await until(lambda: endings)
        assert endings[0] is not None
        assert endings[0].result == "done"
        assert (tmp_path / "hooked").read_text() == "x\n"
        await bed.kill("p")
        await nothing_left(bed)


async def test_an_adopted_hook_has_no_more_time_than_it_was_given(tmp_path: Path) -> None:
    """Its time has run on while the daemon was away; when it is over the hook's tree ends."""
    pod = hook_pod("p", ExecAction(argv=("sh", "-c", f"echo x > {tmp_path}/hooked; exec sleep 1000")))
    async with running(tmp_path, [pod]) as bed, trio.open_nursery() as nursery:
        await bed.start("p")
        order = bed.hook("p")
        nursery.start_soon(bed.order, order)
        await bed.shows("hooked")
        bed.edge.detach()
        nursery.cancel_scope.cancel()
    async with running(tmp_path, [pod]) as bed:
        over = msgspec.structs.replace(order, timeout_ns=1)
        assert await bed.edge.adopt(over, bed.outbox) == Ending("timed-out", "the hook's time is over")
        await until(lambda: len(bed.processes()) == 1)
        await bed.kill("p")
        await nothing_left(bed)


@pytest.mark.slow
async def test_a_daemon_killed_outright_is_succeeded_by_another(tmp_path: Path) -> None:
    """SIGKILL of the daemon's process leaves pods and a running hook alone, and all are found again."""
    here = Path(__file__).parent
    hook = f"echo x >> {tmp_path}/hooked; until test -e {tmp_path}/go; do sleep 0.01; done"
    text = DAEMON.format(tests=str(here), root=str(here.parents[1]), folder=str(tmp_path), hook=hook)
    daemon = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
    assert daemon.stdout is not None
    with daemon.stdout:
        assert daemon.stdout.readline() == "up\n"
    await until(lambda: (tmp_path / "hooked").exists())
    daemon.kill()
    daemon.wait()
    pods = [hook_pod("p", ExecAction(argv=("false",))), pod_of("q", shell("false"))]
    async with running(tmp_path, pods) as bed, trio.open_nursery() as nursery:
        await bed.known("q")
        assert len(bed.processes()) >= 3
        endings: list[Ending | None] = []

        async def adopt() -> None:
            endings.append(await bed.edge.adopt(bed.hook("p"), bed.outbox))

        nursery.start_soon(adopt)
        await is_followed(bed, "hook/p/main")
        (tmp_path / "go").touch()
        await until(lambda: endings)
        assert endings[0] is not None
        # Linux tells since 6.15 how another's child ended; before that it is not known, and not "done".
        assert endings[0] in (UNTOLD, Ending("done", exit_code=0))
        await bed.signal("p")
        await bed.signal("q")
        await bed.exited("p")
        assert (await bed.exited("q")).exit_code in (None, 5)
        assert not bed.outbox.of(PodAppeared)
        await nothing_left(bed)


SUBREAPER = """
import ctypes, os, subprocess, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]])
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
"""


@pytest.mark.slow
async def test_an_adopted_container_tells_its_exit_code_where_the_kernel_keeps_it(tmp_path: Path) -> None:
    """With a parent that waits for it, another's child tells its code on its pidfd (Linux 6.15)."""
    here = Path(__file__).parent
    text = DAEMON.format(tests=str(here), root=str(here.parents[1]), folder=str(tmp_path), hook="exit 0")
    text = text.replace("await trio.sleep_forever()", "os._exit(0)").replace("import sys,", "import os, sys,")
    init = subprocess.Popen([sys.executable, "-c", SUBREAPER, text], stdout=subprocess.PIPE, text=True)
    assert init.stdout is not None
    with init.stdout:
        assert init.stdout.readline() == "up\n"
        async with running(tmp_path, []) as bed:
            await bed.known("q")
            await bed.signal("q")
            fact = await bed.exited("q")
            release = tuple(int(part) for part in os.uname().release.split(".")[:2])
            assert fact.exit_code == (5 if release >= (6, 15) else None)
            await bed.kill("p")
            await nothing_left(bed)
        init.wait()


async def test_python_programs_are_adopted_too(tmp_path: Path) -> None:
    """A program that renames itself keeps its marks and its number."""
    pod = pod_of("p", python(f"import time; open('{tmp_path}/r','w').write('x\\n'); time.sleep(1000)"))
    await start_and_leave(tmp_path, pod)
    async with running(tmp_path, [pod]) as bed:
        await bed.known("p")
        await bed.shows("r")
        await bed.signal("p")
        await bed.exited("p")
        await nothing_left(bed)


async def test_an_order_that_comes_before_the_pods_are_found_waits_for_that(tmp_path: Path) -> None:
    """After a restart overdue orders come at once; none of them meets an unknown container."""
    pod = pod_of("p", shell("trap 'exit 5' TERM; sleep 1000 & wait"))
    await start_and_leave(tmp_path, pod)
    async with running(tmp_path, [pod]) as bed:
        assert await bed.signal("p") == Ending()
        await bed.exited("p")
        await nothing_left(bed)


async def test_an_inventory_that_is_asked_for_at_once_waits_for_the_pods(tmp_path: Path) -> None:
    """A signal in the first moment of a restart leaves no pod out of its plan."""
    pod = pod_of("p", shell("exec sleep 1000"))
    await start_and_leave(tmp_path, pod)
    async with running(tmp_path, [pod]) as bed:
        assert await bed.inventory() == Ending()
        assert [pod.uid for pod in bed.outbox.of(InventoryTaken)[0].pods] == ["p"]
        await bed.kill("p")
        await nothing_left(bed)


async def test_a_pod_that_was_told_to_stop_is_not_started_further_by_the_next_daemon(tmp_path: Path) -> None:
    """Its init container was asked to end when the daemon died: no container follows it."""
    init = shell(f"trap '' TERM; echo x > {tmp_path}/init; exec sleep 1000", "init")
    pod = pod_of("p", shell("exec sleep 1000"), init=(init,))
    async with running(tmp_path, [pod]) as bed, trio.open_nursery() as nursery:
        nursery.start_soon(bed.start, "p")
        await bed.shows("init")
        assert await bed.signal("p") == Ending()
        bed.edge.detach()
        nursery.cancel_scope.cancel()
    async with running(tmp_path, [pod]) as bed:
        ending = await bed.edge.adopt(StartPod(key=START, uid="p"), bed.outbox)
        assert ending is not None
        assert ending.result == "cancelled"
        await bed.exited("p")
        assert not bed.outbox.of(ContainerStarted)
        await nothing_left(bed)

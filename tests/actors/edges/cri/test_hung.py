"""A containerd that hangs (SIGSTOP): every container gets its stop signal, at once and once, and what is on
record of it is true.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ebbtide.actors.edges.cri.orders import HOOK_NOT_KNOWN, NOWHERE
from ebbtide.actors.edges.cri.pods import TABLE_FILE_NAME
from ebbtide.actors.edges.kubernetes.pods import KnownPod
from ebbtide.actors.edges.linux import proc
from ebbtide.actors.interfaces import Ending
from ebbtide.events import decisions as d
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.facts import ContainerExited, InventoryTaken, OrderEnded, RuntimeRead
from tests.actors.edges.cri.conftest import Told, rig_on
from tests.actors.edges.cri.daemon_rig import DaemonRig, daemon_rig
from tests.actors.edges.cri.pods import Kubelet, Made, Spec
from tests.actors.edges.cri.test_edge import stop, until
from tests.actors.edges.cri.test_edge_daemon import priority
from tests.actors.edges.cri.test_orders import first_process
from tests.beds import logind as logind_bed
from tests.beds.containerd import USR1_IMAGE, Containerd

pytestmark = [pytest.mark.node, pytest.mark.root]

#: Notes each SIGTERM, and ends a moment later, with a code that no signal gives.
NOTES = "trap 'echo told >> /tmp/told; sleep 0.5; exit 5' TERM; touch /tmp/up; while :; do sleep 0.05; done"
DEAF = "trap 'echo told >> /tmp/told' TERM; touch /tmp/up; while :; do sleep 0.05; done"
#: In each of three waves; EBBTIDE_TEST_PODS=14 for the figure in docs/performance.md.
PODS = int(os.environ.get("EBBTIDE_TEST_PODS", "4"))
WAVES = (0, 1000, 2000)
#: Of a wave. The daemon needs no part of it where nothing waits for the runtime.
WAVE_SECONDS = 6
#: Three waves of half a second, or the floor of 2 s in one of them, and what a busy machine adds.
QUICK_SECONDS = 6.0
GRACEFUL = ("graceful", "exit code 5")


@pytest.fixture
async def rig(bed: Containerd) -> AsyncIterator[DaemonRig]:
    if reason := logind_bed.missing():
        pytest.skip(reason)
    async with daemon_rig(bed) as made:
        made.configure(dict.fromkeys(WAVES, WAVE_SECONDS))
        yield made


class Witness:
    """What the containers' first processes wrote, held open past their ends."""

    def __init__(self, kubelet: Kubelet) -> None:
        self._kubelet = kubelet
        self._folders: dict[str, int] = {}

    def add(self, name: str, made: Made) -> None:
        for container, key in made.containers.items():
            path = f"/proc/{first_process(self._kubelet, key)}/root/tmp"
            self._folders[f"{name}/{container}"] = os.open(path, os.O_PATH | os.O_DIRECTORY)

    def told(self) -> dict[str, int]:
        """By pod and container, how many stop signals it got."""
        return {name: self._lines(folder) for name, folder in self._folders.items()}

    def _lines(self, folder: int) -> int:
        try:
            return len(Path(f"/proc/self/fd/{folder}/told").read_text().splitlines())
        except FileNotFoundError:
            return 0

    def close(self) -> None:
        for folder in self._folders.values():
            os.close(folder)


@contextmanager
def witnessed(kubelet: Kubelet, scripts: dict[str, Spec]) -> Iterator[Witness]:
    """These pods in each wave, by name."""
    witness = Witness(kubelet)
    try:
        for wave in WAVES:
            for name, spec in scripts.items():
                pod = f"{name}-{wave}"
                witness.add(pod, kubelet.pod(pod, spec, annotations=priority(wave)))
        yield witness
    finally:
        witness.close()


async def start(rig: DaemonRig) -> None:
    """Until the daemon has seen what runs."""
    await rig.start()
    kept = rig.folder / "run" / "cri" / TABLE_FILE_NAME
    await rig.until(kept.exists, "the daemon does not look")


def seconds_of_stop(rig: DaemonRig) -> float:
    """From the signal to the release's order."""
    (began,), (released,) = rig.records(d.ShutdownBegan), rig.records(d.ReleaseLock)
    return (released.mono_ns - began.mono_ns) / NS_PER_SECOND


def outcomes(rig: DaemonRig, what: str) -> dict[str, OrderEnded]:
    """By the pod's UID, how its orders of this kind ended."""
    return {event.key.split("/")[2]: event for event in rig.events(OrderEnded) if f"/{what}:" in event.key}


async def test_it_hangs_in_the_first_wave(kubelet: Kubelet, rig: DaemonRig) -> None:
    """Those whose stop comes after it get theirs all the same, nobody two, and no wave waits for it."""
    with witnessed(kubelet, {f"pod-{number}": Spec(NOTES) for number in range(PODS)}) as witness:
        await start(rig)
        await rig.logind.power_off("reboot")
        await rig.recorded(d.SendSignal)
        with rig.bed.hung():
            await rig.recorded(d.ReleaseLock)
            print("without", [*witness.told().values()].count(0), "seconds", seconds_of_stop(rig))
            assert set(witness.told().values()) == {1}
        assert {(each.outcome, each.reason) for each in rig.events(d.PodEnded)} == {GRACEFUL}
        assert seconds_of_stop(rig) < QUICK_SECONDS


async def test_it_has_hung_for_long(kubelet: Kubelet, rig: DaemonRig) -> None:
    """On record as away before the signal: no hook is waited for or said to run, SIGKILL comes in time."""
    hook = {"exec": {"command": ["/bin/touch", "/tmp/hooked"]}}
    pods = {"plain": Spec(NOTES), "hook": Spec(NOTES, pre_stop=hook)}
    with witnessed(kubelet, pods) as witness:
        deaf = kubelet.pod("deaf", Spec(DEAF), grace=1, annotations=priority(WAVES[0]))
        witness.add("deaf", deaf)
        await start(rig)
        with rig.bed.hung():
            await rig.recorded(RuntimeRead, reachable=False)
            await rig.logind.power_off("reboot")
            await rig.recorded(d.ReleaseLock)
            assert set(witness.told().values()) == {1}
    ended = {event.uid.removeprefix("uid-"): event for event in rig.events(d.PodEnded)}
    fates = {name: event.outcome for name, event in ended.items()}
    assert fates == dict.fromkeys(fates, "graceful") | {"deaf": "killed"}
    assert "had 1 s" in ended["deaf"].reason
    hooks = [(event.result, event.reason) for event in rig.events(d.HookEnded)]
    assert hooks == [("failed", "it was not begun: the runtime is on record as away")] * len(WAVES)
    (killed,) = outcomes(rig, "kill").values()
    assert killed.result == "done"
    assert killed.elapsed_ns < NS_PER_SECOND / 2
    # The floor of 2 s for who is deaf, and half a second for each wave's others.
    assert seconds_of_stop(rig) < QUICK_SECONDS


async def test_the_daemon_starts_while_it_hangs(kubelet: Kubelet, rig: DaemonRig) -> None:
    """Then it knows what the daemon before has seen, as far as that still runs, and keeps no hook's words."""
    hook = {"exec": {"command": ["/bin/touch", "a-secret"]}}
    with witnessed(kubelet, {"plain": Spec(NOTES), "hooked": Spec(NOTES, pre_stop=hook)}) as witness:
        await start(rig)
        assert b"a-secret" not in (rig.folder / "run" / "cri" / TABLE_FILE_NAME).read_bytes()
        await rig.kill()
        with rig.bed.hung():
            rig.launch()
            await rig.recorded(RuntimeRead, reachable=False)
            await rig.logind.power_off("reboot")
            await rig.recorded(d.ReleaseLock)
            assert set(witness.told().values()) == {1}
    ended = {event.uid: event for event in rig.events(d.PodEnded)}
    assert [event.outcome for event in ended.values()] == ["graceful"] * (2 * len(WAVES))
    assert ended["uid-plain-0"].reason == "exit code 5"
    hooks = {(event.result, event.reason) for event in rig.events(d.HookEnded)}
    assert hooks == {("failed", f"it was not begun: {HOOK_NOT_KNOWN}")}


async def test_a_container_that_nobody_has_seen(bed: Containerd, kubelet: Kubelet, tmp_path: Path) -> None:
    """What the API server alone tells of is found by its control group, stopped, and seen to end."""
    made = kubelet.pod("told", Spec(NOTES), Spec(NOTES, "other"))
    known = KnownPod(
        uid=made.uid,
        api_uid=made.uid,
        namespace="test",
        name="told",
        phase="Running",
        containers=("main", "other"),
        running=made.containers,
    )
    witness = Witness(kubelet)
    witness.add("told", made)
    with bed.hung():
        async with rig_on(bed, tmp_path, Told(known)) as rig:
            taken = d.TakeInventory(key="first")
            assert await rig.do(taken) == Ending()
            (inventory,) = rig.outbox.of(InventoryTaken)
            assert (inventory.source, len(inventory.pods)) == ("cache", 1)
            for name in made.containers:
                reason = "SIGTERM was sent to the first process: the runtime is on record as away"
                assert await rig.do(stop(made.uid, name)) == Ending(reason=reason)
            await rig.outbox.wait_for(ContainerExited, uid=made.uid, container="main", exit_code=5)
            await rig.outbox.wait_for(ContainerExited, uid=made.uid, container="other", exit_code=5)
            nobody = await rig.do(stop("uid-nobody"))
            assert (nobody.result, nobody.reason) == ("failed", NOWHERE)
    assert witness.told() == {"told/main": 1, "told/other": 1}
    witness.close()


async def test_a_shim_that_hangs(bed: Containerd, kubelet: Kubelet, tmp_path: Path) -> None:
    """Lists come, but whoever stops the container through the runtime waits for ever."""
    made = kubelet.pod("wedged", Spec(NOTES))
    witness = Witness(kubelet)
    witness.add("wedged", made)
    async with rig_on(bed, tmp_path) as rig:
        await rig.inventory()
        stat = proc.read_stat(first_process(kubelet, made.containers["main"]))
        assert stat is not None
        os.kill(stat.parent_pid, signal.SIGSTOP)
        try:
            assert await rig.do(stop(made.uid)) == Ending()
            await until(lambda: witness.told() == {"wedged/main": 1}, "no signal")
        finally:
            os.kill(stat.parent_pid, signal.SIGCONT)
        await rig.outbox.wait_for(ContainerExited, uid=made.uid, exit_code=5)
    witness.close()


async def test_an_image_with_a_stop_signal(bed: Containerd, kubelet: Kubelet, tmp_path: Path) -> None:
    """It is learned while the runtime answers, stands in the inventory, and is what the container gets."""
    script = "trap 'exit 7' USR1; trap 'exit 8' TERM; touch /tmp/up; while :; do sleep 0.05; done"
    made = kubelet.pod("usr1", Spec(script, image=USR1_IMAGE))
    async with rig_on(bed, tmp_path) as rig:
        (pod,) = await rig.inventory()
        assert [each.stop_signal for each in pod.containers] == ["SIGUSR1"]
        with bed.hung():
            assert await rig.do(stop(made.uid)) == Ending(reason="SIGUSR1 was sent, as its image asks")
            await rig.outbox.wait_for(ContainerExited, uid=made.uid, exit_code=7)

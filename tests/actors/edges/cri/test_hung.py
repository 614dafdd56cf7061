"""A containerd that hangs (SIGSTOP): each container gets one stop signal at once, and the record is true."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ebbtide.events import decisions as d
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.facts import RuntimeRead
from tests.actors.edges.cri.daemon_rig import DaemonRig
from tests.actors.edges.cri.pods import NOTES, Kubelet, Spec, Witness, priority

pytestmark = [pytest.mark.node, pytest.mark.root]

#: Pods per wave (three waves). EBBTIDE_TEST_PODS=14 gives the figure in docs/performance.md.
PODS = int(os.environ.get("EBBTIDE_TEST_PODS", "4"))
WAVES = (0, 1000, 2000)
#: Budget of a wave. The daemon uses none of it while no stop waits for the runtime.
WAVE_SECONDS = 6
#: Three waves of half a second, or one with the 2 s floor, plus time for a busy machine.
QUICK_SECONDS = 6.0
GRACEFUL = ("graceful", "exit code 5")


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
    """Wait until the daemon has seen all running pods."""
    rig.configure(dict.fromkeys(WAVES, WAVE_SECONDS))
    await rig.start()
    await rig.recorded(RuntimeRead, reachable=True)


def seconds_of_stop(rig: DaemonRig) -> float:
    """From the signal to the release's order."""
    (began,), (released,) = rig.records(d.ShutdownBegan), rig.records(d.ReleaseLock)
    return (released.mono_ns - began.mono_ns) / NS_PER_SECOND


async def test_it_hangs_in_the_first_wave(kubelet: Kubelet, rig: DaemonRig) -> None:
    """Later stops still arrive, each once, and no wave waits for the runtime."""
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

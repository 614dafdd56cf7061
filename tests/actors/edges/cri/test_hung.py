"""A containerd that hangs (SIGSTOP): every container gets its stop signal, at once and once, and what is on
record of it is true.
"""

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

#: In each of three waves; EBBTIDE_TEST_PODS=14 for the figure in docs/performance.md.
PODS = int(os.environ.get("EBBTIDE_TEST_PODS", "4"))
WAVES = (0, 1000, 2000)
#: Of a wave. The daemon needs no part of it where nothing waits for the runtime.
WAVE_SECONDS = 6
#: Three waves of half a second, or the floor of 2 s in one of them, and what a busy machine adds.
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
    """Until the daemon has seen what runs."""
    rig.configure(dict.fromkeys(WAVES, WAVE_SECONDS))
    await rig.start()
    await rig.recorded(RuntimeRead, reachable=True)


def seconds_of_stop(rig: DaemonRig) -> float:
    """From the signal to the release's order."""
    (began,), (released,) = rig.records(d.ShutdownBegan), rig.records(d.ReleaseLock)
    return (released.mono_ns - began.mono_ns) / NS_PER_SECOND


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

"""A containerd that hangs (SIGSTOP): each container gets one stop signal at once, and the record is true."""

from __future__ import annotations

import os
from contextlib import closing

import pytest

from ebbtide.events import decisions as d
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.facts import RuntimeRead
from tests.actors.edges.cri.daemon_rig import DaemonRig
from tests.actors.edges.cri.pods import NOTES, Kubelet, Spec, Witness

pytestmark = [pytest.mark.node, pytest.mark.root]

#: Pods per wave (three waves). EBBTIDE_TEST_PODS=14 gives the figure in docs/performance.md.
PODS = int(os.environ.get("EBBTIDE_TEST_PODS", "4"))
WAVES = (0, 1000, 2000)
#: Budget of a wave. The daemon uses none of it while no stop waits for the runtime.
WAVE_SECONDS = 6
#: Three waves of half a second, or one with the 2 s floor, plus time for a busy machine.
QUICK_SECONDS = 6.0


async def test_it_hangs_in_the_first_wave(kubelet: Kubelet, rig: DaemonRig) -> None:
    """Later stops still arrive, each once, and no wave waits for the runtime."""
    with closing(Witness(kubelet)) as witness:
        for wave in WAVES:
            for number in range(PODS):
                annotations = [("ebbtide/priority", str(wave))]
                witness.add(kubelet.pod(f"pod-{number}-{wave}", Spec(NOTES), annotations=annotations))
        rig.configure(dict.fromkeys(WAVES, WAVE_SECONDS))
        await rig.start()
        await rig.recorded(RuntimeRead, reachable=True)
        await rig.bed.power_off("reboot")
        await rig.recorded(d.SendSignal)
        with rig.containerd.hung():
            await rig.recorded(d.ReleaseLock)
            (began,), (released,) = rig.records(d.ShutdownBegan), rig.records(d.ReleaseLock)
            seconds = (released.mono_ns - began.mono_ns) / NS_PER_SECOND
            print("without", witness.told().count(0), "seconds", seconds)
            assert set(witness.told()) == {1}
        assert {(each.outcome, each.reason) for each in rig.events(d.PodEnded)} == {
            ("graceful", "exit code 5")
        }
        assert seconds < QUICK_SECONDS

"""A containerd that hangs (SIGSTOP): each container gets one stop signal at once, and the record is true."""

from __future__ import annotations

import os
from contextlib import ExitStack
from itertools import product
from pathlib import Path

import pytest

from ebbtide.events import decisions as d
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.facts import RuntimeRead
from tests.actors.edges.cri.daemon_rig import DaemonRig
from tests.actors.edges.cri.pods import NOTES, Kubelet, Spec

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

    def told() -> list[int]:
        """Stop signals received, by pod."""
        return [len(path.read_text().splitlines()) if path.exists() else 0 for path in notes]

    notes = list[Path]()
    with ExitStack() as held:
        for wave, number in product(WAVES, range(PODS)):
            pod = kubelet.pod(f"{number}-{wave}", Spec(NOTES), annotations=[("ebbtide/priority", str(wave))])
            # Held open past the end of the process.
            place = f"/proc/{kubelet.first_process(pod.containers['main'])}/root/tmp"
            notes.append(Path(f"/proc/self/fd/{os.open(place, os.O_PATH | os.O_DIRECTORY)}/told"))
            held.callback(os.close, int(notes[-1].parts[-2]))
        rig.configure(dict.fromkeys(WAVES, WAVE_SECONDS))
        await rig.start()
        await rig.recorded(RuntimeRead, reachable=True)
        await rig.bed.power_off("reboot")
        await rig.recorded(d.SendSignal)
        with rig.containerd.hung():
            await rig.recorded(d.ReleaseLock)
            (began,), (released,) = rig.records(d.ShutdownBegan), rig.records(d.ReleaseLock)
            seconds = (released.mono_ns - began.mono_ns) / NS_PER_SECOND
            print("without", told().count(0), "seconds", seconds)
            assert set(told()) == {1}
        assert {(each.outcome, each.reason) for each in rig.events(d.PodEnded)} == {
            ("graceful", "exit code 5")
        }
        assert seconds < QUICK_SECONDS

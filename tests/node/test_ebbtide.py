from __future__ import annotations

from pathlib import Path

import pytest

from ebbtide.events.facts import ApiRead
from tests.node.bed import Bed
from tests.node.ebbtide import NAME, Daemon

pytestmark = [pytest.mark.node]


@pytest.mark.parametrize("mode", ["auto", "cri"])
async def test_a_configured_kubeconfig_that_is_none(bed: Bed, tmp_path: Path, mode: str) -> None:
    """The node is armed anyway: one message, and the repaired file is used."""
    daemon = Daemon(bed, tmp_path / "journal", mode)
    await bed.start_over(shutdownGracePeriod="0s", shutdownGracePeriodCriticalPods="0s")
    daemon.configure(shutdownGracePeriod="5s")
    path = Path(daemon.node()["kubeconfig"])
    good = path.read_bytes()
    path.write_bytes(b"clusters: 3\n")
    await daemon.start()
    try:
        await daemon.until(lambda: "no kubeconfig" in bed.log(NAME), "it does not say so")
        assert not any(read.reachable for read in daemon.events(ApiRead))
        path.write_bytes(good)
        await daemon.until(
            lambda: any(read.reachable for read in daemon.events(ApiRead)), "it does not take the new one"
        )
        assert bed.log(NAME).count("Kubernetes API: kubeconfig") == 1
    finally:
        await daemon.stop()
        await bed.start_over()

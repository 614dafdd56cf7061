"""KubeletActor's phases: each encoded state is in one phase per region."""

from __future__ import annotations

import pytest

from ebbtide.actors.kubelet import KubeletState, mode_phase, unit_phase


@pytest.mark.parametrize(
    "state, mode, unit",
    [
        (KubeletState(), "no-node", "untouched"),
        (KubeletState(mode="auto"), "idle", "untouched"),
        (KubeletState(mode="auto", means="api"), "api", "untouched"),
        (KubeletState(mode="auto", means="api", handed_over=True, stop_key="k"), "handed-over", "stopping"),
        (KubeletState(mode="auto", means="cri", stopped=True, cancelled=True), "cancelled", "stopped"),
        (KubeletState(mode="auto", stopped=True, retry_at_ns=1), "idle", "start-due"),
        (KubeletState(mode="auto", stopped=True, start_key="k"), "idle", "starting"),
        (KubeletState(mode="auto", means="cri", start_key="k", stop_key="l"), "cri", "stopping"),
    ],
)
def test_phases(state: KubeletState, mode: str, unit: str) -> None:
    """A cancel hides the mode, a hand-over hides api, and a stop waits for a start that is under way."""
    assert (mode_phase(state), unit_phase(state)) == (mode, unit)

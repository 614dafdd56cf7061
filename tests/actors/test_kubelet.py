"""KubeletActor's phases: what checkpoints and digests encode names one pair of them, whatever it is."""

from __future__ import annotations

from itertools import product

import pytest

from ebbtide.actors.actor import NEVER_NS
from ebbtide.actors.kubelet import KUBELET, KubeletState, mode_phase, phase_of, unit_phase
from ebbtide.events.model import TerminationMode

MEANS: tuple[TerminationMode, ...] = ("", "observe", "api", "cri")


def test_every_state_is_in_one_phase_of_each_region() -> None:
    """And there is no phase that no state is in."""
    found = {
        phase_of(
            KubeletState(
                mode=mode,
                means=means,
                handed_over=handed_over,
                cancelled=cancelled,
                stop_key=stop_key,
                start_key=start_key,
                retry_at_ns=retry_at_ns,
                stopped=stopped,
            )
        )
        for mode, means, handed_over, cancelled, stop_key, start_key, retry_at_ns, stopped in product(
            ("", "auto"),
            MEANS,
            (False, True),
            (False, True),
            ("", "k"),
            ("", "k"),
            (1, NEVER_NS),
            (False, True),
        )
    }
    assert found == set(KUBELET.transitions.phases)


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

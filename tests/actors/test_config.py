"""ConfigReconciler's phases: each encoded state is in one phase per region."""

from __future__ import annotations

import pytest

from ebbtide.actors.actor import NEVER_NS
from ebbtide.actors.config_reconciler import CONFIG, ConfigState, phase_of


@pytest.mark.parametrize(
    "state, phase",
    [
        (ConfigState(), "up+at-rest"),
        (ConfigState(order_open="k"), "up+ordered"),
        (ConfigState(retry_at_ns=1), "up+retry-due"),
        (ConfigState(in_episode=True), "in-shutdown+at-rest"),
        (ConfigState(in_episode=True, order_open="k", retry_at_ns=1), "in-shutdown+ordered"),
        (ConfigState(in_episode=True, retry_at_ns=NEVER_NS - 1), "in-shutdown+retry-due"),
    ],
)
def test_phases(state: ConfigState, phase: str) -> None:
    """An order that is under way comes before the time of the next one."""
    assert phase_of(state) == phase
    assert phase in CONFIG.transitions.phases

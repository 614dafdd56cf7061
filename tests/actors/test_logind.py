"""LogindActor's phases: each encoded state is in one phase per region."""

from __future__ import annotations

from typing import Literal

import pytest

from ebbtide.actors.logind import enter_shutdown_phase, lock_phase, shutdown_phase
from tests.actors.test_actor import states


@pytest.mark.parametrize("phase", ["up", "cancelled", "preparing"])
def test_a_phase_that_is_entered_is_the_one_that_follows(
    phase: Literal["up", "cancelled", "preparing"],
) -> None:
    """From wherever, but for overtime, which ends with the process, and a node switched off."""
    for state in states("LogindActor"):
        entered = enter_shutdown_phase(state, phase)
        assert lock_phase(entered) == lock_phase(state)
        if state.enabled and not state.leaving:
            assert shutdown_phase(entered) == phase

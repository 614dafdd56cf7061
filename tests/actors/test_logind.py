"""LogindActor's phases: what checkpoints and digests encode names one pair of them, whatever it is."""

from __future__ import annotations

from itertools import product
from typing import Literal

import pytest

from ebbtide.actors.actor import NEVER_NS
from ebbtide.actors.logind import (
    LOCK_PHASES,
    LOGIND,
    SHUTDOWN_PHASES,
    LogindState,
    enter_shutdown_phase,
    lock_phase,
    phase_of,
    shutdown_phase,
)

BOTH = (False, True)


def states() -> list[LogindState]:
    """Every combination of the fields from which the phases follow."""
    encoded: tuple[Literal["off", "arming", "armed", "listening", "waiting"], ...]
    encoded = ("off", "arming", "armed", "listening", "waiting")
    return [
        LogindState(
            phase=phase,
            retry_at_ns=retry_at_ns,
            refused=refused,
            enabled=enabled,
            in_episode=in_episode,
            released=released,
            finishing=finishing,
            leaving=leaving,
        )
        for phase, retry_at_ns, refused, enabled, in_episode, released, finishing, leaving in product(
            encoded, (1, NEVER_NS), *[BOTH] * 6
        )
    ]


def test_every_state_is_in_one_phase_of_each_region() -> None:
    """And there is no phase that no state is in."""
    assert {phase_of(state) for state in states()} == set(LOGIND.transitions.phases)
    assert {lock_phase(state) for state in states()} == set(LOCK_PHASES)
    assert {shutdown_phase(state) for state in states()} == set(SHUTDOWN_PHASES)


@pytest.mark.parametrize("phase", ["up", "cancelled", "preparing"])
def test_a_phase_that_is_entered_is_the_one_that_follows(
    phase: Literal["up", "cancelled", "preparing"],
) -> None:
    """From wherever, but for overtime, which ends with the process, and a node switched off."""
    for state in states():
        entered = enter_shutdown_phase(state, phase)
        assert lock_phase(entered) == lock_phase(state)
        if state.enabled and not state.leaving:
            assert shutdown_phase(entered) == phase

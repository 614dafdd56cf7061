"""The first line of a bad night is its root cause, judged from the simulated fault."""

from __future__ import annotations

import pytest

from tests.replay.sim.bad_nights import FAULTS, named, nights, table

#: A sample for the default suite, and the promised number.
SAMPLE, WHOLE = 24, 120


def test_the_first_line_names_the_fault() -> None:
    found = list(nights(0, SAMPLE))
    assert named(found), table(found)


@pytest.mark.proof
def test_the_first_line_names_the_fault_of_95_in_100_nights() -> None:
    """Of every fault there is a night."""
    found = list(nights(0, WHOLE))
    assert named(found), table(found)
    assert {each.fault: None for each in found}.keys() == FAULTS.keys(), table(found)

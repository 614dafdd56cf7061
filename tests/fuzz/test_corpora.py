"""What was found by fuzzing is read again: each kept input is read or refused, in bounded time."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ebbtide.actors.system import System
from tests.fuzz.__main__ import main
from tests.fuzz.targets import SECONDS_MAX, TARGETS, kept_inputs, with_valid_hashes

KEPT = [pytest.param(name, path, id=f"{name}-{path.name}") for name in TARGETS for path in kept_inputs(name)]


@pytest.mark.parametrize(("name", "path"), KEPT)
def test_a_kept_input_is_read_or_refused(name: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the target's refusals is raised."""
    # A state that no actor was ever in leads to transitions that no table has, and in no daemon are they
    # checked.
    monkeypatch.setattr(System, "checked", False)
    began = time.monotonic()
    TARGETS[name].accepts(path.read_bytes())
    assert time.monotonic() - began < SECONDS_MAX


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_are_honest(name: str) -> None:
    """The fuzzer begins with inputs that are read, or it would look for one among errors."""
    seeds = list(TARGETS[name].seeds())
    assert seeds
    assert all(map(TARGETS[name].accepts, seeds))


def test_hashes_that_fit_change_nothing_of_an_honest_segment() -> None:
    """What is repaired of a mutated one is only what the mutation broke."""
    for data in TARGETS["segment"].seeds():
        once = with_valid_hashes(data)
        assert with_valid_hashes(once) == once
        assert len(once) == len(data)


def test_the_table_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """By name, with how many inputs are kept of each."""
    assert main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(TARGETS)

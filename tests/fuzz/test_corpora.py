"""What was found by fuzzing is read again: each kept input is read or refused."""

from __future__ import annotations

import pytest

from ebbtide.actors.system import System
from tests.fuzz.__main__ import main
from tests.fuzz.targets import TARGETS, kept_inputs, with_valid_hashes


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_reads_or_refuses_what_is_kept(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the target's refusals is raised; its seeds are read, so that a fuzzer begins there."""
    seeds = list(TARGETS[name].seeds())
    assert seeds
    assert all(map(TARGETS[name].accepts, seeds))
    # A state that no actor was ever in leads to transitions that no table has, and in no daemon are they
    # checked.
    monkeypatch.setattr(System, "checked", False)
    for path in kept_inputs(name):
        try:
            TARGETS[name].accepts(path.read_bytes())
        except Exception as error:
            error.add_note(f"the input is {path}")
            raise


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

"""Each kept fuzzing input is read or refused."""

from __future__ import annotations

import pytest

from ebbtide.actors.system import System
from tests.fuzz.__main__ import main
from tests.fuzz.targets import TARGETS, kept_inputs, with_valid_hashes


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_reads_or_refuses_what_is_kept(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only refusals are raised; the seeds are readable."""
    seeds = list(TARGETS[name].seeds())
    assert seeds
    assert all(map(TARGETS[name].accepts, seeds))
    # An impossible state leads to missing transitions, which a daemon does not check.
    monkeypatch.setattr(System, "checked", False)
    for path in kept_inputs(name):
        try:
            TARGETS[name].accepts(path.read_bytes())
        except Exception as error:
            error.add_note(f"the input is {path}")
            raise


def test_hashes_that_fit_change_nothing_of_an_honest_segment() -> None:
    """Repairs only undo the mutation."""
    for data in TARGETS["segment"].seeds():
        once = with_valid_hashes(data)
        assert with_valid_hashes(once) == once
        assert len(once) == len(data)


def test_the_table_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """Each target with its number of kept inputs."""
    assert main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(TARGETS)

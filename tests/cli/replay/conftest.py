"""Commands in this process, on the golden journals."""

from __future__ import annotations

from pathlib import Path

import pytest

from ebbtide.replay import simulate
from tests.commands import Ran, Run, same_as_golden
from tests.journals import SHUTDOWN, write_files
from tests.replay.two_shutdowns import write_two

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="session")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_two(tmp_path_factory.mktemp("two"))


@pytest.fixture(scope="session")
def refused(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A night with refused stop signals: 106 of 110 pods were killed."""
    files = simulate(7, synthetic=110).files()
    return write_files(tmp_path_factory.mktemp("refused"), files)


@pytest.fixture
def replay(run: Run) -> Run:
    """``replay("timeline", ..., journal=...)``: default is the golden shutdown."""

    def call(*arguments: str | Path, journal: Path = SHUTDOWN) -> Ran:
        return run("replay", *arguments, "--journal", journal)

    return call


def golden(name: str, text: str) -> None:
    same_as_golden(GOLDEN / name, text)

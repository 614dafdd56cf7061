"""The verbs on simulated journals: one shutdown that was withdrawn, one cut short, one with a restart, …

The journals are made anew from their seeds. Another logic, or another model of the node, makes others:
then the golden files are written anew, and read.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ebbtide import replay
from tests.cli.replay.conftest import golden
from tests.commands import Run
from tests.journals import write_files

#: What went wrong on the node, by the seed that draws it.
SEEDS = {"slow-api": 5, "cut-short": 9, "restarted": 12, "withdrawn": 18, "bus-lost": 58}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A journal for each."""
    folders = {name: tmp_path_factory.mktemp(name) for name in SEEDS}
    for name, seed in SEEDS.items():
        run = replay.simulate(seed, synthetic=7)
        assert not run.breaches
        write_files(folders[name], run.files())
    return folders


@pytest.mark.slow
@pytest.mark.parametrize("name", SEEDS)
@pytest.mark.parametrize("verb", ["blame", "critical-chain"])
def test_tables_of_simulated_shutdowns(run: Run, nodes: dict[str, Path], verb: str, name: str) -> None:
    """Plain in a pipe, as they stand in the golden files."""
    ran = run("replay", verb, "--journal", nodes[name])
    assert ran.code == 0
    golden(f"simulated-{name}-{verb}.txt", ran.out + ran.err)


@pytest.mark.slow
def test_two_simulated_nodes_are_compared(run: Run, nodes: dict[str, Path]) -> None:
    """Aligned by what the pods are, not by when they went."""
    ran = run("replay", "diff", "last", "last", "--journal", nodes["restarted"], "--other", nodes["slow-api"])
    assert ran.code == 0
    golden("simulated-diff.txt", ran.out + ran.err)

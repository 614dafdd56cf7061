"""Sixty nodes with their model's truth, and a few damaged journals."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from ebbtide.cli.common.saving import write_journal
from ebbtide.replay.sim.simulate import Machine
from tests.fleet.nodes import SHORT, a_machine, damage, tear

#: Seeds of two journals with a common ID prefix.
ALIKE = (70979, 110352)
SEEDS = (*range(1, 61), *ALIKE)


class Nodes(NamedTuple):
    """``folder``: each node's journal, one of them twice. ``hurt``: torn and corrupt copies."""

    machines: list[Machine]
    folder: Path
    hurt: Path

    def copied(self, to: Path, *names: str) -> Path:
        for name in names:
            shutil.copytree(self.folder / name, to / name)
        return to


@pytest.fixture(autouse=True)
def _one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without ``--jobs``: further processes take seconds to start."""
    monkeypatch.setattr("ebbtide.fleet.pool.processors", lambda: 1)


@pytest.fixture(scope="session")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Nodes:
    folder, hurt = (tmp_path_factory.mktemp(name) for name in ("nodes", "hurt"))
    machines = [a_machine(seed, 4, calm=False) for seed in SEEDS]
    for machine in machines:
        write_journal(folder / machine.plan.node, machine.journal.files())
    shutil.copytree(folder / "node-7", folder / "copy-of-node-7")
    made = Nodes(machines, folder, hurt)
    made.copied(hurt, "node-1", "node-2", "node-3", "node-4")
    tear(hurt / "node-2")
    damage(hurt / "node-3")
    return made


@pytest.fixture(scope="session")
def some(nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    names = (machine.plan.node for machine in nodes.machines[:30])
    return nodes.copied(tmp_path_factory.mktemp("some"), *names)


@pytest.fixture
def fleet_of_two(nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nodes.copied(tmp_path_factory.mktemp("two"), "node-1", "node-2")


@pytest.fixture
def short(tmp_path: Path) -> Path:
    """A configuration with less time than these nodes had."""
    path = tmp_path / "short.yaml"
    path.write_text(SHORT)
    return path

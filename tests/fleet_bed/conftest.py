"""A cluster of two workers, and a store with all kinds of journals."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.beds.skipping import or_skip
from tests.commands import ebbtide
from tests.fleet.nodes import damage, shipped, tear
from tests.fleet_bed.cluster import Cluster, cluster

#: A task costs a third of a second, and some tests use one per journal.
NODES, OUTAGES = 16, 2
NEW = """apiVersion: ebbtide/v1alpha1
kind: EbbtideConfiguration
shutdownGracePeriodByPodPriority:
- {priority: 0, shutdownGracePeriodSeconds: 60}
- {priority: 10000, shutdownGracePeriodSeconds: 10}
- {priority: 2000000000, shutdownGracePeriodSeconds: 5}
"""


def simulate(*words: str) -> None:
    made = ebbtide("simulate", *words)
    assert made.code == 0, made.err


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    simulate("--seeds", f"1..{NODES}", "--journal", str(folder))
    return folder


@pytest.fixture(scope="session")
def store(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shipped journals in two clusters; some torn, damaged, or misnamed."""
    folder = tmp_path_factory.mktemp("store")
    for at, node in enumerate(sorted(made.iterdir())):
        shipped(node, folder, ("one", "two")[at % 2])
    for seed in range(1, OUTAGES + 1):
        outage = tmp_path_factory.mktemp("outage")
        simulate("--outage", "--seed", str(seed), "--journal", str(outage / "journal"))
        shipped(outage / "journal", folder, "outages")
    simulate("--seeds", f"{NODES + 1}..{NODES + 3}", "--journal", str(folder / "by-hand"))
    torn, damaged, lying = sorted((folder / "by-hand").iterdir())
    tear(torn)
    damage(damaged)
    for path in shipped(lying, folder):
        path.write_bytes(path.read_bytes()[:-1] + b"!")
    shutil.rmtree(lying)
    return folder


@pytest.fixture(scope="session")
def new(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A configuration with less time than these nodes had."""
    path = tmp_path_factory.mktemp("new") / "new.yaml"
    path.write_text(NEW)
    return path


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spark")


@pytest.fixture(scope="session")
def spark(folder: Path) -> Iterator[Cluster]:
    with or_skip():
        bed = cluster(folder, workers=2)
        started = bed.__enter__()
    try:
        yield started
    finally:
        bed.__exit__(None, None, None)

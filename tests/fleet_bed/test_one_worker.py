"""The gate's look at Spark: one worker with one executor has the rows that one process has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.beds.skipping import or_skip
from tests.fleet.nodes import a_node, shipped
from tests.fleet_bed import one_machine
from tests.fleet_bed.cluster import cluster, driver


@pytest.mark.spark
@pytest.mark.gate
def test_one_worker_says_the_same(tmp_path: Path) -> None:
    """Rows of a table, and of a verb."""
    for seed in (1, 2, 3):
        shipped(a_node(tmp_path / "nodes", seed), tmp_path / "store")
    url, folder = (tmp_path / "store").as_uri(), tmp_path / "spark"
    folder.mkdir()
    with or_skip(), cluster(folder, workers=1) as found, driver(found, folder, packed=False) as on:
        on.call("rows", url=url, table="pods", into=str(tmp_path / "pods"))
        on.call("verb", verb="verify", url=url, into=str(tmp_path / "verify"))
    for name, expected in (
        ("pods", one_machine.table(url, "pods")),
        ("verify", one_machine.verb(url, "verify")),
    ):
        assert expected.num_rows > 0
        assert one_machine.digest(one_machine.stored(tmp_path / name)) == one_machine.digest(expected)

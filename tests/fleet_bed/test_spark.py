"""A fleet on a real Spark cluster says what one machine says, whatever becomes of an executor."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ebbtide import fleet
from tests.fleet_bed import one_machine
from tests.fleet_bed.cluster import Cluster, Driver, driver
from tests.fleet_bed.processes import executors, python_times, spent
from tests.waiting import until_sync

pytestmark = pytest.mark.spark

KILL_SECONDS_MAX, POLL_SECONDS = 60, 0.05
#: Of processor time, when the executor is killed: some tasks are done, most are not.
WORKED_SECONDS = 0.5
TABLES = (*fleet.ALL_TABLES, fleet.JOURNALS_TABLE)


@pytest.fixture
def url(store: Path) -> str:
    return store.as_uri()


@pytest.fixture(scope="module")
def on(spark: Cluster, folder: Path) -> Iterator[Driver]:
    with driver(spark, folder) as found:
        yield found


def ask(on: Driver, into: Path, url: str, table: str, **words: object) -> str:
    on.call("rows", url=url, table=table, into=str(into), **words)
    return one_machine.digest(one_machine.stored(into))


def test_every_table_has_the_rows_of_one_machine(on: Driver, url: str, tmp_path: Path) -> None:
    """All tables of docs/fleet.md, and their columns in order."""
    for table in TABLES:
        expected = one_machine.table(url, table)
        assert ask(on, tmp_path / table, url, table) == one_machine.digest(expected), table
        assert one_machine.stored(tmp_path / table).schema.names == expected.schema.names
        assert expected.num_rows > 0, table
    assert {"intact", "torn", "corrupt"} == set(expected["state"].to_pylist())


def test_the_size_of_a_partition_changes_no_row(on: Driver, url: str, tmp_path: Path) -> None:
    """One journal a task, seven, all."""
    expected = one_machine.digest(one_machine.table(url, "pods"))
    for journals in (1, 7, 1000):
        options = {"partitionJournals": str(journals)}
        assert ask(on, tmp_path / str(journals), url, "pods", options=options) == expected
        tasks = on.call("count", url=url, table="pods", options=options)["tasks"]
        assert tasks == -(-len(fleet.journals(url)) // journals)


def test_a_filter_leaves_others_unread(on: Driver, url: str, tmp_path: Path) -> None:
    """On the node by the names of their paths, on the time by the store's; where pushdown is not enabled
    Spark filters, and says the same.
    """
    where, one_each = "node = 'node-7'", {"partitionJournals": "1"}
    refs = fleet.journals(url)
    # What lies in a folder that says nothing is read all the same.
    read = [ref for ref in refs if not ref.nodes or "node-7" in ref.nodes]
    pushed = one_each | {"pushdown": "true"}
    everything = on.call("count", url=url, table="pods", options=one_each, where=where)
    with pytest.raises(RuntimeError, match=r"spark\.sql\.python\.filterPushdown\.enabled"):
        on.call("count", url=url, table="pods", options=pushed, where=where)
    on.call("configure", name="spark.sql.python.filterPushdown.enabled", value="true")
    try:
        chosen = on.call("count", url=url, table="pods", options=pushed, where=where)
        future = on.call("count", url=url, table="pods", options=pushed, where="started > '2200-01-01'")
        past = on.call("count", url=url, table="pods", options=pushed, where="started > '2020-01-01'")
        lying = on.call("count", url=url, table="journals", options=pushed, where="state = 'corrupt'")
    finally:
        on.call("configure", name="spark.sql.python.filterPushdown.enabled", value="false")
    assert chosen["rows"] == everything["rows"] > 0
    assert (everything["tasks"], chosen["tasks"]) == (len(refs), len(read))
    assert len(read) < 5
    # Of a folder that says nothing the files may be older than what is in them.
    assert (future["rows"], future["tasks"]) == (0, len([ref for ref in refs if not ref.nodes]))
    assert past["rows"] == one_machine.table(url, "pods").num_rows
    assert lying["rows"] == 2


def test_an_executor_that_is_killed_changes_no_row(
    spark: Cluster, on: Driver, url: str, tmp_path: Path
) -> None:
    """SIGKILL while it works: its tasks run elsewhere, and no row is twice or missing."""

    def kill_one_during(into: Path, name: str, **words: object) -> None:
        before = until_sync(lambda: executors(spark), "no executor begins")
        with ThreadPoolExecutor(1) as pool:
            work = pool.submit(on.call, name, url=url, into=str(into), **words)
            began, until = python_times(spark), time.monotonic() + KILL_SECONDS_MAX
            while spent(began, python_times(spark)) < WORKED_SECONDS and time.monotonic() < until:
                time.sleep(POLL_SECONDS)
            os.kill(before[0], signal.SIGKILL)
            assert not work.done()
            work.result()
        assert before[0] not in executors(spark)

    kill_one_during(tmp_path / "verify", "verb", verb="verify", part_journals=1)
    assert one_machine.stored(tmp_path / "verify").to_pylist() == one_machine.verb(url, "verify").to_pylist()
    kill_one_during(tmp_path / "pods", "rows", table="pods", options={"partitionJournals": "1"})
    assert one_machine.digest(one_machine.stored(tmp_path / "pods")) == one_machine.digest(
        one_machine.table(url, "pods")
    )

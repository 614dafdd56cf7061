"""A fleet on a real Spark cluster says what one machine says, whatever becomes of an executor."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from ebbtide import fleet
from ebbtide.config.loading import load
from tests.beds.skipping import or_skip
from tests.commands import ebbtide
from tests.fleet_bed import one_machine
from tests.fleet_bed.cluster import Cluster, Driver, cluster, driver
from tests.fleet_bed.environment import without_spark
from tests.fleet_bed.processes import executors, python_seconds

NODES, OUTAGES = 40, 4
KILL_SECONDS_MAX, POLL_SECONDS = 60, 0.05
#: Of processor time, when the executor is killed: some tasks are done, most are not.
WORKED_SECONDS = 0.5
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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spark")


@pytest.fixture(scope="module")
def url(folder: Path) -> str:
    """Simulated nodes, as they are shipped: a folder names its node."""
    simulate("--seeds", f"1..{NODES}", "--journal", str(folder / "made"))
    for seed in range(1, OUTAGES + 1):
        simulate("--outage", "--seed", str(seed), "--journal", str(folder / "outages" / f"outage-{seed}"))
    for made in ("made", "outages"):
        for node in (folder / made).iterdir():
            shutil.copytree(node, folder / "fleet" / made / f"node={node.name}")
    return (folder / "fleet").as_uri()


@pytest.fixture(scope="module")
def spark(folder: Path) -> Iterator[Cluster]:
    with or_skip():
        bed = cluster(folder, workers=2)
        started = bed.__enter__()
    try:
        yield started
    finally:
        bed.__exit__(None, None, None)


@pytest.fixture(scope="module")
def on(spark: Cluster, folder: Path) -> Iterator[Driver]:
    with driver(spark, folder) as found:
        yield found


def ask(on: Driver, into: Path, url: str, table: str, **words: object) -> str:
    on.call("rows", url=url, table=table, into=str(into), **words)
    return one_machine.digest(one_machine.stored(into))


@pytest.mark.spark
def test_every_table_has_the_rows_of_one_machine(on: Driver, url: str, tmp_path: Path) -> None:
    """All tables of docs/fleet.md, and their columns in order."""
    for table in fleet.ALL_TABLES:
        expected = one_machine.table(url, table)
        assert ask(on, tmp_path / table, url, table) == one_machine.digest(expected), table
        assert one_machine.stored(tmp_path / table).schema.names == expected.schema.names
        assert expected.num_rows > 0, table


@pytest.mark.spark
def test_the_size_of_a_partition_changes_no_row(on: Driver, url: str, tmp_path: Path) -> None:
    """One journal a task, seven, all."""
    expected = one_machine.digest(one_machine.table(url, "pods"))
    for journals in (1, 7, 1000):
        options = {"partitionJournals": str(journals)}
        assert ask(on, tmp_path / str(journals), url, "pods", options=options) == expected
        tasks = on.call("count", url=url, table="pods", options=options)["tasks"]
        assert tasks == -(-len(fleet.journals(url)) // journals)


@pytest.mark.spark
def test_a_filter_on_the_node_leaves_the_others_unread(on: Driver, url: str, tmp_path: Path) -> None:
    """By the names of their folders, where pushdown is enabled; else Spark filters, and says the same."""
    where, one_each = "node = 'node-7'", {"partitionJournals": "1"}
    node = [ref for ref in fleet.journals(url) if "node=node-7/" in f"{ref.folder}/"]
    pushed = one_each | {"pushdown": "true"}
    everything = on.call("count", url=url, table="pods", options=one_each, where=where)
    with pytest.raises(RuntimeError, match=r"spark\.sql\.python\.filterPushdown\.enabled"):
        on.call("count", url=url, table="pods", options=pushed, where=where)
    on.call("configure", name="spark.sql.python.filterPushdown.enabled", value="true")
    try:
        chosen = on.call("count", url=url, table="pods", options=pushed, where=where)
        future = on.call("count", url=url, table="pods", options=pushed, where="started > '2200-01-01'")
        past = on.call("count", url=url, table="pods", options=pushed, where="started > '2020-01-01'")
    finally:
        on.call("configure", name="spark.sql.python.filterPushdown.enabled", value="false")
    assert chosen["rows"] == everything["rows"] > 0
    assert (everything["tasks"], chosen["tasks"]) == (NODES + OUTAGES, len(node))
    assert future["rows"] == 0
    assert past["rows"] == one_machine.table(url, "pods").num_rows


@pytest.mark.spark
def test_a_stream_hands_out_each_settled_shutdown_once(on: Driver, url: str, tmp_path: Path) -> None:
    """Nothing twice when nothing is new; of a journal that grew only what its new objects settle."""
    store, kept = tmp_path / "store", tmp_path / "kept"
    shutil.copytree(Path(url.removeprefix("file://")) / "made", store)
    several = [node for node in sorted(store.iterdir()) if len(list(node.glob("*.ebj"))) > 1]
    held = [max(node.glob("*.ebj")) for node in several]
    kept.mkdir()
    for each in held:
        (kept / each.parent.name).mkdir()
        each.rename(kept / each.parent.name / each.name)
    later = store / "node=node-1"
    shutil.move(later, kept / "node-1-whole")

    def stream() -> str:
        into = tmp_path / "rows"
        on.call(
            "stream",
            url=store.as_uri(),
            table="pods",
            checkpoint=str(tmp_path / "cp"),
            into=str(tmp_path / "out"),
        )
        on.call("parquet", path=str(tmp_path / "out"), into=str(into))
        return one_machine.digest(one_machine.stored(into))

    first = one_machine.settled_table(store.as_uri(), "pods")
    assert stream() == stream() == one_machine.digest(first)
    shutil.move(kept / "node-1-whole", later)
    for each in held:
        shutil.copy(kept / each.parent.name / each.name, each) if each.parent != later else None
    whole = one_machine.settled_table(store.as_uri(), "pods")
    assert whole.num_rows > first.num_rows
    assert stream() == stream() == one_machine.digest(whole)


@pytest.mark.spark
def test_verbs_say_what_they_say_on_one_machine(on: Driver, url: str, tmp_path: Path) -> None:
    """Verify and what-if; what cannot be answered is a row with its error."""
    config = tmp_path / "new.yaml"
    config.write_text(NEW)
    settings = msgspec.msgpack.encode(load([config]).settings)
    for name, asked in (("verify", {}), ("what-if", {"settings": settings})):
        into = tmp_path / name
        words = {key: value.hex() for key, value in asked.items()}
        on.call("verb", verb=name, url=url, into=str(into), journals=10, **words)
        assert one_machine.digest(one_machine.stored(into)) == one_machine.digest(
            one_machine.verb(url, name, **asked)
        )


@pytest.mark.spark
def test_an_executor_that_is_killed_changes_no_row(
    spark: Cluster, on: Driver, url: str, tmp_path: Path
) -> None:
    """SIGKILL while it works: its tasks run elsewhere, and no row is twice or missing."""
    into = tmp_path / "verify"
    before = executors(spark)
    with ThreadPoolExecutor(1) as pool:
        work = pool.submit(on.call, "verb", verb="verify", url=url, into=str(into), journals=2)
        began, until = python_seconds(spark), time.monotonic() + KILL_SECONDS_MAX
        while python_seconds(spark) < began + WORKED_SECONDS and time.monotonic() < until:
            time.sleep(POLL_SECONDS)
        os.kill(before[0], signal.SIGKILL)
        assert not work.done()
        work.result()
    assert before[0] not in executors(spark)
    assert one_machine.digest(one_machine.stored(into)) == one_machine.digest(one_machine.verb(url, "verify"))


def test_executors_have_spark_from_their_cluster() -> None:
    """The archive's lock is the same but for Spark and what speaks with its JVM."""
    lock = "a==1 \\\n    --hash=x\n    # via pyspark\npy4j==2 \\\n    --hash=y\npyspark==3\nz==4\n"
    assert without_spark(lock) == "a==1 \\\n    --hash=x\n    # via pyspark\nz==4\n"

"""``ebbtide fleet … --engine spark`` equals ``--engine local``; a missing part is one line."""

from __future__ import annotations

import json
import os
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ebbtide.cli.common.guard import CORRUPT, DONE, WRONG
from ebbtide.fleet.fleet_journals import journals
from ebbtide.fleet.fleet_rows import ALL_TABLES
from tests.beds.skipping import or_skip
from tests.commands import Ran, ebbtide
from tests.fleet.nodes import a_node, rows, shipped
from tests.fleet_bed.cluster import Cluster, cluster, command
from tests.fleet_bed.environment import without_spark
from tests.proc import each_process
from tests.store.gateway import BUCKET, READER, gateway
from tests.store.programs import versitygw
from tests.waiting import until_sync


def own_words(ran: Ran) -> list[str]:
    return [line for line in ran.err.splitlines() if line.startswith("ebbtide: ")]


@pytest.mark.spark
@pytest.mark.gate
def test_one_worker_says_the_same(tmp_path: Path) -> None:
    """The gate's look at Spark."""
    for seed in (1, 2, 3):
        shipped(a_node(tmp_path / "nodes", seed), tmp_path / "store")
    words = ("fleet", "verify", "--journals", tmp_path / "store", "-o", "json")
    (tmp_path / "spark").mkdir()
    with or_skip(), cluster(tmp_path / "spark", workers=1) as found:
        ran = command(found, tmp_path / "spark", *words, "--engine", "spark", packed=False)
        pods, misspelt = tables(
            found,
            tmp_path / "spark",
            tmp_path / "store",
            {"options": {"table": "pods"}},
            {"options": {"table": "pods", "partitionJournal": "1"}},
            packed=False,
        )
    assert ran.code == DONE, ran.err
    assert ran.out == ebbtide(*words).out
    assert pods["rows"] == in_order(rows(tmp_path / "store", "pods")) != []
    assert "no option 'partitionjournal': did you mean partitionJournals?" in misspelt["error"]


#: Answers data source queries, a line each.
TABLES = """
import json, sys
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.conf.set("spark.sql.session.timeZone", "UTC")
for asked in map(json.loads, sys.argv[2:]):
    try:
        for name, value in asked.get("settings", {}).items():
            spark.conf.set(name, value)
        frame = spark.read.format("ebbtide").options(**asked["options"]).load(sys.argv[1])
        frame = frame.where(asked.get("where", "true"))
        rows = sorted(map(repr, frame.toArrow().to_pylist()))
        print(json.dumps({"rows": rows, "tasks": frame.rdd.getNumPartitions()}))
    except PySparkException as error:
        print(json.dumps({"error": str(error)}))
"""


def tables(
    found: Cluster, folder: Path, store: Path, *asked: dict[str, Any], packed: bool = True
) -> list[dict[str, Any]]:
    ran = command(found, folder, store, *map(json.dumps, asked), code=TABLES, packed=packed)
    assert ran.code == DONE, ran.err
    return [json.loads(line) for line in ran.out.splitlines()]


def in_order(found: list[dict[str, Any]]) -> list[str]:
    """An engine has no order of its own."""
    return sorted(map(repr, found))


@pytest.mark.spark
def test_the_data_source_has_the_tables_of_one_machine(spark: Cluster, folder: Path, store: Path) -> None:
    """Every table, with damaged journals; pushed-down filters change no row."""
    few = {"partitionJournals": "1"}
    where = {"table": "pods", "pushdown": "true", **few}
    enabled = {"spark.sql.python.filterPushdown.enabled": "true"}
    *answers, refused, node, future, past = tables(
        spark,
        folder,
        store,
        *({"options": {"table": table, **few}} for table in ALL_TABLES),
        {"options": where},
        {"options": where, "settings": enabled, "where": "node = 'node-7'"},
        {"options": where, "where": "started > '2200-01-01'"},
        {"options": where, "where": "started > '2020-01-01'"},
    )
    refs = journals(str(store))
    for table, answer in zip(ALL_TABLES, answers, strict=True):
        assert answer == {"rows": in_order(rows(store, table)), "tasks": len(refs)}, table
        assert answer["rows"]
    assert "spark.sql.python.filterPushdown.enabled" in refused["error"]
    pods = rows(store, "pods")
    assert node["rows"] == in_order([row for row in pods if row["node"] == "node-7"]) != []
    assert past["rows"] == in_order(pods)
    # A folder without a node's name is always read.
    unnamed = sum(ref.folder.startswith("by-hand") for ref in refs)
    assert (future["rows"], future["tasks"]) == ([], unnamed)
    assert node["tasks"] == unnamed + 1


@pytest.mark.spark
def test_an_executor_that_is_killed_changes_nothing(
    spark: Cluster, folder: Path, store: Path, new: Path
) -> None:
    """SIGKILL during the run: another executor gets its bins."""
    words = ("fleet", "what-if", "--journals", store, "--config", new, "-o", "json")
    with ThreadPoolExecutor(1) as pool:
        ran = pool.submit(command, spark, folder, *words, "--engine", "spark")
        (killed, *_) = until_sync(lambda: executors(spark), "no executor begins")
        os.kill(killed, signal.SIGKILL)
        assert (ran.result().code, ran.result().out) == (CORRUPT, ebbtide(*words).out)


def executors(found: Cluster) -> list[int]:
    """The PIDs of their JVMs, children of the workers."""
    argv = each_process("cmdline")
    parents = {pid: int(stat.rpartition(b")")[2].split()[1]) for pid, stat in each_process("stat").items()}
    return [
        pid
        for pid, parent in parents.items()
        if parent in found.worker_pids and b"CoarseGrainedExecutorBackend" in argv.get(pid, b"")
    ]


@pytest.mark.spark
@pytest.mark.parametrize("verb", ["verify", "what-if", "advise", "tables"])
def test_a_verb_says_the_same_on_spark(
    spark: Cluster, folder: Path, store: Path, new: Path, tmp_path: Path, verb: str
) -> None:
    """Document, remarks, files and exit code to the byte, with damaged journals."""
    tables = tmp_path / "tables"
    more = {"what-if": ("--config", new), "tables": ("--to", tables)}.get(verb, ())
    words = ("fleet", verb, "--journals", store, "-o", "json", *more)

    def files() -> dict[str, bytes]:
        found = {path.name: path.read_bytes() for path in tables.glob("*")}
        shutil.rmtree(tables, ignore_errors=True)
        return found

    alone = ebbtide(*words)
    expected = (alone.code, alone.out, own_words(alone), files())
    assert (alone.code, bool(alone.out)) == (CORRUPT, True)
    ran = command(spark, folder, *words, "--engine", "spark")
    assert (ran.code, ran.out, own_words(ran), files()) == expected


@pytest.mark.spark
def test_a_store_of_s3_is_read_by_the_executors(
    spark: Cluster, folder: Path, store: Path, tmp_path: Path
) -> None:
    """From a real server, with a reader's rights."""
    with or_skip():
        versitygw()
    words = ("fleet", "verify", "--journals", f"s3://{BUCKET}/v1", "-o", "json")
    with gateway(tmp_path, "none") as server:
        shutil.copytree(store / "v1", server.data / BUCKET / "v1")
        alone = ebbtide(*words, **server.environ(READER))
        ran = command(spark, folder, *words, "--engine", "spark", **server.environ(READER))
    assert (alone.code, bool(json.loads(alone.out)["states"]["identical"])) == (CORRUPT, True)
    assert (ran.code, ran.out) == (alone.code, alone.out)


@pytest.mark.spark
def test_executors_without_the_wheel_are_named(spark: Cluster, folder: Path, store: Path) -> None:
    """Spark gives up after four tries: one line names the missing part."""
    bare = {"PYSPARK_PYTHON": shutil.which("python3", path=os.defpath) or "python3"}
    ran = command(spark, folder, "fleet", "verify", "--journals", store, "--engine", "spark", **bare)
    assert (ran.code, ran.out) == (WRONG, "")
    (said,) = own_words(ran)
    assert said.startswith("ebbtide: Spark has given up: ")


def test_executors_have_spark_from_their_cluster() -> None:
    """The archive's lock differs only by Spark and its JVM bridge."""
    lock = "a==1 \\\n    --hash=x\n    # via pyspark\npy4j==2 \\\n    --hash=y\npyspark==3\nz==4\n"
    assert without_spark(lock) == "a==1 \\\n    --hash=x\n    # via pyspark\nz==4\n"

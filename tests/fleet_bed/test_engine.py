"""``ebbtide fleet … --engine spark`` says what ``--engine local`` says; what is missing is one line."""

from __future__ import annotations

import json
import os
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ebbtide.cli.common.guard import CORRUPT, DONE, WRONG
from tests.beds.skipping import or_skip
from tests.commands import Ran, ebbtide
from tests.fleet.nodes import a_node, shipped
from tests.fleet_bed.cluster import Cluster, cluster, command
from tests.fleet_bed.environment import without_spark
from tests.proc import each_process
from tests.store.gateway import BUCKET, READER, gateway
from tests.store.programs import versitygw
from tests.waiting import until_sync


def own_words(ran: Ran) -> list[str]:
    """Of standard error what is not Spark's."""
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
    assert ran.code == DONE, ran.err
    assert ran.out == ebbtide(*words).out


@pytest.mark.spark
def test_an_executor_that_is_killed_changes_nothing(
    spark: Cluster, folder: Path, store: Path, new: Path
) -> None:
    """SIGKILL while others ask: its bins are asked elsewhere."""
    words = ("fleet", "what-if", "--journals", store, "--config", new, "-o", "json")
    with ThreadPoolExecutor(1) as pool:
        ran = pool.submit(command, spark, folder, *words, "--engine", "spark")
        (killed, *_) = until_sync(lambda: executors(spark), "no executor begins")
        os.kill(killed, signal.SIGKILL)
        assert (ran.result().code, ran.result().out) == (CORRUPT, ebbtide(*words).out)


def executors(found: Cluster) -> list[int]:
    """Pids of their JVMs, which are children of the workers."""
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
    """To the byte: its document, its remarks, its files, its exit code; damaged journals are among them."""
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
    """From a real server, with the rights of who may only read."""
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
    """Spark gives up after four tries: one line says what an executor missed."""
    bare = {"PYSPARK_PYTHON": shutil.which("python3", path=os.defpath) or "python3"}
    ran = command(spark, folder, "fleet", "verify", "--journals", store, "--engine", "spark", **bare)
    assert (ran.code, ran.out) == (WRONG, "")
    (said,) = own_words(ran)
    assert said.startswith("ebbtide: Spark has given up: ")


def test_executors_have_spark_from_their_cluster() -> None:
    """The archive's lock is the same but for Spark and what speaks with its JVM."""
    lock = "a==1 \\\n    --hash=x\n    # via pyspark\npy4j==2 \\\n    --hash=y\npyspark==3\nz==4\n"
    assert without_spark(lock) == "a==1 \\\n    --hash=x\n    # via pyspark\nz==4\n"

"""``ebbtide fleet … --engine spark`` says what ``--engine local`` says; what is missing is one line."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from ebbtide.cli.common.guard import CORRUPT, WRONG
from tests.beds.skipping import or_skip
from tests.commands import Ran, ebbtide
from tests.fleet_bed.cluster import Cluster, command
from tests.fleet_bed.environment import without_spark
from tests.store.gateway import BUCKET, READER, gateway
from tests.store.programs import versitygw


def own_words(ran: Ran) -> list[str]:
    """Of standard error what is not Spark's."""
    return [line for line in ran.err.splitlines() if line.startswith("ebbtide: ")]


@pytest.mark.spark
@pytest.mark.parametrize("verb", ["verify", "what-if", "advise", "tables"])
def test_a_verb_says_the_same_on_spark(
    spark: Cluster, folder: Path, store: Path, new: Path, tmp_path: Path, verb: str
) -> None:
    """To the byte: its document, its remarks, its files, its exit code; damaged journals are among them."""
    tables = tmp_path / "tables"
    reports = ("--config", new, "--html", tmp_path / "risk.html", "--reports", tables)
    more = {"what-if": reports, "tables": ("--to", tables)}.get(verb, ())
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
    assert said.startswith("ebbtide: Spark has given it up: ")


def test_executors_have_spark_from_their_cluster() -> None:
    """The archive's lock is the same but for Spark and what speaks with its JVM."""
    lock = "a==1 \\\n    --hash=x\n    # via pyspark\npy4j==2 \\\n    --hash=y\npyspark==3\nz==4\n"
    assert without_spark(lock) == "a==1 \\\n    --hash=x\n    # via pyspark\nz==4\n"

"""The pool: ordered answers, and no orphaned process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from multiprocessing import active_children
from pathlib import Path
from threading import Event
from typing import Any
from unittest.mock import MagicMock

import pytest

from ebbtide.fleet import pool
from ebbtide.fleet.fleet_journals import File, Ref, bins
from ebbtide.fleet.pool import BIN_JOURNALS_MAX, WorkerLost, context, java_missing, over_bins
from tests.waiting import until_sync


def refs(count: int) -> list[Ref]:
    return [Ref("file:///", f"n{at}", (File("1.ebj", f"n{at}/1.ebj", 1, 0),)) for at in range(count)]


def names(of: Sequence[Ref]) -> list[str]:
    return [ref.folder for ref in of]


def second_first(done: Path, of: Sequence[Ref]) -> list[str]:
    if names(of)[0] == "n0":
        until_sync(done.exists, "no other worker has a bin")
    else:
        done.touch()
    return names(of)


def end_at_once(of: Sequence[Ref]) -> None:
    os._exit(1)


@pytest.mark.parametrize("jobs", [1, 2])
def test_answers_come_in_order(tmp_path: Path, jobs: int) -> None:
    """In any finishing order; each bin once, with its number of journals."""
    work = names if jobs == 1 else partial(second_first, tmp_path / "done")
    found = list(over_bins(work, refs(40), jobs))
    assert [name for _, answer in found for name in answer] == names(refs(40))
    assert [size for size, _ in found] == [len(answer) for _, answer in found]
    assert len(found) >= jobs


def test_bins_are_small_and_never_empty() -> None:
    """Large fleets are split by the hundred, small ones over all workers."""
    sizes = [size for size, _ in over_bins(len, refs(1000), 1)]
    assert max(sizes) == BIN_JOURNALS_MAX
    assert [size for size, _ in over_bins(len, refs(3), 1)] == [1, 1, 1]
    assert list(over_bins(len, [], 1)) == []
    assert bins([]) == []


def test_who_stops_in_the_middle_leaves_no_worker() -> None:
    before = set(active_children())
    answers = over_bins(names, refs(40), 2)
    assert list(islice(answers, 1))
    assert set(active_children()) - before
    answers.close()  # type: ignore[attr-defined]
    assert set(active_children()) == before


def test_a_worker_that_is_lost_is_told() -> None:
    with pytest.raises(WorkerLost, match="use fewer"):
        list(over_bins(end_at_once, refs(8), 2))


@pytest.mark.parametrize(
    "said, missing",
    [
        ('openjdk version "17.0.19" 2026-04-21', ""),
        ('java version "25" 2025-09-16 LTS', ""),
        ('openjdk version "11.0.2" 2019-01-15', "{d}/bin/java is of version 11"),
        ("Segmentation fault", "{d}/bin/java does not print its version"),
        (None, "there is none in JAVA_HOME={d}"),
    ],
)
def test_java_is_looked_for_as_spark_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str | None, missing: str
) -> None:
    """JAVA_HOME first; the error names its content."""
    if said is not None:
        java = tmp_path / "bin/java"
        java.parent.mkdir()
        java.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
        java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java_missing() == missing.format(d=tmp_path)


@pytest.mark.parametrize(
    "environ, said",
    [
        ({"JAVA_HOME": "/nowhere"}, "none in JAVA_HOME=/nowhere: install it, or name it by JAVA_HOME"),
        ({"SPARK_REMOTE": "sc://127.0.0.1"}, "name a cluster by spark-submit --master"),
    ],
)
def test_what_spark_needs_is_named(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], said: str
) -> None:
    for name in ("py4j.protocol", "pyspark", "pyspark.errors"):
        monkeypatch.setitem(sys.modules, name, MagicMock())
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(WorkerLost, match=said):
        context.__wrapped__()


def test_a_master_that_does_not_answer_ends_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """The timer ends Spark's own JVM; the JVM of spark-submit ends by itself."""

    class Failed(Exception):
        pass

    class AtOnce:
        def __init__(self, seconds: float, function: Callable[..., None], arguments: tuple[Any, ...]) -> None:
            self.start = lambda: function(*arguments)

    spark = MagicMock()
    spark.SparkConf.return_value.setIfMissing.return_value.get.return_value = "spark://off:7077,gone:7077"
    spark.SparkContext.getOrCreate.side_effect = Failed("Answer from Java side is empty")
    monkeypatch.setitem(sys.modules, "pyspark", spark)
    for name, error in (("py4j.protocol", "Py4JError"), ("pyspark.errors", "PySparkException")):
        monkeypatch.setitem(sys.modules, name, MagicMock(**{error: Failed}))
    monkeypatch.setattr(pool, "java_missing", str)
    monkeypatch.setattr(pool, "Timer", AtOnce)
    refused = OSError("refused")
    connect = MagicMock(side_effect=(refused, refused, refused, *[MagicMock()] * 2))
    monkeypatch.setattr(pool, "create_connection", connect)
    with pytest.raises(WorkerLost, match="spark://off:7077,gone:7077 cannot be reached: refused"):
        context.__wrapped__()
    with pytest.raises(WorkerLost, match="gone:7077 has not answered in 15 s"):
        context.__wrapped__()
    spark.SparkContext._gateway.proc.kill.assert_called_once_with()
    spark.SparkContext._gateway = None
    with pytest.raises(WorkerLost, match="Answer from Java side"):
        context.__wrapped__()


SLOW = """
import sys
from ebbtide.cli.common.guard import guarded
import ebbtide.fleet.fleet_verbs as verbs
verbs.ask_journals = __import__("tests.fleet.test_pool", fromlist=["wait_for_ever"]).wait_for_ever
sys.exit(guarded(["fleet", "verify", "--journals", sys.argv[1], "--jobs", "2"]))
"""


def wait_for_ever(verb: object, of: Sequence[Ref]) -> None:
    Path(os.environ["EBBTIDE_TEST_WORKERS"], str(os.getpid())).touch()
    Event().wait()


def is_there(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_whoever_ends_the_command_ends_its_workers(
    tmp_path: Path, fleet_of_two: Path, number: signal.Signals
) -> None:
    """Ctrl-C reaches all processes of a terminal, silently; a killed command leaves no process."""
    command = subprocess.Popen(
        [sys.executable, "-c", SLOW, str(fleet_of_two)],
        env={**os.environ, "EBBTIDE_TEST_WORKERS": str(tmp_path), "PYTHONPATH": str(Path.cwd())},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    until_sync(lambda: len(list(tmp_path.iterdir())) == 2, "two workers do not begin")
    workers = [int(path.name) for path in tmp_path.iterdir()]
    if number == signal.SIGINT:
        os.killpg(command.pid, number)
    else:
        command.kill()
    _, said = command.communicate()
    assert command.returncode == -number
    # A killed process leaks its semaphores: Python reports that.
    assert number == signal.SIGKILL or not said.strip()
    until_sync(lambda: not any(map(is_there, workers)), "a worker is left")

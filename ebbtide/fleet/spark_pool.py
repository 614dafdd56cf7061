"""The bins of `ebbtide.fleet.pool` on the executors of Apache Spark.

A bin is a job of one task: Spark chooses its place, and runs it again if an executor is lost. Answers arrive
in order, so the result is that of one machine, and the driver holds only a few of them.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any
from zipimport import zipimporter

from ebbtide.fleet.fleet_plan import HasBytesT
from ebbtide.fleet.pool import BINS_UNDER_WAY, Answer, WorkerLost, in_order, parts_for

#: The oldest one for Spark 4.
JAVA_MIN = 17
JAVA_SECONDS_MAX = 60
#: A thread waits for each bin under way: two for each of 512 cores. With more cores the driver's own work is
#: the limit.
THREADS_MAX = 1024


def java_missing() -> str:
    """Why Spark would not find its Java; empty: it does."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(f"{home}/bin/java" if home else "java")
    if java is None:
        return f"there is none in JAVA_HOME={home}" if home else "there is none"
    asked = subprocess.run(
        [java, "-version"], capture_output=True, text=True, timeout=JAVA_SECONDS_MAX, check=False
    )
    found = re.search(r'version "(\d+)', asked.stderr)
    if found and int(found[1]) >= JAVA_MIN:
        return ""
    return f"{java} is of version {found[1]}" if found else f"{java} does not print its version"


@cache
def context() -> Any:
    """A SparkContext, by the configuration that Spark finds (spark-submit's, PYSPARK_SUBMIT_ARGS,
    SPARK_CONF_DIR). Raises WorkerLost.

    One for the command, stopped with it: a driver in the cluster cannot begin a second one.
    """
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException

    if "SPARK_REMOTE" in os.environ:
        raise WorkerLost(
            "Spark Connect (SPARK_REMOTE) does not run the verbs: name a cluster by spark-submit --master"
        )
    # Under spark-submit the JVM runs already.
    if "PYSPARK_GATEWAY_PORT" not in os.environ and (missing := java_missing()):
        raise WorkerLost(
            f"Spark needs Java {JAVA_MIN} or later beside its package, and {missing}:"
            " install it, or name it by JAVA_HOME"
        )
    try:
        found = SparkContext.getOrCreate(SparkConf().setIfMissing("spark.app.name", "ebbtide fleet"))
    except (Py4JError, PySparkException) as error:
        raise WorkerLost(f"Spark does not start: {_cause(error)}") from error
    atexit.register(found.stop)
    return found


def over_spark(
    spark: Any, work: Callable[[Sequence[HasBytesT]], Answer], refs: Sequence[HasBytesT]
) -> Iterator[tuple[int, Answer]]:
    """As `over_bins`, on a SparkContext. Raises WorkerLost."""
    from py4j.protocol import Py4JError

    def ask(part: Sequence[HasBytesT]) -> Answer:
        answers: list[Answer] = spark.parallelize([part], 1).map(partial(_task, work)).collect()
        return answers[0]

    pool = ThreadPoolExecutor(THREADS_MAX)
    try:
        # Executors may come and go: ask for the present number of cores.
        yield from in_order(
            lambda part: pool.submit(ask, part),
            parts_for(refs, spark.defaultParallelism),
            lambda: min(spark.defaultParallelism, THREADS_MAX // BINS_UNDER_WAY),
        )
    except Py4JError as error:
        raise WorkerLost(f"Spark has given up: {_cause(error)}") from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _task(work: Callable[[Sequence[HasBytesT]], Answer], part: Sequence[HasBytesT]) -> Answer:
    forget_archives()
    return work(part)


def forget_archives() -> None:
    """For a worker's next task, which Spark before 4.2 begins with `importlib.invalidate_caches` (its
    SPARK-54744).

    Python 3.11 then reads the whole directory of each archive on its path again (CPython's gh-103200):
    ``pyspark.zip`` takes a fifth of a second. The next import makes a forgotten finder again.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]


def _cause(error: Exception) -> str:
    """An executor's own error, else the first line."""
    lines = [line.strip() for line in str(error).splitlines()]
    said = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b: ", line)]
    return (said or lines)[0]

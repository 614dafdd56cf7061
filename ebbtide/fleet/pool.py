"""A fleet's journals, bin by bin, by a pool of processes or by Apache Spark's executors.

Answers arrive in order: the number of processes does not change the result.
"""

from __future__ import annotations

import atexit
import gc
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache, partial
from itertools import islice
from multiprocessing import active_children, get_context, parent_process
from socket import create_connection
from threading import Thread, Timer
from typing import Any, TypeVar
from zipimport import zipimporter

from ebbtide.events.units import span_s
from ebbtide.fleet.fleet_journals import HasBytesT, bins

Answer = TypeVar("Answer")

#: Some seconds of the slowest verb: no process is idle for long at the end.
BIN_JOURNALS_MAX = 100
#: Rows may take forty times as much memory.
BIN_BYTES_MAX = 4 << 20
#: A small fleet has smaller bins.
BINS_A_PROCESS_MIN = 4
#: For each process.
BINS_UNDER_WAY = 2


class WorkerLost(Exception):
    """Its text has the cure."""


def processors() -> int:
    return len(os.sched_getaffinity(0))


def over_bins(
    work: Callable[[Sequence[HasBytesT]], Answer], refs: Sequence[HasBytesT], jobs: int
) -> Iterator[tuple[int, Answer]]:
    """Each bin's number of refs, and its answer. One job begins no process.

    Closing the iterator, or Ctrl-C, ends the workers at once: they only read. Raises WorkerLost, and the
    errors of ``work``.
    """
    parts = parts_for(refs, jobs)
    if jobs == 1:
        for each in parts:
            yield len(each), work(each)
        return
    # A fork would copy the locks of pyarrow's and the client's threads.
    others = set(active_children())
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_begin_worker)
    whole = False
    try:
        yield from in_order(lambda part: pool.submit(work, part), parts, lambda: jobs)
        whole = True
    except BrokenProcessPool as error:
        raise WorkerLost(
            f"one of {jobs} processes ended in mid-work: if memory is short, use fewer (--jobs 1)"
        ) from error
    finally:
        if not whole:
            for worker in set(active_children()) - others:
                worker.terminate()
        pool.shutdown(cancel_futures=True)


def parts_for(refs: Sequence[HasBytesT], jobs: int) -> list[list[HasBytesT]]:
    count = max(1, min(BIN_JOURNALS_MAX, len(refs) // (jobs * BINS_A_PROCESS_MIN)))
    return bins(refs, BIN_BYTES_MAX, count)


def in_order(
    submit: Callable[[Sequence[HasBytesT]], Future[Answer]],
    parts: Iterable[Sequence[HasBytesT]],
    jobs: Callable[[], int],
) -> Iterator[tuple[int, Answer]]:
    """Each part's number of refs, and its answer. ``jobs`` may grow. Raises a part's error."""
    waiting = iter(parts)
    under_way: deque[tuple[int, Future[Answer]]] = deque()

    def fill() -> None:
        room = jobs() * BINS_UNDER_WAY - len(under_way)
        under_way.extend((len(part), submit(part)) for part in islice(waiting, max(0, room)))

    fill()
    while under_way:
        size, future = under_way.popleft()
        answer = future.result()
        fill()
        yield size, answer


def _begin_worker() -> None:
    # Ctrl-C reaches every process of the terminal, but the command ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def end_with_parent() -> None:
        # A worker holds the pipe open itself, so it would wait for a killed parent for ever.
        if (parent := parent_process()) is not None:
            parent.join()
            os._exit(1)

    Thread(target=end_with_parent, daemon=True).start()
    # Imported modules need no garbage collection.
    gc.freeze()


# --- on the executors of Apache Spark

#: Spark 4 needs it.
JAVA_MIN = 17
JAVA_SECONDS_MAX = 60
#: A master connects and answers within a second. Spark tries three times in a minute, and may then hang.
CONNECT_SECONDS_MAX, ANSWER_SECONDS_MAX = 5, 15
#: Commas separate a standalone cluster's masters.
STANDALONE = "spark://"
#: One waits for each bin under way: two for each of 512 cores. With more cores the driver is the limit.
THREADS_MAX = 1024


def java_missing() -> str:
    """Why Spark would not find its Java, or empty."""
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
    """A SparkContext by Spark's own configuration (spark-submit's, PYSPARK_SUBMIT_ARGS, SPARK_CONF_DIR). A
    driver in the cluster cannot begin a second one. Raises WorkerLost.
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
    silent: list[str] = []
    try:
        SparkContext._ensure_initialized()
        settings = SparkConf().setIfMissing("spark.app.name", "ebbtide fleet")
        master = settings.get("spark.master", "")
        timer = Timer(ANSWER_SECONDS_MAX, _give_up, (SparkContext._gateway, silent))
        if master.startswith(STANDALONE):
            _reach(master)
            timer.start()
        found = SparkContext.getOrCreate(settings)
        timer.cancel()
    except (Py4JError, PySparkException, OSError) as error:
        why = _cause(error)
        if silent:
            why = f"{master} has not answered in {span_s(ANSWER_SECONDS_MAX)}: is it a master?"
        raise WorkerLost(f"Spark does not start: {why}") from error
    atexit.register(found.stop)
    return found


def _reach(master: str) -> None:
    """Raises OSError if no master accepts a connection."""
    why = ""
    for each in master.removeprefix(STANDALONE).split(","):
        host, _, port = each.rpartition(":")
        try:
            create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS_MAX).close()
        except (OSError, ValueError) as error:
            why = str(error)
        else:
            return
    raise OSError(f"{master} cannot be reached: {why}")


def _give_up(gateway: Any, silent: list[str]) -> None:
    """End our JVM, and so the call that waits for it. spark-submit ends its own JVM."""
    process = getattr(gateway, "proc", None)
    if process is not None:
        silent.append("")
        process.kill()


def over_spark(
    spark: Any, work: Callable[[Sequence[HasBytesT]], Answer], refs: Sequence[HasBytesT]
) -> Iterator[tuple[int, Answer]]:
    """As `over_bins`. Spark runs a bin again if its executor is lost. Raises WorkerLost."""
    from py4j.protocol import Py4JError

    def ask(part: Sequence[HasBytesT]) -> Answer:
        answers: list[Answer] = spark.parallelize([part], 1).map(partial(_task, work)).collect()
        return answers[0]

    pool = ThreadPoolExecutor(THREADS_MAX)
    try:
        # Executors come and go: count their cores each time.
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
    """Spark before 4.2 begins a task with `importlib.invalidate_caches` (SPARK-54744). Then Python 3.11 reads
    each archive's directory again (gh-103200): 0.2 s for ``pyspark.zip``.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]


def _cause(error: Exception) -> str:
    """An executor's error, else the first line."""
    lines = [line.strip() for line in str(error).splitlines()]
    said = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b: ", line)]
    return (said or lines)[0]

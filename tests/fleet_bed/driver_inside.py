"""The inside of the bed's Spark application: answers each line of JSON, until its input ends.

Runs in the executors' archive or in the checkout, with Spark beside it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
from pyarrow import feather
from pyspark.sql import DataFrame, SparkSession

from ebbtide.fleet import VERBS, journals, pool
from ebbtide.fleet.spark_pool import over_spark

BIN_JOURNALS_MAX = pool.BIN_JOURNALS_MAX


class Application:
    """Its ``do_`` methods are what can be asked for."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def _source(self, url: str, table: str, options: dict[str, str], where: str) -> DataFrame:
        reader = self.spark.read.format("ebbtide").option("table", table).options(**options)
        frame = reader.load(url)
        return frame.where(where) if where else frame

    def do_rows(
        self, url: str, table: str, into: str, options: dict[str, str] | None = None, where: str = ""
    ) -> dict[str, Any]:
        """A table as an Arrow file."""
        frame = self._source(url, table, options or {}, where)
        return self._collect(frame, into)

    def do_count(
        self, url: str, table: str, options: dict[str, str] | None = None, where: str = ""
    ) -> dict[str, Any]:
        """Rows, and the tasks that they took; nothing else comes to the driver."""
        frame = self._source(url, table, options or {}, where)
        began = time.perf_counter()
        rows = frame.count()
        return {"rows": rows, "tasks": frame.rdd.getNumPartitions(), "seconds": time.perf_counter() - began}

    def do_verb(self, verb: str, url: str, into: str, part_journals: int = 0, **asked: Any) -> None:
        """A verb's rows as an Arrow file, asked as the command line asks on Spark."""
        if "settings" in asked:
            asked["settings"] = bytes.fromhex(asked["settings"])
        pool.BIN_JOURNALS_MAX = part_journals or BIN_JOURNALS_MAX
        work = partial(pool.verb_batches, verb, asked)
        found = over_spark(self.spark.sparkContext, work, journals(url))
        batches = [batch for _, batches in found for batch in batches]
        feather.write_feather(pa.Table.from_batches(batches, VERBS[verb].shape), into)

    def do_configure(self, name: str, value: str) -> None:
        self.spark.conf.set(name, value)

    def _collect(self, frame: DataFrame, into: str) -> dict[str, Any]:
        began = time.perf_counter()
        table: pa.Table = frame.toArrow()
        seconds = time.perf_counter() - began
        feather.write_feather(table, into)
        return {"rows": table.num_rows, "seconds": seconds}


def main() -> None:
    builder = SparkSession.builder.appName("ebbtide-tests")
    for name, value in json.loads(sys.argv[1]).items():
        builder = builder.config(name, value)
    # Spark's own word goes to standard output here and there.
    out, sys.stdout = sys.stdout, sys.stderr
    spark = builder.getOrCreate()
    application = Application(spark)
    for line in sys.stdin:
        request = json.loads(line)
        method: Callable[..., Any] = getattr(application, "do_" + request.pop("do"))
        try:
            answer = {"ok": method(**request)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=out, flush=True)
    spark.stop()


if __name__ == "__main__":
    main()

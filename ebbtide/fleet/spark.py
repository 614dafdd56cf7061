"""A fleet's journals as a data source of Apache Spark: ``spark.read.format("ebbtide")``.

    spark.read.format("ebbtide").option("table", "pods").load("s3://bucket/v1")

The driver plans by names alone, of one LIST; executors read, and hand Arrow batches to Spark. What a row says
is the portable core's (`ebbtide.fleet`), so that it is the same here as on one machine. Options:

``table``
    One of docs/fleet.md; default ``shutdowns``.
``partitionJournals``, ``partitionMiB``
    How much one task reads at most. A journal is never split.
``pushdown``
    ``true`` where ``spark.sql.python.filterPushdown.enabled`` is: then filters on ``node`` and ``started``
    choose what is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.fleet import JOURNALS_TABLE, Ref, bins, journals, record_batches, schema
from ebbtide.fleet.spark_task import forget_archives

# Spark imports this module wherever it looks for any data source, also where the extra `fleet` is not: the
# store's client is loaded when a store is opened.

MIB = 1 << 20
#: A lost task is read again: some hundred journals are a second or two of work.
PARTITION_JOURNALS, PARTITION_MIB = 200, 64
#: A store dates objects by its own clock, a shutdown is dated by its node's. A node that is off by more than
#: this shuts down at a time that nobody should filter by.
CLOCK_DIFFERENCE_MAX = timedelta(days=1)


class JournalsPartition(InputPartition):
    """What one task reads."""

    def __init__(self, refs: Sequence[Ref]) -> None:
        super().__init__(None)
        self.refs = refs


class DefaultSource(DataSource):
    """Found by its class's name, in a module whose name begins with ``pyspark_``."""

    @classmethod
    def name(cls) -> str:
        return "ebbtide"

    def schema(self) -> Any:
        return from_arrow_schema(schema(_table(self.options)))

    def reader(self, schema: Any) -> DataSourceReader:
        # Spark refuses a reader with `pushFilters` where pushdown is not enabled, which is its default, and
        # nothing here can read the session's configuration.
        pushes = self.options.get("pushdown", "false").lower() == "true"
        return (PushdownReader if pushes else JournalReader)(self.options)


def _table(options: Any) -> str:
    return str(options.get("table", "shutdowns"))


def _parts(options: Any, refs: Sequence[Ref]) -> list[list[Ref]]:
    journals_max = int(options.get("partitionJournals", PARTITION_JOURNALS))
    return bins(refs, int(options.get("partitionMiB", PARTITION_MIB)) * MIB, journals_max)


class JournalReader(DataSourceReader):
    """Every journal below ``path``."""

    def __init__(self, options: Any) -> None:
        self.options = options
        self.nodes: set[str] | None = None
        self.since_ns = 0

    def partitions(self) -> list[InputPartition]:
        refs = [ref for ref in journals(self.options["path"]) if self._may_hold_rows(ref)]
        return [JournalsPartition(each) for each in _parts(self.options, refs)]

    def _may_hold_rows(self, ref: Ref) -> bool:
        """By its names: a folder that names no node may be anybody's, and of any time."""
        if not ref.nodes:
            return True
        of_node = self.nodes is None or not self.nodes.isdisjoint(ref.nodes)
        return of_node and ref.modified_ns >= self.since_ns

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        forget_archives()
        # Spark makes a partition of its own where there is none.
        return iter(()) if partition is None else record_batches(partition.refs, _table(self.options))


class PushdownReader(JournalReader):
    """The same, of which filters leave journals unread."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """All of them are handed back: names tell which journals need no look, Spark which rows are meant."""
        for each in filters:
            # Of an object below another node's name the table `journals` has a row that says whose it is.
            of_nodes = isinstance(each, EqualTo | In) and _table(self.options) != JOURNALS_TABLE
            if of_nodes and each.attribute == ("node",):
                named = {each.value} if isinstance(each, EqualTo) else set(each.value)
                self.nodes = named if self.nodes is None else self.nodes & named
            from_then_on = isinstance(each, EqualTo | GreaterThan | GreaterThanOrEqual)
            if from_then_on and each.attribute == ("started",) and isinstance(each.value, datetime):
                since = each.value - CLOCK_DIFFERENCE_MAX
                self.since_ns = max(self.since_ns, int(since.timestamp()) * NS_PER_SECOND)
            yield each

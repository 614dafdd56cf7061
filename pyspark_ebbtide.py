"""A fleet's journals as tables of Apache Spark: ``spark.read.format("ebbtide")``.

Spark finds this module by its name: it imports every installed ``pyspark_*`` to look for data sources. An
error here would break all of them, so this module imports only packages that Spark or every Ebbtide needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
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
from ebbtide.fleet.fleet_rows import JOURNALS, Options, options_of, parts, record_batches, schema
from ebbtide.fleet.pool import forget_archives

#: The store's clock dates objects, the node's clock dates shutdowns.
CLOCK_DIFFERENCE_MAX = timedelta(days=1)


class DefaultSource(DataSource):
    """Spark looks for this name."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self.asked = options_of(options)

    @classmethod
    def name(cls) -> str:
        return "ebbtide"

    def schema(self) -> Any:
        return from_arrow_schema(schema(self.asked.table))

    def reader(self, schema: Any) -> DataSourceReader:
        # Spark refuses a reader with `pushFilters` unless its own setting enables it. The setting is off by
        # default, and cannot be read here.
        return PushdownReader(self.asked) if self.asked.pushdown else JournalReader(self.asked)


class JournalReader(DataSourceReader):
    """The driver plans, executors read."""

    def __init__(self, asked: Options) -> None:
        self.asked = asked
        self.nodes: set[str] | None = None
        self.since_ns = 0

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(refs) for refs in parts(self.asked, self.nodes, self.since_ns)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        forget_archives()
        # Without a journal Spark makes a partition of its own.
        return record_batches(partition.value if partition else (), self.asked.table)


class PushdownReader(JournalReader):
    """Filters on ``node`` and ``started`` leave journals unread."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Returns all filters: Spark still selects the rows."""
        for each in filters:
            # `journals` also has a row for an object of another node below this node's name.
            of_nodes = isinstance(each, EqualTo | In) and self.asked.table != JOURNALS.name
            if of_nodes and each.attribute == ("node",):
                named = {each.value} if isinstance(each, EqualTo) else set(each.value)
                self.nodes = named if self.nodes is None else self.nodes & named
            of_begin = isinstance(each, EqualTo | GreaterThan | GreaterThanOrEqual)
            if of_begin and each.attribute == ("started",) and isinstance(each.value, datetime):
                since = each.value - CLOCK_DIFFERENCE_MAX
                self.since_ns = max(self.since_ns, int(since.timestamp()) * NS_PER_SECOND)
            yield each

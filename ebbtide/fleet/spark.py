"""A fleet's journals as a data source of Apache Spark: ``spark.read.format("ebbtide")``.

    spark.read.format("ebbtide").option("table", "pods").load("s3://bucket/v1")
    spark.readStream.format("ebbtide").option("table", "shutdowns").load("s3://bucket/v1")

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

import pickle
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
)

from ebbtide.fleet.streaming import Position, grown

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from ebbtide.fleet import Ref

# Spark imports this module wherever it looks for any data source: at the top is only what Spark's own Python
# sources need as well, so that a machine without the extra `fleet` keeps the others.

MIB = 1 << 20
#: A task costs Spark a quarter of a second, and a lost one is read again: some hundred journals are a second
#: or two of work (verify at 50 a task: 99 journals/s; 200: 162; 1 000: 183).
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
        from pyspark.sql.pandas.types import from_arrow_schema

        from ebbtide.fleet import schema

        return from_arrow_schema(schema(_table(self.options)))

    def reader(self, schema: Any) -> DataSourceReader:
        # Spark refuses a reader with `pushFilters` where pushdown is not enabled, which is its default, and
        # nothing here can read the session's configuration.
        pushes = self.options.get("pushdown", "false").lower() == "true"
        return (PushdownReader if pushes else JournalReader)(self.options)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return JournalStream(self.options)


def _table(options: Any) -> str:
    return str(options.get("table", "shutdowns"))


def _partitions(options: Any, refs: Sequence[Ref]) -> list[InputPartition]:
    from ebbtide.fleet import bins

    journals = int(options.get("partitionJournals", PARTITION_JOURNALS))
    return [
        JournalsPartition(each)
        for each in bins(refs, int(options.get("partitionMiB", PARTITION_MIB)) * MIB, journals)
    ]


def _read(options: Any, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
    from ebbtide.fleet import record_batches

    # Spark makes a partition of its own where there is none.
    return iter(()) if partition is None else iter(record_batches(partition.refs, _table(options)))


# --- a table as it is now ------------------------------------------------------------------------


class JournalReader(DataSourceReader):
    """Every journal below ``path``."""

    def __init__(self, options: Any) -> None:
        self.options = options
        self.nodes: set[str] | None = None
        self.since_ns = 0

    def partitions(self) -> list[InputPartition]:
        from ebbtide.fleet import journals

        refs = journals(self.options["path"])
        return _partitions(self.options, [ref for ref in refs if self._may_hold_rows(ref)])

    def _may_hold_rows(self, ref: Ref) -> bool:
        """By its names: a folder that names no node may be anybody's."""
        of_node = self.nodes is None or not ref.nodes or not self.nodes.isdisjoint(ref.nodes)
        return of_node and ref.modified_ns >= self.since_ns

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        return _read(self.options, partition)


class PushdownReader(JournalReader):
    """The same, of which filters leave journals unread."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """All of them are handed back: names tell which journals need no look, Spark which rows are meant."""
        for each in filters:
            if isinstance(each, EqualTo | In) and each.attribute == ("node",):
                named = {each.value} if isinstance(each, EqualTo) else set(each.value)
                self.nodes = named if self.nodes is None else self.nodes & named
            from_then_on = isinstance(each, EqualTo | GreaterThan | GreaterThanOrEqual)
            if from_then_on and each.attribute == ("started",) and isinstance(each.value, datetime):
                self.since_ns = max(self.since_ns, _ns(each.value - CLOCK_DIFFERENCE_MAX))
            yield each


def _ns(moment: datetime) -> int:
    return int(moment.timestamp()) * 10**9


# --- what is new ---------------------------------------------------------------------------------


class GrownJournals(JournalsPartition):
    """``before``: what an earlier batch had of each journal, None where that was nothing."""

    def __init__(self, refs: Sequence[Ref], before: Sequence[Ref | None]) -> None:
        super().__init__(refs)
        self.before = before


class JournalStream(DataSourceStreamReader):
    """Each settled shutdown's rows once, of new journals and of those that have new objects."""

    # Whether a shutdown has been handed out is a function of the journal's objects that were there, so that
    # the checkpoint holds no more than how far the store was read; a batch that is run again is the same one.

    def __init__(self, options: Any) -> None:
        self.options = options

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return Position().offset()

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        from ebbtide.fleet import journals

        return Position.of_all(journals(self.options["path"])).offset()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        from ebbtide.fleet import journals

        found = grown(journals(self.options["path"]), Position.parse(start), Position.parse(end))
        before = {now.files[0]: then for now, then in found}
        return [
            GrownJournals(each.refs, [before[ref.files[0]] for ref in each.refs])
            for each in _partitions(self.options, [now for now, _ in found])
        ]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        from ebbtide.fleet.settled import settled, settled_batches, subject_column

        table = _table(self.options)
        for ref, before in zip(partition.refs, partition.before, strict=True):
            known = settled(before, subject_column(table)) if before else ()
            yield from settled_batches(ref, table, known)


# --- verbs ---------------------------------------------------------------------------------------


def map_on_spark(
    spark: SparkSession, url: str, verb: str, *, partition_journals: int = PARTITION_JOURNALS, **asked: Any
) -> DataFrame:
    """What `map_journals` gives of every journal below ``url``, in no order."""
    from pyspark.sql.pandas.types import from_arrow_schema

    from ebbtide.fleet import VERBS, bins, journals

    groups = bins(journals(url), PARTITION_MIB * MIB, partition_journals)
    context = spark.sparkContext
    frame = spark.createDataFrame(
        context.parallelize([(pickle.dumps(group),) for group in groups], max(1, len(groups))), "refs binary"
    )

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from ebbtide.fleet import VERBS, map_journals

        for batch in batches:
            for group in batch.column(0):
                yield from map_journals(pickle.loads(group.as_py()), VERBS[verb], **asked)

    return frame.mapInArrow(work, from_arrow_schema(VERBS[verb].shape))

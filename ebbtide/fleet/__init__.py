"""Journals of many nodes in any store, as Arrow batches; independent of the engine that reads them.

`fleet_plan` plans one journal from the names of its objects, wherever they are: a copy counts once however
the work is partitioned. `fleet_reading` opens it, `fleet_rows` makes its tables, `fleet_verbs` runs a verb on
it. An unreadable journal is a row, and never a failed job.
"""

from ebbtide.fleet.fleet_plan import ID_BEGIN, File, HasBytes, HasBytesT, Key, Ref, bins, journals, plan
from ebbtide.fleet.fleet_reading import Opened, open_journals
from ebbtide.fleet.fleet_rows import (
    ALL_TABLES,
    JOURNAL_COLUMNS,
    JOURNALS,
    JOURNALS_TABLE,
    LEDGERS,
    ROWS_MAX,
    TYPES,
    UNREAD,
    NotWhole,
    Row,
    batched,
    not_whole_text,
    record_batches,
    rows_of,
    schema,
    subject_of,
    table_batches,
)
from ebbtide.fleet.fleet_stores import OF_THE_READER, BadUrl, StoreFailed, in_a_line, store, store_url
from ebbtide.fleet.fleet_verbs import DIVERGED, NOT_ASKED, VERBS, Verb, evidence_of, map_journals

__all__ = [
    "ALL_TABLES",
    "DIVERGED",
    "ID_BEGIN",
    "JOURNALS",
    "JOURNALS_TABLE",
    "JOURNAL_COLUMNS",
    "LEDGERS",
    "NOT_ASKED",
    "OF_THE_READER",
    "ROWS_MAX",
    "TYPES",
    "UNREAD",
    "VERBS",
    "BadUrl",
    "File",
    "HasBytes",
    "HasBytesT",
    "Key",
    "NotWhole",
    "Opened",
    "Ref",
    "Row",
    "StoreFailed",
    "Verb",
    "batched",
    "bins",
    "evidence_of",
    "in_a_line",
    "journals",
    "map_journals",
    "not_whole_text",
    "open_journals",
    "plan",
    "record_batches",
    "rows_of",
    "schema",
    "store",
    "store_url",
    "subject_of",
    "table_batches",
]

"""Which shutdowns of a journal are over for good, as far as its objects tell: what is handed on once.

A shutdown without an end on record, with which the journal ends, may only wait for its next object: its rows
would be others tomorrow. Where the journal goes on behind it, nothing more comes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from ebbtide.fleet import Ref

#: Outcomes that are an end on record. The others say that there is none, or none yet.
ENDED = ("complete", "cancelled")
#: Of an outage: it goes on.
OPEN = "open"


def subject_column(table: str) -> str:
    """What a table's rows are about: ``shutdown`` or ``outage``."""
    from ebbtide.fleet import schema

    return "outage" if "outage" in schema(table).names else "shutdown"


def settled(ref: Ref, subject: str) -> set[tuple[str, str]]:
    """The journal's id and that of each shutdown, or outage, that is settled."""
    from ebbtide.fleet import open_journals

    found = set()
    for opened in open_journals(ref):
        if not opened.sources:
            continue
        journal = opened.journal()
        if subject == "outage":
            found |= {(opened.id, each.id) for each in journal.outage_records() if each.outcome != OPEN}
            continue
        ends = [(each.id, each.outcome, each.last_seq) for each in journal.shutdown_records()]
        last_seq = journal.verdict.end.seq
        found |= {(opened.id, id_) for id_, outcome, seq in ends if outcome in ENDED or seq < last_seq}
    return found


def settled_batches(
    ref: Ref, table: str, known: Collection[tuple[str, str]] = ()
) -> Iterator[pa.RecordBatch]:
    """A table's rows of what is settled and not ``known``."""
    import pyarrow as pa

    from ebbtide.fleet import record_batches

    subject = subject_column(table)
    new = settled(ref, subject) - set(known)
    if not new:
        return
    for batch in record_batches([ref], table):
        keys = zip(batch.column("journal_id").to_pylist(), batch.column(subject).to_pylist(), strict=True)
        yield batch.filter(pa.array([key in new for key in keys], pa.bool_()))

"""How far a stream has read a store: which objects it had, which journals have new ones, and what is new.

A store shows what it took at once, but dates it to the second, and by more than one clock: an object may
come to light behind others that are dated after it. So a position is a moment, and the objects of the minutes
before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

import pyarrow as pa

from ebbtide.fleet import (
    JOURNALS_TABLE,
    LEDGERS,
    File,
    Ref,
    StoreFailed,
    record_batches,
    schema,
    subject_of,
    table_batches,
)

#: By so much may an object come late: more than the clocks of a store's servers differ.
LATE_NS = 5 * 60 * 10**9
#: A hundred thousand may have come just now, and all stand in one line of the checkpoint: two of them are one
#: by this once in four billion such checkpoints.
MARK_BYTES = 8


class Position(NamedTuple):
    """All objects up to ``modified_ns``; those of the last `LATE_NS` only if they are ``recent``."""

    modified_ns: int = 0
    recent: frozenset[str] = frozenset()

    @classmethod
    def of_all(cls, refs: Iterable[Ref]) -> Position:
        """Behind everything that is there."""
        files = [file for ref in refs for file in ref.files]
        newest = max((file.modified_ns for file in files), default=0)
        return cls(newest, frozenset(_mark(file) for file in files if file.modified_ns > newest - LATE_NS))

    def or_later(self, known: Position) -> Position:
        """A store may list what it had some time ago: a stream that went back would hand out rows again."""
        if known.modified_ns > self.modified_ns:
            return known
        same = known.modified_ns == self.modified_ns
        return self._replace(recent=self.recent | known.recent) if same else self

    @classmethod
    def parse(cls, offset: Mapping[str, Any]) -> Position:
        return cls(int(offset["modified_ns"]), frozenset(offset["recent"].split()))

    def offset(self) -> dict[str, Any]:
        """As a checkpoint has it: values that JSON knows."""
        return {"modified_ns": self.modified_ns, "recent": " ".join(sorted(self.recent))}

    def holds(self, file: File) -> bool:
        if file.modified_ns <= self.modified_ns - LATE_NS:
            return True
        return file.modified_ns <= self.modified_ns and _mark(file) in self.recent


def _mark(file: File) -> str:
    return blake2b(f"{file.path} {file.size}".encode(), digest_size=MARK_BYTES).hexdigest()


def grown(refs: Iterable[Ref], start: Position, end: Position) -> dict[Ref, Ref | None]:
    """The journals with an object between two positions: each as it was at the end, with what was there of it
    at the start.
    """
    found = {}
    for ref in refs:
        now = tuple(file for file in ref.files if end.holds(file))
        then = tuple(file for file in now if start.holds(file))
        if len(now) > len(then):
            found[ref._replace(files=now)] = ref._replace(files=then) if then else None
    return found


def new_batches(refs: Iterable[Ref], before: Iterable[Ref], table: str) -> Iterator[pa.RecordBatch]:
    """Rows of what is over for good now and was not ``before``; of the table ``journals`` all.

    Raises StoreFailed and what is `OF_THE_READER`: what a stream leaves out it never asks for again.
    """
    if table == JOURNALS_TABLE:
        yield from record_batches(refs, table)
        return
    subject = subject_of(schema(table))
    known: set[tuple[str, str]] = set()
    for batch in _settled(before, LEDGERS[subject]):
        known.update(_keys(batch, subject))
    for batch in _settled(refs, table):
        yield batch.filter(pa.array([key not in known for key in _keys(batch, subject)], pa.bool_()))


def _settled(refs: Iterable[Ref], table: str) -> Iterator[pa.RecordBatch]:
    for name, batch in table_batches(refs, (table, JOURNALS_TABLE), settled=True):
        if name == table:
            yield batch
            continue
        # What else is wrong with a journal stays wrong, and the table `journals` says so.
        for row in batch.select(["location", "error"]).to_pylist():
            if StoreFailed.__name__ in row["error"]:
                raise StoreFailed(f"{row['location']}: {row['error']}")


def _keys(batch: pa.RecordBatch, subject: str) -> Iterator[tuple[str, str]]:
    """Which shutdown, or outage, each row is of."""
    return zip(batch["journal_id"].to_pylist(), batch[subject].to_pylist(), strict=True)

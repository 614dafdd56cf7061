"""The meaning of a journal's end: one table over every combination of findings (docs/journal-format.md, Tears
and corruption).

The highest known durable number distinguishes a tear from corruption. Every frame, trailer and link has it,
so other places judge the damage, not its looks.

A copy of a part of a damaged journal is whole by itself. So it carries the original's findings, and its
readers get the original's verdict.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, get_args

from ebbtide.events.catalog import Source
from ebbtide.events.segment import NUMBERS_MAX, Header, Link, WriterStart, parse_segment_file_name

Format = Literal["known", "unknown"]
#: Where reading stopped: at the end, in a header, among the records, or before a missing segment.
Damage = Literal["none", "header", "record", "missing"]
#: ``linked``: a later segment continues behind this place; ``passed``: before it; ``tail``: neither.
Place = Literal["linked", "passed", "tail"]
#: Whether the first lost record is known to have been durable.
Durable = Literal["above", "below"]
Sealed = Literal["sealed", "open"]
#: Whether the records before the place end with a whole step.
Step = Literal["whole", "incomplete"]

State = Literal["intact", "torn", "corrupt", "incompatible"]
#: Where a writer continues: behind the last whole step, or with a new journal beside this one.
Continuation = Literal["link", "fresh"]

EXIT_CODES: dict[State, int] = {"intact": 0, "torn": 4, "corrupt": 5, "incompatible": 6}
#: Of several findings the worst counts: 6, 5, 4.
SEVERITY: tuple[State, ...] = ("intact", "torn", "corrupt", "incompatible")


class Case(NamedTuple):
    """The finding at one place."""

    format: Format = "known"
    damage: Damage = "none"
    place: Place = "tail"
    durable: Durable = "above"
    sealed: Sealed = "open"
    step: Step = "whole"


class Row(NamedTuple):
    """One row of the table: the values that it matches, by column (empty: any), and the result."""

    name: str
    format: tuple[Format, ...]
    damage: tuple[Damage, ...]
    place: tuple[Place, ...]
    durable: tuple[Durable, ...]
    sealed: tuple[Sealed, ...]
    step: tuple[Step, ...]
    state: State
    continues: Continuation
    meaning: str

    def matches(self, case: Case) -> bool:
        """Every column with values has this one."""
        return all(not allowed or value in allowed for allowed, value in zip(self[1:7], case, strict=True))


_HURT: tuple[Damage, ...] = ("header", "record")

# The first matching row counts: a test checks every combination.

# fmt: off
TABLE: tuple[Row, ...] = (
    Row("passed over", (), (), ("passed",), (), (), (),
        "intact", "link", "a later process continued from before this place"),
    Row("incompatible", ("unknown",), (), ("linked", "tail"), (), (), (),
        "incompatible", "fresh", "written by an incompatible version"),
    Row("continued", ("known",), ("none",), ("linked",), (), (), (),
        "intact", "link", "the next segment continues here"),
    Row("ends whole", ("known",), ("none",), ("tail",), (), (), ("whole",),
        "intact", "link", "ends after a whole step"),
    Row("ends in a step", ("known",), ("none",), ("tail",), (), ("open",), ("incomplete",),
        "torn", "link", "the last step is incomplete and is not applied"),
    Row("sealed in a step", ("known",), ("none",), ("tail",), (), ("sealed",), ("incomplete",),
        "corrupt", "fresh", "sealed, yet its last step is incomplete"),
    Row("torn", ("known",), _HURT, ("tail",), ("above",), ("open",), (),
        "torn", "link", "the damage begins above the highest durable number"),
    Row("durable loss", ("known",), _HURT, ("tail",), ("below",), (), (),
        "corrupt", "fresh", "records known durable are lost"),
    Row("sealed loss", ("known",), _HURT, ("tail",), ("above",), ("sealed",), (),
        "corrupt", "fresh", "a sealed segment has no tear"),
    Row("linked loss", ("known",), ("header", "record", "missing"), ("linked",), (), (), (),
        "corrupt", "fresh", "a later segment continues from behind the damage"),
    Row("nothing known", ("known",), ("missing",), ("tail",), (), (), (),
        "intact", "link", "no record points to more"),
)
# fmt: on


def columns() -> tuple[tuple[str, ...], ...]:
    """The possible values of each column of `Case`, in its order."""
    return tuple(get_args(kind) for kind in (Format, Damage, Place, Durable, Sealed, Step))


def row_for(case: Case) -> Row:
    return next(row for row in TABLE if row.matches(case))


class Finding(NamedTuple):
    """A case at its place: file name, byte offset, and the number of the first affected record."""

    case: Case
    segment: str
    offset: int
    seq: int
    reason: str

    @property
    def row(self) -> Row:
        return row_for(self.case)

    def __str__(self) -> str:
        return f"{self.segment} at byte {self.offset}, record {self.seq}: {self.reason} ({self.row.meaning})"


class Verdict(NamedTuple):
    """The verdict after a full read: the worst finding decides.

    ``end``: the place behind the last whole step; ``header``: its segment's (None: the journal is empty).
    ``durable_seq``: the highest number known durable.
    """

    state: State
    findings: tuple[Finding, ...]
    journal_id: bytes
    header: Header | None
    first_seq: int
    end: Link
    durable_seq: int
    next_number: int
    #: The chain hash of record ``end.seq``, which covers every record before it (`docs/journal-format.md`).
    head: bytes = b""

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.state]

    @property
    def worst(self) -> Finding | None:
        """The finding that decides; None: there is none."""
        return next((finding for finding in self.findings if finding.row.state == self.state), None)

    @property
    def banner(self) -> str:
        """One line for people."""
        banners = _BANNERS if self.end.seq >= self.first_seq else _BANNERS_OF_NOTHING
        return banners[self.state].format(seq=self.end.seq, first=self.first_seq, worst=self.worst)

    def start(self, fresh_id: bytes) -> WriterStart:
        """Where a writer continues. ``fresh_id`` (16 random bytes): for a new journal."""
        # Write no record behind corruption: the link would confirm lost bytes. A new journal keeps the old
        # one as evidence.
        if self.header is None or (self.worst and self.worst.row.continues == "fresh"):
            return WriterStart(fresh_id, Link(), self.next_number)
        return WriterStart(self.journal_id, self.end, self.next_number)


_BANNERS: dict[State, str] = {
    "intact": "the journal is intact: records {first} to {seq}",
    "torn": "the journal's tail is torn; records {first} to {seq} are intact and are used: {worst}",
    "corrupt": "the journal is corrupt; only records {first} to {seq} can be trusted: {worst}",
    "incompatible": "the journal needs another version of ebbtide to be read in full: {worst}",
}

#: Without a readable record there is no range to show.
_BANNERS_OF_NOTHING: dict[State, str] = _BANNERS | {
    "intact": "the journal is intact, and empty",
    "torn": "the journal's tail is torn before its first record was whole: {worst}",
    "corrupt": "the journal is corrupt from its first record on, and no record of it can be trusted: {worst}",
}


class ForeignJournal(Exception):
    """The journal belongs to another machine: move it away, or name another directory with --journal."""


def refuse_foreign(header: Header | None, machine_id: str) -> None:
    """Another machine's journal may be read but not written. Raises ForeignJournal."""
    # A moved disk, or an image with its journal: two machines would write one history.
    if header is not None and header.identity.machine_id != machine_id:
        raise ForeignJournal(
            f"the journal was written by machine {header.identity.machine_id} ({header.identity.node}) and "
            f"this is {machine_id}: move its directory away, or name another with --journal"
        )


# --- a copy's findings ----------------------------------------------------------------------------
# A part of a damaged journal, or its redacted copy, is whole by itself. No reader may take it for the intact
# journal of a shutdown that ended there.

#: Instead of the reader's reason, which may name paths and errors of the place of reading.
OF_ORIGINAL = "in the original"


def stated_findings(source: Source) -> tuple[Finding, ...]:
    found: tuple[Finding, ...] = getattr(source, "stated", ())
    return found


def findings_to_documents(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """For a manifest."""
    return [{**each._asdict(), "case": each.case._asdict(), "reason": OF_ORIGINAL} for each in findings]


def findings_from_documents(documents: Any) -> tuple[Finding, ...]:
    """Raises ValueError for documents that `findings_to_documents` did not make."""
    # People can edit the file, and it decides about texts and verdict.
    if not isinstance(documents, list | tuple):
        raise ValueError("its findings are no list")
    return tuple(map(_finding_from_document, documents))


def _finding_from_document(document: Any) -> Finding:
    try:
        found = Finding(**document)
        case = Case(**found.case)  # type: ignore[arg-type]
        named = found.segment == "" or parse_segment_file_name(found.segment) is not None
    except TypeError as error:
        raise ValueError(f"no such finding: {error}") from error
    numbers = all(type(each) is int and 0 <= each < NUMBERS_MAX for each in (found.offset, found.seq))
    # A value outside of the table's columns has no row.
    known = all(value in allowed for value, allowed in zip(case, columns(), strict=True))
    if not (named and numbers and known):
        raise ValueError("no such finding: its place or its case is none")
    return found._replace(case=case, reason=OF_ORIGINAL)

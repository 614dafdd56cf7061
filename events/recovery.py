"""The meaning of a journal's end: one table over every combination of findings.

docs/journal-format.md ("Tears and corruption") explains its columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, get_args

from ebbtide.events.catalog import Source
from ebbtide.events.segment import NUMBERS_MAX, Header, Link, WriterStart, parse_segment_file_name

Format = Literal["known", "unknown"]
#: ``none``: reading stopped at the end; ``missing``: before a missing segment.
Damage = Literal["none", "header", "record", "missing"]
#: ``linked``: a later segment continues behind this place; ``passed``: before it; ``tail``: neither.
Place = Literal["linked", "passed", "tail"]
#: The first lost record's number, against the highest durable number.
Durable = Literal["above", "below"]
Sealed = Literal["sealed", "open"]
#: The last step before the place.
Step = Literal["whole", "incomplete"]

State = Literal["intact", "torn", "corrupt", "incompatible"]
#: A writer continues behind the last whole step, or with a new journal beside this one.
Continuation = Literal["link", "fresh"]

EXIT_CODES: dict[State, int] = {"intact": 0, "torn": 4, "corrupt": 5, "incompatible": 6}
#: From mild to severe: the most severe finding counts.
SEVERITY: tuple[State, ...] = ("intact", "torn", "corrupt", "incompatible")


class Case(NamedTuple):
    format: Format = "known"
    damage: Damage = "none"
    place: Place = "tail"
    durable: Durable = "above"
    sealed: Sealed = "open"
    step: Step = "whole"


class Row(NamedTuple):
    """The values that it matches, by column (empty: any), and the result."""

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
        return all(not allowed or value in allowed for allowed, value in zip(self[1:7], case, strict=True))


_HURT: tuple[Damage, ...] = ("header", "record")

# The first matching row counts. A test checks every combination.

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
    """The values of each column of `Case`."""
    return tuple(get_args(kind) for kind in (Format, Damage, Place, Durable, Sealed, Step))


def row_for(case: Case) -> Row:
    return next(row for row in TABLE if row.matches(case))


class Finding(NamedTuple):
    """``segment``: a file's name; ``seq``: the first affected record."""

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
    """``end``: the place behind the last whole step; ``header``: its segment's (None: the journal is empty).
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
    #: The chain hash of record ``end.seq``.
    head: bytes = b""

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.state]

    @property
    def worst(self) -> Finding | None:
        """The finding that decides."""
        return next((finding for finding in self.findings if finding.row.state == self.state), None)

    @property
    def banner(self) -> str:
        """One line for people."""
        banners = _BANNERS if self.end.seq >= self.first_seq else _BANNERS_OF_NOTHING
        return banners[self.state].format(seq=self.end.seq, first=self.first_seq, worst=self.worst)

    def start(self, fresh_id: bytes) -> WriterStart:
        """``fresh_id``: 16 random bytes for a new journal."""
        # Write no record behind corruption: the link would confirm lost bytes.
        if self.header is None or (self.worst and self.worst.row.continues == "fresh"):
            return WriterStart(fresh_id, Link(), self.next_number)
        return WriterStart(self.journal_id, self.end, self.next_number)


_BANNERS: dict[State, str] = {
    "intact": "the journal is intact: records {first} to {seq}",
    "torn": "the journal's tail is torn; records {first} to {seq} are intact and are used: {worst}",
    "corrupt": "the journal is corrupt; only records {first} to {seq} can be trusted: {worst}",
    "incompatible": "the journal needs another version of ebbtide to be read in full: {worst}",
}

#: Without a readable record.
_BANNERS_OF_NOTHING: dict[State, str] = _BANNERS | {
    "intact": "the journal is intact, and empty",
    "torn": "the journal's tail is torn before its first record was whole: {worst}",
    "corrupt": "the journal is corrupt from its first record on, and no record of it can be trusted: {worst}",
}


class ForeignJournal(Exception):
    """The journal belongs to another machine: move it away, or name another directory with --journal."""


def refuse_foreign(header: Header | None, machine_id: str) -> None:
    """Raises ForeignJournal."""
    # After a disk is moved or an image copied, two machines would write one history.
    if header is not None and header.identity.machine_id != machine_id:
        raise ForeignJournal(
            f"the journal was written by machine {header.identity.machine_id} ({header.identity.node}) and "
            f"this is {machine_id}: move its directory away, or name another with --journal"
        )


# --- a copy's findings
# A part or a redacted copy of a damaged journal shows no damage. So it has the original's findings, or a
# reader would report an intact journal.

#: In place of the reader's reason, which may name paths and errors of the reading machine.
OF_ORIGINAL = "in the original"


def stated_findings(source: Source) -> tuple[Finding, ...]:
    found: tuple[Finding, ...] = getattr(source, "stated", ())
    return found


def findings_to_documents(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    return [{**each._asdict(), "case": each.case._asdict(), "reason": OF_ORIGINAL} for each in findings]


def findings_from_documents(documents: Any) -> tuple[Finding, ...]:
    """Raises ValueError for documents that `findings_to_documents` did not make."""
    # People can edit the file, and texts and verdict depend on it.
    if not isinstance(documents, list | tuple):
        raise ValueError("its findings are no list")
    findings = []
    for document in documents:
        try:
            found = Finding(**document)
            case = Case(**found.case)  # type: ignore[arg-type]
            named = found.segment == "" or parse_segment_file_name(found.segment) is not None
        except TypeError as error:
            raise ValueError(f"no such finding: {error}") from error
        numbers = all(type(each) is int and 0 <= each < NUMBERS_MAX for each in (found.offset, found.seq))
        # Other values have no row.
        known = all(value in allowed for value, allowed in zip(case, columns(), strict=True))
        if not (named and numbers and known):
            raise ValueError("no such finding: its place or its case is none")
        findings.append(found._replace(case=case, reason=OF_ORIGINAL))
    return tuple(findings)

"""What a copy says of the journal that it was made from: damage that its own bytes do not show.

A part of a damaged journal is whole by itself, and so is one that was made anew under pseudonyms. Nobody must
take either for the intact journal of a shutdown that ended there; so the copy has the findings with it, and
whoever opens it has the original's verdict.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from events.recovery import Case, Finding, columns
from events.source import Source

OF_ORIGINAL = "in the original, "


def stated_by(source: Source) -> tuple[Finding, ...]:
    """The findings that a source brings along; most bring none."""
    found: tuple[Finding, ...] = getattr(source, "stated", ())
    return found


def as_documents(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """For a manifest. Of a failed system call only its name: the rest says where the original lay."""
    return [
        {**finding._asdict(), "case": finding.case._asdict(), "reason": _reason(finding)}
        for finding in findings
    ]


def from_documents(documents: Any) -> tuple[Finding, ...]:
    """Raises ValueError, TypeError and KeyError for what `as_documents` did not make."""
    return tuple(_finding(**document) for document in documents)


def _finding(*, case: dict[str, Any], segment: str, offset: int, seq: int, reason: str) -> Finding:
    found = Case(**case)
    if not all(value in allowed for value, allowed in zip(found, columns(), strict=True)):
        raise ValueError(f"no such finding: {', '.join(map(str, found))}")
    return Finding(found, str(segment), int(offset), int(seq), str(reason))


def _reason(finding: Finding) -> str:
    return OF_ORIGINAL + finding.reason.removeprefix(OF_ORIGINAL).partition(":")[0]

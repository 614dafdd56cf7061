"""``ebbtide journal check``: is every record there, and is it what was written?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ebbtide.cli.output import pairs, show, show_json
from ebbtide.cli.reading import conclude, open_journal
from events.history import History
from events.recovery import Verdict

CHECK_VERSION = 1


def check_journal(journals: tuple[Path, ...], output: str) -> int:
    """The exit code of the verdict."""
    history = open_journal(journals)
    verdict = history.read()
    if output == "json":
        show_json(check_document(history, verdict))
        return verdict.exit_code
    show(pairs(_rows(history, verdict)))
    return conclude(verdict)


def check_document(history: History, verdict: Verdict) -> dict[str, Any]:
    """``kind: JournalCheck``; ``records`` counts what is intact, ``findings`` names file, byte and record."""
    return {
        "kind": "JournalCheck",
        "version": CHECK_VERSION,
        "state": verdict.state,
        "journalId": verdict.journal_id.hex(),
        "segments": len(history.path.segments),
        "records": verdict.end.seq - verdict.first_seq + 1 if verdict.first_seq else 0,
        "firstSeq": verdict.first_seq,
        "lastSeq": verdict.end.seq,
        "durableSeq": verdict.durable_seq,
        "otherJournals": list(history.path.others),
        "findings": [
            {
                "segment": finding.segment,
                "offset": finding.offset,
                "seq": finding.seq,
                "state": finding.row.state,
                "reason": finding.reason,
                "meaning": finding.row.meaning,
            }
            for finding in verdict.findings
        ],
    }


def _rows(history: History, verdict: Verdict) -> list[tuple[str, str]]:
    header = verdict.header
    node = f"{header.identity.node} ({header.identity.code_version})" if header is not None else "nobody"
    rows = [
        ("journal", verdict.journal_id.hex()),
        ("written by", node),
        ("segments", str(len(history.path.segments))),
        ("records", f"{verdict.first_seq} to {verdict.end.seq}"),
        ("known durable", f"to {verdict.durable_seq}"),
        ("state", verdict.state),
    ]
    rows += [("beside it", f"another journal, {other}…") for other in history.path.others]
    return rows + [("finding", str(finding)) for finding in verdict.findings]

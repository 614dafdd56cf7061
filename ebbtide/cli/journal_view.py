"""Lists of journals and their episodes, and the result of a check, as tables and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ebbtide.cli.common.output import NarrowTable, show, table
from ebbtide.events.base import episode_id, head_text
from ebbtide.events.messages import boot_end_text
from ebbtide.events.reader import History
from ebbtide.events.record.episodes import Episode
from ebbtide.events.record.fold import BootRecord
from ebbtide.events.record.format import utc_text
from ebbtide.events.recovery import Verdict
from ebbtide.events.units import span


class Listed(NamedTuple):
    """A journal with its episodes."""

    history: History
    episodes: tuple[Episode, ...]
    boots: tuple[BootRecord, ...]

    @property
    def node(self) -> str:
        headers = (each.header for each in self.history.segments)
        return next((header.identity.node for header in headers if header is not None), "")

    def document(self) -> dict[str, Any]:
        from ebbtide.cli.common.selection import (
            boot_document,
            episode_document,
            verdict_document,
            whole_verdict,
        )

        history = self.history
        return {
            "kind": "EpisodeList",
            "version": LIST_VERSION,
            "journalId": history.journal_id.hex(),
            "journal": verdict_document(whole_verdict(history)),
            "head": head_text(history.verdict.end.seq, history.verdict.head) or None,
            "episodes": [episode_document(episode) for episode in self.episodes],
            "boots": [boot_document(boot) for boot in self.boots],
        }

    def show_tables(self) -> None:
        from ebbtide.cli.common.selection import outcomes_text
        from ebbtide.events.record.severity import SEVERITY_SIGNS

        outages = self.history.of_outages
        if self.episodes:
            # An outage's outcome has its severity. A shutdown's outcome is the machine's: it may be
            # complete with every pod killed.
            judged = () if outages else ("",)
            headings = ("EPISODE", "KIND", "STARTED", "TOOK", *judged, "OUTCOME", "PODS", "TRACE")
            rows = (
                (
                    each.id,
                    each.kind,
                    utc_text(each.started_wall_ns),
                    "-" if each.ended_wall_ns is None else span(each.ended_wall_ns - each.started_wall_ns),
                    *(SEVERITY_SIGNS[each.severity] if each.severity else "" for _ in judged),
                    f"{each.outcome}, begin not on record" if each.headless else each.outcome,
                    outcomes_text(each.pods, each.pods_running) or ("unknown" if each.headless else "none"),
                    each.trace_id,
                )
                for each in self.episodes
            )
            show(NarrowTable(headings, rows, right=("TOOK",), spare=("TRACE",)))
        else:
            kind, state = "outage" if outages else "shutdown", self.history.verdict.state
            # An unreadable journal may have had episodes.
            readable = "yet" if state == "intact" else f"in what can be read: the journal is {state}"
            show(f"no {kind} {readable}")
        # Besides the list: why a shutdown was cut short, boots without one, and the end of each outage's
        # boot.
        if other := [
            each for each in self.boots if outages or each.event.ending != "graceful" or each.event.why
        ]:
            show("")
            show(table(("BOOT", "EPISODE", "LAST SEEN", "ENDED"), map(_boot_row, other)))


def many_document(listed: Sequence[Listed]) -> dict[str, Any]:
    """For a folder: all episodes with their journal's id and node, and each journal's verdict."""
    documents = [each.document() for each in listed]
    together = [
        {**episode, "journalId": document["journalId"], "node": each.node}
        for each, document in zip(listed, documents, strict=True)
        for episode in document["episodes"]
    ]
    parts = ("journalId", "journal", "head", "boots")
    return {
        "kind": "EpisodeList",
        "version": LIST_VERSION,
        "journals": [
            {"node": each.node, **{name: document[name] for name in parts}}
            for each, document in zip(listed, documents, strict=True)
        ],
        "episodes": together,
    }


def _boot_row(boot: BootRecord) -> tuple[str, ...]:
    said = boot.event
    seen = utc_text(said.alive_wall_ns) if said.alive_wall_ns else "-"
    return said.boot_id, boot.episode or "-", seen, boot_end_text(said.ending, said.why, said.wave)


LIST_VERSION = CHECK_VERSION = 1


def check_document(history: History, verdict: Verdict, headless: int | None) -> dict[str, Any]:
    """``kind: JournalCheck``; ``records``: intact ones; ``findings``: file, byte and record. ``headless``:
    the id of a shutdown without its begin on record.
    """
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
        "head": head_text(verdict.end.seq, verdict.head) or None,
        "headless": None if headless is None else episode_id(verdict.journal_id, headless),
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

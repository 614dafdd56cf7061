"""``ebbtide journal``: the episodes of a journal, and whether it is intact."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from msgspec import Struct

from ebbtide.cli.app import Entry, LazyGroup
from ebbtide.cli.common.output import NarrowTable, pairs, show, show_json, table
from ebbtide.cli.common.reading import conclude, open_journal
from ebbtide.cli.common.shared_options import journals_option, need_command, output_option
from ebbtide.events.base import episode_id, head_text
from ebbtide.events.messages import boot_end_text
from ebbtide.events.reader import History
from ebbtide.events.record.episodes import Episode
from ebbtide.events.record.fold import BootRecord
from ebbtide.events.record.format import document, utc_text
from ebbtide.events.units import span

SECTIONS: dict[str, dict[str, Entry]] = {
    "Commands": {
        "ls": Entry("journal:ls_command", "List a journal's shutdowns or outages."),
        "show": Entry("journal_show:show_command", "Show a journal's events in their order."),
        "check": Entry("journal:check_command", "Verify every record and every link."),
        "pack": Entry("journal_pack:pack_command", "Make one file of a shutdown, for a ticket."),
    }
}

LS_EPILOG = """\b
Examples:
  ebbtide journal ls
  ebbtide journal ls --journal /mnt/old/journal -o json
"""

CHECK_EPILOG = """\b
Examples:
  ebbtide journal check
  ebbtide journal check --journal /mnt/old/journal -o json
"""

LIST_VERSION = 1


@click.group(cls=LazyGroup, sections=SECTIONS, invoke_without_command=True)
@click.pass_context
def journal(ctx: click.Context) -> None:
    """Episodes and events of a journal; is it intact?"""
    need_command(ctx)


@click.command("ls", epilog=LS_EPILOG)
@journals_option
@output_option("table", "json")
def ls_command(journals: tuple[Path, ...], output: str) -> int:
    """List a journal's shutdowns or outages."""
    from ebbtide.cli.common.selection import (
        boot_heading,
        journal_state,
        read_episodes,
        whole_verdict,
    )

    history, boots = open_journal(journals), list[BootRecord]()
    # Read to the end despite damage: list the readable episodes, and report the rest by the exit code.
    found, code = read_episodes(history, boots)
    if output == "json":
        verdict = whole_verdict(history)
        listed = document(
            "EpisodeList",
            LIST_VERSION,
            journal_id=history.journal_id,
            journal=journal_state(verdict),
            head=head_text(verdict.end.seq, verdict.head) or None,
            episodes=found,
            boots=list(map(boot_heading, boots)),
        )
        show_json(listed)
    else:
        show_episodes(history, found, boots)
    return code


def show_episodes(history: History, episodes: Sequence[Episode], boots: Sequence[BootRecord]) -> None:
    from ebbtide.cli.common.selection import history_kind, outcomes_text
    from ebbtide.events.record.shutdown_record import SIGNS

    # An outage's outcome has its severity. A shutdown's outcome is the machine's: it may be complete with
    # every pod killed.
    judged = () if history.of_outages else ("",)

    def cells(each: Episode) -> Iterator[str]:
        yield from (each.id, each.kind, utc_text(each.started_wall_ns))
        yield "-" if each.ended_wall_ns is None else span(each.ended_wall_ns - each.started_wall_ns)
        yield from (SIGNS[each.severity] if each.severity else "" for _ in judged)
        yield f"{each.outcome}, begin not on record" if each.headless else each.outcome
        yield outcomes_text(each.pods, each.pods_running) or ("unknown" if each.headless else "none")
        yield each.cause or "-"
        yield each.trace_id

    if episodes:
        headings = ("EPISODE", "KIND", "STARTED", "TOOK", *judged, "OUTCOME", "PODS", "CAUSE", "TRACE")
        rows = map(tuple, map(cells, episodes))
        show(NarrowTable(headings, rows, right=("TOOK",), spare=("TRACE",)))
    else:
        state = history.verdict.state
        # An unreadable journal may have had episodes.
        readable = "yet" if state == "intact" else f"in what can be read: the journal is {state}"
        show(f"no {history_kind(history)} {readable}")
    # Besides the list: why a shutdown was cut short, boots without one, and the end of each outage's boot.
    others = [
        (
            ended.boot_id,
            boot.episode or "-",
            utc_text(ended.alive_wall_ns) if ended.alive_wall_ns else "-",
            boot_end_text(ended.ending, ended.why, ended.wave),
        )
        for boot in boots
        for ended in (boot.event,)
        if history.of_outages or ended.ending != "graceful" or ended.why
    ]
    if others:
        show("")
        show(table(("BOOT", "EPISODE", "LAST SEEN", "ENDED"), others))


class DamageFound(Struct):
    segment: str
    offset: int
    seq: int
    state: str
    reason: str
    meaning: str


class JournalCheck(Struct, kw_only=True, rename="camel", tag_field="kind", tag="JournalCheck"):
    """``records``: intact ones; ``headless``: the id of a shutdown without its begin on record."""

    version: int = 1
    state: str
    journal_id: str
    segments: int
    records: int
    first_seq: int
    last_seq: int
    durable_seq: int
    head: str | None
    headless: str | None
    other_journals: tuple[str, ...]
    findings: list[DamageFound]


@click.command("check", epilog=CHECK_EPILOG)
@journals_option
@output_option("table", "json")
def check_command(journals: tuple[Path, ...], output: str) -> int:
    """Read all of a journal and verify every record and every link.

    Exit code 4: the tail is torn, everything before it is intact. 5: corrupt. 6: another version wrote it.
    """
    from ebbtide.events.record.episodes import headless_episode

    history = open_journal(journals)
    number = headless_episode(history)
    verdict = history.read()
    found = JournalCheck(
        state=verdict.state,
        journal_id=verdict.journal_id.hex(),
        segments=len(history.path.segments),
        records=verdict.end.seq - verdict.first_seq + 1 if verdict.first_seq else 0,
        first_seq=verdict.first_seq,
        last_seq=verdict.end.seq,
        durable_seq=verdict.durable_seq,
        head=head_text(verdict.end.seq, verdict.head) or None,
        headless=None if number is None else episode_id(verdict.journal_id, number),
        other_journals=history.path.others,
        findings=[
            DamageFound(each.segment, each.offset, each.seq, each.row.state, each.reason, each.row.meaning)
            for each in verdict.findings
        ],
    )
    if output == "json":
        # Only the exit code, without the banner: the document has every finding.
        show_json(found)
        return verdict.exit_code
    header = verdict.header
    rows = [
        ("journal", found.journal_id),
        ("written by", f"{header.identity.node} ({header.identity.code_version})" if header else "unknown"),
        ("segments", str(found.segments)),
        ("records", f"{found.first_seq} to {found.last_seq}"),
        ("known durable", f"to {found.durable_seq}"),
        ("head", found.head or "none"),
        ("state", found.state),
        ("headless", f"{found.headless}: its begin is not on record" if found.headless else ""),
    ]
    rows += [("beside it", f"another journal, {other}") for other in found.other_journals]
    show(pairs(rows + [("finding", str(finding)) for finding in verdict.findings]))
    return conclude(verdict)

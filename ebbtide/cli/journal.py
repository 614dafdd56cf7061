"""``ebbtide journal``: the episodes of a journal, and whether it is intact."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import click

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
    from ebbtide.cli.common import selection

    history, boots = open_journal(journals), list[BootRecord]()
    # Despite damage: list the readable episodes, and report the rest by the exit code.
    found, code = selection.read_episodes(history, boots)
    if output == "json":
        verdict = selection.whole_verdict(history)
        listed = document(
            "EpisodeList",
            LIST_VERSION,
            journal_id=history.journal_id,
            journal=selection.journal_state(verdict),
            head=head_text(verdict.end.seq, verdict.head) or None,
            episodes=found,
            boots=list(map(selection.boot_heading, boots)),
        )
        show_json(listed)
    else:
        show_episodes(history, found, boots)
    return code


def show_episodes(history: History, episodes: Sequence[Episode], boots: Sequence[BootRecord]) -> None:
    from ebbtide.cli.common.selection import history_kind, outcomes_text

    # The outcome is the machine's: it may be complete with every pod killed.
    def cells(each: Episode) -> Iterator[str]:
        yield from (each.id, each.kind, utc_text(each.started_wall_ns))
        yield "-" if each.ended_wall_ns is None else span(each.ended_wall_ns - each.started_wall_ns)
        yield each.sign
        yield f"{each.outcome}, begin not on record" if each.headless else each.outcome
        yield outcomes_text(each.pods, each.pods_running) or ("unknown" if each.headless else "none")
        yield each.cause or "-"
        yield each.trace_id

    if episodes:
        headings = ("EPISODE", "KIND", "STARTED", "TOOK", "", "OUTCOME", "PODS", "CAUSE", "TRACE")
        rows = map(tuple, map(cells, episodes))
        show(NarrowTable(headings, rows, right=("TOOK",), spare=("TRACE",)))
    else:
        state = history.verdict.state
        readable = "yet" if state == "intact" else f"in what can be read: the journal is {state}"
        show(f"no {history_kind(history)} {readable}")
    # Why a shutdown was cut short, boots without one, and the end of each outage's boot.
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
    verdict, segments = history.read(), len(history.path.segments)
    first, last, header = verdict.first_seq, verdict.end.seq, verdict.header
    journal_id, head = verdict.journal_id.hex(), head_text(last, verdict.head) or None
    headless = None if number is None else episode_id(verdict.journal_id, number)
    if output == "json":
        found = document(
            "JournalCheck",
            1,
            state=verdict.state,
            journal_id=journal_id,
            segments=segments,
            records=last - first + 1 if first else 0,
            first_seq=first,
            last_seq=last,
            durable_seq=verdict.durable_seq,
            head=head,
            headless=headless,
            other_journals=history.path.others,
            findings=[
                {name: getattr(each, name) for name in ("segment", "offset", "seq", "reason")}
                | {"state": each.row.state, "meaning": each.row.meaning}
                for each in verdict.findings
            ],
        )
        # Without the banner: the document has every finding.
        show_json(found)
        return verdict.exit_code
    rows = [
        ("journal", journal_id),
        ("written by", f"{header.identity.node} ({header.identity.code_version})" if header else "unknown"),
        ("segments", str(segments)),
        ("records", f"{first} to {last}"),
        ("known durable", f"to {verdict.durable_seq}"),
        ("head", head or "none"),
        ("state", verdict.state),
        ("headless", f"{headless}: its begin is not on record" if headless else ""),
    ]
    rows += [("beside it", f"another journal, {other}") for other in history.path.others]
    show(pairs(rows + [("finding", str(finding)) for finding in verdict.findings]))
    return conclude(verdict)

"""``ebbtide journal``: episodes, events, and whether a journal is intact.

``pack`` is in `ebbtide.cli.journal_pack`, which imports the replayer.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from ebbtide.cli.common.guard import DONE, Refused
from ebbtide.cli.common.output import NarrowTable, painter, pairs, show, show_json, table
from ebbtide.cli.common.reading import conclude, open_journal, sources_of
from ebbtide.cli.common.records import follow_journal, record_json_line, record_text_line
from ebbtide.cli.common.shared_options import (
    EpisodeCommand,
    journals_option,
    need_command,
    optional_episode_argument,
    output_option,
)
from ebbtide.cli.common.stored import refuse_following
from ebbtide.events.base import episode_id, head_text
from ebbtide.events.codec import RawRecord, learn_record
from ebbtide.events.messages import Names, boot_end_text
from ebbtide.events.reader import Batch, History
from ebbtide.events.record.episodes import Episode
from ebbtide.events.record.fold import BootRecord
from ebbtide.events.record.format import document, utc_text
from ebbtide.events.recovery import Verdict
from ebbtide.events.segment import Header
from ebbtide.events.units import span

LS_EPILOG = """\b
Examples:
  ebbtide journal ls
  ebbtide journal ls --journal /mnt/old/journal -o json
"""

SHOW_EPILOG = """\b
Examples:
  ebbtide journal show -f
  ebbtide journal show --since 10m --actor LogindActor
  ebbtide journal show --pod shop/web-0 -o json | jq .type
"""

CHECK_EPILOG = """\b
Examples:
  ebbtide journal check
  ebbtide journal check --journal /mnt/old/journal -o json
"""

PACK_EPILOG = """\b
Examples:
  ebbtide journal pack -o ticket-4711.zip
  ebbtide journal pack --redact -o ticket-4711.zip
  ebbtide journal pack -2 --journal /mnt/old/journal -o that-one.zip

To read the file, name it as a journal: --journal ticket-4711.zip
"""


@click.group(invoke_without_command=True)
@click.pass_context
def journal(ctx: click.Context) -> None:
    """Episodes and events of a journal; is it intact?"""
    need_command(ctx)


@journal.command("ls", epilog=LS_EPILOG)
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


@journal.command("show", epilog=SHOW_EPILOG)
@journals_option
@click.option("-f", "--follow", is_flag=True, help="Follow the journal.")
@click.option(
    "--since",
    default="",
    metavar="SEQ|AGO|TIME",
    help="From here: 214, 10m ago, or a time.",
)
@click.option(
    "--actor",
    default="",
    metavar="NAME",
    help="Only what this actor decided (HookActor, HookActor:UID, edge).",
)
@click.option(
    "--pod", default="", metavar="POD", help="Only what names this pod: namespace/name, a name, or a UID."
)
@output_option("table", "json")
def show_command(
    journals: tuple[Path, ...],
    follow: bool,
    since: str,
    actor: str,
    pod: str,
    output: str,
) -> int:
    """Show a journal's events in their order, with the cause of each.

    As JSON it is one object a line, without fields at their default. Times are UTC.
    """
    if follow:
        refuse_following(journals)
    history, names = open_journal(journals), Names()
    tests = _filter_tests(since, actor)
    if pod:
        from ebbtide.cli.common.selection import PodSelection

        # Collect the pod's UIDs before the first line: a record may precede the one that introduces the
        # pod.
        for raw in open_journal(journals).raw():
            learn_record(names, raw)
        selected = PodSelection(pod, names)
        # In a followed journal the pod may still come.
        if not follow and not selected.is_known():
            look = "'ebbtide journal show --actor edge' shows those that came"
            raise Refused(f"no pod {pod!r} in this journal: {look}")
        tests.append(lambda header, raw: selected.takes(raw))
    paint = painter(RECORD_COLOURS)
    printer: RecordPrinter = (
        record_json_line
        if output == "json"
        else lambda header, raw: record_text_line(header, raw, names, paint)
    )
    if follow:
        _write_events(follow_journal(sources_of(journals)), names, tests, printer)
        return DONE
    _write_events(history.batches(), names, tests, printer)
    return conclude(history.verdict)


@journal.command("check", epilog=CHECK_EPILOG)
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
    headless = None if number is None else episode_id(verdict.journal_id, number)
    if output == "json":
        # Only the exit code, without the banner: the document has every finding.
        show_json(check_document(history, verdict, headless))
        return verdict.exit_code
    header = verdict.header
    node = f"{header.identity.node} ({header.identity.code_version})" if header is not None else "unknown"
    rows = [
        ("journal", verdict.journal_id.hex()),
        ("written by", node),
        ("segments", str(len(history.path.segments))),
        ("records", f"{verdict.first_seq} to {verdict.end.seq}"),
        ("known durable", f"to {verdict.durable_seq}"),
        ("head", head_text(verdict.end.seq, verdict.head) or "none"),
        ("state", verdict.state),
    ]
    rows += [("headless", f"{headless}: its begin is not on record")] if headless is not None else []
    rows += [("beside it", f"another journal, {other}") for other in history.path.others]
    show(pairs(rows + [("finding", str(finding)) for finding in verdict.findings]))
    return conclude(verdict)


@journal.command("pack", epilog=PACK_EPILOG, cls=EpisodeCommand)
@optional_episode_argument
@journals_option
@click.option(
    "-o",
    "--output",
    "file",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The file to make; it can be named wherever --journal is asked for.",
)
@click.option(
    "--redact",
    "redacted",
    is_flag=True,
    help="Names become pseudonyms, outputs are dropped, and the logic runs again: it verifies as itself.",
)
@click.option("--all", "everything", is_flag=True, help="The whole journal, not one shutdown.")
def pack_command(
    episode: str | None, journals: tuple[Path, ...], file: Path, redacted: bool, everything: bool
) -> int:
    """Make one file of a shutdown, for a ticket.

    EPISODE is last (the default), -1, -2, …, or an id from 'ebbtide journal ls'. With --redact no file has
    the real names of the pseudonyms; records keep their numbers and times, and the first record has the
    original's id and last hash.
    """
    from ebbtide.cli.journal_pack import pack_journal

    return pack_journal(journals, episode, file, everything=everything, redacted=redacted)


# --- ls and check ------------------------------------------------------------------------------

LIST_VERSION = CHECK_VERSION = 1


def show_episodes(history: History, episodes: Sequence[Episode], boots: Sequence[BootRecord]) -> None:
    from ebbtide.cli.common.selection import history_kind, outcomes_text
    from ebbtide.events.record.shutdown_record import SEVERITY_SIGNS

    if episodes:
        # An outage's outcome has its severity. A shutdown's outcome is the machine's: it may be complete with
        # every pod killed.
        judged = () if history.of_outages else ("",)
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
            for each in episodes
        )
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


def check_document(history: History, verdict: Verdict, headless: str | None) -> dict[str, Any]:
    """``records``: intact ones; ``headless``: the id of a shutdown without its begin on record."""
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
        "headless": headless,
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


# --- show: a stream from the segments to standard output, filtered on the way ------------------


RECORD_COLOURS: dict[str, dict[str, Any]] = {
    "dim": {"dim": True},
    "fact": {"fg": "cyan"},
    "order": {"fg": "magenta"},
    "decision": {"fg": "green"},
}

RecordTest = Callable[[Header, RawRecord], bool]
RecordPrinter = Callable[[Header, RawRecord], bytes]


def _write_events(
    batches: Iterable[Batch | None], names: Names, tests: list[RecordTest], printer: RecordPrinter
) -> None:
    """In batches: neither a write for each record nor a journal in memory."""
    out = sys.stdout.buffer
    for batch in batches:
        if batch is None:
            out.flush()
            continue
        header, records = batch
        # Also for hidden records, which may introduce the pod of a shown one.
        for raw in records:
            learn_record(names, raw)
        for test in tests:
            records = [raw for raw in records if test(header, raw)]
        out.writelines([printer(header, raw) for raw in records])
    out.flush()


def _filter_tests(since: str, actor: str) -> list[RecordTest]:
    """A filter for each given option. Raises Refused."""
    tests: list[RecordTest] = []
    if since:
        from ebbtide.cli.common.selection import parse_moment

        scale, value = parse_moment(since, "--since")
        if scale == "since_ns":
            # A listing covers all shutdowns of a journal, so no single signal can be the origin.
            raise Refused(
                f"--since {since} is a time since a shutdown's signal, and this is no one shutdown:"
                f" write {since.lstrip('+-')} for that long ago, or use 'ebbtide replay timeline'"
            )
        if scale == "seq":
            tests.append(lambda header, raw: raw.seq >= value)
        else:
            tests.append(lambda header, raw: header.wall_ns(raw.mono_ns) >= value)
    if actor:
        from ebbtide.cli.common.selection import known_actor
        from ebbtide.replay.timeline import is_actor, short_name

        name = known_actor(actor)
        tests.append(lambda header, raw: is_actor(name, raw.actor, short_name(raw.actor)))
    return tests

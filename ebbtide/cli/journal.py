"""``ebbtide journal``: episodes, events, and whether a journal is intact.

``pack`` is in `ebbtide.cli.journal_pack`, which imports the replayer.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from ebbtide.cli.common.guard import DONE, Refused, worst
from ebbtide.cli.common.output import painter, pairs, show, show_json
from ebbtide.cli.common.reading import JournalPool, conclude, journals_below, open_journal, sources_of
from ebbtide.cli.common.records import follow_journal, record_json_line, record_text_line
from ebbtide.cli.common.shared_options import (
    EpisodeCommand,
    journals_option,
    need_command,
    optional_episode_argument,
    output_option,
)
from ebbtide.cli.common.stored import refuse_following
from ebbtide.cli.journal_view import Listed, check_document, many_document
from ebbtide.events.base import episode_id, head_text
from ebbtide.events.codec import RawRecord, learn_record
from ebbtide.events.messages import Names
from ebbtide.events.reader import Batch
from ebbtide.events.record.fold import BootRecord
from ebbtide.events.segment import Header

LS_EPILOG = """\b
Examples:
  ebbtide journal ls
  ebbtide journal ls --journal /mnt/old/journal -o json
  ebbtide journal ls --journal ./fleet                 # a folder of journals
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
    """List a journal's shutdowns or outages, or each journal's in a folder."""
    from ebbtide.cli.common.selection import read_episodes

    # Several places are one journal; only a folder of journals has several.
    pool = JournalPool(journals) if any(map(journals_below, journals)) else None
    histories = [open_journal(journals)] if pool is None else list(pool.histories())
    listed, codes = [], []
    for history in histories:
        # Read to the end despite damage: list the readable episodes, and report the rest by the exit code.
        boots = list[BootRecord]()
        found, code = read_episodes(history, boots)
        listed.append(Listed(history, tuple(found), tuple(boots)))
        codes.append(code)
    if output == "json":
        show_json(listed[0].document() if len(listed) == 1 else many_document(listed))
    else:
        for at, each in enumerate(listed):
            if len(listed) > 1:
                show("\n" * bool(at) + f"{each.node or 'a node'}, journal {each.history.journal_id.hex()}")
            each.show_tables()
    return worst(codes)


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
    headless = headless_episode(history)
    verdict = history.read()
    if output == "json":
        # Only the exit code, without the banner: the document has every finding.
        show_json(check_document(history, verdict, headless))
        return verdict.exit_code
    header = verdict.header
    node = f"{header.identity.node} ({header.identity.code_version})" if header is not None else "nobody"
    rows = [
        ("journal", verdict.journal_id.hex()),
        ("written by", node),
        ("segments", str(len(history.path.segments))),
        ("records", f"{verdict.first_seq} to {verdict.end.seq}"),
        ("known durable", f"to {verdict.durable_seq}"),
        ("head", head_text(verdict.end.seq, verdict.head) or "none"),
        ("state", verdict.state),
    ]
    if headless is not None:
        rows.append(("headless", f"{episode_id(verdict.journal_id, headless)}: its begin is not on record"))
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

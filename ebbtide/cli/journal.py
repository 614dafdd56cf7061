"""``ebbtide journal``: episodes, events, and whether a journal is intact."""

from __future__ import annotations

from pathlib import Path

import click

from ebbtide.cli.options import need_command, output_option
from ebbtide.cli.reading import journals_option

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

Whoever has the file names it where a journal is asked for: --journal ticket-4711.zip
"""


@click.group(invoke_without_command=True)
@click.pass_context
def journal(ctx: click.Context) -> None:
    """Episodes and events of a journal; is it intact?"""
    need_command(ctx)


@journal.command(epilog=LS_EPILOG)
@journals_option
@output_option("table", "json")
def ls(journals: tuple[Path, ...], output: str) -> int:
    """List the shutdowns that a journal tells of."""
    from ebbtide.cli.episodes import list_episodes

    return list_episodes(journals, output)


@journal.command(epilog=SHOW_EPILOG)
@journals_option
@click.option("-f", "--follow", is_flag=True, help="Go on with what is being written.")
@click.option(
    "--since",
    default="",
    metavar="SEQ|TIME|AGO",
    help="From a record's number, a time, or a while ago (10m).",
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
def show(
    journals: tuple[Path, ...],
    follow: bool,
    since: str,
    actor: str,
    pod: str,
    output: str,
) -> int:
    """Show a journal's events in their order, with the cause of each.

    As JSON it is one object a line. Fields at their default are left out.
    """
    from ebbtide.cli.showing import Wanted, show_events

    return show_events(journals, Wanted(since, actor, pod), output, follow=follow)


@journal.command(epilog=CHECK_EPILOG)
@journals_option
@output_option("table", "json")
def check(journals: tuple[Path, ...], output: str) -> int:
    """Read all of a journal and verify every record and every link.

    Exit code 4: the tail is torn, everything before it is intact. 5: corrupt. 6: another version wrote it.
    """
    from ebbtide.cli.checking import check_journal

    return check_journal(journals, output)


@journal.command(epilog=PACK_EPILOG, context_settings={"ignore_unknown_options": True})
@click.argument("episode", required=False)
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
def pack(
    episode: str | None, journals: tuple[Path, ...], file: Path, redacted: bool, everything: bool
) -> int:
    """Make one file of a shutdown, to attach to a ticket.

    EPISODE is last (the default), -1, -2, …, or an id from 'ebbtide journal ls'. With --redact which
    pseudonym is whose stands nowhere; records keep their numbers and times, and the first one names the
    original by its id and its last hash.
    """
    from ebbtide.cli.packing import pack_journal

    return pack_journal(journals, episode, file, everything=everything, redacted=redacted)

"""``ebbtide export jsonl`` and ``perfetto``: a shutdown's records in the formats of other tools."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from ebbtide.cli.common.episodes import choose_account
from ebbtide.cli.common.reading import journals_option, open_journal
from ebbtide.cli.common.records import record_json_line
from ebbtide.cli.common.saving import file_option, save
from ebbtide.events.reader import History
from ebbtide.replay.perfetto import perfetto
from ebbtide.replay.timeline import timeline

JSONL_EPILOG = """\b
Examples:
  ebbtide export jsonl | jq 'select(.type == "PodEnded") | .data'
  ebbtide export jsonl -2 -o monday.jsonl
"""


@click.command("jsonl", epilog=JSONL_EPILOG, context_settings={"ignore_unknown_options": True})
@click.argument("episode", default="last")
@journals_option
@file_option("shutdown.jsonl")
def jsonl_command(episode: str, journals: tuple[Path, ...], output: Path | None) -> int:
    """Write a shutdown's records as 'ebbtide journal show -o json' has them, one JSON object a line.

    EPISODE is last (the default), -1, -2, …, or an id.
    """
    return write_jsonl(journals, episode, output)


PERFETTO_EPILOG = """\b
Examples:
  ebbtide export perfetto -o shutdown.pftrace
  ebbtide export perfetto -2 --journal /mnt/old/journal -o monday.pftrace
"""


@click.command("perfetto", epilog=PERFETTO_EPILOG, context_settings={"ignore_unknown_options": True})
@click.argument("episode", default="last")
@journals_option
@file_option("shutdown.pftrace")
def perfetto_command(episode: str, journals: tuple[Path, ...], output: Path | None) -> int:
    """Write a shutdown as a trace for Perfetto's viewer (its native, binary format).

    EPISODE is last (the default), -1, -2, …, or an id. Each actor and each pod has a track; arrows lead from
    each record to those that it caused.
    """
    return write_perfetto(journals, episode, output)


def write_perfetto(journals: Sequence[Path], name: str, output: Path | None) -> int:
    """Exit code 0, or that of the journal's verdict. Raises Refused for what is not there."""
    account, code = choose_account(journals, name)
    lines = timeline(open_journal(journals).batches(), account.first_seq)
    save(output, perfetto(account, lines), readable=False, example="shutdown.pftrace")
    return code


def write_jsonl(journals: Sequence[Path], name: str, output: Path | None) -> int:
    """Exit code 0, or that of the journal's verdict. Raises Refused for what is not there."""
    account, code = choose_account(journals, name)
    lines = record_lines(open_journal(journals), account.first_seq)
    save(output, lines, readable=True, example="shutdown.jsonl")
    return code


def record_lines(history: History, episode: int) -> Iterator[bytes]:
    """The records of the shutdown whose first record has this number, a batch at a time."""
    for header, records in history.batches():
        wanted = [raw for raw in records if episode in (raw.episode, raw.seq)]
        yield b"".join(record_json_line(header, raw) for raw in wanted)

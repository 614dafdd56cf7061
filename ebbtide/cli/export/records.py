"""``ebbtide export jsonl`` and ``perfetto``: a shutdown's records in the formats of other tools."""

from __future__ import annotations

from pathlib import Path

import click

from ebbtide.cli.common.options import EPISODE_NAMES, episode_argument
from ebbtide.cli.common.reading import journals_option, open_journal
from ebbtide.cli.common.records import record_json_line
from ebbtide.cli.common.saving import file_option, save
from ebbtide.cli.common.selection import choose_shutdown
from ebbtide.replay.perfetto import perfetto
from ebbtide.replay.timeline import timeline

JSONL_EPILOG = """\b
Examples:
  ebbtide export jsonl | jq 'select(.type == "PodEnded") | .data'
  ebbtide export jsonl -2 -o monday.jsonl
"""


@click.command("jsonl", epilog=JSONL_EPILOG, context_settings=EPISODE_NAMES)
@episode_argument
@journals_option
@file_option("shutdown.jsonl")
def jsonl_command(episode: str, journals: tuple[Path, ...], output: Path | None) -> int:
    """Write a shutdown's records as 'ebbtide journal show -o json' has them, one JSON object a line.

    EPISODE is last (the default), -1, -2, …, or an id.
    """
    shutdown, code = choose_shutdown(journals, episode)
    # A step at a time: a journal of a year is written in as little memory as one of a day. The first record
    # may still belong to the shutdown that it closed (`events.record.episodes`).
    lines = (
        record_json_line(header, raw)
        for header, records in open_journal(journals).batches()
        for raw in records
        if shutdown.first_seq in (raw.episode, raw.seq)
    )
    save(output, lines, readable=True, example="shutdown.jsonl")
    return code


PERFETTO_EPILOG = """\b
Examples:
  ebbtide export perfetto -o shutdown.pftrace
  ebbtide export perfetto -2 --journal /mnt/old/journal -o monday.pftrace
"""


@click.command("perfetto", epilog=PERFETTO_EPILOG, context_settings=EPISODE_NAMES)
@episode_argument
@journals_option
@file_option("shutdown.pftrace")
def perfetto_command(episode: str, journals: tuple[Path, ...], output: Path | None) -> int:
    """Write a shutdown as a trace for Perfetto's viewer (its native, binary format).

    EPISODE is last (the default), -1, -2, …, or an id. Each actor and each pod has a track; arrows lead from
    each record to those that it caused.
    """
    shutdown, code = choose_shutdown(journals, episode)
    lines = timeline(open_journal(journals).batches(), shutdown.first_seq)
    save(output, perfetto(shutdown, lines), readable=False, example="shutdown.pftrace")
    return code

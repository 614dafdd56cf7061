"""``ebbtide export jsonl``, ``perfetto`` and ``parquet``: shutdowns as files for other tools.

The tables of ``parquet`` are of many journals, in memory for some thousands of rows, and those of ``ebbtide
fleet tables``. pyarrow is needed for them alone, so it is an extra (``tables``) and loaded only when tables
are written.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from ebbtide.cli.common.options import EpisodeCommand, episode_argument, journals_option, pooled_option
from ebbtide.cli.common.output import remark
from ebbtide.cli.common.reading import JournalPool, open_journal
from ebbtide.cli.common.records import record_json_line
from ebbtide.cli.common.saving import file_option, new_folder, refuse_existing, save
from ebbtide.cli.common.selection import choose_record
from ebbtide.events.record.format import plural
from ebbtide.extras import require

# --- one shutdown, record by record ------------------------------------------------------------

JSONL_EPILOG = """\b
Examples:
  ebbtide export jsonl | jq 'select(.type == "PodEnded") | .data'
  ebbtide export jsonl -2 -o monday.jsonl
"""


@click.command("jsonl", epilog=JSONL_EPILOG, cls=EpisodeCommand)
@episode_argument
@journals_option
@file_option("shutdown.jsonl")
def jsonl_command(episode: str, journals: tuple[Path, ...], output: Path | None) -> int:
    """Write the records of a shutdown or an outage as 'ebbtide journal show -o json' has them.

    One JSON object a line.

    EPISODE is last (the default), -1, -2, …, or an id.
    """
    shutdown, code = choose_record(journals, episode)
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


@click.command("perfetto", epilog=PERFETTO_EPILOG, cls=EpisodeCommand)
@episode_argument
@journals_option
@file_option("shutdown.pftrace")
def perfetto_command(episode: str, journals: tuple[Path, ...], output: Path | None) -> int:
    """Write a shutdown as a trace for Perfetto's viewer (its native, binary format).

    EPISODE is last (the default), -1, -2, …, or an id. Each actor and each pod has a track; arrows lead from
    each record to those that it caused.
    """
    from ebbtide.replay.perfetto import perfetto
    from ebbtide.replay.timeline import timeline

    shutdown, code = choose_record(journals, episode)
    lines = timeline(open_journal(journals).batches(), shutdown.first_seq)
    save(output, perfetto(shutdown, lines), readable=False, example="shutdown.pftrace")
    return code


# --- tables of many shutdowns ------------------------------------------------------------------

PARQUET_EPILOG = """\b
Examples:
  ebbtide export parquet -o tables
  ebbtide export parquet --journal fleet/ -o tables
  ebbtide export parquet --journal node-a/journal --journal node-b/journal -o tables
  duckdb -c "select node, outcome, took_ms from 'tables/shutdowns.parquet'"

What the tables hold, and ten questions for them: docs/fleet.md.
"""


@click.command(epilog=PARQUET_EPILOG)
@pooled_option("--journal", "journals")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    metavar="DIR",
    help="A new directory for the tables, one file each.",
)
def parquet(journals: tuple[Path, ...], output: Path) -> int:
    """Write the shutdowns of one node or of many as tables in Parquet files, for DuckDB, Spark or pandas.

    shutdowns, waves, pods, hooks, containers and notices; of journals of outages outages, outage_pods,
    outage_volumes and outage_statements.
    """
    return write_tables(journals, output)


def write_tables(journals: Sequence[Path], output: Path) -> int:
    """Exit code: the worst of the journals' verdicts. Raises Refused, OSError."""
    from ebbtide.replay.tables import TABLES_OF

    refuse_existing(output, "-o")
    # Before a journal is read: that may take a minute, and would be in vain.
    require("tables", "export parquet")
    from ebbtide.fleet import batched, rows_of
    from ebbtide.fleet.parquet import write_files

    pool = JournalPool(journals)
    # Those of what is there, also where it tells of none yet: whoever asks finds an empty table.
    tables = [table.name for kind in pool.kinds for table in TABLES_OF[kind]]
    # Each journal is read once, for all the tables.
    found = ((table.name, rows_of(table, told)) for told in pool.records() for table in TABLES_OF[type(told)])
    with new_folder(output) as made:
        counts = write_files(batched(found, tables), tables, made)
    rows = ", ".join(f"{count} {name}" for name, count in counts.items())
    remark(f"wrote {output}: {rows} of {plural(len(pool), 'journal')}")
    return pool.code

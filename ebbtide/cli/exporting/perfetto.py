"""``ebbtide export perfetto``."""

from __future__ import annotations

from pathlib import Path

import click

from ebbtide.cli.reading import journals_option
from ebbtide.cli.saving import file_option

EPILOG = """\b
Examples:
  ebbtide export perfetto -o shutdown.pftrace
  ebbtide export perfetto -2 --journal /mnt/old/journal -o monday.pftrace
"""


@click.command(epilog=EPILOG, context_settings={"ignore_unknown_options": True})
@click.argument("episode", default="last")
@journals_option
@file_option("shutdown.pftrace")
def perfetto(episode: str, journals: tuple[Path, ...], output: Path | None) -> int:
    """Write a shutdown as a trace for Perfetto's viewer (its native, binary format).

    EPISODE is last (the default), -1, -2, …, or an id. Each actor and each pod has a track; arrows lead from
    each record to those that it caused.
    """
    from ebbtide.cli.exporting.writing import write_perfetto

    return write_perfetto(journals, episode, output)

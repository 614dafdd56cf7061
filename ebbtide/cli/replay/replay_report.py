"""``ebbtide replay report``: one self-contained page of a shutdown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ebbtide.cli.common.guard import CORRUPT, Refused
from ebbtide.cli.common.reading import open_journal
from ebbtide.cli.common.saving import file_option, save
from ebbtide.cli.common.selection import choose_record
from ebbtide.cli.common.shared_options import episode_verb
from ebbtide.events.record.format import rfc3339
from ebbtide.events.record.outage_record import OutageRecord
from ebbtide.events.record.shutdown_record import ShutdownRecord
from ebbtide.memory import PAGE_READER_BYTES_MAX, MemoryWatch
from ebbtide.replay.report.markup import PageTooLarge
from ebbtide.replay.report.outage_page import outage_report
from ebbtide.replay.report.page import report
from ebbtide.replay.timeline import Line, timeline

EPILOG = """\b
Examples:
  ebbtide replay report -o report.html
  ebbtide replay report -2 -o monday.html --journal /mnt/old/journal
  ebbtide replay report | gzip > report.html.gz
"""


PAGES: dict[type[Any], Callable[[Any, Iterator[Line], str], str]] = {
    ShutdownRecord: report,
    OutageRecord: outage_report,
}


@episode_verb("report", EPILOG)
@file_option("report.html")
def report_command(episode: str, journals: tuple[Path, ...], output: Path | None) -> int:
    """Make one self-contained page of a shutdown or an outage, for any browser.

    EPISODE is last (the default), -1, -2, …, or an id. The page makes no request: it can be
    mailed, printed, and kept with a ticket. It has the names of pods and the journal's data about them.
    """
    reading = ", ".join(map(str, journals)) or "the journal"
    watch = MemoryWatch(PAGE_READER_BYTES_MAX, reading)
    shutdown, code = choose_record(journals, episode)
    lines = timeline(open_journal(journals).batches(), shutdown.first_seq)
    # Two readings keep neither the record nor the lines in memory.
    try:
        page = PAGES[type(shutdown)](shutdown, watch.watched(lines), rfc3339(shutdown.started_wall_ns))
    except PageTooLarge as error:
        raise Refused(f"{reading}: {error}", CORRUPT) from None
    save(output, [page.encode()], readable=False, example="report.html")
    return code

"""What the daemon and its exporter say to each other: one JSON object a line, over the exporter's own pipes.

The first line to the exporter is its job, with the headers in it: an argument or a variable could be read
by others. The end of the pipe means that the daemon has gone.
"""

from __future__ import annotations

import msgspec

from ebbtide.otel.delivery.destination import Destination

#: The exporter's exit codes: all is delivered; some is kept; the job cannot be done. Those of sysexits.h,
#: since an interpreter that fails ends with 1 or 2.
EXIT_DONE, EXIT_KEPT, EXIT_WRONG = 0, 75, 78

#: A job with long headers fits; a line that does not end is cut off here.
LINE_BYTES_MAX = 256 * 1024


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """``locations``: where the journal may stand, the first one first; the cursor is kept in the first that
    can be written.
    """

    destination: Destination
    locations: tuple[str, ...]
    #: Before the names of the metrics that a KEP gave.
    metrics_prefix: str = ""


class DaemonRequest(msgspec.Struct, frozen=True, kw_only=True):
    """``durable``: the disk has confirmed all up to this record. ``flush``: say when its spans have
    arrived, with this ``number``: an answer may come when nobody waits for it any more.
    """

    durable: int
    flush: bool = False
    number: int = 0


class ExporterReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line for the log, or, with ``flushed``, the answer to a flush: ``text`` says why it is of no use to
    wait, and is empty where all has arrived. ``well``: whether the back end answers, when that has changed,
    with ``text`` as the reason why not.
    """

    text: str = ""
    level: int = 6
    flushed: bool = False
    number: int = 0
    well: bool | None = None


def encode_line(message: Job | DaemonRequest | ExporterReport) -> bytes:
    return msgspec.json.encode(message) + b"\n"

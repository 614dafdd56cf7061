"""The metrics' side file: sums that outlive the segments they were folded from.

It stands beside the journal and can be made again from what is left of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import msgspec

from events.codec import BadPayload, UnknownType
from events.frames import decode
from events.history import History
from events.storage import Source
from otel.metrics.fold import METERED, fold
from otel.metrics.state import Meters

FILE_NAME = "metrics"

#: Some hundred bytes for each workload; a file that is larger is none of ours.
FILE_BYTES_MAX = 1024 * 1024


def kept_meters(sources: Sequence[Source], journal_id: bytes) -> Meters:
    """What was kept of this journal, the newest of all locations; empty meters where nothing usable was.

    Whoever reads the journal to its end holds their ``seq`` against it: one beyond it is not believed.
    """
    found = [Meters(journal_id=journal_id)]
    for source in sources:
        with suppress(OSError, ValueError, msgspec.DecodeError):  # msgspec raises ValueError on bad UTF-8
            found.append(msgspec.msgpack.decode(source.read(FILE_NAME, 0, FILE_BYTES_MAX), type=Meters))
    usable = (meters for meters in found if meters.fits and meters.journal_id == journal_id)
    return max(usable, key=lambda each: each.seq)


def fold_before(sources: Sequence[Source], journal_id: bytes, seq: int) -> Meters:
    """All that the journal holds before a record's number. Raises OSError."""
    meters = Meters(journal_id=journal_id)
    for raw in History(sources, journal=journal_id.hex()[:8]).raw():
        if raw.seq >= seq:
            break
        if raw.tag in METERED:
            with suppress(BadPayload, UnknownType):
                fold(meters, (decode(raw),))
    meters.seq = max(meters.seq, seq - 1)
    return meters

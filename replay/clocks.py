"""When a record was made, for people: since its shutdown's signal, and on the signal's wall clock.

A shutdown is measured by the monotonic clock, so that a stepped wall clock moves nothing; that clock begins
anew with each boot, and from one boot to the next only the wall clock is left. Outside a shutdown the
segment's anchor counts.
"""

from __future__ import annotations

from typing import NamedTuple

from events.frames import RawRecord
from events.segment import Header


class When(NamedTuple):
    """``since_ns`` is None outside a shutdown."""

    since_ns: int | None
    wall_ns: int


class Signal(NamedTuple):
    """The first record of a shutdown, and the boot that it happened in."""

    raw: RawRecord
    boot_id: str

    def since_ns(self, header: Header, raw: RawRecord) -> int:
        """From here to another record."""
        if header.identity.boot_id != self.boot_id:
            return raw.wall_ns - self.raw.wall_ns
        return raw.mono_ns - self.raw.mono_ns


class SignalClock:
    """Counts from the first record of the shutdown that the records shown to it belong to."""

    def __init__(self) -> None:
        #: Of the shutdown that the last record belonged to; None outside.
        self.signal: Signal | None = None

    def when(self, header: Header, raw: RawRecord) -> When:
        """To be asked in the records' order."""
        if not raw.episode:
            self.signal = None
            return When(None, header.wall_ns(raw.mono_ns))
        if self.signal is None or raw.episode not in (self.signal.raw.episode, self.signal.raw.seq):
            self.signal = Signal(raw, header.identity.boot_id)
        since_ns = self.signal.since_ns(header, raw)
        return When(since_ns, self.signal.raw.wall_ns + since_ns)

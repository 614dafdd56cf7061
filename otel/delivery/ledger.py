"""The cursor while it moves: what is settled, what was rejected, what a back end refuses for now."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import trio
from msgspec.structs import replace

from otel.delivery.courier import BATCH_SPANS_MAX, Loss, wall_ns
from otel.delivery.cursor import Cursor, Rejection
from otel.delivery.stock import Stock
from otel.span import Span

#: The cursor is written so seldom while spans flow: its sync must not queue behind the journal's.
SAVE_SECONDS = 1.0
#: Spans that were refused for so long, and at so many starts, are put on record and passed over: long enough
#: for somebody to come back from holidays and renew a token, and not for ever in the way of all others.
REFUSED_DAYS_MAX, REFUSALS_MAX = 7, 5
NS_PER_DAY = 86_400 * 1_000_000_000


class Ledger:
    """``keep`` writes the cursor, and may raise OSError; ``blocking`` runs what waits for a disk."""

    def __init__(self, keep: Callable[[Cursor], None], blocking: Callable[..., Awaitable[Any]]) -> None:
        self._keep, self._blocking = keep, blocking
        self._saved_at = -math.inf
        self.cursor = Cursor(journal="")

    def begin(self, found: Cursor | None, journal: str, end_seq: int) -> Cursor:
        """From where it was left, if that is this journal's and in it."""
        ours = found is not None and found.of(journal, end_seq)
        self.cursor = found if found is not None and ours else Cursor(journal=journal)
        return self.cursor

    async def settled(self, stock: Stock) -> None:
        """Something arrived, or was rejected: no refusal stands any more. Written now and then."""
        self.cursor = replace(self.cursor, reason="", refusals=0, refused_wall_ns=0)
        if trio.current_time() - self._saved_at > SAVE_SECONDS:
            await self.save(stock)

    async def save(self, stock: Stock) -> None:
        """One that cannot be written costs a repetition."""
        self._saved_at = trio.current_time()
        seq, from_seq = self.cursor.seq, self.cursor.from_seq
        if stock.read_seq:
            seq, from_seq = max(seq, stock.settled_seq), max(from_seq, stock.from_seq)
        self.cursor = replace(self.cursor, seq=seq, from_seq=from_seq, wall_ns=wall_ns())
        with suppress(OSError):
            await self._blocking(self._keep, self.cursor)

    def rejected(self, loss: Loss) -> Rejection:
        """On record, and written with what is settled next."""
        first, last = loss.spans[0], loss.spans[-1]
        rejection = Rejection(
            wall_ns=wall_ns(),
            trace_id=first.trace_id.hex(),
            spans=loss.number,
            first_seq=first.seq,
            last_seq=last.seq,
            reason=loss.reason,
        )
        self.cursor = self.cursor.with_rejection(rejection)
        self._saved_at = -math.inf
        return rejection

    def refused(self, stock: Stock, reason: str) -> Sequence[Span]:
        """The spans that are no longer held on to: those at a place that was refused for too long."""
        now_ns, since_ns = wall_ns(), self.cursor.refused_wall_ns
        if not 0 < since_ns <= now_ns:  # the first time, or a clock that was set back
            since_ns = now_ns
        refusals = self.cursor.refusals + 1
        self.cursor = replace(self.cursor, reason=reason, refusals=refusals, refused_wall_ns=since_ns)
        if refusals < REFUSALS_MAX or now_ns - since_ns < REFUSED_DAYS_MAX * NS_PER_DAY:
            return ()
        self.cursor = replace(self.cursor, refusals=0, refused_wall_ns=0)
        return stock.next(BATCH_SPANS_MAX)[0]

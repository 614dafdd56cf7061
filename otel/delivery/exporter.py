"""The exporter's work: read what is durable, send what has ended there, remember how far that came, and go.

It runs beside the shutdown in a process of its own and may be killed at any moment. Everything that it holds
can be made again from the journal; nothing that it does is waited for longer than somebody decided
beforehand.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar, TypeVarTuple, Unpack

import msgspec
import trio

from otel.delivery.courier import BATCH_SPANS_MAX, Courier, Encode, GaveUp, Loss, Sender, wall_ns
from otel.delivery.cursor import Cursor, Rejection
from otel.delivery.stock import Stock
from otel.delivery.tail import Tail
from otel.span import Span

#: How often new records are looked for: soon in a shutdown, where somebody may wait, else seldom.
LOOK_SECONDS, LOOK_IDLE_SECONDS = 0.02, 0.25
#: Records of one look: a shutdown of a dozen pods, and 5 ms of projecting.
READ_RECORDS = 512
#: With nothing to send and no shutdown under way for so long the process ends.
IDLE_SECONDS = 1.0
#: When the daemon has gone the machine goes down: what is here is sent, if it goes quickly.
LINGER_SECONDS = 5.0
#: For a connection's last words.
CLOSE_SECONDS_MAX = 1.0
#: The cursor is written so seldom while spans flow: its sync must not queue behind the journal's.
SAVE_SECONDS = 1.0
#: After so many starts that were refused at the same place the spans there are put on record, and passed
#: over.
REFUSALS_MAX = 5

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Voice(Protocol):
    """Whom the exporter tells what happened; must not block."""

    def log(self, level: int, text: str) -> None: ...

    def well(self, reason: str) -> None:
        """The back end answers, or why it does not: after its first answer, and whenever that changes."""


async def in_thread(work: Callable[[Unpack[Ts]], T], *args: *Ts) -> T:
    """A disk that hangs holds nobody who asks how far we are."""
    return await trio.to_thread.run_sync(work, *args, abandon_on_cancel=True)


class Exporter:
    """One journal to one back end. ``keep`` writes the cursor, and may raise OSError; ``blocking`` runs what
    waits for a disk.
    """

    def __init__(
        self,
        tail: Tail,
        sender: Sender,
        encode: Encode,
        voice: Voice,
        keep: Callable[[Cursor], None],
        blocking: Callable[..., Awaitable[Any]] = in_thread,
    ) -> None:
        self._tail, self._voice, self._keep, self._blocking = tail, voice, keep, blocking
        self._courier = Courier(
            sender, encode, settled=self._settled, lost=self._lost, trouble=self._troubled
        )
        self._sender = sender
        self._cursor = Cursor(journal="")
        self._stock = Stock()
        self._saved_at = -math.inf
        self._poke, self._changed = trio.Event(), trio.Event()
        self._empty_looks = 0
        self._leaving = False
        self._scope = trio.CancelScope()
        self._unwell = "the back end has not answered"
        self.delivered = 0

    # --- life ---------------------------------------------------------------------------------

    async def run(self, found: Cursor | None) -> str:
        """Until there is nothing left to do; why it did not all go, or nothing."""
        self._begin(found)
        reason = ""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read)
                nursery.start_soon(self._send)
                self._scope = nursery.cancel_scope
                await self._idle()
                nursery.cancel_scope.cancel()
        except* GaveUp as group:
            reason = self._give_up(_first(group))
        finally:
            with trio.move_on_after(CLOSE_SECONDS_MAX, shield=True):
                await self._sender.aclose()
        with trio.move_on_after(LINGER_SECONDS, shield=True):
            await self._save()
        return reason

    def _begin(self, found: Cursor | None) -> None:
        """From the cursor, if it is this journal's."""
        self._tail.look()
        journal = self._tail.journal_id.hex()
        self._cursor = found if found is not None and found.journal == journal else Cursor(journal=journal)
        self._tail.from_seq = self._cursor.from_seq
        self._stock = Stock(self._cursor.seq)

    async def _idle(self) -> None:
        """Until nothing is left and no shutdown is under way, or it was told to leave and nothing more
        comes.
        """
        while True:
            if not self._done:
                await self._next_change()
                continue
            with trio.move_on_after(0 if self._leaving else IDLE_SECONDS) as waited:
                while self._done:
                    await self._next_change()
            if waited.cancelled_caught:
                return

    @property
    def _done(self) -> bool:
        caught_up = self._empty_looks > (1 if self._leaving else 0)
        return caught_up and not self._stock and (self._leaving or not self._stock.episode)

    def leave(self) -> None:
        """The daemon has gone. The look that is under way may have missed its last words."""
        self._leaving, self._empty_looks = True, 0
        self._poke.set()
        self._change()

    @property
    def unwell(self) -> str:
        """Why nothing arrives; empty where it does, or nothing was tried."""
        return self._courier.unwell

    def stop(self) -> None:
        """At once; what is not acknowledged is left to the next start."""
        self._scope.cancel()

    # --- from the journal to the back end -----------------------------------------------------

    async def _read(self) -> None:
        while True:
            self._poke = trio.Event()
            batches = await self._blocking(self._tail.read, READ_RECORDS)
            for batch in batches:
                self._stock.add(batch, self._tail.journal_id)
                await trio.lowlevel.checkpoint()
            self._empty_looks = 0 if batches else self._empty_looks + 1
            self._change()
            while self._stock.full:
                await self._next_change()
            if not batches:
                pause = LOOK_SECONDS if self._stock.episode else LOOK_IDLE_SECONDS
                with trio.move_on_after(pause):
                    await self._poke.wait()

    async def _send(self) -> None:
        while True:
            while not self._stock:
                await self._next_change()
            spans, resource = self._stock.next(BATCH_SPANS_MAX)
            await self._courier.deliver(spans, resource)

    async def _settled(self, spans: Sequence[Span]) -> None:
        self.delivered += len(spans)
        self._tell_well("")
        self._stock.drop(len(spans))
        self._cursor = msgspec.structs.replace(self._cursor, reason="", refusals=0)
        self._change()
        if trio.current_time() - self._saved_at > SAVE_SECONDS:
            await self._save()

    async def _save(self) -> None:
        """A cursor that cannot be written costs a repetition."""
        self._saved_at = trio.current_time()
        seq = max(self._cursor.seq, self._stock.settled_seq)
        from_seq = (
            max(self._cursor.from_seq, self._stock.from_seq)
            if self._stock.read_seq
            else self._cursor.from_seq
        )
        cursor = msgspec.structs.replace(self._cursor, seq=seq, from_seq=from_seq, wall_ns=wall_ns())
        with suppress(OSError):
            await self._blocking(self._keep, cursor)
            self._cursor = cursor

    def _lost(self, loss: Loss) -> None:
        first, last = loss.spans[0], loss.spans[-1]
        rejection = Rejection(
            wall_ns=wall_ns(),
            trace_id=first.trace_id.hex(),
            spans=loss.number,
            first_seq=first.seq,
            last_seq=last.seq,
            reason=loss.reason,
        )
        self._cursor = self._cursor.with_rejection(rejection)
        self._saved_at = -math.inf
        self._voice.log(
            4, f"traces: {loss.number} spans of {rejection.trace_id} were rejected: {loss.reason}"
        )

    def _troubled(self, reason: str) -> None:
        self._voice.log(4 if reason else 6, f"traces: {reason or 'they arrive again'}")
        self._tell_well(reason)
        self._change()

    def _tell_well(self, reason: str) -> None:
        if reason != self._unwell:
            self._unwell = reason
            self._voice.well(reason)

    def _give_up(self, error: GaveUp) -> str:
        """On record; after the same refusal at so many starts the spans there are no longer held on to."""
        if not error.refused or not self._stock:
            return str(error)
        self._cursor = msgspec.structs.replace(
            self._cursor, reason=str(error), refusals=self._cursor.refusals + 1
        )
        if self._cursor.refusals >= REFUSALS_MAX:
            spans, _ = self._stock.next(BATCH_SPANS_MAX)
            self._lost(Loss(tuple(spans), len(spans), str(error)))
            self._stock.drop(len(spans))
            self._cursor = msgspec.structs.replace(self._cursor, refusals=0)
        return str(error)

    # --- being asked --------------------------------------------------------------------------

    def learn(self, durable_seq: int) -> None:
        self._tail.learn(durable_seq)
        self._poke.set()

    async def flush(self, seq: int) -> str:
        """Until all that ended at or before record ``seq`` is settled; at once, and why, where the back end
        is not well. Whoever asks bounds the time.
        """
        self.learn(seq)
        while self._stock.settled_seq < seq:
            if self._courier.unwell:
                return self._courier.unwell
            with trio.move_on_after(LOOK_SECONDS):
                await self._next_change()
        return ""

    # --- waiting ------------------------------------------------------------------------------

    def _change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def _next_change(self) -> None:
        await self._changed.wait()


def _first(group: BaseExceptionGroup[GaveUp]) -> GaveUp:
    """Out of the groups of nurseries; a record that cannot be read is none of these."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, GaveUp)
    return error

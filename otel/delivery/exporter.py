"""The exporter's work: read what is durable, send what has ended there, remember how far that came, and go.

It runs beside the shutdown in a process of its own and may be killed at any moment. Everything that it holds
can be made again from the journal; nothing that it does is waited for longer than somebody decided
beforehand.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import trio

from events.codec import BadPayload
from otel.delivery.courier import BATCH_SPANS_MAX, Courier, Encode, GaveUp, Loss, Sender
from otel.delivery.cursor import Cursor
from otel.delivery.ledger import Ledger
from otel.delivery.stock import Projecting, Stock
from otel.delivery.surroundings import Voice, in_thread, innermost
from otel.delivery.tail import Tail
from otel.projection import Projection
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
        project: Callable[[], Projecting] = Projection,
        name: str = "traces",
    ) -> None:
        self._project, self._name, self._items = project, name, "spans" if name == "traces" else "records"
        self._tail, self._voice, self._blocking = tail, voice, blocking
        self._courier = Courier(
            sender, encode, settled=self._settled, lost=self._lost, trouble=self._troubled
        )
        self._sender = sender
        self._ledger = Ledger(keep, blocking)
        self._stock = Stock(project=project)
        self._poke, self._changed = trio.Event(), trio.Event()
        self._empty_looks = 0
        self._leaving = False
        self._scope = trio.CancelScope()
        self._unwell = "the back end has not answered"
        self._unknown: list[int] = []
        self.delivered = 0
        #: The back end was given up: another start may do better.
        self.gave_up = False

    # --- life ---------------------------------------------------------------------------------

    async def run(self, found: Cursor | None) -> str:
        """Until there is nothing left to do; why it did not all go, or nothing."""
        reason = ""
        try:
            self._begin(found)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read)
                nursery.start_soon(self._send)
                self._scope = nursery.cancel_scope
                await self._idle()
                nursery.cancel_scope.cancel()
        except* GaveUp as group:
            error = innermost(group)
            assert isinstance(error, GaveUp)
            reason = self._give_up(error)
        except* BadPayload as group:
            reason = f"the journal holds a record that cannot be read: {innermost(group)}"
            self._voice.log(3, f"{self._name}: {reason}")
        except* OSError as group:
            reason = f"the journal cannot be read: {innermost(group)}"
            self._voice.log(3, f"{self._name}: {reason}")
        finally:
            with trio.move_on_after(CLOSE_SECONDS_MAX, shield=True):
                await self._sender.aclose()
        if self._tail.damage and not reason:
            reason = self._tail.damage
            self._voice.log(3, f"{self._name}: {reason}: what stands behind it is not sent")
        with trio.move_on_after(LINGER_SECONDS, shield=True):
            await self._ledger.save(self._stock)
        return reason

    def _begin(self, found: Cursor | None) -> None:
        """From the cursor, if it is this journal's."""
        end_seq = self._tail.end_seq()
        cursor = self._ledger.begin(found, self._tail.journal_id.hex(), end_seq)
        self._tail.from_seq = cursor.from_seq
        self._stock = Stock(cursor.seq, self._project)

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
        complete = self._leaving or not self._stock.episode or bool(self._tail.damage)
        return caught_up and not self._stock and complete

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
                self._tell_unknown()
                await trio.lowlevel.checkpoint()
            self._empty_looks = 0 if batches else self._empty_looks + 1
            self._change()
            while self._stock.full:
                await self._next_change()
            if not batches:
                pause = LOOK_SECONDS if self._stock.episode else LOOK_IDLE_SECONDS
                with trio.move_on_after(pause):
                    await self._poke.wait()

    def _tell_unknown(self) -> None:
        """Shutdowns that another version recorded, once each: they can be exported with that one."""
        for episode, version in self._stock.refused.items():
            if episode not in self._unknown:
                self._unknown.append(episode)
                what = f"the shutdown at record {episode} needs projection version {version}"
                self._voice.log(4, f"{self._name}: {what}: export it with the ebbtide that recorded it")

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
        self._change()
        await self._ledger.settled(self._stock)

    def _lost(self, loss: Loss) -> None:
        rejection = self._ledger.rejected(loss)
        what = f"{loss.number} {self._items} of {rejection.trace_id} were rejected"
        self._voice.log(4, f"{self._name}: {what}: {loss.reason}")

    def _troubled(self, reason: str) -> None:
        self._voice.log(4 if reason else 6, f"{self._name}: {reason or 'they arrive again'}")
        self._tell_well(reason)
        self._change()

    def _tell_well(self, reason: str) -> None:
        if reason != self._unwell:
            self._unwell = reason
            self._voice.well(reason)

    def _give_up(self, error: GaveUp) -> str:
        """On record; after the same refusal at so many starts the spans there are no longer held on to."""
        self.gave_up = True
        if error.refused and self._stock:
            passed_over = self._ledger.refused(self._stock, str(error))
            if passed_over:
                self._lost(Loss(tuple(passed_over), len(passed_over), str(error)))
                self._stock.drop(len(passed_over))
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
            if reason := self._courier.unwell or (self._tail.damage if not self._stock else ""):
                return reason
            with trio.move_on_after(LOOK_SECONDS):
                await self._next_change()
        return ""

    # --- waiting ------------------------------------------------------------------------------

    def _change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def _next_change(self) -> None:
        await self._changed.wait()

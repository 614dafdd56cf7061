"""The shipper's work: offer each closed segment until the store has one under its name, oldest first.

At most once by the store's condition, at least once by asking until it has answered. It may be killed at any
moment: half a request is no object, and the cursor only saves requests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import trio
from msgspec.structs import replace

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.catalog import Segment, Source, StoredFile
from ebbtide.otel.delivery.backoff import Backoff
from ebbtide.shipping.destination import Entry, Outcome, Shipped, Store, closed_segments, object_key
from ebbtide.shipping.store import Answer, Present, Refused, Stored

#: Tries in a row without an answer after which nothing more is expected of this process.
GIVE_UP_SECONDS = 600.0
#: What may still be begun once the daemon has gone: a shutdown of a hundred pods has a tenth of it.
LAST_BYTES_MAX = 1024 * 1024
#: More is no segment of ours: the journal's hard cap.
SEGMENT_BYTES_MAX = 256 * 1024 * 1024


class Putter(Protocol):
    def put(self, key: str, data: bytes) -> Answer: ...


class ShipLog(Protocol):
    def log(self, level: int, text: str) -> None: ...


class OneSegment:
    """A source that shows one file of another: a segment as a journal of its own."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment

    @property
    def location(self) -> str:
        return self._segment.source.location

    def files(self) -> list[StoredFile]:
        return [StoredFile(self._segment.name, self._segment.size, self._segment.modified_ns)]

    def read(self, name: str, offset: int, size: int) -> bytes:
        return self._segment.source.read(name, offset, size)


class Unfit(Exception):
    """This segment cannot be redacted; the text says why. It is never sent as it is."""


class Cargo(NamedTuple):
    """What is sent of a segment, and under which name."""

    key: str
    data: bytes
    sha256: str


def cargo_of(segment: Segment, store: Store) -> Cargo:
    """Reads the segment, and redacts it where that is asked for. Raises OSError, Unfit."""
    assert segment.header is not None
    name, journal_id = segment.name, segment.header.journal_id
    data = segment.source.read(name, 0, SEGMENT_BYTES_MAX)
    if store.redact:
        name, data, journal_id = _redacted(segment)
    sha256 = hashlib.sha256(data).hexdigest()
    node = segment.header.identity.node
    return Cargo(object_key(store.cluster, node, journal_id, name, sha256, store.redact), data, sha256)


def _redacted(segment: Segment) -> tuple[str, bytes, bytes]:
    """Alone, and so the same bytes each time; its pseudonyms are its own."""
    # Late: the whole core comes with it.
    from ebbtide.events.codec import BadPayload, UnknownType
    from ebbtide.events.reader import History
    from ebbtide.events.segment import parse_header
    from ebbtide.replay.redact import Diverged, NoBegin, Pseudonyms, redact

    try:
        pieces = list(redact(History([OneSegment(segment)]), Pseudonyms()))
    except (Diverged, NoBegin, BadPayload, UnknownType) as error:
        raise Unfit(str(error)) from error
    if not pieces:
        raise Unfit("it holds no whole step")
    data = b"".join(piece.data for piece in pieces)
    return pieces[0].name, data, parse_header(data)[0].journal_id


class Shipper:
    """``keep`` writes the cursor, and may raise OSError; ``wall_ns`` dates what is on record."""

    def __init__(
        self,
        sources: Sequence[Source],
        store: Store,
        putter: Putter,
        log: ShipLog,
        keep: Callable[[Shipped], None],
        wall_ns: Callable[[], int],
        backoff: Backoff | None = None,
    ) -> None:
        self._sources, self._store, self._putter, self._log = sources, store, putter, log
        self._keep, self._wall_ns = keep, wall_ns
        self._backoff = backoff or Backoff()
        self._held = False
        self._changed = trio.Event()
        self._scope = trio.CancelScope()
        self._leaving = False
        self.shipped = Shipped(store=store.identity)

    def hold(self, held: bool) -> None:
        """A shutdown is under way: what is being sent is broken off, and nothing is begun."""
        self._held = held
        if held:
            self._scope.cancel()
        self._changed.set()

    def leave(self) -> None:
        """The daemon has gone: only what is small is still begun."""
        self._leaving = True
        if self._held:
            self._scope.cancel()
        self._changed.set()

    async def run(self, found: Shipped) -> str:
        """Until all that is closed is settled; why it is not, or nothing. Raises OSError."""
        self.shipped = found
        while True:
            reason = await self._pass()
            if reason is not None:
                return reason

    async def _pass(self) -> str | None:
        """All that is there now; None: broken off or more may have come, look again."""
        while self._held and not self._leaving:
            self._changed = trio.Event()
            await self._changed.wait()
        if self._held:
            return "the machine goes down"
        segments = await trio.to_thread.run_sync(closed_segments, self._sources, abandon_on_cancel=True)
        self._forget({segment.name for segment in segments})
        left = [each for each in segments if each.name not in self.shipped.segments]
        self.shipped = replace(self.shipped, left=len(left))
        if not left:
            return ""
        with trio.CancelScope() as self._scope:
            for segment in left:
                if self._leaving and segment.size > LAST_BYTES_MAX:
                    return "the machine goes down, and what is left is large"
                if reason := await self._ship(segment):
                    return reason
        return None

    def _forget(self, names: set[str]) -> None:
        """What retention took is asked for by nobody."""
        kept = {name: entry for name, entry in self.shipped.segments.items() if name in names}
        self.shipped = replace(self.shipped, segments=kept)

    async def _ship(self, segment: Segment) -> str:
        try:
            cargo = await trio.to_thread.run_sync(cargo_of, segment, self._store, abandon_on_cancel=True)
        except FileNotFoundError:
            return ""  # retention was faster
        except Unfit as error:
            self._log.log(4, f"shipping: {segment.name} cannot be redacted and stays here: {error}")
            await self._note(segment, Entry(outcome="unfit", wall_ns=self._wall_ns(), reason=str(error)))
            return ""
        failing_since = trio.current_time()
        while True:
            answer = await trio.to_thread.run_sync(
                self._putter.put, cargo.key, cargo.data, abandon_on_cancel=True
            )
            if isinstance(answer, (Stored, Present)):
                self._backoff.reset()
                await self._settled(segment, cargo, answer)
                return ""
            await self._failed(answer.reason, answer.cure if isinstance(answer, Refused) else "")
            if isinstance(answer, Refused):
                return answer.reason
            pause_seconds = self._backoff.next_ns() / NS_PER_SECOND
            if self._leaving or trio.current_time() + pause_seconds - failing_since > GIVE_UP_SECONDS:
                return answer.reason
            await trio.sleep(pause_seconds)

    async def _settled(self, segment: Segment, cargo: Cargo, answer: Stored | Present) -> None:
        stored = isinstance(answer, Stored)
        if not stored:
            self._log.log(5, f"shipping: {cargo.key} is there already: its content was not verified")
        if self.shipped.reason:
            self._log.log(6, "shipping: segments arrive again")
        self.shipped = replace(
            self.shipped,
            stored=self.shipped.stored + stored,
            present=self.shipped.present + (not stored),
            reason="",
        )
        outcome: Outcome = "stored" if stored else "present"
        await self._note(segment, Entry(outcome=outcome, wall_ns=self._wall_ns(), sha256=cargo.sha256))

    async def _failed(self, reason: str, cure: str) -> None:
        # Said once: at the next start the cursor still knows it.
        if reason != self.shipped.reason:
            self._log.log(4, f"shipping: {reason}{': ' if cure else ''}{cure}")
        self.shipped = replace(self.shipped, failed=self.shipped.failed + 1, reason=reason)
        await self._save()

    async def _note(self, segment: Segment, entry: Entry) -> None:
        segments = self.shipped.segments | {segment.name: entry}
        self.shipped = replace(self.shipped, segments=segments, left=self.shipped.left - 1)
        await self._save()

    async def _save(self) -> None:
        """One that cannot be written costs a request."""
        self.shipped = replace(self.shipped, wall_ns=self._wall_ns())
        try:
            await trio.to_thread.run_sync(self._keep, self.shipped, abandon_on_cancel=True)
        except OSError:
            pass

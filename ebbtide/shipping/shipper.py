"""The shipper's work: offer each closed segment, oldest first, until the store has an object of that name.

The store's condition prevents a second copy; repetition until an answer prevents a loss. The process may be
killed at any moment: a partial request leaves no object, and the cursor only saves requests.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import trio
from msgspec.structs import replace

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.catalog import Segment, Source, StoredFile
from ebbtide.events.units import size_text
from ebbtide.otel.delivery.backoff import Backoff
from ebbtide.otel.metric_table import ShippingState
from ebbtide.shipping.object_store import Again, Answer, Present, Refused, Stored
from ebbtide.shipping.shipping_cursor import Entry, Outcome, Shipped, closed_segments
from ebbtide.shipping.shipping_destination import Store, object_key
from ebbtide.shipping.shipping_messages import ShipReport

#: After this time without an answer the process gives up; the next one continues.
GIVE_UP_SECONDS = 600.0
#: The largest segment to begin after the daemon's end: ten shutdowns of a hundred pods.
LAST_BYTES_MAX = 1024 * 1024
#: A quarter of the journal's hard cap; the process has its own memory limit.
SEGMENT_BYTES_MAX = 64 * 1024 * 1024


class Putter(Protocol):
    def put(self, key: str, data: bytes) -> Answer: ...


class Daemon(Protocol):
    """The receiver of reports, which the shipper does not wait for."""

    def send(self, report: ShipReport) -> None: ...


class OneSegment:
    """A source with one file of another source: a segment as its own journal."""

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
    """This segment is never sent: redaction fails, or it is too large; the text has the reason."""


class Cargo(NamedTuple):
    """The bytes to send, and their name."""

    key: str
    data: bytes
    sha256: str


def cargo_of(segment: Segment, store: Store) -> Cargo:
    """Reads the segment, and redacts it on request. Raises OSError, Unfit."""
    assert segment.header is not None
    name, journal_id = segment.name, segment.header.journal_id
    if segment.size > SEGMENT_BYTES_MAX:
        raise Unfit(f"it has more than {size_text(SEGMENT_BYTES_MAX)}")
    data = segment.source.read(name, 0, segment.size)
    if len(data) != segment.size:
        raise OSError(errno.EIO, "it ends too early", name)
    if store.redact:
        name, data, journal_id = _redacted(segment)
    sha256 = hashlib.sha256(data).hexdigest()
    node = segment.header.identity.node
    return Cargo(object_key(store.cluster, node, journal_id, name, sha256, store.redact), data, sha256)


def _redacted(segment: Segment) -> tuple[str, bytes, bytes]:
    """Redacts the segment alone: the result is always the same, and its pseudonyms are its own."""
    # Late: it imports the whole core.
    from ebbtide.events.codec import BadPayload, UnknownType
    from ebbtide.events.reader import History
    from ebbtide.events.segment import parse_header
    from ebbtide.replay.redact import Diverged, NoBegin, Pseudonyms, redact

    try:
        history = History([OneSegment(segment)])
        pieces = list(redact(history, Pseudonyms()))
    except (Diverged, NoBegin, BadPayload, UnknownType) as error:
        raise Unfit(str(error)) from error
    except OSError:
        raise
    # All kinds of errors: a defect in one segment or in the code must not hold back the segments behind it.
    # MemoryError too, because this process has its own limit.
    except Exception as error:
        raise Unfit(f"{type(error).__name__}: {error}") from error
    # A damaged segment would give a shorter copy that looks complete.
    if history.verdict.state not in ("intact", "torn"):
        raise Unfit(history.verdict.banner)
    if not pieces:
        raise Unfit("it holds no whole step")
    data = b"".join(piece.data for piece in pieces)
    return pieces[0].name, data, parse_header(data)[0].journal_id


def look(sources: Sequence[Source], shipped: Shipped) -> tuple[Shipped, list[Segment]]:
    """The cursor without the removed segments, and the closed segments that remain, oldest first.

    Raises OSError.
    """
    segments = closed_segments(sources)
    names = {segment.name for segment in segments}
    known = {name: entry for name, entry in shipped.segments.items() if name in names}
    left = [each for each in segments if each.name not in known]
    return replace(shipped, segments=known, reason=shipped.reason if left else ""), left


def state_of(shipped: Shipped, left: Sequence[Segment], reason: str) -> ShippingState:
    return ShippingState(
        stored=shipped.stored,
        present=shipped.present,
        failed=shipped.failed,
        lost=shipped.lost,
        pending=len(left),
        oldest_wall_ns=left[0].modified_ns if left else 0,
        reason=reason if left else "",
    )


class Shipper:
    """``keep``: writes the cursor, may raise OSError. ``wall_ns``: the time for entries."""

    def __init__(
        self,
        sources: Sequence[Source],
        store: Store,
        putter: Putter,
        daemon: Daemon,
        keep: Callable[[Shipped], None],
        wall_ns: Callable[[], int],
        backoff: Backoff | None = None,
    ) -> None:
        self._sources, self._store, self._putter, self._daemon = sources, store, putter, daemon
        self._keep, self._wall_ns = keep, wall_ns
        self._backoff = backoff or Backoff()
        self._leaving = False
        #: Segments that this process failed to store while others succeeded: name and reason.
        self._passed_over: dict[str, str] = {}
        #: Remaining segments, oldest first.
        self._left: list[Segment] = []
        self.shipped = Shipped(store=store.identity)
        #: The part of ``shipped.lost`` that no written cursor has.
        self._unrecorded = 0

    def leave(self) -> None:
        """After the daemon's end: begin only small segments, and try each once."""
        self._leaving = True

    async def run(self, found: Shipped, lost: int = 0) -> str:
        """Runs until no closed segment remains; returns why it stopped, or an empty text. Records ``lost``
        segments first. Raises OSError.
        """
        self.shipped, self._unrecorded = replace(found, lost=found.lost + lost), lost
        await self._look()
        if lost:
            await self._save()
        while True:
            wanted = [each for each in self._left if each.name not in self._passed_over]
            if not wanted:
                return next(iter(self._passed_over.values()), "")
            for segment in wanted:
                if self._leaving and segment.size > LAST_BYTES_MAX:
                    return "the daemon has gone, and what is left is large"
                if reason := await self._ship(segment):
                    return reason
            await self._look()

    async def _look(self) -> None:
        """Closed segments now; there may be new ones."""
        self.shipped, self._left = await trio.to_thread.run_sync(
            look, self._sources, self.shipped, abandon_on_cancel=True
        )
        self._report()

    async def _ship(self, segment: Segment) -> str:
        """Why it begins no further segment, or empty."""
        try:
            cargo = await trio.to_thread.run_sync(cargo_of, segment, self._store, abandon_on_cancel=True)
        except FileNotFoundError:
            return ""  # retention was faster
        except OSError as error:
            self._pass_over(segment, f"it cannot be read: {error.strerror}")
            return ""
        except Unfit as error:
            self._log(4, f"{segment.name} is not sent and stays here: {error}")
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
            if isinstance(answer, Refused) and answer.alone:
                self.shipped = replace(self.shipped, failed=self.shipped.failed + 1)
                self._pass_over(segment, f"{answer.reason}: {answer.cure}")
                return ""
            await self._failed(answer)
            if isinstance(answer, Refused):
                return answer.reason
            pause_seconds = self._backoff.next_ns() / NS_PER_SECOND
            if self._leaving or trio.current_time() + pause_seconds - failing_since > GIVE_UP_SECONDS:
                return answer.reason
            await trio.sleep(pause_seconds)

    def _pass_over(self, segment: Segment, reason: str) -> None:
        self._passed_over[segment.name] = f"{segment.name}: {reason}"
        self._log(4, self._passed_over[segment.name])
        self._report()

    async def _settled(self, segment: Segment, cargo: Cargo, answer: Stored | Present) -> None:
        stored = isinstance(answer, Stored)
        if not stored:
            self._log(5, f"{cargo.key} is there already: its content was not verified")
        if self.shipped.reason:
            self._log(6, "segments arrive again")
        self.shipped = replace(
            self.shipped,
            stored=self.shipped.stored + stored,
            present=self.shipped.present + (not stored),
            reason="",
        )
        outcome: Outcome = "stored" if stored else "present"
        await self._note(segment, Entry(outcome=outcome, wall_ns=self._wall_ns(), sha256=cargo.sha256))

    async def _failed(self, answer: Again | Refused) -> None:
        text = f"{answer.reason}: {answer.cure}" if isinstance(answer, Refused) else answer.reason
        # Logged once; the cursor still has it at the next start.
        if text != self.shipped.reason:
            self._log(4, text)
        self.shipped = replace(self.shipped, failed=self.shipped.failed + 1, reason=text)
        await self._save()

    async def _note(self, segment: Segment, entry: Entry) -> None:
        self._left = [each for each in self._left if each.name != segment.name]
        self.shipped = replace(self.shipped, segments=self.shipped.segments | {segment.name: entry})
        await self._save()

    async def _save(self) -> None:
        """A failed write of the cursor costs only requests."""
        self.shipped = replace(self.shipped, wall_ns=self._wall_ns())
        self._report()
        try:
            await trio.to_thread.run_sync(self._keep, self.shipped, abandon_on_cancel=True)
        except OSError:
            return
        # The first written cursor records them: the daemon repeats unconfirmed ones.
        if self._unrecorded:
            self._daemon.send(ShipReport(recorded=self._unrecorded))
            self._unrecorded = 0

    def _log(self, level: int, text: str) -> None:
        self._daemon.send(ShipReport(text=f"shipping: {text}", level=level))

    def _report(self) -> None:
        reason = self.shipped.reason or next(iter(self._passed_over.values()), "")
        self._daemon.send(ShipReport(state=state_of(self.shipped, self._left, reason)))

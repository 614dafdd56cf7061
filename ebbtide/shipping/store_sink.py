"""Closed segments to an object store, oldest first: each is offered until the store has one under its name.

The process may be killed at any moment: half a request is no object, and the cursor only saves requests.
"""

from __future__ import annotations

import errno
import hashlib
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import trio
from msgspec.structs import replace

from ebbtide.events.catalog import Segment, Source, StoredFile
from ebbtide.events.units import size_text
from ebbtide.otel.delivery.sending import Again, GaveUp, Refused, Rejected, Sending, Sink
from ebbtide.otel.metric_table import ShippingState
from ebbtide.shipping.object_store import Answer, Stored
from ebbtide.shipping.shipping_cursor import Entry, Outcome, Shipped, closed_segments
from ebbtide.shipping.shipping_destination import Store, object_key

#: Once the daemon has gone, only a smaller segment is begun. A shutdown of a hundred pods has a tenth of it.
LAST_BYTES_MAX = 1024 * 1024
#: A quarter of the journal's hard cap. The process has a memory limit.
SEGMENT_BYTES_MAX = 64 * 1024 * 1024


class Putter(Protocol):
    """`object_store.ObjectStore`."""

    def put(self, key: str, data: bytes) -> Answer: ...


class Daemon(Protocol):
    def log(self, level: int, text: str) -> None: ...

    def shipping(self, state: ShippingState) -> None: ...


class OneSegment:
    """A segment as a journal of its own."""

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
    """This segment is never sent: it cannot be redacted, or is too large."""


class Cargo(NamedTuple):
    """The bytes of a segment, and their name in the store."""

    key: str
    data: bytes
    sha256: str


def cargo_of(segment: Segment, store: Store) -> Cargo:
    """Raises OSError and Unfit."""
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
    """Alone, with pseudonyms of its own, and so the same bytes each time."""
    # Late: the whole core comes with it.
    from ebbtide.events.reader import History
    from ebbtide.events.segment import parse_header
    from ebbtide.replay.redact import Pseudonyms, redact

    try:
        history = History([OneSegment(segment)])
        pieces = list(redact(history, Pseudonyms()))
    except OSError:
        raise
    # Any error, MemoryError too: one segment must not keep all later ones from the store.
    except Exception as error:
        raise Unfit(str(error) or type(error).__name__) from error
    # The copy of a damaged segment would be shorter, and pass for whole.
    if history.verdict.state not in ("intact", "torn"):
        raise Unfit(history.verdict.banner)
    if not pieces:
        raise Unfit("it holds no whole step")
    data = b"".join(piece.data for piece in pieces)
    return pieces[0].name, data, parse_header(data)[0].journal_id


def look(sources: Sequence[Source], shipped: Shipped) -> tuple[Shipped, list[Segment]]:
    """The cursor without the segments that retention took, and the closed segments that are not settled,
    oldest first. Raises OSError.
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
        pending=len(left),
        oldest_wall_ns=left[0].modified_ns if left else 0,
        reason=reason if left else "",
    )


class StoreSink(Sink):
    """``keep`` writes the cursor; it may raise OSError."""

    #: After each segment: a killed process would offer the last ones again.
    save_seconds = 0.0
    idle_seconds = 0.0

    def __init__(
        self,
        sources: Sequence[Source],
        store: Store,
        putter: Putter,
        daemon: Daemon,
        keep: Callable[[Shipped], None],
        found: Shipped,
    ) -> None:
        super().__init__("shipping", Sending(self._trouble, patience_seconds=math.inf))
        self.sources, self._store, self._putter, self._daemon = sources, store, putter, daemon
        self._keep = keep
        self.shipped = found
        #: Not settled, oldest first; of them those that this process does not offer again, with the reason.
        self._open: list[Segment] = []
        self._passed_over: dict[str, str] = {}

    @property
    def left(self) -> str:
        return next(iter(self._passed_over.values()), "")

    def read(self) -> list[Segment]:
        """The oldest one, so that each is saved before the next is begun."""
        self.shipped, self._open = look(self.sources, self.shipped)
        self._report()
        return [each for each in self._open if each.name not in self._passed_over][:1]

    async def take(self, items: list[Segment]) -> None:
        (segment,) = items
        if self.leaving and segment.size > LAST_BYTES_MAX:
            raise GaveUp("the daemon has gone, and what is left is large")
        try:
            cargo = await trio.to_thread.run_sync(cargo_of, segment, self._store, abandon_on_cancel=True)
        except FileNotFoundError:
            return  # retention was faster
        except OSError as error:
            self._pass_over(segment, f"it cannot be read: {error.strerror}")
            return
        except Unfit as error:
            self._daemon.log(4, f"shipping: {segment.name} is not sent and stays here: {error}")
            self._note(segment, Entry(outcome="unfit", wall_ns=time.time_ns(), reason=str(error)))
            return
        answer = await self.sending.ask(partial(self._put, cargo))
        self._trouble("")
        if isinstance(answer, Rejected):
            self._pass_over(segment, answer.reason)
            return
        stored = isinstance(answer, Stored)
        if not stored:
            self._daemon.log(5, f"shipping: {cargo.key} is there already: its content was not verified")
        self.shipped = replace(
            self.shipped, stored=self.shipped.stored + stored, present=self.shipped.present + (not stored)
        )
        outcome: Outcome = "stored" if stored else "present"
        self._note(segment, Entry(outcome=outcome, wall_ns=time.time_ns(), sha256=cargo.sha256))

    async def _put(self, cargo: Cargo) -> Answer:
        answer = await trio.to_thread.run_sync(
            self._putter.put, cargo.key, cargo.data, abandon_on_cancel=True
        )
        if isinstance(answer, (Again, Refused, Rejected)):
            self.shipped = replace(self.shipped, failed=self.shipped.failed + 1)
            self._report()
        return answer

    def _pass_over(self, segment: Segment, reason: str) -> None:
        self._passed_over[segment.name] = f"{segment.name}: {reason}"
        self._daemon.log(4, f"shipping: {self._passed_over[segment.name]}")

    def _note(self, segment: Segment, entry: Entry) -> None:
        self._open = [each for each in self._open if each.name != segment.name]
        self.shipped = replace(self.shipped, segments=self.shipped.segments | {segment.name: entry})

    def _trouble(self, reason: str) -> None:
        # An earlier process may have reported it.
        if reason != self.shipped.reason:
            self._daemon.log(4 if reason else 6, f"shipping: {reason or 'segments arrive again'}")
        self.shipped = replace(self.shipped, reason=reason)
        self._report()

    def save(self) -> None:
        self.shipped = replace(self.shipped, wall_ns=time.time_ns())
        self._report()
        self._keep(self.shipped)

    def _report(self) -> None:
        self._daemon.shipping(state_of(self.shipped, self._open, self.shipped.reason or self.left))

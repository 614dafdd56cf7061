"""Closed segments to an object store (`obstore`), oldest first, until each one's name is taken.

The process may be killed at any moment: half a request is no object, and the cursor only saves requests.
"""

from __future__ import annotations

import errno
import hashlib
import math
import os
import re
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

import trio
from msgspec.structs import replace

from ebbtide.events.catalog import Segment, Source, StoredFile
from ebbtide.events.units import size_text
from ebbtide.otel.metric_table import ShippingState
from ebbtide.otel.sending import Again, GaveUp, Refused, Rejected, Sending, Sink
from ebbtide.shipping.shipping_destination import (
    BadStore,
    Entry,
    Outcome,
    Shipped,
    Store,
    closed_segments,
    object_key,
)

# --- the client

#: The largest segment then needs half a mebibyte a second.
PUT_SECONDS_MAX = 120.0
CONNECT_SECONDS_MAX = 5.0
REASON_CHARACTERS_MAX = 300

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([A-Za-z]{1,64})</Code>")


class Stored(NamedTuple):
    """S3 verified the SHA-256."""


class Present(NamedTuple):
    """The name was taken; the content is not verified."""


Answer = Stored | Present | Again | Rejected | Refused

PRESENT, CONFLICT = 412, 409
RETRYABLE = (408, CONFLICT, 425, 429)
RIGHTS_CURE = (
    "allow s3:PutObject on the node's own prefix (docs/fleet.md, Shipping), or give other credentials"
)
CURES = {
    "RequestTimeTooSkewed": "set this machine's clock",
    "NoSuchBucket": "make the bucket, or name another in shipping.url",
    "InvalidAccessKeyId": "give credentials that the store knows",
    "ExpiredToken": "give credentials that are renewed (a role), or new ones",
    "SignatureDoesNotMatch": "give the secret that belongs to the key",
    301: "name the bucket's own region (AWS_REGION)",
    307: "name the bucket's own region (AWS_REGION)",
    401: "give credentials: the environment, a role, or a file that the environment names",
    403: RIGHTS_CURE,
    404: "make the bucket, or name another in shipping.url",
}
#: The fault is this object's, or its transport's.
ALONE = ("EntityTooLarge", "KeyTooLongError", "BadDigest", 413, 414)
OTHER_CURE = "see the store's log, and shipping.url"


def answer_of_error(text: str, *, exists: bool) -> Answer:
    """Only the client's error ``text`` has the status code. ``exists``: the client says "already there"."""
    status = int(found[1]) if (found := _STATUS.search(text)) else 0
    code = found[1] if (found := _CODE.search(text)) else ""
    reason = _reason(text, status, code)
    if not status:
        # A folder has no status. A server that did not answer may have taken it.
        return Present() if exists else Again(reason)
    if status == PRESENT or (status == CONFLICT and "BlobAlreadyExists" in text):
        return Present()
    if status in RETRYABLE or status >= 500:
        return Again(reason)
    cure = CURES.get(code) or CURES.get(status) or OTHER_CURE
    if code in ALONE or status in ALONE:
        return Rejected(f"{reason}: {cure}")
    return Refused(reason, cure)


def _reason(text: str, status: int, code: str) -> str:
    if status:
        return f"HTTP {status}{': ' if code else ''}{code}"
    if "ETag" in text:
        return "the answer is not an object store's: is this the right endpoint?"
    line = " ".join(text.partition("Debug source")[0].split())
    # The system's reason comes after our URL.
    line = re.sub(r"Error performing PUT \S+ in \S+ - ", "", line)
    return "".join(each if each.isprintable() else "\ufffd" for each in line)[:REASON_CHARACTERS_MAX]


class ObjectStore:
    """For any thread. Raises BadStore: no client, or a wrong URL."""

    def __init__(self, store: Store, put_seconds: float = PUT_SECONDS_MAX) -> None:
        try:
            import obstore
            from obstore import exceptions
            from obstore.store import from_url
        except ImportError as error:
            from ebbtide.extras import install_command

            raise BadStore(f"shipping needs the package obstore: {install_command('ship')}") from error
        scheme = urlsplit(store.url).scheme
        given: dict[str, Any] = {}
        if scheme == "s3":
            given["config"] = {"checksum_algorithm": "SHA256", "conditional_put": "etag"}
        if scheme == "file":
            given["mkdir"] = True
        else:
            given["client_options"] = {
                "timeout": timedelta(seconds=put_seconds),
                "connect_timeout": timedelta(seconds=min(CONNECT_SECONDS_MAX, put_seconds)),
                "user_agent": "ebbtide-ship/1",
                # These options hide the environment's.
                "allow_http": os.environ.get("AWS_ALLOW_HTTP", "").lower() == "true",
            }
            given["retry_config"] = {"max_retries": 0, "retry_timeout": timedelta(seconds=put_seconds)}
        try:
            self._store: Any = from_url(store.url, **given)
        except Exception as error:
            raise BadStore(_reason(str(error), 0, "")) from error
        self._put, self._exists = obstore.put, exceptions.AlreadyExistsError

    def put(self, key: str, data: bytes) -> Answer:
        """Blocks until the answer or the deadline. Raises nothing."""
        try:
            # In one request: no part is left behind.
            self._put(self._store, key, data, mode="create", use_multipart=False)
        except Exception as error:
            return answer_of_error(str(error), exists=isinstance(error, self._exists))
        return Stored()


#: No larger segment begins after the daemon's end. A shutdown of a hundred pods has a tenth of it.
LAST_BYTES_MAX = 1024 * 1024
#: The process has a memory limit.
SEGMENT_BYTES_MAX = 64 * 1024 * 1024


class Putter(Protocol):
    def put(self, key: str, data: bytes) -> Answer: ...


class Daemon(Protocol):
    def log(self, level: int, text: str) -> None: ...

    def shipping(self, state: ShippingState) -> None: ...


class OneSegment:
    """A `Source` with one segment."""

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
    """Never sent: too large, or it cannot be redacted."""


class Cargo(NamedTuple):
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
    """Its own pseudonyms give each try the same bytes."""
    # Late: they import the whole core.
    from ebbtide.events.reader import History
    from ebbtide.events.segment import parse_header
    from ebbtide.replay.redact import Pseudonyms, redact

    try:
        history = History([OneSegment(segment)])
        pieces = list(redact(history, Pseudonyms()))
    except OSError:
        raise
    # Also MemoryError: one segment must not stop all later ones.
    except Exception as error:
        raise Unfit(str(error) or type(error).__name__) from error
    # A damaged segment's copy would end at the damage and look whole.
    if history.verdict.state not in ("intact", "torn"):
        raise Unfit(history.verdict.banner)
    if not pieces:
        raise Unfit("it holds no whole step")
    data = b"".join(piece.data for piece in pieces)
    return pieces[0].name, data, parse_header(data)[0].journal_id


def look(sources: Sequence[Source], shipped: Shipped) -> tuple[Shipped, list[Segment]]:
    """The cursor without removed segments, and the closed segments that it lacks, oldest first. Raises
    OSError.
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
    """``keep`` writes the cursor, and may raise OSError."""

    #: After each segment: after a kill none is offered again.
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
        #: Segments without an entry, oldest first; and segments given up, with the reason.
        self._open: list[Segment] = []
        self._passed_over: dict[str, str] = {}

    @property
    def left(self) -> str:
        return next(iter(self._passed_over.values()), "")

    def read(self) -> list[Segment]:
        """Only the oldest: each is saved before the next begins."""
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

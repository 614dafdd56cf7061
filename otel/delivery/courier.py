"""Brings spans to a back end, one request after another, until each is settled: taken, or on record as
rejected.

What stands between a span and its place is decided here once for all transports: how many go together, when
the same bytes are tried again, what is split, what is given up, and what is kept for another start.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

import trio

from otel.delivery.answers import Accepted, Again, Answer, Refused, Rejected
from otel.delivery.backoff import Backoff
from otel.delivery.wire import NS_PER_SECOND
from otel.span import Resource, Span

#: Spans of one request: the SDKs' own batch size. A request of them has some hundred kilobytes.
BATCH_SPANS_MAX = 512
#: gRPC servers take 4 MiB unless told otherwise.
BATCH_BYTES_MAX = 3 * 1024 * 1024
#: Tries in a row without an answer after which nothing more is expected of this process.
GIVE_UP_SECONDS = 600
#: A request that is out for longer says that its server is not well.
PATIENCE_SECONDS = 0.25


class Sender(Protocol):
    """A transport."""

    async def send(self, payload: bytes) -> Answer:
        """Raises nothing but cancellation."""

    async def aclose(self) -> None: ...


class Loss(NamedTuple):
    """Spans that a back end will never take, and its words."""

    spans: tuple[Span, ...]
    number: int
    reason: str


class GaveUp(Exception):
    """The back end refuses, or was not there for long. The spans are kept; the text says why."""

    def __init__(self, reason: str, *, refused: bool) -> None:
        super().__init__(reason)
        self.refused = refused


Encode = Callable[[Sequence[Span], Resource], bytes]


class Courier:
    """``settled`` is called with the spans of each request that is done with, ``lost`` before it where spans
    were rejected; ``trouble`` with each new reason why nothing arrives, and with an empty one when it does
    again.
    """

    def __init__(
        self,
        sender: Sender,
        encode: Encode,
        *,
        settled: Callable[[Sequence[Span]], Awaitable[None]],
        lost: Callable[[Loss], None],
        trouble: Callable[[str], None],
        backoff: Backoff | None = None,
        give_up_seconds: float = GIVE_UP_SECONDS,
    ) -> None:
        self._sender, self._encode = sender, encode
        self._settled, self._lost, self._trouble = settled, lost, trouble
        self._backoff = backoff or Backoff()
        self._give_up_seconds = give_up_seconds
        self._failing_since: float | None = None
        self._asked_at: float | None = None
        #: Whom a server has told once what it takes need not be told again.
        self._spans_max = BATCH_SPANS_MAX
        self.reason = ""

    @property
    def unwell(self) -> str:
        """Why nobody should wait for this back end now; empty where it answers."""
        if self.reason:
            return self.reason
        late = self._asked_at is not None and trio.current_time() - self._asked_at > PATIENCE_SECONDS
        return f"no answer within {PATIENCE_SECONDS:g} s" if late else ""

    async def deliver(self, spans: Sequence[Span], resource: Resource) -> None:
        """All of one resource, in order. Raises GaveUp with the rest unsettled."""
        todo = list(spans)
        while todo:
            count = min(len(todo), self._spans_max)
            answer = await self._ask(todo[:count], resource)
            if isinstance(answer, Rejected) and answer.too_large and count > 1:
                self._spans_max = max(1, count // 2)
                continue
            batch, todo = todo[:count], todo[count:]
            self._record(batch, answer)
            await self._settled(batch)

    def _record(self, batch: Sequence[Span], answer: Accepted | Rejected) -> None:
        if isinstance(answer, Rejected):
            self._lost(Loss(tuple(batch), len(batch), answer.reason))
        elif answer.rejected:
            reason = answer.reason or "partial success, without a reason"
            self._lost(Loss(tuple(batch), min(answer.rejected, len(batch)), reason))

    async def _ask(self, batch: Sequence[Span], resource: Resource) -> Accepted | Rejected:
        """The same bytes until there is an answer that settles them."""
        payload = self._encode(batch, resource)
        if len(payload) > BATCH_BYTES_MAX:
            return Rejected(f"a request of {len(payload)} bytes is too large", too_large=True)
        while True:
            self._asked_at = trio.current_time()
            try:
                answer = await self._sender.send(payload)
            finally:
                self._asked_at = None
            if isinstance(answer, Refused):
                self._say(answer.reason)
                raise GaveUp(answer.reason, refused=True)
            if not isinstance(answer, Again):
                self._recovered()
                return answer
            await self._pause(answer)

    async def _pause(self, answer: Again) -> None:
        now = trio.current_time()
        self._failing_since = now if self._failing_since is None else self._failing_since
        self._say(answer.reason)
        pause_seconds = self._backoff.next_ns(answer.after_ns) / NS_PER_SECOND
        if now + pause_seconds - self._failing_since > self._give_up_seconds:
            raise GaveUp(answer.reason, refused=False)
        await trio.sleep(pause_seconds)

    def _recovered(self) -> None:
        self._backoff.reset()
        self._failing_since = None
        self._say("")

    def _say(self, reason: str) -> None:
        if reason != self.reason:
            self.reason = reason
            self._trouble(reason)


def wall_ns() -> int:
    """When something was put on record: for people."""
    return time.time_ns()

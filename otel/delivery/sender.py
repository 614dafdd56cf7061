"""Sends spans to a back end, one request after another, until each is settled: taken, or on record as
rejected.

What stands between a span and its destination is decided here once for all exporters: how many go
together, when the same ones are tried again (OTLP specification, "exponential back-off with jitter"), what
is split, what is given up, and what is kept for another start. `exporters` has the exporters.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, Protocol

import trio

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.units import span_s
from ebbtide.otel.delivery.answers import Accepted, Again, Answer, Refused, Rejected
from ebbtide.otel.delivery.backoff import Backoff
from ebbtide.otel.span import Resource, Span

#: Spans of one request: the SDKs' own batch size. A request of them has some hundred kilobytes.
BATCH_SPANS_MAX = 512
#: Tries in a row without an answer after which nothing more is expected of this process.
GIVE_UP_SECONDS = 600
#: A request that is out for longer says that its server is not well.
PATIENCE_SECONDS = 0.25


class Sender(Protocol):
    """An exporter of the SDK, as `exporters` has them."""

    async def send(self, batch: Any) -> Answer:
        """What the exporter takes: the SDK's spans, log records, or metrics. Raises nothing but
        cancellation.
        """

    async def aclose(self) -> None: ...


class Loss(NamedTuple):
    """Spans that a back end will never take, and its reason."""

    spans: tuple[Span, ...]
    number: int
    reason: str


class GaveUp(Exception):
    """The back end refuses, or was not there for long. The spans are kept; the text says why."""

    def __init__(self, reason: str, *, refused: bool) -> None:
        super().__init__(reason)
        self.refused = refused


#: In the SDK's types.
BatchMaker = Callable[[Sequence[Span], Resource], Sequence[Any]]


class RetryingSender:
    """``settled`` is called with the spans of each request that is done with, ``lost`` before it where spans
    were rejected; ``trouble`` with each new reason why nothing arrives, and with an empty one when it does
    again.
    """

    def __init__(
        self,
        sender: Sender,
        readable: BatchMaker,
        *,
        settled: Callable[[Sequence[Span]], Awaitable[None]],
        lost: Callable[[Loss], None],
        trouble: Callable[[str], None],
        backoff: Backoff | None = None,
        give_up_seconds: float = GIVE_UP_SECONDS,
    ) -> None:
        self._sender, self._readable = sender, readable
        self._settled, self._lost, self._trouble = settled, lost, trouble
        self._backoff = backoff or Backoff()
        self._give_up_seconds = give_up_seconds
        self._failing_since: float | None = None
        self._asked_at: float | None = None
        #: What a server said once about the size that it takes holds for the next requests.
        self._spans_max = BATCH_SPANS_MAX
        self.reason = ""

    @property
    def unwell(self) -> str:
        """Why nobody should wait for this back end now; empty where it answers."""
        if self.reason:
            return self.reason
        late = self._asked_at is not None and trio.current_time() - self._asked_at > PATIENCE_SECONDS
        return f"no answer within {span_s(PATIENCE_SECONDS)}" if late else ""

    async def deliver(self, spans: Sequence[Span], resource: Resource) -> None:
        """All of one resource, in order. Raises GaveUp with the rest unsettled."""
        todo = list(spans)
        while todo:
            count = min(len(todo), self._spans_max)
            answer = await self._ask(todo[:count], resource)
            if isinstance(answer, Rejected) and answer.too_large and count > 1:
                # Halved until it fits. One span alone that is too large is rejected like any other.
                self._spans_max = max(1, count // 2)
                continue
            batch, todo = todo[:count], todo[count:]
            if isinstance(answer, Rejected):
                self._lost(Loss(tuple(batch), len(batch), answer.reason))
            elif answer.rejected:
                # Which ones a partial success does not say: the whole batch stands for them on record.
                reason = answer.reason or "partial success, without a reason"
                self._lost(Loss(tuple(batch), min(answer.rejected, len(batch)), reason))
            await self._settled(batch)

    async def _ask(self, batch: Sequence[Span], resource: Resource) -> Accepted | Rejected:
        """The same spans until there is an answer that settles them."""
        # The same ids and the same bytes each time, by which a back end knows spans that it has already.
        readable = self._readable(batch, resource)
        while True:
            self._asked_at = trio.current_time()
            try:
                answer = await self._sender.send(readable)
            finally:
                self._asked_at = None
            # Not tried again here: a wrong token is as wrong in a second, and servers lock out who insists.
            if isinstance(answer, Refused):
                self._set_reason(answer.reason)
                raise GaveUp(answer.reason, refused=True)
            if not isinstance(answer, Again):
                self._backoff.reset()
                self._failing_since = None
                self._set_reason("")
                return answer
            now = trio.current_time()
            self._failing_since = now if self._failing_since is None else self._failing_since
            self._set_reason(answer.reason)
            pause_seconds = self._backoff.next_ns(answer.after_ns) / NS_PER_SECOND
            # Given up before a pause that would only end in that: whoever waits for us is told at once.
            if now + pause_seconds - self._failing_since > self._give_up_seconds:
                raise GaveUp(answer.reason, refused=False)
            await trio.sleep(pause_seconds)

    def _set_reason(self, reason: str) -> None:
        if reason != self.reason:
            self.reason = reason
            self._trouble(reason)


def wall_ns() -> int:
    # When something was put on record, for people; no decision hangs on this clock.
    return time.time_ns()

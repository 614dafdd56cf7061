"""When the same bytes are sent again to a tracing back end or an object store."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

import trio

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.units import span_s

#: Without an answer for so long, the rest waits for the next process.
GIVE_UP_SECONDS = 600.0
#: A healthy server is faster with one request.
PATIENCE_SECONDS = 0.25
BACKOFF_FIRST_SECONDS, BACKOFF_SECONDS_MAX = 0.5, 30.0


class Accepted(NamedTuple):
    """``rejected``: so many spans must not be sent again."""

    rejected: int = 0
    reason: str = ""


class Again(NamedTuple):
    """Send later. ``after_ns``: the pause that the server asks for."""

    reason: str
    after_ns: int | None = None


class Rejected(NamedTuple):
    """Never send these bytes again. ``too_large``: smaller ones may succeed."""

    reason: str
    too_large: bool = False


class Refused(NamedTuple):
    """Keep the bytes for another start: credentials, the path or the server is wrong.

    ``cure``: what a person can do.
    """

    reason: str
    cure: str = ""


Answer = Accepted | Again | Rejected | Refused
T = TypeVar("T")


class GaveUp(Exception):
    """The back end refuses, or did not answer for long; the text is the reason."""


class Sending:
    """``trouble`` gets each new reason of a failure, and "" after the next success. ``draw``: from 0 to 1."""

    def __init__(
        self,
        trouble: Callable[[str], None],
        *,
        give_up_seconds: float = GIVE_UP_SECONDS,
        patience_seconds: float = PATIENCE_SECONDS,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._trouble, self._give_up_seconds, self.draw = trouble, give_up_seconds, draw
        self._patience_seconds = patience_seconds
        #: The machine may go down: no second try.
        self.leaving = False
        self.reason = ""
        self._asked_at: float | None = None
        self._failures, self._failing_since = 0, 0.0

    @property
    def unwell(self) -> str:
        """Why not to wait for the back end; empty: it answers."""
        late = self._asked_at is not None and trio.current_time() - self._asked_at > self._patience_seconds
        return self.reason or (f"no answer within {span_s(self._patience_seconds)}" if late else "")

    async def ask(self, send: Callable[[], Awaitable[T | Again | Refused]]) -> T:
        """Repeats ``send`` until an answer settles it. Raises GaveUp."""
        while True:
            self._asked_at = trio.current_time()
            try:
                answer = await send()
            finally:
                self._asked_at = None
            if not isinstance(answer, (Again, Refused)):
                self._failures = 0
                self._set_reason("")
                return answer
            # A wrong token stays wrong, and servers lock out a client that insists.
            if isinstance(answer, Refused):
                self._set_reason(": ".join(filter(None, answer)))
                raise GaveUp(self.reason)
            self._set_reason(answer.reason)
            now = trio.current_time()
            if not self._failures:
                self._failing_since = now
            # Jitter: a thousand nodes that lost their collector must not come back together.
            step = min(BACKOFF_FIRST_SECONDS * 2 ** min(self._failures, 16), BACKOFF_SECONDS_MAX)
            self._failures += 1
            pause = max(step * (1 + self.draw()) / 2, (answer.after_ns or 0) / NS_PER_SECOND)
            if self.leaving or now + pause - self._failing_since > self._give_up_seconds:
                raise GaveUp(answer.reason)
            await trio.sleep(pause)

    def _set_reason(self, reason: str) -> None:
        if reason != self.reason:
            self.reason = reason
            self._trouble(reason)


class Sink:
    """Sends a journal to one back end (`ebbtide.follower.follow`)."""

    #: How often the cursor is written: more syncs would delay the journal's.
    save_seconds = 1.0
    #: The process ends after so long without work, but not in a shutdown's short pauses.
    idle_seconds = 1.0

    def __init__(self, name: str, sending: Sending) -> None:
        self.name, self.sending = name, sending
        #: The journal may have more.
        self.news = trio.Event()
        self.leaving = False
        #: The last durable record, from the daemon.
        self.durable_seq = 0
        #: All up to this record is settled.
        self.settled_seq = 0

    def read(self) -> list[Any]:
        """New items. Blocks. Raises OSError."""
        raise NotImplementedError

    async def take(self, items: list[Any]) -> None:
        """Send them. Raises GaveUp."""
        raise NotImplementedError

    def save(self) -> None:
        """Write the cursor. Blocks. An OSError costs a repetition."""
        raise NotImplementedError

    async def close(self) -> None:
        return

    @property
    def expects_more(self) -> bool:
        """The process must stay."""
        return False

    @property
    def left(self) -> str:
        """Why records were passed over."""
        return ""

    def learn(self, durable_seq: int) -> None:
        self.durable_seq = max(self.durable_seq, durable_seq)
        self.news.set()

    def leave(self) -> None:
        """The daemon has ended. One more look finds the last records."""
        self.leaving = self.sending.leaving = True
        self.news.set()

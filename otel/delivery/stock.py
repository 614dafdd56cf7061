"""Spans on their way from the journal to the courier, and how far that has come: what the cursor will say.

Spans come in the order of the records that end them and leave in it, so one number tells what is settled.
Where reading has to begin again is another matter: a projection can begin only outside of a shutdown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from events.frames import RawRecord
from events.history import Batch
from events.segment import Header
from otel.projection import Projection
from otel.span import Resource, Span

#: Spans that wait: some megabytes. Then reading waits for the back end.
SPANS_MAX = 4096


class Projecting(Protocol):
    """A projection of the journal, fed with whole steps in order."""

    refused: dict[int, int]

    def feed(self, header: Header, records: Sequence[RawRecord], journal_id: bytes) -> Sequence[Any]: ...

    def resource(self, episode: int) -> Resource: ...


class Stock:
    """``after_seq``: spans that ended at or before this record are settled already and are not given
    again.
    """

    def __init__(self, after_seq: int = 0, project: Callable[[], Projecting] = Projection) -> None:
        self._projection = project()
        self._after_seq = after_seq
        self._spans: deque[Span] = deque()
        #: The last record that was read, the last of them outside of a shutdown, and the open shutdown's
        #: number.
        self.read_seq = 0
        self._outside_seq = 0
        self.episode = 0
        #: For each shutdown with spans here, and the open one: the last record before it that is outside of
        #: any.
        self._outside: dict[int, int] = {}
        self.made = 0

    def __len__(self) -> int:
        return len(self._spans)

    @property
    def full(self) -> bool:
        return len(self._spans) >= SPANS_MAX

    @property
    def refused(self) -> dict[int, int]:
        """Shutdowns of a projection version that this code does not have, by number."""
        return self._projection.refused

    def add(self, batch: Batch, journal_id: bytes) -> None:
        """Durable records, whole steps in order. Raises events.codec.BadPayload."""
        for raw in batch.records:
            if not raw.episode:
                self._outside_seq = raw.seq
            elif raw.episode != self.episode:
                self._outside.setdefault(raw.episode, self._outside_seq)
            self.episode = raw.episode
        self.read_seq = batch.records[-1].seq
        for span in self._projection.feed(batch.header, batch.records, journal_id):
            if span.seq > self._after_seq:
                self._spans.append(span)
                self.made += 1

    def next(self, count_max: int) -> tuple[Sequence[Span], Resource]:
        """The first spans, all of one shutdown; there must be one. They stay until `drop`."""
        first = self._spans[0]
        taken: list[Span] = []
        for span in self._spans:
            if span.episode != first.episode or len(taken) == count_max:
                break
            taken.append(span)
        return taken, self._projection.resource(first.episode)

    def drop(self, count: int) -> None:
        """The first so many are settled."""
        for _ in range(count):
            self._spans.popleft()
        needed = {self.episode, self._spans[0].episode if self._spans else self.episode}
        oldest = min(needed - {0}, default=0)
        for episode in [each for each in self._outside if each < oldest or not oldest]:
            del self._outside[episode]

    @property
    def settled_seq(self) -> int:
        """Every span that ended at or before this record has been given and dropped."""
        return self._spans[0].seq - 1 if self._spans else self.read_seq

    @property
    def from_seq(self) -> int:
        """Reading from this record on makes all the spans again that are not settled, the open ones too."""
        episode = self._spans[0].episode if self._spans else self.episode
        return self._outside.get(episode, self._outside_seq) if episode else self.read_seq + 1

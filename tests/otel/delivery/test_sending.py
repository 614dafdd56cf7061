"""Retries, their times and limits, and request sizes, with the mock clock."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
import trio

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.otel.delivery.otlp_sink import BATCH_SPANS_MAX, SpanSender
from ebbtide.otel.delivery.sending import (
    GIVE_UP_SECONDS,
    Accepted,
    Again,
    Answer,
    GaveUp,
    Rejected,
    Sending,
)
from ebbtide.otel.span import Resource, Span
from tests.otel.delivery.spans import RESOURCE, span


class Script:
    """A scripted transport: the last answer repeats; each takes some time."""

    def __init__(self, *answers: Answer, takes_seconds: float = 0.0, takes_spans: int = 10_000) -> None:
        self.answers, self.takes_spans = list(answers), takes_spans
        self.takes_seconds = takes_seconds
        self.sent: list[tuple[float, list[Span]]] = []
        self.settled: list[Span] = []
        self.losses: list[int] = []
        self.troubles: list[str] = []

    async def send(self, batch: Sequence[Span], resource: Resource) -> Answer:
        self.sent.append((trio.current_time(), list(batch)))
        await trio.sleep(self.takes_seconds)
        if len(batch) > self.takes_spans:
            return Rejected("too large", too_large=True)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    async def close(self) -> None:
        """Nothing to close."""

    def lose(self, number: int, spans: Sequence[Span], reason: str) -> None:
        self.losses.append(number)

    def courier(self) -> SpanSender:
        sending = Sending(self.troubles.append, draw=lambda: 1.0)
        return SpanSender(self, sending, self.settled.extend, self.lose)

    @property
    def pauses(self) -> list[float]:
        times = [at for at, _ in self.sent]
        return [round(later - at, 6) for at, later in pairwise(times)]


def spans(count: int) -> list[Span]:
    return [span(number) for number in range(1, count + 1)]


async def test_the_pauses_double_up_to_a_limit(autojump_clock: trio.testing.MockClock) -> None:
    """The same bytes each time; a longer Retry-After wins."""
    busy = [Again("busy")] * 8
    script = Script(*busy, Again("busy", 70 * NS_PER_SECOND), Accepted())
    await script.courier().deliver(spans(3), RESOURCE)
    assert script.pauses == [0.5, 1, 2, 4, 8, 16, 30, 30, 70]
    assert all(batch == spans(3) for _, batch in script.sent)
    assert script.troubles == ["busy", ""]


async def test_after_a_while_it_gives_up(autojump_clock: trio.testing.MockClock) -> None:
    """The spans are kept, with the last failure as reason."""
    script = Script(Again("down"))
    began = trio.current_time()
    with pytest.raises(GaveUp, match="down"):
        await script.courier().deliver(spans(1), RESOURCE)
    assert GIVE_UP_SECONDS - 30 <= trio.current_time() - began <= GIVE_UP_SECONDS
    assert script.settled == []


async def test_requests_are_cut_by_number_and_by_size(autojump_clock: trio.testing.MockClock) -> None:
    """At most 512 spans and the exporter's size; an oversized one is not retried."""
    many = Script(Accepted())
    await many.courier().deliver(spans(2 * BATCH_SPANS_MAX + 1), RESOURCE)
    assert [len(batch) for _, batch in many.sent] == [BATCH_SPANS_MAX, BATCH_SPANS_MAX, 1]
    large = Script(Accepted(), takes_spans=30)
    await large.courier().deliver(spans(100), RESOURCE)
    assert [len(batch) for _, batch in large.sent] == [100, 50, 25, 25, 25, 25]
    assert large.settled == spans(100)


async def test_a_span_that_is_too_large_is_on_record(autojump_clock: trio.testing.MockClock) -> None:
    """It is recorded by itself; the next spans are tried."""
    script = Script(Accepted(), takes_spans=0)
    await script.courier().deliver(spans(2), RESOURCE)
    assert script.losses == [1, 1]
    assert len(script.settled) == 2

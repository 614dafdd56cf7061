"""Laws of log records over journals that the core itself wrote. A failure names its seed."""

from __future__ import annotations

import pytest

from ebbtide.otel.logs import Logs
from tests.otel.simulated import FOLLOWED, PARTS, journal, journal_id, part_of, records_of, spans_of
from tests.otel.worlds import steps

#: A pod arrives too late; the power goes while later waves still wait.
REJECTED, CUT_EARLY = 5, 9


@pytest.fixture(params=FOLLOWED)
def followed(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def test_no_record_of_such_a_step_is_lost(followed: int) -> None:
    """The last words of the first shutdown are told with its trace's id, in the order of the journal."""
    first, second = (bytes.fromhex(each.trace_id) for each in journal(followed)[1])
    records = records_of(followed)
    (closed,) = (
        each for each in records if each.event_name == "ebbtide.EpisodeClosed" and each.trace_id == first
    )
    assert [each.seq for each in records] == sorted(each.seq for each in records)
    (began,) = (each for each in records if each.seq == closed.seq + 1)
    assert (began.trace_id, began.event_name) == (second, "ebbtide.ShutdownBegan")


def test_a_step_at_a_time_gives_the_same_records(followed: int) -> None:
    """Live, or all at once after the reboot."""
    fine, logs = steps(journal(followed)[0]), Logs()
    records = [record for step in fine for record in logs.feed(*step, journal_id(followed))]
    assert records == records_of(followed)


def _laws_of_records(seed: int) -> None:
    """Every log record stands beside a span that the projection makes, in its own shutdown's trace."""
    made = {(span.trace_id, span.span_id) for span in spans_of(seed)}
    shutdowns = {each.first_seq: each for each in journal(seed)[1]}
    for record in records_of(seed):
        shutdown = shutdowns[record.episode]
        assert record.trace_id.hex() == shutdown.trace_id, (seed, record)
        there = (record.trace_id, record.span_id) in made
        assert there or shutdown.outcome == "running", (seed, record)


@pytest.mark.parametrize("seed", [*FOLLOWED, REJECTED, CUT_EARLY])
def test_a_record_stands_beside_a_span_of_its_own_shutdown(seed: int) -> None:
    """Also where a pod was turned away, or went with the machine before its stop had begun."""
    _laws_of_records(seed)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_every_record_stands_beside_a_span_that_is_made(part: int) -> None:
    """Over the same runs."""
    for seed in part_of(part):
        _laws_of_records(seed)

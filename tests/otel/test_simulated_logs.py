"""Laws of log records over journals that the core itself wrote. A failure names its seed."""

from __future__ import annotations

import pytest

from otel.logs import Logs
from tests.otel.simulated import FOLLOWED, journal, journal_id, records_of
from tests.otel.worlds import steps


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

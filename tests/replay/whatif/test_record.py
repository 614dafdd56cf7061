"""Records that are unusual: lost outcomes, edges' own timers, missed signals, shutdowns upon shutdowns."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from ebbtide.events import facts as f
from ebbtide.events.decisions import SendSignal, ShutdownBegan
from ebbtide.events.reader import Batch
from ebbtide.replay.whatif.record import (
    Changes,
    Diverged,
    RecordedEvent,
    RecordedShutdown,
    attribute_facts,
    facts_under,
    read_recorded_shutdown,
)
from ebbtide.replay.whatif.run import run_again, what_if
from tests.replay.whatif.bed import SECOND, behaves, pod, record, settings
from tests.replay.whatif.theatre import Theatre

GRANT_NS = 60 * SECOND


def edited(
    shutdown: RecordedShutdown, edit: Callable[[RecordedEvent], RecordedEvent | None]
) -> RecordedShutdown:
    """The record as it would be, had something else been told."""
    events = (edit(each) for each in shutdown.events)
    return shutdown._replace(events=tuple(each for each in events if each is not None))


# --- hooks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("met, how", [(True, "killed"), (False, "stopped")])
def test_whom_nobody_saw_end_sigkill_had_ended_where_it_had_met_him(met: bool, how: str) -> None:
    """The outcome of SIGKILL stands before its end, or is not there."""
    recorded = record([behaves(pod("web"), None)], settings(6, 5)).shutdown

    def edit(played: RecordedEvent) -> RecordedEvent | None:
        event = played.event
        if isinstance(event, f.ContainerExited):
            return played._replace(event=replace(event, exit_code=None, signal="", gone=True))
        outcome = isinstance(event, f.OrderEnded) and "/kill:" in event.key
        return played if met or not outcome else None

    unseen = edited(recorded, edit)
    found = attribute_facts(unseen, facts_under(unseen, Changes(), None))
    assert [each.how for each in found.containers.values()] == [how]


# --- how it began ------------------------------------------------------------------------------


def played(*facts: tuple[object, int]) -> tuple[Theatre, int]:
    """A theatre after these facts, and the number of its last shutdown."""
    theatre = Theatre((pod("web"),), settings(), GRANT_NS)
    first = 0
    for fact, after_ms in facts:
        for record_ in theatre.feed(fact, after_ms):  # type: ignore[arg-type]
            if isinstance(record_.event, ShutdownBegan):
                first = record_.episode
    return theatre, first


def test_what_logind_s_timer_did_comes_with_another_grant() -> None:
    """Cut short at the end of its grant, the shutdown has until the end of the new one."""
    theatre = Theatre((pod("web"),), settings(20, 10), 15 * SECOND)
    theatre.mute = (SendSignal,)
    signal = f.PrepareForShutdown(active=True, kind="poweroff", grant_ns=15 * SECOND, lock_held=True)
    first = theatre.feed(signal)[0].seq
    signal_ns = theatre.mono_ns
    theatre.until(signal_ns + 3 * SECOND)
    theatre.mono_ns = signal_ns + 15 * SECOND
    theatre.feed(f.StopRequested(system_stopping=True, stop_time_ns=SECOND), 500)
    recorded = read_recorded_shutdown(theatre.history(), first)
    stop = next(each for each in recorded.facts if isinstance(each.event, f.StopRequested))
    found = run_again(recorded, Changes(grant_ns=40 * SECOND))
    told = [each for each in found.grim.records if isinstance(each.event, f.StopRequested)]
    assert run_again(recorded, Changes()).is_same
    assert stop.mono_ns - signal_ns > 15 * SECOND
    assert [each.mono_ns - stop.mono_ns for each in told] in ([], [25 * SECOND])


# --- what cannot be asked ----------------------------------------------------------------------


def test_a_record_that_does_not_replay_says_nothing() -> None:
    """An edited fact: the decisions that follow are not this version's."""
    theatre, first = played((f.PreparingRead(preparing=True), 1))
    history = theatre.history()
    forged = [
        Batch(
            batch.header,
            [raw._replace(mono_ns=raw.mono_ns + 1) if raw.seq == first else raw for raw in batch.records],
        )
        for batch in history.batches()
    ]
    history.batches = lambda: iter(forged)  # type: ignore[method-assign]
    with pytest.raises(Diverged, match="differs"):
        what_if(history, first, Changes())

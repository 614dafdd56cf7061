"""Records that are unusual: lost outcomes, edges' own timers, missed signals, shutdowns upon shutdowns."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from ebbtide.events import facts as f
from ebbtide.events.decisions import CancelOrder, RunHook, SendSignal, ShutdownBegan
from ebbtide.events.model import Hook
from ebbtide.events.reader import Batch
from ebbtide.replay.sim.scenario import Faults, HookPlan
from ebbtide.replay.whatif.record import (
    Changes,
    Diverged,
    NoShutdownAtRecord,
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


def hooked(takes_ns: int | None, faults: Faults = Faults()) -> RecordedShutdown:  # noqa: B008
    hook = HookPlan(takes_ns)
    return record([behaves(pod("web", hook=Hook(kind="exec")), 1, hook)], settings(6, 5), faults).shutdown


def ends(recorded: RecordedShutdown, **changes: object) -> list[int]:
    """When the pod ended: hopeful, grim."""
    found = run_again(recorded, Changes(**changes))  # type: ignore[arg-type]
    runs = (found.hopeful, found.grim)
    return [run.outline.pods["uid-web"].ended_ns or 0 for run in runs]


# --- hooks -------------------------------------------------------------------------------------


def by_its_edge(recorded: RecordedShutdown) -> RecordedShutdown:
    """The edge's own timer ended the hook a millisecond before the actor would have."""
    began = next(each for each in recorded.events if isinstance(each.event, RunHook))

    def edit(played: RecordedEvent) -> RecordedEvent | None:
        event = played.event
        if isinstance(event, CancelOrder):
            return None
        if isinstance(event, f.OrderEnded) and "/hook:" in event.key:
            return played._replace(mono_ns=began.mono_ns + 6 * SECOND - 1_000_000)
        return played

    return edited(recorded, edit)


def test_an_edge_that_ended_a_hook_does_so_again() -> None:
    """It needed more than its time; with more time it ends just after that, or as much too late again."""
    recorded = by_its_edge(hooked(None))
    same = ends(recorded, settings=settings(5, 5))
    more = ends(recorded, settings=settings(20, 5))
    assert same[0] == same[1]
    assert 6 * SECOND <= same[0] < 7 * SECOND
    assert 6 * SECOND < more[0] < 8 * SECOND
    assert 20 * SECOND < more[1] < 22 * SECOND


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


def test_a_hook_that_a_restart_lost_is_lost_again() -> None:
    """At the same restart; without it the hook needed more than until the last that was heard."""
    faults = Faults(crash_after_ns=2 * SECOND, restart_takes_ns=3 * SECOND)
    recorded = hooked(3 * SECOND, faults)
    lost = next(
        each
        for each in recorded.facts
        if isinstance(each.event, f.OrderEnded) and each.event.result == "unknown"
    )
    assert run_again(recorded, Changes()).is_same
    again = ends(recorded, settings=settings(40, 5))
    assert again[0] == again[1]
    without = run_again(recorded, Changes(drop=(start_seq(recorded),)))
    assert without.support("uid-web").level == "bound"
    assert lost.mono_ns > recorded.signal_ns


def start_seq(recorded: RecordedShutdown) -> int:
    return next(each.seq for each in recorded.facts if type(each.event).__name__ == "DaemonStarted")


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


def test_a_missed_signal_takes_the_grant_before_it() -> None:
    """It was seen only in a property, which does not tell the grant: --grant counts all the same."""
    theatre, first = played((f.PreparingRead(preparing=True), 1))
    found = what_if(theatre.history(), first, Changes(grant_ns=12 * SECOND))
    assert found.then.grant_ns == GRANT_NS
    assert found.grim.outline.grant_ns == 12 * SECOND
    assert what_if(theatre.history(), first, Changes()).is_same


def test_in_overtime_logind_has_no_say() -> None:
    """The service manager stops the unit: its stop time is what there is, whatever logind grants."""
    theatre, first = played((f.StopRequested(system_stopping=True, stop_time_ns=20 * SECOND), 1))
    found = what_if(theatre.history(), first, Changes(grant_ns=5 * SECOND))
    assert found.grim.outline.grant_ns == 20 * SECOND
    assert found.grim.outline.outcome == "complete"


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


def test_a_shutdown_that_is_not_there() -> None:
    """No shutdown begins at that record."""
    theatre, _ = played((f.PreparingRead(preparing=True), 1))
    with pytest.raises(NoShutdownAtRecord, match="no shutdown begins at record 99999"):
        what_if(theatre.history(), 99_999, Changes())

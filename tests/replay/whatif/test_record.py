"""Records that are unusual: lost outcomes, edges' own timers, missed signals, shutdowns upon shutdowns."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ebbtide.events import facts as f
from ebbtide.events.decisions import ShutdownBegan
from ebbtide.events.reader import Batch
from ebbtide.replay.whatif.record import (
    Changes,
    Diverged,
    RecordedEvent,
    RecordedShutdown,
)
from ebbtide.replay.whatif.whatif_run import what_if
from tests.replay.whatif.bed import SECOND, pod, settings
from tests.replay.whatif.theatre import Theatre

GRANT_NS = 60 * SECOND


def edited(
    shutdown: RecordedShutdown, edit: Callable[[RecordedEvent], RecordedEvent | None]
) -> RecordedShutdown:
    """The record as it would be, had something else been told."""
    events = (edit(each) for each in shutdown.events)
    return shutdown._replace(events=tuple(each for each in events if each is not None))


# --- hooks -------------------------------------------------------------------------------------


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

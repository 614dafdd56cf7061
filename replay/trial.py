"""Advice tried on the nights that it comes from: what-if with their settings and the new periods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from ebbtide.events.codec import BadPayload, UnknownType
from ebbtide.events.reader import History
from ebbtide.events.record.shutdown_record import ShutdownRecord
from ebbtide.events.values import Period
from ebbtide.replay.advise import Trial
from ebbtide.replay.whatif.record import (
    Changes,
    Diverged,
    NoShutdownAtRecord,
    WrongChange,
    read_recorded_shutdown,
)
from ebbtide.replay.whatif.whatif_run import run_again

#: A shutdown, and how its journal is opened.
Night = tuple[ShutdownRecord, Callable[[], History]]


def trial_of(nights: Iterable[Night], periods: tuple[Period, ...]) -> Trial:
    """Shutdowns without a begin on record are no evidence, and are not tried."""
    changes, not_asked = Counter[str](), 0
    for shutdown, history in nights:
        if shutdown.headless:
            continue
        try:
            recorded = read_recorded_shutdown(history(), shutdown.first_seq)
            settings = replace(recorded.settings, by_pod_priority=periods)
            found = run_again(recorded, Changes(settings=settings))
        except (BadPayload, Diverged, NoShutdownAtRecord, UnknownType, WrongChange):
            not_asked += 1
            continue
        changes.update(side.change for side in found.pods)
    return Trial(
        saved=changes["saved"],
        perhaps_saved=changes["perhaps-saved"],
        lost=changes["lost"],
        perhaps_lost=changes["perhaps-lost"],
        not_asked=not_asked,
    )

"""Waves: in order, without dawdling, and nobody is forgotten."""

from __future__ import annotations

from itertools import pairwise

from events.base import NS_PER_SECOND
from events.decisions import (
    PodStopBegan,
    WaveStarted,
)
from events.record import Record
from replay.virtual.invariants.lock import had_time, orderly_releases, still_planned
from replay.virtual.invariants.words import Breaches, name, seconds
from replay.virtual.pods import Box
from replay.virtual.trail import Seen
from replay.virtual.view import BootView

#: Between a daemon's start and its having caught up with what it missed.
CATCH_UP_NS = NS_PER_SECOND


def waves_keep_their_order(view: BootView) -> Breaches:
    """No pod is touched before the waves below its own have ended or had their time."""
    for episode, records in view.episodes().items():
        waves = {each.event.wave: each for each in records if isinstance(each.event, WaveStarted)}
        members = {each.event.uid: each.event for each in records if isinstance(each.event, PodStopBegan)}
        lasting = _last_exits(view, members)
        for seen in view.of("hook", "signal"):
            began = members.get(seen.uid)
            if view.by_kubelet(seen.uid) == "observe":
                continue
            if began is None or began.wave not in waves or seen.at_ns < view.at_ns(waves[began.wave]):
                continue
            for lower, record in waves.items():
                if lower < began.wave and lower in lasting:
                    yield from _waits_for(view, episode, seen, record, *lasting[lower])


def _last_exits(view: BootView, members: dict[str, PodStopBegan]) -> dict[int, tuple[int, Box]]:
    """Who is the last to go in each wave, and when."""
    lasting: dict[int, tuple[int, Box]] = {}
    for uid, began in members.items():
        for box in view.boxes(uid):
            exit_ns = view.exit_ns(box)
            if began.wave not in lasting or exit_ns > lasting[began.wave][0]:
                lasting[began.wave] = (exit_ns, box)
    return lasting


def _waits_for(view: BootView, episode: int, seen: Seen, lower: Record, exit_ns: int, last: Box) -> Breaches:
    assert isinstance(lower.event, WaveStarted)
    over_ns = view.mono_at_ns(lower.event.deadline_ns)
    if seen.at_ns < over_ns and exit_ns > seen.at_ns:
        yield (
            f"episode {episode}: {seen.what} for {seen.uid} at {seconds(seen.at_ns)}, while {name(last)} "
            f"of wave {lower.event.wave} runs and has until {seconds(over_ns)}"
        )


def waves_do_not_dawdle(view: BootView) -> Breaches:
    """A wave begins as soon as the one before it has ended: time that nobody needs is not waited out."""
    for episode, records in view.episodes().items():
        began = [record for record in records if isinstance(record.event, WaveStarted)]
        members = {each.event.uid: each.event for each in records if isinstance(each.event, PodStopBegan)}
        lasting = _last_exits(view, members)
        for before, after in pairwise(began):
            gone_ns, _ = lasting.get(_wave_of(before), (0, None))
            gone_ns = max(gone_ns, _unmounted_ns(view, before))
            over_ns = max(view.at_ns(before), gone_ns) + view.slack_ns
            if view.at_ns(after) > over_ns and view.served_through(over_ns - view.slack_ns, over_ns):
                yield (
                    f"episode {episode}: wave {_wave_of(after)} began at {seconds(view.at_ns(after))}; "
                    f"those before it were gone by {seconds(over_ns - view.slack_ns)}"
                )


def _unmounted_ns(view: BootView, wave: Record) -> int:
    """When the last volume that it waits for was unmounted; its deadline, if one never was."""
    assert isinstance(wave.event, WaveStarted)
    found = {seen.uid: seen.at_ns for seen in view.of("unmounted")}
    over_ns = view.mono_at_ns(wave.event.deadline_ns)
    return max(
        [min(over_ns, found.get(pod.uid, over_ns)) for pod in wave.event.pods if pod.volumes], default=0
    )


def _wave_of(record: Record) -> int:
    assert isinstance(record.event, WaveStarted)
    return record.event.wave


def every_pod_is_signalled(view: BootView) -> Breaches:
    """Nobody is forgotten: what still runs when the lock goes has been told to stop."""
    for release in orderly_releases(view):
        for box in still_planned(view, release):
            told = any(seen.at_ns <= release.at_ns for seen in view.of_box(box, "signal"))
            told = told or view.by_kubelet(box.uid) == "observe"
            if not told and not _on_its_way(view, box, release) and had_time(view, release):
                yield f"{name(box)} ran at the release at {seconds(release.at_ns)}, never told to stop"


def _on_its_way(view: BootView, box: Box, release: Seen) -> bool:
    """Whether its stop was ordered of a runtime that takes so long for it."""
    return any(at_ns + view.boot.slow_ns > release.at_ns for at_ns, _ in view.stop_begins(box.uid))

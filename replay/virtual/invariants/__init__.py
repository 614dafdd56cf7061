"""What must hold in every simulation, whatever happened in it: checked from outside, after the run.

Each invariant is a function that yields one sentence for each breach; the tables below are the only list of
them. Where the outside itself makes a promise impossible (no daemon was there, no disk took a write, the
signal was never heard) the function says so; nothing else excuses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from events.decisions import ActorFailed
from events.facts import EffectPanicked
from replay.virtual.invariants import journal, kubernetes, lock, stops, waves
from replay.virtual.invariants.words import Breaches
from replay.virtual.view import BootView


class Breach(NamedTuple):
    """An invariant that did not hold."""

    invariant: str
    sentence: str


def no_failed_actor(view: BootView) -> Breaches:
    """No actor raises and no effect panics."""
    for record, event in [*view.events(ActorFailed), *view.events(EffectPanicked)]:
        yield f"record {record.seq}: {event}"


OF_RUNS: tuple[Callable[[Sequence[BootView]], Breaches], ...] = (
    journal.each_order_ends_once,
    journal.the_next_boot_tells,
    journal.a_release_is_remembered,
)

OF_BOOTS: tuple[Callable[[BootView], Breaches], ...] = (
    no_failed_actor,
    stops.no_hook_twice,
    stops.no_stop_twice,
    stops.nobody_is_touched_without_a_shutdown,
    stops.grace_is_kept,
    stops.nobody_gets_more_than_the_grace,
    waves.waves_keep_their_order,
    waves.waves_do_not_dawdle,
    waves.every_pod_is_signalled,
    lock.the_lock_waits_for_the_pods,
    lock.the_lock_goes_at_once,
    lock.the_grant_is_enough,
    lock.a_node_that_stays_is_armed,
    stops.a_cancel_spares_who_has_not_begun,
    stops.late_pods_are_rejected,
    journal.fates_are_true,
    journal.each_pod_ends_once,
    *kubernetes.OF_NODES,
)


def breaches(views: Sequence[BootView]) -> Iterator[Breach]:
    """Every breach of every invariant."""
    for of_run in OF_RUNS:
        yield from (Breach(of_run.__name__, each) for each in of_run(views))
    for view in views:
        for of_boot in OF_BOOTS:
            yield from (Breach(of_boot.__name__, f"boot {view.number}: {each}") for each in of_boot(view))

"""What must hold in every world, whatever happened in it: checked from outside, after the run.

Each invariant is a function that yields one sentence for each breach; the tables below are the only list of
them. Where the outside itself makes a promise impossible (no daemon was there, no disk took a write, the
signal was never heard) the function says so; nothing else excuses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tests.world.invariants import journal, processes, stops, waves
from tests.world.invariants.words import Breaches
from tests.world.view import BootView
from tests.world.world import World


class Breach(NamedTuple):
    """An invariant that did not hold."""

    invariant: str
    sentence: str


OF_WORLDS: tuple[Callable[[World], Breaches], ...] = (
    processes.no_exceptions,
    processes.barriers_hold,
    processes.what_is_shown_is_so,
    journal.the_journal_is_sound,
    journal.the_journal_replays,
    journal.each_order_ends_once,
    journal.the_next_boot_tells,
    journal.a_release_is_remembered,
)

OF_BOOTS: tuple[Callable[[BootView], Breaches], ...] = (
    processes.no_failed_actor,
    stops.no_hook_twice,
    stops.no_stop_twice,
    stops.nobody_is_touched_without_a_shutdown,
    stops.grace_is_kept,
    stops.nobody_gets_more_than_the_grace,
    waves.waves_keep_their_order,
    waves.waves_do_not_dawdle,
    waves.every_pod_is_signalled,
    waves.the_lock_waits_for_the_pods,
    waves.the_lock_goes_at_once,
    waves.the_grant_is_enough,
    waves.a_node_that_stays_is_armed,
    stops.a_cancel_spares_who_has_not_begun,
    stops.late_pods_are_rejected,
    journal.fates_are_true,
    journal.each_pod_ends_once,
)


def check(world: World) -> list[Breach]:
    """Every breach of every invariant. A world whose daemon fell over is not looked at further."""
    fallen = [
        Breach(processes.no_exceptions.__name__, sentence) for sentence in processes.no_exceptions(world)
    ]
    if fallen:
        return fallen
    views = [BootView(world, index) for index in range(len(world.boots))]
    found = [Breach(rule.__name__, each) for rule in OF_WORLDS for each in rule(world)]
    for view in views:
        found += [
            Breach(rule.__name__, f"boot {view.number}: {each}") for rule in OF_BOOTS for each in rule(view)
        ]
    return found

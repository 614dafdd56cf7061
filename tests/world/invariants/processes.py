"""The daemon itself: it does not fall over, and it does not act before its orders are on record."""

from __future__ import annotations

from events.decisions import ActorFailed
from events.facts import EffectPanicked
from tests.world.invariants.words import Breaches
from tests.world.trail import MS
from tests.world.view import BootView
from tests.world.world import World


def no_exceptions(world: World) -> Breaches:
    """No exception of ours ends the daemon, an actor or an effect, and nobody runs in circles."""
    if world.ran_away:
        yield f"still busy after {world.steps} steps"
    for life in world.lives:
        if life.failure:
            yield f"daemon {life.number} fell over:\n{life.failure}"
        if life.divergence is not None:
            yield f"daemon {life.number} found its journal decided otherwise: {life.divergence}"


def no_failed_actor(view: BootView) -> Breaches:
    """No actor raises and no effect panics."""
    for record, event in [*view.events(ActorFailed), *view.events(EffectPanicked)]:
        yield f"record {record.seq}: {event}"


def what_is_shown_is_so(world: World) -> Breaches:
    """After each step the projection that the verbs go by says what the actors' states say."""
    for life in world.lives:
        for each in life.untrue:
            yield f"daemon {life.number}: {each}"


def barriers_hold(world: World) -> Breaches:
    """No effect begins before its order is written, or synced, or has waited for 20 ms (rule 5)."""
    for life in world.lives:
        for key, waited_ns in life.impatient:
            yield f"daemon {life.number}: {key} began after {waited_ns / MS:g} ms without its barrier"

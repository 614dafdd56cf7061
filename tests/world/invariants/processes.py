"""What only the real daemon can break: it falls over, acts before its orders are on record, spoils a disk."""

from __future__ import annotations

from ebbtide.events.base import NS_PER_MS as MS
from ebbtide.events.reader import History
from ebbtide.replay.replayer import Replayer
from ebbtide.replay.sim.world_view import BreachSentences
from tests.world.world import World


def no_exceptions(world: World) -> BreachSentences:
    """No exception of ours ends the daemon, an actor or an effect, and nobody runs in circles."""
    if world.ran_away:
        yield f"still busy after {world.steps} steps"
    for life in world.lives:
        if life.failure:
            yield f"daemon {life.number} fell over:\n{life.failure}"
        if life.divergence is not None:
            yield f"daemon {life.number} found its journal decided otherwise: {life.divergence}"


def what_is_shown_is_so(world: World) -> BreachSentences:
    """After each step the projection that the verbs go by says what the actors' states say."""
    for life in world.lives:
        for each in life.untrue:
            yield f"daemon {life.number}: {each}"


def barriers_hold(world: World) -> BreachSentences:
    """No effect begins before its order is written, or synced, or has waited for 20 ms (rule 5)."""
    for life in world.lives:
        for key, waited_ns in life.impatient:
            yield f"daemon {life.number}: {key} began after {waited_ns / MS:g} ms without its barrier"


def the_journal_is_sound(world: World) -> BreachSentences:
    """No crash and no power cut leaves more than a tear; what is there was decided by these facts."""
    for number, booted in enumerate(world.boots, 1):
        if booted.state not in ("intact", "torn"):
            yield f"after boot {number} the journal is {booted.state}: {booted.banner}"
    for life in world.lives:
        if life.verdict not in ("", "intact", "torn"):
            yield f"daemon {life.number} found the journal {life.verdict}"


def the_journal_replays(world: World) -> BreachSentences:
    """Re-execution gives the same decisions, byte for byte, from the first record to the last."""
    replayer = Replayer()
    replayer.feed(History([place.source for place in world.disks.places]).raw())
    divergence = replayer.finish()
    if divergence is not None:
        yield f"record {divergence.seq}: {divergence.field}: {divergence.expected} / {divergence.produced}"

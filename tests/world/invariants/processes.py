"""Invariants of the real daemon: no exceptions, effects after records, sound disks."""

from __future__ import annotations

from ebbtide.events.base import NS_PER_MS as MS
from ebbtide.events.reader import History
from ebbtide.replay.replayer import Replayer
from ebbtide.replay.sim.invariants import BreachSentences
from tests.world.world import World


def no_exceptions(world: World) -> BreachSentences:
    """No exception of ours ends the daemon, an actor or an effect, and no loop spins."""
    if world.ran_away:
        yield f"still busy after {world.steps} steps"
    for life in world.lives:
        if life.failure:
            yield f"daemon {life.number} fell over:\n{life.failure}"
        if life.divergence is not None:
            yield f"daemon {life.number} found its journal decided otherwise: {life.divergence}"


def what_is_shown_is_so(world: World) -> BreachSentences:
    """After each step the verbs' projection equals the actors' states."""
    for life in world.lives:
        for each in life.untrue:
            yield f"daemon {life.number}: {each}"


def barriers_hold(world: World) -> BreachSentences:
    """An effect starts after its order is written or synced, or after 20 ms (rule 5)."""
    for life in world.lives:
        for key, waited_ns in life.impatient:
            yield f"daemon {life.number}: {key} began after {waited_ns / MS:g} ms without its barrier"


def the_journal_is_sound(world: World) -> BreachSentences:
    """A crash or power cut leaves at most a tear; the rest follows from these facts."""
    for number, booted in enumerate(world.boots, 1):
        if booted.state not in ("intact", "torn"):
            yield f"after boot {number} the journal is {booted.state}: {booted.banner}"
    for life in world.lives:
        if life.verdict not in ("", "intact", "torn"):
            yield f"daemon {life.number} found the journal {life.verdict}"


def the_journal_replays(world: World) -> BreachSentences:
    replayer = Replayer()
    replayer.feed(History([place.source for place in world.disks.places]).raw())
    divergence = replayer.finish()
    if divergence is not None:
        yield f"record {divergence.seq}: {divergence.field}: {divergence.expected} / {divergence.produced}"

"""The invariants of every world: the simulation's, and the real daemon's own: no exceptions, effects after
records, sound disks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ebbtide.events.base import NS_PER_MS as MS
from ebbtide.events.base import Record
from ebbtide.events.reader import History
from ebbtide.replay.replayer import Replayer
from ebbtide.replay.sim.invariants import Boot, BootView, Breach, BreachSentences, breaches
from tests.world.daemon import Life
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


OF_WORLDS: tuple[Callable[[World], BreachSentences], ...] = (
    no_exceptions,
    barriers_hold,
    what_is_shown_is_so,
    the_journal_is_sound,
    the_journal_replays,
)


def check(world: World) -> list[Breach]:
    """All breaches. After a daemon's crash nothing else is checked."""
    fallen = [Breach(no_exceptions.__name__, sentence) for sentence in no_exceptions(world)]
    if fallen:
        return fallen
    return [
        *(Breach(rule.__name__, each) for rule in OF_WORLDS for each in rule(world)),
        *breaches(views(world)),
    ]


def views(world: World) -> list[BootView]:
    """Every boot of a world that is over."""
    return [BootView(_boot(world, index)) for index in range(len(world.boots))]


def _boot(world: World, index: int) -> Boot:
    booted = world.boots[index]
    node = booted.node
    return Boot(
        number=index + 1,
        seen=[seen for seen in world.log.seen if seen.boot == index + 1],
        records=list(_remembered(booted.lives)),
        journal=booted.records,
        boxes=list(node.pods.boxes.values()),
        offset_ns=node.clock.world_ns(0),
        settings=(world.scenario.settings, world.scenario.other_settings, world.settings),
        preparing=node.logind.preparing,
        shown_ready=node.api.shown_ready,
        api_answers=node.faults.api == "works" and node.api.reachable,
        hidden={box.uid: None for box in node.pods.boxes.values() if node.runtime.hides(box)},
    )


def _remembered(lives: list[Life]) -> Iterator[Record]:
    """Each daemon's decisions, as far as the next one knew them; the last one's all.

    Not from the journal: retention and the boot's end may have removed parts.
    """
    readers = [life for life in lives if life.goes_on_after is not None]
    for at, life in enumerate(readers):
        known = readers[at + 1].goes_on_after if at + 1 < len(readers) else None
        yield from (record for record in life.records if not known or record.seq <= known)

"""The journal: sound, replayable, one outcome an order, true about the pods, and clear to the next boot."""

from __future__ import annotations

import msgspec

from events.base import NS_PER_SECOND, Order
from events.decisions import (
    EpisodeClosed,
    KillContainer,
    PodEnded,
    PodPlanned,
    PodStopBegan,
    ReleaseLock,
    Resumed,
    ShutdownBegan,
    ShutdownCancelled,
    WaveStarted,
)
from events.facts import OrderEnded
from events.history import History
from events.marks import Checkpoint
from events.record import Record
from replay.engine import Replayer
from tests.world.invariants.words import Breaches
from tests.world.pods import Box
from tests.world.trail import MS
from tests.world.view import BootView
from tests.world.world import World


def the_journal_is_sound(world: World) -> Breaches:
    """No crash and no power cut leaves more than a tear; what is there was decided by these facts."""
    for number, booted in enumerate(world.boots, 1):
        if booted.state not in ("intact", "torn"):
            yield f"after boot {number} the journal is {booted.state}: {booted.banner}"
    for life in world.lives:
        if life.verdict not in ("", "intact", "torn"):
            yield f"daemon {life.number} found the journal {life.verdict}"


def the_journal_replays(world: World) -> Breaches:
    """Re-execution gives the same decisions, byte for byte, from the first record to the last."""
    replayer = Replayer()
    replayer.feed(History([place.source for place in world.disks.places]).raw())
    divergence = replayer.finish()
    if divergence is not None:
        yield f"record {divergence.seq}: {divergence.field}: {divergence.expected} / {divergence.produced}"


def each_order_ends_once(world: World) -> Breaches:
    """One order, one outcome, over all daemons; and in the end none is forgotten."""
    opened: dict[str, Record] = {}
    for record in world.boots[-1].records:
        if isinstance(record.event, Checkpoint):
            # Where old segments were removed, this says what they left open.
            keys = [msgspec.msgpack.decode(each.order)["key"] for each in record.event.open_orders]
            opened = {key: opened.get(key, record) for key in keys}
        elif isinstance(record.event, Order):
            if record.event.key in opened:
                yield f"record {record.seq}: {record.event.key} is ordered again while it is open"
            opened[record.event.key] = record
        elif isinstance(record.event, OrderEnded) and opened.pop(record.event.key, None) is None:
            yield f"record {record.seq}: {record.event.key} ends, but is not open"
    view = BootView(world, len(world.boots) - 1)
    if not view.served_through(view.ended_ns - 2 * NS_PER_SECOND, view.ended_ns) or _hurt(world):
        return
    first = view.records[0].seq if view.records else 0
    for key, record in opened.items():
        if record.seq < first:
            yield f"record {record.seq}: {key} of an earlier boot never ended"


def fates_are_true(view: BootView) -> Breaches:
    """What the journal says became of a pod is what became of it, as far as it could be known."""
    said: dict[str, int] = {}
    begun = [(view.at_ns(record), event.uid) for record, event in view.events(PodStopBegan)]
    for record, event in view.events(PodEnded):
        boxes = [box for box in view.boxes() if box.uid == event.uid and view.of_box(box, "start")]
        at_ns, since_ns = view.at_ns(record), said.get(event.uid, 0)
        since_ns = max([since_ns, *(at for at, uid in begun if uid == event.uid and at <= at_ns)])
        said[event.uid] = at_ns
        running = [box for box in boxes if view.exit_ns(box) > at_ns]
        unseen = [box for box in boxes if view.gone_was_known_ns(box) > at_ns]
        # A daemon that comes back after the end of everything orders SIGKILL and gives up in one breath.
        rushed = not view.served_through(at_ns - view.CATCH_UP_NS, at_ns)
        fits = {
            "graceful": not running and not any(_killed_since(view, box, since_ns) for box in boxes),
            "killed": not running and (not boxes or any(_died_of_kill(view, box) for box in boxes)),
            "failed": rushed or any(view.of_box(box, "kill") for box in unseen),
            "unknown": rushed or bool(unseen) or not boxes,
            "spared": not any(_touched(view, box, since_ns, at_ns) for box in boxes),
            "rejected": not boxes,
        }
        if not fits[event.outcome]:
            yield f"record {record.seq}: {event.uid} {event.outcome} ({event.reason}) is not what happened"


def _died_of_kill(view: BootView, box: Box) -> bool:
    """SIGKILL ended it, or may have: of a process that is not its child a daemon only sees it gone."""
    exit_ns = view.exit_ns(box)
    seen = any(each.life == box.parent and each.to_ns > exit_ns + 10 * MS for each in view.served)
    ordered = any(event.uid == box.uid for _, event in view.events(KillContainer))
    return (ordered and not seen) or view.exit_signal(box) == "SIGKILL"


def _killed_since(view: BootView, box: Box, since_ns: int) -> bool:
    """SIGKILL of this shutdown, not one of an earlier shutdown that took its time."""
    kills = [kill for kill in view.of_box(box, "kill") if kill.at_ns >= since_ns]
    return bool(kills) and view.exit_signal(box) == "SIGKILL"


def _touched(view: BootView, box: Box, since_ns: int, at_ns: int) -> bool:
    return any(since_ns < seen.at_ns < at_ns for seen in view.of_box(box, "hook", "signal", "kill"))


def each_pod_ends_once(view: BootView) -> Breaches:
    """In each shutdown every planned pod has one end; when the lock goes, all have theirs."""
    if view.hurt:
        return
    for episode, records in view.episodes().items():
        ended: set[str] = set()
        planned: set[str] = set()
        released = False
        for record in records:
            if isinstance(record.event, PodEnded):
                if record.event.uid in ended:
                    yield f"episode {episode}: {record.event.uid} ended twice (record {record.seq})"
                ended.add(record.event.uid)
            elif isinstance(record.event, PodPlanned):
                planned.add(record.event.pod.uid)
            released = released or isinstance(record.event, ReleaseLock)
            if released and record.last and planned - ended:
                yield f"episode {episode}: released without an end for {sorted(planned - ended)}"
                break


def the_next_boot_tells(world: World) -> Breaches:
    """The next start says complete if and only if the release was on record, else how far it came."""
    for index in range(1, len(world.boots)):
        before = world.boots[index - 1].records
        standing = _standing(before)
        view = BootView(world, index)
        start = next((record for record, _ in view.events(Resumed)), None)
        if start is None or view.hurt:
            continue
        mine = [event for record, event in view.events(EpisodeClosed) if record.seq <= start.seq]
        said = mine[0].outcome if mine else "nothing"
        if said != standing:
            yield f"boot {index + 1} says {said} of the shutdown before it, the journal says {standing}"


def _hurt(world: World) -> bool:
    """Whether a place of the journal failed at any time."""
    return any(seen.what.startswith("journal-") for seen in world.trail.seen)


def _standing(records: list[Record]) -> str:
    """How the last shutdown stands at the end of these records, told by events alone."""
    standing = "nothing"
    for record in records:
        event = record.event
        if isinstance(event, ShutdownBegan):
            standing = "never-begun"
        elif isinstance(event, WaveStarted) and standing == "never-begun":
            standing = "truncated"
        elif isinstance(event, ReleaseLock) and standing in ("never-begun", "truncated"):
            standing = "complete"
        elif isinstance(event, ShutdownCancelled):
            standing = "cancelled"
        elif isinstance(event, EpisodeClosed):
            standing = "nothing"
    return standing


def a_release_is_remembered(world: World) -> Breaches:
    """If the lock was released in good order, the next boot finds that on record."""
    for index, booted in enumerate(world.boots[:-1]):
        view = BootView(world, index)
        last = view.of("release", "withdraw", "shutdown")
        done = bool(last) and last[-1].what == "release" and last[-1].detail == ReleaseLock.__name__
        if done and not last[-1].late and not view.fled and _standing(booted.records) not in REMEMBERED:
            yield f"boot {index + 1} released its lock, the journal says {_standing(booted.records)}"


#: "nothing": the same boot has had a last word on it already.
REMEMBERED = ("complete", "nothing")

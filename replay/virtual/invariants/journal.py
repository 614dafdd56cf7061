"""The journal: one outcome an order, true about the pods, and clear to the next boot."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from events.base import NS_PER_SECOND, Event, Order
from events.decisions import (
    EpisodeClosed,
    PodEnded,
    PodPlanned,
    ReleaseLock,
    Resumed,
    ShutdownBegan,
    ShutdownCancelled,
    WaveStarted,
)
from events.facts import OrderEnded
from events.marks import Checkpoint
from events.record import Record
from replay.virtual.invariants.words import Breaches
from replay.virtual.kubelet import KUBELET
from replay.virtual.pods import Box
from replay.virtual.trail import MS
from replay.virtual.view import BootView


def each_order_ends_once(views: Sequence[BootView]) -> Breaches:
    """One order, one outcome, over all daemons; and in the end none is forgotten."""
    opened: dict[str, Record] = {}
    for record in views[-1].boot.journal:
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
    view = views[-1]
    if not view.served_through(view.ended_ns - 2 * NS_PER_SECOND, view.ended_ns) or _hurt(views):
        return
    first = view.records[0].seq if view.records else 0
    for key, record in opened.items():
        if record.seq < first:
            yield f"record {record.seq}: {key} of an earlier boot never ended"


def fates_are_true(view: BootView) -> Breaches:
    """What the journal says became of a pod is what became of it, as far as it could be known."""
    said: dict[str, int] = {}
    for record, event in view.events(PodEnded):
        boxes = [box for box in view.boxes(event.uid) if view.of_box(box, "start")]
        at_ns, since_ns = view.at_ns(record), said.get(event.uid, 0)
        since_ns = max([since_ns, *(at for at, _ in view.stop_begins(event.uid) if at <= at_ns)])
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
    return (view.kill_was_ordered(box.uid) and not seen) or view.exit_signal(box) == "SIGKILL"


def _killed_since(view: BootView, box: Box, since_ns: int) -> bool:
    """SIGKILL of this shutdown, not one of an earlier shutdown that took its time."""
    kills = [kill for kill in view.of_box(box, "kill") if kill.at_ns >= since_ns]
    return bool(kills) and view.exit_signal(box) == "SIGKILL"


def _touched(view: BootView, box: Box, since_ns: int, at_ns: int) -> bool:
    touches = (seen for seen in view.of_box(box, "hook", "signal", "kill") if seen.life != KUBELET)
    return any(since_ns < seen.at_ns < at_ns for seen in touches)


def each_pod_ends_once(view: BootView) -> Breaches:
    """In each shutdown every planned pod has one end; when the lock goes, all have theirs."""
    if view.hurt:
        return
    for episode, records in view.episodes().items():
        ended: dict[str, None] = {}
        planned: dict[str, None] = {}
        released = False
        for record in records:
            if isinstance(record.event, PodEnded):
                if record.event.uid in ended:
                    yield f"episode {episode}: {record.event.uid} ended twice (record {record.seq})"
                ended[record.event.uid] = None
            elif isinstance(record.event, PodPlanned):
                planned[record.event.pod.uid] = None
            released = released or isinstance(record.event, ReleaseLock)
            if released and record.last:
                left = [uid for uid in planned if uid not in ended]
                if left:
                    yield f"episode {episode}: released without an end for {', '.join(left)}"
                break


def the_next_boot_tells(views: Sequence[BootView]) -> Breaches:
    """The next start says complete if and only if the release was on record, else how far it came."""
    for before, view in pairwise(views):
        standing = _standing(before.boot.journal)
        start = next((record for record, _ in view.events(Resumed)), None)
        if start is None or view.hurt:
            continue
        mine = [event for record, event in view.events(EpisodeClosed) if record.seq <= start.seq]
        said = mine[0].outcome if mine else "nothing"
        if said != standing:
            yield f"boot {view.number} says {said} of the shutdown before it, the journal says {standing}"


def _hurt(views: Sequence[BootView]) -> bool:
    """Whether a place of the journal failed at any time."""
    return any(view.fled for view in views)


STANDINGS = ("nothing", "never-begun", "truncated", "complete", "cancelled")

#: What an event makes of how the last shutdown stood before it; what is not named stays as it is.
TURNS: dict[type[Event], dict[str, str]] = {
    ShutdownBegan: dict.fromkeys(STANDINGS, "never-begun"),
    WaveStarted: {"never-begun": "truncated"},
    ReleaseLock: dict.fromkeys(("never-begun", "truncated"), "complete"),
    ShutdownCancelled: dict.fromkeys(STANDINGS, "cancelled"),
    EpisodeClosed: dict.fromkeys(STANDINGS, "nothing"),
}


def _standing(records: Sequence[Record]) -> str:
    """How the last shutdown stands at the end of these records, told by events alone."""
    standing = "nothing"
    for record in records:
        turn = TURNS.get(type(record.event))
        if turn is not None:
            standing = turn.get(standing, standing)
    return standing


def a_release_is_remembered(views: Sequence[BootView]) -> Breaches:
    """If the lock was released in good order, the next boot finds that on record."""
    for view in views[:-1]:
        last = view.of("release", "withdraw", "shutdown")
        done = bool(last) and last[-1].what == "release" and last[-1].detail == ReleaseLock.__name__
        standing = _standing(view.boot.journal)
        if done and not last[-1].late and not view.fled and standing not in REMEMBERED:
            yield f"boot {view.number} released its lock, the journal says {standing}"


#: "nothing": the same boot has had a last word on it already.
REMEMBERED = ("complete", "nothing")
